"""A case is made once: nobody asks for a preset by name again, or for a ledger that a row has already."""

import pytest

from headcount.bench.case import Case
from headcount.models.configs.base import ConfigError


def test_a_model_is_its_configuration_at_its_lengths_whatever_it_is_called():
    one = Case.of("transformer-base", {}, {"src_len": 7, "tgt_len": 5})
    swapped = Case("x", one.config, dict(reversed(one.lengths.items())))
    assert {one.model, swapped.model} == {one.model}
    longer = Case.of("transformer-base", {}, {"src_len": 7, "tgt_len": 11})
    exchanged = Case.of("transformer-base", {}, {"src_len": 5, "tgt_len": 7})
    wider = Case.of("transformer-base", {"d_ff": 13}, {"src_len": 7, "tgt_len": 5})
    assert len({case.model for case in (one, longer, exchanged, wider)}) == 4


def test_the_ideal_of_an_ideal_case_is_itself_and_what_has_no_such_form_has_none():
    ideal = Case.of("moh-llm-s-75", {"form": "ideal"})
    assert ideal.ideal is ideal and ideal.ideal_ledger is ideal.ledger
    released = Case.of("moh-llm-s-75")
    assert released.ideal_ledger == ideal.ledger != released.ledger
    assert Case.of("llm-s").ideal is None and Case.of("llm-s").ideal_ledger is None


def test_a_case_at_another_size_is_the_ledger_in_that_letter():
    case = Case.of("moa-8K8E128D", {"num_experts": 16}, {"src_len": 7, "tgt_len": 5})
    for letter, size in (("K", 3), ("E", 11), ("T", 13)):
        assert case.at(letter, size).ledger == case.ledger_in(letter, size) != case.ledger
    with pytest.raises(ConfigError, match="top_k must lie in"):
        case.at("K", 17)
