"""headcount routing: selections and MACs against the model, and broken files."""

import json
import os

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from headcount.bench.case import ledger_of
from headcount.bench.errors import UsageError
from headcount.bench.routing import inputs, recorder
from headcount.bench.routing.__main__ import main
from headcount.models import losses
from headcount.models.build import build
from headcount.models.configs.make import make_config
from headcount.models.configs.presets import preset

SIZES = ["d_model=22", "d_ff=29", "vocab_size=41", "top_k=3", "num_experts=7", "head_dim=5"]
LAYERS = ["num_encoder_layers=2", "num_decoder_layers=1"]
TRANSLATION = dict(model="encoder_decoder", attention="moa", d_model=22, d_ff=29, num_encoder_layers=2)
TRANSLATION |= dict(num_decoder_layers=1, vocab_size=41, top_k=3, num_experts=7, head_dim=5)


@pytest.fixture
def files(tmp_path):
    """A checkpoint of a small translation model, and tokens for it."""
    model = build(make_config(TRANSLATION), seed=3)
    torch.save(model.state_dict(), tmp_path / "model.pt")
    (tmp_path / "tokens.txt").write_text("1 2 3 4 5 | 6 7 40\n\n8 9 9\n")
    return tmp_path, model


def arguments(tmp_path, *more):
    given = ["--preset", "moa-8K8E128D", "--set", *SIZES, *LAYERS]
    return [*given, "--checkpoint", str(tmp_path / "model.pt"), "--tokens", str(tmp_path / "tokens.txt"), *more]


def run(capsys, *argv):
    return main(argv), *capsys.readouterr()


def test_choices_match_the_model(files, capsys):
    tmp_path, model = files
    code, out, _ = run(capsys, *arguments(tmp_path, "--format", "json", "--min-count", "1"))
    assert code == 0
    routing, experts = json.loads(out)["tables"]
    paths = ["encoder.layers.0.self_attn", "encoder.layers.1.self_attn"]
    paths += ["decoder.layers.0.self_attn", "decoder.layers.0.cross_attn"]
    assert [row["layer"] for row in routing["rows"]] == paths
    assert [row["tokens"] for row in routing["rows"]] == [5 + 3, 5 + 3, 3 + 3, 3 + 3]
    expected = dict.fromkeys(paths, 0)
    model.train()
    for source, target in (([1, 2, 3, 4, 5], [6, 7, 40]), ([8, 9, 9], [8, 9, 9])):
        model(torch.tensor([source]), torch.tensor([target]))
        for path, counts in losses.tokens_per_expert(model).items():
            expected[path] = expected[path] + counts
    for row in routing["rows"]:
        assert row["tokens_per_expert"] == expected[row["layer"]].tolist()
    assert sum(row["count"] for row in experts["rows"]) == 3 * (2 * 8 + 2 * 6)


def test_expert_macs_match_flop_counter(files):
    _, model = files
    examples = [([1, 2, 3, 4, 5], [6, 7, 40]), ([8, 9, 9], [8, 9, 9])]
    layers = recorder.record(model, examples)
    with FlopCounterMode(display=False) as mode, torch.no_grad():
        for source, target in examples:
            model(torch.tensor([source]), torch.tensor([target]))
    rest = 0
    for source, target in examples:
        form = ledger_of(model.config, {"batch_size": 1, "src_len": len(source), "tgt_len": len(target)})
        rest += form.select(lambda entry: "K" not in entry.dims).macs
    assert sum(sum(layer.expert_macs) for layer in layers) + rest == mode.get_total_flops() // 2


def test_plot_is_deterministic(files, capsys):
    tmp_path, _ = files
    for name in ("a.svg", "b.svg"):
        assert run(capsys, *arguments(tmp_path, "--plot", str(tmp_path / name)))[0] == 0
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    code, _, err = run(capsys, *arguments(tmp_path, "--plot", str(tmp_path / "a.nothing")))
    assert code == 2 and err.count("\n") == 1 and "cannot write" in err


def edited(change):
    def edit(tmp_path):
        state = torch.load(tmp_path / "model.pt", weights_only=True)
        change(state)
        torch.save(state, tmp_path / "model.pt")

    return edit


def write(text):
    return lambda tmp_path: (tmp_path / "tokens.txt").write_text(text)


ROUTER = "encoder.layers.0.self_attn.router.proj.weight"
BROKEN = {
    "missing tensor": (edited(lambda s: [s.pop(ROUTER), s.pop("output_proj.weight")]), f"it has no {ROUTER}"),
    "shape": (edited(lambda s: s.update({ROUTER: torch.ones(7, 23)})), f"{ROUTER} is (7, 23), not (7, 22)"),
    "nan": (edited(lambda s: s[ROUTER].fill_(float("nan"))), f"{ROUTER} holds values that are not finite"),
    "extra": (edited(lambda s: s.update(more=torch.ones(1))), "the model has no more"),
    "sparse": (edited(lambda s: s.update({ROUTER: s[ROUTER].to_sparse()})), f"{ROUTER} is sparse_coo"),
    "meta": (edited(lambda s: s.update({ROUTER: s[ROUTER].to("meta")})), f"{ROUTER} is without values"),
    "float8": (edited(lambda s: s.update({ROUTER: s[ROUTER].to(torch.float8_e4m3fn)})), "is float8_e4m3fn"),
    "integers": (edited(lambda s: s.update({ROUTER: s[ROUTER].to(torch.int64)})), f"{ROUTER} is int64"),
    "pipe": (lambda p: [(p / "model.pt").unlink(), os.mkfifo(p / "model.pt")], "model.pt: it is no file"),
    "no dict": (lambda p: torch.save([1], p / "model.pt"), "a mapping from names to tensors is expected"),
    "empty": (write(" \n\n"), "tokens.txt holds no tokens"),
    "out of range": (write("1 2\n3 40 41 42\n"), "line 2, position 3: 41 is not in the vocabulary 0..40"),
    "target out of range": (write("1 2 | 3 41\n"), "line 1, position 4: 41 is not in the vocabulary 0..40"),
    "negative": (write("1 -2\n"), "line 1, position 2: '-2' is no token id"),
    "superscript digit": (write("1 2²\n"), "line 1, position 2: '2²' is no token id"),
    "one side": (write("1 2 |\n"), "line 1: no tokens on one side of '|'"),
    "binary": (lambda p: (p / "tokens.txt").write_bytes(b"\xff\xfe"), "is no text"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_file_exits_2(case, files, capsys):
    tmp_path, _ = files
    change, message = BROKEN[case]
    change(tmp_path)
    code, out, err = run(capsys, *arguments(tmp_path))
    assert (code, out) == (2, "")
    assert err.count("\n") == 1 and message in err
    assert err.startswith("python -m bench.routing: error: ")


def test_line_too_long_raises(tmp_path):
    # two positions are the model's own
    (tmp_path / "tokens.txt").write_text("1 2 3 4 5\n1 2 3 4 5 6\n")
    with pytest.raises(UsageError, match=r"tokens\.txt: line 2: seq_len must be at most .* = 5, not 6;"):
        inputs.read_tokens(tmp_path / "tokens.txt", preset("mlm-moa-8K8E128D", {"max_positions": 7}))


LOGS = {
    "no counts": '{"step": 7}',
    "empty counts": '{"step": 7, "tokens_per_expert": {"x": []}}',
    "negative": '{"step": 7, "tokens_per_expert": {"x": [1, -1]}}',
    "infinite": '{"step": 7, "tokens_per_expert": {"x": [1, Infinity]}}',
    "half a token": '{"step": 7, "tokens_per_expert": {"x": [1.5]}}',
    "boolean": '{"step": true, "tokens_per_expert": {"x": [1]}}',
    "5001 digits": '{"step": %s, "tokens_per_expert": {"x": [1]}}' % ("9" * 5001),
    "64 bits": f'{{"step": {2**63}, "tokens_per_expert": {{"x": [1]}}}}',
    "no object": "[7]",
    "nested": "[" * 20000,
    "no text": "\udcff",
}


@pytest.mark.parametrize("case", LOGS)
def test_invalid_log_raises(case, tmp_path):
    good = '{"step": 0, "tokens_per_expert": {"x": [1, 0]}}'
    path = tmp_path / "log.jsonl"
    path.write_text(f"{good}\n{LOGS[case]}\n", "utf-8", errors="surrogateescape")
    with pytest.raises(UsageError, match="line 2 is no log record with step and tokens_per_expert"):
        inputs.read_log(path)


def test_model_without_routing_raises(tmp_path):
    config = preset("mlm-transformer", {"d_model": 16, "num_heads": 2, "vocab_size": 11, "max_positions": 5})
    with pytest.raises(UsageError, match="no layer of this preset routes tokens; its attention is mha"):
        recorder.record(build(config), [([1], [1])])
    (tmp_path / "t").write_text("1 2 3\n1 2 3 4\n")
    with pytest.raises(UsageError, match="line 2: seq_len must be at most max_positions - 2 = 3, not 4"):
        inputs.read_tokens(tmp_path / "t", config)
    (tmp_path / "t").write_text("1 | 2\n")
    with pytest.raises(UsageError, match="is for translation models"):
        inputs.read_tokens(tmp_path / "t", config)
