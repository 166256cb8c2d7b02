"""The model by which a rule of training is counted. Imports no torch."""

from contextlib import suppress

from headcount.bench.case import Case
from headcount.bench.closed_form.case import configuration_case
from headcount.bench.counting.result import Count
from headcount.bench.errors import UsageError
from headcount.bench.targets.target import is_configuration
from headcount.bench.training_flops import RuleRefused, flops_per_token
from headcount.formulas.conventions import Rule
from headcount.models.configs.base import ConfigError


def model_of(model: Case | Count, rule: Rule) -> Case | Count:
    """Return the closed form of a counted configuration whose run does not decide ``rule``; else the model itself.

    A closed form names its embeddings, routers and vocabulary projection, which a run does not. The run stays where no
    closed form is known, and where the rule does not apply to that either.
    """
    if not isinstance(model, Count) or model.target is None or not is_configuration(model.target.spec):
        return model
    try:
        flops_per_token(model, rule)
    except RuleRefused:
        with suppress(UsageError, ConfigError):
            closed = configuration_case(model.target)
            flops_per_token(closed, rule)
            return closed
    except UsageError:
        # a reason that no rule changes
        pass
    return model
