"""``python -m tests.count_models``: count the models of transformers, diffusers, timm and torchvision.

The libraries are installed into an environment of their own, build/models/. Each model is built at its library's
default sizes, without weights, and counted in a process of its own with limits of time and memory, beside torch's
FlopCounterMode. The rows are written to reports/generated/models.csv as they are made. A row that is stored with the
installed versions is not made again, but for one without a count that other code of headcount made.
Exit codes: 0 success; 2 wrong usage; 3 the environment cannot be made.
"""

import argparse
import inspect
import json
import multiprocessing
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest.mock import patch

from headcount.bench.accounts import Assumptions
from headcount.bench.cli import Parser, run
from headcount.bench.counters.base import Cause
from headcount.bench.counting.result import Count
from headcount.bench.errors import EnvironmentMissing, format_error
from headcount.bench.result_cache import digest
from headcount.bench.targets.target import Target
from headcount.bench.targets.user_code import UserCodeError
from headcount.reports.model_costs import (
    COUNTED,
    MEMORY_BYTES,
    NOT_BUILT,
    NOT_RUN,
    PREVIOUS,
    REFUSED,
    TABLE,
    TIME_S,
    ModelCost,
    read,
    shares,
    write,
)

PROG = "python -m tests.count_models"
ROOT = Path(__file__).parents[1]
STAGE = ROOT / "build" / "models"
PACKAGES = ("transformers", "diffusers", "timm", "torchvision", "scipy")
"""Packages that headcount does not require; models of segmentation in transformers need scipy."""
SOURCES = ("bench/targets", "bench/counting", "bench/contractions", "bench/trace", "tests/count_models.py")
"""Code on which rows depend."""
WAIT = 10
"""Seconds that a process may last for each second of processor time that it has."""
CHILD = "HEADCOUNT_MODELS"
"""Variable of the process that runs in the environment."""
TOKENS = 64
"""Length of a text."""
ASKED = {"seq_len": TOKENS, "image_size": 512, "images": 1, "audio": 30}
"""Values of options that a message names."""
SIDE, FRAMES = 512, 16
"""An image before the preparation that goes with a model of torchvision, and the length of a film."""
DETECTOR_SIDE = 800
DOES_NOT_RUN = re.compile("itself does not run| has no forward$")
"""Words of a message about a model that its library does not run."""
DRAWN = re.compile(r"are drawn: [\d,]+ MACs with others$")
DRAWN_VALUES = "it computes what drawn values choose"
"""Note of a count that depends on drawn values, and why the other counter's is not set beside it."""
LONGEST = 200
"""The most characters of a reason."""
HEADS = (
    "AutoModelForImageTextToText", "AutoModelForSpeechSeq2Seq", "AutoModelForSeq2SeqLM", "AutoModelForMaskedLM",
    "AutoModelForCausalLM", "AutoModelForZeroShotImageClassification", "AutoModelForImageClassification",
    "AutoModelForZeroShotObjectDetection", "AutoModelForObjectDetection",
    "AutoModelForUniversalSegmentation", "AutoModelForSemanticSegmentation", "AutoModelForDepthEstimation",
    "AutoModelForCTC", "AutoModelForTimeSeriesPrediction", "AutoModel",
)  # fmt: skip
"""Auto classes of transformers: the first that has a model of a type is the one that is counted."""


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    out = Parser(prog=PROG, add_help=True, description=__doc__)
    out.add_argument("--recount", action="store_true", help="count what is stored again too")
    out.add_argument("--only", metavar="NAME", nargs="+", help="count only these models or libraries")
    return out


def main(argv: Sequence[str] | None = None) -> int:
    """Make the environment and count there; in it, count what is not stored."""
    args = parser().parse_args(argv)
    if CHILD in os.environ:
        return run(PROG, lambda: _count_all(args))
    return run(PROG, lambda: _run_in_environment(sys.argv[1:] if argv is None else argv))


def _run_in_environment(argv: Sequence[str]) -> int:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", CHILD: "1"}
    # under a name of its own the program is not run again in each process
    program = "import sys; from tests import count_models; sys.exit(count_models.main(sys.argv[1:]))"
    return subprocess.run([install(), "-c", program, *argv], env=env, cwd=ROOT).returncode


def install() -> Path:
    """Make or update the environment and return its Python. Raises EnvironmentMissing."""
    python = STAGE / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    constraints = ["-c", ROOT / "constraints.txt", "-c", ROOT / "tests" / "constraints.txt"]
    pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *constraints, "-e", ROOT, *PACKAGES]
    for command in ([sys.executable, "-m", "venv", STAGE], pip):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise EnvironmentMissing(f"{STAGE} cannot be made: {done.stderr.strip().splitlines()[-1]}")
    return python


def _count_all(args: argparse.Namespace) -> int:
    source = digest(SOURCES)[:12]
    rows = {row.key: row for row in read(TABLE)}
    names = {library: f"torch {_version('torch')}, {library} {_version(library)}" for library in LIBRARIES}
    current = {key: row for key, row in rows.items() if row.versions == names[row.library]}
    if len(current) < len(rows):
        write(PREVIOUS, rows.values())
        rows = current
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload(["tests.count_models", "tests.preload_models"])
    models = _in_process(forks, list_models, ())
    if isinstance(models, str):
        raise EnvironmentMissing(f"the models cannot be listed: {models}")
    for key in _ordered(models):
        library, model = key
        if args.only and not {library, model} & {*args.only}:
            continue
        if not (args.recount or is_missing(rows.get(key), source)):
            continue
        row = _in_process(forks, count_model, key)
        row = ModelCost(*key, state=REFUSED, reason=row) if isinstance(row, str) else row
        rows[key] = replace(row, versions=names[library], source=source)
        # a later run goes on from here
        write(TABLE, rows.values())
        print(f"{library} {model}: {row.macs if row.state == COUNTED else row.reason}", file=sys.stderr, flush=True)
    for share in shares([rows[key] for key in sorted(rows)]):
        print(
            f"{share.library}: {share.first} of {share.built} counted by the first command "
            f"({share.first_percent or 0:.1f} %), {share.counted} ({share.percent or 0:.1f} %) by its messages; "
            f"FlopCounterMode gives the same for {share.equal}, another number for {share.other}, none for {share.none}"
        )
    return 0


def is_missing(row: ModelCost | None, source: str) -> bool:
    """Return whether a row of the installed versions is to be made: there is none, or other code made no count."""
    return row is None or row.state == REFUSED and row.source != source


def _version(package: str) -> str:
    return version(package).partition("+")[0]


def _ordered(models: Mapping[str, Sequence[Sequence[str]]]) -> list[tuple[str, str]]:
    """Return library and name of each model: first one of every family, and one of each library in turn."""
    places = []
    for library, families in models.items():
        for turn, family in enumerate(families):
            places += [(place > 0, turn, library, name) for place, name in enumerate(family)]
    return [(library, name) for *_, library, name in sorted(places)]


def _in_process(context: Any, function: Callable[..., Any], args: Sequence[Any]) -> Any:
    """Return what a function returns in a process of its own, or a sentence where the process gives no answer."""
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(sender, function, args))
    process.start()
    sender.close()
    try:
        if not receiver.poll(WAIT * TIME_S):
            return f"no count within {WAIT * TIME_S} s"
        return receiver.recv()
    except EOFError:
        process.join()
        if process.exitcode == -signal.SIGXCPU:
            return f"no count within {TIME_S} s of processor time"
        return f"its process ended with exit code {process.exitcode}"
    finally:
        process.kill()
        process.join()


def _answer(sender: Connection, function: Callable[..., Any], args: Sequence[Any]) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    # of the processor, which other programs may use too
    resource.setrlimit(resource.RLIMIT_CPU, (TIME_S, resource.RLIM_INFINITY))
    warnings.simplefilter("ignore")
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(null, stream)
    sender.send(function(*args))
    os._exit(0)


def list_models() -> dict[str, list[list[str]]]:
    """Return the names of the models of each library by family."""
    return {library: find() for library, (find, *_) in LIBRARIES.items()}


def count_model(library: str, model: str) -> ModelCost:
    """Return the row of a model, without versions."""
    _, make, build = LIBRARIES[library]
    with tempfile.TemporaryDirectory() as folder:
        try:
            target = make(model, Path(folder))
        except Exception as error:
            return ModelCost(library, model, state=NOT_BUILT, reason=_phrase(error))
        row, reason = ModelCost(library, model), ""
        for followed in range(len(ASKED) + 1):
            given = {**target.lengths, **({"formula_set": target.formula_set} if target.formula_set else {})}
            options = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in given.items())
            row = replace(row, options=options, followed=followed)
            try:
                return _counted(row, _count(target))
            except Exception as error:
                reason = _phrase(error).replace(f"{folder}/", "")
                found = re.search(r"; --([\w-]+) (\d+) runs$", str(error))
                named = {found[1].replace("-", "_"): int(found[2])} if found else {}
                advice = re.search(r"--formula-set (\w+) counts", str(error))
            if advice and not target.formula_set:
                target = replace(target, formula_set=advice[1])
                continue
            asked = named or _asked(reason, target)
            if not asked or asked.items() <= target.lengths.items():
                break
            target = replace(target, lengths={**target.lengths, **asked})
        if DOES_NOT_RUN.search(reason):
            return replace(row, state=NOT_RUN, reason=reason)
        state = REFUSED if (failure := _failure(partial(build, model))) is None else NOT_BUILT
        return replace(row, state=state, reason=failure or reason)


def _asked(reason: str, target: Target) -> dict[str, int]:
    """Return the option that a message asks for, with its value; nothing where it asks for none."""
    numbers = re.search(r"^--seq-len (\d+): .* the least is (\d+)$", reason)
    numbers = numbers or re.search(r"^input_ids has (\d+) tokens, and .* has (\d+) positions$", reason)
    if numbers and int(numbers[1]) == target.lengths.get("seq_len"):
        return {"seq_len": int(numbers[2])}
    needed = re.search(r" needs --([\w-]+)(?:,|$)", reason)
    name = needed[1].replace("-", "_") if needed else ""
    return {name: ASKED[name]} if name in ASKED and name not in target.lengths else {}


def _failure(build: Callable[[], Any]) -> str | None:
    """Return why the library does not build a model; None where it does, and where memory does not suffice for it."""
    import torch

    failure = None
    for device in ("meta", "cpu"):
        try:
            with torch.device(device):
                build()
            return None
        except Exception as error:
            # torch refuses some operations on meta by a RuntimeError; any other error does not depend on values
            is_final = not isinstance(error, RuntimeError)
            failure = None if format_error(error) else _phrase(error)
        if is_final and failure:
            return failure
    return failure


def _count(target: Target) -> Count:
    from headcount.bench.counting import devices
    from headcount.bench.counting.module import count

    place = devices.tool_device

    def place_without_values(tool: Any, model: Any, *args: Any) -> Any:
        where, why = place(tool, model, *args)
        return (devices.FAKE if where == "cpu" and devices.META in model.device else where), why

    # a number of the cache is one byte: its bytes are numbers
    given = Assumptions(element_bytes=1)
    # a model without weights dispatches what it does on the CPU, and nothing is computed
    with patch.object(devices, "tool_device", place_without_values):
        return count(target, ("torch",), columns=("kv_token_bytes",), given=given, roots={})


def _counted(row: ModelCost, count: Count) -> ModelCost:
    """Return a row with its count."""
    (tool,) = count.tools or ()
    cached = (count.columns or {}).get("kv_token_bytes")
    causes = tool.explanation.causes if tool.explanation else ()
    # each run draws others, and with them the choice of what is computed
    is_drawn = any(DRAWN.search(note) for note in count.notes or ())
    return replace(
        row,
        class_name=count.name,
        inputs="; ".join(count.inputs),
        parameters=count.params,
        active_parameters=count.active_params,
        macs=count.macs,
        cache_per_token=cached if isinstance(cached, int) else None,
        flop_counter_macs=None if is_drawn else tool.macs,
        differences=DRAWN_VALUES
        if is_drawn
        else "; ".join(f"{cause.macs:+} {_what(cause)}" for cause in causes) or tool.reason or "",
        not_called="; ".join([*(f"{path} {size}" for path, size in count.not_called.items()), *(count.absent or ())]),
    )


def _what(cause: Cause) -> str:
    # "; " divides the causes of a row
    return f"{cause.what}: {cause.name}".replace("; ", ", ")


def _phrase(error: Exception) -> str:
    """Return what an error says on one line of at most LONGEST characters, without its advice."""
    is_message = format_error(error) or isinstance(error, UserCodeError)
    text = re.sub(r"\s+", " ", f"{'' if is_message else f'{type(error).__name__}: '}{error}".strip())
    # signatures with many inputs
    text, _, _ = re.sub(r"\(\w+(, \w+){3,}\)", "(…)", text).partition("; ")
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _write_config(folder: Path, config: Mapping[str, Any]) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return str(path)


def _list_transformers() -> list[list[str]]:
    import transformers

    found = [getattr(transformers, name) for name in dir(transformers) if name.startswith("AutoModel")]
    heads = Counter(kind for one in found if hasattr(one, "_model_mapping") for kind in _class_names(one))
    # models with many heads are old and much used
    return [[kind] for kind, _ in heads.most_common() if kind in transformers.CONFIG_MAPPING and _class_of(kind)]


def _class_names(auto_class: Any) -> Mapping[str, Any]:
    """Return the names of classes by type. The mapping of the classes themselves imports the code of each model."""
    return auto_class._model_mapping._model_mapping


def _class_of(model_type: str) -> str | None:
    """Return the name of the class of a type of transformers; None for a type without a model."""
    import transformers

    for head in HEADS:
        found = _class_names(getattr(transformers, head)).get(model_type)
        name = found[0] if isinstance(found, tuple | list) else found
        # some mappings name classes that are not there
        if name in _names_of_transformers():
            return name
    return None


@cache
def _names_of_transformers() -> set[str]:
    import transformers

    return {*dir(transformers)}


def _make_transformers(model_type: str, folder: Path) -> Target:
    import transformers

    config = transformers.CONFIG_MAPPING[model_type]()
    name = _class_of(model_type)
    config.architectures = [name]
    config.save_pretrained(folder)
    names = inspect.signature(getattr(transformers, name).forward).parameters
    reads_text = any(name.endswith("input_ids") for name in names)
    return Target(str(folder / "config.json"), lengths={"seq_len": TOKENS} if reads_text else {})


def _build_transformers(model_type: str) -> Any:
    import transformers

    return getattr(transformers, _class_of(model_type))._from_config(transformers.CONFIG_MAPPING[model_type]())


def _list_diffusers() -> list[list[str]]:
    import diffusers

    found = []
    for name in dir(diffusers.models):
        # a model whose packages are missing
        with suppress(Exception):
            one = getattr(diffusers, name)
            if inspect.isclass(one) and issubclass(one, diffusers.ModelMixin) and one is not diffusers.ModelMixin:
                found.append([name])
    return found


def _make_diffusers(model: str, folder: Path) -> Target:
    return Target(_write_config(folder, {"_class_name": model}))


def _build_diffusers(model: str) -> Any:
    import diffusers

    return getattr(diffusers, model)()


def _list_timm() -> list[list[str]]:
    import timm

    families = (timm.list_models(module=module) for module in timm.list_modules())
    return [names for names in families if names]


def _make_timm(model: str, folder: Path) -> Target:
    return Target(_write_config(folder, {"architecture": model}))


def _build_timm(model: str) -> Any:
    import timm

    return timm.create_model(model, pretrained=False)


def _list_torchvision() -> list[list[str]]:
    import torchvision

    return [[name] for name in torchvision.models.list_models() if not name.startswith("quantized_")]


def _make_torchvision(model: str, folder: Path) -> Target:
    return Target("tests.count_models:torchvision_call", settings={"model": model})


def _build_torchvision(model: str) -> Any:
    import torchvision

    builder = torchvision.models.get_model_builder(model)
    without = {name: None for name in inspect.signature(builder).parameters if name.startswith("weights")}
    return builder(**without).eval()


def torchvision_call(model: str) -> tuple[Any, tuple]:
    """Return a model of torchvision on meta, and inputs as the preparation of its weights makes them.

    A detector, which reads the values of its boxes, has weights on the CPU.
    """
    import torch
    import torchvision
    from torchvision.extension import _has_ops

    builder = torchvision.models.get_model_builder(model)
    prepare = torchvision.models.get_model_weights(model).DEFAULT.transforms()
    kind = builder.__module__.split(".")[2]
    if kind == "detection":
        if not _has_ops():
            pair = " and ".join(f"{name}=={_version(name)}" for name in ("torch", "torchvision"))
            raise RuntimeError(
                f"torchvision.ops.nms is not compiled for torch {torch.__version__}: the wheels {pair} of PyPI have it"
            )
        return _build_torchvision(model), ([torch.zeros(3, DETECTOR_SIDE, DETECTOR_SIDE)],)
    if kind == "optical_flow":
        image = torch.zeros(1, 3, SIDE, SIDE)
        inputs: tuple = prepare(image, image)
    else:
        inputs = (prepare(torch.zeros(1, *([FRAMES] if kind == "video" else []), 3, SIDE, SIDE)),)
    # some constructors read values
    module = _build_torchvision(model).to("meta")
    if side := getattr(module, "image_size", None):
        # weights may be those of a model of larger images
        inputs = (torch.zeros(1, 3, side, side),)
    return module, torch.utils._pytree.tree_map(lambda x: x.to("meta"), inputs)


LIBRARIES: dict[str, tuple[Callable[[], list[list[str]]], Callable[[str, Path], Target], Callable[[str], Any]]] = {
    "transformers": (_list_transformers, _make_transformers, _build_transformers),
    "diffusers": (_list_diffusers, _make_diffusers, _build_diffusers),
    "timm": (_list_timm, _make_timm, _build_timm),
    "torchvision": (_list_torchvision, _make_torchvision, _build_torchvision),
}
"""For each library what lists its models, makes the target of one, and builds one without headcount."""


if __name__ == "__main__":
    sys.exit(main())
