"""The explorer's whole models: closed forms in symbols for sizes, by part, and what each rule of training counts."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import product
from typing import Any

import sympy

from headcount.bench.case import Case, attentions, layers_of, model_form
from headcount.bench.errors import UsageError
from headcount.bench.macs.cases import PRESETS
from headcount.bench.training_flops import tokens_of
from headcount.formulas import backward, decoding, llama, mha
from headcount.formulas.conventions import CONVENTIONS, TRAINING, Rule
from headcount.formulas.ledger import Entry, Ledger, Size, at, divide, flops, ledger
from headcount.formulas.symbols import by_letter, symbol
from headcount.reports.explorer.nodes import ORDER, Node, node
from headcount.reports.explorer.tables import part

B, T, N = symbol("B"), symbol("T"), symbol("N")
AMOUNTS = ("size", "params", "active_params", "causal")
"""What a rule multiplies: the size, parameters once per token, or the size times (T + 1) / T of causal pairs."""


def as_data() -> dict[str, Any]:
    """Return the models of all presets, the forms that a pasted configuration selects, and the rules.

    A form has ``groups``, see :func:`_groups`, and the nodes of the MACs and the cache elements of a decode step that
    stores token T, or the reason ``no_step``. ``configs``: forms by experts, tied output and bias, each 0 or 1.
    """
    signatures: dict[tuple, int] = {}
    forms: dict[str, dict[str, Any]] = {}
    found = []

    def number(form: dict[str, Any]) -> int:
        forms.setdefault(str(form), form)
        return [*forms].index(str(form))

    for name in PRESETS:
        case = Case.of(name)
        sizes = _letters(case)
        form = _form(case, sizes, signatures)
        used = {letter: size for letter, size in sizes.items() if repr(letter) in str(form)}
        found.append({"name": name, "form": number(form), "sizes": used})
    configs = {
        f"{experts}{tied}{bias}": number(_decoder(experts, tied, bias, signatures))
        for experts, tied, bias in product((0, 1), repeat=3)
    }
    rules = [{"name": name, "about": CONVENTIONS[name].about, "source": CONVENTIONS[name].source} for name in TRAINING]
    letters = sorted({letter for one in found for letter in one["sizes"]}, key=ORDER.get)
    named = [{"letter": letter, "meaning": by_letter(letter).meaning} for letter in letters]
    signed = [list(map(list, signature)) for signature in signatures]
    return {
        "forms": [*forms.values()],
        "presets": found,
        "configs": configs,
        "rules": rules,
        "signatures": signed,
        "letters": named,
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


def _form(case: Case, sizes: Mapping[str, int], signatures: dict[tuple, int]) -> dict[str, Any]:
    """Return the closed form of a case with letters for ``sizes``; a translation reads as many tokens as it writes."""
    config, form = case.config, model_form(case.config)
    letters = {letter: symbol(letter) for letter in sizes}
    lengths = {letter: letters["T" if letter == "S" else letter]
               for letter in config.length_letters(case.lengths)}  # fmt: skip
    given = {letter: letters.get(letter, size) for letter, size in config.letters().items()} | lengths
    attention = attentions(config, letters)
    layers = 1
    if "N" in sizes and isinstance(attention, list):
        attention, layers = attention[:1], N
    rules = {}
    for name in TRAINING:
        with suppress(UsageError):
            tokens_of(case, CONVENTIONS[name])
            rules[name] = CONVENTIONS[name]
    out = _groups(_repeated(form.model(attention, **given), layers), rules, signatures)
    if why := getattr(form, "NO_DECODE_STEP", ""):
        return {"groups": out, "no_step": why}
    del given["T"]
    return {"groups": out, **_step(_repeated(form.step(attention, new=1, stored=T, **given), layers))}


def _decoder(experts: int, tied: int, bias: int, signatures: dict[tuple, int]) -> dict[str, Any]:
    """Return the form of LLaMA's kind of model; ``bias``: of queries, keys and values, as Qwen2 has them."""
    heads = {letter: symbol(letter) for letter in ("d_m", "h", "g", "d_h")}
    h, g, d_h = heads["h"], heads["g"], heads["d_h"]

    def mixer(path: str, **lengths: Any) -> Ledger:
        dims = {"B": lengths["B"], "T": lengths["T"]}
        made = {"q_proj": {"h": h, "d_h": d_h}, "k_proj": {"g": g, "d_h": d_h}, "v_proj": {"g": g, "d_h": d_h}}
        biases = [Entry(at(path, name), "bias", {**dims, **size}, weight=size) for name, size in made.items()]
        return ledger(mha.layer(path, **heads, bias=False, **lengths), biases if bias else ())

    routed = {letter: symbol(letter) for letter in ("E_ff", "K_ff")} if experts else {}
    sizes = {"B": B, "d_m": heads["d_m"], "F": symbol("F"), "V": symbol("V"), **routed, "tied": bool(tied)}
    rules = {name: CONVENTIONS[name] for name in TRAINING}
    groups = _groups(_repeated(llama.model([mixer], T=T, **sizes)), rules, signatures)
    return {"groups": groups, **_step(_repeated(llama.step([mixer], new=1, stored=T, **sizes)))}


def _repeated(form: Ledger, layers: Size = N) -> Ledger:
    """Return a form of one layer with ``layers`` of them."""
    return Ledger(tuple(replace(e, times=layers * e.times) if backward.repeated(e) else e for e in form))


def _step(step: Ledger) -> dict[str, Node]:
    """Return the MACs of a decode step and the elements of its cache."""
    return {"step": node(sympy.expand(step.macs)), "cache": node(sympy.expand(decoding.cache_elements(step)))}


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
