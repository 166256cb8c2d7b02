"""Every implementation agrees with the papers' equations in numpy: outputs, losses and derivatives."""

from itertools import product

import pytest

from headcount.models.configs.make import make_config
from tests import equations
from tests.equations import EXACT, NEAR, SITUATIONS, Case, cases, largest_errors, main

MHA = dict(attention="mha", d_model=5, num_heads=6, num_kv_heads=2, head_dim=3)
MOA = dict(attention="moa", d_model=5, num_experts=5, top_k=2, head_dim=3, **equations.WEIGHTS["moa"])
MOH = dict(attention="moh", d_model=5, num_heads=5, num_shared_heads=1, top_k=2, **equations.WEIGHTS["moh"], head_dim=2)


def test_sampled_cases_agree(capsys):
    # coprime to the number of situations and biases, so that all of them are among the sampled cases
    sampled = {(case.values["attention"], case.values["bias"], case.situation) for case in list(cases())[::17]}
    assert sampled >= {*product(("moa", "moh"), (False, True), SITUATIONS)}
    assert main(17) == 0
    assert "; 0 wrong" in capsys.readouterr().out


@pytest.mark.parametrize("values", [MHA, MOA, MOH | {"router": "query_norm"}], ids=["mha", "moa", "moh"])
def test_every_float64_implementation_runs(values):
    forms = [{"form": form} for form in ("released", "ideal")] if values["attention"] == "moh" else [{}]
    impls = [impl for form in forms for impl in make_config(values | form).implementations if not impl.package]
    value, slope, ran = largest_errors(Case(values, "three", (2, 4, 5)))
    assert ran == len(impls) and value[0] < EXACT and slope[0] < NEAR
