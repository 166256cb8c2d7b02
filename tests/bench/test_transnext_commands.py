"""What commands say of a model of images: the account where there is one, else why not, in one line."""

import pytest

from headcount.bench.accounts import Assumptions, values
from headcount.bench.budget.search import base_for
from headcount.bench.case import Case
from headcount.bench.derive import parts
from headcount.bench.errors import UsageError
from headcount.models.configs.base import ConfigError
from headcount.models.configs.make import make_config
from headcount.models.configs.presets import preset

CASE = Case.of("moh-vit-s-75")


def test_accounts_of_decoding_say_why_there_are_none():
    found, missing = values(["kv_bytes", "decode_macs", "training_macs"], CASE, Assumptions())
    assert found == {"kv_bytes": None, "decode_macs": None, "training_macs": 3 * CASE.ledger.macs}
    assert set(missing.values()) == {"an image classifier reads its image at once and decodes no tokens"}


@pytest.mark.parametrize("attention", [{}, dict(attention="moh_aggregated", num_shared_heads=1, top_k=1)])
def test_a_layer_of_a_grid_says_why_it_has_no_step(attention):
    sizes = dict(attention="aggregated", d_model=21, num_heads=3, side=10, pool_ratio=2)
    _, missing = values(["kv_bytes"], Case("grid", make_config(sizes | attention), {"batch_size": 1}), Assumptions())
    assert missing == {"kv_bytes": "the tokens of a grid are read at once"}


def test_the_number_of_tokens_is_no_length():
    assert CASE.letters() == ()
    assert CASE.uneven() == ("h", "s", "r")
    with pytest.raises(ConfigError, match="^a transnext model has no input length; its T is its num_tokens$"):
        CASE.at("T", 64)
    with pytest.raises(ConfigError, match="^transnext has no seq_len; choose from batch_size$"):
        Case.of("transnext-micro", lengths={"seq_len": 64})


def test_another_attention_is_refused():
    name, fields = base_for("moh", "transnext-small", preset("transnext-small"))
    with pytest.raises(ConfigError, match="^attention must be aggregated or moh_aggregated in a transnext model"):
        preset(name, {**fields, "num_shared_heads": 1, "top_k": 1, "num_heads": 3})


@pytest.mark.parametrize(
    "which, variables, message",
    [
        ("attention", ["h"], "moh_aggregated attention is of a grid of tokens, whose number is no length to change"),
        ("feed-forward", ["F"], "the feed-forward blocks of a transnext model differ from stage to stage"),
    ],
)
def test_parts_that_differ_from_stage_to_stage_are_not_derived(which, variables, message):
    with pytest.raises(UsageError) as error:
        parts.part("moh-vit-s-75", which, {}, variables)
    assert str(error.value) == message
