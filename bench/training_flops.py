"""Training FLOPs of a closed form or of a counted module under a named rule, and their share of a peak. No torch."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import wraps
from math import prod
from typing import TYPE_CHECKING, Any

from headcount.bench.case import Case
from headcount.bench.errors import UsageError
from headcount.bench.hardware import Peak
from headcount.formulas.conventions import CONVENTIONS, TRAINING, Rule, Term
from headcount.formulas.ledger import (
    DISPATCHED_KINDS,
    FORWARD_KINDS,
    Entry,
    Ledger,
    Size,
    counted_weights,
    divide,
    flops,
    total_of,
)
from headcount.formulas.mha import causal_half
from headcount.models.configs.suggest import choices

if TYPE_CHECKING:
    from headcount.bench.contractions.modules import ModuleRecord
    from headcount.bench.counting.result import Count

WEIGHTS = ("linear", "expert_linear", "conv")
"""Kinds of a counted product with a parameter; every other product has two computed tensors."""
SQUARES = {"scores": {"m": "T", "j": "S"}, "values": {"m": "T", "i": "S"}}
"""Letters of a ledger for those of a counted product of attention, by kind."""


NO_TOKENS = "the inputs have no tokens: no input_ids, integers, nor B x T x width"
"""Why a count has no FLOPs per token."""


class RuleRefused(UsageError):
    """A rule that does not apply to a case or a count; another may."""


class ActiveParamsUnknown(RuleRefused):
    """A rule that needs the parameters that a token uses, or the frozen ones of them, which a run does not show."""


def _working(function: Callable[..., Size], case: "Case | Count", options: Mapping[str, Any]) -> list[str]:
    """Return the names of the rules for which ``function(case, rule, **options)`` works."""

    def works(name: str) -> bool:
        try:
            function(case, CONVENTIONS[name], **options)
        except RuleRefused:
            return False
        return True

    return [*filter(works, TRAINING)]


def _naming_others(function: Callable[..., Size]) -> Callable[..., Size]:
    """Let a RuleRefused of ``function(case, rule, …)`` end with the rules for which the same call works."""

    @wraps(function)
    def call(case: "Case | Count", rule: Rule, **options: Any) -> Size:
        try:
            return function(case, rule, **options)
        except RuleRefused as error:
            others = _working(function, case, options)
            raise type(error)(*error.args, advice=[f"choose from {', '.join(others)}"] if others else ()) from None

    return call


def find_rule(name: str, case: "Case | Count | None" = None, **options: Any) -> Rule:
    """Return a rule of a training step by its name in any case.

    Raises UsageError with the nearest names; of a ``case``, those for which flops_per_token works with ``options``.
    """
    spelt = {one.lower(): one for one in TRAINING}
    if str(name).lower() not in spelt:
        known = TRAINING if case is None else _working(flops_per_token, case, options)
        raise UsageError(f"unknown rule {name!r}; {choices(str(name), known)}")
    return CONVENTIONS[spelt[str(name).lower()]]


@_naming_others
def tokens_of(case: "Case | Count", rule: Rule) -> int:
    """Return the tokens of a step. Raises RuleRefused where ``rule`` does not apply, UsageError where they are unknown.

    Rules are per token of one sequence, and a rule of causal pairs is of models with causal attention.
    """
    return _step_tokens(case, rule)


def _step_tokens(case: "Case | Count", rule: Rule) -> int:
    if not isinstance(case, Case):
        if not case.tokens:
            raise UsageError(NO_TOKENS)
        return case.tokens
    tokens = case.length
    if tokens is None:
        raise UsageError(f"rules are per token of one sequence; {case.name} has {', '.join(case.lengths) or 'none'}")
    if rule.pairs != "whole":
        causal = hasattr(case.form, "CAUSAL_PATHS")
        if not causal or case.lengths.get("src_len", tokens) < tokens:
            raise RuleRefused(f"rule {rule.name} counts causal pairs, and {case.name} is not causal")
    return case.lengths["batch_size"] * tokens


@_naming_others
def flops_per_token(
    case: "Case | Count",
    rule: Rule,
    *,
    tokens: int | None = None,
    active_params: int | None = None,
    active_trainable_params: int | None = None,
) -> Size:
    """Return the FLOPs per token of a training step.

    Raises RuleRefused, which names the rules that apply, where ``rule`` does not. ``tokens`` of a count, the parameters
    that a token uses, and the trainable ones of them are its own where they are not given.
    """
    tokens = tokens or _step_tokens(case, rule)
    if isinstance(case, Case):
        return case.flops_per_token(rule)
    active = case.active_params if active_params is None else active_params
    trainable = active_trainable(case, active) if active_trainable_params is None else active_trainable_params
    return divide(_module_flops(case, rule, tokens, active, trainable), tokens)


def active_trainable(count: "Count", active_params: int | None) -> int | None:
    """Return how many of the ``active_params`` that a token uses are trainable; None where the run does not show it."""
    if count.trainable_params == count.params:
        return active_params
    if not count.trainable_params:
        return 0
    if active_params is None:
        return None
    if count.modules is not None and active_params == count.active_params:
        return total_of(map(_active_trainable_of, count.modules))
    used = used_experts(count)
    if used and used.active_params == active_params and used.active_trainable_params is not None:
        return used.active_trainable_params
    least, most = trainable_range(count, active_params)
    return least if least == most else None


def trainable_range(count: "Count", active_params: int) -> tuple[int, int]:
    """Return the fewest and the most trainable ones among ``active_params`` parameters of a module."""
    frozen = count.params - count.trainable_params
    return max(0, active_params - frozen), min(active_params, count.trainable_params)


def _active_trainable_of(module: "ModuleRecord") -> int | None:
    if module.trainable_params == module.params:
        return module.active_params
    whole = not module.trainable_params or module.active_params == module.params
    return module.trainable_params if whole else None


@dataclass(frozen=True)
class UsedExperts:
    """How many of equal experts a token of a run used on average, and the parameters that it used then.

    ``active_trainable_params`` are None where the experts have different numbers of trainable ones.
    """

    top_k: int
    experts: int
    active_params: int
    active_trainable_params: int | None

    def text(self) -> str:
        """Return what to give if each token uses so many by design."""
        return (
            f"{self.active_params} if it is by design that a token uses {self.top_k} of {self.experts} experts, as in "
            "this run on average"
        )


def used_experts(count: "Count") -> UsedExperts | None:
    """Return what a token uses of experts in loops; None where the run does not show one number for all of them.

    The experts are equal modules by number, each multiplies some rows once, and all rows are K times the tokens. One
    that no token chose may not have run, so that its place among them is not known.
    """
    tokens, found, unused = count.tokens, set(), 0
    unused_trainable: int | None = 0
    if not tokens or count.modules is None:
        return None
    rows: dict[str, int] = {}
    for entry in count.ledger:
        for path in _numbered(entry.path):
            # all products of an expert have its rows; the first is enough
            rows.setdefault(path, entry.times * entry.dims.get("m", 0))
    siblings: dict[str, set[str]] = {}
    # activations between the layers of an expert have a number and no products
    for module in filter(lambda one: one.params, count.modules):
        for path in _numbered(module.path):
            siblings.setdefault(path.rpartition(".")[0], set()).add(path)
    groups: dict[str, list[str]] = {}
    for path in rows:
        groups.setdefault(path.rpartition(".")[0], []).append(path)
    for parent, members in groups.items():
        if siblings.get(parent, set()) - {*members}:
            return None
        top_k, rest = divmod(sum(rows[path] for path in members), tokens)
        sizes = {_params_in(count, path) for path in members}
        if rest or not 0 < top_k < len(members) or len(sizes) > 1:
            continue
        found.add((top_k, len(members)))
        unused += (len(members) - top_k) * sizes.pop()
        trainable = {_params_in(count, path, "trainable_params") for path in members}
        known = unused_trainable is not None and len(trainable) == 1
        unused_trainable = unused_trainable + (len(members) - top_k) * trainable.pop() if known else None
    if len(found) != 1:
        return None
    active_trainable = None if unused_trainable is None else count.trainable_params - unused_trainable
    return UsedExperts(*found.pop(), count.params - unused, active_trainable)


def _numbered(path: str) -> Iterator[str]:
    """Iterate over the paths of the modules around a product, and its own, whose last name is a number."""
    names = path.split(".")
    return (".".join(names[: end + 1]) for end, name in enumerate(names) if name.isdecimal())


def _params_in(count: "Count", path: str, which: str = "params") -> int:
    """Return the parameters of a module and those inside it, all or the trainable ones."""
    return sum(getattr(one, which) for one in count.modules or () if f"{one.path}.".startswith(f"{path}."))


def _module_flops(count: "Count", rule: Rule, tokens: int, active_params: int | None, trainable: int | None) -> Size:
    """Return the FLOPs of a training step of a counted module over ``tokens`` tokens.

    A product with a parameter is weight, and one of two computed tensors is attention. Raises RuleRefused for a rule
    that needs more than the run of a module shows, UsageError for a count with a backward pass, and for a module of
    which nothing trains.
    """
    if count.params and not count.trainable_params:
        raise UsageError(f"nothing trains: all {count.params:,} parameters are frozen, requires_grad=False")
    # products written elementwise, which a count may include, are in no rule
    dispatched = count.ledger.select(lambda entry: entry.kind in DISPATCHED_KINDS)
    kinds = {entry.kind for entry in dispatched}
    if not kinds <= set(FORWARD_KINDS):
        raise UsageError("rules add the backward pass themselves; count the forward pass only")
    terms = rule.terms
    if "expert_linear" not in kinds and count.active_params == count.used_params:
        # a dense module, of which each token uses every parameter that the run reads, has no router
        terms = tuple(term for term in terms if "router" not in term.path)
    if parts := dict.fromkeys(filter(None, map(_named_part, terms))):
        raise RuleRefused(
            f"rule {rule.name} treats {', '.join(parts)} apart, which a preset names and a module does not"
        )
    if not active_params and any(term.of == "active_params" for term in terms):
        raise ActiveParamsUnknown(
            f"rule {rule.name} needs the parameters that a token uses, which this run does not show (set "
            f"model.active_params = {found.text() if (found := used_experts(count)) else 'N'})"
        )
    products = _ledger_of_training(count.with_values(ledger=dispatched), active_params, trainable)
    if rule.pairs != "whole" and (why_not := _why_not_causal(count, products)):
        raise RuleRefused(f"rule {rule.name} counts causal pairs, and {why_not}")
    _check_frozen(count, rule, terms, active_params, trainable)
    return replace(rule, terms=terms).flops(products, tokens)


def _named_part(term: Term) -> str:
    """Return the part of a model that a term is of, where the products of a module do not name it; else nothing."""
    if "router" in term.path:
        return "routers"
    if term.path:
        return "position projections"
    for kind, part in {"embedding": "embeddings", "softmax": "softmax"}.items():
        if kind in term.kinds:
            return part
    return "the vocabulary projection" if term.letter else ""


def _check_frozen(
    count: "Count", rule: Rule, terms: Sequence[Term], active_params: int | None, trainable: int | None
) -> None:
    """Raise RuleRefused where a rule needs to know which frozen weights it counts, and a run does not show them.

    ``trainable`` are those of ``active_params``.
    """
    if count.trainable_params == count.params:
        return
    if any(term.of == "size" and set(term.kinds) & {*WEIGHTS} for term in terms):
        raise RuleRefused(f"rule {rule.name} counts products, of which some have frozen weights here")
    if any(term.of == "active_params" for term in terms) and (active_params is None or trainable is None):
        raise ActiveParamsUnknown(
            f"rule {rule.name} of frozen weights needs the part of them that a token uses, which this run does not show"
        )


def _why_not_causal(count: "Count", products: Ledger) -> str:
    """Return why the masks of a module are not those of causal attention; empty where they are."""
    if count.causal_macs is None:
        return "a mask of this module is not known"
    hidden = count.macs - count.causal_macs
    if hidden == products.macs - causal_half(products).macs:
        return ""
    return "its masks hide other pairs than those" if hidden else "no mask of this module hides any"


def module_ledger(count: "Count", active_params: int | None) -> Ledger:
    """Return a count as entries of a closed form without paths, so that rules apply: its products, its parameters.

    The tables of embeddings are entries of their own, and the other parameters one. Of all a token uses
    ``active_params``, None where they are not known.
    """
    types = {module.path: module.type for module in count.modules or ()}
    tables = [
        Entry(one.module, "embedding", {"n": 0}, one.times, {"n": prod(one.shape)}, one.trainable)
        for one in count.parameters
        if types.get(one.module, "").endswith("Embedding") and len(one.shape) == 2
    ]
    stored = sum(table.params for table in tables)
    used = None if active_params is None else active_params - stored
    return Ledger((*map(_as_entry, count.ledger), *tables, counted_weights("", count.params - stored, used)))


def _ledger_of_training(count: "Count", active_params: int | None, trainable: int | None) -> Ledger:
    """Return module_ledger with frozen parameters in an entry of their own.

    ``trainable`` are those of ``active_params``, both None where they are not known.
    """
    *others, every = module_ledger(count, active_params)
    frozen = count.params - count.trainable_params - sum(one.params for one in others if not one.trainable)
    used = used_frozen = None
    if active_params is not None and trainable is not None:
        used_frozen = active_params - trainable - sum(one.params for one in others if not one.trainable)
        used = every.active_params - used_frozen
    trained = counted_weights("", every.params - frozen, used)
    still = replace(counted_weights("", frozen, used_frozen), trainable=False)
    return Ledger((*others, trained, still))


def _as_entry(entry: Entry) -> Entry:
    if entry.kind in WEIGHTS:
        return replace(entry, path="", kind="linear")
    letters = SQUARES.get(entry.kind, {})
    dims = {letters.get(letter, letter): size for letter, size in entry.dims.items()}
    return replace(entry, path="", kind=entry.kind if letters else "scores", dims=dims)


def recomputed_flops(products: Iterable[Entry], rule: Rule) -> Size:
    """Return the FLOPs of ``products`` that a training step runs again, each as ``rule`` counts one forward pass of it.

    Products with a weight count in full under a rule of parameters too.
    """
    forward, found = replace(rule.without_recomputation, backward=0), 0
    for entry in map(_as_entry, products):
        # without tokens: a product has no parameters of its own
        found += entry.size if entry.kind == "linear" else forward.macs(entry, 0)
    return flops(found)


def above_peak(percentages: Mapping[str, Any]) -> list[str]:
    """Return that utilisations of more than 100 percent are wrong, in a sentence for them."""
    names = [name.upper() for name, value in percentages.items() if value > 100]
    what = "no step exceeds the peak; check tokens, seconds, devices and the peak"
    return [f"{' and '.join(names)} above 100 %: {what}."] if names else []


def utilisation(flops_per_token: Size, tokens: int, seconds: float, devices: int, peak: Peak) -> Fraction:
    """Return the FLOPs of ``tokens`` tokens in ``seconds`` seconds as a share of what ``devices`` devices can do."""
    return Fraction(flops_per_token * tokens) / (Fraction(seconds) * devices * Fraction(peak.flops_per_s))
