"""Count MACs from Python, for tests of your own models.

from headcount.bench.count import assert_macs, count_macs

def test_my_attention_costs_what_the_paper_says():
    equation = "T*d*E + 2*K*T*d*D + 2*T*d*D + 2*K*T*T*D"
    assert_macs(MyMoA(...), x, expected=equation, T=128, d=512, E=32, K=8, D=64)
"""

from collections.abc import Mapping
from typing import Any

from torch import nn

from headcount.bench.contractions.count import REPORT, ContractionCount, Formula, count_contractions
from headcount.bench.contractions.elementwise import CONTRACTION
from headcount.bench.contractions.summary import merged
from headcount.bench.trace.record import fresh, record
from headcount.formulas.published.expressions import evaluate


def count_macs(
    module: nn.Module,
    *inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    backward: bool = False,
    training: bool = False,
    allow_unsupported: bool = False,
    formulas: Mapping[str, Formula] | None = None,
    formula_set: str | None = None,
    elementwise: str = REPORT,
) -> ContractionCount:
    """Run ``module(*inputs, **kwargs)`` once and count every contraction: ``.macs``, ``.ledger``, ``.audit``.

    The number is the same for torch.matmul, @, einsum, fused attention or grouped products, on cpu, cuda or meta,
    ``backward`` too. Attention is the whole square of scores, whatever a mask or its blocks leave out; FlexAttention's
    functions of one score count for each; a product of complex numbers is one; sparse and nested operands count the
    elements that they store.
    A product written elementwise and summed afterwards, ``(a * b).sum(-1)``, is a contraction too
    (bench.contractions.elementwise). By ``elementwise`` it is listed in ``.elementwise`` and counted in
    ``.with_elementwise`` ("report"), is a part of ``.macs`` ("include"), or raises ElementwiseError ("refuse").
    ``backward`` adds the gradients of all trainable parameters and floating-point inputs. The module runs in eval
    mode unless ``training``, and is not changed. ``formulas`` give the MACs of unsupported operations by name:
    ``{"mylib.my_op": lambda event: event.args[0].numel * event.out.shape[-1]}``. ``formula_set="linalg"`` counts matrix
    decompositions, solvers and FFTs by the stated formulas of bench.contractions.linalg.
    Other threads may run modules and compile meanwhile; one thread counts at a time, and the others wait.

    Raises UnsupportedError (operation, shapes, module path) for operations that may hold products and have no rule;
    ``allow_unsupported`` leaves them in ``.unsupported`` instead. Whatever the module raises passes through.
    """
    trace = record(fresh(module), inputs, kwargs, backward=backward, training=training)
    return count_contractions(
        trace, allow_unsupported=allow_unsupported, formulas=formulas, formula_set=formula_set, elementwise=elementwise
    )


def assert_macs(
    module: nn.Module,
    *inputs: Any,
    expected: str | int,
    kwargs: Mapping[str, Any] | None = None,
    backward: bool = False,
    formulas: Mapping[str, Formula] | None = None,
    formula_set: str | None = None,
    elementwise: str = REPORT,
    **sizes: int,
) -> None:
    """Fail with an AssertionError that lists every product unless the module's MACs are exactly ``expected``.

    ``inputs`` and ``kwargs`` are count_macs'; ``expected`` is a number or an expression in the names of ``sizes``.
    Raises ValueError for an expression that cannot be evaluated, and what count_macs raises.
    """
    wanted = expected if isinstance(expected, int) else evaluate(expected, sizes)
    options = {"backward": backward, "formulas": formulas, "formula_set": formula_set, "elementwise": elementwise}
    counted = count_macs(module, *inputs, kwargs=kwargs, **options)
    if counted.macs != wanted:
        less = f"{counted.macs - wanted:+,}"
        which = f" ({counted.headline})" if counted.with_elementwise != counted.dispatched else ""
        lines = [f"{counted.macs:,} multiply-accumulates{which}, expected {wanted:,} = {expected} ({less})"]
        for entry in merged(counted.ledger, None):
            sizes_text = " ".join(f"{letter}={size}" for letter, size in entry.dims.items())
            lines.append(f"  {entry.size:>15,}  {entry.path or '(model)'}  {entry.kind}  {entry.times} x {sizes_text}")
        if not counted.included:
            lines += [f"  not in it: {part.text()}" for part in counted.elementwise if part.kind == CONTRACTION]
        raise AssertionError("\n".join(lines))
