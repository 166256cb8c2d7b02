"""Report page "Models on many devices": the MACs, memory and communication of one rank under parallel plans."""

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
from headcount.reports.document import Page, Section, text
from headcount.reports.facts import Facts
from headcount.reports.pages.claims import VERDICT
from headcount.reports.plots import parallel

SIZES = "moa-table3"
TOKENS = 2048
RANKS = 8
PRODUCTS = "MACs of T x S products"
GIGA = {"kind": "fixed", "scale": 10**9, "digits": 2}


DATA = "parallel.csv"


def page(facts: Facts) -> Page:
    """Return the page with its sections, commands and files."""
    return Page(
        "parallel",
        "Models on many devices",
        text("parallel.about"),
        [
            Section("What a rank computes, holds and sends", [parallel.PLOT, ranks], _commands()),
            Section("Experts on several ranks", [dispatch], [_command("moa-8K32E128D", {}, TOKENS, "cp=8,ep=8")]),
            Section("Heads of MoH on several ranks", [heads], _commands("moh-llama3-8b")),
            Section("Causal attention by blocks", [blocks], [_command("llama3-8b", {}, TOKENS, "cp=8:ring")]),
        ],
        {DATA: lambda facts: document.table_as_csv(parallel.ranks())},
    )


def _commands(preset: str = "") -> list[str]:
    """Return the commands that print the costs of the plans of ``preset`` (default: of all presets)."""
    planned = [one for one in parallel.PLANNED if preset in ("", one["preset"])]
    return [_command(one["preset"], one.get("fields", {}), one["seq_len"], one["plan"]) for one in planned]


def _command(preset: str, fields: dict[str, Any], seq_len: int, plan: str) -> str:
    changed = [word for name, value in fields.items() for word in ("--set", f"{name}={value}")]
    is_default = Case.of(preset).lengths.get("seq_len") == seq_len
    length = [] if is_default else ["--seq-len", str(seq_len)]
    return shlex.join(["headcount", "count", preset, *changed, *length, "--plan", plan])


HEADS = {
    "macs": "GMACs",
    "state_bytes": "state, GB",
    "sent_bytes": "sent, GB",
    "gradient_sum_bytes": "gradient sum, GB",
}


def ranks(facts: Facts) -> str:
    """Return the table of MACs, state and sent bytes of a rank by model and plan, with a summary."""
    found = parallel.ranks()
    spans = {
        name: [choose(row[name] for row in found) / 10**9 for choose in (min, max)]
        for name in ("state_bytes", "sent_bytes")
    }
    summary = text("parallel.span", **spans)
    rows = [{HEADS.get(key, key): size for key, size in {**row, "plan": f"`{row['plan']}`"}.items()} for row in found]
    formats = dict.fromkeys(HEADS.values(), GIGA) | {"GMACs": {**GIGA, "digits": 0}}
    table = document.records(rows, formats)
    return f"{text('parallel.ranks')}\n\n{summary} {document.link_csv(DATA)}\n\n{table}"


def _sent(form: Ledger, plan: Plan) -> Size:
    """Return the number of elements that a rank sends in a forward pass: rows, keys and values, not indices."""
    (cost,) = rank_costs(form, plan)
    return sum(one.sent for one in cost.transfers if one.phase == "forward" and one.element != INDEX)


def _both_sent(form: Ledger, e: Size) -> tuple[Size, Size]:
    """Return the elements that a rank sends with dispatch of rows to experts, and with all tokens on each rank."""
    return _sent(form, Plan(cp=e, ep=e)), _sent(form, Plan(tp=e, ep=e, replicated=True))


def dispatch(facts: Facts) -> str:
    """Return the numbers of ranks for which dispatch of rows to experts sends less than replication of all tokens.

    Both are computed from the closed form, and their ratio is compared with a formula.
    """
    letters = {letter: symbol(letter) for letter in ("T", "d_m", "E", "K", "D")}
    dispatched, replicated = _both_sent(moa.layer("", B=1, S=letters["T"], **letters), sympy.Symbol("e", positive=True))
    ratio = sympy.expand(sympy.simplify(dispatched / replicated))
    rows, agree = [], True
    for row in facts.tables[SIZES].rows:
        config = Case.of(row.preset).config.attention
        own = config.letters()
        form = ledger_of(config, {"batch_size": 1, "tgt_len": TOKENS, "src_len": TOKENS})
        ratios = {e: Fraction(*_both_sent(form, e)) for e in range(2, own["E"] + 1) if own["E"] % e == 0}
        agree &= all(one == Fraction(own["K"], e) + Fraction(own["D"], own["d_m"]) for e, one in ratios.items())
        shown = {"size": row.name.rpartition(" ")[2]} | {letter: own[letter] for letter in ("K", "E", "D", "d_m")}
        shown["less at e ="] = ", ".join(str(e) for e, one in ratios.items() if one < 1) or "none"
        rows.append(shown | {"equal at e =": ", ".join(str(e) for e, one in ratios.items() if one == 1) or "none"})
    about = text(
        "parallel.dispatch",
        dispatched=sympy.latex(sympy.factor(dispatched)),
        replicated=sympy.latex(sympy.factor(replicated)),
        ratio=sympy.latex(ratio),
        formula=VERDICT[agree],
    )
    return f"{about}\n\n{document.records(rows)}"


def heads(facts: Facts) -> str:
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
    about = text(
        "parallel.heads",
        ranks=RANKS,
        contiguous=VERDICT[contiguous == whole],
        dealt=VERDICT[4 * dealt == 3 * whole],
        tokens=TOKENS,
        nothing=VERDICT[rows[3]["MACs of the rank"] == rows[2]["MACs of the rank"]],
    )
    return f"{about}\n\n{document.records(rows)}"


def blocks(facts: Facts) -> str:
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
    return f"{text('parallel.blocks', holds=VERDICT[holds])}\n\n{document.records(rows, right)}"


def _share(held: list[list[int]], rank: int) -> Fraction:
    """Return the share of the (query block, key block) pairs with queries of ``rank`` that it computes.

    ``held`` lists the blocks of each rank. The kernel computes all pairs of the rank's own queries and keys.
    """
    own = held[rank]
    pairs = [(query, key) for query in own for blocks in held for key in blocks]
    computed = sum(key <= query or key in own for query, key in pairs)
    return Fraction(computed, len(pairs))
