"""The script of the papers' equations: enough cases, every arm, and it notices what it is for."""

from collections import Counter

import pytest

from headcount.models.configs.make import make_config
from tests import equations, plain
from tests.equations import EXACT, NEAR, Case, cases, main, worst

MOA = dict(attention="moa", d_model=5, num_experts=5, top_k=2, head_dim=3, **equations.WEIGHTS["moa"])
MOH = dict(attention="moh", d_model=5, num_heads=5, num_shared_heads=1, top_k=2, **equations.WEIGHTS["moh"], head_dim=2)
NORM = MOH | {"router": "query_norm"}


def test_one_case_in_many_agrees(capsys):
    assert main(31) == 0
    assert "; 0 wrong" in capsys.readouterr().out


def test_there_are_enough_cases_of_every_kind():
    found = list(cases())
    counts = Counter(case.values["attention"] for case in found)
    assert counts["moa"] >= 200 and counts["moh"] >= 400
    assert len({(case.name, case.lengths) for case in found}) == len(found)
    for situation in equations.SITUATIONS:
        asked = [case for case in found if case.situation == situation]
        assert {case.values["attention"] for case in asked} == {"moa", "moh"}
        turning = {(case.values["attention"], case.theta is None) for case in asked}
        assert len(turning) == (2 if "cross" in equations.SITUATIONS[situation] else 4)
    for field in ("gates", "router", "bias", "noisy", "top_k", "num_kv_heads"):
        assert len({case.values[field] for case in found if field in case.values}) > 1


def test_every_arm_that_takes_float64_is_run():
    for values in (MOA, NORM):
        forms = [{"form": form} for form in ("released", "ideal")] if values is NORM else [{}]
        arms = [arm for form in forms for arm in make_config(values | form).implementations if not arm.package]
        value, slope, ran = worst(Case(values, "three", (2, 4, 5)))
        assert ran == len(arms) and value[0] < EXACT and slope[0] < NEAR


def without_keeping(kind, probs, chosen, token, kept):
    return probs[chosen] / probs[chosen].sum()


def of_selected_heads(*args):
    return plain_head_gates(*args[:-1], False)


def of_every_head(*args):
    return plain_head_gates(*args[:-1], True)


plain_head_gates = plain.head_gates
CHANGES = {
    "Eq. 9's denominator with a gradient": (MOA, "gate", without_keeping),
    "Eq. 10 for selected heads alone": (NORM, "head_gates", of_selected_heads),
    "Eq. 10 for every head": (NORM, "head_gates", of_every_head),
}


@pytest.mark.parametrize("values, name, change", CHANGES.values(), ids=CHANGES)
def test_another_gradient_of_the_same_function_is_noticed(values, name, change, monkeypatch):
    monkeypatch.setattr(plain, name, change)
    value, slope, _ = worst(Case(values, "causal-padded", (2, 4, 4)))
    assert value[0] < EXACT and slope[0] > 1e-4


@pytest.mark.parametrize("values", [MOA, MOH], ids=["moa", "moh"])
def test_another_function_is_noticed(values, monkeypatch):
    attended = plain.attended
    monkeypatch.setattr(plain, "attended", lambda q, keys, values: (1 + 1e-9) * attended(q, keys, values))
    assert worst(Case(values, "self", (1, 2, 2)))[0][0] > EXACT


def test_a_wrong_case_is_named(monkeypatch, capsys):
    monkeypatch.setattr(equations, "EXACT", 0.0)
    monkeypatch.setattr(equations, "cases", lambda: [Case(MOA, "self", (1, 2, 2))])
    assert main() == 1
    said = capsys.readouterr().out
    assert said.startswith("moa self d_model=5 num_experts=5 top_k=2 head_dim=3: ") and "; 1 wrong" in said
