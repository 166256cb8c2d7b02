"""Record the kernels that a call launches on a GPU, by a run on meta tensors.

An operation that reaches the dispatcher is one kernel, except views and empty tensors. Torch's fused attention core is
one kernel forward and one backward. An operator of this project's Triton path is the kernels that it starts. Layers
take the path that they take on CUDA with Triton.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from headcount.bench.contractions.products import products
from headcount.bench.performance.kernel import (
    CORE,
    CORE_BACKWARD,
    DECODE,
    ELEMENTWISE,
    GROUPED,
    PRODUCT,
    SORT,
    TOP_K,
    WEIGHT_GRAD,
    CoreSizes,
    Kernel,
    product_kind,
)
from headcount.bench.performance.sources import fingerprint
from headcount.bench.trace.events import OPERATION, Event, TensorFact
from headcount.models.build import build, example_inputs
from headcount.models.kernels import triton_ops
from headcount.models.kernels.triton_launch import Launched, recording

if TYPE_CHECKING:
    from headcount.bench.contractions.products.product import Product

NO_KERNEL = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view", "lift_fresh")
"""Operators that start no kernel, beside views."""
MOVES = frozenset(
    "index index_select gather scatter scatter_add embedding index_put index_add index_copy take_along_dim "
    "embedding_dense_backward scatter_ index_put_ _index_put_impl_".split()
)
"""Operators that read or write the rows that an index names, and not the whole of their largest tensor."""
COMPILED = "compiled"
"""The implementation whose chains of elementwise operations torch.compile fuses."""
SORTS = {"sort": SORT, "topk": TOP_K}
TRITON = {
    "route": ELEMENTWISE,
    "head_route": ELEMENTWISE,
    "expert": GROUPED,
    "weight_grad": WEIGHT_GRAD,
    "gated": PRODUCT,
    "gated_grad": PRODUCT,
    "mqa": CORE,
    "ragged": CORE,
    "decode": DECODE,
}
"""Kinds of the Triton kernels that multiply: one in each operator with products, whose products are its."""


Flow = dict[int, int]
"""Bytes by the storage that holds them."""


class KernelRecorder(TorchDispatchMode):
    """Collect the kernels of the operations that are dispatched.

    ``reads`` and ``writes`` of each kernel are by storage; storages live as long as the recorder, so that none has the
    number of another.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kernels: list[Kernel] = []
        self.reads: list[Flow] = []
        self.writes: list[Flow] = []
        self._storages: list[Any] = []

    def add(self, kernel: Kernel, reads: Iterable[Tensor], writes: Iterable[Tensor]) -> None:
        """Record a kernel and the tensors that it reads and writes."""
        self.kernels.append(kernel)
        self.reads.append(self._flow(reads))
        self.writes.append(self._flow(writes))

    def _flow(self, tensors: Iterable[Tensor]) -> Flow:
        flow: Flow = {}
        for tensor in tensors:
            storage = tensor.untyped_storage()
            self._storages.append(storage)
            flow[storage._cdata] = max(flow.get(storage._cdata, 0), moved(tensor))
        return flow

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Run ``func`` and record its kernels."""
        kwargs = kwargs or {}
        name = func.overloadpacket._qualified_op_name.replace("::", ".").removeprefix("aten.")
        if func.namespace == "headcount":
            return self._start(func, func.overloadpacket.__name__, args)
        out = func(*args, **kwargs)
        is_view = any(made.alias_info is not None and not made.alias_info.is_write for made in func._schema.returns)
        if is_view or name in NO_KERNEL:
            return out
        inputs, results = leaves((args, kwargs)), leaves(out)
        self.add(_of_operation(name, _products(name, args, kwargs, out), inputs, results), inputs, results)
        return out

    def _start(self, func: Any, name: str, args: Sequence[Any]) -> Any:
        """Run the body of an operator of the Triton path, with its launches recorded in place of started."""
        with recording() as launches, self:
            out = getattr(triton_ops, name)._init_fn(*args)
        macs = sum(prod(sizes.values()) for _, sizes, _ in func.overloadpacket.contractions(*args))
        for launch in launches:
            self.add(_of_launch(launch, macs), _tensors(launch), leaves(out))
        return out


def leaves(values: Any) -> list[Tensor]:
    """Return the tensors in nested containers."""
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]


def moved(*tensors: Tensor) -> int:
    """Return the bytes of the elements that tensors hold; a repeated dimension holds one."""
    found = 0
    for tensor in tensors:
        held = (size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)
        found += tensor.element_size() * prod(held)
    return found


def _describe(value: Any) -> Any:
    """Return a value of a call as rules of products read it: tensors as facts, sequences as tuples."""
    if isinstance(value, Tensor):
        return TensorFact(tuple(value.shape), str(value.dtype).removeprefix("torch."), storage=0, source=None)
    if isinstance(value, (list, tuple)):
        return tuple(map(_describe, value))
    return value


def _products(name: str, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> "list[Product]":
    """Return the products of an operation by the rules of contractions."""
    named = {key: _describe(value) for key, value in kwargs.items()}
    return products(Event(0, None, OPERATION, name, "", _describe(args), named, out=_describe(out))) or []


def _of_operation(name: str, products: "Sequence[Product]", inputs: list[Tensor], results: list[Tensor]) -> Kernel:
    """Return the kernel of an operation with these products."""
    own = moved(*inputs, *results)
    if macs := sum(product.macs for product in products):
        return Kernel(name, _kind(products[0], [*inputs, *results]), own, macs)
    if name in SORTS:
        rows = inputs[0].numel() // inputs[0].shape[-1]
        return Kernel(name, SORTS[name], own, sorted=rows if name == "topk" else inputs[0].numel())
    if name in MOVES:
        indices = (tensor for tensor in inputs if not tensor.is_floating_point())
        return Kernel(name, ELEMENTWISE, 2 * moved(*results) + moved(*indices))
    return Kernel(name, ELEMENTWISE, own)


def _kind(product: "Product", tensors: Sequence[Tensor]) -> str:
    """Return the kind of a kernel with this product of matrices among ``tensors``."""
    if product.kind == "expert_linear":
        return GROUPED
    if product.kind.startswith("contraction"):
        # as a weighted sum of rows, which no product of matrices computes
        return ELEMENTWISE
    if product.kind.startswith("conv"):
        return PRODUCT
    matrices = (tensor for tensor in tensors if tensor.dim() > 1)
    return product_kind(max(matrix.stride()[-2:]) * matrix.element_size() for matrix in matrices)


def _of_launch(launch: Launched, macs: int) -> Kernel:
    """Return the kernel of a Triton launch; ``macs`` are those of its operator."""
    name = launch.kernel.__name__.removesuffix("_kernel")
    kind, own, core = TRITON.get(name, ELEMENTWISE), moved(*_tensors(launch)), None
    if kind in (CORE, DECODE):
        q, k = launch.arguments[:2]
        batch, keys, width = k.shape[0], k.shape[1], q.shape[-1]
        if q.dim() == 3:
            # one token of each sequence
            core = CoreSizes(batch * k.shape[2], 1, keys, width)
        elif k.dim() == 3:
            # all heads read the same keys
            core = CoreSizes(batch, q.shape[1] * q.shape[2], keys, width)
        else:
            heads, selected = launch.constants["H"], launch.constants["K"]
            routed = heads - launch.constants.get("S", 0)
            core = CoreSizes(batch * routed, q.shape[1] * selected // routed, keys, width)
            # queries and outputs of the heads that no token selects are not touched
            own -= 2 * moved(q) * (heads - selected) // heads
    chosen = launch.launch
    source = fingerprint(name, sorted(chosen.blocks.items()), chosen.num_warps, chosen.num_stages)
    return Kernel(name, kind, own, macs if name in TRITON else 0, core, source=source)


def _tensors(launch: Launched) -> list[Tensor]:
    """Return the tensors of a launch, each once: an absent one is passed as another one."""
    return list({id(value): value for value in launch.arguments if isinstance(value, Tensor)}.values())


class _Core(torch.autograd.Function):
    """Shapes and strides of torch's fused core; records one kernel forward and one backward."""

    @staticmethod
    def forward(ctx, q, k, v, others, into, share):
        ctx.save_for_backward(q, k, v)
        ctx.into, ctx.share = into, share
        (*batch, tokens, width), out_width, keys = q.shape, v.shape[-1], k.shape[-2]
        # token by token, as on a GPU
        out = q.new_empty(*batch[:-1], tokens, batch[-1], out_width).transpose(-2, -3)
        macs = int(share * prod(batch) * tokens * keys * (width + out_width))
        ctx.sizes = CoreSizes(prod(batch), tokens, keys, max(width, out_width))
        # one query is split over its keys, more are rows of tiles
        kind = DECODE if tokens == 1 else CORE
        into.add(Kernel("core", kind, moved(q, k, v, out, *others), macs, ctx.sizes), [q, k, v, *others], [out])
        return out

    @staticmethod
    def backward(ctx, grad):
        q, k, v = ctx.saved_tensors
        # scores again, and the gradients of values, probabilities, queries and keys
        macs = int(ctx.share * prod(ctx.sizes[:3]) * (3 * q.shape[-1] + 2 * v.shape[-1]))
        own = 2 * moved(q, k, v) + 2 * moved(grad)
        gradients = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        kernel = Kernel("core_backward", CORE_BACKWARD, own, macs, ctx.sizes)
        ctx.into.add(kernel, [q, k, v, grad], gradients)
        return *gradients, None, None, None


class _Fused(TorchFunctionMode):
    """Replace torch's fused core by :class:`_Core`."""

    def __init__(self, into: KernelRecorder) -> None:
        super().__init__()
        self.into = into

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """Call ``func``, or record the fused core."""
        kwargs = kwargs or {}
        if func is not F.scaled_dot_product_attention:
            return func(*args, **kwargs)
        named = dict(zip(("query", "key", "value", "attn_mask", "dropout_p", "is_causal"), args, strict=False)) | kwargs
        q, k, v = named["query"], named["key"], named["value"]
        mask = named.get("attn_mask")
        tokens, keys = q.shape[-2], k.shape[-2]
        # a causal core skips the tiles of hidden keys
        share = (keys + 1) / (2 * keys) if named.get("is_causal") and tokens == keys else 1.0
        return _Core.apply(q, k, v, [] if mask is None else [mask], self.into, share)


@contextmanager
def _as_on_cuda() -> Iterator[None]:
    """Let layers on meta take the path that they take on CUDA with Triton."""
    from headcount.models.kernels.selection import Selectable

    if not hasattr(Selectable, "is_available"):
        yield
        return
    found = Selectable.is_available

    def is_available(layer: Any, name: str, query: Tensor) -> bool:
        fits = query.is_meta and query.dtype in (torch.bfloat16, torch.float16)
        return fits and any(impl.name == name for impl in layer.config.implementations)

    Selectable.is_available = is_available
    try:
        yield
    finally:
        Selectable.is_available = found


@contextmanager
def record_kernels() -> Iterator[KernelRecorder]:
    """Record the kernels of what runs on meta tensors inside the block."""
    with _as_on_cuda(), KernelRecorder() as recorder, _Fused(recorder):
        yield recorder


def fuse(recorder: KernelRecorder) -> list[Kernel]:
    """Return the kernels with each chain of elementwise operations as one, as a compiler fuses them.

    A chain is a run of elementwise operations in which each shares a tensor with another; it reads what came from
    outside of it, and writes what is read outside of it, or nowhere.
    """
    found: list[Kernel] = []
    run: list[int] = []
    for place, kernel in enumerate(recorder.kernels):
        if kernel.kind == ELEMENTWISE and kernel.name not in MOVES:
            run.append(place)
            continue
        found += [*_fuse_run(recorder, run), kernel]
        run = []
    return found + _fuse_run(recorder, run)


def _fuse_run(recorder: KernelRecorder, run: Sequence[int]) -> list[Kernel]:
    """Return a kernel for each chain of a run."""
    chains: list[list[int]] = []
    for place in run:
        touched = _storages(recorder, [place])
        joined = [chain for chain in chains if touched & _storages(recorder, chain)]
        chains = [chain for chain in chains if chain not in joined]
        chains.append([*(other for chain in joined for other in chain), place])
    return [_fuse_chain(recorder, sorted(chain)) for chain in chains]


def _storages(recorder: KernelRecorder, places: Iterable[int]) -> set[int]:
    return {key for place in places for key in (*recorder.reads[place], *recorder.writes[place])}


def _fuse_chain(recorder: KernelRecorder, chain: Sequence[int]) -> Kernel:
    """Return the one kernel of a chain."""
    if len(chain) == 1:
        return recorder.kernels[chain[0]]
    read: Flow = {}
    written: Flow = {}
    for place in chain:
        read |= {key: size for key, size in recorder.reads[place].items() if key not in written}
        written |= recorder.writes[place]
    outside = {key for place, flow in enumerate(recorder.reads) if place not in chain for key in flow}
    inside = {key for place in chain for key in recorder.reads[place]}
    kept = {key: size for key, size in written.items() if key in outside or key not in inside}
    name = "+".join(recorder.kernels[place].name for place in chain)
    return Kernel(name, ELEMENTWISE, sum(read.values()) + sum(kept.values()))


def layer_kernels(
    config: Any, impl: str, shape: Sequence[int], src_len: int, dtype: torch.dtype, which: str
) -> list[Kernel]:
    """Return the kernels of a layer's pass over (B, T) tokens, and ``src_len`` keys where it decodes."""
    x = torch.empty(*shape, config.d_model, device="meta", dtype=dtype).requires_grad_(which == "both")
    return _pass_kernels(config, impl, [x], dtype, which, src_len=src_len)


def model_kernels(
    config: Any, impl: str, lengths: Mapping[str, int], dtype: torch.dtype, which: str, loss: Callable
) -> list[Kernel]:
    """Return the kernels of a model's pass; ``loss`` is of its output and its last input."""
    inputs = example_inputs(config, lengths, device="meta", dtype=dtype).values()
    return _pass_kernels(config, impl, [*inputs], dtype, which, loss)


def _pass_kernels(
    config: Any, impl: str, inputs: Sequence[Tensor], dtype: torch.dtype, which: str, loss: Callable | None = None,
    src_len: int = 0,
) -> list[Kernel]:  # fmt: skip
    """Return the kernels of a pass; without ``loss`` the gradients are of the output, for ``inputs`` too."""
    module = build(config, impl=impl, device="meta", dtype=dtype)
    trains, options = which == "both", {}
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if which == "decode":
        options["cache"] = module.make_cache(len(inputs[0]), src_len, "meta", dtype)
        options["cache"].length = src_len - 1
    with torch.set_grad_enabled(trains), record_kernels() as recorder:
        out = module(*inputs, **options)
        if trains and loss:
            torch.autograd.grad(loss(out, inputs[-1]), parameters, allow_unused=True)
        elif trains:
            gradient = torch.empty(out.shape, device="meta", dtype=dtype)
            torch.autograd.grad(out, [*inputs, *parameters], gradient, allow_unused=True)
    return fuse(recorder) if impl == COMPILED else recorder.kernels
