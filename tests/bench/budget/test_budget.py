"""``headcount budget`` for MoA: the Pareto front of sizes within limits, ranges of sizes, and recorded times."""

import json
from datetime import UTC, datetime
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.bench import records
from headcount.bench.budget.__main__ import main, parser
from headcount.bench.budget.bounds import Bound
from headcount.bench.budget.candidates import METRICS
from headcount.bench.budget.search import HostModel, in_turns, pareto_front, search
from headcount.bench.env import device_name
from headcount.bench.errors import UsageError
from headcount.bench.records import append, layer_times, slug
from headcount.bench.variants.variant import variants_with
from headcount.models.configs.layers import layer

FAMILIES = variants_with("search")
ALL = ["--min-distance", "0", "--limit", "0"]


def run(capsys, *argv, main=main):
    return main(argv), *capsys.readouterr()


def rows_of(capsys, *argv):
    code, out, err = run(capsys, *argv, "--format", "json")
    assert code == 0, err
    return [row | row["numbers"] for row in json.loads(out)["tables"][0]["rows"]]


def moa_costs(K, E, D, T, N, d_m=512, F=2048, V=32000):
    """Return the hand-computed costs of transformer-base with MoA.

    Each of N encoder layers has one attention, and each of N decoder layers has two.
    """
    attention = T * d_m * E + 2 * T * K * D * d_m + 2 * T * D * d_m + 2 * K * T * T * D
    fed = 2 * T * d_m * F
    norms = (2 + 3) * 2 * d_m * N
    weights = 3 * N * (d_m * E + 2 * D * d_m) + 2 * N * (2 * d_m * F + F + d_m) + norms + V * d_m
    return {
        "macs": 3 * N * attention + 2 * N * fed + T * d_m * V,
        "params": weights + 3 * N * 2 * E * D * d_m,
        "active_params": weights + 3 * N * 2 * K * D * d_m,
        # self- and cross-attention of each decoder layer, keys and values, two bytes each
        "kv_bytes": N * 2 * 2 * T * D * 2,
    }


def dominates(p, q):
    """Return whether ``p`` is as good as ``q`` in every cost and better in one; more parameters are better."""
    signs = {"macs": 1, "params": -1, "active_params": -1, "kv_bytes": 1}
    pairs = [(sign * p[m], sign * q[m]) for m, sign in signs.items()]
    return all(x <= y for x, y in pairs) and any(x < y for x, y in pairs)


def assert_front(host, ranges, points, budgets):
    """Assert that a search over ``ranges`` finds the Pareto front of ``points``, their sizes and hand-computed costs.

    ``budgets`` gives for each metric the share of the points whose cost is within the limit.
    """
    limits = {}
    for metric, share in budgets.items():
        values = sorted(costs[metric] for costs in points.values()) or [0]
        limits[metric] = Bound(0, values[int(share * (len(values) - 1))])
    fitting = {p: c for p, c in points.items() if all(c[m] <= b.high for m, b in limits.items())}
    expected = {p for p, c in fitting.items() if not any(dominates(other, c) for other in fitting.values())}
    args = parser().parse_args(["--min-distance", "0", "--limit", "0", "--records", "none"])
    if not fitting:
        with pytest.raises(UsageError, match="no point|no candidate"):
            search(args, host, ranges, limits)
        return
    answer = search(args, host, ranges, limits)
    found = [tuple(point) for point in answer.found[list(ranges)][answer.listed].tolist()]
    assert len(found) == len(set(found)) and set(found) == expected
    for point, i in zip(found, answer.listed, strict=True):
        assert {metric: answer.found[metric][i] for metric in METRICS} == points[point]
    args.min_distance = 0.05
    apart = search(args, host, ranges, limits)
    listed = apart.found[list(ranges)][apart.listed].tolist()
    assert set(listed) <= expected and listed[0] == found[0]


SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=4, unique=True).map(sorted)


@settings(deadline=None, max_examples=60)
@given(
    K=SIZES, E=SIZES, D=SIZES, T=st.integers(1, 7),
    budgets=st.dictionaries(st.sampled_from(METRICS), st.floats(0, 1), min_size=1),
)  # fmt: skip
def test_front_matches_brute_force(K, E, D, T, budgets):
    points = {(k, e, d): moa_costs(k, e, d, T, 2) for k, e, d in product(K, E, D) if k <= e}
    host = HostModel(
        FAMILIES["moa"],
        "moa-8K8E128D",
        {"num_encoder_layers": 2, "num_decoder_layers": 2},
        {"batch_size": 1, "src_len": T, "tgt_len": T},
    )
    assert_front(host, {"K": K, "E": E, "D": D}, points, budgets)


POINTS = st.lists(st.tuples(*[st.integers(0, 12)] * 3), min_size=1, max_size=15)


@settings(deadline=None)
@given(POINTS, st.sampled_from([0, 0.25, 0.5]), st.data())
def test_front_is_sorted_and_distant(points, distance, data):
    """Points with a time are listed first, then the others by cost. Only two points with a time compare times.

    All points compete, and members alone are listed.
    """
    times = data.draw(st.lists(st.sampled_from([None, 1, 2, 3]), min_size=len(points), max_size=len(points)))
    members = data.draw(st.lists(st.booleans(), min_size=len(points), max_size=len(points)))

    def beats(a, b):
        pairs = list(zip(points[a], points[b], strict=True))
        if None not in (times[a], times[b]):
            pairs.append((times[a], times[b]))
        return all(x <= y for x, y in pairs) and any(x < y for x, y in pairs)

    def near(a, b):
        return all(abs(x - y) <= distance * y for x, y in zip(points[a], points[b], strict=True))

    indices = range(len(points))
    front = [b for b in indices if members[b] and not any(beats(a, b) for a in indices)]
    expected = [i for i in front if times[i] is not None]
    listed = []
    for i in sorted(set(front) - set(expected), key=lambda i: (points[i], i)):
        if not distance or not any(near(i, j) for j in listed):
            listed.append(i)
    columns = list(np.array(points).T)
    known = np.array([np.nan if ms is None else ms for ms in times], dtype=float)
    assert list(pareto_front(columns, known, columns, distance, np.array(members))) == expected + listed


def test_fronts_take_turns():
    assert list(in_turns(map(iter, ([5, 6, 9], [], [1], [2, 8])), lambda at: at)) == [1, 2, 5, 6, 8, 9]


def test_ranges_and_directions(capsys):
    rows = rows_of(capsys, "--macs", "9G", "--range", "K=2,3", "E=3:7:2", "D=5", *ALL, "--maximise")
    assert [(row["K"], row["E"], row["D"]) for row in rows] == [(2, 3, 5)]
    rows = rows_of(capsys, "--macs", "9G", "--range", "K=2,3", "E=3:7:2", "D=5", *ALL, "--sort", "params")
    assert {(row["K"], row["E"]) for row in rows} == {(2, 3), (2, 5), (2, 7), (3, 3), (3, 5), (3, 7)}
    assert [row["params"] for row in rows] == sorted((row["params"] for row in rows), reverse=True)


def test_rows_differ_in_their_sizes(capsys):
    """Of more rows than are printed, each K has its best one before any K has a second one."""
    given = ["--macs", "9G", "--min-distance", "0", "--range", "E=7:9", "D=5:7"]
    sizes = [*given, "K=1:6"]
    best = [rows_of(capsys, *given, f"K={k}", "--limit", "1")[0] for k in range(1, 7)]
    by_best = sorted(best, key=lambda row: -row["active_params"])
    for limit in (4, 6, 8):
        rows = rows_of(capsys, *sizes, "--limit", str(limit))
        found = [row["target"] for row in rows]
        assert {row["target"] for row in by_best[:limit]} <= {*found} and len(found) == limit
        assert [row["active_params"] for row in rows] == sorted((r["active_params"] for r in rows), reverse=True)
        assert max(sum(row["K"] == k for row in rows) for k in range(1, 7)) == (1 if limit <= 6 else 2)
    # --sort is the order of one cost over all rows
    every = rows_of(capsys, *sizes, "--limit", "0", "--sort", "macs")
    assert [row["macs"] for row in every] == sorted(row["macs"] for row in every)
    assert rows_of(capsys, *sizes, "--limit", "4", "--sort", "macs") == every[:4]
    _, out, _ = run(capsys, *sizes, "--limit", "4")
    assert "the best of each K are printed" in " ".join(out.split())
    _, out, _ = run(capsys, *sizes, "--limit", "0")
    assert "There are more" not in " ".join(out.split())


def record(name, impl, ms, **changed):
    environment = {"device": "cpu", "time": datetime(2026, 1, 1, tzinfo=UTC).isoformat()}
    shape = {"subject": "layer", "pass": "forward", "role": "subject", "status": "timed", "smoke": False, "seq_len": 10}
    shape |= {"dtype": "float32", "routing": "balanced", "layer": name, "batch_size": 1, "tokens": 10, "macs": 7}
    row = {**shape, "kind": "latency", "cell": f"{name} cell", "name": name, "implementation": impl}
    return {**row, "gpu_ms": None, "wall_ms": [ms, 100 * ms, ms], "environment": environment, **changed}


def test_recorded_layer_has_its_time(capsys, tmp_path, monkeypatch):
    def store(name, *rows):
        append(tmp_path / name / slug(device_name("cpu")) / "one.jsonl", *rows)
        return tmp_path / name

    shipped = store("shipped", record("moa-8K32E128D", "grouped", 3.5), record("moa-8K32E128D", "loop", 7.5))
    store("shipped", record("moa-8K8E128D", "loop", 1.5, smoke=True), record("moa-8K16E256D", "loop", 1.5, seq_len=11))
    own = store("own", record("moa-8K32E128D", "grouped", 2.5), record("mha-base", "fused", 1.5))
    monkeypatch.setattr(records, "folders", lambda: (shipped,))
    argv = ["--macs", "635M", "--range", "D=128", *ALL]
    # cross-attention of another length has no recorded time
    other_length = ["--src-len", "10", "--tgt-len", "11"]
    for more, expected in (([], 3.5), (["--records", str(own)], 2.5), (other_length, None)):
        times = {(r["K"], r["E"], r["D"]): r["ms"] for r in rows_of(capsys, *argv, *more) if r["ms"]}
        assert times == ({(8, 32, 128): expected} if expected else {})


def test_time_matches_router_and_form(capsys, tmp_path):
    found = record("moh-32x64-75", "ragged", 2.5), record("moh-32x64-75", "fused", 3.5, role="dense")
    append(tmp_path / slug(device_name("cpu")) / "one.jsonl", *found, record("moh-32x64-75", "fused", 1.5, role="mha"))
    argv = ["moh-llm-s-75", "--d-model", "2048", "--seq-len", "10", "--macs", "90G"]
    argv += ["--range", "h=32", "s=16", "r=8", "g=32", "d_h=64", "--records", str(tmp_path), "--set"]
    for changed, ms in (("form=ideal", 2.5), ("form=released", 3.5), ("router=query_norm", None)):
        (row,) = rows_of(capsys, *argv, changed)
        assert row["ms"] == ms


GRAPH, EAGER = {"timed_by": "graph"}, {"timed_by": "events", "no_graph_because": "it waits"}
KINDS = {  # (how timed, GPU ms, wall ms) of each implementation of two layers, and the expected times
    # events around an eager call include launches, so they are not compared with a graph replay
    "a replay and an eager call": ([(GRAPH, 5.0, 9.0), (EAGER, 4.0, 8.5)], [(GRAPH, 3.0, 7.0)], (5.0, 3.0)),
    "a layer without a replay": ([(GRAPH, 5.0, 9.0), (EAGER, 4.0, 8.5)], [(EAGER, 3.0, 7.0)], (8.5, 7.0)),
    "records of earlier versions": ([({}, 5.0, 9.0), (EAGER, 4.0, 8.5)], [({}, None, 7.0)], (8.5, 7.0)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_times_compare_one_kind_of_timing(kind, tmp_path):
    first, second, expected = KINDS[kind]
    path = tmp_path / slug("a device") / "one.jsonl"
    for name, impls in (("moa-8K32E128D", first), ("moa-8K8E128D", second)):
        for i, (how, gpu_ms, wall_ms) in enumerate(impls):
            append(path, record(name, f"impl{i}", wall_ms, gpu_ms=gpu_ms and [gpu_ms], **how))
    found = layer_times([tmp_path], "a device", layer("moa-8K32E128D"), 10, ("K", "E", "D"))
    assert found == {(8, 32, 128): expected[0], (8, 8, 128): expected[1]}


@pytest.mark.parametrize("sizes, kept", [([100, 105], [0]), ([100, 106], [0, 1]), ([0, 0], [0])])
def test_rows_are_further_apart_than_the_distance(sizes, kept):
    less, more = np.array(sizes), np.array([1000, 999])
    unknown = np.full(2, np.nan)
    assert list(pareto_front([less, more], unknown, [less, more], 0.05)) == (kept if sizes[0] else [1])
