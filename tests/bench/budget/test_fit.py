"""What fits on a card: bytes by hand, the largest batch and context, plans, and exit codes."""

import json
from multiprocessing import active_children

import pytest

from headcount.bench.budget import fit
from headcount.bench.case import Case
from headcount.bench.closed_form import store
from headcount.bench.hardware import HARDWARE
from headcount.bench.targets import process
from headcount.formulas.plan import parse as parse_plan
from tests.bench.closed_form import public
from tests.bench.targets.conftest import LLAMA, write

PUBLIC = {
    # parameters as published, and layers x key/value heads x width of a head, twice, or MLA's latent and rotary key
    "llama2-7b": (6_738_415_616, 2 * 32 * 32 * 128),
    "llama3-8b": (8_030_261_248, 2 * 32 * 8 * 128),
    "llama3-405b": (405_853_388_800, 2 * 126 * 8 * 128),
    "mistral-7b": (7_241_732_096, 2 * 32 * 8 * 128),
    # without its biases of queries, keys and values
    "qwen2_5-72b": (72_706_203_648 - 80 * (64 + 2 * 8) * 128, 2 * 80 * 8 * 128),
    # without the biases by which its routers correct their scores, which are buffers
    "deepseek-v3": (671_026_419_200 - 58 * 256, 61 * (512 + 64)),
    "deepseek-v2-lite": (15_706_484_224, 27 * (512 + 64)),
    "gpt3-175b": (None, 2 * 96 * 96 * 128),
    "jetmoe-8b": (None, 2 * 24 * 16 * 128),
    "palm-8b": (None, 2 * 32 * 1 * 256),
}


def run(capsys, *words):
    """Return the exit code and the table of a command."""
    code = fit.main([*words, "--format", "json"])
    table, *_ = json.loads(capsys.readouterr().out)["tables"]
    return code, table


def held(table):
    return {row["part"]: row["bytes"] for row in table["rows"]}


@pytest.mark.parametrize("preset", PUBLIC)
def test_weights_and_cache_are_those_by_hand(preset, capsys):
    params, cached = PUBLIC[preset]
    _, table = run(capsys, preset, "--on", "80G", "--context", "1000", "--batch-size", "7")
    found = held(table)
    assert found["cache"] == 2 * cached * 1000 * 7
    assert found["weights"] == 2 * (params or Case.of(preset).ledger.params)
    assert found["total"] == sum(size for part, size in found.items() if part != "total")


@pytest.mark.parametrize(
    "words, weight_bits, cache_bytes",
    [
        (["--weights", "int4", "--cache", "fp8"], 4, 1),
        (["--dtype", "float32"], 32, 4),
        (["--dtype", "bfloat16"], 16, 2),
    ],
)
def test_types_of_weights_and_cache(words, weight_bits, cache_bytes, capsys):
    params, cached = PUBLIC["llama3-8b"]
    found = held(run(capsys, "llama3-8b", "--on", "80G", "--context", "64", *words)[1])
    assert (found["weights"], found["cache"]) == (params * weight_bits // 8, 64 * cached * cache_bytes)


def test_training_state_is_that_of_the_recipe(capsys):
    params, _ = PUBLIC["llama3-8b"]
    found = held(run(capsys, "llama3-8b", "--on", "80G", "--train", "--seq-len", "16")[1])
    parts = ("weights", "gradients", "master weights", "two moments")
    assert [found[part] for part in parts] == [size * params for size in (2, 2, 4, 8)]


@pytest.mark.parametrize("plan, share", [("tp=2", 2), ("tp=8,sp", 8), ("pp=2", 2)])
def test_ranks_divide_the_cache(plan, share, capsys):
    _, cached = PUBLIC["llama3-8b"]
    found = held(run(capsys, "llama3-8b", "--on", "80G", "--context", "64", "--plan", plan)[1])
    assert found["cache"] * share == 2 * cached * 64


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "words", "weight_bits", "cache_bytes", "context", "batch", "memory", "fits"), [
    ("mixtral-8x7b", ["--weights", "int4"], 4, 2, 4096, 8, "l40s", True),
    ("mixtral-8x7b", ["--weights", "fp8"], 8, 2, 4096, 8, "l40s", False),
    ("qwen3-30b-a3b", ["--cache", "fp8"], 16, 1, 32768, 1, "h100", True),
    ("qwen3-30b-a3b", ["--cache", "fp8"], 16, 1, 131072, 4, "h100", False),
    ("gemma2-9b", [], 16, 2, 8192, 4, "l40s", True),
    ("gemma2-9b", [], 16, 2, 8192, 4, "l4", False),
    ("qwen3-next-80b-a3b", ["--weights", "int4"], 4, 2, 32768, 16, "l40s", False),
    ("qwen3-next-80b-a3b", ["--weights", "int4"], 4, 2, 32768, 16, "h100", True),
])  # fmt: skip
def test_public_configurations_are_those_by_hand(
    name, words, weight_bits, cache_bytes, context, batch, memory, fits, tmp_path, capsys
):
    model = public.PUBLIC[name]
    (tmp_path / "config.json").write_text(json.dumps(model.config))
    words = [*words, "--context", str(context), "--batch-size", str(batch), "--on", HARDWARE[memory].short_name]
    code, table = run(capsys, str(tmp_path / "config.json"), *words)
    found = held(table)
    assert found["weights"] == model.params * weight_bits // 8
    assert found["cache"] == model.cached(context) * batch * cache_bytes
    assert found["total"] == found["weights"] + found["cache"] + found["activations"]
    assert (code == 0) == fits == (found["total"] <= HARDWARE[memory].memory_bytes)


@pytest.mark.parametrize(("plan", "tp", "ep", "fits"), [
    ("tp=8,sp,ep=8", 8, 8, True), ("tp=8,ep=8:replicated", 8, 8, True), ("dp=16,ep=16", 1, 16, True),
    ("tp=4,sp,ep=4", 4, 4, False),
])  # fmt: skip
def test_ranks_of_deepseek_hold_what_they_do_by_hand(plan, tp, ep, fits, capsys):
    """Heads, dense blocks and words are divided by tp, routed experts by ep; every rank has the rest.

    The rest are latents, routers and the shared expert.
    """
    d, heads, expert = 7168, 128, 3 * 7168 * 2048
    divided = 1536 * heads * (128 + 64) + 512 * heads * (128 + 128) + heads * 128 * d
    whole = d * 1536 + 1536 + d * (512 + 64) + 512 + 2 * d
    of_layers = 61 * (divided // tp + whole) + 3 * 3 * d * 18432 // tp
    of_experts = 58 * (d * 256 + (256 // ep + 1) * expert)
    params = of_layers + of_experts + 2 * 129_280 * d // tp + d
    words = ["--context", "8192", "--batch-size", "16", "--weights", "fp8", "--on", "H200 SXM", "--plan", plan]
    code, table = run(capsys, "deepseek-v3", *words)
    found = held(table)
    # every head reads all of the latents
    assert (found["weights"], found["cache"]) == (params, 61 * (512 + 64) * 8192 * 16 * 2)
    assert (code == 0) == fits


def test_generation_names_experts_that_ranks_of_tp_do_not_share(capsys):
    assert fit.main(["deepseek-v3", "--on", "80G", "--context", "8", "--plan", "tp=8,dp=2,sp,ep=16"]) == 2
    assert "experts need ep=8" in capsys.readouterr().err


def test_encoder_and_decoder_are_held(capsys):
    """The cache is the decoder's keys and values of 3 sequences: 6 layers, 512 wide, of target and source."""
    words = ["--on", "1G", "--batch-size", "3", "--tgt-len", "11", "--src-len", "13"]
    found = held(run(capsys, "transformer-base", *words)[1])
    assert found["weights"] == 2 * Case.of("transformer-base").ledger.params
    assert found["cache"] == 2 * 3 * 6 * 2 * 512 * (11 + 13)


@pytest.mark.parametrize("words", [
    ["llama3-8b", "--context", "512"], ["llama3-8b", "--train", "--seq-len", "64", "--plan", "tp=4,sp"],
    ["moa:K=8,E=32,D=64,d_m=512,T=16"], ["dit-s2"], ["llama3-405b", "--ranks", "16"], ["gpt3-175b", "--train"],
])  # fmt: skip
@pytest.mark.parametrize("memory", [10**8, 24 * 10**9])
def test_largest_numbers_fit_and_the_next_do_not(words, memory, capsys):
    code, table = run(capsys, *words, "--on", str(memory))
    total = held(table)["total"]
    assert table["fits"] == (total <= memory) == (code == 0)
    demand = fit._demand(fit.parser().parse_args([*words, "--on", str(memory)]))
    for what, most in table["largest"].items():
        name = "batch_size" if what == "batch" else demand.length
        step = 4 if "tp=4,sp" in words and what != "batch" else 1
        assert not most or demand.at(**{name: most}).fits(memory)
        assert not demand.at(**{name: most + step}).fits(memory)


@pytest.mark.parametrize("needed", [
    lambda n: 100 + 7 * n, lambda n: n**2, lambda n: 40 * -(-n // 16), lambda n: 3 * n + 500 * (n > 50),
    lambda n: 5 + n if n <= 37 else None,
])  # fmt: skip
def test_largest_number_is_that_of_a_search_one_by_one(needed):
    for memory in (0, 1, 99, 107, 160, 500, 651, 1000):
        fitting = [n for n in range(1, 1002) if needed(n) is not None and needed(n) <= memory]
        assert fit._last_below(needed, memory) == max(fitting, default=0)


def test_search_of_the_largest_number_ends():
    assert fit._last_below(lambda n: 5, 5) == fit.MOST


def test_gathered_weights_are_those_of_a_layer_and_outside(capsys):
    """Four d x d matrices, three of d x F and two norms of one layer, two tables of 11 words and a norm, in float32."""
    sizes = ["num_layers=2", "d_model=8", "d_ff=16", "vocab_size=11", "num_heads=2", "num_kv_heads=2"]
    words = [*(f"--set={size}" for size in sizes), "--train", "--optimizer", "adamw", "--plan", "dp=2,fsdp"]
    found = held(run(capsys, "llama3-8b", "--on", "1G", "--seq-len", "4", *words)[1])
    assert found["gathered weights"] == 4 * (4 * 64 + 3 * 8 * 16 + 2 * 8 + 2 * 11 * 8 + 8)
    assert "cache" not in held(run(capsys, "dit-s2", "--on", "1G")[1])


PLANS_OF_4 = ("tp=4", "tp=2,dp=2", "tp=2,pp=2", "dp=2,pp=2", "pp=4", "dp=4")


def of_plan(capsys, line, plan):
    """Return whether a plan fits, the bytes of a rank, and the expected time of each pass."""
    code = fit.main([*line.split(), "--plan", plan, "--format", "json"])
    tables = json.loads(capsys.readouterr().out)["tables"]
    return code == 0, held(tables[0])["total"], {row["what"]: row for row in tables[1]["rows"]}


def named_plan(capsys, line, ranks):
    fit.main([*line.split(), "--ranks", str(ranks)])
    text = " ".join(capsys.readouterr().out.split())
    return text.partition(f"of {ranks} under ")[2].partition(". ")[0], text


@pytest.mark.parametrize("context", ["8Ki", "64Ki"])
def test_plan_of_ranks_has_the_shortest_decode_step_of_those_that_fit(context, capsys):
    line = f"llama3-8b --on H100-SXM --context {context} --batch-size 16"
    found = {plan: of_plan(capsys, line, plan) for plan in PLANS_OF_4}
    times = {plan: rows["decode step"]["expected_ms"] for plan, (fits, _, rows) in found.items() if fits}
    plan, text = named_plan(capsys, line, 4)
    assert plan == min(times, key=times.__getitem__)
    assert f"Of 6 plans of 4 ranks {len(times)} fit, and it has the shortest expected decode step." in text


def test_plan_of_ranks_trains_a_token_in_the_shortest_time(capsys):
    line = "llama3-8b --on H200-SXM --train --seq-len 4096"
    plan, text = named_plan(capsys, line, 4)
    _, _, rows = of_plan(capsys, line, plan)
    fastest = rows["training step"]["tokens_per_s"]
    assert "fit, and it has the shortest expected training step for each token." in text
    others = [
        of_plan(capsys, line, other)
        for other in ("tp=4,sp", "tp=4,sp,recompute=full", "dp=4,fsdp", "tp=2,dp=2,sp,fsdp")
    ]
    assert all(fastest >= rows["training step"]["tokens_per_s"] for fits, _, rows in others if fits)


def test_plan_that_does_not_fit_holds_least(capsys):
    line = "llama3-8b --on A100-40GB-SXM --context 128Ki --batch-size 64"
    plan, text = named_plan(capsys, line, 4)
    assert "none fits, and it holds least" in text
    assert of_plan(capsys, line, plan)[1] == min(of_plan(capsys, line, other)[1] for other in PLANS_OF_4)


@pytest.mark.parametrize("words", [
    "llama3-8b --context 8Ki --batch-size 40", "deepseek-v2-lite --context 4096", "llama3-8b --train --seq-len 512",
])  # fmt: skip
def test_fewest_cards_fit_and_one_less_does_not(words, capsys):
    """Of cards with one plan the smallest is tried with it, and the largest with one card less."""
    _, table = run(capsys, *words.split(), "--on", "all")
    by_plan = {}
    # in the order of their memory
    for row in table["rows"]:
        if row["fewest_cards"] == 1 and row["plan"] is None:
            assert row["verdict"] == "fits"
        elif row["fewest_cards"] is not None:
            assert parse_plan(row["plan"]).ranks == row["fewest_cards"]
            by_plan.setdefault((row["plan"], row["fewest_cards"]), []).append(row["card"])
    assert by_plan
    for (plan, number), (smallest, *_, largest) in ((key, [*cards, cards[-1]]) for key, cards in by_plan.items()):
        assert fit.main([*words.split(), "--on", smallest, "--plan", plan]) == 0
        assert number == 1 or fit.main([*words.split(), "--on", largest, "--ranks", str(number - 1)]) != 0
        capsys.readouterr()


@pytest.mark.parametrize("words", [
    "llama3-8b --train --seq-len 8192 --on all", "llama3-8b --train --seq-len 8192 --on L40S",
    "llama3-8b --train --seq-len 8192 --on B200 --ranks 2", "llama3-8b --train --seq-len 8192 --on h100-sxm",
    "llama3-405b --on h100-sxm", "llama3-8b --train --seq-len 64 --on all",
])  # fmt: skip
def test_proposed_stages_of_a_training_step_are_said_to_wait(words, capsys):
    fit.main([*words.split(), "--wide"])
    text = " ".join(capsys.readouterr().out.split())
    has_stages = "--train" in words and "pp=" in text
    assert ("pp=" in text) is any(name in words for name in ("8192 --on all", "L40S", "405b", "64 --on all"))
    assert ("for which all stages but one wait" in text) is has_stages


def test_last_line_names_the_fewest_cards(capsys):
    fit.main(["llama3-8b", "--on", "all"])
    assert capsys.readouterr().out.endswith("fits on 20 of 21 cards, the smallest L4.\n")
    assert fit.main(["llama3-405b", "--on", "all", "--format", "json"]) == 1
    data = json.loads(capsys.readouterr().out)
    # they hold a fifth of the bytes, and no quarter
    cards = ("B200", "MI300X", "GB200")
    rows = {row["card"]: row for row in data["tables"][0]["rows"]}
    *some, last = (f"{card} ({rows[card]['plan']})" for card in cards)
    assert data["result"].endswith(f"fits on 0 of 21 cards; the fewest are 5 of {', '.join(some)} or {last}.")


def test_cards_of_a_plan_have_no_fewest(capsys):
    _, table = run(capsys, "llama3-8b", "--on", "all", "--plan", "tp=2")
    assert {(row["fewest_cards"], row["plan"]) for row in table["rows"]} == {(None, None)}
    fit.main(["llama3-8b", "--on", "all", "--plan", "tp=2"])
    assert "fewest" not in capsys.readouterr().out


def test_letters_of_a_thousand_are_told_apart(capsys):
    for words, tokens in (("16k", 16_000), ("16Ki", 16_384)):
        fit.main(["llama3-8b", "--on", "80G", "--context", words])
        assert f"seq_len {tokens:,}." in capsys.readouterr().out
    with pytest.raises(SystemExit):
        fit.main(["--help"])
    assert "16Ki is 16,384, and 16k 16,000" in " ".join(capsys.readouterr().out.split())


def test_the_plan_of_ranks_holds_least_on_cards_without_times(capsys):
    def total(*words):
        return held(run(capsys, "llama3-8b", "--on", "1T", "--train", "--seq-len", "256", *words)[1])["total"]

    assert total("--ranks", "8") <= min(total("--plan", plan) for plan in ("tp=8,sp", "dp=8,fsdp", "pp=8"))


def test_all_cards_are_listed_by_memory(capsys):
    code, table = run(capsys, "llama3-8b", "--on", "all")
    known = sorted(one.memory_bytes for one in HARDWARE.values() if one.memory_bytes)
    assert code == 0 and [row["memory_bytes"] for row in table["rows"]] == known
    assert all(row["left_bytes"] == row["memory_bytes"] - row["needed_bytes"] for row in table["rows"])


def test_configuration_has_a_largest_batch(tmp_path, monkeypatch, capsys):
    pytest.importorskip("transformers", reason="the optional extra hf is not installed")
    write(tmp_path, LLAMA)
    monkeypatch.chdir(tmp_path)
    words = ["config.json", "--on", "200k", "--context", "32", "--batch-size"]
    _, table = run(capsys, *words, "3")
    # bfloat16: 2 layers, keys and values of 2 heads of 6, 32 tokens of 3 sequences
    assert held(table)["cache"] == 2 * (2 * 2 * 2 * 6 * 32) * 3
    most = table["largest"]["batch"]
    assert [run(capsys, *words, str(batch))[0] for batch in (most, most + 1)] == [0, 1]


def test_forms_of_a_configuration_are_derived_in_one_process(tmp_path, monkeypatch, capsys):
    pytest.importorskip("transformers", reason="the optional extra hf is not installed")
    started = []

    def start(*words):
        started.append(words)
        return process.isolated_process(*words)

    monkeypatch.setattr(store, "isolated_process", start)
    monkeypatch.setenv("HEADCOUNT_CACHE", str(tmp_path))
    write(tmp_path, LLAMA)
    _, table = run(capsys, str(tmp_path / "config.json"), "--on", "10k", "--context", "32")
    assert not table["fits"] and len([*(tmp_path / "closed_forms").iterdir()]) == 3
    assert len(started) == 1 and not active_children()


@pytest.mark.parametrize("context", [7, 100])
def test_ranks_of_a_configuration_hold_no_more_activations_than_one_card(context, tmp_path, capsys):
    pytest.importorskip("transformers", reason="the optional extra hf is not installed")
    write(tmp_path, LLAMA)
    words = [f"{tmp_path}/config.json,vocab_size=64", "--on", "1M", "--context", str(context), "--batch-size", "2"]
    _, alone = run(capsys, *words)
    assert held(run(capsys, *words, "--plan", "dp=1")[1]) == held(alone)
    for plan in ("tp=2", "tp=2,sp", "pp=2"):
        assert held(run(capsys, *words, "--plan", plan)[1])["activations"] <= held(alone)["activations"]
    fit.main(words)
    assert f"Input: batch_size 2, seq_len {context}." in capsys.readouterr().out


def test_module_is_counted(tmp_path, monkeypatch, capsys):
    (tmp_path / "net.py").write_text(
        "import torch\ndef make():\n    return torch.nn.Linear(5, 7), (torch.ones(3, 5),)\n"
    )
    monkeypatch.chdir(tmp_path)
    code, table = run(capsys, "net.py:make", "--on", "1k", "--train", "--optimizer", "sgd")
    # of float32: weights and gradients; the input is no activation
    assert code == 0 and held(table)["weights"] == held(table)["gradients"] == 4 * 42
    assert fit.main(["net.py:make", "--on", "100"]) == 1
    assert "Weights: in their own types." in capsys.readouterr().out


@pytest.mark.parametrize("words", [[], ["--train", "--seq-len", "64"]])
def test_reserved_bytes_are_left_free(words, capsys):
    _, free = run(capsys, "llm-s", "--on", "80G", *words)
    needed = held(free)["total"]
    for reserve, fits in ((80 * 10**9 - needed, True), (80 * 10**9 - needed + 1, False)):
        code, table = run(capsys, "llm-s", "--on", "80G", "--reserve", str(reserve), *words)
        assert (code, table["fits"], held(table)) == (int(not fits), fits, held(free))
        assert table["reserve_bytes"] == reserve
        fit.main(["llm-s", "--on", "80G", "--reserve", str(reserve), *words])
        assert f"{reserve:,} bytes are kept for CUDA" in " ".join(capsys.readouterr().out.split())


def test_bytes_may_name_themselves(capsys):
    words = ["llama3-8b", "--on", "24G", "--reserve", "1Gi"]
    assert run(capsys, *words) == run(capsys, *words[:2], "24GB", "--reserve", "1GiB")
    assert fit.main(["llama3-8b", "--on", "B"]) == 2


def test_reserve_makes_the_largest_batch_smaller(capsys):
    most = []
    for reserve in ("0", "40G"):
        _, table = run(capsys, "llama3-8b", "--on", "80G", "--context", "1000", "--reserve", reserve)
        most.append(table["largest"]["batch"])
    cached = 2 * PUBLIC["llama3-8b"][1] * 1000
    assert most[0] - most[1] in (40 * 10**9 // cached, 40 * 10**9 // cached + 1)
    code, table = run(capsys, "llm-s", "--on", "all", "--reserve", "200G")
    assert code == 1 and {row["verdict"] for row in table["rows"]} == {"does not fit"}
    for row in table["rows"]:
        assert row["left_bytes"] == row["memory_bytes"] - 200 * 10**9 - row["needed_bytes"]
