"""Derived closed forms of whole models, MoH and convolutions against formulas by hand."""

import pytest
import sympy
from torch.utils.flop_counter import FlopCounterMode

from headcount.bench.derive.parts import part
from headcount.formulas.symbols import symbol
from headcount.models.configs.targets import make
from tests.bench.derive.derive_command import is_equal, run_derive

HEADS = "T,S,h,s,r,d_h,d_model"
ROUTERS = {"linear": "T*d_model*(h + 2)", "query_norm": "0"}


@pytest.mark.parametrize(("form", "router"), [("released", "linear"), ("ideal", "linear"), ("ideal", "query_norm")])
def test_moh_equals_closed_form(form, router):
    changed = [f"--set=form={form}", f"--set=router={router}"]
    rows, table = run_derive(HEADS, "--preset", "moh-llm-s-75", *changed)
    T, S, h, s, r, d_h, d = symbols = [symbol(name) for name in HEADS.split(",")]
    k = s + r if form == "ideal" else h
    # the norm of every head's query needs all queries
    queries = h if router == "query_norm" else k
    routers = sympy.sympify(ROUTERS[router], locals=dict(zip(HEADS.split(","), symbols, strict=True)))
    expected = routers + T * d * queries * d_h + 2 * S * d * h * d_h + 2 * k * T * S * d_h + T * k * d_h * d
    assert is_equal(rows["total"], expected)
    assert table["equals_closed_form"] is True
    assert table["domain"] == ["r + s <= h", "s > 1" if router == "linear" else "h - s >= 2"]


def gated_ffn(d, F):
    return 3 * d * F


def plain_ffn(d, F):
    return 2 * d * F


MODELS = {
    "transformer-base": (
        "T,S,d_model,d_ff,V",
        "--set num_encoder_layers=1 --set num_decoder_layers=1",
        lambda T, S, d, F, V: (
            S * (4 * d * 512 + plain_ffn(d, F)) + 2 * S * S * 512
            + T * (6 * d * 512 + plain_ffn(d, F)) + 2 * S * d * 512 + 2 * 512 * (T * T + T * S) + T * d * V
        ),
    ),
    "mlm-transformer": (
        "N",
        "--set d_model=48 --set num_heads=2 --set head_dim=24 --set d_ff=56 --base N=1",
        lambda N: N * 128 * (4 * 48 * 48 + 2 * 128 * 48 + plain_ffn(48, 56)) + 128 * 48 * 48 + 128 * 48 * 50265,
    ),
    "jetmoe-small": (
        "T,d_model,K,E,K_ff,E_ff",
        "--set num_layers=1",
        lambda T, d, K, E, K_ff, E_ff: (
            T * (d * (E + E_ff) + 2 * 256 * (K * d + d + K * T) + K_ff * gated_ffn(d, 512)) + T * d * 32000
        ),
    ),
    "dit-s2": (
        "B,d_model,latent_size,mlp_ratio",
        "--set num_layers=1",
        lambda B, d, side, ratio: (
            B * (side**2 / 4 * (4 * d * 384 + 2 * 384 * side**2 / 4 + plain_ffn(d, ratio * d)) + 6 * d * d)
            + B * (side**2 / 4 * (16 * d + 32 * d) + 256 * d + d * d + 2 * d * d)
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_models_equal_closed_form(name):
    """The number of layers is a variable of mlm-transformer, and 1 elsewhere."""
    names, options, form = MODELS[name]
    rows, table = run_derive(names, "--preset", name, "--part", "model", *options.split())
    assert is_equal(rows["total"], form(*map(symbol, names.split(","))))
    assert table["equals_closed_form"] is True


@pytest.mark.parametrize("spelling", ["windows", "band"])
def test_convolution_equals_closed_form(spelling):
    changed = ["encoder_kernel_sizes=3", "decoder_kernel_sizes=5,7", f"spelling={spelling}", "d_model=64", "d_ff=31"]
    command = [
        "--preset",
        "dynamicconv",
        "--part",
        "model",
        *(f"--set={field}" for field in (*changed, "vocab_size=37")),
    ]
    rows, table = run_derive("T,S", *command)
    T, S = symbol("T"), symbol("S")
    products = {"windows": 64 * (3 * S + (5 + 7) * T), "band": 64 * (S**2 + 2 * T**2)}[spelling]
    assert sympy.expand(rows["conv" if spelling == "windows" else "contraction"] - products) == 0
    kernels = 64 * 16 * (3 * S + (5 + 7) * T)
    linear = 3 * 64**2 * (S + 2 * T) + 2 * 64 * 31 * (S + 2 * T) + 2 * 2 * 64**2 * (S + T) + 64 * 37 * T
    expected = products + kernels + linear + 2 * 2 * 64 * S * T
    assert is_equal(rows["total"], expected)
    assert table["equals_closed_form"] is True


def holds(condition, sizes):
    """Return whether a printed condition holds at sizes."""
    divisor, word, multiple = condition.partition(" divides ")
    if word:
        return eval(multiple, {}, sizes) % eval(divisor, {}, sizes) == 0
    return eval(condition, {"Max": max, "Mod": lambda a, b: a % b}, sizes)


@pytest.mark.parametrize(
    ("preset", "names"),
    [("mla-llm-s", "head_dim"), ("mla-llm-s", "head_dim,d_r,T"), ("deepseek-v2-lite", "d_h"), ("llm-s", "d_h,h")]
    + [("moh-llm-s-75", "s,r"), ("moa-8K8E128D", "K,E")],
)
def test_domain_contains_the_preset(preset, names):
    """The domain holds at the preset's own sizes, and the counts there, inside and beyond are the polynomial's."""
    _, table = run_derive(names, "--preset", preset)
    found = part(make(preset, {}), "attention", tuple(names.split(",")))
    assert table["equals_closed_form"] is True and all(holds(text, found.own) for text in table["domain"])
    for factor in (1, 2, 4):
        sizes = {name: factor * size for name, size in found.own.items()}
        if all(holds(text, sizes) for text in table["domain"]):
            module, args, kwargs = found.build(**sizes)
            expected = sum(
                form.subs({symbol(name): size for name, size in sizes.items()}) for form in found.closed.values()
            )
            with FlopCounterMode(display=False) as counted:
                module(*args, **kwargs)
            assert counted.get_total_flops() == 2 * expected


def test_sizes_outside_of_the_domain_are_named():
    """One shared head has no router of its own: another polynomial, of one point."""
    _, table = run_derive("s", "--preset", "moh-llm-s-75", "--set", "num_shared_heads=1")
    assert "s > 1" in table["domain"] and table["method"].endswith("does not hold at the model's own s=1")
