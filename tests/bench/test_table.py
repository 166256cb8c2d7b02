"""Tables print raw numbers as their columns say, and an output file is complete or not there."""

import io
import json
import os
import subprocess
import sys
from fractions import Fraction

import pytest

from headcount.bench.errors import UsageError
from headcount.bench.render import RENDERERS, open_output, write_json
from headcount.bench.table import Column, Row, Section, Table

TABLE = Table(
    "moa-layers",
    "MoA layers",
    (
        Column("name", "layer", width=9),
        Column("macs", "exact", "GMACs", kind="fixed", scale=10**9, digits=2),
        Column("params", "all\nparameters", kind="int"),
        Column("verdict", "verdict"),
    ),
    notes_above=("T = 128, B = 1",),
    note_column="verdict",
)
ROWS = (
    ({"name": "8K8E128D", "macs": 1_234_567_890, "params": 4_718_592, "verdict": "agrees"}, []),
    ({"name": "a|b & c_d", "macs": None, "params": 0, "verdict": "differs"}, ["router", "bias"]),
    ({"name": "x", "macs": 0, "params": None, "verdict": None, "more": 1}, ["bias"]),
)


def rendered(name, table=TABLE, rows=ROWS, below=("Counted on meta.",), times=1):
    stream = io.StringIO()
    out = RENDERERS[name](stream)
    section = Section(table, iter(()), below)
    for _ in range(times):
        out.print(section, [Row(values, notes) for values, notes in rows])
    return stream.getvalue()


def test_text():
    assert rendered("text") == (
        "MoA layers\n"
        "T = 128, B = 1\n"
        "\n"
        "           exact         all\n"
        "layer      GMACs  parameters  verdict\n"
        "---------  -----  ----------  -------\n"
        "8K8E128D    1.23   4,718,592  agrees\n"
        "a|b & c_d      –           0  differs [1] [2]\n"
        "x           0.00           –  – [2]\n"
        "---------  -----  ----------  -------\n"
        "[1] router\n"
        "[2] bias\n"
        "Counted on meta.\n"
    )


def test_markdown():
    assert rendered("md") == (
        "## MoA layers\n"
        "\n"
        "T = 128, B = 1\n"
        "\n"
        "| layer      |   exact GMACs |   all parameters | verdict         |\n"
        "|:-----------|--------------:|-----------------:|:----------------|\n"
        "| 8K8E128D   |          1.23 |        4,718,592 | agrees          |\n"
        "| a\\|b & c_d |             – |                0 | differs [1] [2] |\n"
        "| x          |          0.00 |                – | – [2]           |\n"
        "\n"
        "[1] router\n"
        "\n"
        "[2] bias\n"
        "\n"
        "Counted on meta.\n"
    )


def test_csv_holds_raw_numbers_and_empty_fields():
    assert rendered("csv") == (
        "name,macs,params,verdict,notes\n"
        "8K8E128D,1234567890,4718592,agrees,\n"
        "a|b & c_d,,0,differs,router; bias\n"
        "x,0,,,bias\n"
    )


def test_latex():
    assert rendered("latex", below=("50% of d_m --any K <= E",)) == (
        "% \\usepackage{array,booktabs,graphicx,longtable}\n"
        "\\begin{table}\n"
        "\\caption{MoA layers}\\label{tab:moa-layers}\n"
        "\\centering\n"
        "\\small\\setlength{\\tabcolsep}{3pt}\n"
        "\\resizebox{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}{!}{%\n"
        "\\begin{tabular}{@{}lrrl@{}}\n"
        "\\toprule\n"
        " & exact & all &  \\\\\n"
        "layer & GMACs & parameters & verdict \\\\\n"
        "\\midrule\n"
        "8K8E128D & 1.23 & 4,718,592 & agrees \\\\\n"
        "a\\textbar{}b \\& c\\_d & -- & 0 & differs [1] [2] \\\\\n"
        "x & 0.00 & -- & -- [2] \\\\\n"
        "\\bottomrule\n"
        "\\end{tabular}}\n"
        "\n"
        "\\medskip\n"
        "\\begin{minipage}{\\linewidth}\n"
        "\\footnotesize\\raggedright\n"
        "T = 128, B = 1\\par\n"
        "[1] router\\par\n"
        "[2] bias\\par\n"
        "50\\% of d\\_m -{}-any K $\\le$ E\\par\n"
        "\\end{minipage}\n"
        "\\end{table}\n"
    )


@pytest.mark.parametrize("name", [name for name in RENDERERS if name != "csv"])
def test_tables_are_apart_and_number_their_own_footnotes(name):
    once = rendered(name)
    again = once.replace("T = 128, B = 1\n", "") if name == "text" else once
    assert rendered(name, times=2) == f"{once}\n{again}"


@pytest.mark.parametrize("name", RENDERERS)
def test_a_table_without_rows(name):
    assert "layer" in rendered(name, rows=(), below=()) or name == "csv"


class Flushed(io.StringIO):
    flushed = 0

    def flush(self):
        self.flushed = len(self.getvalue())


def test_text_comes_row_by_row():
    stream = Flushed()
    printed = []

    def rows():
        for values, notes in ROWS:
            assert stream.flushed == len(stream.getvalue())
            printed.append(stream.flushed)
            yield Row(values, notes)

    section = Section(TABLE, rows())
    RENDERERS["text"](stream).print(section, section.rows)
    assert printed == sorted(set(printed)) and printed[0] > 0


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        (Column("n", "n", kind="int"), 150_994_944, "150,994,944"),
        (Column("n", "n", kind="int"), -7, "-7"),
        (Column("n", "n", kind="int"), 0, "0"),
        (Column("n", "n", kind="int"), None, "–"),
        (Column("n", "n", kind="int", sign=True), 2784, "+2,784"),
        (Column("n", "n", kind="int", sign=True), 0, "0"),
        (Column("n", "n", kind="int", sign=True), -2784, "-2,784"),
        (Column("n", "n", kind="fixed", digits=1), 1234.56, "1,234.6"),
        (Column("n", "n", kind="fixed", digits=2), -0.001, "0.00"),
        (Column("n", "n", kind="fixed", digits=2), Fraction(-1, 3), "-0.33"),
        (Column("n", "n", kind="fixed", digits=1, scale=100), 25, "0.2"),
        (Column("n", "n", kind="fixed", digits=1, scale=100), 35, "0.4"),
        (Column("n", "n", kind="fixed", scale=10**6), 60_500_001, "61"),
        (Column("n", "n"), "moa", "moa"),
        (Column("n", "n"), None, "–"),
    ],
)
def test_a_cell(column, value, text):
    assert column.text(value) == text


@pytest.mark.parametrize("value", [1.0, "7", True])
def test_an_integer_column_takes_integers_only(value):
    with pytest.raises(TypeError, match=f"^column 'n' holds integers, not {value!r}$"):
        Column("n", "n", kind="int").text(value)


def test_contradictions_in_columns_and_rows_are_errors():
    with pytest.raises(ValueError, match="^column 'n': scale and digits are for kind 'fixed'$"):
        Column("n", "n", kind="int", digits=1)
    with pytest.raises(ValueError, match="^table 't' has a column twice$"):
        Table("t", "T", (Column("n", "n"), Column("n", "m")))
    with pytest.raises(ValueError, match="^table 't' has no column 'verdict'$"):
        Table("t", "T", (Column("n", "n"),), note_column="verdict")
    plain = Table("t", "T", (Column("n", "n"),))
    with pytest.raises(ValueError, match="^table 't' has no column for notes$"):
        rendered("text", plain, [({"n": 1}, ["why"])])
    with pytest.raises(KeyError):
        rendered("text", plain, [({}, [])])


@pytest.mark.parametrize(
    "wrong",
    [{"kind": "integer"}, {"of": "macs"}, {"width": None}, {"priority": None}, {"wraps": "1"}, {"digits": None}],
)
def test_a_column_is_what_there_is(wrong):
    with pytest.raises(ValueError, match="^column 'n': "):
        Column("n", "n", **wrong)


@pytest.mark.parametrize("of", ["", "params"])
def test_integers_are_headed_as_what_they_count(of):
    with pytest.raises(ValueError, match=r"^column 'n': integers headed 'MACs\\nideal' that are of"):
        Column("n", "MACs\nideal", kind="int", of=of)
    Column("n", "MACs\nideal", kind="int", of="MACs")


def test_alignment_can_be_turned_round():
    table = Table("t", "T", (Column("a", "a", width=3, align="right"), Column("n", "n", "", "int", align="left")))
    assert rendered("text", table, [({"a": "x", "n": 7}, [])], below=()).splitlines()[-2] == "  x  7"


def test_json_keeps_integers_and_order():
    stream = io.StringIO()
    write_json(stream, {"schema": 1, "macs": 10**15 + 1, "dash": None, "name": "–"})
    assert stream.getvalue() == '{\n  "schema": 1,\n  "macs": 1000000000000001,\n  "dash": null,\n  "name": "–"\n}\n'
    assert json.loads(stream.getvalue())["macs"] == 10**15 + 1
    with pytest.raises(ValueError, match="^Out of range float values are not JSON compliant"):
        write_json(stream, float("nan"))


def test_output_without_a_path_is_stdout(capsys):
    with open_output(None) as stream:
        stream.write("table\n")
    assert capsys.readouterr().out == "table\n"


def test_an_output_file_appears_when_the_block_succeeds(tmp_path):
    path = tmp_path / "out.md"
    path.write_text("old")
    with open_output(path) as stream:
        stream.write("new –\n")
        assert path.read_text() == "old"
    assert path.read_text(encoding="utf-8") == "new –\n"
    assert os.listdir(tmp_path) == ["out.md"]
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, BrokenPipeError])
def test_an_exception_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "out.md"
    path.write_text("old")
    with pytest.raises(error), open_output(str(path)) as stream:
        stream.write("half")
        raise error
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["out.md"]


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "file")
    with open_output(tmp_path / "link") as stream:
        stream.write("x")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "x"


def test_a_device_is_written_to():
    with open_output("/dev/null") as stream:
        stream.write("x")
    with pytest.raises(BrokenPipeError), open_output("/dev/null"):
        raise BrokenPipeError


def test_a_path_that_cannot_be_written_is_a_usage_error(tmp_path):
    missing = tmp_path / "none" / "out.md"
    with pytest.raises(UsageError) as raised, open_output(missing):
        pytest.fail("the block ran")
    assert str(raised.value) == f"cannot write {missing}: No such file or directory"
    with pytest.raises(UsageError) as raised, open_output(tmp_path):
        pytest.fail("the block ran")
    assert str(raised.value) == f"cannot write {tmp_path}: Is a directory"


def test_tables_import_neither_torch_nor_pandas():
    code = "import bench.table, sys; print({'torch', 'pandas', 'numpy', 'tabulate'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
