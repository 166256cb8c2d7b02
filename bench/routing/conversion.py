"""The built-in example of a conversion: a small dense model is trained, becomes MoH, and is trained on.

The paper's recipe (arXiv 2410.11842, section 4.4): the first heads are shared, the lengths of queries choose among the
others, no parameter is added; the balance loss is on from then.
"""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from headcount.bench.case import Case
from headcount.bench.routing import task
from headcount.bench.routing.run import record
from headcount.bench.routing.stats import LayerRouting
from headcount.bench.table import Column, Row, Section, Table
from headcount.models import losses
from headcount.models.build import build
from headcount.models.configs.presets import preset
from headcount.models.convert import convert

PRESET = "llm-s"
HEADS, SHARED, ROUTED = 10, 2, 2
FIELDS = {
    "d_model": 32, "d_ff": 8, "num_layers": 2, "vocab_size": task.CLASSES * task.WORDS, "context_len": task.SEQ_LEN,
    "num_heads": HEADS, "head_dim": 16,
}  # fmt: skip
DENSE_STEPS, MORE_STEPS = 600, 300


@dataclass(frozen=True)
class Stage:
    """A model at a point of its training: loss in nats and accuracy on held-out sequences, and what it costs there."""

    name: str
    steps: int
    active_heads: int
    loss: float
    accuracy: float
    macs: int


@dataclass(frozen=True)
class Outcome:
    """The stages in order, and where the tokens of the last MoH go."""

    stages: tuple[Stage, ...]
    layers: tuple[LayerRouting, ...]


def run(
    dense_steps: int = DENSE_STEPS, more_steps: int = MORE_STEPS, say: Callable[[str], None] = lambda line: None
) -> Outcome:
    """Train, convert, train on; beside it the dense model for as many steps. One thread, so that a machine gives the
    same figures every time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _run(dense_steps, more_steps, say)
    finally:
        torch.set_num_threads(threads)


def _run(dense_steps: int, more_steps: int, say: Callable[[str], None]) -> Outcome:
    data = task.batches(task.SEED, task.BATCH)
    dense = build(preset(PRESET, FIELDS), seed=task.SEED)
    say(f"training a dense model for {dense_steps} steps")
    _train(dense, data, dense_steps)
    stages = [_stage("dense", dense, dense_steps)]
    whole = convert(dense, shared=SHARED, routed=HEADS - SHARED)
    # both are trained on, each by itself
    moh = convert(copy.deepcopy(dense), shared=SHARED, routed=ROUTED)
    stages.append(_stage("converted, every head on", whole, dense_steps))
    stages.append(_stage("converted", moh, dense_steps))
    further = [next(data) for _ in range(more_steps)]
    for name, model in (("converted, trained on", moh), ("dense, trained on", dense)):
        say(f"training on for {more_steps} steps: {name}")
        _train(model, iter(further), more_steps)
        stages.append(_stage(name, model, dense_steps + more_steps))
    return Outcome(tuple(stages), tuple(record(moh, [(row, row) for row in task.held_out().tolist()])))


def _loss(model: nn.Module, tokens: Tensor) -> Tensor:
    return task.loss(model(tokens), task.renamed(tokens))


def _train(model: nn.Module, data: Iterator[Tensor], steps: int) -> None:
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=task.RATE)
    for _ in range(steps):
        optimizer.zero_grad()
        (_loss(model, next(data)) + losses.auxiliary_loss(model)).backward()
        optimizer.step()
    model.eval()


@torch.no_grad()
def _stage(name: str, model: nn.Module, steps: int) -> Stage:
    model.eval()
    tokens = task.held_out()
    wanted = task.renamed(tokens)
    asked = wanted != task.NO_ANSWER
    accuracy = (model(tokens).argmax(-1) == wanted)[asked].double().mean().item()
    case = Case(name, model.config, {"batch_size": 1, "seq_len": task.SEQ_LEN})
    attention = model.config.attention
    active = getattr(attention, "num_active_heads", attention.num_heads)
    macs = (case.ideal_ledger or case.ledger).macs
    return Stage(name, steps, active, _loss(model, tokens).item(), accuracy, macs)


def section(outcome: Outcome) -> Section:
    """One row for each stage."""
    table = Table(
        "conversion",
        "A dense model becomes mixture-of-head attention",
        [
            Column("name", "model"),
            Column("steps", "steps", kind="int"),
            Column("active_heads", "heads\nper token", kind="int"),
            Column("loss", "task loss\n(nats)", kind="fixed", digits=3),
            Column("accuracy", "accuracy", unit="%", kind="fixed", digits=2),
            Column("macs", "MACs\nideal", kind="int", of="MACs"),
        ],
        notes_above=[
            f"{PRESET} with {HEADS} heads in each of {FIELDS['num_layers']} layers, on a made-up task with "
            f"{task.CLASSES} classes of tokens, seed {task.SEED}, on held-out sequences. Converted as arXiv 2410.11842 "
            f"converts LLaMA3-8B: {SHARED} heads shared, {ROUTED} of the others by the lengths of their queries; no "
            "parameter is added, and with every head on it is the same function. MACs of one sequence, without "
            "unselected heads."
        ],
    )
    rows = []
    for stage in outcome.stages:
        values = vars(stage)
        rows.append(Row({**values, "accuracy": 100 * stage.accuracy}, records=[values]))
    dense, _, before, after, longer = outcome.stages
    below = (
        f"Conversion takes the task loss from {dense.loss:.3f} to {before.loss:.3f}; {after.steps - before.steps} "
        f"steps take it to {after.loss:.3f}, and that of the dense model, trained on as long, to {longer.loss:.3f}."
    )
    return Section(table, rows, [below])
