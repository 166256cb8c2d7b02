"""Layers on grids of primes: every counter and the closed form equal the hand-written sum.

Every size is a different prime, so that the factors of a wrong count show the wrong term.
"""

from itertools import product

import pytest
import sympy

from headcount.bench.case import ledger_of
from headcount.bench.counters import registry
from headcount.bench.counters.run_context import run_counter
from headcount.models.build import build, example_inputs
from headcount.models.configs.make import make_config
from tests.cases import in_turns

FIELDS = dict(
    dm="d_model", h="num_heads", D="head_dim", g="num_kv_heads", E="num_experts", K="top_k", r="top_k",
    s="num_shared_heads", form="form", router="router", G="gate_width", gate="gate", d_r="rotary_dim", d_v="value_dim",
    d_c="kv_rank", d_q="query_rank", bias="bias",
)  # fmt: skip


def moa_terms(K, E, D, dm, T, S, N, B):
    """MACs by term; N of the S keys are new."""
    return {
        "router": B * T * dm * E,
        "query": B * K * T * dm * D,
        "key": B * N * dm * D,
        "value": B * N * dm * D,
        "scores": B * K * T * S * D,
        "values": B * K * T * S * D,
        "output": B * K * T * D * dm,
    }


def mha_terms(h, D, dm, T, S, N, B, bias):
    return {
        "query": B * T * dm**2,
        "key": B * N * dm**2,
        "value": B * N * dm**2,
        "scores": B * T * S * dm,
        "values": B * T * S * dm,
        "output": B * T * dm**2,
    }


def router_outputs(h, s, r, router):
    """Columns of all routers' matrices together."""
    if router == "query_norm":
        return 0
    return (h - s if r else 0) + (s if s > 1 else 0) + (2 if r and s else 0)


def moh_terms(h, s, r, g, D, dm, T, S, N, B, form, router):
    heads = s + r if form == "ideal" else h
    return {
        "routers": B * T * dm * router_outputs(h, s, r, router),
        "query": B * T * dm * (heads if router == "linear" else h) * D,
        "key": B * N * dm * g * D,
        "value": B * N * dm * g * D,
        "scores": B * heads * T * S * D,
        "values": B * heads * T * S * D,
        "output": B * T * heads * D * dm,
    }


def mae_terms(h, D, G, dm, T, S, N, B, gate, bias):
    gates = B * T if gate == "running" else B
    return {
        "gate in": gates * dm * G,
        "gate out": gates * G * h,
        "query": B * T * dm * h * D,
        "key": B * N * dm * h * D,
        "value": B * N * dm * h * D,
        "scores": B * h * T * S * D,
        "values": B * h * T * S * D,
        "output": B * T * h * D * dm,
    }


def mla_terms(h, D, d_r, d_v, d_c, d_q, dm, T, S, N, B, form):
    ideal = form == "ideal"
    return {
        "latent of queries": 0 if d_q is None else B * T * dm * d_q,
        "queries": B * T * (d_q or dm) * h * (D + d_r),
        "latent and rotary key": B * N * dm * (d_c + d_r),
        "keys": B * (T if ideal else S) * d_c * h * D,
        "values of heads": B * (T if ideal else S) * d_c * h * d_v,
        "scores": B * h * T * S * ((d_c if ideal else D) + d_r),
        "values": B * h * T * S * (d_c if ideal else d_v),
        "output": B * T * h * d_v * dm,
    }


def switchhead_terms(K, E, h, D, dm, T, S, N, B):
    return {
        "query": B * T * dm * h * D,
        "key": B * N * dm * h * D,
        "router of values": B * N * dm * h * E,
        "values of heads": B * N * h * K * dm * D,
        "scores": B * h * T * S * D,
        "values": B * h * T * S * D,
        "router of outputs": B * T * dm * h * E,
        "output": B * T * h * K * D * dm,
    }


def with_lengths(layers):
    """Return every layer with a (T, S, B) that varies from layer to layer; all S keys are new."""
    lengths = ((29, 29, 41), (29, 37, 1), (31, 31, 1), (31, 37, 41))
    chosen = [(layer, lengths[(i + i // 4) % 4]) for i, layer in enumerate(layers)]
    return [layer | dict(T=t, S=s, N=s, B=b) for layer, (t, s, b) in chosen]


# every term is linear in D and d_m, and in K and E but for the limits K = 1, K = E and E = 1: two more values of each
# are enough
MOA_K_E = [(k, e) for k in (1, 3, 5) for e in sorted({k, 5, 7, 11}) if e >= k]
MOA = [dict(K=k, E=e, D=d, dm=dm) for (k, e), (d, dm) in in_turns(MOA_K_E, ((13, 23), (17, 19)))]
MHA = [dict(h=h, D=d, dm=h * d, bias=False) for h, d in product((2, 3, 5, 7), (11, 13))]
# (h, s, r, g): both routers with s = 0, 1 and more; nothing routed; all routed; all, some and one key/value heads
HEADS = [
    (5, 2, 2, 5), (7, 0, 3, 7), (7, 1, 5, 1), (11, 3, 5, 11), (6, 3, 2, 3), (6, 2, 3, 2), (3, 3, 0, 3), (5, 0, 5, 1),
    (1, 1, 0, 1), (13, 2, 11, 13),
]  # fmt: skip
MOH = [
    dict(h=h, s=s, r=r, g=g, D=d, dm=dm, form=form, router=router)
    for form, router in product(("released", "ideal"), ("linear", "query_norm"))
    for (h, s, r, g), (d, dm) in in_turns(HEADS, ((17, 23), (19, 43)))
    if router == "linear" or (r and h - s > 1)
]
MAE = [
    dict(h=h, D=d, G=g, dm=dm, gate=gate, bias=False)
    for gate in ("sequence", "running", "memory")
    for (h, d), (g, dm) in in_turns([*product((2, 3, 11), (5, 13))], ((7, 23), (17, 19)))
]
# D, d_r, d_v, d_c, d_q: latents wider and narrower than heads, with and without a latent of queries
WIDTHS = [(5, 3, 7, 11, None), (5, 3, 7, 11, 13), (11, 7, 5, 3, 2), (2, 13, 3, 7, 5), (7, 2, 2, 5, None)]
MLA = [
    dict(h=h, D=d, d_r=d_r, d_v=d_v, d_c=d_c, d_q=d_q, dm=dm, form=form)
    for (h, dm), (d, d_r, d_v, d_c, d_q), form in product(((1, 43), (17, 23), (19, 43)), WIDTHS, ("released", "ideal"))
]
SWITCHHEAD = [
    dict(K=k, E=e, h=h, D=d, dm=dm)
    for h in (1, 11)
    for (k, e), (d, dm) in in_turns([(1, 1), (1, 5), (2, 5), (5, 5), (3, 7)], ((13, 23), (17, 19)))
]
VARIANTS = {
    "moa": (with_lengths(MOA), moa_terms),
    "mha": (with_lengths(MHA), mha_terms),
    "moh": (with_lengths(MOH), moh_terms),
    "mae": (with_lengths(MAE), mae_terms),
    "mla": (with_lengths(MLA), mla_terms),
    "switchhead": (with_lengths(SWITCHHEAD), switchhead_terms),
}
"""Points, and MACs by term, of each variant."""


def point_id(point):
    return "-".join(f"{letter}{size}" for letter, size in point.items())


POINTS = [
    pytest.param(variant, point, registry.tools() if variant in ("moa", "mha") or i % 5 == 0 else ("torch",),
                 id=f"{variant}-{point_id(point)}")
    for variant, (points, _) in VARIANTS.items()
    for i, point in enumerate(points)
]  # fmt: skip


def config_at(variant, point):
    return make_config({"attention": variant} | {FIELDS[letter]: point[letter] for letter in point if letter in FIELDS})


@pytest.mark.parametrize("variant, point, counters", POINTS)
def test_counts_match_hand_formula(variant, point, counters):
    # a failure shows the factors of the differences
    terms = VARIANTS[variant][1](**point)
    exact, config = sum(terms.values()), config_at(variant, point)
    lengths = dict(batch_size=point["B"], tgt_len=point["T"], src_len=point["S"])
    model, inputs = build(config, device="meta"), example_inputs(config, lengths, device="meta")
    counted = {
        name: run_counter(registry.counter(name), model, inputs, label=point_id(point)).macs for name in counters
    }
    assert counted == dict.fromkeys(counters, exact), {
        name: sympy.factorint(abs(macs - exact)) for name, macs in counted.items() if macs != exact
    }
    ledger = ledger_of(config, lengths)
    assert (ledger.macs, ledger.params) == (exact, sum(parameter.numel() for parameter in model.parameters()))
