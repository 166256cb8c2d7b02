"""``headcount budget`` of single layers by letters: the front by hand, and rows that other commands take."""

import json
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.bench.budget import fit
from headcount.bench.budget.__main__ import main
from headcount.bench.budget.candidates import METRICS
from headcount.bench.budget.search import HostModel
from headcount.bench.commands import compare, count
from headcount.bench.latency.__main__ import main as latency
from headcount.bench.variants.variant import variants_with, with_width
from tests.bench.budget.test_budget import SIZES, assert_front, rows_of, run


def moa_costs(K, E, D, d_m, T):
    """Return the hand-computed costs of a MoA layer of one sequence that attends to itself."""
    return {
        "macs": T * d_m * E + 2 * T * K * D * d_m + 2 * T * D * d_m + 2 * K * T * T * D,
        "params": d_m * E + 2 * D * d_m + 2 * E * D * d_m,
        "active_params": d_m * E + 2 * D * d_m + 2 * K * D * d_m,
        "kv_bytes": 2 * T * D * 2,
    }


@settings(deadline=None, max_examples=40)
@given(
    K=SIZES, E=SIZES, D=SIZES, d_m=SIZES, T=st.integers(1, 7),
    budgets=st.dictionaries(st.sampled_from(METRICS), st.floats(0, 1), min_size=1),
)  # fmt: skip
def test_front_of_layers_matches_brute_force(K, E, D, d_m, T, budgets):
    points = {(k, e, d, m): moa_costs(k, e, d, m, T) for k, e, d, m in product(K, E, D, d_m) if k <= e}
    searched = with_width(variants_with("search")["moa"])
    host = HostModel(searched, "moa", {}, {"batch_size": 1, "src_len": T, "tgt_len": T})
    assert_front(host, {"K": K, "E": E, "D": D, "d_m": d_m}, points, budgets)


LINES = [
    "moa:d_m=64,T=32 --macs 1M --range D=16:64:16",
    "moa --d-model 64 --seq-len 32 --macs 1M --range D=16 --set bias=true",
    "moh:d_m=64,T=32,h=4 --macs 3M --range d_h=16,32",
    "mha:d_m=64,T=32 --attention gqa --macs 3M --range d_h=16,32",
    "mla:d_m=64,T=32 --macs 3M --range d_h=32 d_r=16 d_v=32 d_c=32",
    "switchhead:d_m=64,T=32 --macs 1M --range d_h=16",
    "--match-model mha:h=4,d_h=16,d_m=64,T=32 --attention moa --range K=1:8 D=16",
]


def answers(capsys, command, *argv):
    code, out, err = run(capsys, *argv, "--format", "json", main=command)
    assert code in (0, 1), err
    return json.loads(out)["tables"]


@pytest.mark.parametrize("line", LINES)
def test_row_of_a_layer_costs_the_same_in_other_commands(line, capsys):
    rows = rows_of(capsys, *line.split(), "--limit", "2")
    assert rows
    for row in rows:
        target = row["target"]
        ledger, *_, memory = answers(capsys, count.main, target, "--counter", "closed-form", "--columns", "kv_bytes")
        found = {**ledger["count"], "kv_bytes": memory["rows"][0]["kv_bytes"]}
        assert [found[metric] for metric in METRICS] == [row[metric] for metric in METRICS]
        (both, *_) = answers(capsys, compare.main, target, target)
        assert both["rows"][-1]["amounts"]["exact"]["a"] == row["macs"]
        held = answers(capsys, fit.main, target, "--on", "l40s")[0]["rows"]
        assert next(part for part in held if part["part"] == "weights")["bytes"] == 2 * row["params"]
        times = answers(capsys, latency, "--estimate", target, "--on", "l40s", "--pass", "forward")[0]["rows"]
        assert row["macs"] in [one["macs"] for one in times if one["layer"] == target]


def test_sizes_that_the_target_states_stay(capsys):
    rows = rows_of(capsys, "moa:K=4,d_m=64,T=32", "--macs", "1M", "--range", "D=16:64:16")
    assert {(row["K"], row["d_m"]) for row in rows} == {(4, 64)} and len({row["E"] for row in rows}) > 1
    rows = rows_of(capsys, "moa-8K8E128D,top_k=4", "--macs", "1G", "--limit", "3")
    assert {row["K"] for row in rows} == {4}


def test_width_is_a_letter(capsys):
    rows = rows_of(capsys, "moa:T=32,K=1,D=16", "--macs", "1M", "--range", "d_m=16,32", "E=8", "--min-distance", "0")
    assert {row["d_m"] for row in rows} <= {16, 32} and rows[0]["d_m"] == 32


def mha_costs(h, g, d_h, d_m, T):
    """Return the hand-computed MACs and parameters of an MHA layer without biases."""
    weights = 2 * d_m * d_h * (h + g)
    return {"macs": T * weights + 2 * h * T * T * d_h, "params": weights}


def test_heads_of_equal_cost_are_rows_of_their_own(capsys):
    """One wide head costs what several of the same width together do: all are on the front."""
    line = "mha:d_m=64,T=32,bias=false --macs 300k:400k --range d_h=4,8,16,32 h=1,2,4,8 g=1,2,4,8"
    rows = rows_of(capsys, *line.split())
    for row in rows:
        assert {name: row[name] for name in ("macs", "params")} == mha_costs(
            *(row[x] for x in ("h", "g", "d_h")), 64, 32
        )
    assert {(row["h"], row["g"], row["d_h"]) for row in rows} >= {(h, h, 32 // h) for h in (1, 2, 4, 8)}


MATCHED = "moa:K=4,E=16,D=8,d_m=64,T=32"


@pytest.mark.parametrize("line", [
    f"mha --match-model {MATCHED}", f"mha:d_m=64,T=32 --match-model {MATCHED}", f"mha:h=4 --match-model {MATCHED}",
    f"mha:d_m=48,bias=true --match-model {MATCHED}", f"--match-model {MATCHED} --attention mha",
    f"mha:T=32 --match-model {MATCHED.removesuffix(',T=32')}",
])  # fmt: skip
def test_layer_matches_a_layer(line, capsys):
    rows = rows_of(capsys, *line.split(), "--tolerance", "0.1", "--all-integers", "--range", "d_h=1:32")
    wanted = moa_costs(4, 16, 8, 64, 32)["macs"]
    width = 48 if "d_m=48" in line else 64
    assert rows
    for row in rows:
        h, g, d_h = (row[letter] for letter in ("h", "g", "d_h"))
        assert row["macs"] == mha_costs(h, g, d_h, width, 32)["macs"] and abs(row["macs"] - wanted) <= 0.1 * wanted
        biases = h * d_h + 2 * g * d_h + width if "bias=true" in line else 0
        assert row["params"] == mha_costs(h, g, d_h, width, 32)["params"] + biases
        assert h == 4 or "h=4" not in line


def test_range_of_every_integer_names_the_step(capsys):
    line = "moa:d_m=64,T=32 --macs 1M --range"
    _, out, _ = run(capsys, *line.split(), "E=13:64", "K=1,2,7")
    text = " ".join(out.split())
    assert "E 13 to 64, every integer, as --range gives them; E=16:64:8 takes a multiple of 8" in text
    assert "K 1 to 7, 3 sizes as given" in text
    rows = rows_of(capsys, *line.split(), "E=16:64:8", "--limit", "0")
    assert rows and all(row["E"] % 8 == 0 for row in rows)
    assert "E 16 to 64, in steps of 8" in " ".join(run(capsys, *line.split(), "E=16:64:8")[1].split())


def test_impossible_budget_names_the_parts_and_one_layer(capsys):
    line = "--macs 1.2G --params 200M --attention moa --seq-len 1024 --layers 2"
    code, _, err = run(capsys, *line.split())
    # width 512, 2 x 2 feed-forward blocks of 2,048, and 32,000 words
    parts = {"feed-forward": 4 * 2 * 1024 * 512 * 2048, "vocabulary": 1024 * 512 * 32000}
    assert code == 2 and err.count("\n") == 1
    parts = {part: parts[part] for part in sorted(parts, key=lambda part: -parts[part])}
    text = ", ".join(f"{part} {size:,}" for part, size in parts.items())
    assert f"has {sum(parts.values()):,} MACs ({text})" in err
    command = err.strip().rpartition("headcount budget ")[2]
    assert command == "moa:d_m=512,T=1024 --macs 1.2G --params 200M"
    assert rows_of(capsys, *command.split())


@pytest.mark.parametrize("name", ["gqa", "mla"])
def test_impossible_budget_keeps_the_attention(name, capsys):
    _, _, err = run(capsys, "--macs", "100M", "--attention", name)
    assert f"headcount budget {name}:d_m=" in err


def test_attention_beyond_the_budget_blames_no_other_part(capsys):
    """The rest of the model is within the budget, and the given attention is not."""
    _, _, err = run(capsys, "--macs", "500M", "--range", "K=32", "E=128", "D=512")
    assert "the nearest has" in err and "without its attention" not in err


@pytest.mark.parametrize(("line", "named"), [
    ("transformer-base --match-model moa:K=4,E=16,D=8,d_m=64,T=32", "--match-model moa:K=4,E=16,D=8,d_m=64,T=32 --att"),
    ("moa:d_m=512 --match-model transformer-big", "headcount budget --match-model transformer-big --attention moa "),
    ("mha:T=8 --match-model moa:K=4,E=16,D=8,d_m=64,T=32", "different lengths"),

    ("moa --macs 1M", "--seq-len 128"), ("moa:T=8 --macs 1M", "d_m=512"), ("moa:T=8,X=2 --macs 1M", "K (top_k)"),
    ("moa:T=8,d_m=64 --attention mha --macs 1M", "a layer of moa"), ("aggregated:d_m=64 --macs 1M", "mha, moa, mae"),
    ("moa:T=8,d_m=64,K=4 --range K=8 --macs 1M", "K is given twice"), ("moa:T=8,d_m=64,K=0 --macs 1M", "at least 1"),
    ("moa:T=8,d_m=64 --ranks 4 --global-batch 4 --bytes 1G", "one layer"),
    ("moa:T=8,d_m=64 --layers 2 --macs 1M", "one layer"),
])  # fmt: skip
def test_wrong_layer_names_what_is_valid(line, named, capsys):
    code, out, err = run(capsys, *line.split(), main=main)
    assert (code, out) == (2, "") and named in err and err.count("\n") == 1
