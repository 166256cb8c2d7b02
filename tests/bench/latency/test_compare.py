"""Two runs joined row by row."""

from dataclasses import MISSING, fields

import pytest

from headcount.bench import records
from headcount.bench.errors import UsageError
from headcount.bench.latency.__main__ import main
from headcount.bench.latency.compare import compare, parser, plan
from tests.bench.output.reading import columns, kept

OPTIONAL = [field.name for field in fields(records.LatencyRecord) if field.default is MISSING]


def record(impl="moa", wall=(2.0, 2.0, 2.0), device="cpu A", case="layer moa T7", **facts):
    whole = {"subject": "layer", "name": "moa", "dtype": "float32", "routing": "balanced", "pass": "forward"}
    whole |= {"role": "subject", "status": "timed", "macs": 7, "smoke": False}
    whole = dict.fromkeys(OPTIONAL) | whole
    return {
        **whole,
        "kind": "latency",
        "cell": case,
        "layer": impl,
        "implementation": "grouped",
        "wall_ms": list(wall),
        "gpu_ms": None,
        "noise": {"value": 1.0, "low": 0.99, "high": 1.01},
        "environment": {"device": device, "time": "2026"},
        **facts,
    }


def test_each_row_is_faster_slower_or_without_evidence():
    a = [record("x"), record("y"), record("z")]
    b = [record("x", (1.0, 1.0, 1.0)), record("y", (3.0, 3.0, 3.0)), record("z", (1.0, 2.0, 9.0))]
    rows, only_a, only_b = compare(a, b)
    assert [(r.row, r.verdict) for r in rows] == [
        ("x grouped", "faster"),
        ("y grouped", "slower"),
        ("z grouped", "no evidence"),
    ]
    assert (only_a, only_b) == (0, 0)
    assert (rows[0].a_ms, rows[0].b_ms, rows[0].ratio.value) == (2.0, 1.0, 0.5)


def test_gpu_time_goes_before_wall_time():
    rows, _, _ = compare([record(gpu_ms=[4.0])], [record(gpu_ms=[1.0])])
    assert rows[0].ratio.value == 0.25


def test_rows_that_only_one_file_has_are_counted():
    rows, only_a, only_b = compare([record("x"), record("y")], [record("y"), record("z"), record("w")])
    assert (len(rows), only_a, only_b) == (1, 1, 2)


def test_a_difference_within_the_noise_of_either_run_is_no_evidence():
    noisy = {"value": 1.0, "low": 0.4, "high": 1.3}
    rows, _, _ = compare([record(noise=noisy)], [record(wall=(1.0, 1.0, 1.0))])
    assert rows[0].verdict == "no evidence"


@pytest.mark.parametrize(
    "wide, verdicts", [("noise", ["no evidence", "faster"]), ("noise_wall", ["faster", "no evidence"])]
)
def test_noise_is_that_of_the_samples_that_are_compared(wide, verdicts):
    """Half of the time, by graphs and by the wall, where one of the two is as unsteady as that."""
    noises = dict.fromkeys(("noise", "noise_wall"), {"value": 1.0, "low": 0.99, "high": 1.01})
    noises[wide] = {"value": 1.0, "low": 0.4, "high": 1.3}
    of_graphs = compare([record(gpu_ms=[2.0], **noises)], [record(gpu_ms=[1.0])])
    of_walls = compare([record(**noises)], [record(wall=(1.0, 1.0, 1.0))])
    assert [found[0].verdict for found, _, _ in (of_graphs, of_walls)] == verdicts


def test_a_run_without_noise_is_judged_by_the_other_and_two_by_what_is_least():
    none = {"noise": None}
    noisy = {"noise": {"value": 1.0, "low": 0.4, "high": 1.3}}
    for a, b, verdict in ((none, none, "faster"), (none, noisy, "no evidence"), (noisy, none, "no evidence")):
        rows, _, _ = compare([record(**a)], [record(wall=(1.0, 1.0, 1.0), **b)])
        assert rows[0].verdict == verdict


def test_different_devices_are_refused_unless_forced():
    a, b = [record(device="cpu A")], [record(device="gpu B")]
    with pytest.raises(UsageError, match="^A was measured on cpu A, B on gpu B; --force compares them$"):
        compare(a, b)
    assert len(compare(a, b, force=True)[0]) == 1
    with pytest.raises(UsageError, match="^A was measured on cpu A, B on cpu A, gpu B; --force compares them$"):
        compare(a, a + b)


def test_the_command_compares_different_devices_where_it_is_told_to(tmp_path, capsys):
    for name, device in (("a", "cpu A"), ("b", "gpu B")):
        records.append(tmp_path / name, record(device=device))
    argv = ["compare", str(tmp_path / "a"), str(tmp_path / "b")]
    assert (main(argv), main([*argv, "--force"])) == (2, 0)
    assert "A was measured on cpu A, B on gpu B" in capsys.readouterr().err


def test_files_without_a_common_row_are_refused():
    with pytest.raises(UsageError, match="^the two files have no row in common$"):
        compare([record("x")], [record("y")])


def test_the_command_prints_a_verdict_and_names_corrupt_lines(tmp_path, capsys):
    for name, wall in (("a", (2.0, 2.0)), ("b", (1.0, 1.0))):
        records.append(tmp_path / name, record(wall=wall))
    with (tmp_path / "b").open("a") as file:
        file.write("{\n")
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    out, err = capsys.readouterr()
    assert "faster" in out and "0.50 [0.50, 0.50]" in out
    assert f"{tmp_path / 'b'}:2: not JSON" in err


def test_a_row_has_both_times_in_ms_and_the_last_line_counts_the_verdicts(tmp_path):
    a = [record("x"), record("y"), record("z", (5.0, 5.0, 5.0)), record("w")]
    b = [record("x", (1.0, 1.0, 1.0)), record("y", (3.0, 3.0, 3.0)), record("z", (1.25, 1.25, 1.25))]
    for name, rows in (("a", a), ("b", b)):
        records.append(tmp_path / name, *rows)
    work = plan(parser().parse_args([str(tmp_path / "a"), str(tmp_path / "b")]))
    (section,) = work.sections
    assert section.table.name == "compare"
    assert columns(section) == {
        "case": ["layer moa T7"] * 3,
        "layer and implementation": ["x grouped", "y grouped", "z grouped"],
        "A ms": ["2.000", "2.000", "5.000"],
        "B ms": ["1.000", "3.000", "1.250"],
        "B / A": ["0.50 [0.50, 0.50]", "1.50 [1.50, 1.50]", "0.25 [0.25, 0.25]"],
        "B is": ["faster", "slower", "faster"],
    }
    assert section.below == ["only in A: 1 rows; only in B: 0 rows."]
    assert section.table.title == f"{tmp_path / 'b'} against {tmp_path / 'a'}"
    drift = "Medians of separate runs: drift between them is not seen, which one run excludes."
    assert section.table.notes_above == [drift]
    assert work.result([section]) == "B against A, 3 rows: 2 faster, 1 slower."
    assert kept(section, 10) == ["case", "layer and implementation", "B / A", "B is"]
    assert [column.key for column in section.table.columns if column.code] == ["cell", "row"]
    assert section.rows[0].records[0]["ratio"] == {"value": 0.5, "low": 0.5, "high": 0.5}


def test_rows_that_were_not_timed_and_records_of_another_kind_are_no_rows(tmp_path):
    others = [record("failed", wall_ms=None, status="failed"), {"kind": "routing", "environment": {}, "wall_ms": [7.0]}]
    records.append(tmp_path / "a", *others, record("x"))
    records.append(tmp_path / "b", record("x"), *others)
    (section,) = plan(parser().parse_args([str(tmp_path / "a"), str(tmp_path / "b")])).sections
    assert [row.values["row"] for row in section.rows] == ["x grouped"]
    assert section.below == ["only in A: 0 rows; only in B: 0 rows."]


def test_a_file_without_times_says_so_and_what_is_wrong_with_it(tmp_path, capsys):
    held, empty, broken = (tmp_path / name for name in ("held", "empty", "broken"))
    records.append(held, record())
    empty.write_text("")
    broken.write_text("{\n")
    for path, more in ((empty, "\n"), (broken, f": {broken}:1: not JSON")):
        assert main(["compare", str(held), str(path)]) == 2
        assert f"error: {path} holds no timed rows{more}" in capsys.readouterr().err


@pytest.mark.parametrize("argv, message", [(["a"], "required: B"), (["x", "y"], "cannot read x")])
def test_wrong_usage(argv, message, capsys):
    code = main(["compare", *argv])
    err = capsys.readouterr().err
    assert code == 2 and message in err and err.count("\n") == 1
