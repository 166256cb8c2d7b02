"""Training FLOPs of a closed form or of a counted module under a named rule, and their share of a peak. No torch."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from typing import Any

from headcount.bench.case import Case
from headcount.bench.errors import UsageError
from headcount.bench.hardware import Peak
from headcount.formulas.conventions import CONVENTIONS, TRAINING, Rule
from headcount.formulas.ledger import FORWARD_KINDS, Entry, Ledger, Size, counted_weights, divide
from headcount.formulas.mha import causal_half
from headcount.models.configs.registry import MODELS
from headcount.models.configs.suggest import choices

WEIGHTS = ("linear", "expert_linear", "conv")
"""Kinds of a counted product with a parameter; every other product has two computed tensors."""
SQUARES = {"scores": {"m": "T", "j": "S"}, "values": {"m": "T", "i": "S"}}
"""Letters of a ledger for those of a counted product of attention, by kind."""


@dataclass(frozen=True)
class CountedModule:
    """The count of a module's forward pass over ``tokens`` tokens: a ContractionCount or a ModuleCount.

    ``given_active``: the parameters that a token uses, where the user knows them.
    """

    count: Any
    tokens: int
    given_active: int | None = None

    @property
    def active_params(self) -> int | None:
        """Parameters that one token uses, given or counted; None where neither is known."""
        return self.count.active_params if self.given_active is None else self.given_active


def find_rule(name: str) -> Rule:
    """Return a rule of a training step. Raises UsageError with the nearest names."""
    if name not in TRAINING:
        raise UsageError(f"unknown rule {name!r}; {choices(name, TRAINING)}")
    return CONVENTIONS[name]


def tokens_of(case: Case | CountedModule, rule: Rule) -> int:
    """Return the tokens of a step. Raises UsageError where ``rule`` does not apply.

    Rules are per token of one sequence, and a rule of causal pairs is of models with causal attention.
    """
    if isinstance(case, CountedModule):
        return case.tokens
    tokens = case.lengths.get("seq_len" if case.config.variant in MODELS else "tgt_len")
    if tokens is None:
        raise UsageError(f"rules are per token of one sequence; {case.name} has {', '.join(case.lengths) or 'none'}")
    if rule.pairs != "whole":
        causal = hasattr(case.form, "CAUSAL_PATHS")
        if not causal or case.lengths.get("src_len", tokens) < tokens:
            raise UsageError(f"rule {rule.name} counts causal pairs, and {case.name} is not causal; {_whole()}")
    return case.lengths["batch_size"] * tokens


def _whole() -> str:
    return f"choose from {', '.join(name for name in TRAINING if CONVENTIONS[name].pairs == 'whole')}"


def model_rule(rule: Rule) -> Rule:
    """Return ``rule`` without recomputation: model FLOPs, where the rule itself counts those of the hardware."""
    return replace(rule, terms=tuple(replace(term, recompute=0) for term in rule.terms))


def flops_per_token(case: Case | CountedModule, rule: Rule) -> Size:
    """Return the FLOPs per token of a training step. Raises UsageError where ``rule`` does not apply."""
    tokens = tokens_of(case, rule)
    total = _module_flops(case, rule) if isinstance(case, CountedModule) else rule.flops(case.ledger, tokens)
    return divide(total, tokens)


def _module_flops(module: CountedModule, rule: Rule) -> Size:
    """Return the FLOPs of a training step of a counted module.

    A product with a parameter is weight, and one of two computed tensors is attention. Raises UsageError for a rule
    that needs more than the run of a module shows.
    """
    count = module.count
    kinds = {entry.kind for entry in count.ledger}
    if not kinds <= set(FORWARD_KINDS):
        raise UsageError("rules add the backward pass themselves; count the forward pass only")
    terms = rule.terms
    if "expert_linear" not in kinds and count.active_params == count.used_params:
        # a dense module, of which each token uses every parameter that the run reads, has no router
        terms = tuple(term for term in terms if "router" not in term.path)
    for term in terms:
        if term.letter or term.path or {"embedding", "softmax"} & set(term.kinds):
            raise UsageError(
                f"rule {rule.name} treats routers, embeddings, the vocabulary projection or softmax apart, which the "
                "products of a module do not name"
            )
    if not module.active_params and any(term.of == "active_params" for term in terms):
        raise UsageError(f"rule {rule.name} needs the parameters that a token uses, which this run does not show")
    products = module_ledger(count, module.active_params)
    if rule.pairs != "whole" and (why_not := _why_not_causal(count, products)):
        raise UsageError(f"rule {rule.name} counts causal pairs, and {why_not}; {_whole()}")
    return replace(rule, terms=terms).flops(products, module.tokens)


def _why_not_causal(count: Any, products: Ledger) -> str:
    """Return why the masks of a module are not those of causal attention; empty where they are."""
    if count.causal_macs is None:
        return "a mask of this module is not known"
    hidden = count.macs - count.causal_macs
    if hidden == products.macs - causal_half(products).macs:
        return ""
    return "its masks hide other pairs than those" if hidden else "no mask of this module hides any"


def module_ledger(count: Any, active_params: int | None) -> Ledger:
    """Return a count as entries of a closed form without paths, so that rules apply: its products, its parameters.

    The parameters are one entry, of which a token uses ``active_params``, None where they are not known.
    """
    return Ledger((*map(_as_entry, count.ledger), counted_weights("", count.params, active_params)))


def _as_entry(entry: Entry) -> Entry:
    if entry.kind in WEIGHTS:
        return replace(entry, path="", kind="linear")
    letters = SQUARES.get(entry.kind, {})
    dims = {letters.get(letter, letter): size for letter, size in entry.dims.items()}
    return replace(entry, path="", kind=entry.kind if letters else "scores", dims=dims)


def first_input(inputs: Sequence[str]) -> tuple[list[int], str]:
    """Return sizes and type of the ids among the inputs of a ModuleCount, a decoder's first; else of input 1."""
    found = {place: text.split() for place, _, text in (line.partition(": ") for line in inputs)}
    ids = (found[name] for name in ("decoder_input_ids", "input_ids") if name in found)
    shape, dtype = next(ids, next(iter(found.values()), ("scalar", "")))
    return [int(size) for size in shape.split("x") if size.isdecimal()], dtype


def input_tokens(inputs: Sequence[str]) -> int | None:
    """Return the tokens of the first input: its integers, or B T of B x T x width; None where they are unknown."""
    sizes, dtype = first_input(inputs)
    if "int" in dtype:
        return prod(sizes)
    return sizes[0] * sizes[1] if len(sizes) == 3 else None


def utilisation(flops_per_token: Size, tokens: int, seconds: float, devices: int, peak: Peak) -> Fraction:
    """Return the FLOPs of ``tokens`` tokens in ``seconds`` seconds as a share of what ``devices`` devices can do."""
    return Fraction(flops_per_token * tokens) / (Fraction(seconds) * devices * Fraction(peak.flops_per_s))
