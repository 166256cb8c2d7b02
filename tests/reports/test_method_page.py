"""What the page of methods says in words is true of the code beside it."""

import re

from headcount.bench.counters import registry
from headcount.models.configs.presets import PRESETS, preset
from headcount.reports import method
from tests.models.every_layer import configurations


def arms():
    """The arms of each variant, in either form."""
    found = {}
    for _, config in configurations("form"):
        found.setdefault(config.variant, set()).update(arm.name for arm in config.implementations)
    return found


def test_every_arm_is_named():
    named = set(re.findall(r"`([\w-]+)`", method.CLOCK))
    assert all(own <= named for own in arms().values())


def test_what_other_attention_than_moa_and_moh_runs_by():
    others = {name: own for name, own in arms().items() if name not in ("moa", "moh")}
    assert all(own <= {"reference", "fused"} for own in others.values())
    assert {name for name, own in others.items() if "fused" not in own} == {"aggregated", "moh_aggregated"}


def test_every_model_runs_and_two_counters_need_its_values():
    assert all(preset(name).has_module for name in PRESETS)
    assert {name for name in registry.NAMES if registry.counter(name).DEVICE == "cpu"} == {"ptflops-pytorch"}
