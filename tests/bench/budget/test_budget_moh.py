"""``headcount budget`` for MoH, and for the attention of every kind of model."""

import json
from itertools import product

import pytest

from headcount.bench.budget.candidates import METRICS, candidates
from headcount.bench.budget.search import HostModel
from headcount.bench.commands import count
from headcount.bench.variants.variant import variants_with
from headcount.models.configs.base import ConfigError
from headcount.models.configs.presets import preset
from tests.bench.budget.test_budget import rows_of, run

FAMILIES = variants_with("search")
BASES = {"moa": ["moa-8K8E128D"], "mha": ["transformer-base", "dit-s2"]}
BASES["moh"] = ["moh-llm-s-75", "moh-dit-s2-75"]


@pytest.mark.parametrize("variant, name", [(v, name) for v, names in BASES.items() for name in names])
def test_candidates_are_all_buildable_points(variant, name):
    family = FAMILIES[variant]
    ranges = {letter: range(known.least, 5) for letter, known in family.search.letters.items()}
    around = HostModel(family, name, {}, dict(preset(name).lengths))
    found = candidates(family, ranges, around.example, around.given)
    points = set(found[list(ranges)].tolist())
    buildable = set()
    for point in product(*ranges.values()):
        try:
            preset(name, family.fields(dict(zip(ranges, point, strict=True))))
        except ConfigError:
            continue
        buildable.add(point)
    assert len(found) == len(points) and points == buildable


SEARCHES = [
    ["--match-model", "llama3-8b", "--attention", "moh", "--match-metric", "macs", "kv-bytes", "--params", "9G"],
    ["--match-model", "transformer-base", "--attention", "moh", "--all-integers", "--range", "h=1:9", "d_h=30:70"],
    ["--match-model", "lightconv", "--attention", "moa"],
    ["transformer-base", "--attention", "mha", "--macs", "600M", "--range", "h=4,8,16", "g=8,4", "d_h=64"],
    ["--macs", "900M", "--params", "150M", "--kv-bytes", "64Ki", "--all-integers", "--seq-len", "7"],
]


COUNTED = [
    ["--macs", "900M", "--params", "150M", "--seq-len", "7"],
    ["moh-llm-s-75", "--macs", "40G", "--layers", "2", "--seq-len", "97", "--set", "form=released"],
    ["transformer-base", "--attention", "mha", "--macs", "600M", "--src-len", "7", "--tgt-len", "5"],
]


@pytest.mark.parametrize("argv", SEARCHES, ids=" ".join)
def test_rows_are_targets_that_cost_the_same(argv, capsys):
    rows = rows_of(capsys, *argv, "--limit", "4")
    assert rows
    for row in rows:
        words = [row["target"], "--counter", "closed-form", "--columns", "kv_bytes", "--format", "json"]
        code, out, err = run(capsys, *words, main=count.main)
        assert code == 0, err
        ledger, *_, memory = json.loads(out)["tables"]
        found = {**ledger["count"], "kv_bytes": memory["rows"][0]["kv_bytes"]}
        assert [found[metric] for metric in METRICS] == [row.get(metric) for metric in METRICS]


@pytest.mark.parametrize("argv", COUNTED, ids=" ".join)
def test_rows_are_targets_that_are_counted_the_same(argv, capsys):
    for row in rows_of(capsys, *argv, "--limit", "2"):
        code, out, err = run(capsys, row["target"], "--format", "json", main=count.main)
        assert code == 0, err
        (tree,) = json.loads(out)["tables"]
        assert (tree["count"]["macs"], tree["count"]["params"]) == (row["macs"], row["params"])


def test_moh_is_counted_ideal_by_default(capsys):
    d_m, F, V, T, N = 768, 2048, 65536, 2048, 12
    rest = N * 3 * T * d_m * F + T * d_m * V
    routed = N * T * d_m * 14
    released = rest + routed + N * (4 * T * d_m * d_m + 2 * T * T * d_m)
    # 9 of 12 heads
    ideal = rest + routed + N * (2 * T * d_m * 9 * 64 + 2 * T * d_m * d_m + 2 * T * T * 9 * 64)
    own, dense = "moh-llm-s-75", "moh-llm-s-75,form=released"
    for matched, counted, form in ((own, ideal, None), (own, released, "released"), (dense, released, None)):
        out = run(capsys, "--match-model", matched, "--limit", "1", *(["--set", f"form={form}"] if form else []))[1]
        assert f"{counted:,} MACs" in out
