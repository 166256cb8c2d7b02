"""Blocks of the post-norm Transformer: a layer of an encoder or decoder, embedding and output.

A ``mixer`` is any attention in the form ``mixer(path, B=, T=, S=, n=None) -> Ledger``: formulas.mha.layer or
formulas.moa.layer with its own sizes bound. ``n`` of the S tokens are cached; None: no cache.
"""

from collections.abc import Callable, Mapping
from functools import partial

from headcount.formulas.blocks import layer_norm, residual
from headcount.formulas.ledger import Entry, Ledger, Size, at, ledger
from headcount.formulas.moe_ffn import feed_forward

Mixer = Callable[..., Ledger]


def encoder_and_decoder(attention: Mixer | tuple[Mixer, Mixer]) -> tuple[Mixer, Mixer]:
    """Return the attention of encoder layers and of decoder layers; a single one is used for both."""
    return attention if isinstance(attention, tuple) else (attention, attention)


def layer(
    path: str, mixers: Mapping[str, Callable[[str], Ledger]], *, B: Size, T: Size, d_m: Size, **inner: Size
) -> Ledger:
    """Return the ledger of LayerNorm(x + block(x)) for each block: ``mixers``, and a feed-forward of sizes ``inner``.

    ``mixers``: by name of the module, a function of its path.
    """
    rows = {"B": B, "T": T, "d_m": d_m}
    blocks: dict[str, Callable[[str], Ledger]] = {**mixers, "feed_forward": partial(feed_forward, **inner, **rows)}
    return residual_blocks(path, blocks, is_pre_norm=False, **rows)


def residual_blocks(
    path: str,
    blocks: Mapping[str, Callable[[str], Ledger]],
    *,
    norm: Callable[..., Entry] = layer_norm,
    is_pre_norm: bool = True,
    is_parallel: bool = False,
    **rows: Size,
) -> Ledger:
    """Return the ledger of x + block(Norm(x)), or of Norm(x + block(x)), for each block in turn.

    ``blocks``: by name of the module, a function of its path. ``is_parallel``: all blocks read the norm of the first.
    ``rows``: B, T and d_m.
    """
    out = ledger()
    for name, block in blocks.items():
        norms = [norm(at(path, f"{name}_norm"), **rows)] if not (is_parallel and len(out)) else []
        parts = block(at(path, name)), residual(path, **rows)
        out += ledger(norms, *parts) if is_pre_norm else ledger(*parts, norms)
    return out


def translation(
    encoder: Ledger, decoder: Ledger, *, B: Size, S: Size, T: Size, d_m: Size, V: Size, n: Size | None = None
) -> Ledger:
    """Return the ledger of ``encoder`` layers over S tokens and ``decoder`` layers over T tokens (1706.03762).

    One embedding of V rows for source, target and output, scaled and added to sinusoidal positions. ``n``: number of
    cached target tokens, with the encoder's output cached too, so that it is not computed; None: no cache.
    """
    target = {"B": B, "T": T, "d_m": d_m}
    source = [{"B": B, "S": S, "d_m": d_m}] if n is None else []
    return ledger(
        *(Entry("embedding", "embedding", rows, weight={"V": V, "d_m": d_m}) for rows in source),
        Entry("embedding", "embedding", target),
        *(Entry("", "elementwise", {"2": 2, **rows}) for rows in (*source, target)),
        encoder if n is None else (),
        decoder,
        tied_output(V=V, **target),
    )


def tied_output(*, B: Size, T: Size, d_m: Size, V: Size) -> Entry:
    """Return the entry of logits over V tokens with the embedding's weight: B T d_m V MACs, no parameters."""
    return Entry("output_proj", "linear", {"B": B, "T": T, "d_m": d_m, "V": V}, summed=("d_m",))
