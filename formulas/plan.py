"""A parallel plan: its degrees, and the text that names it. What a rank then costs: formulas/rank.py.

A plan divides letters of the ledger:

    letter       divided by   parallelism
    T            cp           context: the queries; S too in the projections of keys and values, which are gathered
    T            cp tp        sequence (sp): entries without a letter of the next row, as norms and residual additions
    h g F V k    tp           tensor: heads, key/value heads, inner width, vocabulary
    E            ep           expert: the weights of E / ep experts
    layers       pp           pipeline

Data parallelism divides no letter: B is the number of sequences of one rank and one microbatch.
"""

import re
from dataclasses import dataclass, replace
from math import isqrt
from typing import Any

from headcount.formulas.ledger import Size

AXES = ("dp", "cp", "tp", "ep", "pp")
WORDS = (*AXES, "sp", "fsdp", "zero", "hsdp", "mb", "recompute", "heads")
ORDER = ("tp", "cp", "ep", "dp", "pp")
SWITCHES: dict[str, dict[str, Any]] = {"sp": {"sp": True}, "fsdp": {"zero": 3}}
"""Fields that words without a value set."""
FLAGS = {"cp": "ring", "ep": "replicated", "fsdp": "keep"}
CHOICES = {"zero": ("1", "2", "3"), "recompute": ("none", "selective", "full"), "heads": ("contiguous", "dealt")}
GRAMMAR = "tp=8,sp,cp=2,ep=4,pp=16,dp=128,fsdp"


class PlanError(ValueError):
    """A plan that cannot be read, or that does not fit the model; one line that names what fits."""

    exit_code = 2


@dataclass(frozen=True)
class Plan:
    """Degrees of a parallel plan, 1 for none; pp x dp x cp x tp ranks.

    ``sp``: sequence parallel, with ``tp``. ``ring``: keys and values rotate over ``cp`` instead of being gathered.
    ``ep``: expert parallel on ranks of dp x cp x tp, which send rows to their experts; ``replicated``: they share all
    tokens instead, and sum. ``stages``: layers of each of ``pp`` stages, by default as even as embedding and logits,
    which count as a layer each, allow. ``zero``: optimizer states (1), gradients (2), weights (3) divided over
    dp x cp; ``keep``: gathered weights stay for the backward pass; ``hsdp``: number of replicas of what is divided.
    ``mb``: microbatches of a step. ``heads``: which heads of an ideal MoH a rank holds, neighbours, or dealt in
    turn in runs of neighbours, which share keys and values, so that each rank has as many shared ones.
    """

    tp: Size = 1
    sp: bool = False
    cp: Size = 1
    ring: bool = False
    ep: Size = 1
    replicated: bool = False
    pp: Size = 1
    stages: tuple[int, ...] = ()
    dp: Size = 1
    zero: int = 0
    keep: bool = False
    hsdp: Size = 1
    mb: Size = 1
    recompute: str = "none"
    heads: str = "contiguous"

    @property
    def ranks(self) -> Size:
        """Number of ranks."""
        return self.pp * self.dp * self.cp * self.tp

    @property
    def generating(self) -> "Plan":
        """The plan of a model that generates: its one token of a sequence is whole, and ranks of tp share experts.

        Raises PlanError for experts that are divided over more ranks, or over fewer, than those of tp.
        """
        shares = self.sp and self.ep != 1 and self.tp != 1
        if shares and self.ep != self.tp:
            raise PlanError(
                f"{self}: sp does not divide the one token of a sequence that generates, whose experts need "
                f"ep={self.tp}, or tp=1"
            )
        return replace(self, sp=False, replicated=self.replicated or shares)

    def __str__(self) -> str:
        """Return the plan as :func:`parse` reads it; ``dp=1`` where nothing is divided."""
        flags = {"cp": ":ring" * self.ring, "ep": ":replicated" * self.replicated}
        words = [f"{axis}={getattr(self, axis)}{flags.get(axis, '')}" for axis in ORDER if getattr(self, axis) != 1]
        if self.stages:
            words[-1] = f"pp={'+'.join(map(str, self.stages))}"
        words += ["sp"] * self.sp
        words += [f"fsdp{':keep' * self.keep}"] if self.zero == 3 else [f"zero={self.zero}"] * (self.zero > 0)
        given = {name: getattr(self, name) for name in ("hsdp", "mb", "recompute", "heads")}
        words += [f"{name}={value}" for name, value in given.items() if value != getattr(Plan, name)]
        return ",".join(words) or "dp=1"


def divisors(number: int) -> list[int]:
    """Return the divisors of a number, ascending."""
    low = [n for n in range(1, isqrt(number) + 1) if number % n == 0]
    return sorted({*low, *(number // n for n in low)})


MOST_STAGES = 100_000
"""Stages that one part of ``pp=7+14x8+7`` may name."""


def parse(text: str) -> Plan:
    """Return the plan of ``tp=8,sp,cp=2:ring,ep=4:replicated,pp=7+14x8+7,dp=128,fsdp:keep,hsdp=2,mb=4``.

    Raises PlanError for a word that is none of these, a degree below 1, and degrees that do not fit each other.
    """
    given: dict[str, Any] = {}
    for word in text.split(","):
        assignment, _, flag = word.strip().partition(":")
        name, equals, value = assignment.partition("=")
        if name in given:
            raise PlanError(f"{name} is given twice in {text!r}")
        given |= _word(name, value, flag, bool(equals))
    plan = Plan(**given)
    _check(plan)
    return plan


def _word(name: str, value: str, flag: str, assigned: bool) -> dict[str, Any]:
    """Return the fields that one word of a plan sets."""
    if name not in WORDS:
        raise PlanError(f"unknown word {name!r}; a plan is {GRAMMAR}, words {', '.join(WORDS)}")
    if flag not in ("", FLAGS.get(name)):
        raise PlanError(f"{name} has no {flag!r}; choose from {FLAGS.get(name, 'none')}")
    if assigned == (name in SWITCHES):
        raise PlanError(f"{name} takes no value" if assigned else f"{name} needs a value, {name}=2")
    out: dict[str, Any] = {flag: True} if flag else {}
    if name in SWITCHES:
        return out | SWITCHES[name]
    if value not in CHOICES.get(name, (value,)):
        raise PlanError(f"{name} must be one of {', '.join(CHOICES[name])}, not {value!r}")
    if name == "pp" and "+" in value:
        stages = tuple(size for part in value.split("+") for size in _stages(part))
        return out | {"pp": len(stages), "stages": stages}
    return out | {name: value if name in ("recompute", "heads") else _integer(name, value)}


def _stages(text: str) -> list[int]:
    """Return the layers of the stages that ``14x8`` or ``7`` names."""
    times, x, size = text.partition("x")
    if not x:
        return [_integer("pp", text)]
    number = _integer("pp", times)
    if number > MOST_STAGES:
        raise PlanError(f"pp has {number:,} stages; at most {MOST_STAGES:,} are written out")
    return [_integer("pp", size)] * number


def _integer(name: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < 1:
        raise PlanError(f"{name} must be an integer from 1 to 999999999, not {text!r}")
    return int(text)


def _check(plan: Plan) -> None:
    """Raise PlanError where degrees of a plan do not fit each other."""
    if plan.sp and plan.tp == 1:
        raise PlanError("sp divides what tp leaves whole: it needs tp=2 or more")
    if plan.replicated and plan.ep != plan.tp:
        raise PlanError(f"ep={plan.ep}:replicated uses the ranks of tp, which must be {plan.ep} too, not {plan.tp}")
    if (plan.dp * plan.cp * plan.tp) % plan.ep:
        raise PlanError(f"ep={plan.ep} does not divide dp x cp x tp = {plan.dp * plan.cp * plan.tp}")
    if (plan.dp * plan.cp) % plan.hsdp:
        raise PlanError(f"hsdp={plan.hsdp} does not divide dp x cp = {plan.dp * plan.cp}")
    if (plan.keep or plan.hsdp != 1) and plan.zero != 3:
        raise PlanError("fsdp:keep and hsdp need fsdp")
