"""CSV loads as numbers, JSON fits its schema, LaTeX fits its page; each file holds what its name says."""

import io
import json
import re
import shutil
import subprocess
from importlib.resources import files

import pandas
import pytest

from headcount.bench.budget.__main__ import main as budget
from headcount.bench.errors import UsageError
from headcount.bench.macs.__main__ import main as macs
from headcount.bench.output.files import made
from headcount.bench.output.latex import escaped
from headcount.bench.render import emit, fits
from headcount.bench.table import Column, Row, Section, Table
from tests.bench.output.printed import COMMANDS, MODULE, sections

SCHEMA = json.loads(files("headcount.bench.output").joinpath("schema.json").read_text("utf-8"))
CLOSED = ["--counter", "closed-form"]


def printed(form, section):
    stream = io.StringIO()
    emit([section], form, stream)
    return stream.getvalue()


def numeric(column):
    return column.kind in ("int", "fixed")


def test_a_folder_is_made_with_those_above_it(tmp_path):
    assert made(tmp_path / "a" / "b").is_dir() and made(tmp_path / "a" / "b").is_dir()


@pytest.mark.parametrize("command", COMMANDS)
def test_pandas_reads_every_csv_as_numbers(command):
    for section in sections(command)[0]:
        text = printed("csv", section)
        frame = pandas.read_csv(io.StringIO(text))
        rows = [row for row in section.rows if not row.total]
        assert len(frame) == len(rows)
        for column in section.table.columns:
            if column.kind == "interval":
                assert all(pandas.api.types.is_numeric_dtype(frame[f"{column.key}.{name}"]) for name in ("low", "high"))
            elif numeric(column) and any(row.values[column.key] is not None for row in rows):
                exact = pandas.read_csv(io.StringIO(text), dtype=str, keep_default_na=False)[column.key]
                cells = [row.values[column.key] for row in rows]
                wide = any(isinstance(cell, int) and cell >= 2**64 for cell in cells)
                assert wide or pandas.api.types.is_numeric_dtype(frame[column.key]), (section.table.name, column.key)
                assert not any("/" in cell or "," in cell for cell in exact)
                if column.kind == "int":
                    assert list(exact) == ["" if cell is None or isinstance(cell, str) else str(cell) for cell in cells]


def test_decimals_have_all_their_digits():
    section = sections("macs --preset moa-8K8E128D --seq-len 512")[0][1]
    frame = pandas.read_csv(io.StringIO(printed("csv", section)))
    shares = [row.values["share"] for row in section.rows if not row.total]
    assert [float(share) for share in shares if share is not None] == list(frame["share"].dropna())


@pytest.mark.parametrize(
    "form, path, names, room",
    [("csv", None, "ab", False), ("csv", "tables.csv", "ab", False), ("csv", "tables/", "ab", True),
     ("csv", "", "a", True), ("csv", "tables.csv", "a", True), ("md", None, "ab", True)],
)  # fmt: skip
def test_two_tables_as_csv_fit_only_into_a_folder(form, path, names, room):
    found = [Section(Table(name, name, [Column("x", "x")]), []) for name in names]
    if room:
        assert fits(found, form, path) is None
        return
    with pytest.raises(UsageError, match="^a CSV file holds one table, not a, b; --out DIR/ writes a file for each$"):
        fits(found, form, path)


def test_json_without_a_result_has_no_word_of_it():
    assert json.loads(printed("json", sections(COMMANDS[0])[0][0])).keys() == {"schema_version", "tables"}


@pytest.mark.parametrize("command", COMMANDS)
def test_json_fits_the_published_schema(command):
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed (headcount[test] brings it)")
    stream = io.StringIO()
    found, result = sections(command)
    emit(found, "json", stream, result=lambda printed: result)
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(stream.getvalue()))


def test_the_schema_refuses_what_is_no_integer_and_what_is_no_ledger():
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed (headcount[test] brings it)")
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    valid = jsonschema.Draft202012Validator(SCHEMA).is_valid

    def of(**row):
        table = {"name": "t", "title": "T", "below": [], "rows": [row]}
        return {"schema_version": 1, "tables": [table]}

    assert valid(of(macs=10**30, released_macs=None, kv_bytes=7))
    for wrong in ({"macs": 1.5}, {"released_macs": "7"}, {"kv_bytes": [7]}, {"ledger": [{"path": ""}]}, {"point": 7}):
        assert not valid(of(**wrong)), wrong
    assert not valid({**of(), "schema_version": 2}) and not valid({**of(), "more": 1})


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_ends_with_its_result(command):
    _, result = sections(command)
    assert result.endswith(".") and "\n" not in result


RESULTS = {
    "macs --counter closed-form --params": "24 printed MACs: 15 reproduced, 4 explained, 5 no rule.",
    "macs --table moa-table3 moa-table2": (
        "13 printed MACs: 8 reproduced, 5 no rule; counts that differ from their counter's rules: 0 of 52."
    ),
    "macs --grid 'K=1,2,4,8 E=8,16,32 D=64,128 T=10,128,512' --counter closed-form": "72 points, 0 left out.",
}


@pytest.mark.parametrize("command", [name for name in RESULTS if "moa-table2" not in name])
def test_results_are_counted(command):
    assert sections(command)[1] == RESULTS[command]


def test_a_count_that_is_not_as_its_rules_say_is_in_the_result(capsys, monkeypatch):
    from headcount.bench.counters import base

    monkeypatch.setattr(base, "predict", lambda tool, ledger, device: 7)
    assert macs(["--preset", "mlm-transformer", "--seq-len", "5", "--counter", "torch"]) == 0
    assert capsys.readouterr().out.endswith("parameters; counts that differ from their counter's rules: 1 of 1.\n")


PDFLATEX = shutil.which("pdflatex")


@pytest.mark.skipif(PDFLATEX is None, reason="pdflatex is not installed (texlive-latex-recommended brings it)")
def test_latex_compiles_within_the_width_of_its_page(tmp_path):
    tables = [printed("latex", section) for command in COMMANDS for section in sections(command)[0] if section.rows]
    assert len(tables) >= 40
    parts = [f"{table}\n\\typeout{{TABLE {i}}}\\clearpage" for i, table in enumerate(tables)]
    preamble = "\\documentclass{article}\n\\usepackage{array,booktabs,graphicx,longtable}\n\\begin{document}\n"
    (tmp_path / "tables.tex").write_text(preamble + "\n".join(parts) + "\n\\end{document}\n", "utf-8")
    command = [PDFLATEX, "-interaction=nonstopmode", "-halt-on-error", "tables.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=300)
    log = (tmp_path / "tables.log").read_text("latin-1")
    assert done.returncode == 0, re.findall(r"^!.*(?:\n.*){4}", log, re.MULTILINE)
    assert re.findall(r"Overfull \\hbox.*|Float too large.*|Missing character.*", log) == []


def test_what_tex_would_change_is_printed_as_it_is():
    assert escaped("K <= E, --any, a<b>c, 50% of d_m") == (
        r"K $\le$ E, -{}-any, a\textless{}b\textgreater{}c, 50\% of d\_m"
    )


def test_out_chooses_the_format_by_its_ending(capsys, tmp_path):
    for ending, begins in {"json": "{", "csv": "row,", "md": "## ", "tex": "% ", "txt": "moa-table2: "}.items():
        path = tmp_path / f"t.{ending}"
        assert macs(["--table", "moa-table2", *CLOSED, "--out", str(path)]) == 0
        out, err = capsys.readouterr()
        assert path.read_text("utf-8").startswith(begins) and out == ""
        assert err.splitlines()[-1] == "6 printed MACs: 1 reproduced, 5 no rule."


def test_an_ending_that_contradicts_the_format_is_an_error(capsys, tmp_path):
    assert macs(["--table", "moa-table2", *CLOSED, "--format", "csv", "--out", str(tmp_path / "t.json")]) == 2
    assert "ends as json does, and --format says csv" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    assert macs(["--table", "moa-table2", *CLOSED, "--format", "csv", "--out", str(tmp_path / "t.dat")]) == 0


def test_more_tables_than_one_are_no_csv_file_but_a_folder_of_them(capsys, tmp_path):
    argv = ["--preset", "moa-8K8E128D", *CLOSED, "--format", "csv"]
    assert macs(argv) == 2
    out, err = capsys.readouterr()
    assert out == "" and "one table, not moa-8K8E128D, moa-8K8E128D-kinds; --out DIR/ writes a file for each" in err
    assert macs([*argv, "--out", f"{tmp_path}/new/"]) == 0 and macs([*argv, "--out", str(tmp_path / "new")]) == 0
    names = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert names == ["moa-8K8E128D-kinds.csv", "moa-8K8E128D.csv"]
    kinds = pandas.read_csv(tmp_path / "new" / names[0])
    whole = pandas.read_csv(tmp_path / "new" / names[1])
    assert kinds["macs"].sum() == whole["macs"].sum() == 632_258_560
    assert capsys.readouterr().out == ""


def test_a_folder_of_json_has_a_table_in_each(capsys, tmp_path):
    assert macs(["--preset", "moa-8K8E128D", *CLOSED, "--format", "json", "--out", f"{tmp_path}/"]) == 0
    for path in tmp_path.iterdir():
        (table,) = json.loads(path.read_text())["tables"]
        assert path.name == f"{table['name']}.json"


def test_a_brief_answer_leaves_the_ledger_out_and_fails_all_the_same(capsys, monkeypatch):
    argv = ["--preset", "moa-8K8E128D", *CLOSED, "--brief"]
    assert macs(argv) == 0
    out = capsys.readouterr().out
    assert "ledger" not in out and out.startswith("moa-8K8E128D: by kind")
    assert out.endswith("moa-8K8E128D: 632,258,560 MACs, 62,918,656 parameters.\n")
    from headcount.bench.counters import base

    monkeypatch.setattr(base, "predict", lambda tool, ledger, device: 7)
    assert macs(["--preset", "mlm-transformer", "--seq-len", "5", "--counter", "torch", "--brief", "--check"]) == 1


def test_units_and_flops_are_for_readers(capsys):
    argv = ["--preset", "moa-8K8E128D", *CLOSED, "--brief", "--flops", "--unit", "G"]
    assert macs(argv) == 0
    out = capsys.readouterr().out
    assert "FLOPs" in out and "1.26" in out and out.endswith(": 1,264,517,120 FLOPs, 62,918,656 parameters.\n")
    assert macs([*argv, "--format", "csv"]) == 0
    assert pandas.read_csv(io.StringIO(capsys.readouterr().out))["macs"].sum() == 632_258_560


def test_a_module_is_told_in_a_sentence(warm, capsys, tmp_path):
    (tmp_path / "model.py").write_text(MODULE)
    assert macs(["--module", f"{tmp_path}/model.py:make", *CLOSED, "--brief"]) == 0
    (line,) = capsys.readouterr().out.splitlines()[-1:]
    assert re.fullmatch(r"[\d,]+ MACs \(dispatched contractions\), 1,403 parameters\.", line)


def test_a_row_that_fails_in_a_list_is_in_no_file_twice(tmp_path):
    rows = [Row({"n": 3}), Row({"n": 5}), Row({"n": 8}, total=True)]
    table = Table("t", "T", [Column("n", "n", kind="int")])
    assert printed("csv", Section(table, rows)) == "n\n3\n5\n"
    assert r"\midrule 8 \\" in printed("latex", Section(table, rows))


@pytest.mark.parametrize("main", [macs, budget])
def test_every_command_says_its_version(main, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0 and re.fullmatch(r"headcount \d+\.\d+\.\d+\n", capsys.readouterr().out)
