"""Triton kernels of the attention core, with an online softmax in base 2 and float32 sums.

    mqa     the K rows of every token over one key/value head; causal by token; softmax of the gates in the epilogue
    frame   outputs of shared heads times their gates, and zeros at the heads that a token does not select
    ragged  the rows of one (sequence, head), wherever their tokens stand; causal by position; gate in the epilogue
    decode  one query for each sequence: its selected heads by key/value head, the keys split among programs
    combine the parts of decode put together, times the gate

``scale`` is 1 / (sqrt(d_h) ln 2). A hidden key is True in ``hidden`` (B, S); a row that sees no key yields zeros.
Strides of keys and values are multiples of UNIT: Triton itself would notice only those that 16 divides.
"""

# run-time type checks would wrap what triton compiles
from typing import no_type_check

import triton
import triton.language as tl


@triton.jit
@no_type_check
def _load_rows(pointers, live, d, D: tl.constexpr, D_PAD: tl.constexpr):
    """A tile of rows of width D, padded with zeros; without a mask on columns where there is no padding."""
    if D == D_PAD:
        return tl.load(pointers, mask=live, other=0.0)
    else:
        return tl.load(pointers, mask=live & (d < D), other=0.0)


@triton.jit
@no_type_check
def _attend_keys(
    q, k_rows, v_rows, hidden_row, stride_k, stride_v, lower, upper, src_len, position, scale, top, norm, acc,
    MASKED: tl.constexpr, HIDDEN: tl.constexpr, PRECISION: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr,
    BN: tl.constexpr,
):  # fmt: skip
    """Keys [lower, upper) added to top (BM,), norm (BM,) and acc (BM, D_PAD) of the queries q (BM, D_PAD).

    ``k_rows`` and ``v_rows`` point to the first key and value; ``position`` (BM,) is the last key that a row may see.
    """
    d = tl.arange(0, D_PAD)
    for start in range(lower, upper, BN):
        s = start + tl.arange(0, BN)
        # (D_PAD, BN): a key is a column, so that no tile is transposed
        k_tile = k_rows + s[None, :].to(tl.int64) * stride_k + d[:, None]
        k = _load_rows(k_tile, s[None, :] < src_len, d[:, None], D, D_PAD)
        scores = tl.dot(q, k, input_precision=PRECISION) * scale
        if MASKED:
            seen = (s[None, :] < src_len) & (s[None, :] <= position[:, None])
            if HIDDEN:
                seen = seen & (tl.load(hidden_row + s, mask=s < src_len, other=1) == 0)[None, :]
            scores = tl.where(seen, scores, float("-inf"))
        # earlier sums are for the old top: they shrink by 2^(top - new)
        new = tl.maximum(top, tl.max(scores, 1))
        # a row that has seen no key has the top -inf, and -inf - -inf is no number
        safe = tl.where(new == float("-inf"), 0.0, new) if MASKED else new
        p = tl.exp2(scores - safe[:, None])
        shrink = tl.exp2(top - safe)
        norm = norm * shrink + tl.sum(p, 1)
        v_tile = v_rows + s[:, None].to(tl.int64) * stride_v + d[None, :]
        v = _load_rows(v_tile, s[:, None] < src_len, d[None, :], D, D_PAD)
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision=PRECISION)
        top = new
    return top, norm, acc


@triton.jit
@no_type_check
def _attend(
    q, k_rows, v_rows, hidden_row, stride_k, stride_v, first, free, last, src_len, position, scale,
    HIDDEN: tl.constexpr, PRECISION: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr,
):  # fmt: skip
    """Tops, norms and sums of a tile of rows over the keys [first, last); every row sees those before ``free``."""
    top = tl.full((BM,), float("-inf"), tl.float32)
    norm = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D_PAD), tl.float32)
    # whole blocks that every row sees need no mask
    free = first if HIDDEN else first + tl.maximum(tl.minimum(free, src_len) - first, 0) // BN * BN
    top, norm, acc = _attend_keys(
        q, k_rows, v_rows, hidden_row, stride_k, stride_v, first, free, src_len, position, scale, top, norm, acc,
        False, False, PRECISION, D, D_PAD, BN,
    )  # fmt: skip
    top, norm, acc = _attend_keys(
        q, k_rows, v_rows, hidden_row, stride_k, stride_v, free, last, src_len, position, scale, top, norm, acc,
        True, HIDDEN, PRECISION, D, D_PAD, BN,
    )  # fmt: skip
    return top, norm, acc


@triton.jit
@no_type_check
def mqa_kernel(
    q_ptr, k_ptr, v_ptr, logits_ptr, hidden_ptr, out_ptr, num_rows, src_len, stride_logits, scale,
    stride_kb, stride_ks, stride_vb, stride_vs,
    K: tl.constexpr, K_PAD: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr, CAUSAL: tl.constexpr,
    HIDDEN: tl.constexpr, PRECISION: tl.constexpr, UNIT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Row r of a sequence is slot r % K of token r // K; the tokens are the last ones of the keys."""
    program, blocks = tl.program_id(0), tl.cdiv(num_rows, BM)
    batch, begin = (program // blocks).to(tl.int64), program % blocks * BM
    rows = begin + tl.arange(0, BM)
    live = rows < num_rows
    d = tl.arange(0, D_PAD)
    # a scalar and offsets of 32 bits take fewer registers than a tile of pointers
    first, places = (batch * num_rows + begin) * D, tl.arange(0, BM)[:, None] * D + d[None, :]
    q = _load_rows(q_ptr + first + places, live[:, None], d[None, :], D, D_PAD)
    if CAUSAL:
        shift = src_len - num_rows // K
        position = rows // K + shift
        free, last = begin // K + shift + 1, tl.minimum((begin + BM - 1) // K + shift + 1, src_len)
    else:
        position = tl.zeros((BM,), tl.int32) + src_len
        free, last = src_len, src_len
    _, norm, acc = _attend(
        q, k_ptr + batch * stride_kb * UNIT, v_ptr + batch * stride_vb * UNIT, hidden_ptr + batch * src_len,
        stride_ks * UNIT, stride_vs * UNIT, 0, free, last, src_len, position, scale,
        HIDDEN, PRECISION, D, D_PAD, BM, BN,
    )  # fmt: skip
    # the gate (BM,) of each row: a softmax over the K logits of its token, at its slot
    slots = tl.arange(0, K_PAD)[None, :]
    # rows beyond the last one have the logits of its token, so that these are finite
    tokens = batch * (num_rows // K) + tl.minimum(rows, num_rows - 1) // K
    logits = tl.load(logits_ptr + tokens[:, None] * stride_logits + slots, mask=slots < K, other=float("-inf"))
    logits = logits.to(tl.float32)
    weights = tl.exp(logits - tl.max(logits, 1)[:, None])
    gate = tl.sum(tl.where(slots == (rows % K)[:, None], weights, 0.0), 1) / tl.sum(weights, 1)
    out = acc * (gate / tl.where(norm == 0.0, 1.0, norm))[:, None]
    tl.store(out_ptr + first + places, out.to(out_ptr.dtype.element_ty), mask=live[:, None] & (d[None, :] < D))


@triton.jit
@no_type_check
def frame_kernel(
    own_ptr, heads_ptr, gates_ptr, out_ptr, num_tokens,
    H: tl.constexpr, S: tl.constexpr, K: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """A head of out (N, H, D): ``own`` (N, S, D) times its gate if shared, else zeros where it is not selected."""
    tokens, head = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1)
    live, d = tokens < num_tokens, tl.arange(0, D_PAD)
    places = out_ptr + (tokens[:, None].to(tl.int64) * H + head) * D + d[None, :]
    if head < S:
        rows = own_ptr + (tokens[:, None].to(tl.int64) * S + head) * D + d[None, :]
        own = _load_rows(rows, live[:, None], d[None, :], D, D_PAD).to(tl.float32)
        gate = tl.load(gates_ptr + tokens * (S + K) + head, mask=live, other=0.0)
        out = (own * gate[:, None]).to(out_ptr.dtype.element_ty)
        tl.store(places, out, mask=live[:, None] & (d[None, :] < D))
    else:
        for k in tl.static_range(K):
            live = live & (tl.load(heads_ptr + tokens * K + k, mask=live, other=-1) != head - S)
        tl.store(places, tl.zeros((BM, D_PAD), out_ptr.dtype.element_ty), mask=live[:, None] & (d[None, :] < D))


@triton.jit
@no_type_check
def ragged_kernel(
    q_ptr, k_ptr, v_ptr, gates_ptr, hidden_ptr, out_ptr, order_ptr, ends_ptr, tgt_len, src_len, scale,
    stride_kb, stride_ks, stride_vb, stride_vs,
    H: tl.constexpr, S: tl.constexpr, GROUP: tl.constexpr, K: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr,
    CAUSAL: tl.constexpr, HIDDEN: tl.constexpr, PRECISION: tl.constexpr, UNIT: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr,
):  # fmt: skip
    """out[token, head] for the tokens that selected it of the H - S routed heads, which follow S shared ones.

    ``order`` and ``ends`` are by (sequence, routed head), tokens in order; gates (N, S + K) have shared heads first.
    """
    program, blocks = tl.program_id(0), tl.cdiv(tgt_len, BM)
    # a segment is a (sequence, routed head), with at most T rows
    segment = program // blocks
    batch, head = (segment // (H - S)).to(tl.int64), S + segment % (H - S)
    begin = tl.load(ends_ptr + segment - 1, mask=segment > 0, other=0)
    # the last tiles of a causal sequence are the longest: they start first
    first = tl.load(ends_ptr + segment) - (program % blocks + 1) * BM
    if first + BM <= begin:
        return
    rows = first + tl.arange(0, BM)
    live = rows >= begin
    ids = tl.load(order_ptr + rows, mask=live, other=0)
    tokens = ids // K
    gates = tl.load(gates_ptr + tokens * (S + K) + S + ids % K, mask=live, other=0.0).to(tl.float32)
    d = tl.arange(0, D_PAD)
    places = (tokens.to(tl.int64)[:, None] * H + head) * D + d[None, :]
    q = _load_rows(q_ptr + places, live[:, None], d[None, :], D, D_PAD)
    if CAUSAL:
        position = (tokens - batch * tgt_len).to(tl.int32) + (src_len - tgt_len)
        free = tl.min(tl.where(live, position, src_len), 0) + 1
        last = tl.minimum(tl.max(tl.where(live, position, 0), 0) + 1, src_len)
    else:
        position = tl.zeros((BM,), tl.int32) + src_len
        free, last = src_len, src_len
    own = (head // GROUP) * D
    _, norm, acc = _attend(
        q, k_ptr + batch * stride_kb * UNIT + own, v_ptr + batch * stride_vb * UNIT + own, hidden_ptr + batch * src_len,
        stride_ks * UNIT, stride_vs * UNIT, 0, free, last, src_len, position, scale,
        HIDDEN, PRECISION, D, D_PAD, BM, BN,
    )  # fmt: skip
    factor = gates / tl.where(norm == 0.0, 1.0, norm)
    out = (acc * factor[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + places, out, mask=live[:, None] & (d[None, :] < D))


@triton.jit
@no_type_check
def _heads_of(heads_ptr, batch, slots, S: tl.constexpr, K: tl.constexpr):
    """The heads that a sequence's last token uses: S shared ones, and K - S that it selects of those after them."""
    heads = slots
    if S < K:
        selected = tl.load(heads_ptr + batch * (K - S) + slots - S, mask=(slots >= S) & (slots < K), other=0)
        heads = tl.where(slots < S, slots, S + selected)
    return heads


@triton.jit
@no_type_check
def decode_kernel(
    q_ptr, k_ptr, v_ptr, heads_ptr, hidden_ptr, part_ptr, top_ptr, norm_ptr, src_len, split_len, scale,
    stride_kb, stride_ks, stride_vb, stride_vs,
    H: tl.constexpr, S: tl.constexpr, GROUP: tl.constexpr, K: tl.constexpr, K_PAD: tl.constexpr, D: tl.constexpr,
    D_PAD: tl.constexpr, SPLITS: tl.constexpr, HIDDEN: tl.constexpr, PRECISION: tl.constexpr, UNIT: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Part ``split`` of the keys for BM used heads of a key/value head: unscaled sums (D), their tops and norms."""
    split, program = tl.program_id(0) % SPLITS, tl.program_id(0) // SPLITS
    blocks: tl.constexpr = (min(K, GROUP) + BM - 1) // BM
    block, group = program % blocks, program // blocks % (H // GROUP)
    batch = (program // blocks // (H // GROUP)).to(tl.int64)
    slots = tl.arange(0, K_PAD)
    heads = _heads_of(heads_ptr, batch, slots, S, K)
    # used heads of this key/value head, by their rank among them the rows of its tiles
    mine = (slots < K) & (heads // GROUP == group)
    rank, rows = tl.cumsum(mine.to(tl.int32), 0) - 1, block * BM + tl.arange(0, BM)
    count = tl.sum(mine.to(tl.int32), 0)
    if count <= block * BM:
        return
    # own (BM, K_PAD) has the one slot of each row
    own, live = mine[None, :] & (rank[None, :] == rows[:, None]), rows < count
    slot, head = tl.sum(tl.where(own, slots[None, :], 0), 1), tl.sum(tl.where(own, heads[None, :], 0), 1)
    d = tl.arange(0, D_PAD)
    q = _load_rows(q_ptr + (batch * H + head[:, None]) * D + d[None, :], live[:, None], d[None, :], D, D_PAD)
    first, last = split * split_len, tl.minimum((split + 1) * split_len, src_len)
    top, norm, acc = _attend(
        q, k_ptr + batch * stride_kb * UNIT + group * D, v_ptr + batch * stride_vb * UNIT + group * D,
        hidden_ptr + batch * src_len, stride_ks * UNIT, stride_vs * UNIT, first, last, last, src_len,
        tl.zeros((BM,), tl.int32) + last - 1, scale, HIDDEN, PRECISION, D, D_PAD, BM, BN,
    )  # fmt: skip
    place = (batch * K + slot) * SPLITS + split
    tl.store(part_ptr + place[:, None] * D + d[None, :], acc, mask=live[:, None] & (d[None, :] < D))
    tl.store(top_ptr + place, top, mask=live)
    tl.store(norm_ptr + place, norm, mask=live)


@triton.jit
@no_type_check
def combine_kernel(
    part_ptr, top_ptr, norm_ptr, heads_ptr, gates_ptr, out_ptr, stride_gates,
    H: tl.constexpr, S: tl.constexpr, K: tl.constexpr, K_PAD: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr,
    SPLITS: tl.constexpr, GATED: tl.constexpr,
):  # fmt: skip
    """out[sequence, head] = gate times the parts' sums over the parts' norms, at a common top; 0 of an unused head.

    Where every head is used, S = K, the gates are a softmax of what ``gates_ptr`` points to.
    """
    batch, head = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    d, splits, slots = tl.arange(0, D_PAD), tl.arange(0, SPLITS), tl.arange(0, K_PAD)
    mine = (slots < K) & (_heads_of(heads_ptr, batch, slots, S, K) == head)
    out = out_ptr + (batch * H + head) * D + d
    if tl.sum(mine.to(tl.int32), 0) == 0:
        tl.store(out, tl.zeros((D_PAD,), out_ptr.dtype.element_ty), mask=d < D)
        return
    row = batch * K + tl.sum(tl.where(mine, slots, 0), 0)
    # each part's share (SPLITS,) at the highest top; a part that saw no key has 0
    top = tl.load(top_ptr + row * SPLITS + splits)
    highest = tl.max(top, 0)
    share = tl.exp2(top - tl.where(highest == float("-inf"), 0.0, highest))
    norm = tl.sum(tl.load(norm_ptr + row * SPLITS + splits) * share, 0)
    parts = part_ptr + (row * SPLITS + splits[:, None]) * D + d[None, :]
    acc = tl.sum(tl.load(parts, mask=d[None, :] < D, other=0.0) * share[:, None], 0)
    factor = 1.0 / tl.where(norm == 0.0, 1.0, norm)
    if GATED:
        gates = tl.load(gates_ptr + batch * stride_gates + slots, mask=slots < K, other=float("-inf")).to(tl.float32)
        if S == K:
            gates = tl.exp(gates - tl.max(gates, 0))
            gates /= tl.sum(gates, 0)
        factor *= tl.sum(tl.where(mine, gates, 0.0), 0)
    tl.store(out, (acc * factor).to(out_ptr.dtype.element_ty), mask=d < D)
