"""Triton kernels over routed rows; row n*K + k is slot k of token n, and ids of rows are int32.

    route       router product, softmax, top-K and gates; ranks and histogram of each block of tokens
    head_route  the same of MoH's router, and the gates of its shared heads
    norm_route  the same of scores that are norms of queries
    place       from the histograms: where the rows of each expert end, and the rows in the order of their experts
    expert      rows gathered by id, times their expert's matrix, bias and gate in the epilogue, scattered by id
    slots       the sum over the K rows of a token
    gated       where every token has all experts: their outputs times gates and matrices, summed
    gated_grad  the gradients of these outputs and gates, and the outputs times their gates
    weight_grad the gradient of every expert's matrix and bias, zeros where it has no row

Nothing is sorted: a token selects an expert at most once, so that a row's place is the rows of earlier experts, the
rows of its expert in earlier blocks, and its rank within its block. A group is what is ordered by itself: the whole
batch, or one sequence; no block of tokens spans two. Sums are float32.
"""

# run-time type checks would wrap what triton compiles
from typing import no_type_check

import triton
import triton.language as tl


@triton.jit
@no_type_check
def _tokens(block, group_len, blocks_per_group, BM: tl.constexpr):
    """The tokens of a block, and which of them there are."""
    inner = (block % blocks_per_group) * BM + tl.arange(0, BM)
    return (block // blocks_per_group) * group_len + inner, inner < group_len


@triton.jit
@no_type_check
def _column(table, slots, k):
    """Column ``k`` of a (BM, K_PAD) table."""
    return tl.sum(tl.where(slots[None, :] == k, table, 0), 1)


@triton.jit
@no_type_check
def _multiply(
    x_ptr, w_rows, tokens, live, cols, num_cols, d_model, stride_x,
    PRECISION: tl.constexpr, BM: tl.constexpr, BD: tl.constexpr, C_PAD: tl.constexpr,
):  # fmt: skip
    """x W^T of a block of tokens, for the rows of W that ``w_rows`` points to, zeros from column ``num_cols`` on."""
    x_rows = x_ptr + tokens[:, None].to(tl.int64) * stride_x
    out = tl.zeros((BM, C_PAD), tl.float32)
    for start in range(0, d_model, BD):
        d = start + tl.arange(0, BD)
        x = tl.load(x_rows + d[None, :], mask=live[:, None] & (d[None, :] < d_model), other=0.0)
        known = (cols[None, :] < num_cols) & (d[:, None] < d_model)
        w = tl.load(w_rows[None, :] + d[:, None], mask=known, other=0.0)
        out = tl.dot(x, w, out, input_precision=PRECISION)
    return out


@triton.jit
@no_type_check
def _places(scores, table_ptr, tokens, live, cols, E: tl.constexpr):
    """The place of each of E experts by falling score, the lower one first among equals; other columns are last.

    What is not a number is above all others, and -inf below, so that a token has E different places. Probabilities
    would not do: they may round to the same number. A block writes its scores to the table (N, E) and reads them again
    by column, which costs less than reductions in registers.
    """
    rows = table_ptr + tokens.to(tl.int64) * E
    tl.store(rows[:, None] + cols[None, :], scores, mask=live[:, None] & (cols[None, :] < E))
    tl.debug_barrier()
    own = tl.where(cols[None, :] < E, _ordered(scores), float("-inf"))
    place = tl.zeros_like(cols)[None, :] + tl.zeros_like(tokens)[:, None]
    for e in range(E):
        other = _ordered(tl.load(rows + e, mask=live, other=0.0))[:, None]
        place += ((other > own) | ((other == own) & (e < cols[None, :]))).to(tl.int32)
    return place


@triton.jit
@no_type_check
def _ordered(scores):
    return tl.where(scores == scores, tl.maximum(scores, -3e38), float("inf"))


@triton.jit
@no_type_check
def _store_choice(
    place, cols, tokens, live, block, group_len, experts_ptr, ranks_ptr, counts_ptr,
    ALONE: tl.constexpr, E: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """The experts in the first K places, how many earlier tokens of the block have each, and how many of all.

    A block ALONE in its group does what ``place`` would: ``ranks_ptr`` is the order of rows, ``counts_ptr`` their ends.
    """
    chosen = live[:, None] & (place < K)
    rows, taken = tokens[:, None] * K + place, chosen.to(tl.int32)
    tl.store(experts_ptr + rows, cols[None, :] + tl.zeros_like(place), mask=chosen)
    # ranks (BM, E_PAD) of a token among those of the block with the same expert, and counts (E_PAD,)
    before, counts = tl.cumsum(taken, 0) - taken, tl.sum(taken, 0)
    if ALONE:
        ends = block * group_len * K + tl.cumsum(counts, 0)
        tl.store(ranks_ptr + before + (ends - counts)[None, :], rows, mask=chosen)
        counts = ends
    else:
        tl.store(ranks_ptr + rows, before, mask=chosen)
    tl.store(counts_ptr + block * E + cols, counts, mask=cols < E)


@triton.jit
@no_type_check
def route_kernel(
    x_ptr, w_ptr, gates_ptr, experts_ptr, ranks_ptr, counts_ptr, logits_ptr, num_tokens, d_model, stride_x,
    ALONE: tl.constexpr, E: tl.constexpr, E_PAD: tl.constexpr, K: tl.constexpr, RENORMALISE: tl.constexpr,
    PRECISION: tl.constexpr, BM: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """Gates (N, K) of softmax(x W^T) at the K highest logits, and the experts of these."""
    block = tl.program_id(0)
    tokens, live = _tokens(block, num_tokens, tl.num_programs(0), BM)
    cols = tl.arange(0, E_PAD)
    w_rows = w_ptr + cols * d_model
    logits = _multiply(x_ptr, w_rows, tokens, live, cols, E, d_model, stride_x, PRECISION, BM, BD, E_PAD)
    # logits, weights and places are (BM, E_PAD); a column is an expert
    logits = tl.where(cols[None, :] < E, logits, float("-inf"))
    place = _places(logits, logits_ptr, tokens, live, cols, E)
    weights = tl.exp(logits - tl.max(logits, 1)[:, None])
    counted = tl.where(place < K, weights, 0.0) if RENORMALISE else weights
    weights = weights / tl.sum(counted, 1)[:, None]
    tl.store(gates_ptr + tokens[:, None] * K + place, weights, mask=live[:, None] & (place < K))
    _store_choice(place, cols, tokens, live, block, num_tokens, experts_ptr, ranks_ptr, counts_ptr, ALONE, E, K)


@triton.jit
@no_type_check
def head_route_kernel(
    x_ptr, w_ptr, shared_ptr, groups_ptr, heads_ptr, gates_ptr, ranks_ptr, counts_ptr, group_len, blocks_per_group,
    d_model, stride_x, logits_ptr,
    ALONE: tl.constexpr, S: tl.constexpr, E: tl.constexpr, K: tl.constexpr,
    C: tl.constexpr, C_PAD: tl.constexpr, RELEASED: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """Gates (N, S + K) of S shared heads and of the K of E routed ones that a token selects, from its C logits."""
    block = tl.program_id(0)
    tokens, live = _tokens(block, group_len, blocks_per_group, BM)
    cols = tl.arange(0, C_PAD)
    # the E routed heads, the shared ones where there are two or more, the two groups where there are both
    w_rows = w_ptr + cols * d_model
    if S > 1:
        w_rows = tl.where(cols < E, w_rows, shared_ptr + (cols - E) * d_model)
    if S > 0:
        w_rows = tl.where(cols < C - 2, w_rows, groups_ptr + (cols - (C - 2)) * d_model)
    logits = _multiply(x_ptr, w_rows, tokens, live, cols, C, d_model, stride_x, PRECISION, BM, BD, C_PAD)
    gates = gates_ptr + tokens[:, None] * (S + K)
    second = tl.full((BM,), 1.0, tl.float32)
    if S > 0:
        # a softmax of two is a sigmoid of their difference
        gap = _column(logits, cols, C - 1) - _column(logits, cols, C - 2)
        first, second = 1.0 / (1.0 + tl.exp(gap)), 1.0 / (1.0 + tl.exp(-gap))
        if RELEASED:
            first, second = 2.0 * S * first, 2.0 * second
        if S > 1:
            shared = (cols >= E) & (cols < E + S)
            own = tl.where(shared[None, :], logits, float("-inf"))
            probs = tl.exp(own - tl.max(own, 1)[:, None])
            probs *= (first / tl.sum(probs, 1))[:, None]
            tl.store(gates + cols[None, :] - E, probs, mask=live[:, None] & shared[None, :])
        else:
            tl.store(gates, first[:, None], mask=live[:, None])
    routed = tl.where(cols[None, :] < E, logits, float("-inf"))
    place = _places(routed, logits_ptr, tokens, live, cols, E)
    weights = tl.exp(routed - tl.max(routed, 1)[:, None])
    if RELEASED:
        weights *= (K * second / tl.sum(tl.where(place < K, weights, 0.0), 1))[:, None]
    else:
        weights *= (second / tl.sum(weights, 1))[:, None]
    tl.store(gates + S + place, weights, mask=live[:, None] & (place < K))
    _store_choice(place, cols, tokens, live, block, group_len, heads_ptr, ranks_ptr, counts_ptr, ALONE, E, K)


@triton.jit
@no_type_check
def norm_route_kernel(
    q_ptr, heads_ptr, gates_ptr, ranks_ptr, counts_ptr, group_len, blocks_per_group, squares_ptr,
    ALONE: tl.constexpr, S: tl.constexpr, E: tl.constexpr, E_PAD: tl.constexpr, K: tl.constexpr, D: tl.constexpr,
    D_PAD: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """The K of E routed heads with the longest queries; all S + K gates are 1."""
    block = tl.program_id(0)
    tokens, live = _tokens(block, group_len, blocks_per_group, BM)
    cols, d = tl.arange(0, E_PAD), tl.arange(0, D_PAD)
    queries = q_ptr + tokens[:, None].to(tl.int64) * ((S + E) * D) + S * D + d[None, :]
    # the norms of a token over their deviation have the order of their squares
    squares = tl.zeros((BM, E_PAD), tl.float32)
    for e in range(E):
        q = tl.load(queries + e * D, mask=live[:, None] & (d[None, :] < D), other=0.0).to(tl.float32)
        squares = tl.where(cols[None, :] == e, tl.sum(q * q, 1)[:, None], squares)
    for slot in tl.static_range(S + K):
        tl.store(gates_ptr + tokens * (S + K) + slot, tl.full((BM,), 1.0, tl.float32), mask=live)
    place = _places(squares, squares_ptr, tokens, live, cols, E)
    _store_choice(place, cols, tokens, live, block, group_len, heads_ptr, ranks_ptr, counts_ptr, ALONE, E, K)


@triton.jit
@no_type_check
def place_kernel(
    experts_ptr, ranks_ptr, counts_ptr, order_ptr, ends_ptr, num_blocks, group_len, blocks_per_group,
    E: tl.constexpr, E_PAD: tl.constexpr, K: tl.constexpr, BM: tl.constexpr, BB: tl.constexpr,
):  # fmt: skip
    """Rows sorted by (group, expert), tokens in their order; ends (groups * E) of each expert's rows."""
    block = tl.program_id(0)
    group = block // blocks_per_group
    cols = tl.arange(0, E_PAD)
    total, before = tl.zeros((E_PAD,), tl.int32), tl.zeros((E_PAD,), tl.int32)
    for start in range(group * blocks_per_group, (group + 1) * blocks_per_group, BB):
        blocks = start + tl.arange(0, BB)
        known = (blocks[:, None] < (group + 1) * blocks_per_group) & (cols[None, :] < E)
        counts = tl.load(counts_ptr + blocks[:, None] * E + cols[None, :], mask=known, other=0)
        total += tl.sum(counts, 0)
        before += tl.sum(tl.where(blocks[:, None] < block, counts, 0), 0)
    # every token of an earlier group has K rows
    ends = group * group_len * K + tl.cumsum(total, 0)
    if block % blocks_per_group == 0:
        tl.store(ends_ptr + group * E + cols, ends, mask=cols < E)
    # where this block's rows of each expert begin (E_PAD,)
    starts = ends - total + before
    tokens, live = _tokens(block, group_len, blocks_per_group, BM)
    for k in tl.static_range(K):
        expert = tl.load(experts_ptr + tokens * K + k, mask=live, other=0)
        rank = tl.load(ranks_ptr + tokens * K + k, mask=live, other=0)
        first = tl.sum(tl.where(cols[None, :] == expert[:, None], starts[None, :], 0), 1)
        tl.store(order_ptr + first + rank, tokens * K + k, mask=live)


@triton.jit
@no_type_check
def expert_kernel(
    a_ptr, w_ptr, bias_ptr, gates_ptr, other_ptr, top_ptr, norm_ptr, dots_ptr, c_ptr, order_ptr, ends_ptr,
    in_features, out_features, stride_a, stride_we, stride_wi, stride_wo,
    PARTED: tl.constexpr, SPLITS: tl.constexpr, E: tl.constexpr, E_PAD: tl.constexpr, ROWS_PER_A: tl.constexpr,
    BIASED: tl.constexpr, GATED: tl.constexpr, DOTTED: tl.constexpr, PRECISION: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """c[id] = gate[id] (a[id // ROWS_PER_A] W_e + b_e) for the rows ``id`` of each expert e; a tile has one expert.

    ``dots`` are the sums of the row, without its gate, times the row of ``other``, over each block of BN columns. A row
    of ``a`` that is PARTED are SPLITS sums of attention, to be put together by their tops and norms as in ``combine``.
    The host knows only the most tiles that there can be; those beyond the last end at once.
    """
    program, blocks = tl.program_id(0), tl.cdiv(out_features, BN)
    tile, block = program // blocks, program % blocks
    # rows and tiles of each expert (E_PAD,); the tile's expert is the first whose tiles do not all lie before it
    cols = tl.arange(0, E_PAD)
    ends = tl.load(ends_ptr + cols, mask=cols < E, other=0)
    starts = tl.load(ends_ptr + cols - 1, mask=(cols > 0) & (cols < E), other=0)
    tiles = tl.where(cols < E, (ends - starts + BM - 1) // BM, 0)
    tile_ends = tl.cumsum(tiles, 0)
    if tile >= tl.sum(tiles, 0):
        return
    expert = tl.sum(((tile_ends <= tile) & (cols < E)).to(tl.int32), 0)
    mine = cols == expert
    # its rows are the tile's BM after those of the expert's earlier tiles
    first = tl.sum(tl.where(mine, starts, 0), 0) + (tile - tl.sum(tl.where(mine, tile_ends - tiles, 0), 0)) * BM
    rows = first + tl.arange(0, BM)
    live = rows < tl.sum(tl.where(mine, ends, 0), 0)
    ids = tl.load(order_ptr + rows, mask=live, other=0)
    a_rows = a_ptr + (ids // ROWS_PER_A).to(tl.int64)[:, None] * stride_a
    n = block * BN + tl.arange(0, BN)
    w_cols = w_ptr + expert.to(tl.int64) * stride_we + n[None, :] * stride_wo
    if PARTED:
        # what each part's sum is multiplied with (BM, SPLITS)
        splits = tl.arange(0, SPLITS)
        of_row = ids.to(tl.int64)[:, None] * SPLITS + splits[None, :]
        top = tl.load(top_ptr + of_row)
        highest = tl.max(top, 1)[:, None]
        share = tl.exp2(top - tl.where(highest == float("-inf"), 0.0, highest))
        norm = tl.sum(tl.load(norm_ptr + of_row) * share, 1)[:, None]
        share /= tl.where(norm == 0.0, 1.0, norm)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, in_features, BK):
        i = start + tl.arange(0, BK)
        inside = live[:, None] & (i[None, :] < in_features)
        if PARTED:
            total = tl.zeros((BM, BK), tl.float32)
            for split in tl.static_range(SPLITS):
                part = tl.load(a_rows + split * in_features + i[None, :], mask=inside, other=0.0)
                total += part * _column(share, splits, split)[:, None]
            a = total.to(w_ptr.dtype.element_ty)
        else:
            a = tl.load(a_rows + i[None, :], mask=inside, other=0.0)
        known = (i[:, None] < in_features) & (n[None, :] < out_features)
        w = tl.load(w_cols + i[:, None] * stride_wi, mask=known, other=0.0)
        acc = tl.dot(a, w, acc, input_precision=PRECISION)
    if BIASED:
        bias = tl.load(bias_ptr + expert * out_features + n, mask=n < out_features, other=0.0)
        acc += bias.to(tl.float32)[None, :]
    inside = live[:, None] & (n[None, :] < out_features)
    places = ids.to(tl.int64)[:, None] * out_features + n[None, :]
    if DOTTED:
        other = tl.load(other_ptr + places, mask=inside, other=0.0).to(tl.float32)
        tl.store(dots_ptr + ids.to(tl.int64) * blocks + block, tl.sum(acc * other, 1), mask=live)
    if GATED:
        acc = acc * tl.load(gates_ptr + ids, mask=live, other=0.0).to(tl.float32)[:, None]
    tl.store(c_ptr + places, acc.to(c_ptr.dtype.element_ty), mask=inside)


@triton.jit
@no_type_check
def slots_kernel(rows_ptr, out_ptr, num_tokens, width, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """(N*K, width) to (N, width): a token's K rows lie side by side."""
    tokens = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    inside = (tokens[:, None] < num_tokens) & (n[None, :] < width)
    rows = rows_ptr + tokens.to(tl.int64)[:, None] * K * width + n[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for k in tl.static_range(K):
        total += tl.load(rows + k * width, mask=inside, other=0.0).to(tl.float32)
    out = out_ptr + tokens.to(tl.int64)[:, None] * width + n[None, :]
    tl.store(out, total.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
@no_type_check
def weight_grad_kernel(
    a_ptr, g_ptr, gates_ptr, dw_ptr, db_ptr, order_ptr, ends_ptr, in_features, out_features, stride_a, stride_g,
    ROWS_PER_A: tl.constexpr, ROWS_PER_G: tl.constexpr, BIASED: tl.constexpr, GATED: tl.constexpr,
    PRECISION: tl.constexpr, BI: tl.constexpr, BO: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    """dW_e = sum over the rows ``id`` of e of gate[id] a[id // ROWS_PER_A]^T g[id // ROWS_PER_G]; db_e that of g."""
    expert = tl.program_id(2)
    begin = tl.load(ends_ptr + expert - 1, mask=expert > 0, other=0)
    end = tl.load(ends_ptr + expert)
    i = tl.program_id(0) * BI + tl.arange(0, BI)
    o = tl.program_id(1) * BO + tl.arange(0, BO)
    acc, sums = tl.zeros((BI, BO), tl.float32), tl.zeros((BO,), tl.float32)
    for start in range(begin, end, BR):
        rows = start + tl.arange(0, BR)
        live = rows < end
        ids = tl.load(order_ptr + rows, mask=live, other=0)
        a_rows = a_ptr + (ids // ROWS_PER_A).to(tl.int64)[:, None] * stride_a
        g_rows = g_ptr + (ids // ROWS_PER_G).to(tl.int64)[:, None] * stride_g
        a = tl.load(a_rows + i[None, :], mask=live[:, None] & (i[None, :] < in_features), other=0.0)
        g = tl.load(g_rows + o[None, :], mask=live[:, None] & (o[None, :] < out_features), other=0.0)
        if GATED:
            a = (a * tl.load(gates_ptr + ids, mask=live, other=0.0).to(tl.float32)[:, None]).to(a.dtype)
        # (BI, BR) times (BR, BO)
        acc = tl.dot(tl.trans(a), g, acc, input_precision=PRECISION)
        if BIASED:
            sums += tl.sum(g.to(tl.float32), 0)
    dw = dw_ptr + (expert.to(tl.int64) * in_features + i[:, None]) * out_features + o[None, :]
    tl.store(dw, acc.to(dw_ptr.dtype.element_ty), mask=(i[:, None] < in_features) & (o[None, :] < out_features))
    if BIASED:
        if tl.program_id(0) == 0:
            db = db_ptr + expert * out_features + o
            tl.store(db, sums.to(db_ptr.dtype.element_ty), mask=o < out_features)


@triton.jit
@no_type_check
def gated_kernel(
    o_ptr, gates_ptr, w_ptr, y_ptr, num_tokens, width,
    K: tl.constexpr, D: tl.constexpr, PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """y (N, width) = sum over the K slots of gate o (N, K, D) W (K D, width)."""
    program, blocks = tl.program_id(0), tl.cdiv(width, BN)
    # the blocks of columns of some tokens run together, and read their rows from the L2 cache
    tokens, n = program // blocks * BM + tl.arange(0, BM), program % blocks * BN + tl.arange(0, BN)
    live, inside = tokens < num_tokens, n < width
    o_rows = o_ptr + tokens[:, None].to(tl.int64) * (K * D)
    steps: tl.constexpr = (D + BK - 1) // BK
    acc = tl.zeros((BM, BN), tl.float32)
    # a step is BK columns of a slot
    for step in range(K * steps):
        slot, d = step // steps, step % steps * BK + tl.arange(0, BK)
        o = tl.load(o_rows + slot * D + d[None, :], mask=live[:, None] & (d[None, :] < D), other=0.0)
        gate = tl.load(gates_ptr + tokens * K + slot, mask=live, other=0.0).to(tl.float32)
        w_rows = w_ptr + (slot * D + d[:, None]) * width
        w = tl.load(w_rows + n[None, :], mask=(d[:, None] < D) & inside[None, :], other=0.0)
        acc = tl.dot((o * gate[:, None]).to(w.dtype), w, acc, input_precision=PRECISION)
    y = y_ptr + tokens[:, None].to(tl.int64) * width + n[None, :]
    tl.store(y, acc.to(y_ptr.dtype.element_ty), mask=live[:, None] & inside[None, :])


@triton.jit
@no_type_check
def gated_grad_kernel(
    dy_ptr, w_ptr, o_ptr, gates_ptr, do_ptr, dots_ptr, gated_ptr, num_tokens, width,
    K: tl.constexpr, D: tl.constexpr, PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """do = gate dy W^T, ``gated`` = gate o, and ``dots``: the sums of o dy W^T over each block of BN of D columns."""
    # a program is a block of columns of a slot, for BM tokens
    program, blocks = tl.program_id(0), tl.cdiv(D, BN)
    block, slot = program % blocks, program // blocks % K
    tokens, d = program // (blocks * K) * BM + tl.arange(0, BM), block * BN + tl.arange(0, BN)
    live, inside = tokens < num_tokens, d < D
    dy_rows = dy_ptr + tokens[:, None].to(tl.int64) * width
    w_cols = w_ptr + (slot * D + d[None, :]) * width
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, width, BK):
        i = start + tl.arange(0, BK)
        dy = tl.load(dy_rows + i[None, :], mask=live[:, None] & (i[None, :] < width), other=0.0)
        w = tl.load(w_cols + i[:, None], mask=(i[:, None] < width) & inside[None, :], other=0.0)
        acc = tl.dot(dy, w, acc, input_precision=PRECISION)
    rows = tokens.to(tl.int64) * K + slot
    places, real = rows[:, None] * D + d[None, :], live[:, None] & inside[None, :]
    gate = tl.load(gates_ptr + rows, mask=live, other=0.0).to(tl.float32)[:, None]
    o = tl.load(o_ptr + places, mask=real, other=0.0).to(tl.float32)
    tl.store(dots_ptr + rows * blocks + block, tl.sum(acc * o, 1), mask=live)
    tl.store(do_ptr + places, (acc * gate).to(do_ptr.dtype.element_ty), mask=real)
    tl.store(gated_ptr + places, (o * gate).to(gated_ptr.dtype.element_ty), mask=real)
