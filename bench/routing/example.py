"""The built-in examples: small models, trained with and without their auxiliary losses, that specialise by class.

``moa``: a masked language model with one MoA layer under the five coefficient pairs of Table 7 of arXiv
2210.05144. ``moh``: a causal language model with one MoH layer, with and without the balance loss of arXiv
2410.11842.
"""

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from headcount.bench.output.files import made, write
from headcount.bench.routing import task
from headcount.bench.routing.task import Outcome
from headcount.models.configs.base import ModelConfig
from headcount.models.configs.presets import preset

BALANCE = ("L_a", "L_b")
"""The losses that spread the load; L_z keeps logits small."""


@dataclass(frozen=True)
class Example:
    """A task, a preset with ``fields`` of its own, and the coefficients that it is trained with.

    ``weights``: the field that holds the coefficient of each auxiliary loss. ``chosen``: the one of ``runs``
    that the paper trains with.
    """

    title: str
    about: str
    answers: task.Answers
    preset: str
    fields: Mapping[str, Any]
    weights: Mapping[str, str]
    runs: Sequence[Mapping[str, float]]
    chosen: Mapping[str, float]
    steps: int

    def config(self, coefficients: Mapping[str, float]) -> ModelConfig:
        """The model under these coefficients."""
        return preset(self.preset, {**self.fields, **{self.weights[name]: x for name, x in coefficients.items()}})


D_MODEL, VOCABULARY = 32, task.CLASSES * task.WORDS
EXAMPLES = {
    "moa": Example(
        title="L_a and L_z in the form of Table 7",
        about="Table 7 of arXiv 2210.05144 gives BLEU of translation models.",
        answers=task.in_a_ring,
        preset="mlm-moa-8K8E128D",
        fields={
            "d_model": D_MODEL, "d_ff": 2 * D_MODEL, "num_layers": 1, "vocab_size": VOCABULARY,
            "max_positions": task.SEQ_LEN + 2, "num_experts": 8, "top_k": 2, "head_dim": D_MODEL // 2, "bias": False,
        },
        weights={"L_a": "balance_loss_weight", "L_z": "z_loss_weight"},
        runs=[
            {"L_a": alpha, "L_z": beta}
            for alpha, beta in ((0.01, 0.0), (0.0, 0.01), (0.0, 0.001), (0.01, 0.001), (0.01, 0.01))
        ],
        chosen={"L_a": 0.01, "L_z": 0.001},
        steps=600,
    ),
    "moh": Example(
        title="L_b, with and without",
        about="The MoH paper (arXiv 2410.11842) has one auxiliary loss, L_b of Eq. 7, and no table like MoA's Table 7.",
        answers=task.renamed,
        preset="moh-llm-s-75",
        # a narrow feed-forward block, so that renaming is left to the heads' values
        fields={
            "d_model": D_MODEL, "d_ff": 8, "num_layers": 1, "vocab_size": VOCABULARY, "context_len": task.SEQ_LEN,
            "num_heads": 10, "num_shared_heads": 2, "top_k": 2, "head_dim": D_MODEL // 2,
        },
        weights={"L_b": "balance_loss_weight"},
        runs=[{"L_b": 0.0}, {"L_b": 0.01}],
        chosen={"L_b": 0.01},
        steps=800,
    ),
}  # fmt: skip


def run(name: str, steps: int | None = None, say: Callable[[str], None] = lambda line: None) -> list[Outcome]:
    """An outcome for each run of example ``name``; one thread, so that a machine gives the same figures every time."""
    example, outcomes = EXAMPLES[name], []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for coefficients in example.runs:
            say(f"training with {label(coefficients)}")
            outcomes.append(train(name, coefficients, steps))
        return outcomes
    finally:
        torch.set_num_threads(threads)


def train(name: str, coefficients: Mapping[str, float], steps: int | None = None) -> Outcome:
    """One run of example ``name``."""
    example = EXAMPLES[name]
    return task.train(example.config(coefficients), example.answers, coefficients, steps or example.steps)


def chosen(name: str, outcomes: Sequence[Outcome]) -> Outcome:
    """The outcome of the run with the paper's coefficients."""
    return next(found for found in outcomes if found.coefficients == EXAMPLES[name].chosen)


def label(coefficients: Mapping[str, float]) -> str:
    """Coefficients as Table 7 heads its columns: ``0.01 L_a + 0.001 L_z``."""
    return " + ".join(f"{value:g} {name}" for name, value in coefficients.items() if value) or "no auxiliary loss"


def statement(outcomes: Sequence[Outcome]) -> list[str]:
    """What each loss did, read off pairs of runs that differ in its coefficient alone."""
    lines = []
    for found in outcomes:
        for name, value in found.coefficients.items():
            without = {**found.coefficients, name: 0.0}
            other = next((one for one in outcomes if one.coefficients == without), None)
            if value and other:
                beside = f" (beside {label(without)})" if any(without.values()) else ""
                lines.append(_effect(name, value, beside, other, found))
    return lines


def _effect(name: str, value: float, beside: str, other: Outcome, found: Outcome) -> str:
    own = _moves(name, other.auxiliary[name], found.auxiliary[name])
    if name not in BALANCE:
        return f"With {value:g} {name}{beside} {own}."
    largest, smallest = (
        _moves(f"the {word} share", *(float(100 * of(one.layer.shares)) for one in (other, found)), "{:.1f} %")
        for word, of in (("largest", max), ("smallest", min))
    )
    return (
        f"With {value:g} {name}{beside} {largest}, {smallest}, and {_moves('the task loss', other.loss, found.loss)}."
    )


def _moves(what: str, before: float, after: float, form: str = "{:.3f}") -> str:
    """``what falls from … to …``, in the figures that are shown."""
    first, second = form.format(before), form.format(after)
    if first == second:
        return f"{what} stays at {first}"
    return f"{what} {'falls' if after < before else 'rises'} from {first} to {second}"


def save(name: str, outcome: Outcome, directory: str | Path) -> str:
    """Write checkpoint.pt, tokens.txt and log.jsonl; the arguments of bench.routing that read them again.

    Raises UsageError where the directory cannot be written.
    """
    path, example = made(directory), EXAMPLES[name]
    log = [json.dumps({"step": step, "tokens_per_expert": counts}) for step, counts in outcome.log]
    state = io.BytesIO()
    torch.save(outcome.state, state)
    write(path / "checkpoint.pt", state.getvalue())
    write(path / "tokens.txt", "".join(" ".join(map(str, row)) + "\n" for row in task.held_out().tolist()))
    write(path / "log.jsonl", "".join(f"{line}\n" for line in log))
    changed = " ".join(f"{field}={str(value).lower()}" for field, value in example.fields.items())
    files = f"--checkpoint {path / 'checkpoint.pt'} --tokens {path / 'tokens.txt'} --log {path / 'log.jsonl'}"
    return f"--preset {example.preset} --set {changed} {files}"
