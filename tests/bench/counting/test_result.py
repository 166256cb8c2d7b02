"""A count as plain data: what is written is read, and what is broken is an error that says where."""

import json
import pickle

import pytest
import torch
from torch import nn

import headcount as hc
from headcount.bench.case import Case
from headcount.bench.contractions import module_tree
from headcount.bench.counting.count import count as count_target
from headcount.bench.counting.result import Count
from headcount.bench.counting.tools import read
from tests.bench.contractions.function_modules import module

X = torch.ones(7, 11)


class Shared(nn.Module):
    """A tied and a frozen weight, a module that does not run, and an unsupported operation."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(13, 11)
        self.out = nn.Linear(11, 13, bias=False)
        self.out.weight = self.table.weight
        self.norm, self.idle = nn.LayerNorm(11), nn.Linear(3, 5)
        self.norm.requires_grad_(False)

    def forward(self, ids):
        return torch.fft.rfft(self.out(self.norm(self.table(ids)))).abs()


class Experts(nn.Module):
    """Top-2 of 5 experts in one tensor."""

    def __init__(self):
        super().__init__()
        self.router, self.weights = nn.Linear(11, 5), nn.Parameter(torch.ones(5, 11, 3))

    def forward(self, x):
        scores, chosen = self.router(x).topk(2)
        return (torch.einsum("ti,tkij->tkj", x, self.weights[chosen]) * scores[..., None]).sum(1)


def attend(query, keys):
    return nn.functional.scaled_dot_product_attention(query, keys, keys, is_causal=True)


class Gated(nn.Module):
    """A linear layer, and a module that writes a product of two tensors elementwise and sums it."""

    def __init__(self):
        super().__init__()
        self.out, self.inner = nn.Linear(11, 3), module(lambda a, b: (a[:, None] * b).sum(-1))

    def forward(self, x):
        return self.out(x).sum() + self.inner(x, x).sum()


layer = nn.TransformerEncoderLayer(12, 2, 17, batch_first=True)
COUNTS = {
    "linear": lambda: hc.count(nn.Linear(11, 13), X),
    "encoder": lambda: hc.count(nn.TransformerEncoder(layer, 3), torch.ones(3, 5, 12)),
    "backward": lambda: hc.count(nn.Linear(11, 13), X, backward=True),
    "convolution": lambda: hc.count(nn.Conv2d(3, 5, 3), torch.ones(2, 3, 7, 7)),
    "shared": lambda: hc.count(Shared(), torch.zeros(2, 7, dtype=torch.long), allow_unsupported=True),
    "experts": lambda: hc.count(Experts(), X),
    "causal": lambda: hc.count(module(attend), torch.ones(2, 3, 7, 5), torch.ones(2, 3, 7, 5)),
    "elementwise": lambda: hc.count(module(lambda a, b: (a * b).sum(-1) + a.square().sum()), X, X),
    "included": lambda: hc.count(module(lambda a, b: (a * b).sum(-1)), X, X, elementwise="include"),
    "included inside": lambda: hc.count(Gated(), X, elementwise="include"),
    "included gradients": lambda: hc.count(Gated(), X, elementwise="include", backward=True),
    "reported inside": lambda: hc.count(Gated(), X),
    "function": lambda: hc.count(lambda x: layer(x), torch.ones(3, 5, 12)),
    "nothing": lambda: hc.count(nn.Identity(), X),
    "quantised": lambda: hc.count(module(lambda a: a.to(torch.float8_e4m3fn).float() @ a.T), X),
    "formula": lambda: hc.count(module(torch.linalg.inv), torch.eye(5), formula_set="linalg"),
    "tools": lambda: read(nn.Linear(11, 13), [X], counters=["torch", "fvcore", "ptflops-aten"], label="linear"),
    "closed form": lambda: Count("moh", Case.of("moh-llm-s-75").ledger),
}


@pytest.mark.parametrize("name", COUNTS)
def test_count_is_read_as_it_was_written(name):
    count = COUNTS[name]()
    data = json.loads(json.dumps(count.to_json(), allow_nan=False))
    again = Count.from_json(data)
    assert again == count and again.to_json() == count.to_json()
    assert (again.trace is None) and str(again) == str(count)


@pytest.mark.parametrize("name", COUNTS)
def test_every_sum_of_a_count_is_its_macs(name):
    count = COUNTS[name]()
    products, modules = count.to_dataframe(), count.to_dataframe("modules")
    root = module_tree.table(count, [], None).rows[0]
    sums = [count.by_module()[""], sum(count.by_kind().values()), products["macs"].sum(), count.flops // 2]
    assert {count.macs} == {*sums, 0 if count.macs == 0 else modules["macs"].iloc[0], root.macs or 0}
    assert count.macs == 0 or round(products["share"].sum(), 9) == root.share == 100
    written = 7 * 7 * 11 if "inside" in name else 0
    assert count.with_elementwise - count.dispatched >= written
    assert name != "included inside" or count.macs == 7 * 11 * 3 + written == count.by_module()["inner"] + 7 * 11 * 3


def test_count_of_another_process_has_no_run():
    count = COUNTS["experts"]()
    again = pickle.loads(pickle.dumps(count))
    assert again == count and again.run is None


def test_what_is_costly_is_found_at_the_first_use():
    count = COUNTS["encoder"]()
    assert count.macs and count.by_kind() and count.with_values(depth=1).depth == 1
    found = {name for name, value in vars(count).items() if not callable(getattr(value, "__set_name__", None))}
    assert found.isdisjoint({"elementwise", "modules", "bytes_moved", "causal_macs", "other_flops", "versions"})


def test_closed_form_has_the_parameters_of_its_ledger():
    case = Case.of("moh-llm-s-75")
    count, ledger = count_target(case), case.ledger
    assert (count.macs, count.params, count.active_params) == (ledger.macs, ledger.params, ledger.active_params)
    assert (count.tools, count.modules, count.trace) == ((), None, None)


def edit(**fields):
    return {**json.loads(json.dumps(COUNTS["shared"]().to_json())), **fields}


BROKEN = {
    "unknown field": (edit(speed=7), "unknown key 'speed' of count"),
    "no ledger": (edit(ledger=None), "ledger has the wrong type"),
    "text as macs": (edit(macs="7"), "macs: "),
    "other sum": (edit(params=7), "params: "),
    "other active sum": (edit(active_params=None), "active_params: "),
    "text as modules": (edit(modules="all"), "modules has the wrong type: 'all'"),
    "unknown field of a module": (edit(modules=[{"path": "", "kind": "Net"}]), "unknown key 'kind' of modules"),
    "columns of another type": (edit(columns={"kv_bytes": 7.5}), "columns has the wrong type: 7.5"),
    "shape of another type": (edit(parameters=[{"path": "w", "shape": 7}]), "shape has the wrong type: 7"),
    "boolean calls": (
        edit(audit=[{"operation": "mm", "state": "counted", "path": "", "calls": True, "shapes": []}]),
        "calls has the wrong type: True",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_broken_count_is_named(what):
    data, words = BROKEN[what]
    with pytest.raises((TypeError, ValueError)) as raised:
        Count.from_json(data)
    assert words in str(raised.value)
