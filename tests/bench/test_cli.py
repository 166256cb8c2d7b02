"""serve() runs a command: printed tables, exit codes and one-line errors."""

import importlib
from fractions import Fraction
from pathlib import Path

import pytest

import headcount
from headcount.__main__ import COMMANDS
from headcount.bench import cli
from headcount.bench.cli import NameList, Parser, Value, add_output, serve
from headcount.bench.column import Column
from headcount.bench.errors import UsageError
from headcount.bench.latency import __main__ as latency
from headcount.bench.latency import targets as latency_targets
from headcount.bench.result import Result
from tests.bench.made_table import MadeRow, made_table


def numbers(rows):
    return made_table([Column("n", "n", kind="int")], rows)


def command(plan, *argv):
    parser = Parser(prog="a command")
    add_output(parser)
    parser.add_argument("--share", type=Value("share below 1", Fraction, lambda share: 0 <= share < 1))
    parser.add_argument("--module")
    argv = argv if "--out" in argv else ("--format", "csv", *argv)
    return serve("a command", parser, plan, argv)


def rows(*failures):
    return (MadeRow({"n": number}, failures=[failure] if failure else ()) for number, failure in enumerate(failures))


@pytest.mark.parametrize("strict, code", [(True, 1), (False, 0)])
def test_row_failures_exit_1_if_strict(strict, code, capsys):
    table = numbers(rows("", "1 is wrong", "2 too"))
    assert command(lambda args: Result([table], strict=strict)) == code
    out, err = capsys.readouterr()
    assert out == "n\n0\n1\n2\n"
    assert err.splitlines()[:-1] == (["a command: 1 is wrong", "a command: 2 too"] if strict else [])


def wrong_plan(args):
    raise UsageError("no such thing")


def rows_until_interrupt():
    yield {"n": 1}
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    "plan, argv, code, message",
    [
        (wrong_plan, [], 2, "a command: error: no such thing"),
        (wrong_plan, ["--share", "1"], 2, "a command: error: argument --share: invalid share below 1 value: '1'"),
        (lambda args: Result([numbers(rows_until_interrupt())]), [], 130, "\na command: interrupted"),
    ],
)
def test_errors_are_one_line(plan, argv, code, message, capsys, tmp_path):
    out = tmp_path / "out.csv"
    assert command(plan, *argv, "--out", str(out)) == code
    assert capsys.readouterr() == ("", f"{message}\n") and list(tmp_path.iterdir()) == []


def test_written_files_are_named(capsys, tmp_path):
    parser = Parser(prog="a command")
    add_output(parser)
    parser.add_argument("--plot")
    out = str(tmp_path / "out.csv")
    assert serve("a command", parser, lambda args: Result([numbers(rows(""))]), ["-o", out, "--plot", "a.svg"]) == 0
    assert capsys.readouterr().err.splitlines()[:2] == [f"{out} is written", "a.svg is written"]


@pytest.mark.parametrize("name", ["missing/out.csv", "file/", "file/out.csv"])
def test_unwritable_output_fails_first(name, capsys, tmp_path):
    (tmp_path / "file").write_text("old")
    place = f"{tmp_path}/{name}"
    assert command(lambda args: pytest.fail("the command was run"), "--out", place) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"a command: error: cannot write {place}: ")
    assert [path.name for path in tmp_path.iterdir()] == ["file"] and (tmp_path / "file").read_text() == "old"


@pytest.mark.parametrize("named", ["{}", "{}:make"])
def test_input_is_not_overwritten(named, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("theirs")
    argv = ["--module", named.format(tmp_path / "in.txt"), "--out", "in.txt"]
    assert command(lambda args: pytest.fail("the command was run"), *argv) == 2
    assert capsys.readouterr() == ("", "a command: error: --out in.txt is an input of this command\n")
    assert (tmp_path / "in.txt").read_text() == "theirs"


def test_missing_own_file_is_internal(capsys):
    with pytest.raises(FileNotFoundError):
        cli.run("prog", lambda: open(Path(headcount.__file__).with_name("missing.json")))


@pytest.mark.parametrize(
    "command, target, options",
    [
        ("count", ["llama3-8b"], ["--seq-len", "8"]),
        ("count", ["llama3-8b"], ["--columns=macs_per_token,kv_bytes"]),
        ("count", ["model.py:Net"], ["--input", "1,3,7,7", "--input", "mask=1,7:bool"]),
        ("table", ["gpt3-d1", "palm-table1"], ["--counter=closed-form"]),
        ("grid", ["K=2 E=5 T=3", "K=1 E=2"], ["--columns=kv_bytes", "--check"]),
        ("compare", ["llama3-8b", "model.py:make,n=3"], ["--counter=torch,fvcore"]),
        ("audit", ["model.py:make"], ["--set", "n=7"]),
        ("convert", ["llama3-8b", "s=16", "r=8"], ["--seq-len", "8"]),
        ("convert", ["llama3-8b", "s=16", "r=8"], ["--set", "vocab_size=7"]),
        ("lock", ["llama3-8b"], ["--max", "macs=2.1G"]),
        ("latency", ["llama3-8b", "model.py:make"], ["--backward", "--set", "num_layers=1"]),
    ],
)
def test_targets_go_before_between_and_behind_options(command, target, options):
    module = importlib.import_module(f"headcount.{COMMANDS[command][0]}")
    parser = (module if command != "latency" else latency_targets).parser(f"headcount {command}")
    first = vars(parser.parse_args([*target, *options]))
    for words in ([*options, *target], [target[0], *options, *target[1:]]):
        assert vars(parser.parse_args(words)) == first


@pytest.mark.parametrize("words, has_target", [
    (["--seq-len", "8", "llama3-8b"], True), (["--backward", "llama3-8b", "--device", "cpu"], True), ([], False),
    (["--seq-len", "128", "512"], False), (["--layer", "mha-base"], False), (["--device", "cpu"], False),
    (["--help"], False), (["llama3-8b", "--help"], True),
])  # fmt: skip
def test_latency_has_targets_behind_options(words, has_target):
    assert latency._has_target("headcount latency", words) is has_target


@pytest.mark.parametrize("words, error", [
    (["--card", "a", "--card", "b"], "--card is given twice; it takes one card"),
    (["--card=a", "x", "--card", "a"], "--card is given twice; it takes one card"),
    (["-n", "1", "-n", "2"], "-n is given twice; it takes one value"),
    (["--range", "a", "b", "--range", "c"], "--range is given twice; all its values stand behind one --range"),
])  # fmt: skip
def test_option_of_one_value_is_given_once(words, error):
    with pytest.raises(UsageError) as raised:
        repeating().parse_args(words)
    assert str(raised.value) == error


def test_options_that_repeat_are_given_twice():
    parser = repeating()
    # a parser reads several command lines
    for _ in range(2):
        found = parser.parse_args(["x", "--card", "a", "y", "--set", "b=1", "--set", "c=2", "--on", "--on", "-n", "3"])
        assert (found.words, found.card, found.set, found.on, found.n) == (["x", "y"], "a", ["b=1", "c=2"], True, 3)
        names = parser.parse_args(["--columns", "a,b", "--columns", "c", "d"]).columns
        assert names == ["a", "b", "c", "d"]
    assert (parser.parse_args([]).card, parser.parse_args([]).columns) == ("none", ["e"])


@pytest.mark.parametrize("words", [
    ["x", "--set", "b=1", "c=2", "--on"], ["--set", "b=1", "c=2", "x", "--on"],
    ["--set=b=1", "--set", "c=2", "x", "--on"], ["--set", "b=1", "x", "--set", "c=2", "--on"],
    ["--on", "--set", "b=1", "c=2", "--", "x"],
])  # fmt: skip
def test_option_that_repeats_stands_before_each_value_or_the_first(words):
    found = repeating().parse_args(words)
    assert (found.words, found.set, found.on) == (["x"], ["b=1", "c=2"], True)


@pytest.mark.parametrize("word", ["llama3-8b,T=8", "moa:K=4,E=8", "model.py:make,n=3", "K=2 E=5", "x.py"])
def test_target_behind_a_repeated_option_is_no_value(word):
    found = repeating().parse_args(["--set", "b=1", word])
    assert (found.words, found.set) == ([word], ["b=1"])


def repeating():
    parser = Parser(prog="a command")
    parser.add_argument("words", nargs="*")
    parser.add_argument("--card", metavar="CARD", default="none")
    parser.add_argument("-n", type=int, metavar="N")
    parser.add_argument_group("a group").add_argument("--range", nargs="+", metavar="A=B")
    parser.add_argument("--set", action="append")
    parser.add_argument("--on", action="store_true")
    parser.add_argument("--columns", action=NameList, default=["e"])
    return parser
