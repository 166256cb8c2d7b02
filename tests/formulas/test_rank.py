"""Costs of one rank of a parallel plan: formulas typed by hand, and identities between plans."""

import re
from collections import Counter
from fractions import Fraction
from functools import cache
from math import prod

import pytest

from headcount.bench import accounts
from headcount.bench.case import Case, ledger_of
from headcount.formulas.backward import training_macs
from headcount.formulas.plan import GRAMMAR, Plan, PlanError, parse
from headcount.formulas.rank import Transfer, rank_costs
from headcount.formulas.symbols import symbol
from headcount.models.configs import presets
from headcount.models.configs.make import make_config
from headcount.models.configs.registry import ATTENTIONS
from tests.cases import MODEL_CASES, MODEL_LENGTHS, configurations

BFLOAT16 = 2
LLAMA = {"num_layers": 5, "d_model": 16, "d_ff": 24, "vocab_size": 40, "num_heads": 8, "num_kv_heads": 4}


def llama(**fields):
    return Case.of("llama3-8b", LLAMA | fields, {"batch_size": 3, "seq_len": 56}).ledger


def layer(variant, **fields):
    return ledger_of(ATTENTIONS[variant](**fields), {"batch_size": 3, "tgt_len": 56, "src_len": 56})


def moa(**fields):
    return layer("moa", **{"d_model": 24, "num_experts": 32, "top_k": 8, "head_dim": 5, **fields})


def rank_cost(form, text, **options):
    (cost,) = rank_costs(form, parse(text), **options)
    return cost


def sum_sent(cost, axis, *phases):
    return sum(one.sent for one in cost.transfers if one.axis == axis and one.phase in phases)


COVERED = [
    name
    for name, values in MODEL_CASES.items()
    if values["model"] not in ("convolution", "transnext") and "num_predicted" not in values
]
"""Models whose heads and tokens plans divide."""
MOA = [name for name in COVERED if MODEL_CASES[name]["attention"] == "moa" and MODEL_CASES[name]["top_k"] > 1]
ONE_EXPERT = [name for name in COVERED if MODEL_CASES[name].get("top_k") == 1]
MIXTURES = [name for name in COVERED if "ffn_num_experts" in MODEL_CASES[name] and name not in MOA]
GATED = [name for name in COVERED if MODEL_CASES[name]["attention"] == "mae"]
UNEVEN = [
    name
    for name in COVERED
    if MODEL_CASES[name]["attention"] == "moh" and ("form" in MODEL_CASES[name] or MODEL_CASES[name]["model"] == "dit")
]
"""Models whose heads two ranks cannot divide: a token uses an odd number, or a layer has 3."""
DENSE = [name for name in COVERED if name not in (*MOA, *ONE_EXPERT, *MIXTURES, *GATED, *UNEVEN)]
EVEN = {
    "d_ff": 58, "vocab_size": 42, "seq_len": 34, "src_len": 34, "tgt_len": 26, "expert_d_ff": 26, "context_len": 38,
    "num_experts": 10, "ffn_num_experts": 6, "max_positions": 38, "latent_size": 12,
}  # fmt: skip
"""Sizes that two ranks divide."""


@cache
def make_form(name):
    """Return the ledger of a model whose sizes two ranks can divide."""
    values = MODEL_LENGTHS | MODEL_CASES[name]
    values |= {field: size for field, size in EVEN.items() if field in values}
    if values["attention"] in ("mla", "switchhead", "mae"):
        values |= {"num_heads": 4}
    config = make_config({field: value for field, value in values.items() if field not in MODEL_LENGTHS})
    return ledger_of(config, {length: values[length] for length in config.lengths})


def is_repeated(entry, plan):
    """Return whether each rank computes the whole product: of latents, of routers, with a single key/value head, and
    operations without tokens."""
    if plan.cp > 1:
        return "T" not in entry.dims and not ("S" in entry.dims and "d_m" in entry.weight)
    if plan.sp and "T" in entry.dims and not re.search(r"_attn|feed_forward", entry.path):
        return False
    # each rank gets other rows for its experts
    is_sent = plan.ep > 1 and not plan.replicated and "feed_forward" in entry.path
    return plan.tp > 1 and not is_sent and prod((entry.dims | entry.weight).get(letter, 1) for letter in "hgFVK") == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *((name, text) for name in DENSE for text in ("tp=2", "tp=2,sp")),
        *((name, "cp=2") for name in COVERED if name not in GATED),
        *((name, "tp=2,ep=2:replicated") for name in MOA),
        *((name, "cp=2,ep=2") for name in MOA),
        *((name, "tp=2,sp,ep=2") for name in MIXTURES),
        *((name, "dp=2,ep=2") for name in MIXTURES),
    ],
)
def test_ranks_compute_the_model(name, text):
    form, plan = make_form(name), parse(text)
    for whole, part in zip(form, rank_cost(form, text).ledger, strict=True):
        times = plan.ranks if plan.dp > 1 or is_repeated(whole, plan) else 1
        assert plan.ranks * part.macs == times * whole.macs, whole.path


@pytest.mark.parametrize("name", COVERED)
def test_stages_compute_the_model(name):
    form = make_form(name)
    is_tied = any(entry.kind == "linear" and "V" in entry.dims and not entry.weight for entry in form)
    if is_tied or MODEL_CASES[name]["model"] == "dit":
        with pytest.raises(PlanError, match="a tied output projection" if is_tied else "for language models only"):
            rank_costs(form, parse("pp=2"))
    else:
        costs = rank_costs(form, parse("pp=2"))
        assert sum(cost.ranks * cost.ledger.macs for cost in costs) == form.macs
        assert sum(cost.ranks * cost.ledger.params for cost in costs) == form.params


def test_stages_of_equal_length_differ_by_their_layers():
    sizes = MODEL_CASES["deepseek"] | {"num_layers": 5, "num_dense_layers": 2}
    config = make_config(sizes)
    form = ledger_of(config, dict(config.lengths))
    costs = rank_costs(form, parse("pp=1+1+1+1+1"))
    # the second layer is dense, the next two are mixtures
    assert [cost.ranks for cost in costs] == [1, 1, 2, 1]
    assert sum(cost.ranks * cost.ledger.params for cost in costs) == form.params


def test_llama_405b_on_16384_ranks():
    # the middle stage was counted from FakeTensors on a fake process group, torch 2.13
    sizes = {"num_layers": 126, "d_model": 16384, "d_ff": 53248, "num_heads": 128, "num_kv_heads": 8}
    form = Case.of("llama3-8b", sizes, {"seq_len": 8192}).ledger
    first, middle, last = rank_costs(form, parse("tp=8,sp,pp=16,dp=128,fsdp"))
    assert [cost.ranks for cost in (first, middle, last)] == [1024, 14 * 1024, 1024]
    assert middle.step_macs == 84_937_273_245_696
    everything = ("forward", "backward", "sync")
    assert BFLOAT16 * sum_sent(middle, "dp", *everything) == 18_978_164_736
    assert BFLOAT16 * sum_sent(middle, "tp", *everything) == 15_033_303_040
    # T / t rows of d_m to each neighbour
    assert sum_sent(middle, "pp", *everything) == 2 * sum_sent(first, "pp", *everything) == 2 * 1024 * 16384


def test_few_key_value_heads_are_repeated():
    # 8 ranks share 4 key/value heads of width 2: each holds one
    one, all_of = rank_cost(llama(), "tp=8"), llama(num_kv_heads=8)
    assert one.ledger.macs * 8 == all_of.macs
    assert one.ledger.params == rank_cost(all_of, "tp=8").ledger.params
    # two ranks hold the same two matrices of 16 x 2, and add their gradients
    assert sum_sent(one, "tp", "sync") == 5 * 2 * 16 * 2


def test_replicated_experts_sum_gradients_of_whole_weights():
    d, E, D, e = 24, 32, 5, 4
    cost = rank_cost(moa(), f"tp={e},ep={e}:replicated")
    # each rank has the whole router, keys and values, and the gradients of its own rows alone
    assert sum_sent(cost, "tp", "sync") == Fraction(2 * (e - 1) * (d * E + 2 * d * D), e)


def test_feed_forward_experts_with_sequence_parallel():
    mixture = {"ffn_num_experts": 8, "ffn_top_k": 2}
    cost = rank_cost(llama(**mixture), "tp=4,sp,dp=2,ep=8")
    one = next(x for x in cost.ledger if x.path.endswith("feed_forward.up_proj"))
    # 3 sequences of 56 / 4 tokens, 2 rows each; one expert of 16 x 24
    assert (one.macs, one.params) == (5 * 3 * 14 * 2 * 16 * 24, 5 * 16 * 24)
    # 84 rows, of which 7 of 8 leave: 73.5, and whole rows are sent
    assert sum_sent(cost, "ep", "backward") == 5 * 2 * 74 * 16


@pytest.mark.parametrize("tokens, ep", [(3, 4), (5, 2), (7, 8), (24, 4)])
def test_experts_receive_whole_rows(tokens, ep):
    form = Case.of("jetmoe-8b", {}, {"batch_size": 1, "seq_len": tokens}).ledger
    moved = [one for one in rank_cost(form, f"ep={ep},dp={ep}").transfers if one.kind == "all_to_all"]
    # 2 rows a token, of which a rank keeps one of ep parts
    rows = -(-2 * tokens * (ep - 1) // ep)
    assert {one.own for one in moved} == {2048 * rows, rows, ep - 1}


@pytest.mark.parametrize(
    ("heads", "k", "g"),
    # 16 of 32 heads are shared: the first four of eight ranks hold only shared ones, four of one key/value head;
    # dealt in pairs, one pair of each half reads another key/value head
    [("contiguous", 4, 1), ("dealt", 3, 2)],
)
def test_slowest_rank_of_ideal_moh(heads, k, g):
    sizes = {"d_model": 32, "num_heads": 32, "num_kv_heads": 8, "num_shared_heads": 16, "top_k": 8}
    config = ATTENTIONS["moh"](**sizes, form="ideal")
    form = ledger_of(config, {"batch_size": 1, "tgt_len": 7, "src_len": 7})
    cost = rank_cost(form, f"tp=8,heads={heads}")
    assert {x.dims["k"] for x in cost.ledger if x.kind in ("scores", "values")} == {k}
    assert {x.weight["g"] for x in cost.ledger if "g" in x.weight} == {g}
    # a key/value head on two ranks gets the gradients of both: k_proj and v_proj of d_m x 2 x d_h each
    assert sum_sent(cost, "tp", "sync") == (2 * 32 * 2 * 1 if g == 2 else 0)


@pytest.mark.parametrize("text", ["dp=2", "tp=2", "tp=2,sp", "cp=4", "dp=4,fsdp", "tp=4,sp,dp=2,fsdp", "tp=2,pp=5"])
def test_every_weight_is_held_or_repeated(text):
    costs, plan = rank_costs(llama(), parse(text)), parse(text)
    norms = 11 * 16
    repeats = plan.dp * plan.cp
    held = sum(cost.ranks * cost.held["weights"] for cost in costs)
    divided = repeats if plan.zero < 3 else 1
    assert held == divided * (llama().params + (plan.tp - 1) * norms)


def test_fsdp_divides_experts_of_all_heads_together():
    # 3 x 5 rows on two ranks: eight rows of each projection, of both routers, and of both tensors of experts
    form = layer("switchhead", d_model=24, num_heads=3, head_dim=7, num_experts=5, top_k=2)
    assert rank_cost(form, "dp=2,fsdp").held["weights"] == 2 * 11 * 24 + 2 * 8 * 24 + 2 * 8 * 24 * 7


def test_kept_weights_are_gathered_once():
    assert sum_sent(rank_cost(llama(), "dp=4,fsdp"), "dp", "backward") > 0
    assert sum_sent(rank_cost(llama(), "dp=4,fsdp:keep"), "dp", "backward") == 0


def test_sequence_parallel_divides_norms():
    cost = rank_cost(llama(), "tp=4,sp")
    assert {entry.dims["T"] for entry in cost.ledger if entry.kind == "rms_norm"} == {56 // 4}


@pytest.mark.parametrize(("zero", "states"), [(0, 16), (1, 4 + 12 / 4), (2, 2 + 14 / 4), (3, 16 / 4)])
def test_state_bytes_of_mixed_precision_adamw(zero, states):
    form = layer("mha", d_model=16, num_heads=4, bias=False)
    cost = rank_cost(form, f"dp=4,zero={zero}" if zero else "dp=4")
    assert cost.state_bytes() == states * form.params


def test_activations_of_experts_of_each_head():
    h, d_h, E, K, d_m = 3, 7, 5, 2, 24
    form = layer("switchhead", d_model=d_m, num_heads=h, head_dim=d_h, num_experts=E, top_k=K)
    # queries, keys, heads; scores and gates of two routers; values, gated values, gated heads and outputs of K experts
    token = 3 * h * d_h + 4 * h * E + h * K * (3 * d_h + d_m)
    assert rank_cost(form, "dp=1").activation_elements() == 3 * 56 * token


@pytest.mark.parametrize("name", [*dict(configurations("form")), *COVERED])
def test_degree_one_is_the_plain_ledger(name):
    config = dict(configurations("form")).get(name)
    form = ledger_of(config, dict(config.lengths)) if config else make_form(name)
    cost = rank_cost(form, "dp=1")
    assert (cost.ledger, cost.transfers, cost.step_macs) == (form, (), training_macs(form))


@pytest.mark.parametrize("n", range(1, 14))
@pytest.mark.parametrize("own", [1, 2, 7, 12, 91])
def test_collective_sends_whole_elements(n, own):
    sent = {
        kind: Transfer("", kind, "dp", n, own, "sync", times=11).sent
        for kind in ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "send")
    }
    assert sent["all_gather"] == sent["reduce_scatter"] == 11 * (n - 1) * own
    assert sent["all_to_all"] == sent["send"] == 11 * own
    # each of n ranks sends as little of 2 (n - 1) times all elements as whole elements allow
    each, rest = divmod(sent["all_reduce"], 11)
    assert rest == 0 and type(each) is int
    assert n * (each - 1) < 2 * (n - 1) * own <= n * each


def test_part_of_rows_is_rounded_once():
    # 5 / 3 rows of 7 elements
    assert Transfer("", "all_to_all", "ep", 3, Fraction(5 * 7, 3), "forward", times=2).sent == 2 * 12


DEGREES = [
    *(f"{axis}={n}" for axis in ("dp", "cp", "tp", "pp") for n in range(2, 14)),
    *(f"dp={n},{more}" for n in (2, 3, 7, 12) for more in ("fsdp", "fsdp:keep", "zero=1", "zero=2", f"fsdp,hsdp={n}")),
    *(f"dp={n},ep={n}" for n in range(2, 14)),
    "tp=2,dp=3", "tp=2,sp,cp=3", "tp=2,sp,dp=9", "cp=3:ring,dp=5", "tp=2,pp=3,dp=3,mb=5", "dp=6,ep=3,fsdp",
    "dp=12,ep=2,fsdp,hsdp=3", "tp=2,sp,dp=3,ep=3", "cp=5,ep=5", "tp=3,ep=3:replicated", "tp=3,ep=3:replicated,dp=7",
    "dp=3,recompute=full", "tp=2,dp=3,recompute=selective", "tp=2,sp,pp=2,dp=7,zero=2,recompute=full",
]  # fmt: skip
"""Plans of every kind, mostly of degrees that divide few weights."""


def make_forms(plan):
    """Return ledgers of models whose tokens, heads and experts the plan divides, and whose weights have odd sizes."""
    n = plan.tp * plan.cp * plan.ep
    sizes = {"d_model": 9, "num_heads": n, "d_ff": 5 * n, "vocab_size": 7 * n}
    decoder = sizes | {"num_layers": 13, "num_kv_heads": n, "head_dim": 2}
    mixture = {"ffn_num_experts": 3 * plan.ep, "ffn_top_k": 2}
    translation = sizes | {"head_dim": 3, "num_encoder_layers": 3, "num_decoder_layers": 2}
    experts = {"num_experts": 3 * plan.ep, "top_k": 2, "head_dim": 3, "d_ff": 5 * n, "d_model": 9}
    lengths = {"batch_size": 1, "src_len": 3 * n, "tgt_len": 3 * n}
    yield Case.of("llama3-8b", decoder, {"seq_len": 3 * n}).ledger
    yield Case.of("llama3-8b", decoder | mixture, {"seq_len": 3 * n}).ledger
    yield Case.of("transformer-base", translation, lengths).ledger
    yield Case.of("moa-8K8E128D", experts | {"vocab_size": 7 * n}, lengths).ledger


@pytest.mark.parametrize("text", DEGREES)
def test_all_costs_of_a_plan_are_integers(text):
    plan, fitting = parse(text), 0
    for form in make_forms(plan):
        try:
            costs = rank_costs(form, plan)
        except PlanError:
            continue
        fitting += 1
        assert sum(cost.ranks for cost in costs) == plan.ranks
        for cost in costs:
            numbers = [cost.ranks, cost.step_macs, cost.ledger.params, cost.state_bytes(), cost.activation_elements()]
            numbers += [size for one in cost.transfers for size in (one.group, one.times, one.sent)]
            numbers += [size for entry in cost.ledger for size in (*entry.dims.values(), *entry.weight.values())]
            assert {type(number) for number in numbers} == {int} and min(numbers) >= 0
            assert all(part <= cost.ledger.params for part in cost.held.values())
    assert fitting > 0


@pytest.mark.parametrize(("name", "text"), [("llama", "dp=3"), ("llama", "dp=7,cp=2"), ("mixture", "dp=6,ep=2")])
def test_gradients_of_each_weight_are_rounded_up(name, text):
    """An all-reduce of each weight's gradient over the ranks that have it, experts apart."""
    plan = parse(text)
    form = llama(ffn_num_experts=4, ffn_top_k=2) if name == "mixture" else llama()
    cost, sent = rank_cost(form, text), 0
    for entry in form:
        is_expert = "E" in entry.weight and "E" not in entry.dims
        own, ranks = prod(entry.weight.values()) if entry.weight else 0, plan.dp * plan.cp
        if is_expert:
            own, ranks = own // plan.ep, ranks // plan.ep
        # minus the floor of minus: rounded up
        sent += entry.times * -(-2 * (ranks - 1) * own // ranks)
    assert sum_sent(cost, "dp", "sync") == sent > 0


def experts_and_rest(ep):
    """Return the elements of experts and of other weights, by tensor, of one layer with 4 experts."""
    experts = 3 * [(4 // ep, 8 * 6)]
    # embedding and logits of 16 words; q, k, v, output; the router; three norms
    rest = [(16, 8), (16, 8), (8, 8), (4, 8), (4, 8), (8, 8), (4, 8), (8, 1), (8, 1), (8, 1)]
    return experts, rest


@pytest.mark.parametrize(
    ("ep", "dp", "hsdp"), [(1, 4, 2), (2, 4, 1), (2, 4, 2), (4, 8, 2), (2, 8, 4), (4, 12, 3), (2, 12, 2), (4, 4, 1)]
)
def test_replicas_of_experts_are_divided(ep, dp, hsdp):
    sizes = {"num_layers": 1, "d_model": 8, "d_ff": 6, "num_heads": 2, "num_kv_heads": 1, "head_dim": 4}
    sizes |= {"vocab_size": 16, "ffn_num_experts": 4, "ffn_top_k": 2}
    form = Case.of("mistral-7b", sizes, {"seq_len": 24}).ledger
    cost = rank_cost(form, f"ep={ep},dp={dp},fsdp,hsdp={hsdp}")
    held = reduced = summed = 0
    for tensors, replicas in zip(experts_and_rest(ep), (dp // ep, dp), strict=True):
        shards = replicas // hsdp
        for rows, width in tensors:
            part = -(-rows // shards) * width
            held += part
            reduced += (shards - 1) * part
            summed += -(-2 * (hsdp - 1) * part // hsdp)
    assert set(cost.held.values()) == {held} and cost.state_bytes() == 16 * held
    sync = Counter()
    for one in cost.transfers:
        if one.phase == "sync":
            sync[one.kind] += one.sent
    assert sync == Counter(reduce_scatter=reduced, all_reduce=summed)


def test_deepseek_v3_with_two_replicas():
    # of 64 ranks that divide the other weights: 17,117,633,536 but for rows of norms; each has 4 of 256 experts whole
    form = Case.of("deepseek-v3", {}, {"seq_len": 4096}).ledger
    cost = rank_cost(form, "ep=64,dp=128,fsdp,hsdp=2")
    assert cost.held["weights"] == 17_117_633_536 // 64 + 10_217_324_544
    assert cost.state_bytes() == 16 * cost.held["weights"]


def test_frozen_weights_are_not_gathered_after_a_step():
    form = make_form("dit")
    frozen = {entry.path for entry in form if entry.weight and not entry.trainable}
    for text in ("dp=2,zero=1", "dp=2,zero=2"):
        assert frozen and not frozen & {one.path for one in rank_cost(form, text).transfers}


@pytest.mark.parametrize("name", DENSE)
def test_sequence_parallel_sends_as_much_as_tensor(name):
    plain, sequence = (rank_cost(make_form(name), text) for text in ("tp=2", "tp=2,sp"))
    assert sum_sent(plain, "tp", "forward", "backward") == sum_sent(sequence, "tp", "forward", "backward") > 0


def test_recomputation():
    form = layer("mha", d_model=16, num_heads=4, bias=False)
    square = sum(entry.macs for entry in form if entry.kind in ("scores", "values"))
    assert rank_cost(form, "tp=2,recompute=selective").step_macs * 2 == 3 * form.macs + square
    full = rank_cost(form, "tp=2,recompute=full")
    assert full.step_macs * 2 == 4 * form.macs
    assert sum_sent(full, "tp", "backward") == 2 * sum_sent(full, "tp", "forward")


@pytest.mark.parametrize("name", COVERED)
def test_full_recomputation_runs_layers_again(name):
    form = make_form(name)
    layers = form.select(lambda entry: re.search(r"layers\.|blocks\.", entry.path))
    cost = rank_cost(form, "dp=2,recompute=full")
    assert cost.step_macs == rank_cost(form, "dp=2").step_macs + layers.macs
    assert any(entry.kind == "linear" for entry in form if entry not in layers)


@pytest.mark.parametrize("name", sorted(presets.PRESETS))
def test_full_recomputation_equals_its_column(name):
    case = Case.of(name)
    cost = rank_cost(case.ledger, "dp=2,recompute=full")
    assert cost.step_macs == accounts.value_of("training_recompute_macs", case, accounts.Assumptions())


@pytest.mark.parametrize("sequence", ["", ",sp"])
def test_full_recomputation_sends_for_layers_again(sequence):
    """Neither the sum of the embedding's parts nor the gather before the output projection runs again."""
    once, twice = (rank_cost(llama(), f"tp=2{sequence}{more}") for more in ("", ",recompute=full"))
    of_layers = sum(x.sent for x in once.transfers if x.phase == "forward" and x.path.startswith("layers."))
    assert sum_sent(twice, "tp", "backward") == sum_sent(once, "tp", "backward") + of_layers
    assert sum_sent(twice, "tp", "forward") == sum_sent(once, "tp", "forward") > of_layers > 0


def test_stage_of_logits_runs_nothing_again():
    costs = rank_costs(llama(), parse("pp=6,recompute=full"))
    last = costs[-1]
    assert {entry.path for entry in last.ledger} == {"norm", "output_proj"}
    assert last.step_macs == 3 * last.ledger.macs and sum(cost.again.macs for cost in costs) > 0


def test_embedding_of_a_stage_does_not_run_again():
    form = Case.of("transnext-micro").ledger
    again = rank_cost(form, "dp=2,recompute=full").again
    once = form.select(lambda entry: "patch_embedding" in entry.path or not entry.path.startswith("stages."))
    assert any(entry.path.startswith("stages.") and entry.macs for entry in once)
    assert again.macs == form.macs - once.macs


def test_kept_activations_hold_results_of_the_largest_layer():
    # the first of 3 layers is dense, with a wider feed-forward block than the experts of the others
    sizes = MODEL_CASES["deepseek"] | {"num_layers": 3, "num_dense_layers": 1, "d_ff": 2**20}
    config = make_config(sizes)
    form = ledger_of(config, dict(config.lengths))
    tokens = prod(config.lengths.values())
    kept = rank_cost(form, "dp=1,recompute=full").activation_elements()
    # gate, up, activation and product of the two
    assert 4 * tokens * 2**20 < kept < 5 * tokens * 2**20


def test_sent_bytes_as_a_formula():
    B, T, d, h, t = (symbol(letter) for letter in ("B", "T", "d_m", "h", "K"))
    form = ledger_of(
        ATTENTIONS["mha"](d_model=16, num_heads=4, bias=False),
        {"batch_size": 1, "tgt_len": 7, "src_len": 7},
        {"B": B, "T": T, "S": T, "d_m": d, "h": h, "g": h},
    )
    (cost,) = rank_costs(form, Plan(tp=t))
    assert (cost.sent_bytes("forward") - BFLOAT16 * 2 * (t - 1) * B * T * d / t).simplify() == 0


@pytest.mark.parametrize("t", [2, 4])
def test_encoder_decoder_tensor_parallel(t):
    B, S, T, d_m, layers = 3, 28, 56, 16, 5
    sizes = {"d_model": d_m, "num_heads": 8, "d_ff": 24, "vocab_size": 40}
    sizes |= {"num_encoder_layers": layers, "num_decoder_layers": layers}
    form = Case.of("transformer-base", sizes, {"batch_size": B, "src_len": S, "tgt_len": T}).ledger
    source, target = B * S * d_m, B * T * d_m
    # blocks: two of an encoder layer, three of a decoder layer; words of both sides
    blocks, words = 2 * layers * source + 3 * layers * target, source + target
    plain, sequence = rank_cost(form, f"tp={t}"), rank_cost(form, f"tp={t},sp")
    assert plain.ledger.macs * t == sequence.ledger.macs * t == form.macs
    assert sum_sent(plain, "tp", "forward") * t == 2 * (t - 1) * (blocks + words)
    # backward: the inputs of blocks and logits, and the encoder's output, whose gradients of all layers are one sum
    assert sum_sent(plain, "tp", "backward") * t == 2 * (t - 1) * (blocks + target + source)
    assert sum_sent(sequence, "tp", "forward") * t == (t - 1) * (2 * blocks + words + target + source)
    assert sum_sent(sequence, "tp", "backward") == sum_sent(sequence, "tp", "forward")


def test_encoder_decoder_context_parallel():
    B, S, T, d_m, layers = 3, 28, 56, 16, 5
    sizes = {"d_model": d_m, "num_heads": 8, "num_encoder_layers": layers, "num_decoder_layers": layers}
    form = Case.of("transformer-base", sizes, {"batch_size": B, "src_len": S, "tgt_len": T}).ledger
    cost = rank_cost(form, "cp=4")
    assert cost.ledger.macs * 4 == form.macs
    # keys and values of the source in encoder and decoder layers, of the target in decoder layers
    assert sum_sent(cost, "cp", "forward") == 3 * 2 * B * (2 * layers * S + layers * T) * d_m // 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tp=0", "tp must be an integer from 1"),
        ("tp=2,vpp=2", f"unknown word 'vpp'; a plan is {GRAMMAR}, words dp, cp, tp, ep, pp"),
        ("tp=2,tp=4", "tp is given twice"),
        ("tp", "tp needs a value"),
        ("sp=2,tp=2", "sp takes no value"),
        ("sp", "it needs tp=2"),
        ("cp=2:loop", "choose from ring"),
        ("ep=3", "ep=3 does not divide dp x cp x tp = 1"),
        ("tp=4,ep=2:replicated", "which must be 2 too"),
        ("zero=4", "zero must be one of 1, 2, 3"),
        ("hsdp=2", "does not divide dp x cp"),
        ("dp=2,hsdp=2", "need fsdp"),
        ("recompute=some", "none, selective, full"),
        ("pp=999999999x1+1", "at most 100,000"),
    ],
)
def test_invalid_plan_raises(text, message):
    with pytest.raises(PlanError, match=message):
        parse(text)


@pytest.mark.parametrize(
    ("form", "text", "message"),
    [
        (llama(), "tp=3", "tp=3 does not divide V = 40; nearest that fit: 2, 4"),
        (llama(), "cp=16", r"cp=16 does not divide T = 56; nearest that fit: 14, 28"),
        (llama(), "ep=2,dp=2", "the model has no experts"),
        (llama(), "pp=2+2", r"pp=2\+2 are 4 layers; the model has 5"),
        (moa(), "tp=2", "ep=2:replicated divides its experts"),
        (moa(), "pp=2", "has no layers"),
        (layer("moh", d_model=24, num_heads=8, num_shared_heads=2, top_k=1, form="ideal"), "tp=2", "no whole number"),
        (
            layer("moh", d_model=24, num_heads=8, num_shared_heads=3, top_k=3, form="ideal"),
            "tp=2,heads=dealt",
            "does not divide 3 shared heads and 5 others",
        ),
        (moa(), "dp=5,ep=5", "ep=5 does not divide E = 32; nearest that fit: 4, 8"),
        (moa(), "tp=2,dp=2,ep=2", "need ep=2:replicated"),
        (moa(), "dp=4,ep=4,fsdp,hsdp=2", "hsdp=2 does not divide the replicas of experts, dp x cp x tp / ep = 1$"),
        (
            layer("moh", d_model=12, num_heads=12, num_kv_heads=3, num_shared_heads=0, top_k=4, form="ideal"),
            "tp=2,heads=dealt",
            "^tp=2, heads=dealt: ranks share the 3 key/value heads unevenly",
        ),
        (
            layer("switchhead", d_model=24, num_heads=4, head_dim=5, num_experts=4, top_k=2),
            "dp=2,ep=2",
            "tp divides heads",
        ),
        (Case.of("moh-vit-s-80").ideal_ledger, "tp=3", "tp=3: no closed form of stages.0"),
        (Case.of("chinchilla-70b").ledger, "cp=2", "keys and values that layers.*.self_attn.position_proj computes"),
        (Case.of("lightconv").ledger, "cp=2", "cp=2: no closed form of encoder.layers.0.conv"),
        (Case.of("lightconv").ledger, "tp=2,sp", "sp: no closed form of encoder.layers.0.conv, which reads"),
        (Case.of("mae-7").ledger, "tp=2", "no closed form of encoder.layers.*.self_attn.gate.fc2, which reads all"),
        (layer("aggregated", d_model=24, num_heads=4, side=6, pool_ratio=3), "cp=2", "no closed form of k_proj, which"),
    ],
)
def test_unfitting_plan_raises(form, text, message):
    with pytest.raises(PlanError, match=message):
        rank_costs(form, parse(text))


@pytest.mark.parametrize("text", ["dp=1", "tp=8,cp=2:ring,pp=7+14x8+7,sp,fsdp:keep", "tp=2,ep=2:replicated,mb=3"])
def test_plan_text_round_trips(text):
    assert parse(str(parse(text))) == parse(text)


@pytest.mark.parametrize("mb", [1, 2, 3, 5, 12])
@pytest.mark.parametrize("stages", ["4", "1+1+2+1", "2+1+1+1"])
def test_stages_keep_the_microbatches_of_one_forward_one_backward(stages, mb):
    """The schedule is run: a stage begins as many microbatches as it may, and each backward pass frees one."""
    pp = 4
    kept = [0] * pp
    for stage in range(pp):
        # forward passes before the first backward pass, then one of each in turn
        order = "F" * min(pp - stage - 1, mb)
        order += "FB" * (mb - len(order)) + "B" * len(order)
        held = 0
        for one in order:
            held += 1 if one == "F" else -1
            kept[stage] = max(kept[stage], held)
    costs = rank_costs(llama(), parse(f"pp={stages},mb={mb}"))
    places = [cost.place for cost in costs]
    assert [cost.under_way for cost in costs] == [kept[place] for place in places]
    assert places[0] == 0 and costs[-1].stage == "last" and places[-1] == pp - 1
