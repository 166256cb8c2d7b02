"""Closed forms of configurations against counts: every column of two further lengths, of many families."""

import json

import pytest

from headcount.bench.accounts import ACCOUNTS, Assumptions, values
from headcount.bench.closed_form.case import ConfigurationCase
from headcount.bench.closed_form.derivation import derive
from headcount.bench.counting.module import count
from headcount.bench.targets.target import Target
from headcount.bench.targets.user_code import UserCodeError
from tests.bench.closed_form.families import FAMILIES, REFUSED, config

pytest.importorskip("transformers", reason="the optional extra hf is not installed")

DAILY = ("gemma2", "qwen3_moe", "deepseek_v3", "qwen3_next")
"""One of windows, routed experts, latents and recurrent states each."""
COLUMNS = (
    "decode_macs", "decode_bytes", "kv_bytes", "kv_token_bytes", "causal_macs", "windowed_macs", "training_macs",
    "forward_bytes",
)  # fmt: skip
LENGTHS = ({"batch_size": 1, "seq_len": 29}, {"batch_size": 2, "seq_len": 41})
GIVEN = Assumptions()
KINDS = [kind if kind in DAILY else pytest.param(kind, marks=pytest.mark.nightly) for kind in FAMILIES]


@pytest.mark.parametrize("kind", KINDS)
def test_closed_form_equals_count(kind, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config(kind)))
    form = derive(Target(str(path), lengths=LENGTHS[0]))
    for lengths in LENGTHS:
        target = Target(str(path), lengths=lengths)
        case = ConfigurationCase(kind, form, lengths, target=target)
        counted = count(target, columns=COLUMNS, given=GIVEN, roots={})
        assert case.ledger.macs == counted.macs
        assert case.ledger.params == counted.params
        assert counted.active_params in (case.ledger.active_params, None)
        of_count, _ = values([*COLUMNS, "macs_per_token", "other_flops"], counted, GIVEN)
        of_form, reasons = values(list(of_count), case, GIVEN)
        known = {name: value for name, value in of_form.items() if name not in reasons}
        assert known == {name: of_count[name] for name in known}
        # a recurrence has other gradients than products of its size, and a window needs a mask that has it
        unknown = {"training_macs"} | ({"windowed_macs"} if not form.windows else set())
        assert not any(of_count[name] for name in reasons if name in COLUMNS and name not in unknown)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", REFUSED)
def test_model_without_closed_form_is_refused(kind, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config(kind)))
    with pytest.raises(UserCodeError, match=REFUSED[kind][2]):
        derive(Target(str(path), lengths={"seq_len": 8}))


def test_columns_of_a_count_are_those_of_presets():
    assert set(COLUMNS) <= set(ACCOUNTS)
