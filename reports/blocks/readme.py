"""Blocks of README.md."""

from collections.abc import Mapping
from typing import Any

from headcount.reports import counting, document
from headcount.reports.blocks import findings
from headcount.reports.facts import Facts

COUNT = "headcount count config.json --seq-len 1024"
CONFIG = """\
{"model_type": "llama", "architectures": ["LlamaForCausalLM"],
 "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336,
 "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8}
"""
"""Sizes in the config.json of LLaMA-3-8B."""
MODEL = """\
from torch import nn, zeros


def make():
    return nn.TransformerEncoderLayer(512, 8), (zeros(1024, 1, 512),)
"""
"""The content of model.py in the folder where the commands of MORE run."""
MORE = {
    "headcount audit model.py:make": "what other counters report, and why",
    "headcount lock model.py:make -o macs.lock": "--check macs.lock exits 1 where an integer changes",
    "headcount table moa-table1 --counter closed-form": "printed numbers against the count",
    "headcount derive --preset moa-8K8E128D --vars T,K,E,D,d_model": "closed form, found by running the layer",
    'headcount fit llama3-8b --on "H100 SXM" --context 8192 --batch-size 32': "exit 1 where it does not",
}
"""Commands, and what each is for."""
SHOWN, LEFT_OUT = 6, "…"
RECORD = "readings.json"
PAGE = "[all times](reports/generated/time.md)"


def tools(facts: Facts) -> str:
    """Return the MACs of three models as each tool reports them, with the error in percent, and the versions."""
    found = facts.stored_json(RECORD)
    exact = found[0]["macs"]
    rows = []
    for one in found:
        macs = {name: _reported(one, name, size) for name, size in exact.items()}
        rows.append({"MACs": one["tool"], **macs, "what the tool leaves out": one["misses"]})
    versions = ", ".join(dict.fromkeys(f"{one['tool'].partition(',')[0]} {one['version']}" for one in found[2:]))
    environment = f"torch {found[0]['torch']}, transformers {found[0]['transformers']}, {versions}"
    return f"{document.records(rows, dict.fromkeys(exact, {'align': 'right'}))}\n\n{environment}."


def _reported(row: Mapping[str, Any], model: str, exact: int) -> str:
    """Return a tool's MACs in G with the error in percent where there is one, or the error of a call that fails."""
    if model in row["errors"]:
        return row["errors"][model]
    macs = row["macs"][model]
    return f"{macs / 1e9:,.2f} G" + (f" ({100 * (macs - exact) / exact:+.1f} %)" if macs != exact else "")


def count(facts: Facts) -> str:
    """Return a configuration file, the command that counts it, and the first lines and the last one of its output."""
    (printed,) = facts.result(counting.outputs, [COUNT], 0, {"config.json": CONFIG})
    lines = [line for line in printed if line]
    shown = [f"$ {COUNT}", *lines[:SHOWN], LEFT_OUT, *lines[-1:]]
    return "\n".join(["```json", CONFIG.rstrip(), "```", "```console", *shown, "```"])


def module(facts: Facts) -> str:
    """Return the code of model.py."""
    return f"```python\n{MODEL}```"


def more(facts: Facts) -> str:
    """Return the commands of MORE, each with the last paragraph of its output."""
    lines = []
    printed = facts.result(counting.outputs, list(MORE), 0, {"model.py": MODEL})
    for (command, purpose), output in zip(MORE.items(), printed, strict=True):
        # the last paragraph, which a terminal of 80 columns wraps
        sentence = " ".join("\n".join(output).rstrip().rpartition("\n\n")[2].split())
        lines += [f"$ {command}  # {purpose}", sentence]
    return "\n".join(["```console", *lines, "```"])


def verdicts(facts: Facts) -> str:
    """Return how many rows of the published tables have each verdict, and how long measured layers take."""
    times = [f"{one}: {PAGE}." for one in findings.measured_ratios(facts)]
    return " ".join([f"{findings.verdicts(facts)}.", *times])
