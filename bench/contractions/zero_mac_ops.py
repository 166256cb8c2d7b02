"""Operations without a contraction: none multiplies and sums over an index of two operands.

Interpolation, pooling and norms sum with fixed or elementwise weights; by the field's convention they have no
multiply-accumulates. Names are aten's, without the trailing underscore of in-place forms and the ``_copy`` of
view copies. Operations in neither this list nor products are unsupported.
"""

from functools import cache

from headcount.bench.contractions.collectives import is_known_call

_VIEWS = """
    _conj _neg_view _reshape_alias _unsafe_view alias as_strided chunk detach diagonal expand lift lift_fresh narrow
    permute reshape select slice slice_inverse split split_with_sizes squeeze t transpose unbind unfold unsafe_split
    unsafe_split_with_sizes unsqueeze view view_as_complex view_as_real
"""
_COPIES_AND_LAYOUT = """
    _chunk_cat _copy_from _copy_from_and_resize _lazy_clone _nested_tensor_from_tensor_list _pack_padded_sequence
    _pad_packed_sequence _pin_memory _resize_output _stack _to _to_copy _to_dense as_strided_scatter block_diag cat
    channel_shuffle clone col2im constant_pad_nd contiguous copy diag_embed diagonal_backward diagonal_scatter flip
    im2col is_pinned is_same_size masked_select native_channel_shuffle pixel_shuffle pixel_unshuffle reflection_pad1d
    reflection_pad1d_backward reflection_pad2d reflection_pad2d_backward reflection_pad3d reflection_pad3d_backward
    repeat repeat_interleave replication_pad1d replication_pad1d_backward replication_pad2d replication_pad2d_backward
    replication_pad3d replication_pad3d_backward resize resize_as roll rot90 select_backward select_scatter set set_data
    slice_backward slice_scatter stack tril triu unfold_backward
"""
_INDEXING = """
    _index_put_impl _unsafe_index _unsafe_index_put _unsafe_masked_index _unsafe_masked_index_put_accumulate embedding
    embedding_dense_backward embedding_renorm gather index index_add index_copy index_fill index_put index_reduce
    index_select masked_fill masked_scatter masked_scatter_backward nonzero nonzero_static put scatter scatter_add
    scatter_reduce take where
"""
_CREATION_AND_RANDOM = """
    _efficientzerotensor _sample_dirichlet arange bartlett_window bernoulli binomial blackman_window cauchy complex
    empty empty_like empty_permuted empty_strided exponential eye fill full full_like geometric hamming_window
    hann_window kaiser_window linspace log_normal logspace multinomial new_empty new_empty_strided new_full new_ones
    new_zeros normal normal_functional ones ones_like poisson polar rand rand_like randint randint_like randn randn_like
    random randperm range scalar_tensor tril_indices triu_indices uniform zero zeros zeros_like
"""
_POINTWISE = """
    _add_relu _conj_physical _masked_scale abs acos acosh add addcdiv addcmul angle asin asinh atan atan2 atanh
    bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor ceil clamp clamp_max clamp_min
    clip conj_physical copysign cos cosh deg2rad digamma div eq erf erfc erfinv exp exp2 expm1 float_power floor
    floor_divide fmax fmin fmod frac frexp gcd ge gt heaviside hypot i0 igamma igammac isfinite isin isinf isnan
    isneginf isposinf lcm ldexp le lerp lgamma log log10 log1p log2 logaddexp logaddexp2 logical_and logical_not
    logical_or logical_xor logit logit_backward lt maximum minimum mul mvlgamma nan_to_num native_dropout
    native_dropout_backward ne neg nextafter polygamma positive pow rad2deg reciprocal remainder round rsqrt rsub sgn
    sign signbit sin sinc sinh special_entr special_erfcx special_i0e special_i1 special_i1e special_log_ndtr
    special_ndtri special_xlog1py special_zeta sqrt square sub tan true_divide trunc xlogy
"""
_REDUCTIONS_AND_ORDER = """
    _aminmax _cummax_helper _cummin_helper _is_all_true _is_any_true _local_scalar_dense _logcumsumexp _unique _unique2
    all allclose amax amin aminmax any argmax argmin argsort bincount bucketize count_nonzero cummax cummin cumprod
    cumsum dist equal hash_tensor histc item kthvalue linalg_vector_norm logcumsumexp logsumexp max mean median min mode
    nanmedian nansum norm prod searchsorted sort std std_mean sum topk trace unique_consecutive unique_dim var var_mean
"""
_NORMS_AND_SOFTMAX = """
    _batch_norm_no_update _batch_norm_with_update _batch_norm_with_update_functional _fused_rms_norm _log_softmax
    _log_softmax_backward_data _masked_softmax _native_batch_norm_legit _native_batch_norm_legit_functional
    _native_batch_norm_legit_no_training _safe_softmax _softmax _softmax_backward_data _weight_norm_interface
    batch_norm_backward cudnn_batch_norm native_batch_norm native_group_norm native_layer_norm renorm
"""
_POOLING_AND_INTERPOLATION = """
    _adaptive_avg_pool2d _adaptive_avg_pool3d _grid_sampler_2d_cpu_fallback _upsample_bicubic2d_aa
    _upsample_bilinear2d_aa _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d
    adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool2d adaptive_max_pool3d avg_pool1d
    avg_pool2d avg_pool3d fractional_max_pool2d fractional_max_pool3d grid_sampler_2d grid_sampler_3d
    max_pool2d_with_indices max_pool3d_with_indices max_unpool2d max_unpool3d upsample_bicubic2d upsample_bilinear2d
    upsample_linear1d upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_trilinear3d
"""
_LOSSES = """
    _ctc_loss binary_cross_entropy binary_cross_entropy_with_logits huber_loss mse_loss nll_loss2d_backward
    nll_loss2d_forward nll_loss_backward nll_loss_forward smooth_l1_loss soft_margin_loss
"""
_FUSED_GATES_AND_MARGINS = """
    _thnn_fused_gru_cell _thnn_fused_lstm_cell _thnn_fused_lstm_cell_backward_impl fake_quantize_per_channel_affine
    fake_quantize_per_channel_affine_cachemask fake_quantize_per_tensor_affine
    fake_quantize_per_tensor_affine_cachemask multi_margin_loss multilabel_margin_loss_backward
    multilabel_margin_loss_forward
"""
_QUESTIONS_AND_LAYOUTS = """
    _assert_async _assert_scalar _assert_tensor_metadata _cdist_forward _coalesce _convert_weight_to_int4pack_for_cpu
    _functional_assert_async _has_same_storage_numel _indices _jagged_to_padded_dense_forward _linalg_check_errors
    _nested_from_padded _nested_from_padded_and_nested_example _nested_tensor_from_mask
    _nested_tensor_from_mask_left_aligned _nested_tensor_size _new_zeros_with_same_feature_meta _nnz
    _padded_dense_to_jagged_forward _print _sparse_compressed_tensor_unsafe _sparse_coo_tensor_with_dims
    _sparse_coo_tensor_with_dims_and_tensors _sparse_softmax _sparse_softmax_backward_data _sparse_sum
    _sparse_sum_backward _spdiags _values col_indices crow_indices dequantize histogram indices is_coalesced is_set_to
    nested_to_padded_tensor profiler._record_function_enter profiler._record_function_enter_new
    profiler._record_function_exit quantize_per_channel quantize_per_tensor record_stream segment_reduce
    sparse_compressed_tensor sym_constrain_range sym_constrain_range_for_size to_padded_tensor torchvision.nms
    torchvision.ps_roi_align torchvision.ps_roi_pool torchvision.roi_align torchvision.roi_pool values
"""


def _and_gradients(names: str) -> frozenset[str]:
    return frozenset(f"{name}{end}" for name in names.split() for end in ("", "_backward"))


FREE = frozenset(f"{_VIEWS} {_COPIES_AND_LAYOUT}".split())
"""Operations that move values without changing them."""

GATHERS = frozenset("embedding gather index index_select take _unsafe_index masked_select".split())
"""Operations that select values by a computed index."""

ACTIVATIONS = frozenset(
    """
    _prelu_kernel celu elu gelu glu hardshrink hardsigmoid hardswish hardtanh leaky_relu log_sigmoid log_sigmoid_forward
    mish relu relu6 rrelu rrelu_with_noise selu sigmoid silu softplus softshrink tanh threshold
    """.split()
)
"""Elementwise operations that are activation functions; their gradients have the suffix ``_backward``."""

ELEMENTWISE = frozenset(_POINTWISE.split()) | _and_gradients(" ".join(ACTIVATIONS))
ELEMENTWISE |= {"where", "masked_fill", "_to_copy"}
"""Elementwise operations."""

SELECTIONS = frozenset({"where", "masked_fill", "_to_copy", "positive"})
"""Elementwise operations that compute nothing."""

NORMS = _and_gradients(_NORMS_AND_SOFTMAX)
"""Norms; softmax too."""

REDUCTIONS = frozenset(_REDUCTIONS_AND_ORDER.split())
"""Operations that reduce, accumulate or sort."""

CREATED = frozenset(_CREATION_AND_RANDOM.split())
"""Operations that fill a tensor without reading one."""

OTHERS = _and_gradients(f"{_POOLING_AND_INTERPOLATION} {_LOSSES} {_FUSED_GATES_AND_MARGINS}")
"""Interpolation, losses, fused gates: further operations that compute."""

KNOWN = FREE | ELEMENTWISE | NORMS | REDUCTIONS | CREATED | OTHERS
KNOWN |= frozenset(f"{_INDEXING} {_QUESTIONS_AND_LAYOUTS}".split())
"""Names of operations without a contraction."""

SOFTMAXES = frozenset({"_softmax", "_safe_softmax", "_masked_softmax"})


_FREE_FAMILIES = ("fsdp.", "_to_sparse", "_foreach_", "special_", "natten.token_")
"""Prefixes of further names without a contraction: copies into FSDP's buffers, layouts, lists, special functions."""


_PRIMS = {
    "broadcast_in_dim": "expand", "collapse": "reshape", "collapse_view": "view", "conj": "_conj",
    "convert_element_type": "_to_copy", "copy_to": "copy", "device_put": "_to_copy", "erf_inv": "erfinv",
    "erfcx": "special_erfcx", "expand_dims": "unsqueeze", "iota": "arange", "ndtri": "special_ndtri", "rev": "flip",
    "shift_left": "bitwise_left_shift", "shift_right_arithmetic": "bitwise_right_shift", "split_dim": "view",
    "view_of": "alias", "zeta": "special_zeta",
}  # fmt: skip
"""torch's prims -> the aten operation that does the same, if its name differs."""

_SHIFTS = {
    "__lshift__": "bitwise_left_shift", "__ilshift__": "bitwise_left_shift",
    "__rshift__": "bitwise_right_shift", "__irshift__": "bitwise_right_shift",
}  # fmt: skip
"""The operators of Python that torch dispatches by names of their own; it decomposes all others."""


@cache
def base(name: str) -> str:
    """Return an operation's name without in-place and view-copy suffixes; for a prim or a shift, the aten name."""
    if name.startswith("prims."):
        own = name.removeprefix("prims.")
        return _PRIMS.get(own, own)
    if name in _SHIFTS:
        return _SHIFTS[name]
    stem = name[:-1] if name.endswith("_") and not name.endswith("__") else name
    return stem if stem in ("_to_copy", "index_copy") else stem.removesuffix("_copy")


def holds_none(name: str) -> bool:
    """Return whether the operation is known to contain no contraction."""
    return base(name) in KNOWN or name.startswith(_FREE_FAMILIES) or is_known_call(name)
