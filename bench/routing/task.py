"""Made-up tasks whose tokens fall into classes, and the training of a small routed model on them.

A token of class c (A is 1, B is 2, …) asks for the token c places before it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from headcount.bench.routing.run import record
from headcount.bench.routing.stats import LayerRouting
from headcount.models import losses
from headcount.models.build import build
from headcount.models.configs.base import ModelConfig

CLASSES, WORDS, SEQ_LEN = 4, 8, 16
BATCH, RATE, SEED = 32, 3e-3, 1
HELD_OUT = 128
LOGGED_EVERY = 50
NO_ANSWER = -100
"""What torch's cross-entropy leaves out."""

Log = list[tuple[int, dict[str, list[int]]]]
"""Steps with the tokens per expert of each layer in that step's batch."""

Answers = Callable[[Tensor], Tensor]
"""From tokens (batch, SEQ_LEN) to what each is to be answered with, or NO_ANSWER."""

AUXILIARY = {
    "L_a": lambda routing: losses.balance_loss(routing.probs, routing.indices),
    "L_b": lambda routing: losses.head_balance_loss(routing.probs, routing.indices),
    "L_z": lambda routing: losses.z_loss(routing.logits),
}
"""Each auxiliary loss of a recorded routing, without its coefficient."""


@dataclass(frozen=True)
class Outcome:
    """A trained model on held-out tokens: its loss in nats, accuracy, auxiliary losses by name, and routing.

    ``coefficients``: of each auxiliary loss in training.
    """

    coefficients: Mapping[str, float]
    loss: float
    accuracy: float
    auxiliary: Mapping[str, float]
    layer: LayerRouting
    log: Log
    state: dict[str, Tensor]


def class_of(token: int) -> str:
    """The letter of a token's class."""
    return "ABCDEFGH"[token // WORDS]


def token_name(token: int) -> str:
    """A token as its class and its number in it: ``B3``."""
    return f"{class_of(token)}{token % WORDS}"


def in_a_ring(tokens: Tensor) -> Tensor:
    """The token as many places before as the class says; the last token comes before the first."""
    return tokens.gather(1, _asked(tokens) % SEQ_LEN)


def renamed(tokens: Tensor) -> Tensor:
    """The token as many places before as the class says, by the name that the class has for it.

    Each class has a permutation of all tokens. NO_ANSWER where the sequence has not as many tokens before.
    """
    generator = torch.Generator().manual_seed(SEED)
    names = torch.stack([torch.randperm(CLASSES * WORDS, generator=generator) for _ in range(CLASSES)])
    asked = _asked(tokens)
    return names[tokens // WORDS, tokens.gather(1, asked % SEQ_LEN)].masked_fill(asked < 0, NO_ANSWER)


def _asked(tokens: Tensor) -> Tensor:
    return torch.arange(SEQ_LEN) - (tokens // WORDS + 1)


def batches(seed: int, size: int) -> Iterator[Tensor]:
    """Random tokens (size, SEQ_LEN)."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield torch.randint(CLASSES * WORDS, (size, SEQ_LEN), generator=generator)


def held_out() -> Tensor:
    """The tokens (HELD_OUT, SEQ_LEN) that models are looked at with."""
    return next(batches(SEED + 1, HELD_OUT))


def loss(logits: Tensor, wanted: Tensor) -> Tensor:
    """Cross-entropy in nats of logits (batch, SEQ_LEN, tokens), without those that have NO_ANSWER."""
    return F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=NO_ANSWER)


def train(config: ModelConfig, answers: Answers, coefficients: Mapping[str, float], steps: int) -> Outcome:
    """Train from the same weights on the same batches, and look at held-out sequences.

    ``coefficients`` are those in ``config``, by the losses' names.
    """
    model, log = build(config, seed=SEED).train(), []
    optimizer, data = torch.optim.Adam(model.parameters(), lr=RATE), batches(SEED, BATCH)
    for step in range(1, steps + 1):
        tokens = next(data)
        task = loss(model(tokens), answers(tokens))
        if step % LOGGED_EVERY == 0 or step == 1:
            log.append((step, {path: counts.tolist() for path, counts in losses.tokens_per_expert(model).items()}))
        optimizer.zero_grad()
        (task + losses.auxiliary_loss(model)).backward()
        optimizer.step()
    return _evaluated(model, answers, coefficients, log)


@torch.no_grad()
def _evaluated(model, answers: Answers, coefficients: Mapping[str, float], log: Log) -> Outcome:
    tokens = held_out()
    (layer,) = record(model, [(row, row) for row in tokens.tolist()])
    losses.record_routing(model)
    logits, wanted = model(tokens), answers(tokens)
    routing = next(module for _, module in losses.routed_modules(model)).router.recorded.routing
    asked = wanted != NO_ANSWER
    return Outcome(
        coefficients,
        loss(logits, wanted).item(),
        (logits.argmax(-1) == wanted)[asked].double().mean().item(),
        {name: AUXILIARY[name](routing).item() for name in coefficients},
        layer,
        log,
        model.state_dict(),
    )
