"""Decoding one token after another, from the same ledger: cache, multiply-accumulates and bytes of a step.

A step is a layer's own form with the new tokens as queries and all stored ones as keys, whose projections of
keys and values cover the new tokens alone. A closed cache (of an encoder's output) projects none.
"""

from collections.abc import Callable
from dataclasses import replace
from math import prod

from formulas.encoder_decoder import model as encoder_decoder
from formulas.ledger import Entry, Ledger, Size, divide, ledger
from formulas.transformer import Mixer, decoder_layer, tied_output


def projects_keys_or_values(entry: Entry) -> bool:
    """Whether an entry's output is what a cache stores."""
    return entry.kind == "linear" and _of_keys_or_values(entry)


def cached_elements(form: Ledger) -> Size:
    """Keys and values that a cache holds of the tokens that ``form`` projects, all layers together."""
    projections = form.select(projects_keys_or_values)
    return sum(entry.times * prod(n for letter, n in entry.dims.items() if letter != "d_m") for entry in projections)


def kept_elements(form: Ledger) -> Size:
    """What the caches of a whole model hold for one context: those of its decoder, where it has one."""
    decoding = form.select(lambda entry: entry.path.startswith("decoder."))
    return cached_elements(decoding if len(decoding) else form)


def attention_step(attention: Mixer, path: str, *, B: Size, new: Size, stored: Size, closed: bool = False) -> Ledger:
    """A layer's work on ``new`` tokens with ``stored`` keys after it, ``new`` of them its own unless ``closed``."""
    projected = 0 if closed else new
    form = attention(path, B=B, T=new, S=stored)
    # a projection's bias goes with it
    return Ledger(tuple(e.with_dims(S=projected) if _of_keys_or_values(e) else e for e in form))


def _of_keys_or_values(entry):
    return entry.path.rpartition(".")[2] in ("k_proj", "v_proj")


def encoder_decoder_step(
    attention: Mixer, *, B: Size, S: Size, d_m: Size, F: Size, V: Size, N_dec: Size, new: Size, stored: Size, **_
) -> Ledger:
    """The decoder on ``new`` target tokens, ``stored`` after them, reading S source tokens projected before."""

    def own(path, *, B, T, S):
        return attention_step(attention, path, B=B, new=T, stored=stored)

    def cross(path, *, B, T, S):
        return attention_step(attention, path, B=B, new=T, stored=S, closed=True)

    rows = {"B": B, "T": new, "d_m": d_m}
    return ledger(
        Entry("embedding", "embedding", rows),
        Entry("", "elementwise", {"2": 2, **rows}),
        decoder_layer("decoder.layers.*", own, cross, B=B, T=new, S=S, d_m=d_m, F=F).repeat(N_dec),
        tied_output(B=B, T=new, d_m=d_m, V=V),
    )


def encoder_decoder_prefill(attention: Mixer, *, B: Size, S: Size, N_enc: Size, N_dec: Size, **sizes: Size) -> Ledger:
    """The encoder on S source tokens, and its output's keys and values for every decoder layer."""
    form = encoder_decoder(attention, B=B, S=S, T=1, N_enc=N_enc, N_dec=N_dec, **sizes)
    return form.select(
        lambda entry: (
            entry.path.startswith("encoder.")
            or (projects_keys_or_values(entry) and entry.path.rpartition(".")[0].endswith("cross_attn"))
        )
    )


def total(step: Callable[[Size], Size], steps: Size) -> Size:
    """``step(1) + ... + step(steps)`` of an account that is linear in the stored tokens."""
    return divide(steps * (step(1) + step(steps)), 2)


def weights_read(entry: Entry) -> Size:
    """Elements of parameters that an operation reads: at most K B T of E experts, one row per embedded token, and
    a tied matrix like any other; none where nothing is computed."""
    if entry.size == 0:
        return 0
    if entry.kind == "embedding":
        return entry.size
    if entry.kind == "linear" and not entry.weight:
        return entry.times * prod(size for letter, size in entry.dims.items() if letter not in ("B", "T", "S"))
    return reachable_params(entry)


def reachable_params(entry: Entry) -> Size:
    """Parameters of an entry that its tokens can reach: each row uses at most one expert."""
    if "E" in entry.weight and "E" not in entry.dims:
        rows = prod(entry.dims[letter] for letter in ("B", "T", "K"))
        return replace(entry, weight={**entry.weight, "E": min(entry.weight["E"], rows)}).params
    return entry.params


def step_elements(step: Ledger, stored: Ledger) -> Size:
    """Elements that a step must move: weights once, every stored key and value read once, new ones written once.

    ``stored`` holds the projections of all tokens that are in the cache. The activations of the new tokens
    themselves are left out.
    """
    return sum(weights_read(entry) for entry in step) + cached_elements(stored) + cached_elements(step)


def training_macs(form: Ledger) -> Size:
    """Forward, and backward with the gradients of both operands of every contraction; no optimiser."""
    return 3 * form.macs
