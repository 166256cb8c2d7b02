"""CSV loads as numbers, JSON fits its schema, LaTeX fits its page; each file has the format of its ending."""

import io
import json
import re
import shutil
import subprocess
from importlib.resources import files

import pandas
import pytest

from headcount.__main__ import main
from headcount.bench.column import Column
from headcount.bench.render import emit
from tests.bench.made_table import made_table
from tests.bench.output.command_tables import COMMANDS, tables_of

SCHEMA = json.loads(files("headcount.bench.output").joinpath("schema.json").read_text("utf-8"))
CLOSED = ["--counter", "closed-form"]


def render(form, table):
    stream = io.StringIO()
    emit([table], form, stream)
    return stream.getvalue()


@pytest.mark.parametrize("command", COMMANDS)
def test_pandas_reads_every_csv_as_numbers(command):
    for table in tables_of(command)[0]:
        text = render("csv", table)
        frame = pandas.read_csv(io.StringIO(text))
        rows = [row for row in table.rows if not row.total]
        assert len(frame) == len(rows)
        for column in table.columns:
            if column.kind == "interval":
                assert all(pandas.api.types.is_numeric_dtype(frame[f"{column.key}.{name}"]) for name in ("low", "high"))
            elif column.kind in ("int", "fixed") and any(column.read(row) is not None for row in rows):
                exact = pandas.read_csv(io.StringIO(text), dtype=str, keep_default_na=False)[column.key]
                cells = [column.read(row) for row in rows]
                wide = any(isinstance(cell, int) and cell >= 2**64 for cell in cells)
                assert wide or pandas.api.types.is_numeric_dtype(frame[column.key]), (table.name, column.key)
                assert not any("/" in cell or "," in cell for cell in exact)
                if column.kind == "int":
                    assert list(exact) == ["" if cell is None or isinstance(cell, str) else str(cell) for cell in cells]


@pytest.mark.parametrize("command", COMMANDS)
def test_json_fits_the_published_schema(command):
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed (headcount[test] brings it)")
    stream = io.StringIO()
    found, result = tables_of(command)
    emit(found, "json", stream, sentence=lambda: result)
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(stream.getvalue()))


def test_schema_rejects_invalid_rows():
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed (headcount[test] brings it)")
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    valid = jsonschema.Draft202012Validator(SCHEMA).is_valid

    def of(**row):
        table = {"name": "t", "title": "T", "below": [], "rows": [row]}
        return {"schema_version": 2, "tables": [table]}

    assert valid(of(macs=10**30, released_macs=None, kv_bytes=7))
    for wrong in ({"macs": 1.5}, {"released_macs": "7"}, {"kv_bytes": [7]}, {"ideal": {"name": "MoH"}}, {"point": 7}):
        assert not valid(of(**wrong)), wrong
    assert not valid({**of(), "schema_version": 1}) and not valid({**of(), "more": 1})


PDFLATEX = shutil.which("pdflatex")


def tex_log(tables, folder):
    """Return the log of a document of tables, each on pages of its own."""
    parts = [f"{table}\n\\typeout{{TABLE {i}}}\\clearpage" for i, table in enumerate(tables)]
    preamble = "\\documentclass{article}\n\\usepackage{array,booktabs,graphicx,longtable}\n\\begin{document}\n"
    (folder / "tables.tex").write_text(preamble + "\n".join(parts) + "\n\\end{document}\n", "utf-8")
    command = [PDFLATEX, "-interaction=nonstopmode", "-halt-on-error", "tables.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, timeout=300)
    log = (folder / "tables.log").read_text("latin-1")
    assert done.returncode == 0, re.findall(r"^!.*(?:\n.*){4}", log, re.MULTILINE)
    return log


TOO_LARGE = r"Overfull \\hbox.*|Float too large.*|Missing character.*"


@pytest.mark.skipif(PDFLATEX is None, reason="pdflatex is not installed (texlive-latex-recommended brings it)")
def test_latex_compiles_within_the_width_of_its_page(tmp_path):
    tables = [render("latex", table) for command in COMMANDS for table in tables_of(command)[0] if table.rows]
    assert tables and re.findall(TOO_LARGE, tex_log(tables, tmp_path)) == []


@pytest.mark.skipif(PDFLATEX is None, reason="pdflatex is not installed (texlive-latex-recommended brings it)")
def test_latex_tables_fit_a_page_or_break(tmp_path):
    columns = [Column("path", "module"), Column("macs", "MACs", kind="int")]
    tables = []
    for rows in (1, 20, 30, 36, 40, 41):
        for notes in (0, 2, 8, 30):
            made = [{"path": "proj", "macs": row} for row in range(rows)]
            table = made_table(columns, made, above=notes * ["A note of some words in a sentence."])
            tables.append(render("latex", table))
    assert re.findall(TOO_LARGE, tex_log(tables, tmp_path)) == []


@pytest.mark.skipif(PDFLATEX is None, reason="pdflatex is not installed (texlive-latex-recommended brings it)")
@pytest.mark.parametrize("name", ["switchhead:h=2,E=5,K=2,d_h=64,d_m=512", "averylongwordwithoutanyplacetobreak.b.c"])
def test_latex_words_stay_in_their_column(name, tmp_path):
    columns = [Column("path", "target", wraps=10), *(Column(f"n{i}", f"number\n{i}", kind="int") for i in range(9))]
    rows = [{"path": text, **{f"n{i}": 35137127448576 for i in range(9)}} for text in (name, "a")]
    assert re.findall("Overfull", tex_log([render("latex", made_table(columns, rows))], tmp_path)) == []


@pytest.mark.parametrize("name", ["proj", 3 * "proj.of.a.layer.broken.into.lines."], ids=["whole", "broken"])
def test_latex_keeps_the_tree_of_modules(name):
    """A name of depth n is n quads to the right, on one line or broken into several."""
    columns = [Column("path", "module", wraps=20), Column("macs", "MACs", kind="int")]
    text = render("latex", made_table(columns, [{"path": "  " * depth + name, "macs": depth} for depth in range(5)]))
    _, *found = [line for line in text.splitlines() if " & " in line]
    assert [re.match(r"(\\quad )*", line)[0].count("quad") for line in found] == list(range(5))


def test_latex_head_of_several_columns_stands_once():
    heads = ["a", "MACs\nT=8", "MACs\nT=9", "bytes\nT=8", "bytes\nT=9", "bytes\nT=10", "MACs\nall"]
    columns = [Column(f"c{i}", head, kind="int") for i, head in enumerate(heads)]
    text = render("latex", made_table(columns, [{f"c{i}": i for i in range(7)}]))
    first, second = [line for line in text.splitlines() if "MACs" in line or "T=8" in line]
    cells, *rules = first.split(r" \\ ")
    assert cells.split(" & ") == ["", r"\multicolumn{2}{c}{MACs}", r"\multicolumn{3}{c}{bytes}", "MACs"]
    assert rules == [r"\cmidrule(lr){2-3} \cmidrule(lr){4-6}"]
    assert second.removesuffix(r" \\").split(" & ") == ["a", "T=8", "T=9", "T=8", "T=9", "T=10", "all"]


def test_format_from_file_ending(capsys, tmp_path):
    for ending, begins in {"json": "{", "csv": "row,", "md": "## ", "tex": "% ", "txt": "moa-table2: "}.items():
        path = tmp_path / f"t.{ending}"
        assert main(["table", "moa-table2", *CLOSED, "--out", str(path)]) == 0
        out, err = capsys.readouterr()
        assert path.read_text("utf-8").startswith(begins) and out == ""
        assert err.splitlines()[-1] == "6 printed rows: 1 reproduced, 5 not reproducible."


def test_csv_tables_need_a_folder(capsys, tmp_path):
    argv = ["count", "moa-8K8E128D", *CLOSED, "--format", "csv"]
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == "" and "one table, not moa-8K8E128D, moa-8K8E128D-kinds; --out DIR/ writes a file for each" in err
    assert main([*argv, "--out", f"{tmp_path}/new/"]) == 0 and main([*argv, "--out", str(tmp_path / "new")]) == 0
    names = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert names == ["moa-8K8E128D-kinds.csv", "moa-8K8E128D.csv"]
    kinds = pandas.read_csv(tmp_path / "new" / names[0])
    whole = pandas.read_csv(tmp_path / "new" / names[1])
    assert kinds["macs"].sum() == whole["macs"].sum() == 632_258_560
    assert capsys.readouterr().out == ""
