"""All ways to ask for a rule's FLOPs of a model give one number, or all give none, for one reason."""

import inspect
import json
import re
from argparse import Namespace
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path

import pytest

import headcount as hc
from headcount.bench import accounts, mfu
from headcount.bench.closed_form.case import configuration_case
from headcount.bench.counting.count import count
from headcount.bench.errors import UsageError
from headcount.bench.hardware import Peak
from headcount.bench.macs import columns, entries, own_models
from headcount.bench.targets.target import Target, parse_target
from headcount.bench.training_flops import flops_per_token
from headcount.formulas.conventions import CONVENTIONS, TRAINING
from headcount.formulas.published import own
from headcount.formulas.published.figures import evaluate
from tests.bench.closed_form.families import ERNIE, config
from tests.bench.mixture import Mixture

B, T = 3, 5
TOKENS, SECONDS, DEVICES, PEAK = 1000, 2, 7, 10**12
"""Of a measured step."""
MODEL = f"""
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

IDS = torch.ones({B}, {T}, dtype=torch.long)

class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.proj, self.out = nn.Embedding(11, 7), nn.Linear(7, 7), nn.Linear(7, 11, bias=False)

    def forward(self, ids):
        x = self.proj(self.embed(ids))[:, None]
        return self.out(scaled_dot_product_attention(x, x, x, is_causal=True))

{inspect.getsource(Mixture)}
def freeze(model, *names):
    for name, one in model.named_parameters():
        one.requires_grad_(not any(part in name for part in names))
    return model

def trained(): return Decoder(), (IDS,)
def frozen(): return freeze(Decoder(), "proj"), (IDS,)
def frozen_table(): return freeze(Decoder(), "embed"), (IDS,)
def one_trained(): return freeze(Decoder(), "embed", "weight"), (IDS,)
def all_frozen(): return freeze(Decoder(), ""), (IDS,)
def tied(*names):
    model = Decoder()
    model.out.weight = model.embed.weight
    return freeze(model, *names), (IDS,)
def tied_frozen(): return tied("embed")
def mixture(*names, active_params=None):
    model = freeze(Mixture(3, 7), *names)
    if active_params:
        model.active_params = active_params
    return model, (torch.ones({B}, {T}, 7),)
def stating(): return mixture(active_params=70)
def frozen_router(): return mixture("router", active_params=70)
def frozen_expert(): return mixture("experts.1", active_params=70)
def no_tokens(): return nn.Linear(7, 5), (torch.ones(3, 7),)

class Elementwise(Decoder):
    def forward(self, ids):
        x = super().forward(ids)
        return x + (x[..., None] * x[..., None, :]).sum(-1)

class MaskedByInput(Decoder):
    def __init__(self):
        super().__init__()
        self.unused, self.cache_elements = nn.Linear(13, 17), 42

    def forward(self, ids, mask):
        x = self.proj(self.embed(ids))[:, None]
        return self.out(scaled_dot_product_attention(x, x, x, attn_mask=mask))

class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.decoder, self.image = freeze(Decoder(), "proj"), nn.Linear(9, 11)

    def forward(self, ids, image):
        return self.decoder(ids).sum() + self.image(image).sum()

def elementwise(): return Elementwise(), (IDS,)
def masked(): return MaskedByInput(), (IDS, torch.ones({T}, {T}).tril().bool())
def both(): return Both(), (IDS, torch.ones(2, 4, 9))
"""
FUNCTIONS = [
    "trained", "frozen", "frozen_table", "one_trained", "all_frozen", "tied", "tied_frozen", "mixture", "stating",
    "frozen_router", "frozen_expert", "no_tokens",
]  # fmt: skip
QUANTITIES = ("training_flops_per_token", "training_flops", "mfu", "per_sample")
"""Columns of a user's table."""
COLUMNS = (
    "macs", "flops", "params", "active_params", "kv_bytes", "kv_token_bytes", "macs_per_token", "macs_per_sample",
    "causal_macs",
)  # fmt: skip
"""Columns of count that a user's table may print."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("models")
    (path / "net.py").write_text(MODEL)
    return path


def count_function(folder, name, columns=(), **options):
    """Return the count of a model of MODEL, with other fields of its target."""
    target = parse_target(f"{folder}/net.py:{name}", Namespace(set=None, input=None, dtype=None))
    return count(replace(target, **options), columns=columns)


@pytest.fixture(scope="module", params=FUNCTIONS)
def counted(request, folder):
    return count_function(folder, request.param)


def answer(call):
    """Return what a function returns, or why it does not: without the place in a table and the rules that apply."""
    try:
        return call()
    except own_models.NotCounted as error:
        (reason,) = {re.sub(r"^.*: line \d+: |; choose from .*$", "", line) for line in str(error).splitlines()}
        return reason
    except UsageError as error:
        return error.reason


def in_python(counted, rule):
    """Return the FLOPs per token with recomputation and without, as hc.MFU has them."""
    found = hc.MFU(counted, peak="1T", rule=rule)
    return found.hardware_flops_per_token or found.flops_per_token, found.flops_per_token


def in_columns(counted, rule):
    """Return the FLOPs per token, the FLOPs per step and the MFU of count, and of --vary."""
    given = accounts.Assumptions(rule=rule, tokens=TOKENS, seconds=SECONDS, devices=DEVICES, peak=Peak(PEAK))
    names = ("training_flops_per_token", "training_flops_per_step", "mfu")
    return [answer(partial(accounts.value_of, name, counted, given)) for name in names]


def in_compare(counted, rule):
    """Return the FLOPs per token of compare."""
    (table,) = entries.rule_totals(counted, "net.py", [rule], [], accounts.Assumptions()).tables
    return table.rows[0].flops


def in_table(target, rule, folder):
    """Return the exact number of each quantity of a user's table, or why there is none."""
    text = f"""rule = "{rule}"
peak = "1T"
[[figure]]
name = "per_sample"
head = "work per sample"
value = "work * T / samples"
"""
    given = f"given = {{ tokens = {TOKENS}, seconds = {SECONDS}, devices = {DEVICES} }}"
    text += "".join(f'[[row]]\ntarget = "{target}"\n{given}\nprinted = {{ {key} = "7" }}\n' for key in QUANTITIES)
    path = str(folder / "mine.toml")
    models = own_models.Models(own.load(path, text, "", False, lambda name: None), path, True, False)
    figures = {one.name: replace(one, rule=rule) for one in models.table.columns}
    values = [evaluate(row, figures[key], models.of) for key, row in zip(QUANTITIES, models.table.rows, strict=True)]
    assert all(value.low == value.high for value in values) and not models.failed
    return [value.low for value in values]


@pytest.mark.parametrize("rule", TRAINING)
def test_all_ways_give_one_number_or_one_reason(counted, rule, folder, monkeypatch):
    monkeypatch.setattr(own_models, "count", lambda *_, **__: counted)
    python, cells = answer(partial(in_python, counted, rule)), in_columns(counted, rule)
    others = [
        answer(partial(in_compare, counted, rule)),
        answer(partial(in_table, Path(counted.target.spec).name, rule, folder)),
    ]
    if isinstance(python, str):
        assert {*cells, *others} == {python}
        return
    flops, model = python
    share = 100 * model * TOKENS / Fraction(SECONDS * DEVICES * PEAK)
    assert cells == [flops, flops * B * T, share]
    assert others == [flops, [flops, flops * TOKENS, share, flops * T]]


@pytest.mark.parametrize("rule", ["6n", "deepseek_causal", "maxtext_644"])
def test_products_written_elementwise_are_in_no_rule(folder, rule):
    without, included = (count_function(folder, "elementwise", elementwise=how) for how in ("report", "include"))
    assert included.macs > without.macs
    assert in_python(included, rule) == in_python(without, rule)
    assert in_columns(included, rule) == in_columns(without, rule)


@pytest.mark.parametrize("name", ["frozen", "stating", "mixture", "no_tokens", "elementwise", "masked", "both"])
def test_table_has_the_numbers_of_count(folder, name):
    found, missing = accounts.values(COLUMNS, count_function(folder, name, COLUMNS), accounts.Assumptions())
    text = '[[figure]]\nname = "causal"\nhead = "causal"\nvalue = "causal_macs"\n'
    keys = {key.replace("causal_macs", "causal"): key for key in COLUMNS}
    text += "".join(f'[[row]]\ntarget = "net.py:{name}"\nprinted = {{ {key} = "7" }}\n' for key in keys)
    path = str(folder / "other.toml")
    models = own_models.Models(own.load(path, text, "", False, lambda name: None), path, True, False)
    figures = {one.name: one for one in models.table.columns}
    for number, (key, row) in enumerate(zip(keys, models.table.rows, strict=True)):
        assert (number in models.failed) == (keys[key] in missing), key
        if number not in models.failed:
            assert evaluate(row, figures[key], models.of).low == found[keys[key]]
    assert name != "masked" or (found["causal_macs"], found["kv_bytes"]) == (2520, 84)


@pytest.fixture(scope="module", params=["llama", "mixtral", "ernie4_5_moe"])
def configuration(request, tmp_path_factory):
    """Return the count of a configuration: plain, of a mixture, and of one with frozen weights."""
    pytest.importorskip("transformers", reason="the optional extra hf is not installed")
    path = tmp_path_factory.mktemp("configuration") / "config.json"
    path.write_text(json.dumps(ERNIE if request.param == "ernie4_5_moe" else config(request.param)))
    return count(Target(str(path), lengths={"seq_len": T, "batch_size": B}))


@pytest.mark.parametrize("rule", TRAINING)
def test_all_ways_give_one_number_of_a_configuration(configuration, rule, monkeypatch):
    monkeypatch.setattr(own_models, "count", lambda *_, **__: configuration)
    monkeypatch.setattr(mfu, "count_macs", lambda *_, **__: configuration)
    target = configuration.target
    closed = configuration_case(target)
    flops = flops_per_token(closed, CONVENTIONS[rule])
    model = flops_per_token(closed, CONVENTIONS[rule].without_recomputation)
    share = 100 * model * TOKENS / Fraction(SECONDS * DEVICES * PEAK)
    given = accounts.Assumptions(rule=rule, tokens=TOKENS, seconds=SECONDS, devices=DEVICES, peak=Peak(PEAK))
    names = ("training_flops_per_token", "training_flops_per_step", "mfu")
    for table in (columns.of_module(configuration, "", names, given), columns.table_of([closed], "", names, given)):
        assert [*table.rows[0].accounts.values.values()] == [flops, flops * B * T, share]
    assert in_compare(configuration, rule) == flops
    assert in_table(f"config.json,T={T},B={B}", rule, Path(target.spec).parent) == [
        flops,
        flops * TOKENS,
        share,
        flops * T,
    ]
    found = hc.MFU(f"{target.spec},T={T},B={B}", peak="1T", rule=rule)
    assert found.flops_per_token == model and (found.hardware_flops_per_token or flops) == flops
