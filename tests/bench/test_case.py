"""A case is made once: nobody asks for a preset by name again, or for a ledger that a row has already."""

import pytest

from headcount.bench.case import Case
from headcount.models.configs.base import ConfigError


def test_case_key_ignores_names():
    one = Case.of("transformer-base", {}, {"src_len": 7, "tgt_len": 5})
    swapped = Case("x", one.config, dict(reversed(one.lengths.items())))
    assert {one.model, swapped.model} == {one.model}
    longer = Case.of("transformer-base", {}, {"src_len": 7, "tgt_len": 11})
    exchanged = Case.of("transformer-base", {}, {"src_len": 5, "tgt_len": 7})
    wider = Case.of("transformer-base", {"d_ff": 13}, {"src_len": 7, "tgt_len": 5})
    assert len({case.model for case in (one, longer, exchanged, wider)}) == 4


def test_case_at_size_equals_ledger_in_letter():
    case = Case.of("moa-8K8E128D", {"num_experts": 16}, {"src_len": 7, "tgt_len": 5})
    for letter, size in (("K", 3), ("E", 11), ("T", 13)):
        assert case.at(letter, size).ledger == case.ledger_in(letter, size) != case.ledger
    with pytest.raises(ConfigError, match="top_k must lie in"):
        case.at("K", 17)
