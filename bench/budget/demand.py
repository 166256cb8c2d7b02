"""What is to fit on a card, and the bytes that it needs. Imports no torch."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import ceil

from headcount.bench.accounts import (
    RECIPES,
    Assumptions,
    NoAccount,
    context,
    encoder_macs,
    step,
    value_of,
    with_last_logits,
)
from headcount.bench.case import Case
from headcount.bench.closed_form.case import case_of, configuration_case
from headcount.bench.closed_form.store import PREFILL_PEAK, TYPES, find_activations
from headcount.bench.closed_form.terms import Bytes
from headcount.bench.errors import UsageError
from headcount.bench.targets.target import Target, is_configuration
from headcount.formulas.decoding import cache_elements
from headcount.formulas.plan import Plan, PlanError
from headcount.formulas.rank import BYTES, PARAMETER, RankCost, Ranks
from headcount.models.configs.base import ConfigError
from headcount.models.configs.targets import has_closed_form

CACHE, ACTIVATIONS = "cache", "activations"
OPTIMIZER_PARTS = ("gradients", "weights")
"""Parts of a recipe that are no state of the optimizer."""


@dataclass(frozen=True)
class Demand:
    """What is to fit: a target, its tokens and sequences, in training or with a cache, under a plan.

    ``chosen``: of which plans it was chosen, and why, in a sentence; empty of one that is given.
    """

    target: Target
    given: Assumptions
    training: bool
    plan: Plan | None = None
    chosen: str = ""

    @cached_property
    def case(self) -> Case:
        """The closed form. Raises ConfigError for a length without a position."""
        case = case_of(self.target, plan=self.plan)
        _ = case.ledger
        return case

    @property
    def is_file(self) -> bool:
        """Whether it is a configuration, which may have a closed form."""
        return is_configuration(self.target.spec)

    @property
    def is_module(self) -> bool:
        """Whether it is code of the user, which has no closed form."""
        return not self.is_file and not has_closed_form(self.target.spec)

    @property
    def has_ledger(self) -> bool:
        """Whether all parts follow from a closed form: of a preset or a layer, and of a configuration under a plan."""
        return self.plan is not None and self.is_file or has_closed_form(self.target.spec)

    @property
    def ranks(self) -> int:
        """The ranks of its plan."""
        return 1 if self.plan is None else int(self.plan.ranks)

    @property
    def length(self) -> str:
        """The length that a context or the sequences of a step set."""
        return "tgt_len" if "tgt_len" in self.case.lengths else "seq_len"

    def at(self, **lengths: int) -> "Demand":
        """Return the demand with other lengths."""
        return replace(self, target=replace(self.target, lengths={**self.target.lengths, **lengths}))

    def parts(self, plan: Plan | None = None) -> dict[str, int]:
        """Return the bytes of each part, of the rank that needs most, under ``plan`` in place of the demand's own.

        Raises PlanError, ConfigError, and UsageError for a configuration without a closed form.
        """
        if not self.has_ledger:
            return self._of_configuration()
        plan = plan or self.plan or Plan()
        found = self._of_step(plan) if self.training else self._of_generation(plan.generating)
        return max(found, key=lambda parts: sum(parts.values()))

    def next_known(self, length: int) -> int | None:
        """Return the least length from one on whose bytes are known; None where none is."""
        return length if self.has_ledger else self._activations.next_known(length)

    @cached_property
    def _activations(self) -> Bytes:
        """The activations of a configuration on one card. Raises UsageError where they have no closed form."""
        return find_activations(self.target, "saved_bytes" if self.training else PREFILL_PEAK, TYPES)

    def _of_configuration(self) -> dict[str, int]:
        """Return the bytes of each part of a configuration on one card."""
        case, given = configuration_case(self.target), self.given
        # the context of one sequence is read at a time
        batch = case.lengths["batch_size"] if self.training else 1
        activations = self._activations.value(batch, case.lengths["seq_len"])
        if activations is None:
            raise UsageError(f"activations of {case.name} have no closed form")
        params = case.ledger.params
        if self.training:
            return {**states(given.optimizer, params, params - case.ledger.frozen_params), ACTIVATIONS: activations}
        found = {"weights": ceil(given.weight_bytes * params) if given.weight_bytes else case.config.weight_bytes}
        with suppress(NoAccount):
            found[CACHE] = value_of("kv_bytes", case, given)
        return {**found, ACTIVATIONS: activations}

    @cached_property
    def _ranks(self) -> Ranks:
        """The ranks of a pass over the input."""
        return Ranks(self.case.ledger)

    @cached_property
    def _generating_ranks(self) -> tuple[list[Ranks], bool]:
        """The ranks of what generation runs, a step first if there is one, and whether there is."""
        case = self.case
        try:
            stored = context(case, self.given)
            forms = [step(case, stored, 1)]
            if encoder_macs(case):
                # an encoder runs on all sequences at once
                encoder = replace(case, sizes={**case.sizes, "T": 0}).ledger
                forms.append(encoder.select(lambda entry: entry.size))
            else:
                forms.append(with_last_logits(step(self.at(batch_size=1).case, stored, stored)))
        except NoAccount:
            return [self._ranks], False
        return [Ranks(form) for form in forms], True

    def _of_step(self, plan: Plan) -> Iterator[dict[str, int]]:
        """Yield the parts of a training step, for each class of equal ranks."""
        for cost in self._ranks.costs(plan):
            states = {}
            for name, size in RECIPES[self.given.optimizer].items():
                states[name] = size * cost.held[name if name in OPTIMIZER_PARTS else "optimizer"]
            yield self._whole(cost, states, cost.under_way * cost.activation_elements())

    def _of_generation(self, plan: Plan) -> Iterator[dict[str, int]]:
        """Yield the parts of a model that generates, or of a forward pass, for each class of equal ranks.

        The context of one sequence is read at a time, and then all sequences go on by a token.
        """
        each, (ranks, decodes) = self.given.bytes_each, self._generating_ranks
        runs = [one.costs(plan) for one in ranks]
        for whole, *costs in zip(self._ranks.costs(plan), *runs, strict=True):
            held = {"weights": whole.held["weights"] * each["weight"]}
            if decodes:
                held[CACHE] = cache_elements(costs[0].ledger) * each["cached"]
            yield self._whole(whole, held, max(cost.forward_elements() for cost in costs))

    @cached_property
    def alone(self) -> int | None:
        """Bytes of activations of a configuration that reads a context on one card; None where they are not known."""
        if self.training or not self.is_file:
            return None
        try:
            length = self._activations.next_known(self.target.lengths["seq_len"])
        except UsageError:
            return None
        return None if length is None else self._activations.value(1, length)

    def _whole(self, cost: RankCost, held: Mapping[str, int | Fraction], activations: int) -> dict[str, int]:
        each, more = self.given.bytes_each, {}
        if cost.plan.zero == 3:
            size = RECIPES[self.given.optimizer]["weights"] if self.training else each["weight"]
            more["gathered weights"] = cost.gathered_params() * size
        # saved activations have the dtypes of the run, not the dtype that is given
        is_stated = self.training and cost.has_stated_results
        more[ACTIVATIONS] = activations * (BYTES[PARAMETER] if is_stated else each["other"])
        if self.alone is not None:
            # a rank has a part of each tensor, and the sum is a bound
            more[ACTIVATIONS] = min(more[ACTIVATIONS], self.alone)
        return {name: ceil(size) for name, size in {**held, **more}.items()}

    def needed(self) -> int | None:
        """Return the bytes of all parts; None for what cannot be built or divided."""
        try:
            return sum(self.parts().values())
        except (ConfigError, NoAccount, PlanError, UsageError):
            return None

    def fits(self, memory: int) -> bool:
        """Return whether all parts fit into so many bytes; False for what cannot be built or divided."""
        needed = self.needed()
        return needed is not None and needed <= memory


def states(optimizer: str, params: int, trained: int) -> dict[str, int]:
    """Return the bytes of weights, and of gradients and an optimizer's state of those that are trained."""
    return {name: size * (params if name == "weights" else trained) for name, size in RECIPES[optimizer].items()}
