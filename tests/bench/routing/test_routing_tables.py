"""The tables of bench.routing as they are read: what each column is called, counts in, and holds of a routing by hand.

Eleven tokens choose two of three: number 0 is chosen 8 times, 1 is chosen 10 times, 2 is chosen 4 times.
"""

from fractions import Fraction

import pytest

from headcount.bench.routing import tables
from headcount.bench.routing.__main__ import _result
from headcount.bench.routing.example import Outcome, effects
from headcount.bench.routing.stats import LayerRouting
from headcount.bench.variants.variant import variant
from tests.bench.output.reading import columns, kept

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


def name_of(token):
    return f"w{token}"


def test_shares_are_in_percent_and_those_of_a_layer_sorted():
    section = tables.layer_section([layer("moa")])
    assert section.table.title == "Shares of tokens per expert"
    assert columns(section) == {
        "layer": [PATH],
        "tokens": ["11"],
        "largest share %": ["45.45"],
        "smallest share %": ["18.18"],
        "shares in %, sorted": ["45.5 36.4 18.2"],
    }
    (record,) = (row.records for row in section.rows)
    assert record == [{"layer": PATH, "tokens": 11, "top_k": 2, "tokens_per_expert": [8, 10, 4]}]


def test_a_layer_of_heads_says_how_many_are_routed_and_shared():
    section = tables.layer_section([layer("moh", shared=5)])
    found = columns(section)
    assert list(found)[:4] == ["layer", "tokens", "routed heads", "shared heads"]
    assert (found["routed heads"], found["shared heads"]) == (["3"], ["5"])
    assert section.rows[0].records[0]["num_shared_heads"] == 5


def test_a_row_of_an_expert_is_its_share_its_work_and_its_tokens():
    section = tables.expert_section([layer("moa")], top=2, min_count=3, name_of=name_of, class_of=class_of)
    assert section.table.title == "Experts and their tokens"
    assert columns(section) == {
        "layer": [PATH] * 3,
        "expert": ["1", "0", "2"],
        "tokens": ["10", "8", "4"],
        "share %": ["45.45", "36.36", "18.18"],
        "executed MACs": ["10,090", "8,072", "4,036"],
        # of 22 choices 14 are of A and 8 of B: 4 * 22 / (8 * 10), 7 * 22 / (14 * 8), 3 * 22 / (8 * 4)
        "class of highest PMI": ["B", "A", "B"],
        "PMI of the class": ["1.10", "1.38", "2.06"],
        # token 12 is chosen for but twice
        "tokens of highest PMI, of those with at least 3 choices": [
            "w11 (1.1) w2 (1.1)", "w1 (1.4) w2 (1.4)", "w11 (2.8) w1 (0.6)",
        ],
    }  # fmt: skip
    assert section.below == [
        "1 of 3 experts specialise: they take a class of tokens at least 1.5 times as often as independence would give "
        "(B: 2)."
    ]


def test_of_classes_that_an_expert_takes_equally_often_it_is_for_the_last_by_name():
    found = LayerRouting(PATH, variant("moa").routed, 2, 1)
    found.add([1, 11, 2, 12], [[0], [0], [1], [1]], Fraction(1009))
    section = tables.expert_section([found], 1, 1, class_of=class_of)
    assert columns(section)["class of highest PMI"] == ["B", "B"]
    assert section.below == [
        "0 of 2 experts specialise: they take a class of tokens at least 1.5 times as often as independence would give "
        "(none)."
    ]


def test_a_head_has_the_work_of_both_forms_and_a_shared_one_no_share():
    section = tables.expert_section([layer("moh", shared=2)], top=1, min_count=1)
    found = columns(section)
    assert found["head"] == ["0", "1", "3", "2", "4"]
    assert found["tokens"] == ["11", "11", "10", "8", "4"]
    assert found["share %"] == ["–", "–", "45.45", "36.36", "18.18"]
    assert found["MACs ideal"] == ["11,099", "11,099", "10,090", "8,072", "4,036"]
    assert found["MACs as released"] == ["11,099"] * 5
    assert not any("class" in head for head in found)
    assert found["tokens of highest PMI, of those with at least 1 choices"] == [
        *["shared: every token uses it"] * 2, "11 (1.1)", "1 (1.4)", "11 (2.8)",
    ]  # fmt: skip
    with_classes = columns(tables.expert_section([layer("moh", shared=2)], 1, 1, class_of=class_of))
    assert with_classes["class of highest PMI"] == ["–", "–", "B", "A", "B"]
    assert with_classes["PMI of the class"] == ["–", "–", "1.10", "1.38", "2.06"]


def test_a_class_lists_what_it_chooses_the_most_chosen_first():
    section = tables.class_section(layer("moh", shared=2), class_of)
    assert section.table.title == "Heads chosen per class"
    assert columns(section) == {
        "class": ["A", "B"],
        "choices": ["14", "8"],
        "head (share of the class's choices in %), the most chosen first": [
            "2 (50.0)  3 (42.9)  4 (7.1)", "3 (50.0)  4 (37.5)  2 (12.5)",
        ],
    }  # fmt: skip
    assert [row.records for row in section.rows] == [
        [{"class": "A", "choices": 14, "by_head": {2: 7, 3: 6, 4: 1}}],
        [{"class": "B", "choices": 8, "by_head": {3: 4, 4: 3, 2: 1}}],
    ]


def outcome(**coefficients):
    losses = {"L_a": 0.03125, "L_z": 2.71828}
    return Outcome(coefficients, 0.0625, 0.9876, losses, layer("moa"), log=[], state={})


def test_a_run_has_its_losses_without_their_coefficients():
    section = tables.runs_section([outcome(L_a=0.01, L_z=0.0)])
    assert columns(section) == {
        "coefficients": ["0.01 L_a"],
        "task loss (nats)": ["0.062"],
        "accuracy %": ["98.76"],
        "largest share %": ["45.45"],
        "smallest share %": ["18.18"],
        "L_a": ["0.031"],
        "L_z": ["2.718"],
    }
    assert section.rows[0].records == [
        {
            "coefficients": {"L_a": 0.01, "L_z": 0.0},
            "loss": 0.0625,
            "accuracy": 0.9876,
            "auxiliary_losses": {"L_a": 0.03125, "L_z": 2.71828},
            "tokens_per_expert": [8, 10, 4],
        }
    ]
    (note,) = section.table.notes_above
    assert note == (
        "Table 7 of arXiv 2210.05144 gives BLEU of translation models. Here: task loss and spread of the load of a "
        "small model on a made-up task with 4 classes of tokens, 600 steps, seed 1, K = 2, E = 3, on held-out "
        "sequences. Losses without their coefficients."
    )


def test_a_statement_tells_each_loss_by_the_runs_that_differ_in_it_alone():
    def run(counts, loss, z, **coefficients):
        found = LayerRouting(PATH, variant("moa").routed, 2, 1)
        found.add(range(8), [[0]] * counts + [[1]] * (8 - counts), Fraction(1))
        return Outcome(coefficients, loss, 0.5, {"L_a": 0.5, "L_z": z}, found, log=[], state={})

    plain, balanced = run(7, 0.75, 2.5, L_a=0.0, L_z=0.0), run(5, 0.25, 2.5, L_a=0.01, L_z=0.0)
    small, both = run(7, 0.75, 1.5, L_a=0.0, L_z=0.001), run(4, 0.5, 1.25, L_a=0.01, L_z=0.001)
    third = run(8, 0.75, 2.5, L_a=0.01, L_z=0.01)
    assert effects([plain, balanced, small, both, third]) == [
        "With 0.01 L_a the largest share falls from 87.5 % to 62.5 %, the smallest share rises from 12.5 % to 37.5 %, "
        "and the task loss falls from 0.750 to 0.250.",
        "With 0.001 L_z L_z falls from 2.500 to 1.500.",
        "With 0.01 L_a (beside 0.001 L_z) the largest share falls from 87.5 % to 50.0 %, the smallest share rises "
        "from 12.5 % to 50.0 %, and the task loss falls from 0.750 to 0.500.",
        "With 0.001 L_z (beside 0.01 L_a) L_z falls from 2.500 to 1.250.",
        "With 0.01 L_z (beside 0.01 L_a) L_z stays at 2.500.",
    ]
    assert effects([plain, both]) == []


def test_a_log_has_a_row_for_each_layer_at_each_step():
    section = tables.log_section([(50, {"x": [1, 7], "y": [3, 5]}), (1000, {"x": [0, 0]})])
    assert section.table.title == "Balance over training steps"
    assert columns(section) == {
        "step": ["50", "50", "1,000"],
        "layer": ["x", "y", "x"],
        "largest share %": ["87.50", "62.50", "0.00"],
        "smallest share %": ["12.50", "37.50", "0.00"],
    }
    assert section.rows[1].records == [{"step": 50, "layer": "y", "tokens_per_expert": [3, 5]}]


def of_many(name, shared=0):
    """A layer with 23 experts or heads to choose from, whose shares fill more than a line."""
    found = LayerRouting(PATH, variant(name).routed, 23, 1, num_shared=shared)
    found.add(range(23), [[token] for token in range(23)], Fraction(10**6 + 3))
    return found


def experts(name, **shared):
    return tables.expert_section([of_many(name, **shared)], 5, 1, class_of=lambda token: "AB"[token % 2])


SHARE, PMI, LEAST = "share %", "highest PMI", "tokens of highest PMI, of those with at least 1 choices"
SPREAD = ["largest share %", "smallest share %"]
CHOSEN = "head (share of the class's choices in %), the most chosen first"
NARROW = {  # at a width: what is there
    ("layers", 80): ["layer", *SPREAD, "shares in %, sorted"],
    ("layers", 10): ["layer", *SPREAD],
    ("layers of heads", 120): ["layer", "tokens", "routed heads", "shared heads", *SPREAD, "shares in %, sorted"],
    ("layers of heads", 80): ["layer", *SPREAD, "shares in %, sorted"],
    ("layers of heads", 10): ["layer", *SPREAD],
    ("experts", 120): [
        "layer", "expert", "tokens", SHARE, "executed MACs", f"class of {PMI}", "PMI of the class", LEAST,
    ],
    ("experts", 80): ["layer", "expert", "tokens", SHARE, f"class of {PMI}"],
    ("experts", 10): ["layer", "expert", SHARE],
    # one sequence computes as much of every head in the released code
    ("heads", 120): ["layer", "head", "tokens", SHARE, "MACs ideal", f"class of {PMI}", "PMI of the class", LEAST],
    ("heads", 10): ["layer", "head", SHARE],
    ("classes", 80): ["class", "choices", CHOSEN],
    ("classes", 10): ["class", "choices", CHOSEN],
    ("runs", 80): ["coefficients", "task loss (nats)", "accuracy %", *SPREAD, "L_a", "L_z"],
    ("runs", 10): ["coefficients", *SPREAD],
    ("balance", 10): ["step", "layer", *SPREAD],
}  # fmt: skip
SECTIONS = {
    "layers": lambda: tables.layer_section([of_many("moa")]),
    "layers of heads": lambda: tables.layer_section([of_many("moh", shared=2)]),
    "experts": lambda: experts("moa"),
    "heads": lambda: experts("moh", shared=2),
    "classes": lambda: tables.class_section(of_many("moh", shared=2), lambda token: "AB"[token % 2]),
    "runs": lambda: tables.runs_section([outcome(L_a=0.01, L_z=0.001)]),
    "balance": lambda: tables.log_section([(50, {PATH: [1, 7]})]),
}


@pytest.mark.parametrize("name, width", NARROW)
def test_a_narrow_terminal_keeps_what_a_row_is_and_its_shares(name, width):
    assert kept(SECTIONS[name](), width) == NARROW[name, width]


def test_result_gives_range_of_all_shares():
    layers = tables.layer_section([layer("moa"), of_many("moa")])
    # 8, 10 and 4 of 22 choices, and 1 of 23 for each
    assert _result([layers]) == "2 layers: shares from 4.35 % to 45.45 %."
    assert _result([tables.runs_section([outcome()])]) == "1 run: shares from 18.18 % to 45.45 %."


def test_result_includes_a_share_of_zero():
    unused = LayerRouting(PATH, variant("moa").routed, 2, 1)
    unused.add([1], [[0]], Fraction(1))
    assert _result([tables.layer_section([unused])]) == "1 layer: shares from 0.00 % to 100.00 %."
