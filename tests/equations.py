"""``python -m tests.equations [EVERY]``: compare every float64 implementation with the papers' equations in numpy.

Outputs and losses must be equal. For every parameter and input, the derivative of the numpy loops along a random
direction, by central differences, must equal the product of autograd's gradient and that direction. Implementations
without float64 are compared with the reference in tests/models. With EVERY, one case in EVERY runs.
"""

import sys
import time
from itertools import product
from typing import NamedTuple

import numpy as np
import torch

from headcount.models.build import build
from headcount.models.configs.make import make_config
from headcount.models.configs.moa import Gates
from headcount.models.kernels.selection import missing
from headcount.models.losses import auxiliary_loss
from headcount.models.rotary import Rotary
from tests import plain

CPU = torch.device("cpu")
WEIGHTS = {"moa": dict(balance_loss_weight=0.7, z_loss_weight=0.3), "moh": dict(balance_loss_weight=0.7)}
EXACT, STEP, NEAR = 1e-11, 1e-5, 1e-7
"""Outputs differ by rounding alone. A central difference errs by STEP^2 and by rounding over STEP: both below NEAR."""

SITUATIONS = {
    "self": {},
    "causal": {"causal": True},
    "causal-cross": {"causal": True, "cross": True},
    "hidden": {"keys": True},
    "causal-padded": {"causal": True, "keys": True, "queries": True},
    "cross-padded": {"keys": True, "queries": True, "cross": True},
    "three": {"keys": True, "cross": True, "values": True},
}
# B, T, S, d_m, K, E, D; the last as in JetMoE, with two heads an expert
MOA = [(2, 4, 5, 5, 2, 5, 3), (2, 3, 4, 4, 1, 3, 2), (1, 3, 2, 3, 3, 3, 2), (2, 1, 3, 5, 2, 3, 1)]
MOA += [(2, 3, 3, 3, 1, 1, 3), (3, 2, 1, 4, 2, 7, 2), (1, 5, 4, 2, 3, 4, 1), (2, 2, 4, 7, 4, 5, 2)]
MOA += [(2, 3, 2, 5, 2, 3, 4)]
# h, s, r, g
MOH = [(3, 1, 1, 3), (4, 2, 1, 2), (4, 0, 2, 4), (3, 3, 0, 1), (4, 1, 0, 2), (5, 1, 4, 5), (6, 3, 2, 3), (5, 2, 2, 1)]
MOH += [(4, 0, 4, 2), (1, 1, 0, 1)]
# h, g
MHA = [(3, 3), (1, 1), (6, 2), (5, 1)]


class Case(NamedTuple):
    """A configuration without its form, a situation, the lengths B, T, S, and the base of rotary positions."""

    values: dict
    situation: str
    lengths: tuple[int, int, int]
    theta: float | None = None

    @property
    def name(self):
        sizes = [f"{k}={v}" for k, v in self.values.items() if k not in ("attention", *WEIGHTS["moa"])]
        return " ".join((self.values["attention"], self.situation, *sizes))


def cases():
    """Yield the cases of MHA, MoA and MoH; noise and rotary positions alternate."""
    for i, ((h, g), situation) in enumerate(product(MHA, SITUATIONS)):
        for bias in (False, True):
            sizes = dict(d_model=5, num_heads=h, num_kv_heads=g, head_dim=2 + 2 * bias, bias=bias)
            yield Case(dict(attention="mha", **sizes), situation, (2, 3, 4), theta_of(situation, i))
    for i, (size, gates, situation) in enumerate(product(MOA, Gates, SITUATIONS)):
        *lengths, d_model, top_k, num_experts, head_dim = size
        for bias in (False, True):
            sizes = dict(d_model=d_model, num_experts=num_experts, top_k=top_k, head_dim=head_dim, bias=bias)
            more = dict(gates=gates.value, noisy=(i + bias) % 3 == 0, **WEIGHTS["moa"])
            theta = None
            if head_dim % 4 == 0:
                more |= dict(num_kv_heads=2, output_bias=bias)
                theta = theta_of(situation, i)
            yield Case(dict(attention="moa", **sizes, **more), situation, tuple(lengths), theta)
    ways = (("linear", "released"), ("linear", "printed"), ("query_norm", "released"), ("query_norm", "printed"))
    for i, (heads, (router, gates), situation) in enumerate(product(MOH, ways, SITUATIONS)):
        h, s, r, g = heads
        for bias in (False, True):
            sizes = dict(d_model=5, num_heads=h, num_shared_heads=s, top_k=r, num_kv_heads=g, head_dim=2 + 2 * bias)
            more = dict(router=router, gates=gates, bias=bias, **WEIGHTS["moh"])
            lengths = 1 + i % 2, 2 + i % 3, 3
            yield Case(dict(attention="moh", **sizes, **more), situation, lengths, theta_of(situation, i))


def theta_of(situation, i):
    """Return the base of rotary positions in half of the cases of self-attention, else None."""
    has_rotary = (i + i // len(SITUATIONS)) % 2 and "cross" not in SITUATIONS[situation]
    return 100.0 if has_rotary else None


def masks_of(case, config, generator):
    """Return the causal flag and the masks of padded keys and queries; some queries see no key."""
    situation, (batch, tgt, src) = SITUATIONS[case.situation], case.lengths
    src = src if "cross" in situation else tgt
    keys = queries = None
    if "keys" in situation:
        keys = torch.rand(batch, src, generator=generator) < 0.3
        keys[-1] = "queries" not in situation
        keys[:, 0] |= "queries" in situation
    if "queries" in situation:
        queries = torch.rand(batch, tgt, generator=generator) < 0.3
        queries[0, 0] = False
    return {"causal": situation.get("causal", False), "key_padding_mask": keys, "query_padding_mask": queries}


def make_arrays(case, seed):
    """Return configuration, masks, parameters and inputs by name without zeros, and a random direction of each."""
    config = make_config(case.values)
    generator = torch.Generator().manual_seed(seed)
    situation, (batch, tgt, src) = SITUATIONS[case.situation], case.lengths
    shapes = {name: p.shape for name, p in build(config, device="meta").named_parameters()}
    shapes["query"] = (batch, tgt, config.d_model)
    sources = [name for name, on in (("key", "cross"), ("value", "values")) if on in situation]
    shapes |= {name: (batch, src, config.d_model) for name in sources}
    masks = masks_of(case, config, generator)
    arrays, directions = (
        {name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in shapes.items()}
        for _ in range(2)
    )
    arrays = {name: x * (0.7 if x.dim() > 1 else 0.3) for name, x in arrays.items()}
    return config, masks, arrays, {name: d / d.norm() for name, d in directions.items()}


def run_impl(config, impl, masks, arrays, theta, up, seed):
    """Return the layer's output, its losses, and the gradient of (output * up).sum() + losses by array."""
    layer = build(config, dtype=torch.float64, impl=impl.name).train()
    layer.load_state_dict({name: x for name, x in arrays.items() if name not in ("query", "key", "value")})
    inputs = {n: arrays[n].clone().requires_grad_() for n in ("query", "key", "value") if n in arrays}
    if theta:
        positions = torch.arange(inputs["query"].shape[1], dtype=torch.float64)[:, None]
        width = config.rotary_width
        angles = positions / theta ** (torch.arange(0, width, 2, dtype=torch.float64) / width)
        masks = masks | {"rotary": Rotary(angles.cos(), angles.sin())}
    torch.manual_seed(seed)
    out = layer(**inputs, **masks)
    loss = auxiliary_loss(layer)
    leaves = dict(layer.named_parameters()) | inputs
    grads = torch.autograd.grad((out * up).sum() + loss, list(leaves.values()), materialize_grads=True)
    return out.detach(), loss.detach(), dict(zip(leaves, grads, strict=True))


def derivatives(equation, a, directions, up):
    """Return the derivative of (output * up).sum() + losses along each direction, by central differences."""

    def value(name, step):
        out, loss = equation(a | {name: a[name] + step * directions[name]})
        return (out * up).sum() + loss

    return {name: (value(name, STEP) - value(name, -STEP)) / (2 * STEP) for name in directions}


def largest_errors(case, seed=0):
    """Return the largest error of a value and of a derivative, each with its name, and the number of runs."""
    config, masks, arrays, directions = make_arrays(case, seed)
    torch.manual_seed(seed)
    shape = (*arrays["query"].shape[:2], getattr(config, "num_experts", 0))
    options = {"noise": torch.randn(shape, dtype=torch.float64).numpy(), "theta": case.theta}
    options |= {k: v.numpy() if torch.is_tensor(v) else v for k, v in masks.items()}
    up = torch.cos(torch.arange(arrays["query"].numel(), dtype=torch.float64)).view_as(arrays["query"])
    a, d = ({name: x.numpy() for name, x in group.items()} for group in (arrays, directions))
    equation, constants = getattr(plain, config.variant), {}
    values, slopes, impls, known = [], [], 0, {}
    out, loss = equation(a, config, options, constants)
    for form in ("released", "ideal") if hasattr(config, "form") else (None,):
        own = make_config(case.values | ({"form": form} if form else {}))
        for impl in own.implementations:
            if impl.package or missing(impl, CPU):
                continue
            found, losses, grads = run_impl(own, impl, masks, arrays, case.theta, up, seed)
            which = {"every": (impl.gradient or form) == "released"} if form else {}
            # the forms differ in the gradient of the gates alone
            if str(which) not in known:
                known[str(which)] = derivatives(
                    lambda x, w=which: equation(x, config, options, constants, **w), a, d, up.numpy()
                )
            label = f"{form or ''} {impl.name}".strip()
            values.append((float(np.abs(found.numpy() - out).max()), f"{label} output"))
            values.append((float(abs(float(losses) - loss)), f"{label} losses"))
            for name, slope in known[str(which)].items():
                own_slope = float((grads[name] * directions[name]).sum())
                slopes.append((abs(own_slope - slope) / (1 + abs(slope)), f"{label} d {name}"))
            impls += 1
    return max(values), max(slopes), impls


def main(every=1):
    """Run one case in ``every`` and print the disagreements; return 1 if there are any, else 0."""
    start, counts, wrong, errors, impls = time.process_time(), {}, [], [0.0, 0.0], 0
    for seed, case in enumerate(list(cases())[::every]):
        value, slope, ran = largest_errors(case, seed)
        counts[case.values["attention"]] = counts.get(case.values["attention"], 0) + 1
        impls += ran
        errors = [max(errors[0], value[0]), max(errors[1], slope[0])]
        for (error, what), bound in ((value, EXACT), (slope, NEAR)):
            wrong += [f"{case.name}: {what} off by {error:.1e}"] if not error < bound else []
    print(*wrong, sep="\n")
    summary = ", ".join(f"{n} cases of {variant}" for variant, n in counts.items())
    print(
        f"{summary}, {impls} runs in {time.process_time() - start:.0f} s of CPU time: outputs and losses within "
        f"{errors[0]:.1e}, derivatives within {errors[1]:.1e}; {len(wrong)} wrong"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main(*map(int, sys.argv[1:])))
