"""Counts per call of a trace by a tool's rules, and the versions for which the rules were verified."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version

PRODUCT = "product"
"""Name of the multiply-accumulates among the parts of a call count; the other parts are additions."""
TORCH = "2.11, 2.12, 2.13, 2.14, 2.15"
"""Versions with which the tests of the rules passed under ``make matrix``, the newest last."""


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
