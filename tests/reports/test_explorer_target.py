"""A TARGET pasted into the explorer sets the sizes of its layer or its model, and the command shown counts the same."""

import json
import re
import shlex

import pytest

from headcount.bench.case import Case
from headcount.bench.commands.count import main
from headcount.bench.variants.variant import variant
from headcount.models.configs.targets import is_layer, read
from tests.reports import chromium, explorer_facts

pytestmark = chromium.needed
LAYERS = (
    "moa:K=8,E=32,D=64,d_m=512,T=512", "moh:h=32,s=2,r=6,g=8,d_h=64,d_m=1024,T=77,B=3",
    "mha:h=8,g=2,d_h=64,d_m=512,T=9",
    "moa-8K8E128D,top_k=4,num_experts=16,head_dim=96,T=64,B=2",
    "moh-llm-s-75,d_model=4096,form=ideal,num_heads=56,num_shared_heads=1,top_k=1,num_kv_heads=56,head_dim=224,T=8192",
    "switchhead-llm-s,num_heads=2,top_k=8,num_experts=16,head_dim=160,T=2048",
    "llama3-8b,attention=moa,top_k=4,num_experts=16,head_dim=128,T=64",
)  # fmt: skip
MODELS = (
    "llama3-8b", "llama3-8b,T=8192", "llama3-8b,num_heads=8,num_kv_heads=4,head_dim=496,T=8192",
    "'gpt3-175b,T=128,B=2'", "mla-llm-s,head_dim=32,rotary_dim=16,value_dim=64,kv_rank=1024,T=2048",
    "transformer-base,d_ff=1024,T=20", "llama3-8b,num_layers=4,F=1024", "moa-8K8E128D,head_dim=16,T=10",
)  # fmt: skip
OUTSIDE = "moa-8K8E128D,top_k=4,d_ff=999,bias=true"
REFUSED = {
    "nothing,T=3": "is no TARGET here", "moa-8K8E128D,head_dim=0": "head_dim must be a whole number",
    "transnext-micro,images=2": "is not on this page", "moa": "is no TARGET here",
}  # fmt: skip
PROGRAM = """
const field = (id) => document.getElementById(id);
const letters = [...document.querySelectorAll("#letters input[type=number]")];
const found = {};
for (const text of targets) {
  field("target").value = text;
  field("read-target").requestSubmit();
  await new Promise((done) => setTimeout(done, 300));
  found[text] = {
    why: field("target-why").textContent,
    tab: document.querySelector('#tabs [aria-selected="true"]').id,
    sizes: Object.fromEntries(letters.map((one) => [one.id.slice(2), Number(one.value)])),
    form: headcount.fromHash(location.hash).form,
    layer: field("command").textContent,
    model: field("model-command").textContent,
    macs: field("model-costs").querySelector("td")?.textContent,
  };
}
answer(found);
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    program = f"const targets = {json.dumps([*LAYERS, *MODELS, *REFUSED, OUTSIDE])};\n{PROGRAM}"
    return chromium.run_in_page(tmp_path_factory.mktemp("target"), explorer_facts.text(), program)


def case_of(text):
    name, fields, lengths = read(shlex.split(text)[0])
    return Case.of(name, fields, lengths), name


@pytest.mark.parametrize("text", LAYERS)
def test_layer_has_the_pasted_sizes(answers, text):
    found, (case, name) = answers[text], case_of(text)
    layer = case.config if is_layer(name) else case.config.attention
    searched = variant(layer.variant).search.letters
    wanted = {letter: size for letter, size in layer.letters().items() if letter in ("d_m", *searched)}
    wanted |= {letter: int(size) for letter, size in re.findall(r"\b([TB])=(\d+)", text)}
    assert found["tab"] == "tab-compare" and found["sizes"] | wanted == found["sizes"]
    assert found["form"] == layer.variant + "-ideal" * (getattr(layer, "form", "") == "ideal")
    assert found["layer"].startswith("headcount grid '")


@pytest.mark.parametrize("text", MODELS)
def test_model_has_the_pasted_sizes(answers, text, capsys):
    found, (case, _) = answers[text], case_of(text)
    assert found["tab"] == "tab-models" and not found["why"]
    assert int(found["macs"].replace(",", "")) == case.ledger.macs
    assert main([*shlex.split(found["model"])[2:], "--format", "json"]) == 0
    assert f"{case.ledger.macs}" in capsys.readouterr().out


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_target_here_has_a_reason(answers, text):
    assert REFUSED[text] in answers[text]["why"]


def test_words_outside_of_the_layer_are_named(answers):
    assert answers[OUTSIDE]["why"] == "not on this page, as at first: F=999, bias=true"
    assert answers[OUTSIDE]["sizes"]["K"] == 4 and not answers[LAYERS[0]]["why"]
