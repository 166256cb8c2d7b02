"""Rules of several counters, and their application to the calls that a counter sees."""

from collections.abc import Callable, Iterable, Mapping
from math import prod

from headcount.bench.counters.base import PRODUCT, CallCount
from headcount.bench.trace.events import FUNCTION, NAMED, OPERATION, Event, Trace, tensors_in

ONE_CALL = "its formula sees the shapes of one call, not of what runs for all (vmap)"

Rule = Callable[[Event], Mapping[str, int]]
"""Return the parts of a call count: multiply-accumulates under PRODUCT, additions under their names."""
Rules = Mapping[str, tuple[Rule, str]]
"""By the name of a call: the rule that returns its parts, and the place of the rule in the tool's source."""


def reason(event: Event) -> str:
    """Return why the product counted for ``event`` may differ from the multiply-accumulates; "" for its formula."""
    if event.name == "einsum":
        return ""
    if "conv" in event.name and isinstance(event.argument(4, "padding"), str):
        return "a window given as a word"
    operands = [fact for fact in event.tensors() if fact.shape]
    if any(fact.dtype.startswith("complex") for fact in tensors_in((event.args, event.out))):
        return "a complex convolution as three real ones"
    if any(fact.stored is not None for fact in event.tensors()):
        return "as if every element were stored"
    if event.transformed:
        return ONE_CALL
    if len(operands) > 1 and operands[0].shape[:-2] != operands[1].shape[:-2] and len(operands[1].shape) > 2:
        return "one operand is broadcast"
    return ""


def formula_of(rule: Callable[..., Mapping[str, int]]) -> str:
    """Return what a rule multiplies: its docstring without the verb."""
    first = (rule.__doc__ or "Count by its formula.").splitlines()[0]
    return first.removeprefix("Count ").removesuffix(".")


def apply(
    events: Iterable[Event], table: Rules, prefix: str, explain: Callable[[Event], str] = reason
) -> list[CallCount]:
    """Return the count of each of ``events`` that has a rule; ``prefix`` goes before the names of the calls."""
    out = []
    for event in events:
        if event.name in table:
            rule, place = table[event.name]
            name = prefix + event.name.replace("torch.nn.functional.", "F.")
            out.append(CallCount(event.index, rule(event), name, place, reason=explain(event) or formula_of(rule)))
    return out


def subclass_call(trace: Trace, event: Event) -> Event | None:
    """Return the outermost call of a tensor subclass that is or contains ``event``: all that a dispatch mode sees."""
    calls = [call for call in (event, *trace.around(event, OPERATION)) if call.subclass]
    return calls[-1] if calls else None


def full_name(name: str, separator: str = ".") -> str:
    """Return an operation's name after its namespace, which a trace leaves out for aten."""
    return (name if "." in name else f"aten.{name}").replace(".", separator, 1)


def patched_calls(trace: Trace) -> list[Event]:
    """Return the calls through Python names, in order, as a tool sees them that patches these names."""
    return [event for event in trace.events if event.what == NAMED and not trace.is_decomposed(event)]


def reason_unpatched(trace: Trace, event: Event, table: Rules, cause: str) -> str:
    """Return why a tool that patches the names of ``table`` missed ``event``: for a patched name the ``cause``."""
    call = next(trace.around(event, FUNCTION), event).name
    is_patched = any(name.rpartition(".")[2] == call for name in table)
    return f"{call} {cause}: not patched" if is_patched else f"{call} is not patched"


def linear(event: Event) -> dict[str, int]:
    """Count the input's elements times the rows of the weight."""
    return {PRODUCT: event.argument(0, "input").numel * event.argument(1, "weight").shape[0]}


def matmul(event: Event) -> dict[str, int]:
    """Count the first operand's elements times the other's last size."""
    # mm and bmm call it mat2
    other = event.argument(1, "other", event.kwargs.get("mat2"))
    return {PRODUCT: event.argument(0, "input").numel * other.shape[-1]}


def addmm(event: Event) -> dict[str, int]:
    """Count the first operand's elements times the other's last size."""
    return {PRODUCT: event.argument(1, "mat1").numel * event.argument(2, "mat2").shape[-1]}


def elements(name: str, times: int = 1, of_output: bool = False) -> Callable[..., Mapping[str, int]]:
    """Return the rule of ``times`` operations per element of the input or the output, added under ``name``."""
    return lambda event, *_: {name: times * (event.out if of_output else event.argument(0, "input")).numel}


def convolution(event: Event) -> dict[str, int]:
    """Count the batch times the weight's elements times the positions."""
    x, weight = event.argument(0, "input"), event.argument(1, "weight")
    transposed = event.args[6] if event.name.endswith("convolution") else "transpose" in event.name
    # without a batch the input has one size less
    batch = x.shape[0] if len(x.shape) == len(weight.shape) else 1
    return {PRODUCT: batch * weight.numel * prod((x if transposed else event.out).shape[2 - len(weight.shape) :])}
