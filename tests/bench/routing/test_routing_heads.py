"""headcount routing on MoH models: routed and shared heads."""

import json
from functools import partial

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from headcount.bench.case import ideal_form, ledger_of
from headcount.bench.routing import recorder
from headcount.bench.routing.__main__ import main
from headcount.models.build import build
from headcount.models.configs.presets import parse_overrides, preset

SET = ["d_model=26", "d_ff=7", "num_layers=2", "vocab_size=41", "num_heads=11", "num_shared_heads=3,2", "top_k=2,3"]
SET += ["head_dim=6"]
LINES = [[1, 2, 3, 4, 5], [8, 40, 9]]


def config(*more):
    return preset("moh-llm-s-75", parse_overrides("moh-llm-s-75", [*SET, *more]))


@pytest.fixture
def files(tmp_path):
    """A checkpoint of a small MoH language model, and tokens for it."""
    model = build(config(), seed=3)
    torch.save(model.state_dict(), tmp_path / "model.pt")
    (tmp_path / "tokens.txt").write_text("".join(" ".join(map(str, line)) + "\n" for line in LINES))
    return tmp_path, model


def run(capsys, tmp_path, *more):
    argv = ["--preset", "moh-llm-s-75", "--set", *SET, "--checkpoint", str(tmp_path / "model.pt")]
    return main([*argv, "--tokens", str(tmp_path / "tokens.txt"), *more]), *capsys.readouterr()


def add_heads(counts, _, args, found):
    counts += found.indices.flatten().bincount(minlength=11)


def test_heads_are_numbered_as_in_their_layer(files, capsys):
    tmp_path, model = files
    code, out, _ = run(capsys, tmp_path, "--format", "json", "--min-count", "1")
    assert code == 0
    routing, heads = json.loads(out)["tables"]
    assert [(row["layer"], row["num_shared_heads"], row["tokens"]) for row in routing["rows"]] == [
        ("layers.0.self_attn", 3, 8),
        ("layers.1.self_attn", 2, 8),
    ]
    expected = {path: torch.zeros(11, dtype=torch.int64) for path in ("layers.0.self_attn", "layers.1.self_attn")}
    for path, counts in expected.items():
        # every head that a layer's router gives a gate, shared ones too
        model.get_submodule(path).router.register_forward_hook(partial(add_heads, counts))
    for tokens in LINES:
        model(torch.tensor([tokens]))
    for path, counts in expected.items():
        found = {row["head"]: row["count"] for row in heads["rows"] if row["layer"] == path}
        assert [found[head] for head in range(11)] == counts.tolist()
    assert [row["head"] for row in heads["rows"] if row["shared"]] == [0, 1, 2, 0, 1]


@pytest.mark.parametrize("router", ["linear", "query_norm"])
def test_head_macs_match_flop_counter_in_both_forms(router):
    made = config(f"router={router}")
    layers = recorder.record(build(made, seed=3), [(tokens, tokens) for tokens in LINES])
    used = sum(sum(layer.expert_macs) + layer.num_shared * layer.every_token_macs for layer in layers)
    released = sum((layer.num_shared + layer.num_experts) * layer.every_token_macs for layer in layers)
    for form, in_heads in ((ideal_form(made), used), (made, released)):
        model, rest = build(form, seed=3), 0
        with FlopCounterMode(display=False) as mode, torch.no_grad():
            for tokens in LINES:
                model(torch.tensor([tokens]))
        for tokens in LINES:
            lengths = {"batch_size": 1, "seq_len": len(tokens)}
            ideal = ledger_of(ideal_form(made), lengths)
            rest += ideal.select(lambda entry: "k" not in entry.dims).macs
        assert in_heads + rest == mode.get_total_flops() // 2


def test_model_too_large_raises_before_loading(files, capsys):
    tmp_path, _ = files
    argv = ["--preset", "moh-llm-s-75", "--set", f"d_ff={10**19}", "--checkpoint", str(tmp_path / "none.pt")]
    assert main([*argv, "--tokens", str(tmp_path / "tokens.txt")]) == 2
    assert capsys.readouterr().err.startswith("python -m bench.routing: error: the model is too large to run: ")


def test_shapes_are_compared_before_building(files, capsys):
    tmp_path, _ = files
    argv = ["--preset", "moh-llama3-8b", "--checkpoint", str(tmp_path / "model.pt")]
    assert main([*argv, "--tokens", str(tmp_path / "tokens.txt")]) == 2
    assert "embedding.weight is (41, 26), not (160896, 4096)" in capsys.readouterr().err
