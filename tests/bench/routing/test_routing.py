"""headcount routing: selections and MACs against the model, and malformed files."""

import json
from functools import partial

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from headcount.bench.case import ideal_form, ledger_of
from headcount.bench.errors import UsageError
from headcount.bench.routing import inputs, recorder, tables
from headcount.bench.routing.__main__ import main
from headcount.models import losses
from headcount.models.build import build
from headcount.models.configs.presets import parse_overrides, preset

MOA = (
    "moa-8K8E128D",
    "d_model=22 d_ff=29 vocab_size=41 top_k=3 num_experts=7 head_dim=5 num_encoder_layers=2 num_decoder_layers=1",
)
MOH = (
    "moh-llm-s-75",
    "d_model=26 d_ff=7 num_layers=2 vocab_size=41 num_heads=11 num_shared_heads=3,2 top_k=2,3 head_dim=6",
)
EXAMPLES = [([1, 2, 3, 4, 5], [6, 7, 40]), ([8, 9, 9], [8, 9, 9])]
LINES = [[1, 2, 3, 4, 5], [8, 40, 9]]


def config(model, *more):
    name, sizes = model
    return preset(name, parse_overrides(name, [*sizes.split(), *more]))


class Files:
    """A checkpoint of a small model and tokens for it, in a folder."""

    def __init__(self, folder, model, text):
        self.folder, self.arguments = folder, ["--preset", model[0], *(f"--set={size}" for size in model[1].split())]
        self.model = build(config(model), seed=3)
        torch.save(self.model.state_dict(), folder / "model.pt")
        (folder / "tokens.txt").write_text(text)

    def run(self, capsys, *more):
        """Return the command's exit code, output and errors."""
        paths = ["--checkpoint", str(self.folder / "model.pt"), "--tokens", str(self.folder / "tokens.txt")]
        return main([*self.arguments, *paths, *more]), *capsys.readouterr()

    def tables(self, capsys):
        """Return the tables as JSON."""
        code, out, _ = self.run(capsys, "--format", "json", "--min-count", "1")
        assert code == 0
        return json.loads(out)["tables"]


@pytest.fixture
def translation(tmp_path):
    return Files(tmp_path, MOA, "1 2 3 4 5 | 6 7 40\n\n8 9 9\n")


@pytest.fixture
def heads(tmp_path):
    return Files(tmp_path, MOH, "1 2 3 4 5\n8 40 9\n")


def macs(model, examples, path=None):
    """Return half of what torch's FlopCounterMode counts in the model, or in the module at ``path``."""
    counted = 0
    for example in examples:
        with FlopCounterMode(display=False) as mode, torch.no_grad():
            model(*(torch.tensor([ids]) for ids in example))
        module = ".".join(filter(None, (type(model).__name__, path)))
        counted += sum(mode.get_flop_counts()[module].values()) // 2
    return counted


def test_selections_match_the_model(translation, capsys):
    routing, experts = translation.tables(capsys)
    paths = ["encoder.layers.0.self_attn", "encoder.layers.1.self_attn"]
    paths += ["decoder.layers.0.self_attn", "decoder.layers.0.cross_attn"]
    assert [(row["layer"], row["tokens"]) for row in routing["rows"]] == list(zip(paths, [8, 8, 6, 6], strict=True))
    expected = dict.fromkeys(paths, 0)
    translation.model.train()
    for source, target in EXAMPLES:
        translation.model(torch.tensor([source]), torch.tensor([target]))
        for path, counts in losses.tokens_per_expert(translation.model).items():
            expected[path] = expected[path] + counts
    for row in routing["rows"]:
        assert row["tokens_per_expert"] == expected[row["layer"]].tolist()
    assert sum(row["count"] for row in experts["rows"]) == 3 * (2 * 8 + 2 * 6)


def test_expert_macs_match_flop_counter():
    model = build(config(MOA), seed=3)
    for layer in recorder.record(model, EXAMPLES):
        rest = 0
        for source, target in EXAMPLES:
            queries = target if layer.path.startswith("decoder") else source
            keys = source if layer.path.endswith("cross_attn") else queries
            # the router, and a key and a value for each position
            rest += len(queries) * 22 * 7 + 2 * len(keys) * 22 * 5
        assert sum(layer.expert_macs) + rest == macs(model, EXAMPLES, layer.path)


def add_heads(counts, _, args, found):
    counts += found[0].flatten().bincount(minlength=11)


def test_shared_heads_are_numbered_first(heads, capsys):
    routing, found = heads.tables(capsys)
    expected = {f"layers.{n}.self_attn": torch.zeros(11, dtype=torch.int64) for n in (0, 1)}
    shared = [(row["layer"], row["shared"], row["tokens"]) for row in routing["rows"]]
    assert shared == list(zip(expected, (3, 2), (8, 8), strict=True))
    for path, counts in expected.items():
        # the router returns shared heads too
        heads.model.get_submodule(path).router.register_forward_hook(partial(add_heads, counts))
    for tokens in LINES:
        heads.model(torch.tensor([tokens]))
    for path, counts in expected.items():
        by_head = {row["number"]: row["count"] for row in found["rows"] if row["layer"] == path}
        assert [by_head[head] for head in range(11)] == counts.tolist()
    assert [row["number"] for row in found["rows"] if row["shared"]] == [0, 1, 2, 0, 1]


@pytest.mark.parametrize("router", ["linear", "query_norm"])
def test_head_macs_match_flop_counter(router):
    released = config(MOH, f"router={router}")
    layers = recorder.record(build(released, seed=3), [(tokens, tokens) for tokens in LINES])
    used = sum(sum(layer.expert_macs) + layer.num_shared * layer.every_token_macs for layer in layers)
    every = sum((layer.num_shared + layer.num_experts) * layer.every_token_macs for layer in layers)
    ideal, rest = ideal_form(released), 0
    for tokens in LINES:
        form = ledger_of(ideal, {"batch_size": 1, "seq_len": len(tokens)})
        rest += form.select(lambda entry: "k" not in entry.dims).macs
    for form, in_heads in ((ideal, used), (released, every)):
        assert in_heads + rest == macs(build(form, seed=3), [[tokens] for tokens in LINES])


def test_experts_of_attention_and_ffn_have_their_macs():
    sizes = "vocab_size=41 num_layers=1 d_model=24 d_ff=13 ffn_num_experts=5 ffn_top_k=2 head_dim=12 num_kv_heads=2"
    tokens = [1, 2, 3, 4, 5, 6, 7]
    jetmoe = config(("jetmoe-small", f"{sizes} num_experts=7 top_k=3"))
    attention, block = recorder.record(build(jetmoe), [(tokens, tokens)])
    assert (attention.path, block.path) == ("layers.0.self_attn", "layers.0.feed_forward")
    assert (attention.num_experts, attention.top_k, block.num_experts, block.top_k) == (7, 3, 5, 2)
    # queries, outputs, scores and values over 7 tokens; three matrices
    assert sum(attention.expert_macs) == 3 * 7 * (2 * 24 * 12 + 2 * 7 * 12)
    assert sum(block.expert_macs) == 2 * 7 * 3 * 24 * 13
    assert [len(same) for same in tables.by_unit([attention, block])] == [2]


def test_shapes_are_compared_before_building(heads, capsys):
    heads.arguments = ["--preset", "moh-llama3-8b"]
    code, _, err = heads.run(capsys)
    assert code == 2 and "model.pt does not match the preset: Error(s) in loading state_dict for Llama: Missing" in err
    heads.arguments = ["--preset", "moh-llm-s-75", "--set", f"d_ff={10**19}"]
    code, _, err = heads.run(capsys)
    assert code == 2 and err.startswith("python -m bench.routing: error: the model is too large to run: ")


def edit_state(change):
    def edit(tmp_path):
        state = torch.load(tmp_path / "model.pt", weights_only=True)
        change(state)
        torch.save(state, tmp_path / "model.pt")

    return edit


def write(text):
    return lambda tmp_path: (tmp_path / "tokens.txt").write_text(text)


ROUTER = "encoder.layers.0.self_attn.router.proj.weight"
MALFORMED = {
    "missing tensor": (edit_state(lambda s: s.pop(ROUTER)), f'Missing key(s) in state_dict: "{ROUTER}"'),
    "nan": (edit_state(lambda s: s[ROUTER].fill_(float("nan"))), f"{ROUTER} holds values that are not finite"),
    "complex": (lambda p: torch.save({"w": torch.ones(2) * 1j}, p / "model.pt"), "w is complex"),
    "empty": (write(" \n\n"), "tokens.txt holds no tokens"),
    "out of range": (write("1 2\n3 40 41 42\n"), "line 2, position 3: 41 is not in the vocabulary 0..40"),
    "one side": (write("1 2 |\n"), "line 1: no tokens on one side of '|'"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_file_exits_2(case, translation, tmp_path, capsys):
    change, message = MALFORMED[case]
    change(tmp_path)
    code, out, err = translation.run(capsys)
    assert (code, out, err.count("\n")) == (2, "", 1) and message in err


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
