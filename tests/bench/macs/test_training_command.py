"""Training FLOPs by rule on the command line: columns of presets and grids, and two rules entry by entry."""

import pytest

L, d, h, g, d_h, F, V, T, B = 2, 4096, 32, 8, 128, 14336, 128256, 101, 3
SMALL = ["count", "llama3-8b", "--set", f"num_layers={L}", "--seq-len", str(T), "--batch-size", str(B)]
N = 2 * V * d + L * (2 * d * h * d_h + 2 * d * g * d_h + 3 * d * F + 2 * d) + d
PALM = 6 * N + 12 * L * h * d_h * T
"""FLOPs a token by hand."""
NO_RECOMPUTATION = "rule palm counts no recomputation; hc.MFU counts what a training step runs again"
RATE = ["--columns", "training_flops_per_token", "training_flops_per_step", "mfu", "hfu", "--seconds", "0.5"]


@pytest.fixture
def last_rows(tables):
    """Return a function that runs ``headcount`` on closed forms and returns the rows of its last table."""
    return lambda *argv: [*tables(*argv, "--counter", "closed-form").values()][-1]


def test_columns_of_a_preset(last_rows):
    (row,) = last_rows(*SMALL, "--rules", "palm", *RATE, "--devices", "7", "--peak", "H100 SXM bf16")
    assert (row["training_flops_per_token"], row["training_flops_per_step"]) == (PALM, PALM * B * T)
    assert row["mfu"] == pytest.approx(100 * PALM * B * T / (0.5 * 7 * 989.5e12))
    assert row["hfu"] is None and row["missing"] == {"hfu": NO_RECOMPUTATION}


@pytest.mark.parametrize("peak", ["989.5 TFLOPS", "494.75 TMAC/s", "NVIDIA H100 80GB HBM3", "H100 SXM5", "989.5e12"])
def test_peak_has_the_same_texts_as_in_python(last_rows, peak):
    (row,) = last_rows(*SMALL, "--rules", "palm", *RATE, "--peak", peak)
    assert row["mfu"] == pytest.approx(100 * PALM * B * T / (0.5 * 989.5e12))


def test_tokens_and_recomputation(last_rows):
    options = ["--tokens", "1009", "--peak", "2P bf16"]
    (row,) = last_rows(*SMALL, "--rules", "megatron2021", *RATE, *options)
    layers, logits = L * (2 * d * h * d_h + 2 * d * g * d_h + 3 * d * F + 2 * h * d_h * T), V * d
    assert row["training_flops_per_token"] == 8 * layers + 6 * logits
    assert row["mfu"] == pytest.approx(100 * 6 * (layers + logits) * 1009 / 0.5 / 2e15)
    assert row["hfu"] == pytest.approx(100 * (8 * layers + 6 * logits) * 1009 / 0.5 / 2e15)


def test_columns_of_a_grid(last_rows):
    argv = ["grid", "K=2 E=5 D=7 d_m=11 T=13 B=2", "--columns", "training_flops_per_step"]
    (row,) = last_rows(*argv, "--rules", "megatron_model")
    flops = row["accounts"]["training_flops_per_step"]
    assert flops == 6 * row["count"]["macs"] == 6 * 26 * (11 * 5 + 2 * 2 * 77 + 2 * 77 + 2 * 2 * 13 * 7)


def test_two_rules_by_entry(tables):
    sizes = ["num_layers=2", "num_heads=3", "num_kv_heads=1", "d_model=26", "head_dim=10", "d_ff=29", "vocab_size=31"]
    argv = ["llama3-8b", *(f"--set={size}" for size in sizes), "--seq-len", "13", "--rules", "palm", "6n"]
    found = [*tables("compare", *argv).values()][-1]
    differing = [row for row in found if row["difference"] and row["kind"]]
    assert [row["kind"] for row in differing] == ["scores", "values"]
    assert {row["difference"] for row in differing} == {6 * 2 * 3 * 10 * 13}


USER = """
from torch import long, nn, zeros

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.ids, self.head = nn.Embedding(31, 8), nn.Linear(8, 31)
        self.attend = nn.MultiheadAttention(8, 2, bias=False)

    def forward(self, ids):
        x = self.ids(ids)
        return self.head(self.attend(x, x, x)[0])

def make(T=13):
    return Net(), (zeros(T, 1, dtype=long),)
"""


@pytest.mark.parametrize("T", [13, 7])
def test_rules_of_a_module(tables, tmp_path, monkeypatch, T):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(USER)
    rows = tables("compare", f"model.py:make,T={T}", "--rules", "6n", "palm")["rules"]
    used = 31 * 8 + 4 * 8 * 8 + (8 + 1) * 31
    assert {row["rule"]: row["flops"] for row in rows} == {"6n": 6 * used, "palm": 6 * used + 12 * T * 8}


def test_several_rules_of_a_preset(tables):
    argv = ["compare", *SMALL[1:], "--rules", "palm", "6n", "palm", "megatron_model"]
    flops = {row["rule"]: row["flops"] for row in tables(*argv)["rules"]}
    assert [*flops] == ["palm", "6n", "megatron_model"]
    assert (flops["palm"], flops["6n"]) == (PALM, 6 * N)


@pytest.mark.parametrize("rules", [("maxtext", "palm"), ("6n", "deepseek_causal", "palm", "maxtext")], ids=" ".join)
def test_rule_that_does_not_apply_is_a_dash(command, tables, rules):
    # a model without causal attention has no causal pairs
    argv = ["compare", "mlm-transformer", "--rules", *rules]
    flops = {row["rule"]: row["flops"] for row in tables(*argv)["rules"]}
    assert [*flops] == [*rules]
    assert {rule for rule, size in flops.items() if size is None} == {*rules} & {"maxtext", "deepseek_causal"}
    _, out, _ = command(*argv)
    assert "rule maxtext counts causal pairs, and mlm-transformer is not causal." in " ".join(out.split())
    _, out, _ = command(*argv, "--format", "csv")
    assert "rule maxtext counts causal pairs" in out


def test_rules_none_of_which_applies_are_refused(command):
    code, _, err = command("compare", "mlm-transformer", "--rules", "maxtext", "deepseek_causal")
    assert code == 2 and "rule maxtext counts causal pairs" in err and "choose from 6n" in err


def test_measured_step_has_an_mfu_by_each_rule(tables, command):
    argv = ["compare", *SMALL[1:], "--rules", "palm", "6n", "--tokens", "700", "--seconds", "0.5", "--devices", "7"]
    peak = ["--peak", "989.5T"]
    rows = {row["rule"]: row for row in tables(*argv, *peak)["rules"]}
    for rule, flops in {"palm": PALM, "6n": 6 * N}.items():
        assert rows[rule]["accounts"]["mfu"] == pytest.approx(100 * flops * 700 / (0.5 * 7 * 989.5e12))
    assert "(MFU" in command(*argv, *peak, "--brief")[1]
    # what nothing takes is refused
    for options, reason in [
        (["--tokens", "700"], "--tokens: give --columns"), (["--seconds", "1"], "column mfu needs --peak"),
        (["--columns", "kv_bytes"], "--columns of rules are training_flops_per_token,"),
    ]:  # fmt: skip
        code, _, err = command("compare", "llama3-8b", "--rules", "palm", "6n", *options)
        assert code == 2 and reason in err
