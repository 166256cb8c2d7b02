"""Rows of experts and heads against a routing counted by hand, and effects of the losses.

Eleven tokens choose two of three: number 0 is chosen 8 times, 1 is chosen 10 times, 2 is chosen 4 times.
"""

from fractions import Fraction

from headcount.bench.routing import tables
from headcount.bench.routing.example import Outcome, effects
from headcount.bench.routing.stats import LayerRouting
from headcount.bench.variants.variant import variant
from tests.bench.output.reading import columns

CHOICES = [(1, (0, 1))] * 4 + [(1, (0, 2))] + [(2, (0, 1))] * 2 + [(11, (2, 1))] * 3 + [(12, (0, 1))]
PATH = "decoder.layers.17.cross_attn"


def layer(name, shared=0, path=PATH):
    """Those choices, each of 1,009 MACs, in a layer with so many shared ones before the three."""
    found = LayerRouting(path, variant(name).routed, 3, 2, num_shared=shared)
    tokens, chosen = zip(*CHOICES, strict=True)
    found.add(tokens, chosen, Fraction(1009))
    return found


def class_of(token):
    return "AB"[token // 10]


def test_head_has_macs_of_both_forms():
    section = tables.expert_section([layer("moh", shared=2)], top=1, min_count=1)
    found = columns(section)
    assert found["head"] == ["0", "1", "3", "2", "4"]
    assert found["tokens"] == ["11", "11", "10", "8", "4"]
    assert found["share %"] == ["–", "–", "45.45", "36.36", "18.18"]
    assert found["MACs ideal"] == ["11,099", "11,099", "10,090", "8,072", "4,036"]
    assert found["MACs as released"] == ["11,099"] * 5
    with_classes = columns(tables.expert_section([layer("moh", shared=2)], 1, 1, class_of=class_of))
    assert with_classes["class of highest PMI"] == ["–", "–", "B", "A", "B"]
    assert with_classes["PMI of the class"] == ["–", "–", "1.10", "1.38", "2.06"]


def test_effects_compare_runs_that_differ_in_one_loss():
    def run(counts, loss, z, **coefficients):
        found = LayerRouting(PATH, variant("moa").routed, 2, 1)
        found.add(range(8), [[0]] * counts + [[1]] * (8 - counts), Fraction(1))
        return Outcome(coefficients, loss, 0.5, {"L_a": 0.5, "L_z": z}, found, log=[], state={})

    plain, balanced = run(7, 0.75, 2.5, L_a=0.0, L_z=0.0), run(5, 0.25, 2.5, L_a=0.01, L_z=0.0)
    small, both = run(7, 0.75, 1.5, L_a=0.0, L_z=0.001), run(4, 0.5, 1.25, L_a=0.01, L_z=0.001)
    assert effects([plain, balanced, small, both]) == [
        "With 0.01 L_a the largest share falls from 87.5 % to 62.5 %, the smallest share rises from 12.5 % to 37.5 %, "
        "and the task loss falls from 0.750 to 0.250.",
        "With 0.001 L_z L_z falls from 2.500 to 1.500.",
        "With 0.01 L_a (and 0.001 L_z) the largest share falls from 87.5 % to 50.0 %, the smallest share rises "
        "from 12.5 % to 50.0 %, and the task loss falls from 0.750 to 0.500.",
        "With 0.001 L_z (and 0.01 L_a) L_z falls from 2.500 to 1.250.",
    ]
    assert effects([plain, both]) == []
