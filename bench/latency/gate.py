"""The correctness gate: an arm prints a time only where it gives what the float64 reference gives.

The reference has the arm's parameters, rounded as the arm has them, and the arm's choices of experts or heads; whether
those are right is asked apart, where rounding cannot change them. An arm may be twice as far off as the plain reference
in its own type is, and never farther than the cap.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from headcount.bench.latency.bounds import MODEL_CAP, PARAMETER_CAP, Checked, allowed, relative_error, relative_errors
from headcount.bench.latency.capture import Capture
from headcount.bench.latency.choices import MARGIN, Given, watch
from headcount.bench.latency.runs import DecodeRun, Run, loss, tensors

CHECKED_TOKENS = 256
MODEL_TOKENS = {"cpu": 32, "cuda": 256}
GATHERED_BYTES = {"cpu": 2**30, "cuda": 8 * 2**30}
"""Tokens of a sequence that are checked, at most: the reference gathers float64 weights for each."""
CHECKED_ROWS = 64
"""Rows of the timed call that are checked, of its first, middle and last sequence together."""


class Gate:
    """Checks the arms of one cell, each against the reference on its own choices."""

    def __init__(self, run: Run) -> None:
        self.run, self.cell, self.shared = run, run.cell, run.shared
        self.margin = MARGIN[self.cell.dtype]

    def check(self) -> Checked:
        """The arm on a short input and in the timed call."""
        spec, model = self.run.spec, self.cell.subject == "model"
        self.trains = self.cell.which in ("both", "backward")
        # an arm that skips heads may pass them no gradient
        self.config = spec.reference if self.trains else spec.config
        self.found, self.seen = [], dict(tokens=0, clear=0, other=0)
        backends = (self._decode if self.cell.which == "decode" else self._model if model else self._layer)()
        return self._worst(backends)

    def _worst(self, backends: Sequence[str]) -> Checked:
        # a NaN is worse than anything
        error, bound, what = max(self.found, key=lambda one: math.inf if math.isnan(one[0]) else one[0] / one[1])
        return Checked(error, bound, what, **self.seen, backends=tuple(backends))

    def _note(self, error: float, plain: float, what: str, times: float = 1.0) -> None:
        self.found.append((error, allowed(self.cell.dtype, plain, times), what))

    def _results(self, results: Callable, inputs: Any, exact_inputs: Any) -> tuple[list, list, list, list[str]]:
        """What the arm gives for ``inputs``, what the reference does on its choices, the plain reference's own errors,
        and the kernels of the fused core.

        The plain reference is asked once for all arms of a configuration, and the exact one for all that choose alike.
        """
        run = self.run
        reference, plain = self._references()
        found, chosen, backends = watch(run.module, lambda: results(run.module, inputs))
        known = self.shared.memo.get(self.config)
        if known is None:
            by_plain, plain_chosen, _ = watch(plain, lambda: results(plain, inputs))
            exact, counts = self._exactly(lambda: results(reference, exact_inputs), plain_chosen)
            errors = relative_errors(by_plain, exact)
            known = self.shared.memo[self.config] = (plain_chosen, exact, errors, counts)
        plain_chosen, exact, errors, counts = known
        if not _alike(chosen, plain_chosen):
            exact, counts = self._exactly(lambda: results(reference, exact_inputs), chosen)
        self._count(counts)
        return found, exact, errors, backends

    def _count(self, counts: dict[str, int]) -> None:
        for name, number in counts.items():
            self.seen[name] += number

    def _exactly(
        self, run: Callable[[], Any], chosen: Sequence[Tensor], rows: Sequence[int] = ()
    ) -> tuple[Any, dict[str, int]]:
        """``run`` of the reference with these choices, and how many of them differ from its own."""
        with Given(chosen, self.margin, rows) as given:
            out = run()
        return out, {name: getattr(given, name) for name in self.seen}

    def _references(self):
        own = self.run.spec.config
        return self.shared.reference(self.config, of=own), self.shared.reference(self.config, self.shared.dtype, of=own)

    def _layer(self) -> list[str]:
        run, x = self.run, self.run.inputs[0]
        gathered = 8 * self.cell.case(self.config).ledger.active_params
        limit = max(4, GATHERED_BYTES[self.cell.device] // gathered)
        kept = min(self.cell.seq_len, CHECKED_TOKENS, limit)
        probe, upstream = x[-1:, :kept].detach(), self.shared.gradient[-1:, :kept]

        def results(module, x: Tensor) -> list[Tensor]:
            return _trained(module, x, upstream.to(x.dtype)) if self.trains else [_plainly(module, x)]

        found, exact, errors, backends = self._results(results, probe, probe.double())
        names = ["the output", "the input's gradient"]
        names += [f"the gradient of {name}" for name, _ in run.module.named_parameters()]
        for i, error in enumerate(relative_errors(found, exact)):
            self._note(error, errors[i], names[i], PARAMETER_CAP if i > 1 else 1.0)
        self._timed_rows(min(CHECKED_ROWS, limit))
        if self.trains and kept == self.cell.seq_len:
            timed = tensors(run.call(0))[0][-1:]
            self._note(relative_error(timed, exact[1]), errors[1], "the input's gradient in the timed call")
        return backends

    def _timed_rows(self, count: int) -> None:
        """Some rows of the first, middle and last sequence as the timed shape gives them."""
        run, x = self.run, self.run.inputs[0].detach()
        reference, plain = self._references()
        sequences = _spread(self.cell.batch_size, 3)
        rows = _spread(self.cell.seq_len, max(1, count // len(sequences)))

        def forward() -> Tensor:
            # with a graph where it is trained: arms may take another path then
            return run.module(run.inputs[0]).detach() if self.trains else run.call(0)

        def exactly(b: int, chosen: Sequence[Tensor]) -> tuple[Tensor, dict[str, int]]:
            key = x[b : b + 1].double()
            return self._exactly(lambda: _plainly(reference, key[:, rows], key), chosen, rows)

        def plainly(b: int) -> tuple[Tensor, Tensor]:
            key = x[b : b + 1]
            out, chosen, _ = watch(plain, lambda: _plainly(plain, key[:, rows], key))
            return out, exactly(b, chosen)[0]

        memo, key = self.shared.memo, ("rows", self.config)
        if key not in memo:
            memo[key] = relative_error(*map(torch.cat, zip(*map(plainly, sequences), strict=True)))
        timed = forward()
        _, chosen, _ = watch(run.module, forward)
        found, expected = [], []
        for b in sequences:
            out, counts = exactly(b, [one[b : b + 1] for one in chosen])
            self._count(counts)
            expected.append(out)
            found.append(timed[b : b + 1][:, rows])
        self._note(relative_error(torch.cat(found), torch.cat(expected)), memo[key], "rows of the timed call")

    def _decode(self) -> list[str]:
        run = self.run
        picked = _spread(self.cell.batch_size, 3)
        reference, plain = self._references()
        timed, chosen, backends = watch(run.module, lambda: run.call(0))
        exact, counts = self._exactly(lambda: _step(reference, run, picked), [one[picked] for one in chosen])
        self._count(counts)
        by_plain, plain_chosen, _ = watch(plain, lambda: _step(plain, run, picked))
        beside, _ = self._exactly(lambda: _step(reference, run, picked), plain_chosen)
        self._note(relative_error(timed[picked], exact), relative_error(by_plain, beside), "the timed call's output")
        return backends

    def _model(self) -> list[str]:
        run = self.run
        reference, _ = self._references()
        kept = MODEL_TOKENS[self.cell.device]
        short = tuple(x[-1:, :kept] if x.dim() == 2 else x[-1:] for x in run.inputs[0])
        exact_type = next(reference.parameters()).dtype
        exact_in = tuple(x.to(exact_type) if x.is_floating_point() else x for x in short)

        def results(module, inputs) -> list[Tensor]:
            return _model_trained(module, inputs) if self.trains else [_plainly(module, *inputs)]

        found, exact, errors, backends = self._results(results, short, exact_in)
        names = ("the output", "all gradients")
        for i, error in enumerate(relative_errors(found, exact)):
            self._note(error, errors[i], names[i], MODEL_CAP * (PARAMETER_CAP if i else 1.0))
        if all(a.shape[1:] == b.shape[1:] for a, b in zip(short, run.inputs[0], strict=True)):
            whole, chosen, _ = watch(run.module, lambda: _plainly(run.module, *run.inputs[0]))
            last = [one[-1:] for one in chosen]
            exact, counts = self._exactly(lambda: _plainly(reference, *exact_in), last)
            self._count(counts)
            self._note(relative_error(whole[-1:], exact), errors[0], "the timed call's last sequence", MODEL_CAP)
        return backends


def replay_error(run: Run, captured: Capture) -> float:
    """How far a replay is from an eager call, both on other inputs with another routing than were captured.

    The outputs are filled with NaN before the replay, so that nothing of an earlier run is taken for a result.
    """
    kept = tensors(captured.output)
    with run.altered(captured.last), torch.no_grad():
        for out in kept:
            out.data.fill_(math.nan)
        captured.replay()
        replayed = [out.clone() for out in kept]
    with run.altered(captured.last):
        eager = tensors(run.call(captured.last))
    return max(relative_error(a, b.detach()) for a, b in zip(replayed, eager, strict=True))


def _alike(a: Sequence[Tensor], b: Sequence[Tensor]) -> bool:
    """Whether two lists of choices choose the same, in whatever order."""
    return len(a) == len(b) and all(
        x.shape == y.shape and torch.equal(x.sort(-1).values, y.sort(-1).values) for x, y in zip(a, b, strict=True)
    )


def _plainly(module, *inputs: Tensor) -> Tensor:
    with torch.no_grad():
        return module(*inputs)


def _trained(layer, x: Tensor, upstream: Tensor) -> list[Tensor]:
    x = x.detach().requires_grad_()
    out = layer(x)
    return [out.detach(), *torch.autograd.grad(out, [x, *layer.parameters()], upstream)]


def _model_trained(model, inputs) -> list[Tensor]:
    out = model(*inputs)
    wanted = [p for p in model.parameters() if p.requires_grad]
    gradients = torch.autograd.grad(loss(out, inputs[-1]), wanted, allow_unused=True)
    together = [torch.zeros_like(p) if g is None else g for p, g in zip(wanted, gradients, strict=True)]
    return [out.detach(), torch.cat([g.flatten() for g in together])]


@torch.no_grad()
def _step(layer, run: DecodeRun, picked: list[int]) -> Tensor:
    """The new tokens of some sequences by another layer, behind the same stored ones."""
    dtype = next(layer.parameters()).dtype
    cache, stored = layer.make_cache(len(picked), run.cell.seq_len), run.caches[0]
    cache.key.copy_(stored.key[picked])
    cache.value.copy_(stored.value[picked])
    cache.length = run.cell.seq_len - 1
    return layer(run.inputs[0][picked].to(dtype), cache=cache)


def _spread(length: int, count: int) -> list[int]:
    """At most ``count`` different places of ``length``, the first and the last among them."""
    steps = max(1, min(length, count) - 1)
    return sorted({round(i * (length - 1) / steps) for i in range(min(length, count))})
