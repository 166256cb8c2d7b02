"""The built-in example: a task whose tokens fall into classes, trained under the coefficient pairs of Table 7.

A token of class c (A is 1, B is 2, …) is to be answered by the token c places before it, so that each class needs
attention of its own. The model is a masked language model with one MoA layer.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.errors import UsageError
from bench.routing_run import record
from bench.routing_stats import LayerRouting
from models import losses
from models.build import build
from models.config import ModelConfig, make_config

CLASSES, WORDS, SEQ_LEN = 4, 8, 16
NUM_EXPERTS, TOP_K, D_MODEL = 8, 2, 32
STEPS, BATCH, RATE, SEED = 600, 32, 3e-3, 1
HELD_OUT = 128
PAIRS = ((0.01, 0.0), (0.0, 0.01), (0.0, 0.001), (0.01, 0.001), (0.01, 0.01))
"""alpha of L_a and beta of L_z, in the order of Table 7, section 5.3 of arXiv 2210.05144."""

PAPERS_PAIR = (0.01, 0.001)
"""Those that the paper trains with (Eq. 17)."""

LOGGED_EVERY = 50
Log = list[tuple[int, dict[str, list[int]]]]
"""Steps with the tokens per expert of each layer in that step's batch."""


@dataclass(frozen=True)
class Outcome:
    """A trained model on held-out tokens: its loss in nats, accuracy, auxiliary losses, and routing."""

    alpha: float
    beta: float
    loss: float
    accuracy: float
    balance_loss: float
    z_loss: float
    layer: LayerRouting
    log: Log
    state: dict[str, Tensor]


def config(alpha: float = 0.01, beta: float = 0.001) -> ModelConfig:
    """The model of the example under one pair."""
    sizes = {"d_model": D_MODEL, "d_ff": 2 * D_MODEL, "head_dim": D_MODEL // 2}
    routed = {"attention": "moa", "num_experts": NUM_EXPERTS, "top_k": TOP_K}
    model = {"model": "masked_lm", "num_layers": 1, "vocab_size": CLASSES * WORDS, "max_positions": SEQ_LEN + 2}
    return make_config({**model, **sizes, **routed, "balance_loss_weight": alpha, "z_loss_weight": beta})


def class_of(token: int) -> str:
    """The letter of a token's class."""
    return "ABCDEFGH"[token // WORDS]


def token_name(token: int) -> str:
    """A token as its class and its number in it: ``B3``."""
    return f"{class_of(token)}{token % WORDS}"


def batches(seed: int, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Random tokens (size, SEQ_LEN) and their answers; the sequence is a ring."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        tokens = torch.randint(CLASSES * WORDS, (size, SEQ_LEN), generator=generator)
        back = tokens // WORDS + 1
        yield tokens, tokens.gather(1, (torch.arange(SEQ_LEN) - back) % SEQ_LEN)


def train(alpha: float, beta: float, steps: int = STEPS) -> Outcome:
    """Train from the same weights on the same batches, and look at held-out sequences."""
    model = build(config(alpha, beta), seed=SEED).train()
    optimizer, log = torch.optim.Adam(model.parameters(), lr=RATE), []
    data = batches(SEED, BATCH)
    for step in range(1, steps + 1):
        tokens, answers = next(data)
        task = F.cross_entropy(model(tokens).flatten(0, 1), answers.flatten())
        if step % LOGGED_EVERY == 0 or step == 1:
            log.append((step, {path: counts.tolist() for path, counts in model.tokens_per_expert().items()}))
        optimizer.zero_grad()
        (task + model.auxiliary_loss()).backward()
        optimizer.step()
    return _evaluated(model, alpha, beta, log)


@torch.no_grad()
def _evaluated(model, alpha: float, beta: float, log: Log) -> Outcome:
    tokens, answers = next(batches(SEED + 1, HELD_OUT))
    (layer,) = record(model, [(row, row) for row in tokens.tolist()])
    losses.record_routing(model)
    logits = model(tokens)
    routing = next(module for _, module in losses.routed_modules(model)).router.recorded.routing
    return Outcome(
        alpha,
        beta,
        F.cross_entropy(logits.flatten(0, 1), answers.flatten()).item(),
        (logits.argmax(-1) == answers).double().mean().item(),
        losses.balance_loss(routing.probs, routing.indices).item(),
        losses.z_loss(routing.logits).item(),
        layer,
        log,
        model.state_dict(),
    )


def run(steps: int = STEPS, say: Callable[[str], None] = lambda line: None) -> list[Outcome]:
    """An outcome for each pair of Table 7; one thread, so that a machine gives the same figures every time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        outcomes = []
        for alpha, beta in PAIRS:
            say(f"training with {pair(alpha, beta)}")
            outcomes.append(train(alpha, beta, steps))
        return outcomes
    finally:
        torch.set_num_threads(threads)


def pair(alpha: float, beta: float) -> str:
    """Coefficients as Table 7 heads its columns: ``0.01 L_a + 0.001 L_z``."""
    return " + ".join(f"{value:g} {name}" for value, name in ((alpha, "L_a"), (beta, "L_z")) if value)


def statement(outcomes: list[Outcome]) -> list[str]:
    """What each loss did, read off pairs of runs that differ in its coefficient alone."""
    by_pair = {(found.alpha, found.beta): found for found in outcomes}
    lines = []
    for (alpha, beta), found in by_pair.items():
        if alpha and (0.0, beta) in by_pair:
            other = by_pair[0.0, beta]
            before, after = (100 * max(one.layer.shares) for one in (other, found))
            lines.append(
                f"With L_a (beside {beta:g} L_z) the largest share {_moves(before, after)} from {float(before):.1f} % "
                f"to {float(after):.1f} %, and the task loss {_moves(other.loss, found.loss)} from {other.loss:.3f} to "
                f"{found.loss:.3f}."
            )
        if beta and (alpha, 0.0) in by_pair:
            other = by_pair[alpha, 0.0]
            lines.append(
                f"With {beta:g} L_z (beside {alpha:g} L_a) L_z itself {_moves(other.z_loss, found.z_loss)} from "
                f"{other.z_loss:.3f} to {found.z_loss:.3f}."
            )
    return lines


def _moves(before, after) -> str:
    if before == after:
        return "stays"
    return "falls" if after < before else "rises"


def save(outcome: Outcome, directory: str | Path) -> str:
    """Write checkpoint.pt, tokens.txt and log.jsonl; the arguments of bench.routing that read them again.

    Raises UsageError where the directory cannot be written.
    """
    path = Path(directory)
    tokens, _ = next(batches(SEED + 1, HELD_OUT))
    log = [json.dumps({"step": step, "tokens_per_expert": counts}) for step, counts in outcome.log]
    try:
        path.mkdir(parents=True, exist_ok=True)
        torch.save(outcome.state, path / "checkpoint.pt")
        (path / "tokens.txt").write_text("".join(" ".join(map(str, row)) + "\n" for row in tokens.tolist()))
        (path / "log.jsonl").write_text("".join(f"{line}\n" for line in log))
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
    made = config(outcome.alpha, outcome.beta)
    sizes = {name: getattr(made, name) for name in ("d_model", "d_ff", "num_layers", "vocab_size", "max_positions")}
    sizes |= {name: getattr(made.attention, name) for name in ("num_experts", "top_k", "head_dim")} | {"bias": "false"}
    changed = " ".join(f"{name}={value}" for name, value in sizes.items())
    files = f"--checkpoint {path / 'checkpoint.pt'} --tokens {path / 'tokens.txt'} --log {path / 'log.jsonl'}"
    return f"--preset mlm-moa-8K8E128D --set {changed} {files}"
