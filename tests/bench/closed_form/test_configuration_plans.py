"""Configurations under parallel plans: the rank of a preset, sums over ranks, and the plan that transformers ships."""

import json
from dataclasses import replace
from functools import cache

import pytest

from headcount.bench.accounts import Assumptions
from headcount.bench.budget import __main__ as budget
from headcount.bench.budget import fit
from headcount.bench.budget.plans import times_of
from headcount.bench.card_times import kernels_of
from headcount.bench.case import Case
from headcount.bench.closed_form import store
from headcount.bench.closed_form.case import ConfigurationCase
from headcount.bench.closed_form.derivation import derive
from headcount.bench.commands import compare, count
from headcount.bench.counting.count import count_ranks
from headcount.bench.hardware import HARDWARE
from headcount.bench.latency import __main__ as latency
from headcount.bench.macs.ranks import tables
from headcount.bench.performance.kernel import CORE, ELEMENTWISE
from headcount.bench.performance.plan_time import cluster_of
from headcount.bench.targets.target import SHIPPED, Target
from headcount.formulas.decoding import cache_elements
from headcount.formulas.plan import PlanError, parse
from headcount.formulas.rank import rank_costs
from tests.bench.closed_form.families import config
from tests.bench.closed_form.test_configuration_case import LATENT, SIZES

pytest.importorskip("transformers", reason="the optional extra hf is not installed")

EVEN = {"vocab_size": 54, "num_hidden_layers": 4}
"""Sizes that 2 divides."""
EXPERTS = {"num_experts": 6, "num_local_experts": 6, "n_routed_experts": 8}
LENGTHS = {"batch_size": 2, "seq_len": 16}
PRESETS = {
    "llama": ("llama3-8b", {**SIZES, **EVEN, "num_layers": 4, "num_heads": 4, "num_kv_heads": 2, "head_dim": 6}),
    "deepseek_v3": ("deepseek-v3", {**SIZES, **EVEN, "num_layers": 4, **LATENT}),
}
for _, fields in PRESETS.values():
    del fields["num_hidden_layers"]
PLANS = {
    "llama": (
        "dp=1", "tp=2", "tp=2,sp", "cp=2", "cp=2:ring", "pp=2", "pp=1+2+1", "dp=2,fsdp", "dp=4,zero=1",
        "tp=2,sp,cp=2,dp=2,pp=2,fsdp:keep,hsdp=2,recompute=full",
    ),
    "deepseek_v3": ("dp=1", "tp=2,sp,ep=2", "dp=2,ep=2", "tp=2,ep=2:replicated", "cp=2,ep=2", "pp=2", "dp=2,fsdp"),
}  # fmt: skip
DENSE = ("llama", "mistral", "qwen2", "qwen3", "gemma2", "phi3")
DIVIDED = {**dict.fromkeys(DENSE, "tp=2"), **dict.fromkeys(("qwen3_moe", "mixtral", "gpt_oss"), "tp=2,sp,ep=2")}
DAILY = ("llama", "qwen3_moe", "phi3")
SHIPPED_AS_HERE = ("llama", "mistral", "qwen2", "qwen3", "gemma2")


def by_day(kinds):
    """Return the kinds as parameters, some of them for each day."""
    return [kind if kind in DAILY else pytest.param(kind, marks=pytest.mark.nightly) for kind in kinds]


def fields(kind):
    """Return the configuration of a family with sizes that 2 divides."""
    plain = config(kind)
    # stages have layers of their own; other plans divide each layer
    layers = EVEN["num_hidden_layers"] if kind in PRESETS else 2
    experts = {name: size for name, size in EXPERTS.items() if name in plain}
    return {**plain, **EVEN, "num_hidden_layers": layers, **experts}


@pytest.fixture(scope="module")
def case_of(tmp_path_factory):
    """A function of a family and a plan: its case, whose form is derived once."""
    folder = tmp_path_factory.mktemp("configurations")

    @cache
    def form(kind):
        path = folder / f"{kind}.json"
        path.write_text(json.dumps(fields(kind)))
        target = Target(str(path), lengths=LENGTHS)
        return target, derive(target, store.LETTERS)

    def make(kind, plan):
        target, found = form(kind)
        return ConfigurationCase(kind, found, LENGTHS, plan=parse(plan), target=target)

    return make


def figures(case, others=()):
    """Return what ranks compute, hold and send, without the activations, which are of other operations."""
    left_out = ("preset", "saved_bytes", *others)
    return [{name: value for name, value in vars(row).items() if name not in left_out} for row in tables(case)[0].rows]


@pytest.mark.parametrize(("kind", "plan"), [
    pytest.param(kind, plan, marks=[pytest.mark.nightly] if kind not in DAILY else [])
    for kind, plans in PLANS.items() for plan in plans
])  # fmt: skip
def test_rank_of_configuration_is_that_of_its_preset(kind, plan, case_of):
    name, sizes = PRESETS[kind]
    preset = Case.of(name, sizes, LENGTHS, plan=parse(plan))
    # transformers fuses projections of latents, whose weights are sent together
    others = ["collectives"] if kind == "deepseek_v3" else []
    assert figures(case_of(kind, plan), others) == figures(preset, others)


@pytest.mark.parametrize("kind", by_day(DIVIDED))
def test_ranks_sum_to_the_whole(kind, case_of):
    case = case_of(kind, DIVIDED[kind])
    (cost,) = case.ranks
    for whole, own in zip(case.ledger, cost.ledger, strict=True):
        if whole.macs:
            assert 2 * own.macs == whole.macs, whole.path
        # vectors of a token's width, of a head's, and routers are on every rank
        is_whole = not whole.weight.keys() & {"h", "g", "F", "V", "E"} or "router" in whole.path
        assert own.params * (1 if is_whole else 2) == whole.params, whole.path
        assert not (is_whole and whole.macs and whole.weight and "router" not in whole.path)
    step = case.step(16, 16)
    assert 2 * cache_elements(rank_costs(step, case.plan)[0].ledger) == cache_elements(step)


def test_fused_projections_are_divided_by_their_heads(case_of):
    case = case_of("phi3", "tp=4")
    fused = [entry for entry in case.ledger if "qkv_proj" in entry.path and entry.macs]
    # 4 heads of 8, and as keys and values 2 of 8 each
    assert [(entry.weight, entry.times) for entry in fused] == [
        ({"d_m": 32, "h": 4, "j": 8}, 2), ({"d_m": 32, "g": 2, "j": 16}, 2),
    ]  # fmt: skip
    with pytest.raises(PlanError, match="V = 54"):
        _ = case.ranks


@pytest.mark.nightly
@pytest.mark.parametrize(("kind", "named"), [("gpt2", "self_attn"), ("olmo2", "self_attn")])
def test_attention_that_ranks_cannot_divide_is_named(kind, named, case_of):
    with pytest.raises(PlanError, match=named):
        _ = case_of(kind, "tp=2").ranks


@pytest.mark.parametrize("kind", by_day(SHIPPED_AS_HERE))
def test_rank_equals_count_under_shipped_plan(kind, case_of):
    case = case_of(kind, "tp=2")
    target = Target(case.target.spec, lengths=LENGTHS, plan=SHIPPED, ranks=2)
    (counted,) = count_ranks(target).values()
    (cost,) = case.ranks
    assert (counted.macs, counted.params) == (cost.ledger.macs, cost.ledger.params)


def run(command, capsys, *words):
    """Return the exit code and the tables of a command."""
    code = command.main([*words, "--format", "json"])
    return code, json.loads(capsys.readouterr().out)["tables"]


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A file with the configuration of a LLaMA, and the fields of the preset with its sizes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADCOUNT_CACHE", str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps(fields("llama")))
    name, sizes = PRESETS["llama"]
    return "config.json", ",".join((name, *(f"{field}={size}" for field, size in sizes.items())))


def test_commands_take_plans_of_configurations(file, capsys):
    config_file, _ = file
    length = ["--seq-len", "16"]
    code, found = run(count, capsys, config_file, *length, "--plan", "tp=2")
    assert code == 0 and found[0]["rows"][0]["verdict"] == "equal"
    code, found = run(compare, capsys, config_file, *length, "--plan", "tp=2", "--plan", "dp=2")
    assert code == 0 and found

    of_model = [run(fit, capsys, name, "--on", "80G", "--train", *length, "--plan", "tp=2,sp")[1] for name in file]
    held = [{row["part"]: row["bytes"] for row in found[0]["rows"]} for found in of_model]
    assert {**held[0], "activations": 0, "total": 0} == {**held[1], "activations": 0, "total": 0}
    code, found = run(fit, capsys, config_file, "--on", "80G", *length, "--ranks", "2")
    assert code == 0 and found[0]["fits"]

    words = ["--ranks", "4", "--global-batch", "4", "--bytes", "1G", *length, "--min-distance", "0", "--limit", "0"]
    rows = [{row["plan"]: row["macs"] for row in run(budget, capsys, name, *words)[1][0]["rows"]} for name in file]
    plan = next(plan for plan in rows[0] if "mb=" in plan)
    words = [config_file, *length, "--plan", plan, "--on", "h100-sxm"]
    of_row = [
        run(fit, capsys, *words, "--train")[1][-1], run(count, capsys, *words)[1][-1],
        run(latency, capsys, "--estimate", *words, "--pass", "both")[1][-1],
    ]  # fmt: skip
    assert [[row for row in found["rows"] if row["what"] == "training step"] for found in of_row] == 3 * [
        of_row[0]["rows"]
    ]
    both = rows[0].keys() & rows[1].keys()
    assert both and {plan: rows[0][plan] for plan in both} == {plan: rows[1][plan] for plan in both}


def kernels_at(case, tokens):
    """Return the kernels of a forward pass over one sequence."""
    case = replace(case, lengths={"batch_size": 1, "seq_len": tokens})
    return kernels_of(case, case.ledger, Assumptions()).forward()


def test_kernels_keep_pairs_of_tokens_inside_attention(case_of):
    def moved(tokens):
        kernels = kernels_at(case_of("llama", "dp=1"), tokens)
        return sum(one.times * one.bytes for one in kernels if one.kind == ELEMENTWISE)

    # softmax and its scale are in the kernel of attention: what is left grows with the tokens
    assert moved(2048) == 2 * moved(1024)


@pytest.mark.parametrize("kind", by_day(PRESETS))
def test_attention_kernels_are_those_of_the_preset(kind, case_of):
    name, sizes = PRESETS[kind]
    cases = Case.of(name, sizes, LENGTHS), case_of(kind, "dp=1")
    of_preset, of_configuration = (
        [(one.core, one.macs, one.times) for one in kernels_at(case, 64) if one.kind == CORE] for case in cases
    )
    times = sum(number for *_, number in of_preset)
    # of layers with equal attention, whose feed-forward blocks may differ
    assert sum(number for *_, number in of_configuration) == times
    assert {core[:2] for core in of_configuration} == {core[:2] for core in of_preset}


@pytest.mark.parametrize("plan", ["tp=2", "cp=2", "pp=2", "pp=1+2+1", "tp=2,cp=2,pp=2"])
def test_ranks_have_all_visible_pairs_of_attention(plan, case_of):
    case = case_of("llama", plan)
    pairs = 0
    for cost in case.ranks:
        closed = times_of(case, cluster_of(HARDWARE["h100"])).closed(cost.ledger, cost)
        pairs += cost.ranks * sum(one.times * one.macs for one in closed.forward() if one.core)
    # 4 layers of 4 heads of 6, scores and values of 2 sequences of 16 tokens
    assert pairs == 4 * 4 * (6 + 6) * 2 * 16 * 17 // 2
