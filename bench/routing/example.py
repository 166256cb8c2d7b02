"""Train small MoA models with and without the auxiliary losses L_a and L_z, in the form of Table 7 of arXiv 2210.05144.

A masked language model with one MoA layer learns a made-up task, for which experts specialise by class of token: a
token of class c (A is 1, B is 2, …) is answered with the token c places before it, cyclically.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from headcount.bench.counters.run_context import one_thread
from headcount.bench.output.progress import with_progress
from headcount.bench.routing.recorder import record
from headcount.bench.routing.stats import LayerRouting
from headcount.models import losses
from headcount.models.build import build
from headcount.models.configs.presets import preset

CLASSES, WORDS, SEQ_LEN = 4, 8, 16
STEPS, BATCH_SIZE, LEARNING_RATE, SEED = 600, 32, 3e-3, 1
HELD_OUT = 128
LOG_INTERVAL = 50

PRESET = "mlm-moa-8K8E128D"
FIELDS = {
    "d_model": 32, "d_ff": 64, "num_layers": 1, "vocab_size": CLASSES * WORDS, "max_positions": SEQ_LEN + 2,
    "num_experts": 8, "top_k": 2, "head_dim": 16, "bias": False,
}  # fmt: skip
Log = list[tuple[int, dict[str, list[int]]]]
"""Training steps, each with the tokens per expert of every layer by its path."""

WEIGHTS = (0.01, 0.0), (0.0, 0.01), (0.0, 0.001), (0.01, 0.001), (0.01, 0.01)
RUNS = [{"L_a": balance, "L_z": z} for balance, z in WEIGHTS]
"""Coefficients of the auxiliary losses, one run each; the columns of Table 7."""
PAPER = {"L_a": 0.01, "L_z": 0.001}
"""The coefficients that the paper trains with."""


@dataclass(frozen=True)
class Outcome:
    """A trained model on held-out sequences: loss in nats, accuracy, auxiliary losses without their coefficients."""

    coefficients: Mapping[str, float]
    loss: float
    accuracy: float
    auxiliary: Mapping[str, float]
    layer: LayerRouting
    log: Log


def class_of(token: int) -> str:
    """Return the letter of a token's class."""
    return "ABCD"[token // WORDS]


def token_name(token: int) -> str:
    """Return a token as its class and its number in the class: ``B3``."""
    return f"{class_of(token)}{token % WORDS}"


def targets(tokens: Tensor) -> Tensor:
    """Return the answers to tokens (batch, SEQ_LEN): to class c the token c places before, cyclically."""
    return tokens.gather(1, (torch.arange(SEQ_LEN) - (tokens // WORDS + 1)) % SEQ_LEN)


def batches(seed: int, size: int) -> Iterator[Tensor]:
    """Yield random tokens (size, SEQ_LEN)."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield torch.randint(CLASSES * WORDS, (size, SEQ_LEN), generator=generator)


def evaluation_tokens() -> Tensor:
    """Return the evaluation tokens (HELD_OUT, SEQ_LEN)."""
    return next(batches(SEED + 1, HELD_OUT))


def run() -> list[Outcome]:
    """Train one model for each of ``RUNS``, on one thread so that results are the same every time."""
    with one_thread():
        return list(with_progress(map(train, RUNS), "training, run"))


def train(coefficients: Mapping[str, float], steps: int | None = None) -> Outcome:
    """Train from fixed weights on fixed batches for ``steps`` (default: STEPS), and evaluate on held-out sequences."""
    weights = {"balance_loss_weight": coefficients["L_a"], "z_loss_weight": coefficients["L_z"]}
    model, log = build(preset(PRESET, FIELDS | weights), seed=SEED).train(), []
    optimizer, data = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE), batches(SEED, BATCH_SIZE)
    for step in range(1, (steps or STEPS) + 1):
        tokens = next(data)
        loss = _loss(model(tokens), targets(tokens))
        if step % LOG_INTERVAL == 0 or step == 1:
            log.append((step, {path: counts.tolist() for path, counts in losses.tokens_per_expert(model).items()}))
        optimizer.zero_grad()
        (loss + losses.auxiliary_loss(model)).backward()
        optimizer.step()
    with torch.no_grad():
        return _evaluate(model, coefficients, log)


def _evaluate(model: torch.nn.Module, coefficients: Mapping[str, float], log: Log) -> Outcome:
    tokens = evaluation_tokens()
    (layer,) = record(model, [(row, row) for row in tokens.tolist()])
    losses.record_routing(model)
    logits, answers = model(tokens), targets(tokens)
    ((_, module),) = losses.routed_modules(model)
    routing = module.router.recorded
    balance, z = losses.balance_loss(routing.probs, routing.indices), losses.z_loss(routing.logits)
    accuracy = (logits.argmax(-1) == answers).double().mean().item()
    auxiliary = {"L_a": balance.item(), "L_z": z.item()}
    return Outcome(coefficients, _loss(logits, answers).item(), accuracy, auxiliary, layer, log)


def _loss(logits: Tensor, answers: Tensor) -> Tensor:
    """Return the cross-entropy in nats of logits (batch, SEQ_LEN, tokens)."""
    return F.cross_entropy(logits.flatten(0, 1), answers.flatten())


def label(coefficients: Mapping[str, float]) -> str:
    """Return coefficients as Table 7 heads its columns: ``0.01 L_a + 0.001 L_z``."""
    return " + ".join(f"{value:g} {name}" for name, value in coefficients.items() if value)
