"""Whole models in the explorer, in headless Chromium: exact integers of all presets and of pasted configurations."""

import json

import pytest

from headcount.bench import accounts
from headcount.bench.case import Case
from headcount.bench.errors import UsageError
from headcount.bench.training_flops import flops_per_token
from headcount.formulas.conventions import CONVENTIONS, TRAINING
from headcount.models.configs.presets import PRESETS
from tests.reports import chromium, explorer_facts

pytestmark = chromium.needed
LENGTHS = {"batch_size": 3, "seq_len": 7}
LLAMA = {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
         "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256}  # fmt: skip
CONFIGS = [
    LLAMA,
    LLAMA | {"model_type": "qwen2", "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True},
    LLAMA | {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2},
    LLAMA | {"model_type": "mistral", "hidden_size": 52, "head_dim": 6, "num_hidden_layers": 5, "vocab_size": 23},
]
REFUSED = [
    ("{", "no JSON"),
    ('{"model_type": "gemma"}', "model_type must be one of llama"),
    (json.dumps(CONFIGS[0] | {"vocab_size": 0}), "vocab_size must be a whole number"),
    (json.dumps(CONFIGS[0] | {"num_key_value_heads": 5}), "g must divide h"),
    (json.dumps(CONFIGS[0] | {"attention_bias": True}), "attention_bias is not supported"),
    (json.dumps(CONFIGS[2] | {"num_experts_per_tok": 9}), "K_ff must be at most E_ff"),
]
PROGRAM = """
const { MODELS, modelCosts, modelFrom } = headcount;
const text = (value) => (value === null ? null : String(value));
const costs = (model, sizes) => MODELS.rules.map(({ name }) => {
  const found = modelCosts(model, sizes, name, 2);
  return ["macs", "params", "active", "step", "cache", "training"].map((key) => text(found[key]));
});
const presets = Object.fromEntries(MODELS.presets.map((model) => {
  const T = "V" in model.sizes || Object.keys(model.sizes).length === 2 ? { T: 7 } : {};
  return [model.name, costs(model, { ...model.sizes, B: 3, ...T })];
}));
const pasted = configs.map((config) => {
  const model = modelFrom(JSON.stringify(config));
  return costs(model, { ...model.sizes, T: 7, B: 3 })[0];
});
const reasons = refused.map((config) => {
  try { return modelFrom(config).name; } catch (error) { return error.message; }
});
const show = (id) => document.getElementById(id);
show("tab-models").click();
show("config").value = JSON.stringify(configs[0]);
show("read-config").click();
const field = show("m-g");
field.value = "0";
field.dispatchEvent(new Event("change", { bubbles: true }));
show("tab-compare").click();
const length = show("n-T");
length.value = "1.5";
length.dispatchEvent(new Event("change"));
const refusal = [show("size-why").textContent, length.value];
const [shown, why] = ["model-costs", "model-why"].map((id) => show(id).textContent);
answer({ refusal, presets, pasted, reasons, shown, why });
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    given = f"const configs = {json.dumps(CONFIGS)}; const refused = {json.dumps([text for text, _ in REFUSED])};"
    return chromium.run_in_page(tmp_path_factory.mktemp("models"), explorer_facts.text(), given + PROGRAM)


@pytest.mark.parametrize("name", PRESETS)
def test_costs_of_presets_match_closed_form(found, name):
    lengths = LENGTHS if set(Case.of(name).lengths) > {"batch_size"} else {"batch_size": 3}
    case = Case.of(name, lengths=lengths)
    ledger, given = case.ledger, accounts.Assumptions()
    try:
        decode = [accounts.decode_macs(case, given), accounts.kv_bytes(case, given)]
    except accounts.NoAccount:
        decode = [None, None]
    costs = [ledger.macs, ledger.params, ledger.active_params, *decode]
    for rule, of_page in zip(TRAINING, found["presets"][name], strict=True):
        try:
            training = flops_per_token(case, CONVENTIONS[rule]) * 3 * 7
        except UsageError:
            training = None
        assert of_page == [None if cost is None else str(cost) for cost in [*costs, training]]


@pytest.mark.parametrize("place", range(len(CONFIGS)), ids=[one["model_type"] for one in CONFIGS])
def test_costs_of_pasted_configuration(found, place):
    config, B, T = CONFIGS[place], 3, 7
    d, F, N, V = (config[f"{k}"] for k in ("hidden_size", "intermediate_size", "num_hidden_layers", "vocab_size"))
    h, g = config["num_attention_heads"], config["num_key_value_heads"]
    w = config.get("head_dim", d // h)
    E, K = config.get("num_local_experts", 1), config.get("num_experts_per_tok", 1)
    router = d * E if E > 1 else 0
    attention, rest = (
        2 * d * h * w + 2 * d * g * w,
        router + 2 * d + (h + 2 * g) * w * (config["model_type"] == "qwen2"),
    )
    embeddings = V * d * (1 if config.get("tie_word_embeddings") else 2)
    macs = B * T * (N * (attention + 3 * d * F * K + router + 2 * T * h * w) + d * V)
    params = N * (attention + 3 * d * F * E + rest) + d + embeddings
    step = B * (N * (attention + 3 * d * F * K + router + 2 * T * h * w) + d * V)
    active = params - N * 3 * d * F * (E - K)
    expected = [macs, params, active, step, 2 * N * 2 * B * T * g * w, 6 * B * T * active]
    assert found["pasted"][place] == [str(cost) for cost in expected]


def test_wrong_configurations_and_sizes_are_refused_with_reason(found):
    for (_, part), reason in zip(REFUSED, found["reasons"], strict=True):
        assert part in reason
    # published: LLaMA 3 8B has 8.03 G parameters
    assert "8,030,261,248" in found["shown"] and found["why"].startswith("g must be")
    reason, size = found["refusal"]
    assert reason.startswith("T must be") and int(size) == explorer_facts.data()["start"]["T"]
