"""The explorer's whole models: closed forms in symbols for sizes, by part, and what each rule of training counts."""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import product
from math import prod
from typing import Any

import sympy

from headcount.bench.accounts import RECIPES, encoder_macs
from headcount.bench.case import Case, ConfigError, attentions, layers_of, model_form
from headcount.bench.errors import UsageError
from headcount.bench.targets.target import PRESETS
from headcount.bench.training_flops import tokens_of
from headcount.bench.variants.variant import variant
from headcount.formulas import backward, decoding, prices
from headcount.formulas.conventions import CONVENTIONS, TRAINING, Rule
from headcount.formulas.ledger import Entry, Ledger, Size, divide, flops
from headcount.formulas.plan import Plan, PlanError
from headcount.formulas.rank import rank_costs
from headcount.formulas.symbols import by_letter, symbol
from headcount.reports.explorer.forms import SymbolicCase
from headcount.reports.explorer.nodes import ORDER, Node, node
from headcount.reports.explorer.parts import part

T, N, TP, DP = map(symbol, ("T", "N", "tp", "dp"))
SEARCHED = {letter: symbol(letter) for letter in ("K", "E", "D")}
EXAMPLE = {"attention": "moa", "top_k": 1, "num_experts": 8, "head_dim": 64}
"""Fields that put MoA into a model, at sizes that letters replace."""
PLANS = {
    "tp={tp},sp": Plan(tp=TP, sp=True, dp=DP, zero=3),
    "tp={tp},ep={tp}:replicated": Plan(tp=TP, ep=TP, replicated=True, dp=DP, zero=3),
    "": Plan(dp=DP, zero=3),
}
"""Plans of tensor parallel and fully sharded data parallel ranks, by their words without those of dp."""
AMOUNTS = ("size", "params", "active_params", "causal")
"""Factors of a rule: the size, parameters once per token, or the size times (T + 1) / T for causal pairs."""


def as_data() -> dict[str, Any]:
    """Return the models of all presets, the forms that a pasted configuration selects, and the rules.

    A form has ``groups``, see :func:`_groups`, a ``rank``, see :func:`_rank`, and nodes: MACs of products that have
    ``one_gradient``, of those that recomputation does not repeat (``once``), of ``pairs`` under a causal mask, of a
    decode ``step`` that stores token T, and of the ``prefill`` of T tokens; elements of the ``cache``; ``frozen``
    parameters; FLOPs of ``other`` operations by formulas.prices.GROUPS; and MACs and parameters with ``moa`` of K of E
    experts of width D, a multiple of ``widths``: rotary positions rotate pairs. Without a decode step it has the
    reason ``no_step``. ``configs``: forms by experts, tied output and bias, each 0 or 1. ``searched``: sizes of the
    search. ``recipes``: bytes of a trained and of a frozen parameter.
    """
    signatures: dict[tuple, int] = {}
    entries, forms, found = [], [], []
    for name in PRESETS:
        case = Case.of(name)
        sizes = _letters(case)
        model, rules = _symbolic(case), _rules(case)
        # models of equal entries share a form
        own = (model.ledger, rules)
        if own not in entries:
            entries.append(own)
            forms.append(_form(model, rules, signatures))
        place = entries.index(own)
        used = {letter: size for letter, size in sizes.items() if repr(letter) in str(forms[place])}
        found.append({"name": name, "form": place, "sizes": used})
    configs = {"".join(key): len(forms) + i for i, key in enumerate(product("01", repeat=3))}
    forms += [_decoder(*(letter == "1" for letter in key), signatures) for key in configs]
    rules = [{"name": name, "about": CONVENTIONS[name].about, "source": CONVENTIONS[name].source} for name in TRAINING]
    letters = sorted({letter for one in found for letter in one["sizes"]}, key=ORDER.get)
    named = [{"letter": letter, "meaning": by_letter(letter).meaning} for letter in letters]
    signed = [list(map(list, signature)) for signature in signatures]
    return {
        "forms": forms,
        "presets": found,
        "configs": configs,
        "rules": rules,
        "signatures": signed,
        "letters": named,
        "recipes": {name: [sum(recipe.values()), recipe["weights"]] for name, recipe in RECIPES.items()},
        "searched": {letter: own.friendly for letter, own in variant("moa").search.letters.items()},
    }


def _letters(case: Case) -> dict[str, int]:
    """Return the sizes that stay letters: lengths, and of equal layers the numbers above 1 but those of routing."""
    config, layers = case.config, layers_of(case.config)
    own = {**layers[0].letters(), **config.letters()}
    numbers = {letter: size for letter, size in own.items() if type(size) is int and size > 1}
    is_equal = (
        config.equal_blocks and len(set(layers)) == 1 and not any(isinstance(size, tuple) for size in own.values())
    )
    sizes = {letter: size for letter, size in numbers.items() if letter not in layers[0].routing_letters}
    if isinstance(attentions(config), list):
        sizes["N"] = len(layers)
    lengths = config.length_letters(case.lengths)
    return (sizes if is_equal else {}) | {letter: lengths[letter] for letter in ("T", "B") if letter in lengths}


def _rules(case: Case) -> dict[str, Rule]:
    """Return the rules that apply to a model."""
    rules = {}
    for name in TRAINING:
        with suppress(UsageError):
            tokens_of(case, CONVENTIONS[name])
            rules[name] = CONVENTIONS[name]
    return rules


def _symbolic(case: Case) -> SymbolicCase:
    """Return a case with letters for sizes; a translation reads as many tokens as it writes."""
    numbers = _letters(case)
    sizes = {letter: symbol(letter) for letter in numbers}
    sizes |= {"S": T} if "T" in sizes else {}
    symbolic = SymbolicCase(case.name, case.config, case.lengths, case.preset, sizes=sizes)
    is_stack = "N" in sizes and isinstance(attentions(case.config), list)
    return replace(symbolic, edit=partial(_repeat, layers=numbers["N"])) if is_stack else symbolic


def _repeat(form: Ledger, layers: int) -> Ledger:
    """Return a form of equal ``layers`` with N of them."""
    is_repeated = backward.repeated_layers(form)
    return Ledger(tuple(replace(e, times=N * divide(e.times, layers)) if is_repeated(e.path) else e for e in form))


def _form(case: SymbolicCase, rules: Mapping[str, Rule], signatures: dict[tuple, int]) -> dict[str, Any]:
    """Return the costs of a model, and of the same with MoA where its family has that."""
    out = _costs(case, rules, signatures) | {"tokens": len(case.lengths) > 1}
    with suppress(ConfigError):
        moa = Case.of(case.preset, EXAMPLE)
        form = replace(case, config=moa.config, sizes={**case.sizes, **SEARCHED}).ledger
        out |= {"moa": [_node(size) for size in (form.macs, form.params, form.active_params)]}
        out |= {"widths": 2 * layers_of(moa.config)[0].num_kv_heads}
    return out


def _decoder(has_experts: bool, is_tied: bool, has_bias: bool, signatures: dict[tuple, int]) -> dict[str, Any]:
    """Return the form of LLaMA's kind of model; ``has_bias``: of queries, keys and values, as Qwen2 has them."""
    case = Case.of("llama3-8b", {"ffn_num_experts": 8, "ffn_top_k": 2} if has_experts else {})
    model = _symbolic(case)

    def edit(form: Ledger) -> Ledger:
        entries: list[Entry] = []
        for entry in model.edit(form):
            entries.append(replace(entry, weight={}) if is_tied and entry.path == "output_proj" else entry)
            if has_bias and "d_h" in entry.weight and not entry.path.endswith("out_proj"):
                out = {letter: size for letter, size in entry.weight.items() if letter != "d_m"}
                dims = {letter: size for letter, size in entry.dims.items() if letter != "d_m"}
                entries.append(replace(entry, kind="bias", dims=dims, weight=out))
        return Ledger(tuple(entries))

    # MoA in its place has one key and value head
    return _form(replace(model, edit=edit), _rules(case), signatures) | {"widths": 2}


def _costs(case: SymbolicCase, rules: Mapping[str, Rule], signatures: dict[tuple, int]) -> dict[str, Any]:
    """Return the nodes of a model's costs, see :func:`as_data`."""
    form, module = case.ledger, model_form(case.config)
    is_repeated = backward.repeated_layers(form)
    other = prices.other_flops(form, prices.PRICES)
    out = {
        "groups": _groups(form, rules, signatures),
        "one_gradient": _node(3 * form.macs - backward.training_macs(form)),
        "once": _node(form.select(lambda entry: not is_repeated(entry.path)).macs),
        "frozen": _node(form.frozen_params),
        "other": [_node(sum(other[kind] for kind in kinds)) for kinds in prices.GROUPS.values()],
        **_rank(form),
    }
    if why := getattr(module, "NO_DECODE_STEP", ""):
        return {**out, "no_step": why}
    if paths := getattr(module, "CAUSAL_PATHS", ""):
        masked = form.select(lambda entry: re.fullmatch(paths, entry.path) and {"T", "S"} <= entry.dims.keys())
        out["pairs"] = _node(masked.macs)
    last = case.step(T)
    return {
        **out,
        "step": _node(last.macs),
        "cache": _node(decoding.cache_elements(last)),
        "prefill": _node(sympy.expand(encoder_macs(case)) or case.step(T, T).macs),
    }


def _rank(form: Ledger) -> dict[str, Any]:
    """Return the costs of a rank under the first of PLANS with a closed form, and the reasons against other plans.

    ``rank``: nodes of the MACs of a step, of the parameters that it keeps, and of the bytes that it sends for a
    microbatch and for the sum of gradients. ``fits``: pairs of a size and of what must divide it.
    """
    if not any("V" in entry.weight for entry in form):
        return {"no_plan": "the page has ranks of language models; headcount count PRESET --plan prints other models"}
    why = ""
    for words, plan in PLANS.items():
        try:
            (cost,) = rank_costs(form, plan)
        except (PlanError, TypeError) as reason:
            why = str(reason)
            continue
        fits: dict[tuple[Size, Size], None] = {}
        for whole, own in zip(form, cost.ledger, strict=True):
            for letter, size in (whole.dims | whole.weight).items():
                divided = divide(size, (own.dims | own.weight)[letter])
                if divided != 1:
                    total = prod(whole.dims[one] for one in ("B", "T", "K")) if letter == "K" else size
                    fits[total, divided] = None
        moved = [cost.sent_bytes("forward", "backward"), cost.sent_bytes("sync")]
        amounts = [cost.step_macs, cost.held["weights"], *moved]
        pairs = [[_node(total), _node(divided)] for total, divided in fits]
        return {"plan": words, "no_plan": why, "fits": pairs, "rank": [node(amount) for amount in amounts]}
    return {"no_plan": why}


def _node(size: Size) -> Node:
    return node(sympy.expand(size))


def _groups(form: Ledger, rules: Mapping[str, Rule], signatures: dict[tuple, int]) -> list[list[Any]]:
    """Return the entries of a form by part and by what the rules count of them.

    A group: label, whether its size is MACs, the nodes of size, parameters and active parameters, and the number of a
    signature: for each rule the FLOPs per unit and the amount's number in AMOUNTS; none where the rule does not apply.
    """
    found: dict[tuple, list[Any]] = {}
    for entry in form:
        signature = tuple(_counts(rules[name], entry) if name in rules else () for name in TRAINING)
        has_size = entry.macs != 0 or any(count and count[0] and count[1] in (0, 3) for count in signature)
        if not has_size and entry.params == 0:
            continue
        key = (part(entry), entry.macs != 0, signature)
        amounts = [entry.size if has_size else 0, entry.params, entry.active_params]
        found[key] = [a + b for a, b in zip(found.get(key, [0, 0, 0]), amounts, strict=True)]
    return [
        [label, int(is_macs), *(node(sympy.expand(amount)) for amount in amounts),
         signatures.setdefault(signature, len(signatures))]
        for (label, is_macs, signature), amounts in found.items()
    ]  # fmt: skip


def _counts(rule: Rule, entry: Entry) -> tuple[int, int]:
    """Return the FLOPs of a training step that a rule counts for each unit of an entry's amount, and which amount."""
    term = rule.term(entry)
    if term is None:
        return 0, 0
    each = flops(term.times * (1 + rule.backward + term.recompute))
    amount = AMOUNTS.index(term.of)
    if term.of == "size" and rule.pairs != "whole" and {"T", "S"} <= entry.dims.keys():
        each, amount = divide(each, 2), AMOUNTS.index("causal") if rule.pairs == "causal" else amount
    return int(each), amount
