"""Blocks of models on many devices: the MACs, memory and communication of one rank under parallel plans."""

import shlex
from fractions import Fraction
from typing import Any

import sympy

from headcount.bench.case import Case, ledger_of
from headcount.formulas import moa
from headcount.formulas.ledger import Ledger, Size
from headcount.formulas.plan import Plan, parse
from headcount.formulas.rank import INDEX, rank_costs
from headcount.formulas.symbols import symbol
from headcount.reports import document
from headcount.reports.blocks.claims import VERDICT
from headcount.reports.document import File
from headcount.reports.facts import Facts
from headcount.reports.plots import parallel as plots

ranks_plot = plots.PLOT
ranks_csv = File("parallel.csv", lambda facts: document.table_as_csv(plots.ranks()))

SIZES = "moa-table3"
TOKENS = 2048
RANKS = 8
PRODUCTS = "MACs of T x S products"
GIGA = {"kind": "fixed", "scale": 10**9, "digits": 2}


HEADS = {
    "macs": "GMACs",
    "state_bytes": "state, GB",
    "sent_bytes": "sent, GB",
    "gradient_sum_bytes": "gradient sum, GB",
}


def commands(facts: Facts, preset: str = "") -> str:
    """Return the commands that print the costs of the plans of ``preset`` (default: of all presets)."""
    planned = [one for one in plots.PLANNED if preset in ("", one.preset)]
    return "\n".join(document.fold(_command(one)) for one in planned)


def _command(one: plots.Planned) -> str:
    changed = [word for name, value in one.fields.items() for word in ("--set", f"{name}={value}")]
    is_default = Case.of(one.preset).lengths.get("seq_len") == one.seq_len
    length = [] if is_default else ["--seq-len", str(one.seq_len)]
    return shlex.join(["headcount", "count", one.preset, *changed, *length, "--plan", one.plan])


def ranks(facts: Facts) -> str:
    """Return a table of MACs, state and sent bytes of a rank by model and plan."""
    rows = [{**row, "plan": f"`{row['plan']}`"} for row in plots.ranks()]
    shown = [{HEADS.get(key, key): size for key, size in row.items()} for row in rows]
    return document.records(shown, dict.fromkeys(HEADS.values(), GIGA) | {"GMACs": {**GIGA, "digits": 0}})


def finding(facts: Facts) -> str:
    """Return for each model with several plans of as many ranks which sends least for each MAC, and which most."""
    groups: dict[tuple[str, int, int], dict[str, Fraction]] = {}
    for row in plots.ranks():
        if row["sent_bytes"]:
            each = groups.setdefault((row["model"], row["ranks"], row["T"]), {})
            each[row["plan"]] = Fraction(row["sent_bytes"], row["macs"])
    lines = []
    for (model, ranks, _), each in groups.items():
        least, most = (choose(each, key=each.__getitem__) for choose in (min, max))
        if each[most] > LEAST_RATIO * each[least]:
            times = float(each[most] / each[least])
            lines.append(
                f"- {model} on {ranks} devices: `{least}` sends least for each MAC, `{most}` {times:.1f} times as much."
            )
    return "\n".join(lines)


LEAST_RATIO = Fraction(11, 10)
"""From which on the difference of two plans is worth a line."""


def _sent(form: Ledger, plan: Plan) -> Size:
    """Return the number of elements that a rank sends in a forward pass: rows, keys and values, not indices."""
    (cost,) = rank_costs(form, plan)
    return sum(one.sent for one in cost.transfers if one.phase == "forward" and one.element != INDEX)


def _both_sent(form: Ledger, e: Size) -> tuple[Size, Size]:
    """Return the elements that a rank sends with dispatch of rows to experts, and with all tokens on each rank."""
    return _sent(form, Plan(cp=e, ep=e)), _sent(form, Plan(tp=e, ep=e, replicated=True))


def dispatch(facts: Facts) -> dict[str, str]:
    """Return the numbers of ranks for which dispatch of rows to experts sends less than replication of all tokens.

    Both are computed from the closed form, and their ratio is compared with a formula.
    """
    letters = {letter: symbol(letter) for letter in ("T", "d_m", "E", "K", "D")}
    dispatched, replicated = _both_sent(moa.layer("", B=1, S=letters["T"], **letters), sympy.Symbol("e", positive=True))
    ratio = sympy.expand(sympy.simplify(dispatched / replicated))
    rows, agree = [], True
    for row in facts.tables[SIZES].rows:
        config = Case.of(row.target).config.attention
        own = config.letters()
        form = ledger_of(config, {"batch_size": 1, "tgt_len": TOKENS, "src_len": TOKENS})
        ratios = {e: Fraction(*_both_sent(form, e)) for e in range(2, own["E"] + 1) if own["E"] % e == 0}
        agree &= all(one == Fraction(own["K"], e) + Fraction(own["D"], own["d_m"]) for e, one in ratios.items())
        shown = {"size": row.name.rpartition(" ")[2]} | {letter: own[letter] for letter in ("K", "E", "D", "d_m")}
        shown["less at e ="] = ", ".join(str(e) for e, one in ratios.items() if one < 1) or "none"
        rows.append(shown | {"equal at e =": ", ".join(str(e) for e, one in ratios.items() if one == 1) or "none"})
    return {
        "dispatched": sympy.latex(sympy.factor(dispatched)),
        "replicated": sympy.latex(sympy.factor(replicated)),
        "ratio": sympy.latex(ratio),
        "formula": VERDICT[agree],
        "table": document.records(rows),
    }


def heads(facts: Facts) -> dict[str, Any]:
    """Return the MACs of the slowest of RANKS ranks of MoH-LLaMA3-8B, with contiguous heads and with dealt pairs."""
    dense, moh = (Case.of(name, lengths={"seq_len": TOKENS}) for name in ("llama3-8b", "moh-llama3-8b"))
    found = {
        "dense": (dense.ledger, ""),
        "released": (moh.ledger, ""),
        "ideal, contiguous heads": (moh.ideal_ledger, ",heads=contiguous"),
        "ideal, heads dealt in pairs": (moh.ideal_ledger, ",heads=dealt"),
    }
    rows = []
    for name, (form, more) in found.items():
        (cost,) = rank_costs(form, parse(f"tp={RANKS},sp{more}"))
        core = [entry for entry in cost.ledger if entry.kind in ("scores", "values")]
        used = next(core[0].dims[letter] for letter in ("k", "h") if letter in core[0].dims)
        keys = next(entry.weight["g"] for entry in cost.ledger if "g" in entry.weight)
        row = {"form": name, "heads of a token": used, "key/value heads": keys}
        rows.append(row | {PRODUCTS: sum(entry.macs for entry in core), "MACs of the rank": cost.ledger.macs})
    whole, _, contiguous, dealt = (row[PRODUCTS] for row in rows)
    return {
        "ranks": RANKS,
        "contiguous": VERDICT[contiguous == whole],
        "dealt": VERDICT[4 * dealt == 3 * whole],
        "tokens": TOKENS,
        "nothing": VERDICT[rows[3]["MACs of the rank"] == rows[2]["MACs of the rank"]],
        "table": document.records(rows),
    }


def causal_blocks(facts: Facts) -> dict[str, str]:
    """Return the share of its T x S scores that a rank computes in causal attention, for two divisions of tokens."""
    rows, holds = [], True
    for c in (2, 4, 8, 16):
        contiguous = [_share([[rank] for rank in range(c)], rank) for rank in range(c)]
        pairs = [[rank, 2 * c - 1 - rank] for rank in range(c)]
        paired = {_share(pairs, rank) for rank in range(c)}
        holds &= paired == {Fraction(c + 1, 2 * c)}
        shares = {"first of c blocks": contiguous[0], "last of c blocks": contiguous[-1], "head and tail": max(paired)}
        rows.append({"c": c} | {name: str(share) for name, share in shares.items()})
    right = dict.fromkeys(list(rows[0])[1:], {"align": "right"})
    return {"holds": VERDICT[holds], "table": document.records(rows, right)}


def _share(held: list[list[int]], rank: int) -> Fraction:
    """Return the share of the (query block, key block) pairs with queries of ``rank`` that it computes.

    ``held`` lists the blocks of each rank. The kernel computes all pairs of the rank's own queries and keys.
    """
    own = held[rank]
    pairs = [(query, key) for query in own for blocks in held for key in blocks]
    computed = sum(key <= query or key in own for query, key in pairs)
    return Fraction(computed, len(pairs))
