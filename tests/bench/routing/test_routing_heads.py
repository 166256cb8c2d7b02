"""python -m bench.routing on MoH models: routed heads by their place in the layer, shared ones beside them."""

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


def test_a_head_has_the_number_that_it_has_in_its_layer(files, capsys):
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
def test_the_heads_macs_are_what_both_forms_count_in_them(router):
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


def test_the_table_says_heads_and_what_the_released_code_computes(files, capsys):
    tmp_path, _ = files
    _, out, _ = run(capsys, tmp_path)
    assert "Heads and their tokens" in out and "xpert" not in out
    assert "shared: every token uses it" in out
    assert "the released code does those of every token" in " ".join(out.split())


BROKEN = {
    "router": ("layers.1.self_attn.router.shared_proj.weight", (2, 25), "is (2, 25), not (2, 26)"),
    "other heads": ("layers.0.self_attn.q_proj.weight", (60, 26), "is (60, 26), not (66, 26)"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_checkpoint_of_other_sizes_names_the_first_tensor(case, files, capsys):
    tmp_path, _ = files
    name, shape, message = BROKEN[case]
    state = torch.load(tmp_path / "model.pt", weights_only=True)
    torch.save({**state, name: torch.zeros(shape)}, tmp_path / "model.pt")
    code, out, err = run(capsys, tmp_path)
    assert (code, out) == (2, "") and err.count("\n") == 1 and f"{name} {message}" in err


def test_a_translation_line_is_refused(files, capsys):
    tmp_path, _ = files
    (tmp_path / "tokens.txt").write_text("1 2 | 3\n")
    code, _, err = run(capsys, tmp_path)
    assert code == 2 and "line 1: '|' is for translation models" in err


def test_a_model_that_no_machine_holds_is_refused_before_its_checkpoint_is_read(files, capsys):
    tmp_path, _ = files
    argv = ["--preset", "moh-llm-s-75", "--set", f"d_ff={10**19}", "--checkpoint", str(tmp_path / "none.pt")]
    assert main([*argv, "--tokens", str(tmp_path / "tokens.txt")]) == 2
    assert capsys.readouterr().err.startswith("python -m bench.routing: error: the model is too large to run: ")


def test_a_preset_too_large_to_build_is_compared_first(files, capsys):
    tmp_path, _ = files
    argv = ["--preset", "moh-llama3-8b", "--checkpoint", str(tmp_path / "model.pt")]
    assert main([*argv, "--tokens", str(tmp_path / "tokens.txt")]) == 2
    assert "embedding.weight is (41, 26), not (160896, 4096)" in capsys.readouterr().err
