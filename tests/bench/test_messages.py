"""Errors name what the reader can type: keywords in Python, options at the command line."""

import json
import re

import pytest

import headcount as hc
from headcount.__main__ import COMMANDS, main
from headcount.bench.api.count import OPTIONS
from headcount.models.configs.targets import LENGTHS

LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 101, "hidden_size": 28,
    "intermediate_size": 44, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
}  # fmt: skip
CODE = """
import torch
class Spectrum(torch.nn.Module):
    def forward(self, x): return torch.linalg.lu(x)[0]
class Written(torch.nn.Module):
    def forward(self, x): return (x * x.flip(0)).sum(-1)
def spectrum(n=4): return Spectrum(), (torch.ones(n, n),)
def written(n=4): return Written(), (torch.ones(n, n),)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    pytest.importorskip("transformers", reason="the optional extra hf is not installed")
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / "code.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)


PYTHON = {
    "no length": ("config.json", {}, "needs seq_len, or T=128 behind"),
    "a field": ("config.json", {"T": 8, "hidden_sise": 3}, "hidden_sise: unknown field; did you mean hidden_size"),
    "an image": ("config.json", {"T": 8, "image_size": 7}, "image_size: Llama"),
    "images": ("config.json", {"T": 8, "images": 2}, "images: Llama"),
    "a text": ("config.json", {"T": 8, "batch_size": "x"}, "batch_size takes a whole number, not 'x'"),
    "a type": ("config.json", {"T": 8, "hidden_size": "many"}, "hidden_size"),
    "no file": ("none.json", {"T": 8}, "there is no file none.json"),
    "no hub": ("hf:no/such", {"T": 8}, "no/such"),
    "no preset": ("llama3-8", {}, "did you mean"),
    "code": ("code.py:spectrum", {}, "headcount count code.py:spectrum"),
    "a layer": ("moa:K=2", {}, ""),
    "a length of a preset": ("llama3-8b", {"image_size": 8}, "has no image_size"),
}


@pytest.mark.parametrize("name", PYTHON)
@pytest.mark.parametrize("call", [hc.count, hc.lock])
def test_python_names_no_option_but_of_a_command(name, call):
    target, sizes, words = PYTHON[name]
    with pytest.raises(Exception, match=".") as caught:  # noqa: B017
        call(target, **sizes)
    text = str(caught.value)
    assert words in text and "\n" not in text
    command = re.search(r"headcount (\w+)", text)
    assert not re.search(r"(?<!\w)--[a-z]", text) or command and command[1] in COMMANDS


COMMAND_LINES = [
    *(f"{verb} code.py:spectrum" for verb in ("count", "audit", "lock -o a.lock", "compare code.py:written")),
    "latency code.py:spectrum --device cpu", "count code.py:written --elementwise refuse",
    "derive code.py:spectrum --vars n", "count config.json", "compare config.json llama3-8b",
    "fit config.json --on A100", "count code.py:spectrum --backward", "audit code.py:written --elementwise refuse",
]  # fmt: skip


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_command_names_no_keyword_of_python(line, capsys):
    verb, *words = line.split()
    assert main([verb, *words]) != 0
    text = capsys.readouterr().err.strip().splitlines()[-1]
    assert text.startswith(f"headcount {verb}: error: ")
    keywords = "|".join(name for name in OPTIONS if name not in LENGTHS)
    assert not re.search(rf"\bhc\.|\b({keywords}|active_params|sample_tokens)=", text)
    # each option is one of this command, or stands beside the command that takes it
    with pytest.raises(SystemExit):
        main([verb, "--help"])
    own = set(re.findall(r"--[a-z][a-z-]*", capsys.readouterr().out))
    foreign = set(re.findall(r"(?<!\w)--[a-z][a-z-]*", text)) - own
    assert not foreign or foreign <= set(re.findall(r"--[a-z][a-z-]*", text.partition("headcount count takes ")[2]))
