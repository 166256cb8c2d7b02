"""Counts per call of a trace by a tool's rules, and the versions for which the rules were verified."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version

from headcount.bench.trace.events import FUNCTION, NAMED, Event, Trace, tensors_in

PRODUCT = "product"
"""The part of a call count that stands for multiply-accumulates; the others are additions by name."""
TORCH = "2.11, 2.12, 2.13, 2.14, 2.15"
"""The versions with which the tests of the rules passed under ``make matrix``, the last as the newest there was."""


def why(event: Event) -> str:
    """Return why the product counted for ``event`` may differ from the number of multiply-accumulates."""
    operands = [fact for fact in event.tensors() if fact.shape]
    if any(fact.dtype.startswith("complex") for fact in tensors_in((event.args, event.out))):
        return "a complex convolution as three real ones"
    if any(fact.stored is not None for fact in event.tensors()):
        return "as if every element were stored"
    if event.transformed:
        return "its formula sees the shapes of one call, not of what runs for all (vmap)"
    if len(operands) > 1 and operands[0].shape[:-2] != operands[1].shape[:-2] and len(operands[1].shape) > 2:
        return "one operand is broadcast"
    return "its formula"


@dataclass(frozen=True)
class CallCount:
    """What a tool adds to its total for one call: ``times`` times the sum of ``parts``.

    ``event`` is the index of the call, ``rule`` names the rule and ``place`` its place in the tool's source.
    ``differs`` is the reason where the product is not the number of multiply-accumulates.
    """

    event: int
    parts: Mapping[str, int]
    rule: str
    place: str
    times: int = 1
    differs: str = "its formula"

    @property
    def amount(self) -> int:
        """The amount added to the total."""
        return self.times * sum(self.parts.values())


Rules = Mapping[str, tuple[Callable[[Event], Mapping[str, int]], str]]
"""By the name of a call: the rule that returns its parts, and the place of the rule in the tool's source."""


def apply_rules(
    events: Iterable[Event], rules: Rules, prefix: str, differs: Callable[[Event], str] = why
) -> list[CallCount]:
    """Return the count of each of ``events`` that has a rule; ``prefix`` goes before the names of the calls."""
    out = []
    for event in events:
        if event.name in rules:
            rule, place = rules[event.name]
            name = prefix + event.name.replace("torch.nn.functional.", "F.")
            out.append(CallCount(event.index, rule(event), name, place, differs=differs(event)))
    return out


def patched_calls(trace: Trace) -> list[Event]:
    """Return the calls through Python names, in order, as a tool sees them that patches these names."""
    return [event for event in trace.events if event.what == NAMED and not trace.taken_apart(event)]


def not_patched(trace: Trace, event: Event, rules: Rules, reason: str) -> str:
    """Return why a tool that patches the names of ``rules`` missed ``event``: for a patched name the ``reason``."""
    call = next(trace.around(event, FUNCTION), event).name
    is_patched = any(name.rpartition(".")[2] == call for name in rules)
    return f"{call} {reason}: not patched" if is_patched else f"{call} is not patched"


def linear(event: Event) -> dict[str, int]:
    """Return the multiply-accumulates of F.linear: the input's elements times the rows of the weight."""
    return {PRODUCT: event.argument(0, "input").numel * event.argument(1, "weight").shape[0]}


def matmul(event: Event) -> dict[str, int]:
    """Return the multiply-accumulates of a product: the first operand's elements times the other's columns."""
    return {PRODUCT: event.argument(0, "input").numel * event.argument(1, "other").shape[-1]}


def unverified(verified: Mapping[str, str]) -> list[str]:
    """Return the installed versions, as "fvcore 0.1.6", for which rules were not ``verified`` ("2.12, 2.13")."""
    installed = {tool: version(tool) for tool in verified}
    return [f"{tool} {installed[tool]}" for tool, known in verified.items() if not _is_version(installed[tool], known)]


def known(verified: Mapping[str, str]) -> str:
    """Return a note for a wrong prediction, if the installed versions are not those of the rules, else ""."""
    other = unverified(verified)
    rules = ", ".join(f"{tool} {version}" for tool, version in verified.items())
    return f" (its rules are known for {rules}, not for {', '.join(other)})" if other else ""


def _is_version(installed: str, known: str) -> bool:
    public = installed.split("+")[0]
    return any(public == one or public.startswith(f"{one}.") for one in known.split(", "))


def total(call_counts: Iterable[CallCount]) -> int:
    """Return the sum of the call counts."""
    return sum(call_count.amount for call_count in call_counts)
