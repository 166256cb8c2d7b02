"""Tables of a user's file: verdicts, rules found, trust in code, and messages for files that are wrong."""

import io
import json
import re
from fractions import Fraction
from pathlib import Path

import pytest

from headcount.__main__ import main
from headcount.bench.counters import registry
from headcount.bench.macs.published import judged
from headcount.formulas.published import tables as published
from headcount.formulas.published.figures import EMPTY, LETTERS
from headcount.formulas.published.tables import RULES
from tests.bench.targets.conftest import LLAMA, write

EXAMPLE = Path(__file__).with_name("own_table.toml")
T, D, F, L, V = 2048, 4096, 11008, 32, 32000
"""Sizes of LLaMA-2 7B, and a sequence length."""
WEIGHTS = L * (4 * D * D + 3 * D * F) + V * D
"""Number of weights of LLaMA-2 7B in products."""
PARAMS = WEIGHTS + V * D + (2 * L + 1) * D
MODULE = """
import torch
from torch import nn
class Decoder(nn.Module):
    def __init__(self, is_causal):
        super().__init__()
        self.embed, self.proj, self.out = nn.Embedding(11, 7), nn.Linear(7, 7, bias=False), nn.Linear(7, 11, bias=False)
        self.is_causal = is_causal
    def forward(self, ids):
        x = self.proj(self.embed(ids))[:, None]
        return self.out(nn.functional.scaled_dot_product_attention(x, x, x, is_causal=self.is_causal))
def decoder(is_causal=True): return Decoder(is_causal), (torch.ones(3, 5, dtype=torch.long),)
def make(n=7):
    return nn.Linear(n, 5, bias=False), (torch.ones(3, n),)
"""


@pytest.fixture
def table(tmp_path, capsys):
    """Return a function that writes a table, runs it and returns its exit code, sections of JSON and stderr."""
    (tmp_path / "paper").mkdir()
    (tmp_path / "paper" / "model.py").write_text(MODULE)

    def run(text, *options, name="mine.toml"):
        path = tmp_path / "paper" / name
        path.write_text(text)
        code = main(["table", str(path), *options, "--format", "json"])
        out, err = capsys.readouterr()
        return code, json.loads(out)["tables"] if out else [], err.replace(f"{path.parent}/", "")

    return run


def cells(sections):
    return {(row["row"], row["figure"]): row for row in sections[0]["rows"]}


def verdicts(answer):
    """Return the verdicts of a run in the order of its rows."""
    return [row["verdict"] for row in answer[1][0]["rows"]]


def test_verdicts_of_the_example(table):
    code, sections, _ = table(EXAMPLE.read_text())
    assert code == 0
    assert [(row["printed"], row["verdict"]) for row in sections[0]["rows"]] == [
        ("6.7B", "reproduced"),
        ("15T", "reproduced"),
        ("8.0B", "reproduced"),
        ("33T", "explained"),
        ("2.7B", "no rule found"),
        ("3.7T", "explained"),
        ("410B", "explained"),
        ("-", "no printed value"),
        ("0.67B", "reproduced"),
    ]
    because = {key: row["because"] for key, row in cells(sections).items()}
    assert because["llama3-8b", "MACs"].startswith(
        "by the rule 16.47T; this number holds FLOPs, 32.94T; the published column"
    )
    assert "exact at T = 512 gives 3.709T" in because["mistral-7b", "MACs"]
    # 7.2417 / 2.7
    assert because["mistral-7b", "parameters"].startswith("the rule gives 2.6821 times the printed number")
    assert "MACs by the rule exact" in sections[0]["below"][1] and "T = 2,048." in sections[0]["below"][1]


@pytest.mark.parametrize(
    "rule, value",
    [
        ("macs", T * WEIGHTS + L * 2 * T * T * D),
        ("flops", 2 * (T * WEIGHTS + L * 2 * T * T * D)),
        ("params", PARAMS),
        ("projections", T * WEIGHTS),
        ("6n", 6 * PARAMS),
        ("palm", 6 * PARAMS + 12 * L * D * T),
        ("deepseek_causal", 6 * WEIGHTS + 6 * L * D * (T + 1)),
    ],
)
def test_rule_prints_every_digit(table, rule, value):
    text = f'rule = "{rule}"\n[[row]]\ntarget = "llama2-7b"\nset = {{ seq_len = {T} }}\nprinted = "%s"\n'
    right, wrong = (cells(table(text % f"{number:,}", "--check")[1]) for number in (value, value + 1))
    assert [row["verdict"] for row in right.values()] == ["reproduced"]
    assert [row["verdict"] for row in wrong.values()] == ["no rule found"]
    assert table(text % (value + 1), "--check")[0] == 1


def test_mfu_is_an_interval_of_rounded_seconds(table):
    text = f"""rule = "palm"
peak = "989T"
[[row]]
target = "llama2-7b"
set = {{ seq_len = {T} }}
given = {{ tokens = 4194304, seconds = 20.3, devices = 16 }}
printed = {{ mfu = "%s" }}
"""
    work = (6 * PARAMS + 12 * L * D * T) * 4194304
    low, high = (100 * work / (Fraction(seconds) * 16 * 989 * 10**12) for seconds in ("20.35", "20.25"))
    inside, outside = f"{float((low + high) / 2):.2f}%", f"{float(3 * high):.2f}%"
    assert verdicts(table(text % outside)) == ["no rule found"]
    _, sections, _ = answer = table(text % inside)
    assert verdicts(answer) == ["reproduced"]
    assert "peak 989T FLOP/s" in sections[0]["below"][0]


def test_find_rule_lists_all_that_print_every_row(table):
    sizes = {n: n * (4 * D * D + 3 * D * F + 2 * D) + 2 * V * D + D for n in (2, 3, 5, 7)}
    rows = [f'"llama2-7b,num_layers={n}",training_flops_per_token,{6 * size}' for n, size in sizes.items()]
    text = "\n".join(["target,quantity,printed", *rows])
    code, sections, _ = table(text, "--find-rule", name="mine.csv")
    assert (code, len(sections)) == (0, 1)
    assert [row["rule"] for row in sections[0]["rows"] if row["prints"] == 4] == ["6n"]
    rest, own = sections[0]["below"]
    assert rest == "47 other rules tried print no row." and own.startswith(
        "Without a T, a preset has its own: llama2-7b,"
    )
    # a warning where there are fewer than four rows
    few = text.rpartition("\n")[0]
    assert table(few, "--find-rule", name="mine.csv")[1][0]["below"][0] == "Only 3 rows: a rule may fit by chance."


def test_find_rule_knows_training_rules_of_a_column_of_macs(table):
    text = f"target,quantity,printed\nllama2-7b,macs,{3 * PARAMS}\n"
    _, sections, _ = table(text, "--find-rule", name="mine.csv")
    assert [row["rule"] for row in sections[0]["rows"] if row["prints"]] == ["6n per token, MACs for FLOPs"]
    # rules of training are per token, and an image model has none
    _, sections, _ = table("target,quantity,printed\ndit-b4,macs,5.6G\n", "--find-rule", name="mine.csv")
    assert {row["rule"].split()[0] for row in sections[0]["rows"] if row["prints"]} == {"exact", "exact_and_norms"}


def test_module_of_the_folder_runs(table):
    row = '[[row]]\ntarget = "model.py:make"\nset = { n = 11 }\nprinted = { macs = "165", params = "55" }\n'
    assert verdicts(table(row)) == ["reproduced", "reproduced"]
    code, _, err = table(f'rule = "exact_and_norms"\n{row}')
    assert code == 2 and "mine.toml: line 2: the rule exact_and_norms needs a preset" in err


@pytest.mark.parametrize("rule, flops", [
    ("6n", 6 * (77 + 49 + 77)), ("palm", 6 * (77 + 49 + 77) + 12 * 7 * 5),
    ("deepseek_causal", 6 * (49 + 77) + 6 * 7 * 6),
])  # fmt: skip
def test_module_has_rules_of_training(table, rule, flops):
    row = """
[[row]]
target = "model.py:decoder"
given = {{ tokens = 1000, seconds = 1, devices = 1, peak = "100000000/1" }}
printed = {{ training_flops_per_token = "{}", training_flops = "{}", mfu = "{:.4f}" }}
"""
    rows = row.format(flops, flops * 1000, flops / 1000) + row.format(flops + 1, flops * 1000 + 1, 2 * flops / 1000)
    assert verdicts(table(f'rule = "{rule}"{rows}')) == ["reproduced"] * 3 + ["no rule found"] * 3


@pytest.mark.parametrize("rule, target, message", [
    ("kaplan", '"model.py:decoder"', "mine.toml: line 2: rule kaplan treats the vocabulary projection"),
    ("deepseek_causal", '"model.py:decoder"\nset = { is_causal = false }', "no mask of this module hides any"),
    ("6n", '"model.py:make"', "mine.toml: line 2: the inputs have no tokens"),
])  # fmt: skip
def test_rule_that_a_run_does_not_decide_is_named(table, rule, target, message):
    code, _, err = table(
        f'rule = "{rule}"\n[[row]]\ntarget = {target}\nprinted = {{ training_flops_per_token = "7" }}\n'
    )
    assert code == 2 and message in err


def test_attention_per_token_is_exact(table, tmp_path):
    more = """
class Cross(nn.Module):
    def forward(self, ids, y):
        x = y[:1, :2]
        return nn.functional.scaled_dot_product_attention(x, y[:1], y[:1]).sum() + ids.sum()
def cross(): return Cross(), (torch.ones(1, 3, dtype=torch.long), torch.ones(1, 5, 7))
"""
    (tmp_path / "paper" / "other.py").write_text(MODULE + more)
    figure = '[[figure]]\nname = "x"\nhead = "x"\nvalue = "attention * 3"\n'
    flops = 2 * 2 * (2 * 5 * 7)
    # 3 tokens do not divide it
    assert flops % 3
    answer = table(f'{figure}[[row]]\ntarget = "other.py:cross"\nprinted = {{ x = "{flops}" }}\n')
    assert verdicts(answer) == ["reproduced"]


@pytest.mark.parametrize("letter", ["part", "N_norms", "N_kv", "N_router", "looked_up"])
def test_count_does_not_name_parts(table, letter):
    figure = f'[[figure]]\nname = "x"\nhead = "x"\nvalue = "{letter if letter != "part" else "N"}"\n'
    for target in ("llama2-7b", "model.py:make"):
        part = 'part = "proj"\n' * (letter == "part")
        code, _, err = table(f'{figure}[[row]]\ntarget = "{target}"\n{part}printed = {{ x = "7" }}\n')
        assert code == (0 if target == "llama2-7b" else 2)
    assert f"{letter} needs a preset; a count of model.py:make does not name its parts" in err


def test_configuration_has_rules_of_training(table, tmp_path):
    pytest.importorskip("transformers", reason="the optional extra hf is not installed")
    write(tmp_path / "paper", LLAMA)
    weights = 2 * (2 * 24 * 24 + 2 * 24 * 12 + 3 * 24 * 32) + 53 * 24
    causal = 6 * weights + 6 * 2 * 24 * (5 + 1)
    text = f"""rule = "deepseek_causal"
[[row]]
target = "config.json"
set = {{ seq_len = 5, batch_size = 3 }}
printed = {{ training_flops_per_token = "{causal}" }}
"""
    assert verdicts(table(text)) == ["reproduced"]


def test_function_of_another_file_needs_trust(table, tmp_path):
    (tmp_path / "paper" / "model.py").write_text("from os import abort\n")
    code, sections, err = table('[[row]]\ntarget = "model.py:abort"\nprinted = { macs = "105" }\n')
    assert (code, sections) == (2, []) and "abort is not defined in a file below" in err and "--trust" in err


@pytest.mark.parametrize("target", ["../model.py:make", "link.py:make", "os:abort"])
def test_code_from_elsewhere_needs_trust(table, tmp_path, target):
    (tmp_path / "model.py").write_text(MODULE)
    (tmp_path / "paper" / "link.py").symlink_to(tmp_path / "model.py")
    text = f'[[row]]\ntarget = "{target}"\nprinted = {{ macs = "105" }}\n'
    code, sections, err = table(text)
    assert (code, sections) == (2, [])
    code = "installed code" if target == "os:abort" else "code from outside of the table's folder"
    assert f"mine.toml: line 1: {target} would run {code}; --trust allows it" in err
    if target != "os:abort":
        assert cells(table(text, "--trust")[1])[target, "MACs"]["verdict"] == "reproduced"


ROW = '[[row]]\ntarget = "llama2-7b"\n'


@pytest.mark.parametrize(
    "name, text, message",
    [
        ("a.toml", 'rules = "palm"\n' + ROW, "a.toml: unknown key 'rules'; did you mean rule? choose from title"),
        ("a.toml", f'\nrule = "pal"\n{ROW}', "a.toml: unknown rule 'pal'; did you mean palm? choose from macs"),
        ("a.toml", ROW, "a.toml: line 1: a row without printed; it has target and printed"),
        ("a.toml", '[[row]]\nprinted = "1"\n', "a.toml: line 1: a row without target"),
        ("a.toml", f'{ROW}printed = "1"\n\n{ROW}printed = "six"\n', "a.toml: line 5: printed 'six' is no number"),
        (
            "a.toml",
            f'{ROW}printed = {{ mac = "1" }}\n',
            "a.toml: line 1: unknown quantity 'mac'; did you mean macs? choose from macs",
        ),
        ("a.toml", f"{ROW}printed = \n", "a.toml: Invalid value (at line 3"),
        ("a.toml", "title = 'x'\n", "a.toml: no row; a [[row]] has target and printed"),
        ("a.toml", f'peak = "H"\n{ROW}printed = "1"\n', "a.toml: peak 'H' is no number, as 6.7B"),
        ("a.toml", '[[row]]\ntarget = "llama"\nprinted = "1"\n', "a.toml: line 1: unknown target 'llama'"),
        ("a.toml", f'{ROW}set = {{ layers = 3 }}\nprinted = "1"\n', "a.toml: line 1: unknown field 'layers'"),
        ("a.toml", f'{ROW}printed = {{ mfu = "40%" }}\n', "a.toml: mfu needs a rule of training, not ''"),
        ("a.toml", f'rule = "palm"\n{ROW}printed = {{ mfu = "4" }}\n', "a.toml: line 2: '100 * model_work * tokens"),
        ("a.toml", '[[figure]]\nname = "x"\n' + ROW, "a.toml: a figure has name, head and value"),
        ("a.toml", f"figure = 1\n{ROW}printed = 1\n", "a.toml: figures and rows are tables; write [[figure]], [[row]]"),
        ("a.toml", f'{ROW}printed = "0"\n', "a.toml: line 1: printed '0' is no number"),
        ("a.toml", f"{ROW}printed = 1\ngiven = {{ x = [] }}\n", "a.toml: line 1: given has the wrong type: []"),
        (
            "a.toml",
            f'[[figure]]\nname = "x"\nhead = "x"\nvalue = "N +"\n{ROW}printed = 1\n',
            "a.toml: value 'N +' is no expression",
        ),
        ("a.csv", "target,quantity,printed\nllama2-7b,macs\n", "a.csv: line 2: 2 cells; a row has target, quantity"),
        ("a.csv", "", "a.csv: line 1: the header is ''; it must be target,quantity,printed"),
    ],
)
def test_wrong_file_is_named_by_line(table, name, text, message):
    code, sections, err = table(text, name=name)
    assert (code, sections) == (2, [])
    assert message in err and err.count("error:") == 1 and "Traceback" not in err


def test_figure_states_the_rule_of_a_quantity(table):
    figures = '[[figure]]\nquantity = "macs"\nrule = "projections"\n'
    figures += '[[figure]]\nname = "giga"\nhead = "GMACs"\nvalue = "macs"\nscale = 1_000_000_000\n'
    exact = T * WEIGHTS + L * 2 * T * T * D
    printed = f'printed = {{ macs = "{T * WEIGHTS}", giga = "{exact / 10**9:.3f}" }}\n'
    _, sections, _ = table(f"set = {{ seq_len = {T} }}\n{figures}{ROW}{printed}")
    assert [row["verdict"] for row in sections[0]["rows"]] == ["reproduced", "reproduced"]
    assert ["MACs by the rule projections" in sections[0]["below"][0], "exact" in sections[0]["below"][1]] == [True] * 2


def test_typed_verdict_is_compared(table):
    text = f'{ROW}printed = {{ params = "%s" }}\nverdicts = {{ params = "explained" }}\n'
    for printed, code in (("7B", 1), ("6.8B", 1), ("6B", 0)):
        assert table(text % printed, "--check")[0] == code


def test_rule_of_a_figure_can_be_disproved(table):
    # 25,165,824 MACs of the router, or a multiple of them, are between both rows
    figure = '[[figure]]\nquantity = "macs"\nrule = "projections"\n'
    rows = [
        f'[[row]]\ntarget = "mlm-moa-8K{E}E256D"\nprinted = {{ macs = "{printed}" }}\n'
        for E, printed in ((16, "8.97G"), (64, "8.98G"))
    ]
    code, sections, err = table(figure + "".join(rows), "--check")
    assert [row["verdict"] for row in sections[0]["rows"]] == ["not reproducible"] * 2
    assert code == 1 and "mlm-moa-8K16E256D, MACs: no rule prints 8.97G" in err
    assert verdicts(table("".join(rows))) == ["no rule found"] * 2


def params_of(layers):
    """Return the parameters of LLaMA-2 7B with some of its layers."""
    return layers * (4 * D * D + 3 * D * F + 2 * D) + 2 * V * D + D


def in_millions(number, cut):
    return f"{(number + (0 if cut else 500_000)) // 10**6}M"


SIZES = [n for n in range(1, 33) if params_of(n) % 10**6 >= 500_000][:6]
"""Numbers of layers of which rounding and cutting print different millions of parameters."""


def judge_sizes(table, texts):
    """Return the verdicts on parameters of a user's table, and the sentence below it."""
    rows = [f'"llama2-7b,num_layers={n}",params,{text}' for n, text in zip(SIZES, texts, strict=True)]
    _, sections, _ = table("\n".join(["target,quantity,printed", *rows]), name="mine.csv")
    return [(row["verdict"], row["because"]) for row in sections[0]["rows"]], sections[0]["below"][0]


@pytest.mark.parametrize("cut", [False, True])
def test_digits_of_a_column_are_one_rule(table, cut):
    mine, below = judge_sizes(table, [in_millions(params_of(n), cut) for n in SIZES])
    assert mine == [("reproduced", "")] * len(SIZES)
    assert ("truncated to the printed digits" in below) is cut


@pytest.mark.parametrize("place", range(3))
def test_one_cut_figure_is_explained(table, place):
    texts = [in_millions(params_of(n), at == place) for at, n in enumerate(SIZES)]
    mine, _ = judge_sizes(table, texts)
    expected = ["reproduced"] * len(SIZES)
    expected[place] = "explained"
    assert [verdict for verdict, _ in mine] == expected
    assert mine[place][1].endswith(f" prints {texts[place]} cut off")


def test_other_numbers_have_no_rule(table):
    mine, _ = judge_sizes(table, [in_millions(params_of(n) + 7 * 10**6, False) for n in SIZES])
    assert [verdict for verdict, _ in mine] == ["no rule found"] * len(SIZES)


def test_one_printed_number_has_one_explanation():
    found = {}
    for name in published.names():
        for cell in judged(name):
            if cell.printed not in EMPTY and cell.figure.quantity == "macs":
                cut = cell.figure.truncated or "cut off" in cell.because
                found.setdefault((cell.row.target, cell.printed), set()).add((cut, "(" in cell.because))
    assert found["moa-8K8E128D", "628M"] == {(True, False)}
    # numbers that also print when they are rounded may stand in a table that cuts digits off
    assert all(len({explained for _, explained in one}) == 1 for one in found.values())


@pytest.mark.parametrize(
    "target, printed, change",
    [
        ("moa-8K8E128D", 'params = "62M"', "62.92M prints 62M cut off"),
        ("llama3-8b,seq_len=1024", 'macs = "7.95T"', "7.9596T prints 7.95T cut off"),
        ("llama3-8b,seq_len=8192", 'macs = "9.65G"', "the column headed MACs holds MACs per token, 9.6521G"),
        (
            "llama3-8b,seq_len=1024,batch_size=3",
            'macs = "7.96T"',
            "the column headed MACs holds MACs per sample, 7.9596T",
        ),
        ("llama3-8b,seq_len=1024", 'macs = "15.92T"', "the column headed MACs holds FLOPs, 15.9193T"),
    ],
)
def test_one_change_of_the_rule_is_tried(table, target, printed, change):
    _, sections, _ = table(f'[[row]]\ntarget = "{target}"\nprinted = {{ {printed} }}\n')
    (row,) = sections[0]["rows"]
    assert row["verdict"] == "explained" and change in row["because"]


SAMPLES, BASE_T = 3, 7
BASE = 512 * 512
TRANSLATION = BASE_T * (6 * (4 + 8) * BASE + 6 * (8 + 8) * BASE + 512 * 32000) + 18 * 2 * BASE_T * BASE_T * 512
"""MACs of one sentence by transformer-base: 18 attentions, 12 feed-forward blocks of width 2,048, the vocabulary."""


@pytest.mark.parametrize("name, times", [("macs", 1), ("flops", 2)])
@pytest.mark.parametrize(
    "target, macs, tokens",
    [
        (f"llama2-7b,T={T},B={SAMPLES}", SAMPLES * (T * WEIGHTS + L * 2 * T * T * D), SAMPLES * T),
        (f"transformer-base,T={BASE_T},B={SAMPLES}", SAMPLES * TRANSLATION, SAMPLES * BASE_T),
        ("model.py:decoder", 3 * 5 * 7 * (7 + 11) + 3 * 2 * 5 * 5 * 7, 15),
    ],
)
def test_cost_of_a_token_and_of_a_sample(table, target, macs, tokens, name, times):
    for share, over in (("token", tokens), ("sample", SAMPLES)):
        value = Fraction(times * macs, over)
        digits = f"{float(value):.2f}"
        text = f'target,quantity,printed\n"{target}",{name}_per_{share},%s\n'
        answer = table(text % digits, name="mine.csv")
        assert verdicts(answer) == ["reproduced"], answer
        assert verdicts(table(text % f"{float(value) + 0.02:.2f}", name="mine.csv")) == ["no rule found"]
        # the whole cost in its place is named
        (row,) = table(text % f"{times * macs}", name="mine.csv")[1][0]["rows"]
        whole = f"holds {'MACs' if name == 'macs' else 'FLOPs'},"
        assert row["verdict"] == "explained" and whole in row["because"]


def test_cost_of_a_token_is_a_rule_of_a_table(table):
    text = f'rule = "macs_per_token"\n[[row]]\ntarget = "llama2-7b,T={T}"\nprinted = "{WEIGHTS + L * 2 * T * D}"\n'
    assert verdicts(table(text)) == ["reproduced"]


def test_images_have_no_tokens(table):
    code, _, err = table("target,quantity,printed\ndit-s2,macs_per_token,1G\n", name="mine.csv")
    assert code == 2 and "macs_per_token: the input of dit-s2 has no tokens" in err


def test_no_rule_has_the_name_of_a_tool():
    # what a tool prints depends on the calls of a module, which a closed form does not have
    assert not {*RULES} & {*registry.tools(), "fvcore", "ptflops", "torchinfo", "thop", "calflops"}


@pytest.mark.parametrize("name", ["N", "macs", "d_model"])
def test_names_of_quantities_and_sizes_cannot_be_given(table, name):
    for text in (f"{ROW}printed = 1\ngiven = {{ {name} = 7 }}\n", f"given = {{ {name} = 7 }}\n{ROW}printed = 1\n"):
        code, sections, err = table(text)
        assert (code, sections) == (2, []) and f"given cannot have '{name}': quantities and sizes follow" in err
    for figure in (
        f'name = "{name}"\nhead = "x"',
        'name = "x"\nhead = "MACs"',
        'name = "x"\nhead = "active parameters"',
    ):
        code, sections, err = table(f'[[figure]]\n{figure}\nvalue = "1"\n{ROW}printed = 1\n')
        assert (code, sections) == (2, []) and "a figure cannot be " in err


def test_papers_rows_with_a_model_give_no_quantity():
    for name in published.figure_names():
        assert not [row.name for row in published.load(name).rows if row.target and row.given.keys() & LETTERS.keys()]


@pytest.mark.parametrize(
    "wrong, message",
    [
        ('target = "llama-7b"\nprinted = 1', "unknown target 'llama-7b'"),
        ('target = "model.py:mkae"\nprinted = 1', "has no function mkae; it has decoder, make"),
        ('target = "model.py:make"\nprinted = { mac = 1 }', "unknown quantity 'mac'"),
        ('target = "model.py:make"\nprinted = 1\ninput = "1,x"', "it takes [NAME=]SIZES[:DTYPE]"),
    ],
)
def test_wrong_name_in_any_row_ends_before_a_count(table, monkeypatch, wrong, message):
    monkeypatch.setattr("headcount.bench.macs.own_models.count", lambda *_, **__: pytest.fail("a model was counted"))
    code, sections, err = table(f'[[row]]\ntarget = "model.py:make"\nprinted = 105\n\n[[row]]\n{wrong}\n')
    assert (code, sections) == (2, []) and message in err and err.count("error:") == 1


def test_model_that_fails_leaves_the_others(table, tmp_path):
    (tmp_path / "paper" / "other.py").write_text(MODULE + "def wrong(): return nn.Linear(7, 5), (torch.ones(3, 8),)\n")
    targets = ("model.py:make,n=11", "other.py:wrong", "model.py:Decoder,is_causal=true", "llama2-7b")
    text = "\n".join(["target,quantity,printed", *(f'"{target}",params,55' for target in targets)])
    code, sections, err = table(text, name="mine.csv")
    rows = sections[0]["rows"]
    verdicts = ["reproduced", "not counted", "not counted", "no rule found"]
    assert (code, [row["verdict"] for row in rows]) == (2, verdicts)
    assert [row["row"] for row in rows] == list(targets)
    assert "mat1 and mat2 shapes" in rows[1]["because"] and rows[1]["value"] is None
    # a table has no option for inputs
    assert "--" not in rows[2]["because"] and '"1,3,224,224" in a column input' in rows[2]["because"]
    assert "mine.csv: line 3:" in err and "mine.csv: line 4:" in err


CONFIG_PARAMS = 2 * (2 * 24 * 24 + 2 * 24 * 12 + 3 * 24 * 32 + 2 * 24) + 2 * 53 * 24 + 24
"""Parameters of the configuration LLAMA."""
PER_PARAM = '[[figure]]\nname = "x"\nhead = "x"\nvalue = "macs / (N - c)"\n'
"""The MACs of a parameter, of all but c."""


@pytest.mark.parametrize("target, c", [("model.py:empty", 0), ("llama2-7b", PARAMS), ("config.json", CONFIG_PARAMS)])
@pytest.mark.parametrize("options", [[], ["--find-rule"]])
def test_number_that_divides_by_0_costs_its_row(table, tmp_path, options, target, c):
    if target == "config.json":
        pytest.importorskip("transformers", reason="the optional extra hf is not installed")
        write(tmp_path / "paper", LLAMA)
    (tmp_path / "paper" / "model.py").write_text(MODULE + "def empty(): return nn.ReLU(), (torch.ones(3),)\n")
    rows = [("model.py:make", 0, 3), (target, c, 7), ("model.py:make,n=11", 0, 3)]
    text = "".join(
        f'[[row]]\ntarget = "{name}"\nset = {{ {"T = 5" if "." not in name or "json" in name else ""} }}\n'
        f'given = {{ c = {c} }}\nprinted = {{ x = "{printed}" }}\n'
        for name, c, printed in rows
    )
    code, sections, err = table(PER_PARAM + text, *options)
    assert code == 2 and "mine.toml: line 10: 'macs / (N - c)' divides by 0" in err and "error:" not in err
    if options:
        assert sections[0]["rows"][0]["prints"] == 2
    else:
        assert verdicts((code, sections)) == ["reproduced", "not counted", "reproduced"]
    # where no row has a number
    code, sections, err = table(PER_PARAM + "[[row]]" + text.split("[[row]]")[2], *options)
    assert (code, sections) == (2, []) and err.count("\n") == 1 and "divides by 0" in err


@pytest.mark.parametrize("options", [[], ["--find-rule"]])
def test_printed_formula_that_divides_by_0_costs_its_row(table, options):
    figure = '[[figure]]\nname = "x"\nhead = "x"\nvalue = "N"\nformula = true\n'
    rows = [f"{ROW}given = {{ a = {PARAMS}, b = {b} }}\nprinted = {{ x = 'a / b' }}\n" for b in (1, 0)]
    code, sections, err = table(figure + "".join(rows), *options)
    assert code == 2 and "mine.toml: line 10: 'a / b' divides by 0" in err
    first = sections[0]["rows"][0]
    assert first.get("verdict", "reproduced") == "reproduced" and first.get("prints", 1) == 1


@pytest.mark.parametrize("options", [[], ["--find-rule"]])
def test_rule_that_divides_by_0_is_not_tried(table, options):
    figure = '[[figure]]\nname = "x"\nhead = "x"\nvalue = "10**15 / (macs - c)"\n'
    row = f"{ROW}set = {{ seq_len = {T} }}\ngiven = {{ c = {T * WEIGHTS} }}\nprinted = {{ x = 9 }}\n"
    code, sections, _ = table(figure + row, *options)
    assert code == 0 and "projections " not in json.dumps(sections)


@pytest.mark.parametrize(
    "value, given",
    [
        ("(1/2)**(10**10)", ""), ("(0-N)**(1/2)", ""), ("+".join(["N"] * 900), ""), ("N/(N - N)", ""),
        ("y", 'y = "1E999999999"'), ("y", "y = inf"), ("y", 'y = "1/0"'),
        ("*".join(f"y{n}" for n in range(40)), ",".join(f"y{n} = 1.5" for n in range(40))),
    ],
    ids=lambda text: text[:9],
)  # fmt: skip
def test_figure_that_never_ends_is_one_line(table, value, given):
    figure = f'[[figure]]\nname = "x"\nhead = "x"\nvalue = "{value}"\n'
    code, sections, err = table(f'{figure}{ROW}given = {{ {given} }}\nprinted = {{ x = "3" }}\n')
    assert (code, sections) == (2, []) and err.count("\n") == 1


def figure_row(value, printed, given=""):
    """Return a table of a figure of the user's and a row of LLaMA-2 7B."""
    figure = f'[[figure]]\nname = "x"\nhead = "x"\nvalue = "{value}"\n'
    return f'{figure}{ROW}set = {{ seq_len = {T} }}\ngiven = {{ {given} }}\nprinted = {{ x = "{printed}" }}\n'


# a layer of two projections of K experts, keys and values, the router; both products
LAYER_MACS = 13 * (2 * 2 * 11 * 7 + 2 * 11 * 7 + 11 * 5) + 2 * 2 * 13 * 13 * 7
LAYER_PARAMS = 2 * 5 * 11 * 7 + 2 * 11 * 7 + 11 * 5
LAYER = '[[row]]\ntarget = "moa:K=2,E=5,D=7,d_m=11'
JUDGED = {
    "an expression": (figure_row("macs / N", f"{(T * WEIGHTS + L * 2 * T * T * D) / PARAMS:.1f}"), "reproduced"),
    "a rounded input of 0": (figure_row("N * 0 + c", 3, "c = 0.0"), "no rule found"),
    "a negative rounded input": (figure_row("N * 0 + c", 3, "c = -0.5"), "no rule found"),
    # by the rule projections, and in FLOPs
    "two changes": (f'{ROW}set = {{ seq_len = {T} }}\nprinted = "{2 * T * WEIGHTS}"\n', "no rule found"),
    "a layer with lengths": (f'{LAYER}"\nset = {{ T = 13, B = 3 }}\nprinted = "{3 * LAYER_MACS}"\n', "reproduced"),
    "a layer's MACs": (f'{LAYER},T=13"\nprinted = "{LAYER_MACS}"\n', "reproduced"),
    "a layer's parameters": (f'{LAYER},T=13"\nprinted = {{ params = "{LAYER_PARAMS}" }}\n', "reproduced"),
    "a length by its letter": (
        f'rule = "palm"\n[[row]]\ntarget = "llama2-7b,T={T}"\nprinted = "{6 * PARAMS + 12 * L * D * T}"\n',
        "reproduced",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", JUDGED)
def test_verdict_of_a_row(table, what):
    text, verdict = JUDGED[what]
    assert verdicts(table(text)) == [verdict]


def test_rules_tried_know_the_tables_of_a_module(table):
    # a table of 11 x 7, a square of 7 and the output of 7 x 11
    code, sections, _ = table("target,quantity,printed\nmodel.py:decoder,params,126\n", name="mine.csv")
    (row,) = cells(sections).values()
    assert (code, row["verdict"]) == (0, "explained")
    assert "all without embeddings gives 126" in row["because"]


LLAMA_MACS = {length: length * WEIGHTS + L * 2 * length * length * D for length in (1024, 2048)}
"""MACs of LLaMA-2 7B by sequence length."""


def csv_of(*lines, header="target,quantity,printed"):
    return "\n".join((header, *lines))


@pytest.mark.parametrize("rule", ["flops", "params", "palm", "projections"])
def test_rule_of_no_column_is_refused(table, rule):
    rows = csv_of("llama2-7b,params,6.74B", *(["llama2-7b,macs,7T"] if rule != "projections" else []))
    code, sections, err = table(rows, "--rule", rule, name="mine.csv")
    assert (code, sections) == (
        2,
        [],
    ) and f"mine.csv: the rule '{rule}' changes no number: the rows print params" in err
    # that of the file too
    code, _, err = table(f'rule = "{rule}"\n{ROW}printed = {{ params = "6.74B" }}\n')
    assert code == 2 and "changes no number" in err


@pytest.mark.parametrize("options", [["--flops"], ["--unit", "M"], ["--find-rule", "--rule", "palm"]])
def test_option_without_effect_is_refused(table, options):
    code, _, err = table(csv_of("llama2-7b,macs,7T"), *options, name="mine.csv")
    assert code == 2 and f"{options[-2] if len(options) > 1 else options[0]} does not go with" in err


def test_parameters_need_no_length(table, tmp_path):
    pytest.importorskip("transformers", reason="the optional extra hf is not installed")
    write(tmp_path / "paper", LLAMA)
    weights = 2 * (2 * 24 * 24 + 2 * 24 * 12 + 3 * 24 * 32) + 53 * 24
    params = weights + (0 if LLAMA.get("tie_word_embeddings") else 53 * 24) + 5 * 24
    text = '[[row]]\ntarget = "config.json"\nprinted = {{ params = {}{} }}\n'
    for options in ([], ["--find-rule"]):
        code, sections, err = table(text.format(params, ", macs = 7"), *options)
        assert code == 2 and 'config.json needs a length; write the target "config.json,T=1024"' in err
        assert not sections
        code, sections, _ = table(text.format(params, ""), *options)
        first = sections[0]["rows"][0]
        assert first.get("verdict", "reproduced") == "reproduced" and first.get("prints", 1) == 1


def test_parameters_of_a_layer_need_no_length(table):
    assert verdicts(table(f'{LAYER}"\nprinted = {{ params = "{LAYER_PARAMS}" }}\n')) == ["reproduced"]
    code, _, err = table(f'{LAYER}"\nprinted = {{ macs = "{LAYER_MACS}" }}\n')
    assert code == 2 and 'needs a length; write the target "moa' in err
    # one that is wrong is named
    code, _, err = table(f'{LAYER},T=0"\nprinted = {{ params = "{LAYER_PARAMS}" }}\n')
    assert code == 2 and "at least 1, not 0" in err
    code, _, err = table('[[row]]\ntarget = "mha:h=7,d_m=512"\nprinted = { params = 1 }\n')
    assert code == 2 and "7 does not divide 512" in err


def test_length_before_the_first_comma_is_that_of_a_layer(table):
    text = '[[row]]\ntarget = "moa:T=13,K=2,E=5,D=7,d_m=11"\nprinted = "%s"\n'
    _, sections, _ = answer = table(text % LAYER_MACS)
    assert verdicts(answer) == ["reproduced"]
    assert not any("has its own" in text for text in sections[0]["below"])


def test_configuration_that_is_no_object_is_named(table, tmp_path):
    (tmp_path / "paper" / "config.json").write_text("[]")
    code, sections, err = table(csv_of("config.json,params,7"), name="mine.csv")
    assert (code, sections) == (2, []) and "line 2: " in err and "holds a list, no JSON object" in err


@pytest.mark.parametrize("text, printed", [
    ("T MACs", 12), ("TMACs", 12), (" T", 12), (" trillion", 12), ("E3 GMACs", 12), (" TMAC", 12),
])  # fmt: skip
def test_units_of_papers_are_read(table, text, printed):
    number = f"{LLAMA_MACS[1024] / 10**printed:.3f}"
    for sign in ("", "~"):
        answer = table(csv_of(f'"llama2-7b,T=1024",macs,{sign}{number}{text}'), name="mine.csv")
        assert verdicts(answer) == ["reproduced"]
    assert verdicts(table(csv_of(f'"llama2-7b,T=1024",macs,{number}1{text}'), name="mine.csv")) != ["reproduced"]


@pytest.mark.parametrize("quantity, printed, of", [
    ("macs", "4.5 GFLOPs", "FLOPs"), ("flops", "4.5 GMACs", "MACs"), ("params", "4.5G MACs", "MACs"),
    ("macs_per_token", "12%", "%"), ("active_params", "4 GFLOPS", "FLOPs"), ("macs", "4M params", "parameters"),
    ("macs", "4 KB", "bytes"), ("kv_token_bytes", "4K elements", "elements"), ("kv_elements", "4 MiB", "bytes"),
])  # fmt: skip
def test_unit_of_another_quantity_is_refused(table, quantity, printed, of):
    code, _, err = table(csv_of(f"llama2-7b,{quantity},{printed}"), name="mine.csv")
    assert code == 2 and f"line 2: printed '{printed}' is in {of}, and {quantity} in " in err


def test_comma_is_no_decimal_point(table):
    code, _, err = table("target;quantity;printed\nllama2-7b;params;6,74B", name="mine.csv")
    assert code == 2 and "printed '6,74B' is no number" in err


def test_all_wrong_cells_are_named_at_once(table):
    rows = csv_of("llama2-7b,macs,six", "llama2-7b,macs", "llama2-7,params,7B", "llama2-7b,parms,7B")
    code, sections, err = table(rows, name="mine.csv")
    assert (code, sections) == (2, []) and err.count("error:") == 1
    lines = [text.partition("mine.csv: ")[2] for text in err.splitlines() if "mine.csv" in text]
    assert lines == sorted(lines)
    twice = table(csv_of("none,params,7B", "any,params,7B"), name="mine.csv")[2]
    assert "line 2: unknown target 'none'\n" in twice and "line 3: unknown target 'any'; a preset" in twice
    for line, text in {
        2: "printed 'six' is no number", 3: "2 cells", 4: "unknown target 'llama2-7'; a preset (did you mean llama2-7b",
        5: "unknown quantity 'parms'; did you mean params?",
    }.items():  # fmt: skip
        assert f"mine.csv: line {line}: {text}" in err
    code, _, err = table(f'{ROW}printed = {{ macs = "x", params = "y" }}\n')
    assert "line 1: printed 'x'" in err and "line 1: printed 'y'" in err


MACS_IN_G = f"{LLAMA_MACS[1024] / 10**9:.0f}"


@pytest.mark.parametrize("name, text", {
    "mine.csv": f'printed;Quantity; TARGET\n{MACS_IN_G}G;MACs;llama2-7b,T=1024\n6.74B;Params;llama2-7b',
    "tabs.csv": f'Model\tGMACs\tParameters\nllama2-7b,T=1024\t{MACS_IN_G}\t6.74B',
    "wide.csv": f'params (B),model,MACs (G)\n6.74,"llama2-7b,T=1024",{MACS_IN_G}',
    "bare.csv": f'Method,macs,#param.\nllama2-7b,T=1024,B=1,{MACS_IN_G}G,6.74B',
    "words.csv": f'Model,MAC,Parameter\nllama2-7b,T=1024,{MACS_IN_G}G,6.74B',
    "layers.csv": f'Layer,macs,params\n"llama2-7b,T=1024",{MACS_IN_G}G,6.74B',
    "nets.csv": f'Backbone,Model,macs,params\nmine,"llama2-7b,T=1024",{MACS_IN_G}G,6.74B',
    "gaps.csv": f'model,macs,params\n"llama2-7b,T=1024",{MACS_IN_G}G,\n\nllama2-7b,,6.74B',
    "paper.md": f'# A\n\n| Model | MACs [G] | #Params |\n|:--|--:|---|\n| **llama2-7b,T=1024** | {MACS_IN_G} | 6.74B |',
}.items())  # fmt: skip
def test_tables_are_read_as_papers_have_them(table, name, text):
    code, sections, _ = table(text, name=name)
    found = {row["figure"]: row["verdict"] for row in sections[0]["rows"]}
    assert (code, found) == (0, {"MACs": "reproduced", "parameters": "reproduced"})


@pytest.mark.parametrize("header, message", [
    ("a,b", "the header is 'a,b'; it must be target,quantity,printed, or the target and its quantities, as model,"),
    ("model", "the header is 'model'"), ("model,model,macs", "the header is"),
    ("model,mcas", "unknown quantity 'mcas' in the header; did you mean macs? choose from"),
])  # fmt: skip
def test_wrong_header_is_named(table, header, message):
    code, _, err = table(f"{header}\n1,2\n", name="mine.csv")
    assert code == 2 and f"mine.csv: line 1: {message}" in err


def test_table_without_rows_is_named(table):
    assert "mine.csv: line 1: the header is all there is" in table("model,macs\n", name="mine.csv")[2]


def test_standard_input_is_a_table(monkeypatch, capsys):
    text = csv_of("llama2-7b,params,6.74B", "llama2-7b,params,six")
    for lines, code in ((2, 0), (3, 2)):
        content = "\n".join(text.split("\n")[:lines]).encode()
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
        assert main(["table", "-"]) == code
    out, err = capsys.readouterr()
    assert "1 reproduced" in out and "stdin: line 3: printed 'six'" in err


@pytest.mark.parametrize("name", ["paper.txt", "/dev/stdin", "paper"])
def test_file_of_another_kind_names_header(name, capsys):
    assert main(["table", name]) == 2
    err = capsys.readouterr().err
    assert "FILE.csv" in err and "target,quantity,printed" in err and "llama3-table4" not in err


def test_unknown_target_has_its_advice(table):
    code, _, err = table(csv_of("swin-t,params,29M"), name="mine.csv")
    assert code == 2 and "headcount table --list" in err and "FILE.py:FUNCTION" in err


def test_column_without_unit_is_in_one(table):
    rows = [f'"llama2-7b,T={length}",macs,{macs / 10**9:.0f}' for length, macs in LLAMA_MACS.items()]
    _, sections, _ = answer = table(csv_of(*rows), name="mine.csv")
    assert verdicts(answer) == ["reproduced"] * 2
    assert sections[0]["below"][-2] == f"MACs are printed in G: {MACS_IN_G} is {MACS_IN_G}G."
    assert sections[0]["rows"][0]["printed"] == MACS_IN_G
    # a number of another unit than the column is named
    _, others, _ = wrong = table(csv_of(*rows, '"llama2-7b,T=1024",macs,7.04'), name="mine.csv")
    assert verdicts(wrong) == ["reproduced"] * 2 + ["explained"]
    assert "; 7.04G (llama2-7b,T=1024) should be 7.04T." in others[0]["below"][-1]
    _, sections, _ = table(csv_of(*rows), "--find-rule", name="mine.csv")
    assert sections[0]["rows"][0]["prints"] == 2


def test_every_digit_has_no_unit(table):
    (row,) = table(csv_of(f"llama2-7b,params,{PARAMS * 7 // 1000}"), name="mine.csv")[1][0]["rows"]
    assert row["verdict"] == "no rule found" and row["value"] == f"{PARAMS:,}"
    assert row["because"].startswith("the rule gives 142.8571 times the printed number")


def test_find_rule_names_rows_and_goes_on(table):
    rows = [f"model.py:make,n={n},params,{5 * n + (n == 11)}" for n in (7, 11, 13, 17)]
    code, sections, err = table(
        csv_of(*rows, "model.py:Decoder,is_causal=true,params,3"), "--find-rule", name="mine.csv"
    )
    best, *_ = sections[0]["rows"]
    assert best["prints"] == 3 and best["missed"] == ["model.py:make,n=11: 56 printed, 55 by the rule"]
    assert "Not printed by all: model.py:make,n=11: 56 printed, 55 by the rule." in sections[0]["below"]
    assert code == 2 and "mine.csv: line 6:" in err and "mine.csv: line 6:" not in sections[0]["below"][0]


def test_note_of_a_length_names_its_rows(table):
    lines = ['"llama2-7b,T=1024",macs,7T', "dit-b4,macs,5.6G"]
    _, sections, _ = table(csv_of(*lines), name="mine.csv")
    assert "T = 1,024 of llama2-7b,T=1024." in sections[0]["below"][0]
    assert "T = 1,024." in table(csv_of(lines[0]), name="mine.csv")[1][0]["below"][0]


UP = [n for n in range(4, 33) if 0 < params_of(n) % 10**6 < 500_000][:3]
"""Numbers of layers of which rounding and rounding up print different millions of parameters."""


@pytest.mark.parametrize("more, expected", [
    ((1, 1, 1), "explained"),
    # one number, the rest rounded down: no rule of the column
    ((1, 0, 0), "no rule found"), ((1, 1, 0), "no rule found"),
    # more than a digit too large
    ((1, 1, 2), "no rule found"),
])  # fmt: skip
def test_column_is_rounded_up_as_a_whole(table, more, expected):
    texts = [f"{params_of(n) // 10**6 + digits}M" for n, digits in zip(UP, more, strict=True)]
    rows = csv_of(*(f'"llama2-7b,num_layers={n}",params,{text}' for n, text in zip(UP, texts, strict=True)))
    found = verdicts(table(rows, name="mine.csv"))
    assert found[0] == expected
    _, sections, _ = table(rows, "--find-rule", name="mine.csv")
    assert (sections[0]["rows"][0]["rule"] == "all, digits rounded up") is (expected == "explained")


def test_few_numbers_are_not_rounded_up(table):
    two = [f'"llama2-7b,num_layers={n}",params,{params_of(n) // 10**6 + 1}M' for n in UP[:2]]
    assert verdicts(table(csv_of(*two), name="mine.csv")) == ["no rule found"] * 2
    for digits, verdict in ((0, "reproduced"), (1, "no rule found"), (-1, "no rule found")):
        text = f"{params_of(UP[0]) // 10**6 + digits}M"
        rows = csv_of(*[f'"llama2-7b,num_layers={UP[0]}",params,{text}'] * 2)
        assert verdicts(table(rows, name="mine.csv")) == [verdict] * 2


def flops_column(*cells, head="flops"):
    """Return a table of LLaMA-2 7B with a row for each sequence length and printed number."""
    return csv_of(*(f'"llama2-7b,T={length}",{text}' for length, text in cells), header=f"model,{head}")


def cut(value, places=1):
    return f"{value * 10**places // 10**12 / 10**places:.{places}f}T"


def macs_at(length):
    return length * WEIGHTS + L * 2 * length * length * D


def rounded(value, places=1):
    return cut(value + 5 * 10 ** (11 - places), places)


def lengths_with(first, last):
    """Return lengths whose MACs in T have a second decimal in this range: below 5 both ways print one number."""
    return [n for n in range(512, 4096, 64) if first <= macs_at(n) // 10**10 % 10 <= last]


BOTH, TELL = lengths_with(1, 3)[:4], lengths_with(6, 8)[:4]


@pytest.mark.parametrize("others", [0, 3])
def test_cost_of_another_unit_may_be_cut_off(table, others):
    # alone, and where the whole column is known to hold MACs
    numbers = [*((n, rounded(macs_at(n))) for n in BOTH[:others]), (TELL[0], cut(macs_at(TELL[0])))]
    _, sections, _ = answer = table(flops_column(*numbers), name="mine.csv")
    assert verdicts(answer) == ["explained"] * len(numbers)
    because = sections[0]["rows"][-1]["because"]
    assert "the column headed FLOPs holds MACs, " in because
    assert because.endswith(f" prints {cut(macs_at(TELL[0]))} cut off")


def test_cost_of_a_token_may_be_cut_off(table):
    # one row by the rule and one per token: the column does not hold costs of a token as a whole
    length = next(n for n in range(512, 4096, 64) if macs_at(n) // n // 10**6 % 10 > 6)
    text = f"{macs_at(length) // length // 10**7 / 100:.2f}G"
    numbers = [(BOTH[0], rounded(macs_at(BOTH[0]))), (BOTH[1], rounded(macs_at(BOTH[1]))), (length, text)]
    _, sections, _ = answer = table(flops_column(*numbers, head="macs"), name="mine.csv")
    assert verdicts(answer) == ["reproduced"] * 2 + ["explained"]
    assert "holds MACs per token, " in sections[0]["rows"][-1]["because"]
    assert sections[0]["rows"][-1]["because"].endswith(f"prints {text} cut off")


def test_wrong_number_is_compared_with_what_the_column_holds(table):
    wrong = rounded(macs_at(BOTH[2]) * 102 // 100)
    numbers = [*((n, rounded(macs_at(n))) for n in BOTH[:2]), (BOTH[2], wrong)]
    _, sections, _ = answer = table(flops_column(*numbers), name="mine.csv")
    assert verdicts(answer) == ["explained"] * 2 + ["no rule found"]
    ratio = macs_at(BOTH[2]) / 10**12 / float(wrong[:-1])
    assert 0.9 < ratio < 1
    because = sections[0]["rows"][-1]["because"]
    assert because.startswith("the column headed FLOPs holds MACs, ") and f", {ratio:.4f} times the printed" in because
    # where most numbers are FLOPs the rule of the column is compared
    numbers = [*((n, rounded(2 * macs_at(n))) for n in BOTH[:2]), (BOTH[2], wrong)]
    (*_, row) = table(flops_column(*numbers), name="mine.csv")[1][0]["rows"]
    assert row["because"].startswith(f"the rule gives {2 * ratio:.4f} times")


@pytest.mark.parametrize("cuts, both, wrong, rounds, whole", [
    (3, 0, 0, 0, True), (3, 2, 1, 0, True), (4, 0, 3, 0, True),
    # too few that tell the two apart, one that is rounded, or as many wrong ones
    (2, 4, 0, 0, False), (1, 1, 1, 0, False), (3, 0, 0, 1, False), (3, 0, 3, 0, False),
])  # fmt: skip
def test_column_is_cut_off_where_three_numbers_tell(table, cuts, both, wrong, rounds, whole):
    numbers = [(n, cut(macs_at(n))) for n in TELL[:cuts]]
    numbers += [(n, cut(macs_at(n))) for n in BOTH[:both]]
    numbers += [(n, cut(macs_at(n) * 7 // 5 + 7 * 10**10)) for n in BOTH[:wrong]]
    numbers += [(n, rounded(macs_at(n))) for n in TELL[3 : 3 + rounds]]
    _, sections, _ = answer = table(flops_column(*numbers, head="macs"), name="mine.csv")
    of_cut = "reproduced" if whole else "explained"
    assert (
        verdicts(answer)
        == [of_cut] * cuts + ["reproduced"] * both + ["no rule found"] * wrong + ["reproduced"] * rounds
    )
    assert any("truncated to the printed digits" in text for text in sections[0]["below"]) is whole


def test_one_mistake_has_one_verdict(table):
    # the same cut number among right ones, and beside a wrong one
    number = (TELL[0], cut(macs_at(TELL[0])))
    others = [(TELL[1], rounded(macs_at(TELL[1])))], [(BOTH[0], rounded(macs_at(BOTH[0]) * 3)), (BOTH[1], "9.9T")]
    for numbers in others:
        answer = table(flops_column(number, *numbers, head="macs"), name="mine.csv")
        assert verdicts(answer)[0] == "explained"


def test_table_states_that_digits_are_cut_off(table):
    text = f'[[figure]]\nquantity = "macs"\ntruncated = true\n{ROW}set = {{ T = {TELL[0]} }}\nprinted = "%s"\n'
    assert verdicts(table(text % cut(macs_at(TELL[0])))) == ["reproduced"]
    assert verdicts(table(text % rounded(macs_at(TELL[0])))) == ["explained"]


def test_column_that_holds_macs_says_no_more(table):
    numbers = [(n, rounded(macs_at(n))) for n in BOTH[:2]]
    (row, _) = table(flops_column(*numbers), name="mine.csv")[1][0]["rows"]
    by_rule, macs = 2 * macs_at(BOTH[0]) / 10**12, macs_at(BOTH[0]) / 10**12
    expected = f"by the rule {by_rule:.3f}T; the column headed FLOPs holds MACs, {macs:.3f}T"
    assert (row["verdict"], row["because"]) == ("explained", expected)


@pytest.mark.parametrize("head, name", [("Name", "A"), ("Method", "B"), ("Model", "C")])
def test_columns_of_a_paper_are_not_judged(table, head, name):
    text = f'{head},Target,image size,#Params,Acts (M),top-1\n{name},llama2-7b,224²,6.74B,"1,500",81.3\n'
    for options in ([], ["--find-rule"]):
        code, sections, _ = table(text, *options, name="mine.csv")
        assert code == 0 and "Not judged, as no quantities: image size, Acts (M), top-1." in sections[0]["below"]
    _, sections, _ = answer = table(text, name="mine.csv")
    assert verdicts(answer) == ["reproduced"] and sections[0]["rows"][0]["row"] == name
    markdown = f"| {head} | Target | image size | #param. |\n|--|--|--|--|\n| {name} | llama2-7b | 224² | 6.74B |\n"
    _, sections, _ = answer = table(markdown, name="mine.md")
    assert verdicts(answer) == ["reproduced"] and sections[0]["rows"][0]["row"] == name


@pytest.mark.parametrize("head, number, name", [
    ("GMACs/token", LLAMA_MACS[1024] / 1024 / 1e9, "MACs per token"), ("Active parameters (B)", 6.738415616, "active"),
    ("MAC per token (G)", LLAMA_MACS[1024] / 1024 / 1e9, "MACs per token"), ("#Parameters (B)", 6.738415616, "param"),
    ("Total params (B)", 6.738415616, "param"), ("Total parameters", 6738415616, "param"),
    ("Number of parameters", 6738415616, "param"), ("# of params (B)", 6.738415616, "param"),
    ("Activated params (B)", 6.738415616, "active"), ("Total activated parameters [B]", 6.738415616, "active"),
    *((head, LLAMA_MACS[1024] / 1e9, "MACs") for head in ("Mult-Adds (G)", "GMAdds", "MAdds [G]", "Multi-adds (G)")),
    *((head, LLAMA_MACS[1024] / 5e8, "FLOPs") for head in ("Forward FLOPs (G)", "Forward GFLOPs", "FLOP [G]")),
    ("FLOPs / token (G)", LLAMA_MACS[1024] / 512 / 1e9, "FLOPs per token"),
])  # fmt: skip
def test_heads_of_papers_are_quantities(table, head, number, name):
    _, sections, _ = answer = table(f'model,{head}\n"llama2-7b,T=1024",{number:.3f}\n', name="mine.csv")
    assert verdicts(answer) == ["reproduced"] and sections[0]["rows"][0]["figure"].startswith(name)


@pytest.mark.parametrize("head", ["mcas", "parms", "flpos", "Params M", "mcs", "actve params"])
def test_column_near_to_a_quantity_is_a_slip(table, head):
    code, _, err = table(f"model,params,{head}\nllama2-7b,6.74B,7\n", name="mine.csv")
    assert code == 2 and f"line 1: unknown quantity {head!r} in the header" in err and "did you mean" in err


@pytest.mark.parametrize("head", ["Acts", "ms", "FPS", "epochs", "mem (GB)", "year", "AP", "test size"])
def test_other_heads_are_no_slips(table, head):
    assert table(f"model,params,{head}\nllama2-7b,6.74B,7\n", name="mine.csv")[0] == 0


def test_table_without_a_quantity_is_named(table):
    code, _, err = table("model,image size\nllama2-7b,224\n", name="mine.csv")
    assert code == 2 and "line 1: the header is 'model,image size'; it must be" in err
    for head in ("Param count (M)", "count of MACs", "paramz (M)"):
        err = table(f"model,image size,{head}\nllama2-7b,224,7\n", name="mine.csv")[2]
        name = "macs" if "MACs" in head else "params"
        assert "near to" not in err.replace(f"{head!r} is near to {name}", "") and head in err and name in err
    code, _, err = table("target,name,name,params\nllama2-7b,a,b,6.74B\n", name="mine.csv")
    assert code == 2 and "line 1: two columns are name" in err


def test_rows_of_one_model_have_inputs(table, tmp_path):
    (tmp_path / "paper" / "bare.py").write_text(
        "from torch import nn\ndef bare(): return nn.Linear(11, 7, bias=False)\n"
    )
    lines = ['A,bare.py:bare,"2,11",154', 'B,bare.py:bare,"3,11",231', 'C,bare.py:bare,"3,11",154']
    _, sections, _ = answer = table(csv_of(*lines, header="name,target,input,macs"), name="mine.csv")
    assert verdicts(answer) == ["reproduced", "reproduced", "no rule found"]
    rows = "".join(
        f'[[row]]\ntarget = "bare.py:bare"\ninput = "{n},11"\nprinted = {{ macs = {77 * n} }}\n' for n in (2, 3)
    )
    assert verdicts(table(rows)) == ["reproduced"] * 2


NAMES = {
    "swin_base_patch4_window12_384": 384, "vit_base_patch16_224": 224, "vit_tiny_patch8_distilled_512": 512,
    "regnety_160": 0, "swin_base_384": 0, "convnext_tiny": 0, "vit_base_patch16_160": 0, "resnet_152": 0,
}  # fmt: skip
"""Names of models, with the side of images that each says, 0 of none."""


@pytest.fixture
def library(tmp_path, monkeypatch):
    """An installed package whose models are not names of itself, and whose code must not run."""
    package = tmp_path / "installed" / "zoo"
    (package / "models").mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('imported')\nfrom .models.swin import create\n")
    (package / "models" / "swin.py").write_text("\n".join(f"def {name}(): pass" for name in NAMES))
    monkeypatch.syspath_prepend(tmp_path / "installed")
    monkeypatch.setattr("headcount.bench.targets.user_code.LIBRARIES", ("zoo",))


@pytest.mark.parametrize("target, what", [
    (f"{package}{name}", f"{words} {name!r}" if not package else f"{words} {name}")
    for package, words in (("zoo:", "zoo has no function"), ("", "unknown target")) for name in NAMES
])  # fmt: skip
def test_model_of_a_library_is_found(table, library, capsys, target, what):
    code, _, err = table(csv_of(f"{target},params,29M"), name="mine.csv")
    name = target.rpartition(":")[2]
    side = NAMES[name] or 224
    more = "" if NAMES[name] else " unless the paper says another size"
    advice = f'write zoo.models:{name}; its input is "1,3,{side},{side}" in a column input{more}, with --trust'
    assert code == 2 and f"line 2: {what}; {advice}" in err
    assert main(["count", target]) == 2
    assert f"write zoo.models:{name}; its input is --input 1,3,{side},{side}{more}\n" in capsys.readouterr().err
    # as papers write it
    as_printed = target.replace(name, name.title().replace("_", "-"))
    assert f"; {advice}" in table(csv_of(f"{as_printed},params,29M"), name="mine.csv")[2] or ":" in target
    # a name of the package itself is one, and a name that is nowhere has the general advice
    assert "zoo:create would run installed code" in table(csv_of("zoo:create,params,29M"), name="mine.csv")[2]
    assert "zoo.models" not in table(csv_of("swin_large,params,29M"), name="mine.csv")[2]


def test_length_of_all_rows_is_said_once(table, tmp_path):
    pytest.importorskip("transformers", reason="the optional extra hf is not installed")
    write(tmp_path / "paper", LLAMA)
    lines = ['"llama2-7b,T=5",macs,7', '"config.json,T=5",macs,7', '"moa:K=2,E=5,D=7,d_m=11,T=5",macs,7']
    quote = table(csv_of(*lines), name="mine.csv")[1][0]["below"][0]
    assert quote.endswith("; T = 5.")
    # the fewer are named: those that have a length, or those that have none
    quote = table(csv_of(*lines, "dit-b4,macs,7"), name="mine.csv")[1][0]["below"][0]
    assert quote.endswith("; T = 5 of all but dit-b4.")


def test_quantity_in_place_of_a_rule_is_explained(table):
    text = flops_column((BOTH[0], rounded(macs_at(BOTH[0]))))
    code, _, err = table(text, "--rule", "macs", name="mine.csv")
    assert code == 2 and "macs is no rule, but the quantity" in err and "headed macs" in err


def test_find_rule_shows_rules_that_print_rows(table):
    lines = ["llama2-7b,params,6.74B", f'"llama2-7b,T={BOTH[0]}",macs,{rounded(macs_at(BOTH[0]))}']
    _, sections, _ = table(csv_of(*lines, '"llama2-7b,T=1024",flops,9T'), "--find-rule", name="mine.csv")
    titles = [section["title"] for section in sections]
    assert [title.rpartition(", ")[2] for title in titles] == ["parameters", "MACs", "FLOPs"]
    # a dense model has as many active parameters
    assert [row["rule"] for row in sections[0]["rows"]] == ["all"]
    assert "1 other rule tried prints no row." in sections[0]["below"]
    assert all(row["prints"] for row in sections[1]["rows"])
    nearest = sections[2]["rows"]
    assert [row["prints"] for row in nearest] == [0] * 3
    off = [row["deviation"] for row in nearest]
    assert off == sorted(off)
    (note,) = [text for text in sections[2]["below"] if "other rules tried print no row" in text]
    assert int(note.split()[0]) > 20


def test_review_says_what_each_column_holds(table):
    wrong = rounded(macs_at(BOTH[2]) * 102 // 100)
    numbers = [*((n, rounded(macs_at(n))) for n in BOTH[:2]), (TELL[0], cut(macs_at(TELL[0]))), (BOTH[2], wrong)]
    lines = [f'{n},"llama2-7b,T={n}",{text},6.7B' for n, text in numbers]
    right = rounded(macs_at(BOTH[2]))
    expected = (
        "For a review: FLOPs: 3 of 4 hold MACs, 1 of 4 printed by no rule that was tried, "
        f"{cut(macs_at(TELL[0]))} ({TELL[0]}) cut off; {wrong} ({BOTH[2]}) should be {right}; "
        "parameters: all 4 reproduced."
    )
    text = csv_of(*lines, header="name,target,flops,params")
    assert table(text, name="mine.csv")[1][0]["below"][-1] == expected


def test_review_names_single_numbers_of_another_cost_or_length(table):
    # of four numbers under MACs one is twice too large, and one of another length
    doubled = rounded(2 * macs_at(BOTH[2]))
    numbers = [*((n, rounded(macs_at(n))) for n in BOTH[:2]), (BOTH[2], doubled), (BOTH[3], rounded(macs_at(512)))]
    _, sections, _ = answer = table(flops_column(*numbers, head="macs"), name="mine.csv")
    assert verdicts(answer) == ["reproduced"] * 2 + ["explained"] * 2
    assert sections[0]["below"][-1] == (
        f"For a review: MACs: 2 of 4 reproduced, 1 of 4 holds FLOPs, {rounded(macs_at(512))} (llama2-7b,T={BOTH[3]}) "
        f"counts exact at T = 512; {doubled} (llama2-7b,T={BOTH[2]}) should be {rounded(macs_at(BOTH[2]))}."
    )


# of one layer: queries and outputs of 3 of 4 heads, keys and values of all, T x T products of 3, routers
MOH_IDEAL = 512 * (2 * 32 * 3 * 8 + 2 * 32 * 32 + 2 * 512 * 3 * 8 + 5 * 32)


@pytest.mark.parametrize("target, macs, convention", [
    ("llama2-7b,T=999", 999 * WEIGHTS + L * 2 * (999 * 1000 // 2) * D, "causal pairs alone"),
    ("llama2-7b,T=999", 999 * PARAMS, "parameters times tokens"),
    ("moh:h=4,d_h=8,s=1,r=2,d_m=32,T=512", MOH_IDEAL, "the ideal form"),
])  # fmt: skip
def test_common_conventions_of_papers_are_tried(table, target, macs, convention):
    _, sections, _ = answer = table(csv_of(f'"{target}",{macs}', header="model,macs"), name="mine.csv")
    assert verdicts(answer) == ["explained"]
    assert f"counts MACs of {convention}" in sections[0]["below"][-1]
    assert verdicts(table(csv_of(f'"{target}",{macs + 1}', header="model,macs"), name="mine.csv")) == ["no rule found"]


# of all weights, and of those but the table of embeddings
ACTIVE, BARE = PARAMS, PARAMS - V * D


@pytest.mark.parametrize("head, mark", [
    ("Activated (B)", ""), ("Activated", "B"), ("Active (B)", ""), ("active", "B"), ("#Activated params", "B"),
    ("Activated parameters (B)", ""), ("Activated", ","),
])  # fmt: skip
def test_number_of_parameters_is_no_percentage_of_heads(table, head, mark):
    for number, name in ((ACTIVE, "active parameters"), (BARE, "without the embedding")):
        text = f'"{number:,}"' if mark == "," else f"{number / 10**9:.3f}{mark}"
        _, sections, _ = answer = table(f"model,{head}\nllama2-7b,{text}\n", name="mine.csv")
        # a head that says parameters is of all of them
        is_plain = "aram" in head and number == BARE
        assert verdicts(answer) == (["explained"] if is_plain else ["reproduced"])
        assert sections[0]["rows"][0]["figure"].endswith("active parameters" if is_plain else name)


def test_active_parameters_are_those_that_most_numbers_are(table):
    sizes = {n: n * (4 * D * D + 3 * D * F + 2 * D) + V * D + D for n in (2, 3, 5)}
    lines = [f'"llama2-7b,num_layers={n}",{size + (V * D if n == 2 else 0)}' for n, size in sizes.items()]
    text = csv_of(*lines, header="model,active")
    assert verdicts(table(text, name="mine.csv")) == ["explained", "reproduced", "reproduced"]
    # as many of both: all of them
    text = text.rpartition("\n")[0] if text.endswith("\n") else text
    assert verdicts(table(text.rpartition("\n")[0], name="mine.csv")) == ["reproduced", "explained"]


@pytest.mark.parametrize("target", [
    "moa:K=8,E=32,D=64,d_m=512,T=128", "moa-8K8E128D", "jetmoe-8b", "model.py:decoder", "model.py:make",
])  # fmt: skip
@pytest.mark.parametrize("head", ["activated", "shared"])
def test_percentage_of_heads_needs_heads(table, target, head):
    code, _, err = table(f'target,{head}\n"{target}",75%\n', name="mine.csv")
    assert code == 2 and err.count("mine.csv") == 1 and "line 2: " in err
    assert f"{head} is a percentage of heads, and {target.partition(',')[0]}" in err


@pytest.mark.parametrize("number", ["3.2B", "40M", "101", "1E9"])
def test_number_of_shared_parameters_is_refused(table, number):
    code, _, err = table(csv_of(f"llama2-7b,shared,{number}"), name="mine.csv")
    assert code == 2 and f"line 2: printed '{number}' is no percentage" in err


def test_percentage_of_heads_stays_one(table):
    lines = ["moh-llm-s-75,75%", "moh-llm-s-50,50", "llama2-7b,100"]
    assert verdicts(table(csv_of(*lines, header="model,Activated"), name="mine.csv")) == ["reproduced"] * 3
    code, _, err = table(csv_of(*lines, "llama2-7b,6.7B", header="model,Activated"), name="mine.csv")
    assert code == 2 and "line 5: printed '6.7B' is no percentage" in err


def test_number_below_the_last_digit_should_be_no_zero(table):
    below = table(csv_of("dit-b4,params,700B"), name="mine.csv")[1][0]["below"][-1]
    assert "should be 0" not in below and re.search(r"should be 1\d\d,\d{3},\d{3}", below)


BARE_MODULE = """
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 2, 1, bias=False)
    def forward(self, x):
        batch, channels, height, width = x.shape
        return self.conv(x)
def bare(): return Net()
def own(): return Net(), (__import__("torch").ones(1, 3, 5, 5),)
"""
"""A model of 6 parameters and 6 MACs for each pixel."""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """An installed package of bare modules, which writes a line for each that is made."""
    package = tmp_path / "installed" / "menagerie"
    package.mkdir(parents=True)
    log = tmp_path / "made"
    names = "".join(f"def m{n}():\n    open({str(log)!r}, 'a').write('m')\n    return Net()\n" for n in range(5))
    (package / "__init__.py").write_text(BARE_MODULE + names)
    monkeypatch.syspath_prepend(tmp_path / "installed")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "installed"))
    (tmp_path / "paper" / "bare.py").write_text(BARE_MODULE)
    return log


@pytest.mark.parametrize("text", ["1,3,4,4", "1×3×4×4", "1x3x4x4", "1 × 3 × 4 × 4", "1, 3, 4, 4", "1×3×4×4:float32"])
def test_sizes_of_an_input_are_read_as_papers_write_them(table, installed, text):
    lines = csv_of(f'bare.py:bare,"{text}",96', header="target,input,macs")
    assert verdicts(table(lines, name="mine.csv")) == ["reproduced"]
    row = f'[[row]]\ntarget = "bare.py:bare"\ninput = "{text}"\nprinted = {{ macs = 97 }}\n'
    assert verdicts(table(row)) == ["no rule found"]


@pytest.mark.parametrize("text", ["1×a", "1×3×", "a×3×224", "1,3,4,4:floats"])
def test_wrong_input_is_shown_whole(table, installed, text):
    code, _, err = table(csv_of(f'bare.py:bare,"{text}",96', header="target,input,macs"), name="mine.csv")
    assert code == 2 and f"line 2: input {text!r}: " in err and "column input" not in err


@pytest.mark.parametrize(("head", "cell"), [
    ("image size", "4"), ("Resolution", "4²"), ("img size", "4x4"), ("Input size", "4 × 4"), ("image size", "4^2"),
])  # fmt: skip
def test_side_of_images_is_the_input_of_code_that_has_none(table, installed, head, cell):
    rows = csv_of(
        f"bare.py:bare,{cell},,96", f"bare.py:own,{cell},,150", f'bare.py:bare,{cell},"2,3,1,1",12',
        f"menagerie:m1,{cell},,96", f"llama2-7b,{cell},,7T", header=f"target,{head},input,macs",
    )  # fmt: skip
    _, sections, _ = answer = table(rows, "--trust", name="mine.csv")
    assert verdicts(answer) == ["reproduced"] * 4 + ["explained"]
    notes = [text for text in sections[0]["below"] if head in text]
    assert notes == [f"The input of code that has none is of the column {head}: 1,3,4,4."]


@pytest.mark.parametrize("cell", ["4x5", "4/8", "-", "large"])
def test_other_side_of_images_is_no_input(table, installed, cell):
    rows = csv_of(f"bare.py:own,{cell},150", f"bare.py:bare,{cell},96", header="target,image size,macs")
    _, sections, _ = answer = table(rows, name="mine.csv")
    assert verdicts(answer) == ["reproduced", "not counted"]
    assert "Not judged, as no quantities: image size." in sections[0]["below"]


def test_rows_without_an_input_are_named_at_once(table, installed):
    lines = [f"menagerie:m{n},{n},{n}" for n in range(1, 5)]
    code, _, err = table(csv_of(*lines, header="target,macs,params"), "--trust", name="mine.csv")
    assert code == 2 and installed.read_text() == "m"
    assert [err.count(f"mine.csv: line {n}: menagerie:m{n - 1}") for n in range(2, 6)] == [1] * 4
    # one that has an input is judged
    lines = [line.replace(",", ",,", 1) for line in lines[:2]] + ['menagerie:m3,"1,3,4,4",96,6']
    answer = table(csv_of(*lines, header="target,input,macs,params"), "--trust", name="mine.csv")
    assert verdicts(answer) == ["not counted"] * 4 + ["reproduced"] * 2
    assert [answer[2].count(f"line {n}: ") for n in (2, 3)] == [1, 1]


@pytest.mark.parametrize("options", [[], ["--find-rule"]])
def test_error_of_a_row_is_one_line_said_once(table, installed, options):
    wrong = ["bare.py:bare,224,5G,6", "bare.py:bare,,5G,6"]
    for lines in (wrong, [*wrong, "bare.py:own,,150,6"]):
        code, sections, err = table(csv_of(*lines, header="target,input,macs,params"), *options, name="mine.csv")
        assert code == 2 and "Traceback" not in err
        assert [err.count(f"line {n}: ") for n in (2, 3)] == [1, 1]
        assert "Traceback" not in json.dumps(sections)


def test_review_names_all_wrong_numbers(table):
    wrong = [(n, rounded(macs_at(n) * 102 // 100)) for n in TELL]
    right = [(n, rounded(macs_at(n))) for n in BOTH]
    (below,) = (one for one in table(flops_column(*right, *wrong), name="mine.csv")[1][0]["below"] if "review" in one)
    assert "FLOPs: 4 of 8 hold MACs, 4 of 8 printed by no rule that was tried; " in below and "more" not in below
    for n, text in wrong:
        assert f"{text} (llama2-7b,T={n}) should be {rounded(macs_at(n))}" in below
    # a number near to the cost of its own column does not hold the other
    near = (TELL[0], rounded(2 * macs_at(TELL[0]) * 102 // 100))
    (below,) = (one for one in table(flops_column(*right, near), name="mine.csv")[1][0]["below"] if "review" in one)
    assert "FLOPs: 4 of 5 hold MACs, " in below


def test_number_as_headed_in_a_column_of_another_cost_is_named(table):
    """A doubled number of MACs is right by the head FLOPs, and wrong in its column."""
    doubled = (TELL[0], rounded(2 * macs_at(TELL[0])))
    right = [(n, rounded(macs_at(n))) for n in BOTH]
    _, sections, _ = answer = table(flops_column(*right, doubled), name="mine.csv")
    assert verdicts(answer) == ["explained"] * 5
    (below,) = (one for one in sections[0]["below"] if "review" in one)
    meant = f"{doubled[1]} (llama2-7b,T={doubled[0]}) should be {rounded(macs_at(doubled[0]))}"
    assert f"FLOPs: 4 of 5 hold MACs, 1 of 5 holds FLOPs; {meant}." in below


@pytest.mark.parametrize("unit", "MGP")
def test_number_in_another_unit_is_named(table, unit):
    right = f"{macs_at(TELL[0]) / 10**12:.3f}"
    _, sections, _ = answer = table(csv_of(f'"llama2-7b,T={TELL[0]}",macs,{right}{unit}'), name="mine.csv")
    assert verdicts(answer) == ["explained"]
    assert f"{right}{unit} (llama2-7b,T={TELL[0]}) should be {right}T." in sections[0]["below"][-1]


@pytest.mark.parametrize("rows, by_chance", [(4, True), (7, True), (8, False)])
def test_few_numbers_of_other_digits_may_fit_by_chance(table, rows, by_chance):
    layers = [n for n in range(4, 99) if 0 < params_of(n) % 10**6 < 500_000][:rows]
    lines = [f'"llama2-7b,num_layers={n}",params,{params_of(n) // 10**6 + 1}M' for n in layers]
    _, sections, _ = table(csv_of(*lines), "--find-rule", name="mine.csv")
    assert sections[0]["rows"][0]["rule"] == "all, digits rounded up" and sections[0]["rows"][0]["prints"] == rows
    note = f"Only {rows} rows: digits that are rounded up may fit by chance."
    assert (note in sections[0]["below"]) is by_chance


def test_sentence_of_parameters_is_in_words(table):
    lines = ["llama2-7b,6.74B,6.74B", "dit-b4,-,-"]
    below = table(csv_of(*lines, header="model,params,active params"), name="mine.csv")[1][0]["below"]
    assert below[:2] == [
        "parameters with embeddings: all parameters, frozen ones included.",
        "active parameters with embeddings: parameters that a token uses.",
    ]


LENGTH_HEADS = ["T", "Tokens", "seq len", "Sequence length", "context", "Context length"]


@pytest.mark.parametrize("head", LENGTH_HEADS)
def test_column_of_lengths_is_that_of_rows(table, head):
    layer = "moh:h=4,d_h=8,s=1,r=2,d_m=32"
    (row,) = table(csv_of(f'"{layer},T=1024",macs,7'), name="mine.csv")[1][0]["rows"]
    lines = ['llama2-7b,"1,024",{}', '"llama2-7b,T=1024",1024,{}', '"{}",1024,{}', "dit-b4,196,{}", "llama2-7b,-,{}"]
    lines = [line.replace("{}", layer, 1) if line.startswith('"{}') else line for line in lines]
    exact = [LLAMA_MACS[1024], LLAMA_MACS[1024], row["value"], "5.6G", "-"]
    text = csv_of(*(line.format(f'"{n}"') for line, n in zip(lines, exact, strict=True)), header=f"model,{head},macs")
    _, sections, _ = answer = table(text, name="mine.csv")
    assert verdicts(answer) == ["reproduced"] * 4
    assert f"T is of the column {head}." in sections[0]["below"]
    assert not any("Not judged" in text for text in sections[0]["below"])
    code, _, err = table(text.replace("T=1024", "T=512"), name="mine.csv")
    assert code == 2 and "line 3: llama2-7b: T is 512 in the target and 1024 in a column" in err


@pytest.mark.parametrize("empty", ["-", "–", "n/a", ""])
def test_cell_without_a_number_may_be_of_a_model_without_the_cost(table, empty):
    # an image model has no cache, and the other no position 4,096
    lines = [
        f"dit-b4,130M,{empty}",
        f'"gpt3-175b,T=2048",175000M,{empty}',
        f'"llama2-7b,T=1024",6.74B,{512 * 2**20 // 10**6}MB',
    ]
    _, _, err = answer = table(csv_of(*lines, header='model,params,"KV cache (MB)"'), name="mine.csv")
    assert len(verdicts(answer)) == 4 and "not known" not in err


def test_column_of_lengths_is_that_of_any_configuration_of_text(table, tmp_path):
    """Whatever its class is called, and at the length of each row."""
    sizes = dict(n_embd=8, n_layer=2, n_head=2, vocab_size=50, n_positions=32)
    write(tmp_path / "paper", {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], **sizes})
    lines = [f"config.json,{T},{2 * (12 * T * 8 * 8 + 2 * T * T * 8) + T * 8 * 50}" for T in (16, 32)]
    _, sections, _ = answer = table(csv_of(*lines, header="model,T,macs"), name="mine.csv")
    assert verdicts(answer) == ["reproduced"] * 2
    assert "T is of the column T." in sections[0]["below"]
    # a length that the model does not have is named
    _, sections, err = answer = table(csv_of(*lines, "config.json,64,7", header="model,T,macs"), name="mine.csv")
    assert verdicts(answer) == ["reproduced"] * 2 + ["not counted"] and "has 32 positions" in err
    assert sections[0]["below"][-1] == "For a review: MACs: 2 of 3 reproduced, 1 of 3 not counted."


@pytest.mark.parametrize("cells", [("15T", "2048"), ("300000000", "1024"), ("1.5", "1024"), ("many", "7")])
def test_tokens_of_a_training_run_are_no_length(table, cells):
    lines = [f'"llama2-7b,T=1024",{cell},{LLAMA_MACS[1024]}' for cell in cells]
    _, sections, _ = answer = table(csv_of(*lines, header="model,tokens,macs"), name="mine.csv")
    assert verdicts(answer) == ["reproduced"] * 2
    assert "Not judged, as no quantities: tokens." in sections[0]["below"]


def test_length_that_is_not_given_is_named(table, tmp_path, monkeypatch):
    write(tmp_path / "paper", LLAMA)
    monkeypatch.setattr("headcount.bench.macs.own_models.count", None)
    for quantity in ("macs", "flops_per_token", "training_flops_per_token"):
        for target in ("config.json", "moa:K=2,E=5,D=7,d_m=11"):
            rule = ("--rule", "6n") if "training" in quantity else ()
            code, _, err = table(csv_of(f'"{target}",{quantity},7'), *rule, name="mine.csv")
            name = target.partition(",")[0]
            assert code == 2 and f"line 2: {name} needs a length" in err and 'T=1024"' in err
    # a preset has one of its own, which is said
    for figure, is_said in (("macs", True), ("params", False)):
        below = table(csv_of(f"llama2-7b,{figure},7G", f"dit-b4,{figure},7G"), name="mine.csv")[1][0]["below"]
        assert ("Without a T, a preset has its own: llama2-7b at T = 4,096." in below) is is_said
        assert any("has its own" in text for text in below) is is_said


GQA = 32 * 2 * 8 * 128
"""Elements that LLaMA-3 8B keeps of a token: keys and values of 8 heads of 128 in each of 32 layers."""
MLA = 61 * (512 + 64)
"""Those of DeepSeek-V3: a latent and a key with positions in each of 61 layers."""


CACHE_HEADS = {
    "KV cache (GB)": 2 * GQA * 1000 / 10**9, "KV Cache [MiB]": 2 * GQA * 1000 / 2**20, "kv_bytes": 2 * GQA * 1000,
    "KV cache size (MB)": 2 * GQA * 1000 / 10**6, "KV-cache (#elements)": GQA * 1000, "kv_elements": GQA * 1000,
    "KV cache per token (B)": 2 * GQA, "KV cache/token (KB)": 2 * GQA / 1000, "KV cache (KB/token)": 2 * GQA / 1000,
    "KV Cache Per Token (KiB)": 2 * GQA / 1024, "KV cache bytes per token": 2 * GQA, "kv_token_bytes": 2 * GQA,
    "KV Cache per Token (# Element)": GQA, "KV cache elements per token": GQA, "kv_token_elements": GQA,
}  # fmt: skip
"""Heads of KV caches, and the number of LLaMA-3 8B at 1,000 tokens."""


@pytest.mark.parametrize("head", CACHE_HEADS)
def test_heads_of_kv_caches_are_quantities(table, head):
    number = f"{CACHE_HEADS[head]:.6f}".rstrip("0").rstrip(".")
    _, sections, _ = answer = table(f'model,{head}\n"llama3-8b,T=1000",{number}\n', name="mine.csv")
    assert verdicts(answer) == ["reproduced"]
    dtype = "2 an element (bfloat16, float16)"
    assert (dtype in sections[0]["below"][0]) is ("elements" not in sections[0]["rows"][0]["figure"])


@pytest.mark.parametrize("cell", ["{} B", "{} bytes", "0.{:06}MB", "{}"])
def test_bytes_of_a_cache_are_read(table, cell):
    row = f"llama3-8b,{cell.format(2 * GQA)}"
    assert verdicts(table(csv_of(row, header="model,KV cache per token"), name="mine.csv")) == ["reproduced"]


CACHE_COLUMNS = [
    ("KV cache per token", "KV cache bytes per token in KiB, MiB or GiB", "{}K", 2 / 1024),
    ("KV cache per token", "KV cache bytes per token of float32", "{}", 4),
    ("KV cache per token", "KV cache elements per token", "{}", 1),
    ("KV cache per token", "KV cache bytes", "{}", 2 * 1000),
    ("KV cache elements", "KV cache bytes", "{}", 2 * 1000),
]
"""Heads of columns, what these hold instead, a cell, and its number by element of a token."""


@pytest.mark.parametrize("head, held, cell, times", CACHE_COLUMNS)
def test_column_of_another_cache_is_explained(table, head, held, cell, times):
    tokens = {"llama3-8b": GQA, "deepseek-v3": MLA, "llama2-7b": 2 * L * D}
    lines = [f'"{name},T=1000",{cell.format(round(times * size, 3))}' for name, size in tokens.items()]
    text = csv_of(*lines, header=f"model,{head}")
    _, sections, _ = answer = table(text, name="mine.csv")
    assert verdicts(answer) == ["explained"] * 3
    assert all(f" holds {held}, " in row["because"] for row in sections[0]["rows"])
    assert f"all 3 hold {held}." in sections[0]["below"][-1]
    assert table(text, "--find-rule", name="mine.csv")[1][0]["rows"][0]["rule"] == held


@pytest.mark.parametrize("head, row", [
    ("model,{}", '"{},T=1000"'), ("model,T,{}", "{},1000"), ("model,{} (1000 tokens)", "{}"),
], ids=["target", "column", "head"])  # fmt: skip
@pytest.mark.parametrize("quantity, target, number", [
    ("KV cache", "deepseek-v3", 2 * MLA * 4096), ("MACs", "llama2-7b", LLAMA_MACS[2048]),
])  # fmt: skip
def test_other_lengths_are_tried_wherever_it_is_stated(table, head, row, quantity, target, number):
    for printed, verdict, because in (
        (number, "explained", f"at T = {4096 if quantity == 'KV cache' else 2048:,} gives"),
        (number + 1, "no rule found", "nor is it printed at T = 128, 256, … up to 131,072"),
    ):
        text = csv_of(f"{row.format(target)},{printed}", header=head.format(quantity))
        (cell,) = table(text, name="mine.csv")[1][0]["rows"]
        assert cell["verdict"] == verdict and because in cell["because"]


@pytest.mark.parametrize(
    "printed, verdict", [("537MB", "explained"), ("268MB", "explained"), ("805MB", "no rule found")]
)
def test_cache_of_a_window_is_no_wrong_number(table, printed, verdict):
    # at 8,192 tokens in bfloat16 1,074 MB: half is that of 4,096, as of a window, or elements, a quarter that of 2,048
    lines = [f"mistral-7b,{printed}", "llama3-8b,1074MB"]
    _, sections, _ = answer = table(csv_of(*lines, header='model,"KV cache (8192 tokens)"'), name="mine.csv")
    assert verdicts(answer) == [verdict, "reproduced"]
    assert ("should be" in sections[0]["below"][-1]) == (verdict == "no rule found")


def test_caches_of_configurations_are_counted(table, tmp_path):
    """That of a token without a length, and before a window is full."""
    stored = 2 * 2 * 2 * 6
    write(
        tmp_path / "paper",
        {**LLAMA, "model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 4},
    )
    (tmp_path / "paper" / "config.json").rename(tmp_path / "paper" / "windowed.json")
    write(tmp_path / "paper", LLAMA)
    lines = [
        f"config.json,kv_token_bytes,{2 * stored}", f'"config.json,T=9",kv_token_bytes,{2 * stored}',
        f'"config.json,T=9",kv_elements,{9 * stored}', f'"config.json,T=9",kv_elements,{stored}',
        f'"windowed.json,T=9",kv_token_elements,{stored}',
    ]  # fmt: skip
    answer = table(csv_of(*lines), name="mine.csv")
    assert verdicts(answer) == ["reproduced"] * 3 + ["explained", "reproduced"]
    err = table(csv_of("config.json,kv_bytes,7"), name="mine.csv")[2]
    assert "line 2: config.json needs a length" in err


@pytest.mark.parametrize("target, reason", [
    ("dit-b4", "a diffusion Transformer makes its image at once and decodes no tokens"),
    ("model.py:make", "a cache is known of presets, layers by letters and Hugging Face decoders"),
])  # fmt: skip
@pytest.mark.parametrize("quantity", ["kv_bytes", "kv_token_elements"])
def test_model_without_a_cache_is_named(table, target, reason, quantity):
    for others in ((), ("llama2-7b,params,6.74B",)):
        code, sections, err = table(csv_of(f"{target},{quantity},7K", *others), name="mine.csv")
        assert code == 2 and f"line 2: the KV cache of {target} is not known: {reason}" in err
    assert [row["verdict"] for row in sections[0]["rows"]] == ["not counted", "reproduced"]


@pytest.mark.parametrize("head", [
    "TFLOPs (1024 tokens)", "FLOPs for 1024 tokens (T)", "FLOPs (T, 1024 tokens)",
    "FLOPs (1,024 tokens, T)", "FLOPs (T) [T=1024]",
    "FLOPs (T) at T = 1024", "TFLOPs @ 1K tokens", "TFLOPs, 1024 tokens", "FLOPs (seq. len 1024) (T)",
    "FLOPs (sequence length: 1k) (T)", "FLOPs (T, 1Ki context)", "TFLOPs (context length 1024)",
])  # fmt: skip
def test_length_in_a_head_is_that_of_its_column(table, head):
    """Before that of a column of lengths, which the other columns have."""
    flops = [f"{LLAMA_MACS[T] / 5e11:.6f}" for T in (1024, 2048)]
    text = f'model,T,"{head}",TFLOPs\nllama2-7b,2048,{flops[0]},{flops[1]}\n'
    _, sections, _ = answer = table(text, name="mine.csv")
    assert verdicts(answer) == ["reproduced"] * 2
    assert any("T = 1,024, 2,048" in line for line in sections[0]["below"])
    code, _, err = table(f'model,"{head}"\n"llama2-7b,T=512",{flops[0]}\n', name="mine.csv")
    assert code == 2 and "line 2: llama2-7b: T is 512 in the target and 1024 in a column" in err


def test_columns_of_two_lengths_have_names(table):
    flops = [f"{LLAMA_MACS[T] / 5e11:.6f}" for T in (1024, 2048)]
    text = f"model,TFLOPs (1K tokens),TFLOPs (2K tokens),params\nllama2-7b,{','.join(flops)},6.74B\n"
    _, sections, _ = answer = table(text, name="mine.csv")
    assert verdicts(answer) == ["reproduced"] * 3
    names = [row["row"] for row in sections[0]["rows"]]
    assert names == ["llama2-7b, T = 1,024", "llama2-7b, T = 2,048", "llama2-7b"]


@pytest.mark.parametrize("head", ["Speed (1024 tokens)", "Time per 1K tokens", "Energy (J/1K tokens)"])
def test_length_in_another_head_is_none(table, head):
    _, sections, _ = answer = table(f'model,{head},params\n"llama2-7b,T=7",7,6.74B\n', name="mine.csv")
    assert verdicts(answer) == ["reproduced"]
    assert f"Not judged, as no quantities: {head}." in sections[0]["below"]
