"""Which cells a campaign measures, the most wanted first, and how long each is thought to take.

The order is that in which the documents need them: the paper's layers, then decoding, then MoH, then whole models, then
the paper's layers once more.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from headcount.bench.latency.cells import Cell, cells_of_layers, cells_of_models
from headcount.bench.latency.roofline import executed_work

TOKENS = 16384
HEADLINE = ("moa-8K8E128D", "moa-16K32E256D", "moa-8K32E128D")


@dataclass(frozen=True)
class Stage:
    """Layers, or whole models without ``seq_lens``, in the order of lengths, then passes, then names.

    ``blocks``: measured again in so many, to be held against the first time.
    """

    names: Sequence[str]
    seq_lens: Sequence[int] = ()
    passes: Sequence[str] = ("forward",)
    routings: Sequence[str] = ("balanced",)
    blocks: int | None = None


STAGES = (
    Stage(HEADLINE, (128, 2048, 512, 8192, 10), ("forward", "both")),
    Stage(HEADLINE, (512, 2048, 8192), ("decode",)),
    Stage(("moh-32x64-50", "moh-32x64-75", "moh-llama3-50", "moh-llama3-75"), (2048, 8192, 512)),
    Stage(("mha-base", "mha-big"), (128, 2048, 512, 8192, 10), ("forward", "both")),
    Stage(
        ("moa-8K8E256D", "moa-8K16E256D", "moa-8K32E64D", "moa-8K32E256D", "moa-4K32E256D"),
        (128, 2048, 512, 8192, 10),
        ("forward", "both"),
    ),
    Stage(("moh-32x64-100", "moh-32x64-90", "moh-llama3-100", "moh-llama3-90"), (2048, 8192, 512)),
    Stage(("moh-32x64-50", "moh-32x64-75", "moh-llama3-50", "moh-llama3-75"), (2048, 8192, 512), ("both",)),
    Stage(("moa-16K32E256D",), (128, 2048), routings=("paper", "zipf", "one-expert")),
    Stage(("moh-32x64-50", "moh-32x64-75"), (2048, 8192), ("decode",)),
    Stage(("transformer-base", "moa-8K8E128D", "transformer-big", "moa-16K32E256D"), passes=("forward", "both")),
    Stage(("mlm-transformer", "mlm-moa-8K8E128D", "llm-s", "moh-llm-s-50"), passes=("forward", "both")),
    Stage(("dit-s2", "moh-dit-s2-75"), passes=("forward", "both")),
    Stage(("llama3-8b", "moh-llama3-8b")),
    # agreement of two measurements is the best evidence there is
    Stage(HEADLINE, (128, 2048), blocks=60),
)

CELL_S, ARM_S = {"cpu": 0.3, "cuda": 0.5}, {"cpu": 1.0, "cuda": 0.45}
"""Before anything is timed: inputs of a cell; parameters, check, warm-up and graph of an arm. Assumed, not measured."""
MACS_PER_S = {"cpu": 2e10, "cuda": 5e13}
"""What an arm is thought to reach, the slowest among them."""
LARGE_MACS, LARGE_MACS_PER_S = 10**13, {"cpu": 2e10, "cuda": 1.5e14}
"""A call of more is nearly all large products, in whatever arm: the models of 8 G parameters."""
LEAST_BLOCK_S = {"cpu": 0.02, "cuda": 0.005}
CHECKS = 12
"""Calls of an arm that are not timed."""


def campaign_cells(device: str = "cuda", dtype: str = "bfloat16", tokens: int = TOKENS) -> list[Cell]:
    """Every cell of every stage, each once."""
    found: dict[str, Cell] = {}
    for stage in STAGES:
        for cell in _cells(stage, dict(tokens=tokens, batch_size=None, dtype=dtype, device=device, asked=None)):
            cell = replace(cell, blocks=stage.blocks)
            found.setdefault(cell.key, cell)
    return list(found.values())


def _cells(stage: Stage, shape: dict) -> Iterator[Cell]:
    if not stage.seq_lens:
        for name in stage.names:
            yield from cells_of_models([name], None, stage.passes, **shape)
        return
    for seq_len in stage.seq_lens:
        yield from cells_of_layers(stage.names, [seq_len], stage.passes, stage.routings, **shape)


def by_value(cells: Sequence[Cell]) -> list[Cell]:
    """``cells`` in the order of the campaign; those that are not in it come last, as they are."""
    places = {_place(cell): place for place, cell in reversed(list(enumerate(campaign_cells())))}
    return sorted(cells, key=lambda cell: places.get(_place(cell), len(places)))


def _place(cell: Cell) -> tuple:
    return cell.subject, cell.name, cell.seq_len, cell.which, cell.routing, cell.blocks


def seconds(cell: Cell, blocks: int) -> float:
    """How long ``cell`` is thought to take: an assumption, to be corrected by what its forerunners took.

    In ``blocks``, unless it says itself in how many.
    """
    blocks = cell.blocks or blocks
    total = CELL_S[cell.device]
    for spec in cell.arms():
        done = executed_work(cell, spec)
        rate = LARGE_MACS_PER_S if done.macs > LARGE_MACS else MACS_PER_S
        call = done.macs / rate[cell.device]
        # a GPU draws and copies the parameters of a large model in seconds
        total += ARM_S[cell.device] + done.params * 5e-9
        total += CHECKS * call + 2 * blocks * max(LEAST_BLOCK_S[cell.device], call)
    return total
