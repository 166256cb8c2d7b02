"""Examples: the output of commands about the papers' models, at 80 columns."""

from collections.abc import Sequence
from functools import partial

from headcount.reports import counting
from headcount.reports.document import Page, Section
from headcount.reports.facts import Facts

MODULE = """\
from torch import nn, zeros


def make(heads=2, width=6):
    inputs = (zeros(5, 1, heads * width),) * 3
    return nn.MultiheadAttention(heads * width, heads), inputs
"""
"""The content of model.py in the folder where the commands run."""


def example(title: str, *commands: str, code: int = 0) -> Section:
    """Return the section of commands that run one after the other in one folder, the last one with this exit code."""
    return Section(title, [partial(output, commands=commands, code=code)], commands, "Output")


def output(facts: Facts, commands: Sequence[str], code: int) -> str:
    """Return the lines that each command prints, below the command where there are several."""
    several, lines = len(commands) > 1, []
    printed = facts.result(counting.outputs, commands, code, {"model.py": MODULE})
    for command, own in zip(commands, printed, strict=True):
        lines += [f"$ {command}"] * several + own
    return "\n".join(["```console" if several else "```text", *lines, "```"])


CLOSED_FORM = "--counter closed-form"
EXAMPLES = (
    example("The rows of a table", f"headcount table moa-table1 {CLOSED_FORM}"),
    example("Vocabularies that parameters imply", f"headcount table moa-table3 --params {CLOSED_FORM}"),
    example("A table whose models have two forms", f"headcount table moh-dit {CLOSED_FORM}"),
    example("A model, part by part", f"headcount count moa-8K8E128D --seq-len 512 {CLOSED_FORM}"),
    example("A dense model as mixture-of-head attention", "headcount convert llama3-8b s=16 r=8"),
    example("A grid of layers", f"headcount grid 'K=1,2,4 E=8 D=64 T=10,128' {CLOSED_FORM}"),
    example("The same as LaTeX", f"headcount grid 'K=1,2,4 E=8 D=64 T=10' {CLOSED_FORM} --format latex"),
    example("A table as CSV", f"headcount grid 'h=8 d_h=64 T=10,128' {CLOSED_FORM} --format csv"),
    example("Two models side by side", f"headcount compare moa-16K32E256D transformer-big {CLOSED_FORM}"),
    example(
        "Memory and decoding",
        f"headcount count moa-8K8E128D transformer-big {CLOSED_FORM} --brief --context 512 --columns "
        "kv_bytes decode_macs decode_bytes decode_bound --peak-macs 400e12 --bandwidth 4.8e12",
    ),
    example(
        "Training FLOPs and utilisation",
        f"headcount count llama3-8b --seq-len 8192 {CLOSED_FORM} --brief --rules palm --columns "
        "training_flops_per_token mfu --tokens 4194304 --seconds 20 --devices 512 --peak 'H100 SXM bf16'",
    ),
    example("What to choose from", "headcount table --list"),
)


def page(facts: Facts) -> Page:
    """Return the page."""
    about = "Each command and its output on a terminal of 80 columns. `--wide` prints the hidden columns too."
    return Page("examples", "Output of commands on the papers' models", about, EXAMPLES)
