"""``headcount derive``: the closed form of a module, derived from runs of it."""

import runpy
from itertools import product

import pytest
from jaxtyping import config
from torch.utils.flop_counter import FlopCounterMode

from headcount.bench.derive.__main__ import main
from headcount.formulas.symbols import symbol
from tests.bench.derive.derive_command import is_equal, run_derive

USER = """
import math

import torch
import torch.nn.functional as F
from torch import nn


class Mixed(nn.Module):
    def __init__(self, D, h, E):
        super().__init__()
        self.qkv = nn.Linear(D, 3 * D)
        self.up = nn.Parameter(torch.empty(E, D, 4 * D))
        self.h = h

    def forward(self, x):
        B, T, D = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.h, D // self.h).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(B, T, D)
        every = torch.einsum("btd,edf->betf", y, self.up)
        rows = y.reshape(-1, D).to(torch.bfloat16)
        ends = torch.full((self.up.shape[0],), rows.shape[0], dtype=torch.int32, device=x.device)
        return every, torch._grouped_mm(rows, self.up.to(torch.bfloat16), offs=ends)


def mixed(T, D, h, E):
    return Mixed(D, h, E), (torch.empty(2, T, D),)


def pinned(T, D):
    return nn.Linear(int(D), int(D)), {"input": torch.empty(T * T, D)}


class Block(nn.Module):
    def __init__(self, D):
        super().__init__()
        self.norm = nn.LayerNorm(D)
        self.proj = nn.Linear(D, D)

    def forward(self, x):
        y = self.proj(self.norm(x)) * math.sqrt(x.shape[-1])
        return x + torch.softmax(y @ x.transpose(1, 2), -1) @ x


class Last(nn.Linear):
    def forward(self, x):
        return super().forward(x[:, -7:].squeeze())


def stacked(T, D, L):
    return nn.Sequential(*(Block(D) for _ in range(L))), (torch.empty(3, T, D),)


def last(T, D):
    return Last(D, D), (torch.empty(1, T, D),)


class Routed(nn.Module):
    def __init__(self, D, K, E):
        super().__init__()
        self.router, self.weight, self.K = nn.Linear(D, E), nn.Parameter(torch.zeros(E, D)), K

    def forward(self, x):
        return torch.einsum("td,tkd->tk", x, self.weight[self.router(x).topk(self.K).indices])


def routed(T, D, K, E):
    return Routed(D, K, E), (torch.empty(T, D),)


class Bounded(nn.Module):
    # the first K of a number of rows that no comparison of the run bounds

    def __init__(self, D, E, K, most):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(most, D))
        self.entry, self.K = nn.Linear(D, E), K

    def forward(self, x):
        return self.entry(x), torch.einsum("td,kd->tk", x, self.weight[self.weight.sum(1).topk(self.K).indices])


def bounded(T, D, K, E, most):
    return Bounded(D, E, K, eval(str(most), {"E": E})), (torch.empty(T, D),)


def branched(T, D):
    one = nn.Linear(D, D)
    return one if T < 16 else nn.Sequential(one, nn.Linear(D, D)), (torch.empty(T, D),)

"""


@pytest.fixture
def user(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(USER)
    return str(path)


def run(capsys, *argv):
    return main(argv), *capsys.readouterr()


def test_moa_equals_closed_form():
    rows, table = run_derive("T,S,K,E,D,d_model", "--preset", "moa-8K8E128D")
    T, S, K, E, D, d = map(symbol, "T S K E D d_model".split())
    assert is_equal(rows["total"], T * d * E + 2 * K * T * d * D + 2 * S * d * D + 2 * K * T * S * D)
    assert is_equal(rows["linear"], T * d * E + 2 * S * d * D)
    assert table["method"].startswith("one run with symbols") and table["domain"] == ["K <= E"]
    assert table["equals_closed_form"] is True


def test_grid_equals_closed_form(monkeypatch):
    # jaxtyping's shape checks need integers
    monkeypatch.setattr(config, "jaxtyping_disable", False)
    rows, table = run_derive("T,K", "--preset", "moa-8K8E128D", "--set", "num_experts=37")
    assert table["method"].startswith("interpolation over")
    assert table["equals_closed_form"] is True


def test_different_closed_form_fails(capsys, monkeypatch):
    from headcount.formulas import moe_ffn
    from headcount.formulas.blocks import linear

    wrong = linear("fc1", {"T": symbol("T")}, {"d_m": 512}, {"F": 2048}, False)
    monkeypatch.setattr(moe_ffn, "feed_forward", lambda path, **sizes: wrong)
    code, _, err = run(capsys, "--preset", "transformer-base", "--part", "feed-forward", "--vars", "T")
    assert code == 1 and "linear less the closed form is 1048576*T" in err


def test_module_with_einsum_sdpa_and_grouped_mm(user):
    rows, table = run_derive("T,D,h,E", "--module", f"{user}:mixed", "--base", "D=32:8", "h=2:2")
    T, D, E = map(symbol, "TDE")
    assert rows["scores"] == rows["values"] == 2 * D * T**2
    assert is_equal(rows["total"], 6 * T * D**2 + 4 * D * T**2 + 8 * E * T * D**2 + 8 * T * D**2)
    # torch's grouped product needs rows of a multiple of 16 bytes
    assert table["domain"] == ["h divides D", "8 divides D"]


def test_pinned_size_is_interpolated(user):
    rows, table = run_derive("T,D", "--module", f"{user}:pinned")
    assert rows["total"] == symbol("T") ** 2 * symbol("D") ** 2
    method = "interpolation over D = 5, 6, …, with symbols for the other sizes, because the module fixes D = 5"
    assert table["method"].startswith(method)
    assert "T=37 D=17" in table["method"]
    assert table["interpolated"] == ["D"]


def test_number_of_layers_is_interpolated(user):
    rows, table = run_derive("T,D,L", "--module", f"{user}:stacked", "--base", "L=1")
    T, D, L = map(symbol, "TDL")
    assert rows["linear"] == 3 * L * T * D**2 and rows["scores"] == rows["values"] == 3 * L * T**2 * D
    method = "interpolation over L = 1, 2, …, with symbols for the other sizes, because the module fixes L = 1:"
    assert table["method"].startswith(method)
    assert table["domain"] == []


def test_domain_excludes_memory_layout(user):
    rows, table = run_derive("T,D", "--module", f"{user}:last")
    assert rows["total"] == 7 * symbol("D") ** 2
    # squeeze() removes a width of 1, and the layer fails
    assert table["domain"] == ["T >= 7"] and table["tried"] == ["D >= 2"]


def test_domain_has_what_the_run_refuses(user, capsys):
    """No comparison of the run has K <= E, which the selection needs; a router of one entry counts the same."""
    rows, table = run_derive("T,D,K,E", "--module", f"{user}:routed")
    T, D, K, E = map(symbol, "TDKE")
    assert is_equal(rows["total"], T * D * E + T * K * D)
    assert table["domain"] == [] and table["tried"] == ["K <= E"]
    assert {"E=1 with K=1", "K=1"} <= set(table["at_one"])
    make = runpy.run_path(user)["routed"]
    for sizes in product((1, 2, 3), repeat=4):
        module, (x,) = make(*sizes)
        try:
            with FlopCounterMode(display=False) as counted:
                module(x)
        except RuntimeError:
            assert sizes[2] > sizes[3]
        else:
            assert sizes[2] <= sizes[3]
            # torch's counter misses the products that einsum writes elementwise, as of sizes of 1
            assert min(sizes) < 2 or counted.get_total_flops() == 2 * sizes[0] * sizes[1] * (sizes[3] + sizes[2])
    assert main([f"{user}:routed"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Holds wherever the module runs, for sizes of at least 2. Found by trying, not proved: K <= E." in text
    assert "E >= 2" not in text and "--format json" not in text


BOUNDS = {"16": ["K <= 16"], "2 * E": ["K <= 34 at T=11 D=5 E=17", "E >= 2 at T=11 D=5 K=3"], "E": ["K <= E"]}


@pytest.mark.parametrize("most", BOUNDS)
def test_bound_is_a_size_or_a_number(user, most):
    _, table = run_derive("T,D,K,E", "--module", f"{user}:bounded", "--set", f"most={most}")
    assert table["tried"] == BOUNDS[most]


@pytest.mark.parametrize("start, times, domain", [(11, 1, "T < 16"), (17, 2, "T >= 16")])
def test_each_branch_has_a_polynomial(user, start, times, domain):
    rows, table = run_derive("T,D", "--module", f"{user}:branched", "--base", f"T={start}")
    assert rows["total"] == times * symbol("T") * symbol("D") ** 2
    # a bound that the run states is not searched for
    assert table["domain"] == [domain] and table["tried"] == []
    if start == 11:
        assert "confirmed by counting at T=13 D=7; T=12 D=6" in table["method"]
