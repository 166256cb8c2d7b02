"""The legend: every letter a ledger may use, once."""

from typing import NamedTuple


class Symbol(NamedTuple):
    """A letter of the field: as code writes it, as LaTeX writes it, its word in code, its meaning."""

    letter: str
    latex: str
    word: str
    meaning: str


LEGEND = (
    Symbol("B", "B", "batch_size", "sequences in the batch"),
    Symbol("T", "T", "tgt_len, seq_len", "query tokens"),
    Symbol("S", "S", "src_len", "key tokens; equals T in self-attention"),
    Symbol("d_m", "d_m", "d_model", "model width"),
    Symbol("h", "h", "num_heads", "attention heads"),
    Symbol("g", "g", "num_kv_heads", "key/value heads"),
    Symbol("d_h", "d_h", "head_dim", "width of a head"),
    Symbol("E", "E", "num_experts", "attention experts"),
    Symbol("K", "K", "top_k", "experts selected per token"),
    Symbol("D", "D", "head_dim", "width of an attention expert"),
    Symbol("F", "d_{ff}", "d_ff", "inner width of the feed-forward block"),
    Symbol("G", "G", "gate_width", "hidden width of the MAE gate"),
    Symbol("V", "V", "vocab_size", "vocabulary size"),
    Symbol("P", "P", "max_positions", "learned positions"),
    Symbol("h_w", "h_w", "num_weight_heads", "groups of channels that share a convolution kernel"),
    Symbol("w", "w", "kernel_size", "width of a convolution kernel"),
    Symbol("d_out", "d_{out}", "d_model", "output width of a square projection"),
    Symbol("b", "b", "batch", "of a measured product: matrices multiplied side by side"),
    Symbol("m", "m", "rows", "of a measured product: rows of the first matrix"),
    Symbol("k", "k", "inner", "of a measured product: the index that is summed over"),
    Symbol("n", "n", "columns", "of a measured product: columns of the second matrix"),
    Symbol("2", "2", "", "the constant two: scale and shift of a norm, both halves of a gated linear unit"),
)


def by_letter(letter):
    """The legend's row for ``letter``; KeyError where the legend has none."""
    for symbol in LEGEND:
        if symbol.letter == letter:
            return symbol
    raise KeyError(f"no symbol {letter!r} in the legend")
