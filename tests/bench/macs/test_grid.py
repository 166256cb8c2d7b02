"""bench.macs --grid: one layer at every combination of sizes, the printed equation beside the exact count."""

import json

import pytest

from headcount.bench.case import Case
from headcount.bench.errors import UsageError
from headcount.bench.macs.__main__ import main
from headcount.bench.macs.grid import parse, section

CLOSED = ["--counter", "closed-form"]


def run(capsys, *argv):
    return main(argv), *capsys.readouterr()


def json_of(capsys, *argv):
    code, out, _ = run(capsys, *argv, "--format", "json")
    assert code == 0
    return json.loads(out)


def test_a_grid_lists_points_that_cannot_be_built_as_left_out(capsys):
    code, out, _ = run(capsys, "--grid", "K=2,3 E=2,5 D=7 d_m=11 T=13", "--counter", "torch", "--check")
    assert code == 0
    assert "left out K=3 E=2 D=7 d_m=11 T=13: top_k must lie in 1..num_experts = 1..2, not 3" in out
    assert "3 points, 1 left out." in out


def test_a_grid_row_adds_up_from_the_printed_equation_to_the_exact_count(capsys):
    data = json_of(capsys, "--grid", "K=3 E=5 D=7 d_m=11 T=13,17 B=2", *CLOSED)
    for row in data["tables"][0]["rows"]:
        assert row["printed_equation_macs"] + sum(row["omitted_macs"].values()) == row["macs"]
        t = row["point"]["T"]
        assert row["eq19_macs"] == 2 * (t * t * 11 + 4 * t * 11 * 11)
        assert row["mha_same_d_model_macs"] == 2 * (2 * t * t * 11 + 4 * t * 11 * 11)
        assert row["mha_same_inner_width_macs"] == 2 * (2 * t * t * 21 + 4 * t * 11 * 21)


def test_a_grid_where_lengths_differ_has_no_printed_equation(capsys):
    for sizes, letters in (("K=3 E=5 D=7 T=13 S=17", 5), ("h=2 d_h=256 T=13 S=17", 4)):
        (row,) = json_of(capsys, "--grid", sizes, *CLOSED)["tables"][0]["rows"]
        assert row["printed_equation_macs"] is None and row["eq19_macs"] is None
        lines = run(capsys, "--grid", sizes, *CLOSED)[1].splitlines()
        cells = lines[next(i for i, line in enumerate(lines) if line and not line.strip("- ")) + 1].split()
        # the equation of the variant, and Eq. 19 two before the end; what it leaves out and the count are numbers
        assert [i for i, cell in enumerate(cells) if cell == "–"] == [letters, len(cells) - 3]
        assert f"{row['macs']:,}" in cells


def test_what_is_active_of_a_layer_that_skips_heads_is_without_their_weights():
    (row,) = section(parse("h=7 s=2 r=3 d_h=5 d_m=11 T=13"), [], None).rows
    assert row.values["params"] - row.values["active_params"] == (7 - 5) * 2 * 11 * 5


def test_a_grid_of_mha_prints_equation_19(capsys):
    rows = json_of(capsys, "--grid", "h=2,3 d_m=30 T=13", *CLOSED)["tables"][0]["rows"]
    assert [row["printed_equation_macs"] for row in rows] == [13 * 13 * 30 + 4 * 13 * 900] * 2
    assert [row["macs"] for row in rows] == [2 * 13 * 13 * 30 + 4 * 13 * 900] * 2


def test_a_grid_comes_from_a_toml_file_too(capsys, tmp_path):
    path = tmp_path / "grid.toml"
    path.write_text("K = [1, 2]\nE = 2\nD = 7\nT = [13]\n")
    from_file = json_of(capsys, "--grid", str(path), *CLOSED)
    assert from_file == json_of(capsys, "--grid", "K=1,2 E=2 D=7 T=13", *CLOSED)


@pytest.mark.parametrize(
    "text, message", [("K = 1.5", "K takes a whole number or a list of them"), ("K 1", "not TOML")]
)
def test_a_grid_file_that_cannot_be_used(text, message, capsys, tmp_path):
    path = tmp_path / "grid.toml"
    path.write_text(text)
    code, _, err = run(capsys, "--grid", str(path))
    assert code == 2 and message in err and err.count("\n") == 1


def test_a_grid_of_mha_is_with_biases_or_without(capsys):
    data = json_of(capsys, "--grid", "h=3 g=1 d_h=5 d_m=7 T=11 bias=0,1,2", *CLOSED)["tables"][0]
    without, with_biases = (row["params"] for row in data["rows"])
    assert without == 2 * 7 * 15 + 2 * 7 * 5 and with_biases == without + 15 + 5 + 5 + 7
    assert data["below"][0].endswith("bias=2: bias must be 0 or 1, not 2")
    assert data["title"] == "MultiHeadAttention: one layer"
    (table,) = json_of(capsys, "--grid", "h=3 g=1 d_h=5 d_m=7 T=11", *CLOSED)["tables"]
    assert table["title"] == "MultiHeadAttention: one layer, with biases"
    (table,) = json_of(capsys, "--grid", "h=3 s=1 r=1 d_h=5 T=7", *CLOSED)["tables"]
    assert table["title"].endswith(": one layer, without biases")


def test_a_grid_is_counted_where_it_is_told_to_be_in_both_forms(capsys):
    argv = ["--grid", "h=3 s=1 r=1 d_h=5 T=7", "--counter", "ptflops-pytorch"]
    for device in ("cpu", "meta"):
        rows = json_of(capsys, *argv, "--device", device)["tables"][0]["rows"]
        places = [(row["counter"], row.get("form"), row["device"]) for row in rows]
        assert places[1::2] == [("ptflops-pytorch", None, device), ("ptflops-pytorch", "ideal", device)]
        assert {place[::2] for place in places[::2]} == {("closed-form", None)}


@pytest.mark.parametrize("sizes", ["h=3 d_h=7 d_m=30", "h=4 g=2 d_m=32"])
def test_equation_19_is_of_as_many_heads_of_keys_that_are_as_wide_as_the_model_together(sizes, capsys):
    (row,) = json_of(capsys, "--grid", f"{sizes} T=13", *CLOSED)["tables"][0]["rows"]
    assert row["printed_equation_macs"] is None and row["macs"]


@pytest.mark.parametrize(
    "sizes, heads",
    [
        ("h=2 d_m=30", []),
        ("K=3 E=5 D=7 d_m=11", ["+ router", "params\nactive"]),
        ("h=7 s=2 r=3 d_h=5", ["of which\nrouters", "params\nactive"]),
    ],
)
def test_routers_and_what_is_active_have_columns_where_something_routes(sizes, heads):
    of_routing = {"+ router", "of which\nrouters", "params\nactive"}
    table = section(parse(f"{sizes} T=13"), [], None).table
    assert [column.head for column in table.columns if column.head in of_routing] == heads


@pytest.mark.parametrize(
    "sizes, said",
    [
        ("h=2 d_m=30 T=13", "S = T; B = 1."),
        ("h=2 d_h=5 T=13 S=17", "d_m = 512; B = 1."),
        ("h=2 d_m=30 T=13 S=17 B=3", "Every size is given."),
    ],
)
def test_a_grid_says_the_sizes_that_were_not_given(sizes, said):
    assert section(parse(sizes), [], None).table.notes_above[0] == said


def test_layers_are_asked_whether_they_run_where_they_are_counted(monkeypatch):
    def refuses(case):
        raise UsageError("it does not run")

    monkeypatch.setattr(Case, "check_runs", refuses)
    asked = parse("K=3 E=5 D=7 T=11")
    assert len(section(asked, [], None).rows) == 1
    with pytest.raises(UsageError, match="it does not run"):
        section(asked, ["torch"], None)
