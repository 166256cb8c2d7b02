"""python -m bench.derive: the closed form of a module, found by running it."""

import pytest
import sympy
from jaxtyping import config

from headcount.bench.derive.__main__ import main
from headcount.formulas.symbols import symbol
from tests.bench.derive.derived import derived

pytestmark = pytest.mark.usefixtures("warm")
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


class Padded(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Linear(8, 8)

    def forward(self, x):
        return self.w(F.pad(x, (0, 0, 0, -x.shape[0] % 8)))


def mixed(T, D, h, E):
    return Mixed(D, h, E), (torch.empty(2, T, D),)


class Halved(nn.Linear):
    def forward(self, x):
        return super().forward(x[: x.shape[0] // 2])


def halved(T):
    return Halved(8, 8), (torch.empty(T, 8),)


def padded(T):
    return Padded(), (torch.empty(T, 8),)


def pinned(T, D):
    return nn.Linear(int(D), int(D)), {"input": torch.empty(T * T, D)}


def small(T):
    if int(T) > 13:
        raise ValueError("at most 13")
    return nn.Linear(2, 2), (torch.empty(int(T), 2),)


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


def test_moa_is_derived_in_one_run_and_is_the_closed_form():
    rows, table = derived("T,S,K,E,D,d_model", "--preset", "moa-8K8E128D")
    T, S, K, E, D, d = map(symbol, "T S K E D d_model".split())
    assert sympy.expand(rows["total"] - (T * d * E + 2 * K * T * d * D + 2 * S * d * D + 2 * K * T * S * D)) == 0
    assert sympy.expand(rows["linear"] - (T * d * E + 2 * S * d * D)) == 0
    assert table["method"].startswith("one run with symbols") and table["domain"] == ["K <= E"]
    assert table["equals_closed_form"] is True


def test_without_symbols_the_same_comes_from_a_grid(capsys, monkeypatch):
    # checks of shapes want numbers
    monkeypatch.setattr(config, "jaxtyping_disable", False)
    rows, table = derived("T,K,E", "--preset", "moa-8K8E128D")
    assert table["method"].startswith("an interpolation, because with symbols it raises TypeCheckError")
    assert table["equals_closed_form"] is True


def test_self_attention_has_its_keys_from_its_queries():
    rows, table = derived("T,h,d_h,d_m", "--preset", "transformer-base")
    T, h, d_h, d = map(symbol, "T h d_h d_m".split())
    assert sympy.expand(rows["total"] - (4 * T * d * h * d_h + 2 * h * T**2 * d_h)) == 0
    assert table["equals_closed_form"] is True


def test_feed_forward_is_the_closed_form(capsys):
    rows, table = derived("batch_size,T,d_model,d_ff", "--preset", "transformer-big", "--part", "feed-forward")
    assert rows["total"] == 2 * sympy.prod(map(symbol, ("batch_size", "T", "d_model", "d_ff")))
    assert table["equals_closed_form"] is True


def test_a_closed_form_that_differs_is_said_to(capsys, monkeypatch):
    from headcount.formulas import transformer
    from headcount.formulas.blocks import linear

    wrong = linear("fc1", {"T": symbol("T")}, {"d_m": 512}, {"F": 2048}, False)
    monkeypatch.setattr(transformer, "feed_forward", lambda path, **sizes: wrong)
    code, _, err = run(capsys, "--preset", "transformer-base", "--part", "feed-forward", "--vars", "T")
    assert code == 1 and "linear is the closed form and 1048576*T" in err


def test_a_users_module_with_einsum_fused_attention_and_grouped_products(capsys, user):
    rows, table = derived("T,D,h,E", "--module", f"{user}:mixed", "--base", "D=32:8", "h=2:2")
    T, D, E = map(symbol, "TDE")
    assert rows["scores"] == rows["values"] == 2 * D * T**2
    assert sympy.expand(rows["total"] - (6 * T * D**2 + 4 * D * T**2 + 8 * E * T * D**2 + 8 * T * D**2)) == 0
    # torch's grouped product wants rows of a multiple of 16 bytes
    assert table["domain"] == ["h divides D", "8 divides D"]


def test_a_module_that_pins_a_size_is_interpolated_and_says_so(capsys, user):
    rows, table = derived("T,D", "--module", f"{user}:pinned")
    assert rows["total"] == symbol("T") ** 2 * symbol("D") ** 2
    assert table["method"].startswith("an interpolation in D, because it pins D = 5, with symbols for the other")
    assert "T=37 D=17" in table["method"]


def test_a_count_that_is_no_polynomial_names_the_point_that_breaks_it(capsys, user):
    code, out, err = run(capsys, "--module", f"{user}:padded", "--vars", "T")
    assert code == 1
    assert "no polynomial in T" in out
    assert "linear at T=17 counts 1,536; the points before it would give 1024" in err


def test_a_count_with_a_quotient_says_why_a_grid_is_asked(capsys, user):
    code, out, _ = run(capsys, "--module", f"{user}:halved", "--vars", "T")
    assert code == 1
    assert "because with symbols its linear is 64*((T//2)), no polynomial" in " ".join(out.split())


def test_a_loop_over_layers_goes_on_the_grid_and_other_sizes_stay_symbols(capsys, user):
    rows, table = derived("T,D,L", "--module", f"{user}:stacked")
    T, D, L = map(symbol, "TDL")
    assert rows["linear"] == 3 * L * T * D**2 and rows["scores"] == rows["values"] == 3 * L * T**2 * D
    # D starts at 5 and L at 7, the least prime that nothing else starts at
    assert table["method"].startswith("an interpolation in L, because it pins L = 7, with symbols for the other sizes:")
    assert table["domain"] == []


def test_the_domain_is_what_the_module_decides_and_not_how_tensors_lie(capsys, user):
    rows, table = derived("T,D", "--module", f"{user}:last")
    assert rows["total"] == 7 * symbol("D") ** 2
    # a width of 1 is squeezed away, and the layer cannot be run
    assert table["domain"] == ["T >= 7", "D >= 2"]
    rows, table = derived("T,D", "--module", f"{user}:branched")
    assert rows["total"] == symbol("T") * symbol("D") ** 2
    assert table["domain"] == ["T < 16"] and "confirmed by counting at T=13 D=7; T=12 D=6" in table["method"]


def test_a_branch_on_the_other_side_is_another_polynomial(capsys, user):
    rows, table = derived("T,D", "--module", f"{user}:branched", "--base", "T=17")
    assert rows["total"] == 2 * symbol("T") * symbol("D") ** 2
    assert table["domain"] == ["T >= 16"]


def test_formats_hold_text_latex_and_python(capsys):
    _, out, _ = run(capsys, "--preset", "moa-8K8E128D", "--vars", "T,D,d_model")
    assert "T*d_model" in out and "T d_m" in out
    _, as_latex, _ = run(
        capsys, "--preset", "transformer-base", "--part", "feed-forward", "--vars", "T,F", "--format", "latex"
    )
    assert r"$1024 d_{ff} T$" in as_latex
    lines = [line for line in out.splitlines() if "def total" in line]
    scope = {}
    exec(lines[0].split(maxsplit=1)[1], scope)
    # E = K = 8, S = T
    assert scope["total"](10, 3, 7) == 10 * 7 * 8 + 2 * 8 * 10 * 7 * 3 + 2 * 10 * 7 * 3 + 2 * 8 * 10 * 10 * 3


WRONG = {
    "nothing": ([], "give --preset or --module"),
    "both": (["--preset", "transformer-base", "--module", "m.py:f", "--vars", "T"], "give --preset or --module"),
    "no variables": (
        ["--preset", "transformer-base", "--vars", " ,"],
        "--vars names the sizes that the closed form is in, as in --vars T,d_model",
    ),
    "no name": (["--preset", "transformer-base", "--vars", "T,2d"], "--vars: '2d' is no name of a size"),
    "keyword": (["--preset", "transformer-base", "--vars", "lambda"], "--vars: 'lambda' is no name of a size"),
    "variable": (["--preset", "moa-8K8E128D", "--vars", "T,q"], "unknown variable 'q'; choose from B (batch_size), …"),
    "twice": (["--preset", "moa-8K8E128D", "--vars", "K,top_k"], "a variable is given twice in K,top_k"),
    "the same twice": (["--preset", "moa-8K8E128D", "--vars", "T,h,T,h"], "--vars names T, h twice"),
    "preset": (["--preset", "moa", "--vars", "T"], "unknown preset 'moa'; did you mean moa-8K8E128D…"),
    "layers differ": (
        ["--preset", "moh-dit-l2-90", "--part", "model", "--vars", "h"],
        "unknown variable 'h'; choose from B (batch_size), d_m (d_model), p (patch_size), latent_size, C_in…",
    ),
    "base": (
        ["--preset", "moa-8K8E128D", "--vars", "T,D", "--base", "K=3"],
        "unknown variable 'K' in --base; choose from T, D",
    ),
    "start": (
        ["--preset", "moa-8K8E128D", "--vars", "T", "--base", "T=0"],
        "malformed 'T=0'; write --base T=START or T=START:STEP",
    ),
    "step": (
        ["--module", "USER:small", "--vars", "T", "--base", "T=7:x"],
        "malformed 'T=7:x'; write --base T=START or T=START:STEP",
    ),
    "point": (
        ["--module", "USER:small", "--vars", "T"],
        "USER:small: cannot be built at T=14: small raised ValueError: at most 13; --base gives other points; points "
        "are needed because it pins T = 11",
    ),
    "argument": (["--module", "USER:small", "--vars", "T,X"], "USER:small: small takes T: got an unexpected keyword…"),
    "file": (["--module", "nowhere.py:small", "--vars", "T"], "nowhere.py:small: there is no file nowhere.py"),
    "buildable": (
        ["--preset", "moa-8K8E128D", "--vars", "K", "--base", "K=9"],
        "cannot be built at K=9: top_k must lie in 1..num_experts = 1..8, not 9; --base gives other points; points are "
        "needed because with symbols it raises ConfigError: …",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_usage_is_one_line_and_exit_code_2(case, capsys, user):
    argv, message = WRONG[case]
    code, out, err = run(capsys, *(word.replace("USER", user) for word in argv))
    assert (code, out) == (2, "")
    said, line = f"python -m bench.derive: error: {message.replace('USER', user)}", err.removesuffix("\n")
    assert "\n" not in line and (line.startswith(said[:-1]) if said.endswith("…") else line == said)
