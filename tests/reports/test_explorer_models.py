"""Whole models in the explorer, in headless Chromium: exact integers of all presets and of pasted configurations."""

import json
from dataclasses import replace
from fractions import Fraction

import pytest

from headcount.bench import accounts
from headcount.bench.case import Case
from headcount.bench.errors import UsageError
from headcount.bench.training_flops import flops_per_token
from headcount.formulas.conventions import CONVENTIONS, TRAINING
from headcount.formulas.plan import PlanError, parse
from headcount.models.configs.base import ConfigError
from headcount.models.configs.presets import PRESETS
from tests.reports import chromium, explorer_facts

pytestmark = chromium.needed
ACCOUNTS = {
    "causal": "causal_macs", "windowed": "windowed_macs", "perToken": "macs_per_token", "perSample": "macs_per_sample",
    "prefill": "prefill_macs", "step": "decode_macs", "cache": "kv_bytes", "trainingMacs": "training_macs",
    "recomputed": "training_recompute_macs", "softmax": "softmax_flops", "norms": "norm_flops",
    "elementwise": "elementwise_flops", "state": "training_state_bytes",
}  # fmt: skip
"""Columns of the command line by the page's name."""
PLANS = [(1, 1), (4, 1), (1, 3), (2, 8), (3, 2)]
"""Numbers of tensor parallel and of fully sharded ranks."""
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
const { MODELS, modelCosts, modelFrom, nearestMoa, rankCosts } = headcount;
const text = (value) => (value === null ? null : String(value));
const texts = (found) => Object.fromEntries(Object.entries(found).map(([key, value]) => [key, text(value)]));
const costs = (model, sizes) => MODELS.rules.map(({ name }) => {
  const { groups, ...found } = modelCosts(model, sizes, { rule: name, bytes: 2, window: 3, optimizer: "adamw" });
  return texts(found);
});
const lengths = (model, T) => "V" in model.sizes || Object.keys(model.sizes).length === 2 ? { T } : {};
const ranks = Object.fromEntries(MODELS.presets.map((model) => {
  const sizes = { ...model.sizes, B: 3, ...lengths(model, 24) };
  return [model.name, plans.map(([tp, dp]) => {
    return texts(rankCosts(model, sizes, tp, dp, "adamw-mixed"));
  })];
}));
const nearest = Object.fromEntries(MODELS.presets.map((model) =>
  [model.name, nearestMoa(model, { ...model.sizes, B: 3, ...lengths(model, 7) }, 2).map(
    ({ K, E, D, costs }) => [K, E, D, costs.map(text)])]));
const presets = Object.fromEntries(MODELS.presets.map((model) => {
  return [model.name, costs(model, { ...model.sizes, B: 3, ...lengths(model, 7) })];
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
show("tab-models").click();
show("config").value = refused[0];
show("read-config").click();
const cleared = ["model-letters", "model-costs", "model-parts", "model-says", "nearest", "rank-costs"]
  .map((id) => show(id).textContent);
answer({ refusal, presets, ranks, nearest, pasted, reasons, shown, why, cleared: cleared.join("") });
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    given = f"const configs = {json.dumps(CONFIGS)}; const refused = {json.dumps([text for text, _ in REFUSED])};"
    given += f"const plans = {json.dumps(PLANS)};"
    return chromium.run_in_page(tmp_path_factory.mktemp("models"), explorer_facts.text(), given + PROGRAM)


def lengths_of(name, seq_len=7):
    """Return the lengths of a preset's input; an image has none."""
    return {"batch_size": 3} | ({"seq_len": seq_len} if set(Case.of(name).lengths) > {"batch_size"} else {})


@pytest.mark.parametrize("name", PRESETS)
def test_costs_of_presets_match_closed_form(answers, name):
    case = Case.of(name, lengths=lengths_of(name))
    ledger, given = case.ledger, accounts.Assumptions(optimizer="adamw")
    found_accounts, _ = accounts.values([*ACCOUNTS.values()], case, given)
    # the page's window is that of one row alone
    found_accounts |= accounts.values(["windowed_macs"], case, replace(given, window=3))[0]
    # the page has no fractions
    whole = {account: None if isinstance(cost, Fraction) else cost for account, cost in found_accounts.items()}
    costs = {key: whole[account] for key, account in ACCOUNTS.items()}
    costs |= {"macs": ledger.macs, "flops": ledger.flops, "params": ledger.params, "active": ledger.active_params}
    costs |= {"weights": 2 * ledger.params}
    for rule, of_page in zip(TRAINING, answers["presets"][name], strict=True):
        try:
            costs["training"] = flops_per_token(case, CONVENTIONS[rule]) * 3 * 7
        except UsageError:
            costs["training"] = None
        assert of_page == {key: None if cost is None else str(cost) for key, cost in costs.items()}


@pytest.mark.parametrize("name", PRESETS)
def test_ranks_of_presets_match_closed_form(answers, name):
    lengths = lengths_of(name, seq_len=24)
    for (tp, dp), of_page in zip(PLANS, answers["ranks"][name], strict=True):
        if "why" in of_page:
            plan = parse(",".join([f"tp={tp},sp"] * (tp > 1) + [f"dp={dp},fsdp"] * (dp > 1)) or "dp=1")
            case = Case.of(name, lengths=lengths, plan=plan)
            # only the command line has images, and more ranks than g, which share key/value heads
            has_words = any("V" in entry.weight for entry in case.ledger)
            if has_words and not any(entry.weight.get("g", tp) < tp for entry in case.ledger):
                with pytest.raises(PlanError):
                    assert case.ranks
            continue
        plan = parse(of_page["plan"])
        assert (plan.tp, plan.dp) == (tp, dp)
        (cost,) = Case.of(name, lengths=lengths, plan=plan).ranks
        costs = {"macs": cost.step_macs, "held": cost.held["weights"], "state": cost.state_bytes()}
        costs |= {"sent": cost.sent_bytes("forward", "backward"), "sync": cost.sent_bytes("sync")}
        assert of_page == {"plan": of_page["plan"]} | {key: str(one) for key, one in costs.items()}


@pytest.mark.parametrize("name", PRESETS)
def test_nearest_moa_matches_closed_form(answers, name):
    try:
        Case.of(name, {"attention": "moa", "top_k": 1, "num_experts": 8, "head_dim": 64})
    except ConfigError:
        assert answers["nearest"][name] == []
        return
    for K, E, D, costs in answers["nearest"][name]:
        ledger = Case.of(
            name, {"attention": "moa", "top_k": K, "num_experts": E, "head_dim": D}, lengths_of(name)
        ).ledger
        assert costs == [str(ledger.macs), str(ledger.params), str(ledger.active_params)]


@pytest.mark.parametrize("place", range(len(CONFIGS)), ids=[one["model_type"] for one in CONFIGS])
def test_costs_of_pasted_configuration(answers, place):
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
    cache, training = 2 * N * 2 * B * T * g * w, 6 * B * T * active
    costs = {"macs": macs, "params": params, "active": active, "step": step, "cache": cache, "training": training}
    costs |= {"causal": macs - B * N * T * (T - 1) * h * w, "state": 16 * params, "prefill": macs}
    assert {key: answers["pasted"][place][key] for key in costs} == {key: str(cost) for key, cost in costs.items()}


def test_invalid_configurations_and_sizes_have_a_reason(answers):
    for (_, part), reason in zip(REFUSED, answers["reasons"], strict=True):
        assert part in reason
    # published: LLaMA 3 8B has 8.03 G parameters
    assert answers["cleared"] == ""
    assert "8,030,261,248" in answers["shown"] and answers["why"].startswith("g must be")
    reason, size = answers["refusal"]
    assert reason.startswith("T must be") and int(size) == explorer_facts.data()["start"]["T"]
