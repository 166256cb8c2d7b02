"""The interface of a counter module, and the results of counters.

Each module listed in bench.counters.registry defines

    NAME, DEVICE           its name, and the device on which its count was verified
    VERIFIED               the versions for which its rules were verified, by distribution, the tool's own first
    read(model, inputs)    run the tool on one forward pass and return what it reports; ``inputs`` are tensors in the
                           order of forward's parameters: fvcore traces no keywords, and ptflops' hook on a nn.Linear
                           fails where the input came by keyword
    call_counts(trace)     return what the tool counts for each call of a recorded pass as CallCounts

and where they apply

    HOOKS                  True where it sets hooks on modules; with hooks torch's encoder layer leaves its fast path
    ADDS                   what it counts besides multiply-accumulates: operations per element of an entry, by kind of
                           the ledger (a number, or a function of the entry); kinds without a row add nothing
    MISSES                 the kinds of the ledger whose multiply-accumulates it does not count
    NAMES                  the Python names whose calls it counts
    TWICE                  the place in its source that counts one call several times
    more_additions(ledger, device)     return additions by name that do not depend on kinds
    sum_counts(trace, call_counts)     return the total where it is not the sum of the calls
    reason_missed(trace, event)        return why the tool does not count an operation, and where in its source that is
                                       decided; headcount's own counter misses none
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from types import ModuleType
from typing import Any

from headcount.bench.errors import OptionError
from headcount.formulas.ledger import Ledger, Size

PRODUCT = "product"
"""Name of the multiply-accumulates among the parts of a call count; the other parts are additions."""
TORCH = "2.11, 2.12, 2.13, 2.14, 2.15"
"""Versions with which the tests of the rules passed under ``make matrix``, the newest last."""


class CounterError(OptionError, RuntimeError):
    """A counter gave no number for a model; the message is one line, whose first word names both."""

    exit_code = 1

    @property
    def reason(self) -> str:
        """Why there is no number."""
        return "".join(map(str, self.args[1:]))


class ToolError(RuntimeError):
    """A tool reported that it failed; the message is its reason."""


@dataclass(frozen=True)
class CounterResult:
    """One counter's result for one forward pass over the whole batch; what the tool does not report is None.

    ``macs`` is the tool's own total in multiply-accumulates, additions that it counts included.
    ``unsupported`` is what the tool itself names as not counted, with its number: operators with their
    occurrences, or module types with the number of such modules.
    """

    counter: str
    tool: str
    version: str
    device: str
    macs: int
    unsupported: Mapping[str, int] | None = None


Reported = Mapping[str, Any]
"""What a tool reports, by the names of CounterResult's fields."""


@dataclass(frozen=True)
class CallCount:
    """The operations that a tool counts for one call: ``times`` times the sum of ``parts``.

    ``event`` is the index of the call, ``rule`` names the rule and ``place`` its place in the tool's source.
    ``reason`` says why, where the product is not the number of multiply-accumulates.
    """

    event: int
    parts: Mapping[str, int]
    rule: str
    place: str
    times: int = 1
    reason: str = ""

    @property
    def amount(self) -> int:
        """The amount added to the total."""
        return self.times * sum(self.parts.values())


@dataclass(frozen=True)
class Cause:
    """``calls`` calls that together change the reported count by ``macs``.

    ``what`` is a kind of counters.explain; ``name`` the operation and why it is so; ``place`` the lines of the
    counter's source, or of torch's, that do it.
    """

    what: str
    name: str
    place: str
    calls: int
    macs: int


@dataclass(frozen=True)
class Explanation:
    """The count that a counter's rules predict on a trace, and the causes of its difference from headcount's.

    ``unverified``: installed versions of tools for which the rules were not verified.
    """

    predicted_macs: int
    causes: tuple[Cause, ...]
    unverified: tuple[str, ...]

    @property
    def difference(self) -> int:
        """Predicted MACs minus headcount's: the sum of the causes."""
        return sum(cause.macs for cause in self.causes)


@dataclass(frozen=True)
class ToolCount:
    """One counter's result compared with ``exact``, in multiply-accumulates; without a result, the ``reason``.

    ``predicted_macs`` is predicted from the ledger by the counter's rules, ``additions`` are the parts of it that
    are no multiply-accumulates; ``explanation`` is derived from the recorded calls. None where not requested.
    ``why_there`` is why it was not counted on the counter's own device.
    """

    counter: str
    exact: int
    result: CounterResult | None
    reason: str | None = None
    device: str | None = None
    predicted_macs: int | None = None
    additions: Mapping[str, int] = field(default_factory=dict)
    explanation: Explanation | None = None
    why_there: str | None = None

    @property
    def macs(self) -> int | None:
        """The reported count."""
        return None if self.result is None else self.result.macs

    @property
    def difference(self) -> int | None:
        """Reported count minus exact count."""
        return None if self.result is None else self.result.macs - self.exact

    @property
    def has_failed(self) -> bool:
        """Whether the tool ran and gave no count; a tool without anything to run has a reason and no device."""
        return self.result is None and self.device is not None

    @property
    def explained(self) -> bool:
        """Whether the reported count is as predicted; True for a counter without a result."""
        return self.disagreement is None

    @property
    def disagreement(self) -> str | None:
        """One phrase if the reported count is not the one predicted from the ledger, the calls or the causes, else
        None."""
        known = [self.predicted_macs]
        if self.explanation:
            known += [self.explanation.predicted_macs, self.exact + self.explanation.difference]
        wrong = [predicted for predicted in known if predicted not in (None, self.macs)]
        return f"reads {self.macs:,}, its rules predict {wrong[0]:,}" if self.result and wrong else None


MAX_CPU_MACS = 200 * 10**9
"""Above it a run on the CPU would take minutes; the rules of every counter hold on meta too."""


def too_large_for_cpu(macs: int, stored_bytes: int) -> str | None:
    """Return why a model with so many bytes of weights and inputs is counted on meta, not on the CPU; None if not."""
    import psutil

    if macs > MAX_CPU_MACS:
        return f"the model has more than {MAX_CPU_MACS // 10**9} GMACs"
    if 2 * stored_bytes > psutil.virtual_memory().available:
        return "weights and inputs take more than half of the free memory"
    return None


def predict(tool: ModuleType, ledger: Ledger, device: str) -> Size:
    """Return what ``tool`` reports for a ledger: its multiply-accumulates once, and :func:`additions`."""
    return ledger.macs + sum(additions(tool, ledger, device).values())


def additions(tool: ModuleType, ledger: Ledger, device: str) -> dict[str, Size]:
    """Return what ``tool`` adds to the multiply-accumulates, by kind or by a name that the tool gives.

    Kinds that it misses are negative.
    """
    adds_by_kind = getattr(tool, "ADDS", {}) | dict.fromkeys(getattr(tool, "MISSES", ()), -1)
    added: dict[str, Size] = {}
    for entry in ledger:
        adds = adds_by_kind.get(entry.kind, 0)
        if times := adds(entry) if callable(adds) else adds:
            added[entry.kind] = added.get(entry.kind, 0) + times * entry.size
    return added | (tool.more_additions(ledger, device) if hasattr(tool, "more_additions") else {})


def biased_linear_again(ledger: Ledger, device: str) -> dict[str, Size]:
    """Return the products that a tool with patched names counts twice: of every biased nn.Linear on meta.

    There torch's addmm is Python that calls the patched torch.mm (torch/_decomp/decompositions.py).
    """
    biased = {entry.path for entry in ledger if entry.kind == "bias"}
    again = sum(entry.size for entry in ledger if entry.kind == "linear" and entry.path in biased)
    return {"biased linear again": again} if device == "meta" and again else {}


def exact_int(number: Any) -> int:
    """Return a tool's number as a Python int; raise ValueError if it is not whole."""
    if int(number) != number:
        raise ValueError(f"{number!r} is not a whole number")
    return int(number)


def macs_from_flops(flops: int) -> int:
    """Return FLOPs / 2; raise ValueError if FLOPs are odd."""
    if flops % 2:
        raise ValueError(f"{flops} FLOPs are not twice a number of multiply-accumulates")
    return flops // 2


def unverified(verified: Mapping[str, str]) -> list[str]:
    """Return the installed versions, as "fvcore 0.1.6", for which rules were not ``verified`` ("2.12, 2.13")."""
    installed = {tool: version(tool) for tool in verified}
    return [f"{tool} {installed[tool]}" for tool, known in verified.items() if not _is_version(installed[tool], known)]


def version_note(verified: Mapping[str, str]) -> str:
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
