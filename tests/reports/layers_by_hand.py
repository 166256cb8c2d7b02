"""Accounts that the explorer must show, from closed forms with integers, and random sizes to test it."""

import random
from functools import cached_property
from math import prod

from headcount.formulas import backward, decoding, mha, mla, mla_ideal, moa, moh, moh_ideal, switchhead

LETTERS = ("T", "d_m", "B", "K", "E", "D", "h", "g", "d_h", "s", "r", "d_c", "d_r", "d_v", "d_q", "w")
MOH, MLA = ("h", "s", "r", "d_h", "g"), ("h", "d_h", "d_r", "d_v", "d_c")

FORMS = {
    "width": lambda z, **lengths: mha.layer("", h=1, g=1, d_h=z["d_m"], bias=False, **lengths),
    "mha": lambda z, **lengths: mha.layer("", bias=False, **pick(z, "h", "g", "d_h"), **lengths),
    "moa": lambda z, **lengths: moa.layer("", **pick(z, "K", "E", "D"), **lengths),
    "mqa": lambda z, **lengths: mha.layer("", h=z["K"], g=1, d_h=z["D"], bias=False, **lengths),
    "moh": lambda z, **lengths: moh.layer("", **pick(z, *MOH), **lengths),
    "moh-ideal": lambda z, **lengths: moh_ideal.layer("", **pick(z, *MOH), **lengths),
    "mla": lambda z, **lengths: mla.layer("", d_q=None, **pick(z, *MLA), **lengths),
    "mla-ideal": lambda z, **lengths: mla_ideal.layer("", d_q=None, **pick(z, *MLA), **lengths),
    "switchhead": lambda z, **lengths: switchhead.layer("", **pick(z, "h", "E", "K", "d_h"), **lengths),
    "mla-queries": lambda z, **lengths: mla.layer("", **pick(z, *MLA, "d_q"), **lengths),
}
"""Functions from sizes by letter and lengths to a ledger of integers."""


def pick(sizes, *letters):
    return {letter: sizes[letter] for letter in letters}


FLOPS = {"softmax": 3, "rms_norm": 4, "elementwise": 1}


def sum_to(n):
    return n * (n + 1) // 2


class Layer:
    """A form at sizes with its cached ledgers."""

    def __init__(self, form, z):
        self._form, self._z, self.T = FORMS[form], z, z["T"]

    @cached_property
    def forward(self):
        return self._form(self._z, B=self._z["B"], T=self.T, S=self.T, d_m=self._z["d_m"])

    @cached_property
    def last_step(self):
        return self.step(self.T)

    def step(self, stored):
        return self._form(self._z, B=self._z["B"], T=1, S=stored, n=stored - 1, d_m=self._z["d_m"])

    def generated(self):
        """Return the MACs of all steps: for up to 40 steps one by one."""
        if self.T <= 40:
            return sum(self.step(stored).macs for stored in range(1, self.T + 1))
        return decoding.total(lambda stored: self.step(stored).macs, self.T)

    def masked(self, window=None):
        """Return the MACs of a forward pass whose query t, from 1, sees the smaller of t and ``window`` keys (default:
        of w)."""
        window = window or self._z["w"]
        pairs = sum(entry.macs for entry in self.forward if entry.kind in ("scores", "values"))
        full = max(self.T - window, 0)
        seen = full * window + sum_to(self.T - full)
        return self.forward.macs - pairs + pairs // self.T**2 * seen

    def other(self):
        """Return the FLOPs of softmax, norms and elementwise operations."""
        return sum(FLOPS[entry.kind] * entry.size for entry in self.forward if entry.kind in FLOPS)

    def per(self, *letters):
        """Return the MACs of a forward pass over a product of sizes."""
        quotient, rest = divmod(self.forward.macs, prod(self._z[letter] for letter in letters))
        assert rest == 0
        return quotient


ACCOUNTS = {
    "forward": lambda layer: layer.forward.macs,
    "causal": lambda layer: layer.masked(layer.T),
    "windowed": Layer.masked,
    "token": lambda layer: layer.per("B", "T"),
    "sample": lambda layer: layer.per("B"),
    "decode": lambda layer: layer.last_step.macs,
    "generate": Layer.generated,
    "training": lambda layer: backward.training_macs(layer.forward),
    # weights, gradients, a copy of the weights, moments
    "state-adamw-mixed": lambda layer: (2 + 2 + 4 + 4 + 4) * layer.forward.params,
    "state-adamw": lambda layer: (4 + 4 + 4 + 4) * layer.forward.params,
    "state-sgd-momentum": lambda layer: (4 + 4 + 4) * layer.forward.params,
    "state-sgd": lambda layer: (4 + 4) * layer.forward.params,
    "other": Layer.other,
    "params": lambda layer: layer.forward.params,
    "active": lambda layer: layer.forward.active_params,
    "cache": lambda layer: 2 * decoding.cache_elements(layer.last_step),
    "moved": lambda layer: 2 * decoding.step_elements(layer.last_step),
}
"""Functions of a layer."""


def exact(account, form, z):
    """Return one account of a form at sizes."""
    return ACCOUNTS[account](Layer(form, z))


def can_build(form, z):
    """Return whether a layer of these sizes can be built."""
    if form in ("moa", "switchhead"):
        return z["K"] <= z["E"]
    if form in ("moh", "moh-ideal"):
        return 1 <= z["s"] + z["r"] <= z["h"] and z["h"] % z["g"] == 0
    return form != "mha" or z["h"] % z["g"] == 0


def points(seed, count):
    """Return random sizes: a third small, with 0 or 1 shared and routed heads, a third usual, a third beyond 2^53."""
    dice = random.Random(seed)
    found = []
    for i in range(count):
        most = (12, 600, 10**6)[i % 3]
        z = {letter: dice.randint(1, most) for letter in LETTERS}
        if dice.random() < 0.8:
            z["K"], z["E"] = sorted((z["K"], z["E"]))
            z["g"] = dice.choice([g for g in range(1, 40) if z["h"] % g == 0])
            z["s"] = dice.choice([0, 1, dice.randint(0, z["h"])])
            z["r"] = dice.choice([0, dice.randint(0, z["h"] - z["s"])]) if z["s"] else dice.randint(1, z["h"])
        found.append(z)
    return found


def expected(point):
    """Return the accounts of each form as texts; None for a layer that cannot be built."""
    return {form: _texts(Layer(form, point)) if can_build(form, point) else None for form in FORMS}


def _texts(layer):
    return {name: str(account(layer)) for name, account in ACCOUNTS.items()}
