"""Check an implementation against the float64 reference; only one that agrees is timed.

The reference has the implementation's parameters, rounded to its dtype, and replays its choice of experts or heads.
Whether the choice itself is right is checked apart, for the tokens where rounding cannot change it. The error may be
twice that of the plain reference in the same dtype, and never above a cap.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from headcount.bench.latency.replay import MARGIN, RoutingReplay, result_names, run_blocks, trace_blocks, trace_routing
from headcount.bench.latency.runs import Run, tensors
from headcount.bench.latency.timing import Capture
from headcount.bench.latency.timing_cases import TimingCase

FACTOR = 2.0
"""Allowed error over the error of the plain reference in the same dtype."""
MIN_BOUND = {"float64": 1e-12, "float32": 2e-6, "float16": 3e-4, "bfloat16": 2e-3}
"""Error that is always allowed, because that of the plain reference may be near 0 by chance. In float32: the rounding
error of a sum of a thousand products, sqrt(1000) 2^-24."""
CAP = {"float64": 1e-10, "float32": 1e-5, "float16": 2e-2, "bfloat16": 2e-2}
"""Largest relative error of a layer's outputs and input gradients, in the 2-norm."""
NEGLIGIBLE = 1e-9
"""A result whose norm is below this share of the largest one counts as zero, in float64."""
MODEL_CAP, PARAMETER_CAP = 2.5, 5.0
"""Factors on CAP for a block of a model, and for a parameter's gradient, which may be a sum that nearly cancels."""
CHECKED_TOKENS = 256
MODEL_TOKENS = {"cpu": 32, "cuda": 256}
GATHERED_BYTES = {"cpu": 2**30, "cuda": 8 * 2**30}
"""Memory for the float64 weights that the reference gathers for each token, which limits the tokens checked."""
CHECKED_ROWS = 64
"""Rows of the timed call that are checked, in its first, middle and last sequence together."""
SHORT = "short"
"""What the results of the reference on a short input are remembered by."""


Results = Callable[..., Sequence[Tensor]]
"""Function that returns the results of a module, its first argument, on the inputs that follow."""


@dataclass(frozen=True)
class CheckResult:
    """The result with the largest share of its ``bound``: its relative ``error`` and ``what`` it is.

    ``choices`` counts routed ``tokens``, ``clear`` ones whose choice rounding cannot change, and ``other`` ones of them
    that chose other experts than the reference. ``backends`` are the kernels of the fused attention core.
    """

    error: float
    bound: float
    what: str
    choices: Mapping[str, int]
    backends: tuple[str, ...] = ()

    @property
    def wrong(self) -> str | None:
        """The reason why no time may be printed; None where it may."""
        if other := self.choices["other"]:
            return f"wrong: other experts than the reference for {other} of {self.choices['clear']} clear choices"
        if not self.error <= self.bound:
            return f"wrong: relative error {self.error:.1e} of {self.what}, {self.bound:.1e} allowed"
        return None


def checked_tokens(case: TimingCase) -> int:
    """Return how many tokens of a model's last sequence are checked."""
    return min(case.seq_len, MODEL_TOKENS[case.device])


def relative_error(found: Tensor, expected: Tensor, scale: float = 0.0) -> float:
    """Return the 2-norm of the difference over that of ``expected``; infinite where only ``expected`` is zero.

    A result that is negligible against ``scale``, the norm of other results, is measured by ``scale``: so is the
    gradient of a query that attends to one key.
    """
    exact = expected.double()
    difference = float(torch.linalg.vector_norm(found.to(exact.device).double() - exact))
    size = float(torch.linalg.vector_norm(exact))
    if size <= NEGLIGIBLE * scale:
        size = scale
    return difference / size if size else (0.0 if difference == 0 else math.inf)


def relative_errors(found: Sequence[Tensor], expected: Sequence[Tensor]) -> list[float]:
    """Return the errors of results that belong together."""
    scale = max(float(torch.linalg.vector_norm(one.double())) for one in expected)
    return [relative_error(*pair, scale) for pair in zip(found, expected, strict=True)]


def error_bound(dtype: str, plain: float, times: float = 1.0) -> float:
    """Return the allowed error, given the error ``plain`` of the plain reference in ``dtype``.

    ``times`` scales the cap. A ``plain`` that is not finite allows only MIN_BOUND.
    """
    own = max(MIN_BOUND[dtype], FACTOR * plain) if math.isfinite(plain) else MIN_BOUND[dtype]
    return min(own, CAP[dtype] * times)


class CorrectnessCheck:
    """The check of one implementation against the reference, on the choices of the implementation."""

    def __init__(self, run: Run) -> None:
        self.run, self.case, self.shared = run, run.case, run.shared
        spec, self.trains = run.spec, run.trains
        # an implementation that skips heads may pass them no gradient
        self.config = spec.reference if self.trains else spec.config
        self.reference = self.shared.reference(self.config, of=spec.config)
        self.plain = self.shared.reference(self.config, self.shared.dtype, of=spec.config)
        self.found: list[tuple[float, float, str]] = []
        self.seen = Counter(tokens=0, clear=0, other=0)

    def check(self) -> CheckResult:
        """Check a short input and the timed call."""
        if self.case.subject == "model":
            self._check_model()
        elif self.case.which == "decode":
            self._check_decode()
        else:
            self._check_layer()
        # a NaN is the largest error
        error, bound, what = max(self.found, key=lambda one: math.inf if math.isnan(one[0]) else one[0] / one[1])
        return CheckResult(error, bound, what, dict(self.seen), tuple(self.backends))

    def _add_error(self, error: float, plain: float, what: str, times: float = 1.0) -> None:
        self.found.append((error, error_bound(self.case.dtype, plain, times), what))

    def _compare(
        self, key: str, found: Sequence[Tensor], chosen: Sequence[Tensor], results: Results, inputs: Sequence[Tensor],
        limits: Iterable[tuple[str, float]], rows: Sequence[int] = (),
    ) -> tuple[Sequence[Tensor], list[float]]:  # fmt: skip
        """Check what the implementation ``found`` on its choices, each result with a name and a factor on its cap.

        The plain reference runs once for all implementations of a configuration, the exact one once for all that
        choose alike; of its ``results`` the first are ``found``. ``rows`` are the tokens of the results, where choices
        are of more.

        Returns:
            The ``results`` of the reference on the implementation's choices, and the errors of the plain reference.
        """

        def replay(choices: Sequence[Tensor]) -> tuple[Sequence[Tensor], Mapping[str, int]]:
            """Return the results of the reference with these choices, and how they compare with its own."""
            exact = [x.double() if x.is_floating_point() else x for x in inputs]
            with RoutingReplay(choices, MARGIN[self.case.dtype], rows) as mode:
                return results(self.reference, *exact), mode.counts

        memo, key = self.shared.memo, (key, self.case.which, self.config)
        if key not in memo:
            by_plain, plain_chosen, _ = trace_routing(self.plain, lambda: results(self.plain, *inputs))
            exact, counts = replay(plain_chosen)
            memo[key] = plain_chosen, exact, relative_errors(by_plain, exact), counts
        plain_chosen, exact, errors, counts = memo[key]
        if not _same_selection(chosen, plain_chosen):
            exact, counts = replay(chosen)
        self.seen.update(counts)
        for error, own, (what, times) in zip(relative_errors(found, exact[: len(found)]), errors, limits, strict=False):
            self._add_error(error, own, what, times)
        return exact, errors

    def _check_layer(self) -> None:
        run, x = self.run, self.run.inputs[0]
        gathered = 8 * self.case.at_lengths(self.config).ledger.active_params
        limit = max(4, GATHERED_BYTES[self.case.device] // gathered)
        length = min(self.case.seq_len, CHECKED_TOKENS, limit)
        probe, upstream = x[-1:, :length].detach(), self.shared.gradient[-1:, :length]

        def results(module, x: Tensor) -> list[Tensor]:
            return _forward_backward(module, x, upstream.to(x.dtype)) if self.trains else [_forward(module, x)]

        limits = [("the output", 1.0), ("the input's gradient", 1.0)]
        limits += [(f"the gradient of {name}", PARAMETER_CAP) for name, _ in run.module.named_parameters()]
        found, chosen, self.backends = trace_routing(run.module, lambda: results(run.module, probe))
        exact, errors = self._compare(SHORT, found, chosen, results, [probe], limits)
        self._check_timed_rows(min(CHECKED_ROWS, limit))
        if self.trains and length == self.case.seq_len:
            timed = tensors(run.call(0))[0][-1:]
            self._add_error(relative_error(timed, exact[1]), errors[1], "the input's gradient in the timed call")

    def _check_timed_rows(self, count: int) -> None:
        """Check some rows of the first, middle and last sequence of the timed call."""
        run = self.run
        picked = _spaced_indices(self.case.batch_size, 3)
        rows = _spaced_indices(self.case.seq_len, max(1, count // len(picked)))
        keys = run.inputs[0].detach()[picked]

        def forward() -> Tensor:
            # with an autograd graph where it is trained: implementations may take another path then
            return run.module(run.inputs[0]).detach() if self.trains else run.call(0)

        def results(module: nn.Module, keys: Tensor) -> list[Tensor]:
            return [_forward(module, keys[:, rows], keys)]

        timed = forward()
        _, chosen, _ = trace_routing(run.module, forward)
        found, chosen = [timed[picked][:, rows]], [one[picked] for one in chosen]
        self._compare("rows", found, chosen, results, [keys], [("rows of the timed call", 1.0)], rows)

    def _check_decode(self) -> None:
        run = self.run
        picked = _spaced_indices(self.case.batch_size, 3)
        timed, chosen, self.backends = trace_routing(run.module, lambda: run.call(0))

        @torch.no_grad()
        def results(module: nn.Module, x: Tensor) -> list[Tensor]:
            # the new tokens of some sequences, with the same cached tokens
            cache, stored = module.make_cache(len(picked), run.case.seq_len), run.caches[0]
            cache.key.copy_(stored.key[picked])
            cache.value.copy_(stored.value[picked])
            cache.length = run.case.seq_len - 1
            return [module(x, cache=cache)]

        found, chosen = [timed[picked]], [one[picked] for one in chosen]
        self._compare("decode", found, chosen, results, [run.inputs[0][picked]], [("the timed call's output", 1.0)])

    def _check_model(self) -> None:
        """Check a model block by block: each reads what the plain reference's block reads."""
        run = self.run
        length = checked_tokens(self.case)
        short = tuple(x[-1:, :length] if x.dim() == 2 else x[-1:] for x in run.inputs[0])
        key = ("blocks", self.config)
        if key not in self.shared.memo:
            self.shared.memo[key] = trace_blocks(self.plain, short)
        given = self.shared.memo[key]
        names = result_names(run.module, given)

        forward = partial(run_blocks, given=given)
        results = partial(run_blocks, given=given, gradients=self.trains)
        times = {True: MODEL_CAP * PARAMETER_CAP, False: MODEL_CAP}
        limits = [(what, times["gradient" in what]) for what in names]
        found, chosen, self.backends = trace_routing(run.module, lambda: results(run.module, *short))
        self._compare(SHORT, found, chosen, results, short, limits)
        if all(a.shape[1:] == b.shape[1:] for a, b in zip(short, run.inputs[0], strict=True)):
            whole, chosen, _ = trace_routing(run.module, lambda: forward(run.module, *run.inputs[0]))
            limits = [(f"{what} in the timed call", MODEL_CAP) for what in names]
            self._compare(SHORT, whole, [one[-1:] for one in chosen], forward, short, limits)


def replay_error(run: Run, captured: Capture) -> float:
    """Return the error of a replay against an eager call, both on other inputs and routing than were captured.

    The outputs are filled with NaN before the replay, so that no output of an earlier run passes as a result.
    """
    outputs = tensors(captured.output)
    with run.other_inputs(captured.last):
        for out in outputs:
            out.data.fill_(math.nan)
        captured.replay()
        replayed = [out.detach().clone() for out in outputs]
        eager = tensors(run.call(captured.last))
    return max(relative_error(a, b.detach()) for a, b in zip(replayed, eager, strict=True))


def replay_bound(case: TimingCase, checked: float) -> float:
    """Return the allowed error of a replay of an implementation whose results may differ by ``checked``.

    Gradients that are summed in any order differ from call to call, and a whole model carries that from block to block.
    """
    return max(checked, CAP[case.dtype] * MODEL_CAP if case.subject == "model" else MIN_BOUND[case.dtype])


def _same_selection(a: Sequence[Tensor], b: Sequence[Tensor]) -> bool:
    """Return whether two lists of choices select the same experts, in whatever order."""
    first, second = ([choice.sort(-1).values for choice in choices] for choices in (a, b))
    return len(a) == len(b) and all(map(torch.equal, first, second))


def _forward(module, *inputs: Tensor) -> Tensor:
    with torch.no_grad():
        return module(*inputs)


def _forward_backward(layer, x: Tensor, upstream: Tensor) -> list[Tensor]:
    x = x.detach().requires_grad_()
    out = layer(x)
    return [out.detach(), *torch.autograd.grad(out, [x, *layer.parameters()], upstream)]


def _spaced_indices(length: int, count: int) -> list[int]:
    """Return at most ``count`` different indices below ``length``, with the first and the last."""
    steps = max(1, min(length, count) - 1)
    return sorted({round(i * (length - 1) / steps) for i in range(min(length, count))})
