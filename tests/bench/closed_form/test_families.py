"""Closed forms of configurations against counts: every column of two further lengths, of many families."""

import json
from functools import cache
from math import prod

import pytest

from headcount.bench.accounts import Assumptions, values
from headcount.bench.card_times import kernels_of
from headcount.bench.closed_form.case import ConfigurationCase
from headcount.bench.closed_form.derivation import derive
from headcount.bench.counting.module import count
from headcount.bench.targets.target import Target
from headcount.bench.targets.user_code import UserCodeError
from headcount.formulas import prices
from tests.bench.closed_form.families import FAMILIES, REFUSED, config
from tests.bench.closed_form.public import PUBLIC

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


@pytest.fixture(scope="module")
def case_of(tmp_path_factory):
    """A function of a family and lengths: its case, whose form is derived once."""
    folder = tmp_path_factory.mktemp("families")

    @cache
    def form(kind):
        path = folder / f"{kind}.json"
        path.write_text(json.dumps(PUBLIC[kind].config if kind in PUBLIC else config(kind)))
        return str(path), derive(Target(str(path), lengths=LENGTHS[0]))

    def make(kind, lengths):
        path, found = form(kind)
        return ConfigurationCase(kind, found, lengths, target=Target(path, lengths=lengths))

    return make


def check_equals_count(case):
    """Fail where a column of a case is not that of a count at its lengths."""
    counted = count(case.target, columns=COLUMNS, given=GIVEN, roots={})
    assert case.ledger.macs == counted.macs
    assert case.ledger.params == counted.params
    assert counted.active_params in (case.ledger.active_params, None)
    of_count, _ = values([*COLUMNS, "macs_per_token", "other_flops"], counted, GIVEN)
    of_form, reasons = values(list(of_count), case, GIVEN)
    known = {name: value for name, value in of_form.items() if name not in reasons}
    assert known == {name: of_count[name] for name in known}
    # a recurrence has other gradients than products of its size, and a window needs a mask that has it
    unknown = {"training_macs"} | ({"windowed_macs"} if not case.config.windows else set())
    assert not any(of_count[name] for name in reasons if name in COLUMNS and name not in unknown)


@pytest.mark.parametrize("kind", KINDS)
def test_closed_form_equals_count(kind, case_of):
    for lengths in LENGTHS:
        check_equals_count(case_of(kind, lengths))


@pytest.mark.nightly
@pytest.mark.parametrize("name", PUBLIC)
def test_closed_form_equals_count_at_full_width(name, case_of):
    public = PUBLIC[name]
    beyond = max(public.windows, default=0) + 41
    for lengths in ({"batch_size": 1, "seq_len": 29}, {"batch_size": 2, "seq_len": beyond}):
        case = case_of(name, lengths)
        assert (case.config.windows, case.ledger.params) == (public.windows, public.params)
        cached, _ = values(["kv_bytes"], case, GIVEN)
        assert cached["kv_bytes"] == 2 * lengths["batch_size"] * public.cached(lengths["seq_len"])
        check_equals_count(case)


def test_products_of_experts_move_their_rows_and_experts(case_of):
    case = case_of("qwen3_moe", {"batch_size": 2, "seq_len": 41})
    # 2 rows of a token, 5 experts of 24 x 32 and 16 x 24, of 2 bytes, in 2 layers
    rows = 2 * 2 * 41
    found = [one for one in kernels_of(case, case.ledger, GIVEN).forward() if one.kind == "grouped"]
    assert [(one.bytes, one.macs, one.times) for one in found] == [
        (2 * (5 * 24 * 32 + rows * (24 + 32)), rows * 24 * 32, 2),
        (2 * (5 * 16 * 24 + rows * (16 + 24)), rows * 16 * 24, 2),
    ]


UNMASKED = {"gpt_neo": "the mask of transformer.h.0.attn.attention is not known"}
"""Families whose masks a run does not show, with the reason."""
WITHOUT_ATTENTION = ("mamba", "mamba2")


def visible_pairs(kind, lengths):
    """Return the pairs of queries and keys with a probability in a real run, of all sequences, heads and layers."""
    import torch
    import transformers

    cls, fields = FAMILIES[kind]
    if kind == "deepseek_v2":
        # complex numbers of a run are pairs of even strides
        fields = {**fields, "kv_lora_rank": 8}
    made = transformers.AutoConfig.for_model(kind, **fields)
    model = getattr(transformers, cls)._from_config(made, attn_implementation="eager").eval()
    with torch.no_grad():
        ids = torch.full((lengths["batch_size"], lengths["seq_len"]), 7)
        found = model(ids, output_attentions=True).attentions
    return sum(int((one > 0).sum()) for one in found if one is not None)


@pytest.mark.parametrize("kind", [
    one if one in DAILY else pytest.param(one, marks=pytest.mark.nightly)
    for one in FAMILIES if one not in WITHOUT_ATTENTION
])  # fmt: skip
def test_attention_kernels_have_the_pairs_of_a_real_mask(kind, case_of):
    for lengths in LENGTHS:
        case = case_of(kind, lengths)
        cores = [one for one in kernels_of(case, case.ledger, GIVEN).forward() if one.core]
        # of a query and key, and of a value
        fields = FAMILIES[kind][1]
        width = 4 + 6 + 5 if "kv_lora_rank" in fields else 2 * cores[0].core.width
        if kind in UNMASKED:
            assert case.config.no_mask == UNMASKED[kind]
            pairs = sum(one.times * prod(one.core[:3]) for one in cores)
        else:
            pairs = visible_pairs(kind, lengths)
        assert sum(one.times * one.macs for one in cores) == width * pairs


@pytest.mark.nightly
@pytest.mark.parametrize("kind", REFUSED)
def test_model_without_closed_form_is_refused(kind, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config(kind)))
    with pytest.raises(UserCodeError, match=REFUSED[kind][2]):
        derive(Target(str(path), lengths={"seq_len": 8}))


@pytest.mark.parametrize("kind", ["llama", "qwen3_moe", "deepseek_v3"])
def test_step_has_the_other_operations_of_a_pass_over_one_token(kind, case_of):
    case = case_of(kind, {"batch_size": 3, "seq_len": 1})
    counted = count(case.target, columns=["decode_macs"], given=GIVEN, roots={})
    assert any(counted.other_flops.values())
    assert prices.other_flops(case.step(1), prices.PRICES) == counted.other_flops
