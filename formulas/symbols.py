"""The legend: every symbol that a closed form may have, each once."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Symbol(NamedTuple):
    """A symbol of closed forms: as text, in LaTeX, its names in code (comma-separated), and its meaning."""

    letter: str
    latex: str
    word: str
    meaning: str


LEGEND = (
    Symbol("B", "B", "batch_size", "sequences in the batch"),
    Symbol("T", "T", "tgt_len, seq_len", "query tokens"),
    Symbol("S", "S", "src_len", "key tokens; equals T in self-attention"),
    Symbol("n", "n", "", "tokens in the key/value cache before a step"),
    Symbol("N_qk", "N_{qk}", "", "pairs of a query and a key that a causal mask leaves, T(T+1)/2 where S = T"),
    Symbol("d_m", "d_m", "d_model", "model width"),
    Symbol("h", "h", "num_heads", "attention heads"),
    Symbol("g", "g", "num_kv_heads", "key/value heads"),
    Symbol("d_h", "d_h", "head_dim", "width of a head"),
    Symbol("d_v", "d_v", "value_dim", "width of a value"),
    Symbol("d_r", "d_h^R", "rotary_dim", "width of a head's part with rotary positions, in addition to d_h"),
    Symbol("d_qk", "d_{qk}", "", "width of a query: d_h + d_r; d_c + d_r with absorbed up-projections"),
    Symbol("d_c", "d_c", "kv_rank", "width of the latent of keys and values"),
    Symbol("d_q", "d_c'", "query_rank", "width of the latent of queries"),
    Symbol("s", "s", "num_shared_heads", "heads that every token uses"),
    Symbol("r", "r", "top_k", "routed heads selected per token"),
    Symbol("k", "k", "num_active_heads", "heads that a token uses, s + r"),
    Symbol("E", "E", "num_experts, num_routed_heads", "attention experts; routed heads, h - s"),
    Symbol("K", "K", "top_k", "experts selected per token"),
    Symbol("D", "D", "head_dim", "width of an attention expert"),
    Symbol("F", "d_{ff}", "d_ff", "inner width of the feed-forward block"),
    Symbol("E_ff", "E_{ff}", "ffn_num_experts", "experts of a feed-forward block; 0 for a dense one"),
    Symbol("K_ff", "K_{ff}", "ffn_top_k", "experts of a feed-forward block selected per token"),
    Symbol("G", "G", "gate_width", "hidden width of the MAE gate"),
    Symbol("N", "N", "num_layers", "layers"),
    Symbol("N_enc", "N_{enc}", "num_encoder_layers", "encoder layers"),
    Symbol("N_dec", "N_{dec}", "num_decoder_layers", "decoder layers"),
    Symbol("V", "V", "vocab_size", "vocabulary size"),
    Symbol("P", "P", "max_positions", "learned positions"),
    Symbol("h_w", "h_w", "num_weight_heads", "groups of channels that share a convolution kernel"),
    Symbol("w", "w", "kernel_size", "width of a convolution kernel, or tokens of a window"),
    Symbol("N_w", "N_w", "", "tokens whose inputs a convolution keeps, at most w - 1"),
    Symbol("M", "M", "num_pooled", "pooled keys, each the mean of a block of tokens"),
    Symbol("N_kv", "N_{kv}", "", "tokens whose keys and values are computed, pooled ones included, T + M"),
    Symbol("N_pos", "N_{pos}", "num_positions", "distinct relative positions of a query and a key on a grid"),
    Symbol("d_pos", "d_{pos}", "position_width", "inner width of the network that makes a bias of a relative position"),
    Symbol("C", "C", "num_classes", "classes of an image"),
    Symbol("C_in", "C_{in}", "latent_channels, channels", "channels of the latent or of the image"),
    Symbol("C_out", "C_{out}", "out_channels", "channels of the prediction"),
    Symbol("p", "p", "patch_size", "side of a patch"),
    Symbol("p_h", "p_h", "patch_size", "height of a patch, p"),
    Symbol("p_w", "p_w", "patch_size", "width of a patch, p"),
    Symbol("d_t", "d_t", "frequency_width", "sines and cosines of a time step"),
    Symbol("N_y", "N_y", "num_labels", "class labels, none included"),
    Symbol("d_out", "d_{out}", "d_model", "output width of a square projection"),
    Symbol("b", "b", "batch", "of a measured product: matrices multiplied side by side"),
    Symbol("m", "m", "rows", "of a measured product: rows of the first matrix"),
    Symbol("i", "i", "inner", "of a measured product: the index that is summed over"),
    Symbol("j", "j", "columns", "of a measured product: columns of the second matrix"),
    Symbol("2", "2", "", "the constant two: scale and shift, both halves of a gated unit, both groups of heads"),
    Symbol("6", "6", "", "the constant six: shift, scale and gate for attention and for feed-forward"),
)


_OF_PRODUCTS = ("b", "m", "i", "j")
"""Letters of measured products, which no model has."""
NAMES = frozenset(
    name.strip()
    for row in LEGEND
    if row.letter not in _OF_PRODUCTS
    for name in (row.letter, *row.word.split(","))
    if name.strip()
)
"""Letters of a model's sizes and their names in code."""


def by_letter(letter):
    """Return the legend's row for ``letter``. Raises KeyError if there is none."""
    return {row.letter: row for row in LEGEND}[letter]


def format_sizes(sizes: Mapping[str, Any]) -> str:
    """Return sizes by letter as text: ``T=11 D=5``."""
    return " ".join(f"{letter}={size}" for letter, size in sizes.items())


def symbol(letter: str):
    """Return ``letter`` as a sympy symbol, a positive integer."""
    import sympy

    return sympy.Symbol(letter, positive=True, integer=True)
