"""Time kernels of torch's fused attention core, and launch configurations of the Triton kernels, on this GPU.

The results change nothing by themselves: they are recorded for the tables of launch configurations.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F

from headcount.bench.latency.capture import NotCaptured, capture, elapsed_s, side_stream
from headcount.bench.latency.device_errors import format_status
from headcount.bench.latency.routing_replay import backend_of
from headcount.bench.table import Column, Table

BACKENDS = ("CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION")
CORES = tuple((heads, width, seq_len) for heads, width in ((8, 128), (16, 256)) for seq_len in (128, 512, 2048, 8192))
"""Query heads, their width, and tokens; one key/value head."""
KERNELS = {"expert": "moa-16K32E256D", "mqa": "moa-8K8E128D", "ragged": "moh-32x64-50"}
"""A Triton kernel, and the layer with which it is timed."""
CALLS, REPLAYS = 5, 4

TABLE = Table(
    "choices",
    "Configurations of kernels, timed",
    (
        Column("what", "what", width=34),
        Column("way", "way", width=44),
        Column("us", "time", "us", kind="fixed", digits=1, width=9),
        Column("chosen", "taken", width=5),
        Column("status", "status", width=6),
    ),
)


def choices(tokens: int, dtype: torch.dtype) -> Iterator[dict[str, Any]]:
    """Yield a row for each configuration; one that fails has no time, and its status is the error."""
    with side_stream("cuda"):
        found = [*_cores(tokens, dtype), *_blocks(tokens, dtype)]
    yield from found


def _cores(tokens: int, dtype: torch.dtype) -> Iterator[dict[str, Any]]:
    for heads, width, seq_len in CORES:
        batch = max(1, tokens // seq_len)
        q = torch.randn(batch, 1, seq_len * heads, width, device="cuda", dtype=dtype)
        k = torch.randn(batch, 1, seq_len, width, device="cuda", dtype=dtype)
        selected = backend_of((q, k, k), {})
        for name in BACKENDS:

            def call(_: int, name: str = name, q=q, k=k) -> torch.Tensor:
                with torch.nn.attention.sdpa_kernel(getattr(torch.nn.attention.SDPBackend, name)):
                    return F.scaled_dot_product_attention(q, k, k)

            what = f"core of {heads} heads of {width}, T = {seq_len}"
            yield _row(what, name.lower(), call, name.lower() == selected)


def _blocks(tokens: int, dtype: torch.dtype) -> Iterator[dict[str, Any]]:
    from headcount.bench.latency.implementations import lacks
    from headcount.models.build import build
    from headcount.models.configs.layers import layer
    from headcount.models.kernels.triton_configs import TABLE as LAUNCHES

    for kernel, name in KERNELS.items():
        config = layer(name)
        impl = next(impl for impl in config.implementations if impl.package)
        lack = lacks(impl, "cuda")
        what = f"kernel {kernel} in {name}, T = 128"
        if lack:
            yield {"what": what, "way": impl.name, "us": None, "chosen": None, "status": f"needs {lack}"}
            continue
        module = build(config, device="cuda", dtype=dtype, impl=impl.name)
        x = torch.randn(max(1, tokens // 128), 128, config.d_model, device="cuda", dtype=dtype)

        def call(_: int, module=module, x=x) -> torch.Tensor:
            with torch.no_grad():
                return module(x)

        yield _row(what, "as committed", call, True)
        for row in LAUNCHES[kernel]:
            blocks = " ".join(f"{letter}{size}" for letter, size in row.launch.blocks.items())
            way = f"{blocks} w{row.launch.num_warps} s{row.launch.num_stages}"
            with _only(LAUNCHES, kernel, row._replace(least={})):
                yield _row(what, way, call, False)


@contextmanager
def _only(table: Any, kernel: str, row: Any) -> Iterator[None]:
    """Use one launch configuration for every size of a kernel."""
    before = table[kernel]
    table[kernel] = (row,)
    try:
        yield
    finally:
        table[kernel] = before


def _row(what: str, way: str, call: Callable[[int], Any], chosen: bool) -> dict[str, Any]:
    row = {"what": what, "way": way, "us": None, "chosen": "yes" if chosen else None, "status": "timed"}
    try:
        for _ in range(3):
            call(0)
        graph = capture(call, CALLS, 1)
        took = sorted(elapsed_s(graph.replay) for _ in range(REPLAYS))
        return row | {"us": 1e6 * took[len(took) // 2] / CALLS}
    except NotCaptured as reason:
        return row | {"status": f"no graph: {reason}"}
    except Exception as error:
        return row | {"status": format_status(error)}
