"""``python -m tests.library_counts``: count the models of timm and torchvision whose figures these libraries print.

The models are built by the installed libraries, without weights, and run on the meta device on one image or clip of the
printed size, a model that timm can reparameterise in that form. formulas/published/NAME_counts.csv gets a line for
each; formulas/published/library.py describes it. Lines of the installed versions that are in build/NAME_counts.csv are
kept, so that a stopped run goes on.
Exit codes: 0 success; 2 wrong usage; 3 a library is not installed.
"""

import argparse
import csv
import gc
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

import headcount as hc
from headcount.bench.cli import Parser, run
from headcount.bench.counters import fvcore_jit
from headcount.bench.counters.explain import explain
from headcount.bench.counting.result import Count
from headcount.bench.errors import EnvironmentMissing
from headcount.formulas.published import library, tables
from headcount.formulas.published.library import FORM, LETTERS, OTHERS
from headcount.formulas.published.tables import PublishedTable

PROG = "python -m tests.library_counts"
ROOT = Path(__file__).parents[1]
PARTIAL = ROOT / "build"
REPARAMETERISED = "reparameterised"
NORMS = {"batch_norm": {2: "batch_norm", 5: "norm"}, "layer_norm": {5: "norm"}, "group_norm": {5: "norm"}}
"""The letter by the call that normalises and what fvcore counts of an element. A batch norm that standardises weights
has 5."""
TORCHVISION_COUNTS = ("mm", "addmm", "bmm", "convolution")
"""Operations that torchvision's own counter has, test/common_extended_utils.py."""


def letters(count: Count) -> dict[str, int | str]:
    """Return the cells of a count, OTHERS of fvcore: all letters, multiplied as fvcore does, are its whole count."""
    assert count.run
    trace = count.run.trace
    found = Counter({"params": count.params, "products": count.dispatched})
    others: Counter[str] = Counter()
    for call in fvcore_jit.call_counts(trace):
        name = call.rule.rpartition(":")[2]
        for part, amount in call.parts.items():
            elements = trace.events[call.event].argument(0, "input").numel if part in ("norm", "pooling") else 0
            if part == "pooling":
                found["pooling"] += elements
            elif part == "norm" and (letter := NORMS.get(name, {}).get(amount // elements)):
                found[letter] += elements
            elif part == "norm":
                others[f"{name}, {amount // elements} an element"] += amount
    for cause in explain(fvcore_jit, trace, count.run.by_event).causes:
        if cause.name.partition(" by ")[0] not in ("norm", "pooling"):
            others[cause.name] += cause.macs
    return {letter: found[letter] for letter in LETTERS} | {OTHERS: _cell(others)}


def dispatched_letters(count: Count) -> dict[str, int | str]:
    """Return the cells of a count, OTHERS of torchvision's counter: products of operations that it does not list."""
    assert count.run
    others: Counter[str] = Counter()
    for index, products in count.run.by_event.items():
        operation = count.run.trace.events[index].name
        if operation not in TORCHVISION_COUNTS:
            others[f"{operation}, not counted"] -= sum(product.macs for _, product in products)
    return {**letters(count), OTHERS: _cell(others)}


def _cell(terms: Mapping[str, int]) -> str:
    return "; ".join(f"{what}: {amount}" for what, amount in sorted(terms.items()) if amount)


def import_timm() -> Any:
    """Return timm. Raises EnvironmentMissing."""
    from tests.torchvision_import import import_models

    try:
        import_models()
        import timm
    except ModuleNotFoundError as error:
        raise EnvironmentMissing(f"{error}: pip install timm torchvision") from None
    return timm


def timm_count(line: Mapping[str, str]) -> tuple[str, Count]:
    """Return the form and the count of a timm model: reparameterised where that has other parameters."""
    timm, size = import_timm(), int(line["image_size"])
    from timm.layers import set_fused_attn
    from timm.utils import reparameterize_model

    # fvcore has no handle for fused attention; the products are the same
    set_fused_attn(False)
    forms = []

    def make(**sizes: int) -> nn.Module:
        built = timm.create_model(line["model"], **sizes).eval()
        other = reparameterize_model(built)
        same = _elements(built) == _elements(other)
        forms.append("" if same else REPARAMETERISED)
        return built if same else other

    count = _first_count([make, partial(make, img_size=size)], [(1, 3, size, size)])
    return forms[-1], count


def _elements(model: nn.Module) -> int:
    return sum(one.numel() for one in model.parameters())


def torchvision_count(line: Mapping[str, str]) -> tuple[str, Count]:
    """Return the count of the model of torchvision's weights on their input, which has one form.

    It is the model that the builder makes for these weights, which it neither fetches nor loads; of quantized weights
    the model before it is quantized.
    """
    from tests.torchvision_import import import_models

    models = import_models()
    weights = models.get_weight(line["weights"])
    weights = weights.meta.get("unquantized", weights)
    name = next(name for name in models.list_models() if weights in models.get_model_weights(name))
    shapes = [[int(size) for size in text.split("x")] for text in line["input"].split()]
    without = {"get_state_dict": models.WeightsEnum, "load_state_dict": nn.Module}
    with ExitStack() as stack:
        for method, kind in without.items():
            stack.enter_context(patch.object(kind, method, lambda *args, **kwargs: {}))
        return "", _first_count([partial(models.get_model, name, weights=weights)], shapes)


def _first_count(makes: Sequence[Callable[[], nn.Module]], shapes: Sequence[Sequence[int]]) -> Count:
    """Return the count of the first of the models that runs on inputs of ``shapes``: on meta, else on the CPU.

    An input without a batch is that of a model that takes a list of images. Raises the first error where none runs.
    """
    errors: list[Exception] = []
    for built_on, run_on in (("meta", "meta"), ("cpu", "meta"), ("cpu", "cpu")):
        for make in makes:
            try:
                with torch.device(built_on):
                    model = make().eval().to(run_on)
                tensors = [torch.zeros(tuple(shape), device=run_on) for shape in shapes]
                inputs = [tensors] if len(shapes[0]) == 3 else tensors
                with torch.device(run_on):
                    return hc.count(model, *inputs)
            except Exception as error:
                errors.append(error)
    raise errors[0]


LIBRARIES = {"timm": (timm_count, letters), "torchvision": (torchvision_count, dispatched_letters)}
"""By table: what counts the model of a printed line, and the cells of a count."""


def columns(table: PublishedTable, keys: Sequence[str]) -> list[str]:
    """Return the columns of the counts of ``table``: those that name a model, and the letters of its rules."""
    letters = [letter for letter in LETTERS if any(letter in one.letters for one in table.columns)]
    return [*keys, FORM, *letters, OTHERS]


def count_line(table: PublishedTable, line: Mapping[str, str]) -> dict[str, Any]:
    """Return the line of counts of a printed line."""
    keys = library.keys_of([line], [one.name for one in table.columns])
    count, cells_of = LIBRARIES[table.name]
    form, found = count(line)
    cells = {**line, FORM: form, **cells_of(found)}
    return {column: cells[column] for column in columns(table, keys)}


def versions() -> str:
    """Return the versions of the libraries and of what counts."""
    return ", ".join(f"{name} {version(name)}" for name in ("timm", "torchvision", "torch", "headcount"))


def write(table: PublishedTable) -> None:
    """Count each line of the printed figures of ``table`` that its partial file lacks, and store the counts."""
    partial, first = PARTIAL / f"{table.name}_counts.csv", f"# {versions()}"
    kept: list[dict[str, str]] = []
    if partial.exists() and partial.read_text("utf-8").startswith(f"{first}\n"):
        _, kept = library.read_counts(table.name, PARTIAL)
    lines = library.read_printed(table.file, tables.FOLDER)
    keys = library.keys_of(lines, [one.name for one in table.columns])
    done = {library.name_of(line, keys) for line in kept}
    PARTIAL.mkdir(exist_ok=True)
    with partial.open("w", encoding="utf-8", newline="") as file:
        file.write(f"{first}\n")
        out = csv.DictWriter(file, columns(table, keys), lineterminator="\n")
        out.writeheader()
        out.writerows(kept)
        for number, line in enumerate(lines, 1):
            if library.name_of(line, keys) not in done:
                out.writerow(count_line(table, line))
                file.flush()
                gc.collect()
                print(f"{table.name}: {number} of {len(lines)}", file=sys.stderr, end="\r")
    (ROOT / "formulas" / "published" / partial.name).write_bytes(partial.read_bytes())


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    out = Parser(prog=PROG, add_help=True, description=__doc__)
    out.add_argument("table", nargs="*", choices=tuple(LIBRARIES), default=(), help="which to count (default: both)")
    return out


def main(argv: Sequence[str] | None = None) -> int:
    """Count the models of the tables that are named."""
    return run(PROG, lambda: _main(parser().parse_args(argv).table or LIBRARIES))


def _main(names: Iterable[str]) -> int:
    import_timm()
    for name in names:
        write(tables.load(name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
