"""Stored latencies in the report, and the verdict on the authors' wall-clock sentence."""

from dataclasses import replace

import pytest

from headcount.bench import records
from headcount.reports import latency
from headcount.reports.blocks import time
from headcount.reports.facts import Facts
from tests.reports.pipe_tables import rows_of

STORED = next(r for r in Facts().latencies() if r.layer == "moa-8K8E128D" and r.which == "forward")
RATIOS = ("to_mha", "to_mha_verdict", "overhead", "to_dense", "to_dense_verdict")


def record(role="subject", implementation="grouped", wall=(1.0, 1.0), layer="moa-8K8E128D", kind="cpu", **facts):
    """Return a stored record of the CPU with other times and no ratios."""
    gpu = {"driver": "1", "cuda": "2"} if kind == "cuda" else None
    own = {
        "cell": "layer moa-8K8E128D T7 forward",
        "layer": layer,
        "role": role,
        "implementation": implementation,
        "implementation_used": implementation,
        "seq_len": 7,
        "batch_size": 2,
        "wall_ms": list(wall),
        "environment": STORED.environment | {"device_type": kind, "gpu": gpu},
    }
    return replace(STORED, **dict.fromkeys(RATIOS) | own | facts)


CELL = [
    record(wall=(1.0, 1.0)),
    record(implementation="dense-all", wall=(2.0, 2.0)),
    record(implementation="loop", wall=(4.0, 4.0)),
    record(role="mha", implementation="fused", wall=(0.8, 0.8), layer="mha-8x64"),
]


@pytest.fixture
def store_facts(tmp_path):
    """Return a function that stores records and returns the facts of these alone."""

    def store(*found):
        for one in found:
            records.append(tmp_path / "device" / "r.jsonl", one)
        return Facts(stored=tmp_path)

    return store


@pytest.mark.parametrize("run", ["", " compiled+triton"], ids=["one-run", "two-runs"])
def test_row_is_of_the_fastest_implementation(run, store_facts):
    ratio = {"overhead": dict(value=1.25, low=1.17, high=1.375), "overhead_verdict": "slower"}
    slower = record(cell=f"{CELL[0].cell}{run}", implementation="loop", wall=(4.0, 4.0), **ratio)
    facts = store_facts(record(**ratio), slower, CELL[3])
    (row,) = rows_of(time.times(facts), "over dense")
    assert (row["implementation"], row["over dense"]) == ("grouped", "1.25 [1.17, 1.38] slower")


def test_newest_record_of_a_row_is_shown(store_facts):
    later = {**record().environment, "time": "2027-02-02T03:04:05+00:00"}
    facts = store_facts(record(wall=(7.0, 7.0), environment=later), record(wall=(1.0, 1.0)))
    assert [r.wall_ms for r in latency.newest_records(facts)] == [[7.0, 7.0]]


@pytest.mark.parametrize(
    "loop, half", [((4.0, 4.0), "holds"), ((1.5, 1.5), "fails"), ((1.0, 8.0), "undecided")], ids=str
)
def test_verdict_on_half_the_time(loop, half, store_facts):
    facts = store_facts(CELL[0], record(implementation="loop", wall=loop), CELL[3])
    assert f"at most half the time of loop: 1 {half}" in time.sentence(facts)


@pytest.mark.parametrize(
    "ratios, expected",
    [
        ({50: 0.8, 100: 1.2}, "75%"),
        ({50: 1.1, 100: 1.2}, "never"),
        ({50: 0.8, 100: 0.9}, "always"),
        ({50: 0.8}, None),
        ({50: 0.8, 75: 1.0, 100: 1.2}, "75%"),
    ],
)
def test_crossing(ratios, expected):
    assert latency.crossing(ratios) == expected


def test_sentence_uses_graphs_where_both_have_one(store_facts):
    """A loop that waits for the device has no graph, so that both times must be wall times."""
    facts = {"environment": record(kind="cuda").environment, "no_graph_because": None}
    fast = record(wall=(2.0, 2.0), gpu_ms=[0.2, 0.2], **facts)
    loop = record(implementation="loop", wall=(5.0, 5.0), gpu_ms=[4.0, 4.0], **facts | {"no_graph_because": "it waits"})
    dense = record(layer="mha-8x64", role="mha", implementation="fused", wall=(2.5, 2.5), gpu_ms=[0.1, 0.1], **facts)
    text = time.sentence(store_facts(fast, loop, dense))
    assert "0.40 [0.40, 0.40] holds" in text and "2.00 [2.00, 2.00] fails" in text


@pytest.mark.parametrize("order", [1, -1])
def test_sentence_compares_with_fastest_dense_implementation(order, store_facts):
    dense = [record(role="mha", implementation=impl, wall=(ms, ms)) for impl, ms in (("fused", 0.8), ("packed", 0.5))]
    assert "2.00 [2.00, 2.00] fails" in time.sentence(store_facts(CELL[0], CELL[2], *dense[::order]))


def of_run(when, **facts):
    return record(environment=record().environment | {"time": when}, **facts)


def test_sentence_compares_within_the_run_of_the_loop(store_facts):
    """A later run without the loop is faster; its times are of other minutes than the loop's."""
    loop = of_run("2026-01-01", implementation="loop", wall=(4.0, 4.0))
    facts = store_facts(of_run("2026-01-01", wall=(3.0, 3.0)), loop, of_run("2026-02-02", wall=(1.0, 1.0)))
    assert "at most half the time of loop: 1 fails" in time.sentence(facts)
    assert [r.wall_ms for r in latency.newest_records(facts) if r.implementation == "grouped"] == [[1.0, 1.0]]


RATIO = dict(value=1.25, low=1.17, high=1.375)


@pytest.mark.parametrize(
    "facts, cell",
    [
        ({"overhead": RATIO, "overhead_verdict": "slower"}, "1.25 [1.17, 1.38] slower"),
        (
            {"overhead": RATIO, "overhead_verdict": "no difference measured"},
            "1.25 [1.17, 1.38] no difference measured",
        ),
        ({}, "not measured"),
    ],
    ids=str,
)
def test_overview_states_verdict_in_words(facts, cell, store_facts):
    dense = record(role="mqa", implementation="fused", wall=(0.8, 0.8), layer="mqa-8x128")
    (row,) = rows_of(time.overview(store_facts(record(**facts), dense)), "over dense")
    assert row["over dense"] == cell
    shown = "mqa-8x128, 0.8000" if facts else "mqa-8x128"
    assert (row["ms"], row["dense, ms"], row["time by kernel"]) == ("1.0000", shown, "not measured")


def test_overview_compares_no_dense_layer(store_facts):
    (row,) = rows_of(time.overview(store_facts(record(layer="mha-base", name="mha-base"))), "over dense")
    assert (row["ms"], row["dense, ms"], row["over dense"]) == ("1.0000", "–", "–")


def test_overview_has_models_first_and_layers_once(store_facts):
    model = record(subject="model", name="moa-8K8E128D", cell="model", to_dense=RATIO, to_dense_verdict="slower")
    dense = record(subject="model", name="moa-8K8E128D", cell="model", role="dense", layer="transformer-base")
    slower = replace(dense, wall_ms=[2 * ms for ms in dense.wall_ms])
    layers = [record(seq_len=length, cell=f"T{length}") for length in (128, 1024, 8192)]
    text = time.overview(store_facts(*layers, model, slower, dense))
    assert text.index("transformer-base") < text.index("mqa-8x128")
    (of_model,), (of_layer,) = rows_of(text, "model"), rows_of(text, "layer")
    assert (of_model["T x B"].split()[0], of_model["dense, ms"]) == ("7", "transformer-base, 1.0000")
    assert (of_layer["T x B"].split()[0], of_layer["dense, ms"]) == ("1,024", "mqa-8x128")


def test_overview_has_models_and_layers_without_a_record(store_facts):
    measured = [
        record(kind="cuda", subject="model", name=name, layer=name, cell=f"{name} {which}", which=which, gpu_ms=[1.0])
        for name, which in (("moh-vit-s-80", "forward"), ("moh-vit-b-75", "forward"), ("moh-vit-b-75", "both"))
    ]
    text = time.overview(store_facts(*measured))
    first, _, _, *models = rows_of(text, "model")
    layers = rows_of(text, "layer")
    assert (first["model"], first["ms"]) == ("moh-vit-s-80", "1.0000")
    passes = {row["model"]: row["pass"] for row in models}
    assert "moh-vit-b-75" not in passes
    assert passes["moh-vit-s-80"] == "both" and passes["moa-8K8E128D"] == "forward, both"
    assert {(row["ms"], row["time by kernel"]) for row in models + layers} == {("not measured", "not measured")}
    by_layer = {row["layer"]: row for row in layers}
    assert sorted(by_layer["moa-8K8E128D"]["pass"].split(", ")) == ["both", "decode", "forward"]
    compared = {name: (row["dense, ms"], row["over dense"]) for name, row in by_layer.items()}
    assert compared["moh-32x64-50"] == ("all heads", "not measured")
    assert compared["mha-base"] == ("–", "–")


def test_time_of_kernels_is_summed_by_kind():
    names = ["void at::native::(anonymous namespace)::mul_kernel<float>(int)", "aten::mm", "mqa_kernel"]
    names += ["cudnn_generated_fort_native_sdpa_sm90", "void cutlass::Kernel2<cutlass_75_tensorop_gemm_align1>", "a"]
    kernels = [{"name": name, "calls": 1, "us": us} for name, us in zip(names, (20, 30, 15, 10, 20, 5), strict=True)]
    assert time.describe_kernels(kernels) == "products 50 %, `mqa` 15 %, attention 10 %, others 25 %"
    small = [{"name": "route_kernel", "calls": 1, "us": 4}, *kernels]
    assert time.describe_kernels(small) == "products 48 %, `mqa` 14 %, attention 10 %, others 28 %"
    assert time.describe_kernels(kernels[:1]) == "others 100 %"
    assert time.describe_kernels(None) == time.describe_kernels([]) == "not measured"
