"""headcount count of several targets, and at several points: rows, columns, formats and the plot."""

import json
import re

import pytest

from headcount.bench.commands.count import main
from headcount.bench.output.figure import drawing, label_values

MHA, MOA, MAE = "mha:h=3,d_h=5,d_m=7", "moa:K=2,E=3,D=5,d_m=7", "mae:h=3,d_m=48,d_h=16"


def run(capsys, *words):
    assert main([*words, "--format", "json"]) == 0
    (table,) = json.loads(capsys.readouterr().out)["tables"]
    return table["rows"]


def mha(T, h=3, d_h=5, d_m=7):
    return 4 * T * d_m * h * d_h + 2 * T * T * h * d_h


def moa(T, K=2, E=3, D=5, d_m=7):
    return T * d_m * E + 2 * K * T * d_m * D + 2 * T * d_m * D + 2 * K * T * T * D


def test_rows_are_each_target_at_each_point(capsys):
    rows = run(capsys, MHA, MOA, "--vary", "T=11,13", "--columns", "macs", "flops", "params", "kv_bytes")
    assert [(row["target"], row["at"]["T"]) for row in rows] == [(MHA, "11"), (MHA, "13"), (MOA, "11"), (MOA, "13")]
    assert [row["macs"] for row in rows] == [mha(11), mha(13), moa(11), moa(13)]
    assert all(row["flops"] == 2 * row["macs"] for row in rows)
    # K and V of 3 heads of 5, and of one expert's 5, two bytes each
    assert [row["kv_bytes"] for row in rows] == [11 * 60, 13 * 60, 11 * 20, 13 * 20]
    assert [row["params"] for row in rows] == 2 * [4 * 7 * 15 + 3 * 15 + 7] + 2 * [7 * 3 + 2 * 3 * 7 * 5 + 2 * 7 * 5]


def test_letters_vary_as_a_product(capsys):
    rows = run(capsys, MHA, "--vary", "h=2,1k", "--vary", "T=3,4")
    assert [row["at"] for row in rows] == [{"h": h, "T": T} for h in ("2", "1000") for T in ("3", "4")]
    assert [row["macs"] for row in rows] == [mha(T, h=h) for h in (2, 1000) for T in (3, 4)]


def test_modules_run_beside_closed_forms(tmp_path, monkeypatch, capsys):
    (tmp_path / "own.py").write_text(
        "from torch import nn, zeros\ndef make(T=3): return nn.Linear(5, 7), (zeros(T, 5),)\n"
    )
    monkeypatch.chdir(tmp_path)
    own, layer = run(capsys, "own.py:make", f"{MHA},T=2", "--columns", "macs", "params", "active_params", "kv_bytes")
    assert (own["macs"], own["params"], own["active_params"], own["kv_bytes"]) == (3 * 35, 42, 42, None)
    assert layer["macs"] == mha(2) and layer["kv_bytes"] == 2 * 60


@pytest.mark.parametrize("most", [1.0, 1.02, 3, 9, 11, 50, 10**6])
def test_logarithmic_axis_has_labels(most):
    """Of values within a power of 10 too."""
    pytest.importorskip("matplotlib", reason="the optional extra report is not installed")
    figure, axes = drawing().subplots()
    values = [7 * 10**12, 7 * 10**12 * most]
    axes.plot([1, 2], values)
    axes.set(yscale="log")
    label_values(axes, values)
    figure.canvas.draw()
    low, high = axes.get_ylim()
    shown = [label.get_text() for label in axes.get_yticklabels() if low <= label.get_position()[1] <= high]
    assert 3 <= len({*shown}) <= 15 and all(re.fullmatch(r"[\d.]+[TPE]", text) for text in shown)


def test_papers_have_units_and_a_plot(tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="the optional extra report is not installed")
    plot = tmp_path / "costs.svg"
    assert main(["llama3-8b", "mistral-7b", "--vary", "T=128,8192", "--format", "latex", "--plot", str(plot)]) == 0
    # by hand: (weights of products) x T + 2 T^2 x 32 layers x 4096
    macs = (7_504_924_672 - 266_240) * 8192 + 2 * 8192**2 * 32 * 4096
    assert f"llama3-8b & 8,192 & 8,030.26 & {macs / 1e9:,.2f}" in capsys.readouterr().out
    assert "<svg" in plot.read_text()


def test_rows_and_lines_have_names(tmp_path, capsys):
    path = tmp_path / "curves.svg"
    assert (
        main([MHA, MOA, "--vary", "T=11,13", "--names", "Dense", "Ours", "--format", "csv", "--plot", str(path)]) == 0
    )
    assert [line.split(",")[:2] for line in capsys.readouterr().out.splitlines()] == [
        ["target", "T"], ["Dense", "11"], ["Dense", "13"], ["Ours", "11"], ["Ours", "13"],
    ]  # fmt: skip
    assert {"Dense", "Ours"} <= set(re.findall(r"<!-- (\w+) -->", path.read_text()))
    for words in (["A"], ["A", "A"], ["A", "B", "C"]):
        assert main([MHA, MOA, "--vary", "T=11", "--names", *words]) == 2
        assert "as many different names as there are TARGETs, 2" in capsys.readouterr().err
    assert main([f"{MHA},T=11", "--names", "A"]) == 2
    assert "--names does not go with one TARGET" in capsys.readouterr().err


@pytest.mark.parametrize("words, is_said", [
    (["moh:h=8,s=2,r=3,d_m=48"], True), (["moh:h=8,s=2,r=3,d_m=48,form=ideal"], False), ([MOA], False),
])  # fmt: skip
def test_released_code_is_named(words, is_said, capsys):
    assert main([*words, MHA, "--vary", "T=11"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert (f"{words[0]}: as released, every head is computed" in out) == is_said


@pytest.mark.parametrize("words, names", [
    ([MHA, MOA], MHA), ([f"{MHA},bias=0", MOA], None), ([MHA, MAE, MOA], f"{MHA}, {MAE}"),
    ([MHA], None), ([MHA, "llama3-8b"], None),
])  # fmt: skip
def test_biases_of_some_layers_are_named(words, names, capsys):
    assert main([*words, "--vary", "T=11"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert (f"{names}: with biases, and the other layers without" in out) == (names is not None)
    assert names or "with biases" not in out


def test_notes_of_measured_activations(tmp_path, monkeypatch, capsys):
    (tmp_path / "own.py").write_text("""
from torch import nn, nonzero, ones
class Selecting(nn.Linear):
    cache_elements = 11
    def forward(self, x): return super().forward(x[nonzero(x[:, 0])[:, 0].repeat(2)])
def make(): return Selecting(5, 7), (ones(3, 5),)
""")
    monkeypatch.chdir(tmp_path)
    words = [f"{MHA},T=2", f"{MOA},T=2", "own.py:make", "--names", "A", "B", "C"]
    assert main([*words, "--columns", "peak_training_bytes", "kv_bytes", "decode_macs"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "Measured implementations of layers: mha fused, moa grouped." in out
    assert "gradients of activations and weights; no weights, inputs or optimizer state." in out
    # the name that the row has, and sentences of the field
    assert "C: The KV cache is as the module states it (cache_elements)." in out
    assert "Selecting" not in out.replace("Selecting takes x", "") and "NotImplementedError" not in out
    assert ".. " not in out and "2 each" not in out


def test_lengths_are_columns(capsys):
    assert main([MHA, "--vary", "h=3", "--vary", "T=11,1k", "--across", "T", "--columns", "params", "macs"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["MACs", "MACs"] in lines and ["target", "h", "params", "T=11", "T=1,000"] in lines
    # parameters are those of every length
    params = 4 * 7 * 15 + 3 * 15 + 7
    assert [MHA, "3", f"{params:,}", f"{mha(11):,}", f"{mha(1000):,}"] in lines


def test_parameters_share_their_unit_in_papers(capsys):
    """Of 64 experts of 2 x 512 x 256, and of the two that a token uses."""
    assert (
        main(["moa:K=2,E=64,D=256,d_m=512,T=4", f"{MHA},T=4", "--columns", "params", "active_params", "--format", "md"])
        == 0
    )
    heads = capsys.readouterr().out
    assert "params M |   active params M |" in heads


def test_lengths_share_their_unit_in_papers(capsys):
    assert main(["llama3-8b", "--vary", "T=128,8192", "--across", "T", "--columns", "macs", "--format", "latex"]) == 0
    # by hand: (weights of products) x T + 2 T^2 x 32 layers x 4096
    macs = [(7_504_924_672 - 266_240) * T + 2 * T**2 * 32 * 4096 for T in (128, 8192)]
    text = capsys.readouterr().out
    assert rf"llama3-8b & {macs[0] / 1e9:,.2f} & {macs[1] / 1e9:,.2f} \\" in text
    assert r"target & G & G \\" in text


@pytest.mark.parametrize(
    ("form", "unit"), [("text", "M"), ("md", "M"), ("latex", "M"), ("md", "auto"), ("latex", "auto")]
)
def test_every_format_prints_all_columns_asked_for(form, unit, monkeypatch, capsys):
    # narrower than the table
    monkeypatch.setenv("COLUMNS", "100")
    layers, lengths = ["mha:h=8,d_h=64,d_m=512", "mha:h=16,d_h=64,d_m=1024"], (512, 2048, 8192)
    names = ["macs", "flops", "params", "active_params", "kv_bytes"]
    words = [*layers, "--vary", "T=512,2048,8192", "--across", "T", "--unit", unit, "--columns", *names]
    assert main([*words, "--format", form]) == 0
    expected = []
    for h in (8, 16):
        macs = [mha(T, h, 64, 64 * h) for T in lengths]
        flops, cache = [2 * x for x in macs], [2 * 2 * 64 * h * T for T in lengths]
        params = 2 * [4 * (64 * h) ** 2 + 3 * 64 * h + 64 * h]
        # by itself a column is in G from 10^11 and in M from 10^7
        of_costs, of_params = (1e6, 1e6) if unit == "M" else (1e9, 1)
        cells = [f"{x / of_costs:,.2f}" for x in (*macs, *flops)]
        cells += [f"{x / of_params:,.{0 if of_params == 1 else 2}f}" for x in params]
        expected.append([*cells, *(f"{x / 1e6:,.2f}" for x in cache)])
    between = {"text": r"\s+", "md": r"\s*\|\s*", "latex": r" & | \\\\"}[form]
    lines = [re.split(between, line.strip(" |")) for line in capsys.readouterr().out.splitlines()]
    rows = [line for line in lines if "mha:" in line[0]]
    assert [[cell for cell in row if re.fullmatch(r"[\d,]+(\.\d\d)?", cell)] for row in rows] == expected


def test_files_for_machines_have_a_row_for_each_value(capsys):
    words = [MHA, MOA, "--vary", "T=11,13", "--across", "T", "--columns", "macs"]
    assert [row["macs"] for row in run(capsys, *words)] == [mha(11), mha(13), moa(11), moa(13)]
    assert main([*words, "--format", "csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("target,T,macs") and len(lines) == 5


def test_unknown_cost_is_a_dash_at_its_value(tmp_path, monkeypatch, capsys):
    (tmp_path / "own.py").write_text(
        "from torch import nn, zeros\ndef make(T=3): return nn.Linear(5, 7), (zeros(T, 5),)\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main(["own.py:make", "--vary", "T=2,3", "--across", "T", "--columns", "macs", "kv_bytes"]) == 0
    (row,) = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("own.py")]
    assert row == ["own.py:make", "[1]", "70", "105", "–"]


def test_card_has_the_peaks_of_bounds(capsys):
    words = [
        "llama3-8b",
        "--vary",
        "T=4,1024",
        "--columns",
        "decode_bound",
        "forward_bound",
        "forward_intensity",
        "mfu",
    ]
    words += ["--rules", "6n", "--seconds", "1"]
    # the data sheet: 989.5 TFLOP/s are 494.75 TMACs/s, and 3.35 TB/s
    given = ["--peak-macs", "494.75T", "--bandwidth", "3.35T", "--peak", "H100 SXM bf16"]
    rows = run(capsys, *words, "--on", "H100 SXM")
    assert all(row.pop("forward_ms") for row in rows) and rows == run(capsys, *words, *given)


def test_brief_is_one_line_with_the_ends(capsys):
    assert main([MHA, MOA, "--vary", "T=11,13", "--columns", "params", "macs", "--brief"]) == 0
    least, most = (f"{moa(11):,} MACs of {MOA},T=11", f"{mha(13):,} MACs of {MHA},T=13")
    assert capsys.readouterr().out == f"MACs: {least} to {most}.\n"


@pytest.mark.parametrize("words, reason", [
    ([MHA, "--vary", "T=1,2", "--across", "S"], "--vary has T"),
    (["mha:h=3,d_h=5,d_m=7,T=2", "--across", "T"], "--vary T=128,512"),
    ([MHA, "--vary", "T"], "write a letter or a name and its values"),
    ([MHA, "B=1,2", "--vary", "T=1,2"], "B=1,2 is a size or a field and no TARGET; --set B=1,2"),
    ([MHA, "--vary", "T=1", "--vary", "T=2"], "write T=1,2"),
    ([MHA, "--vary", "T=1..4"], "as T=128,256,512"),
    ([MHA, "--vary", "T=1:4"], "as T=128,256,512"),
    ([MHA, "--vary", "T=4", "--columns", "mfu", "--seconds", "1"], "column mfu needs --rules and --peak\n"),
    ([MHA, "moa-8k", "--vary", "T=2"], "moa-8K8E256D"), (["gone.py:make", "--vary", "T=2"], "there is no file gone.py"),
    ([MHA, "--vary", "T=2", "--columns", "mac"], "macs"),
    ([MHA, "--vary", "T=2", "--backward"], "--backward does not go with"),
    ([f"{MHA},T=2", MOA + ",T=3", "--plot", "a.svg"], "--vary T=128,512"),
])  # fmt: skip
def test_wrong_words_name_what_is_valid(words, reason, capsys):
    assert main(words) == 2
    error = capsys.readouterr().err
    assert reason in error and error.count("\n") == 1


def test_citation_says_what_was_counted(capsys):
    assert main([MHA, MOA, "--vary", "T=11", "--cite"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "MACs of one forward pass were counted with headcount" in text and "by closed forms" in text
    assert "src_len = tgt_len 11" in text and "@misc{headcount" in text
    assert main([MHA, "llama3-8b", "--vary", "T=11,2Ki", "--cite", "--brief"]) == 0
    sentence, start, entry = capsys.readouterr().out.replace("\n    ", " ").partition("@misc{headcount,\n")
    inputs = "Inputs: batch_size 1, src_len = tgt_len 11/2048; batch_size 1, seq_len 11/2048.\n"
    assert sentence.endswith(inputs) and "\nMACs of one" in sentence
    # braces of BibTeX are closed
    assert (start + entry).count("{") == entry.count("}") and entry.endswith("\n}\n")


@pytest.mark.parametrize("name, form", [("md", "t.md"), ("latex", "t.tex"), ("json", "t.json"), ("csv", "t.csv")])
@pytest.mark.parametrize("words", [[MHA, MOA, "--vary", "T=11"], [f"{MHA},T=11", "--counter", "closed-form"]])
def test_citation_stands_where_a_paper_takes_it(words, name, form, tmp_path, capsys):
    """Below a table of markdown or LaTeX, in JSON's result, and not among the rows of a CSV file."""
    if name == "csv" and "closed-form" in words:
        # a file of one table
        words = [MHA, "--vary", "T=11"]
    path = tmp_path / form
    for more in (["-o", str(path)], ["--format", name]):
        assert main([*words, "--cite", *more]) == 0
        out, err = capsys.readouterr()
        text = " ".join((path.read_text() if "-o" in more else out).replace("\\_", "_").split())
        assert ("MACs of one forward pass were counted with headcount" in text) == (name != "csv")
        assert ("src_len = tgt_len 11." in text) == (name != "csv")
        assert name == "json" or "@misc{headcount" in " ".join(err.split())
    assert "OWNER" not in text + err


def test_citation_has_the_sizes_of_inputs_without_their_places(tmp_path, monkeypatch, capsys):
    (tmp_path / "own.py").write_text(
        "from torch import nn, zeros\ndef make(): return nn.Linear(5, 7), (zeros(3, 5),)\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main(["own.py:make", "--cite", "--brief"]) == 0
    assert "Inputs: 3x5 float32. @misc" in " ".join(capsys.readouterr().out.split())
