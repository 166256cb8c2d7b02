"""Build a model and its inputs from a configuration file, without weights and, but for ``hf:NAME``, without network.

``model_type`` means transformers, ``_class_name`` diffusers and ``architecture`` timm.
"""

import contextlib
import inspect
import logging
import os
import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from headcount.bench.errors import EnvironmentMissing, excerpt
from headcount.bench.targets.config_data import (
    OWN_CODE,
    check_constructor_arguments,
    check_loader_arguments,
    offline,
    read_json,
    restrict,
)
from headcount.bench.targets.input_search import NO_VALUES, trial_error
from headcount.bench.targets.latents import LatentInputs
from headcount.bench.targets.model_inputs import Inputs, reads_text
from headcount.bench.targets.user_code import Built, UserCodeError
from headcount.models.configs.suggest import did_you_mean

AUTO_CLASSES = (
    "AutoModelForCausalLM", "AutoModelForSeq2SeqLM", "AutoModelForImageTextToText", "AutoModelForMaskedLM",
    "AutoModelForImageClassification", "AutoModel",
)  # fmt: skip
"""Auto classes of transformers, tried in order for a configuration file that names no class."""
DEFAULT_DTYPE = "bfloat16"
"""Type of the weights where neither the user nor the configuration gives one: some models run in no wider type."""
TEXTS = (8, 16, 32)
"""Lengths of texts on which a model that does not run is tried."""
TIMEOUT_S = float(os.environ.get("HF_HUB_DOWNLOAD_TIMEOUT") or 1)
"""Timeout of the hub in seconds. The name server of a machine without network may take far longer."""


def build_from_config(
    source: str,
    fields: Mapping[str, Any],
    lengths: Mapping[str, int],
    inputs: Mapping[str, Tensor],
    dtype: str | None = None,
    device: str = "meta",
) -> Built:
    """Build the model of a configuration, its weights on ``device``, and the inputs that its forward needs.

    Args:
        source: path of a configuration file, or ``hf:NAME[@REVISION]``.
        fields: values by field; ``text_config.hidden_size`` names a field of a part.
        lengths: any of target.LENGTHS.
        inputs: tensors by forward's parameter name or position, instead of those made here.
        dtype: type of the weights (default: the configuration's, else DEFAULT_DTYPE).

    Raises:
        UserCodeError: one line: what is wrong with the configuration, a field, a length or an input.
        EnvironmentMissing: the library, the hub or code of the model's own is needed and not there.
    """
    path = find_file(source) if source.startswith("hf:") else Path(source)
    config = read_json(path)
    library = next((library for key, library in _LIBRARIES.items() if config.get(key)), None)
    if library is None:
        keys = ", ".join(f"{key} ({library})" for key, (library, _) in _LIBRARIES.items())
        raise UserCodeError(f"{path.name} names no model; it needs one of {keys}")
    name, build = library
    require_library(name)
    with _one_line(f"importing {name}"):
        package = import_module(name)
    logging.getLogger(name).setLevel(logging.ERROR)
    notes: list[str] = []
    with torch.device(device), _IntegersWithValues(), offline(), _one_line("the configuration cannot be built"):
        config, fields = restrict(config, notes), restrict(fields, notes)
        model, settings = build(package, config, fields, dtype, notes)
    model.eval()
    weights = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    kind = LatentInputs if name == "diffusers" else Inputs

    def make(lengths: Mapping[str, int]) -> Inputs:
        maker = kind(model, settings, lengths, inputs, weights, lambda: _preprocessor(path, source))
        with _one_line("inputs"):
            getattr(maker, name)()
        return maker

    maker = make(lengths)
    made = f"{type(model).__name__} of {name} {package.__version__}, {str(weights).removeprefix('torch.')}"
    versions = {name: package.__version__}
    if source.startswith("hf:"):
        versions[source] = path.parent.name
        notes.insert(0, f"{source} is revision {path.parent.name}")
    notes = [made, *dict.fromkeys(notes), *maker.notes]
    is_chosen = dtype is None and not _names_dtype(config)
    window, absent = _own_window(settings), tuple(maker.absent)
    has_cache = getattr(settings, "use_cache", False) is True
    made_inputs = maker.finish()
    trials = _Trials(maker, make)
    failure, others = partial(_failure, name, trials), trials.others
    return Built(model, (), made_inputs, tuple(notes), versions, window, absent, is_chosen, has_cache, failure, others)


class _Trials:
    """Trial runs of a model that does not run: with other lengths, layouts and optional inputs."""

    def __init__(self, maker: Inputs, make: Callable[[Mapping[str, int]], Inputs]) -> None:
        self.maker, self._make = maker, make
        self._has_others = False
        # that of the inputs themselves first
        self._errors: list[str | None] = []

    def others(self) -> Iterator[tuple[Mapping[str, int | None], tuple[str, ...]]]:
        """Iterate over lengths that the user has not set, and texts of --input, with which the model may run.

        A length of None is dropped.
        """
        maker = self.maker
        if "--images 1" in maker.absent:
            yield {"images": 1}, ()
        for name in ("image_size", "audio"):
            if name not in maker.lengths and (length := self.length_that_runs(name)):
                yield {name: length}, ()
        if type(maker) is Inputs and (found := maker.search_all()):
            self._has_others = True
            changed = {name: _text(one) for name, one in found.items() if _text(one) != _text(maker.tensors.get(name))}
            # a given image has no other size
            lengths = {"image_size": None} if "pixel_values" in changed else {}
            yield lengths, tuple(f"{name}={text}" for name, text in changed.items())

    def length_that_runs(self, name: str, to_its_end: bool = False) -> int | None:
        """Return a length with which the model runs, or comes to where it reads values; None where no other does."""
        if name not in self.maker.used:
            return None
        self._errors = self._errors or [trial_error(self.maker.model, self.maker.tensors)]
        for length in self.maker.other_lengths(name):
            with contextlib.suppress(UserCodeError):
                error = trial_error(self.maker.model, self._make({**self.maker.lengths, name: length}).finish())
                if error is None or not to_its_end and error == NO_VALUES != self._errors[0]:
                    return length
                self._errors.append(error)
        return None

    @property
    def reads_values(self) -> bool:
        """Whether a run without values stopped where it reads some."""
        return self._errors[:1] == [NO_VALUES]

    def failure(self, error: BaseException) -> str | None:
        """Return the error that several lengths raise alike, of the part that reads a text alone, or of the only input.

        None where it may be that of the inputs, and where they are several.
        """
        reason = f"{type(error).__name__}: {error}"
        named = self.maker.model.named_modules()
        path, part = next(
            ((path, part) for path, part in named if "input_ids" in self.maker.tensors and reads_text(part)), ("", None)
        )
        if part is not None:
            self._errors = [trial_error(part, {"input_ids": torch.ones(1, size, dtype=torch.long)}) for size in TEXTS]
            reason = str(self._errors[0]).rpartition(" [")[0]
        elif len(self.maker.tensors) > 1 or self.maker.has_given or self._has_others:
            return None
        # errors name the sizes of a tensor in brackets, and these differ
        kinds = [re.sub(r"\[.*?\]", "", error or NO_VALUES) for error in self._errors]
        number = kinds.count(kinds[0]) if kinds and kinds[0] != NO_VALUES else 0
        where = f"{path or 'it'} on texts" if part is not None else "this configuration, with inputs"
        return f"{where} of {number} lengths: {reason.splitlines()[0].rstrip('.')}" if number > 2 else None


def _text(tensor: Tensor | None) -> str:
    return "" if tensor is None else f"{','.join(map(str, tensor.shape))}:{str(tensor.dtype).removeprefix('torch.')}"


def _failure(library: str, trials: _Trials, error: BaseException) -> str | None:
    """Return why a model does not run, which raised ``error``: its library itself does not run it, or a length.

    None where that is not known.
    """
    text = str(error).partition("; ")[0]
    while error.__cause__:
        error = error.__cause__
    # what trial runs say
    reason = trials.maker.refusal or _failure_of_code(library, error)
    if library == "transformers":
        reason = reason or trials.failure(error)
    if reason:
        return f"{library} itself does not run {reason}; --set FIELD=VALUE may help"
    if "allocate memory" in str(error) and (side := trials.maker.image_side):
        return f"{text}; --image-size {side // 4} needs less memory"
    for name in trials.maker.lengths:
        if length := trials.length_that_runs(name, to_its_end=True):
            return f"{text}; --{name.replace('_', '-')} {length} runs"
    return f"{text}; --device cpu gives its weights values" if trials.reads_values else None


def _failure_of_code(library: str, error: BaseException) -> str | None:
    """Return the error of the library's own code: a missing branch, a module that is None, or a missing attribute."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    is_raised = (last.line or "").startswith("raise ") and f"{os.sep}torch{os.sep}" not in last.filename
    says_so = is_raised and isinstance(error, NotImplementedError)
    calls_nothing = isinstance(error, TypeError) and str(error) == "'NoneType' object is not callable"
    lacks_field = isinstance(error, AttributeError) and type(error.obj).__module__.startswith(f"{library}.")
    lacks_any = says_so or calls_nothing or lacks_field
    return f"this configuration: {type(error).__name__}: {error}".rstrip(".") if lacks_any else None


class _IntegersWithValues(TorchFunctionMode):
    """Make an integer on the CPU, whatever the device: a buffer that holds one, as a stride, is read in forward."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function is torch.tensor and args and isinstance(args[0], int) and "device" not in kwargs:
            kwargs = {**kwargs, "device": "cpu"}
        return function(*args, **kwargs)


def _names_dtype(config: Mapping[str, Any]) -> bool:
    """Return whether a configuration or one of its parts names the type of its weights."""
    parts = (part for part in config.values() if isinstance(part, Mapping))
    return bool(config.get("dtype") or config.get("torch_dtype")) or any(map(_names_dtype, parts))


def require_library(name: str) -> None:
    """Raise EnvironmentMissing, with the installation command, where the library ``name`` is not installed."""
    if find_spec(name) is None:
        raise EnvironmentMissing(f"{name} is missing, which this configuration needs: pip install {name}")


def find_file(spec: str, file: str = "config.json") -> Path:
    """Return the path of a file of ``hf:NAME[@REVISION]``; its folder is called like the commit.

    Raises:
        EnvironmentMissing: the file is not in the cache and the hub does not answer.
        UserCodeError: the hub has no such repository, revision or file.
    """
    require_library("huggingface_hub")
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url, try_to_load_from_cache
    from huggingface_hub.errors import HfHubHTTPError
    from huggingface_hub.utils import disable_progress_bars

    name, _, revision = spec.removeprefix("hf:").partition("@")
    revision = revision or "main"
    try:
        cached = try_to_load_from_cache(name, file, revision=revision)
    except ValueError as error:
        raise UserCodeError(f"it is no hf:NAME[@REVISION]: {str(error).splitlines()[0]}") from error
    if isinstance(cached, str):
        return Path(cached)
    # hf_hub_download alone repeats its attempt for 20 s; in a thread, since a name server may take longer too
    url = hf_hub_url(name, file, revision=revision)
    attempt = ThreadPoolExecutor(1).submit(get_hf_file_metadata, url, timeout=TIMEOUT_S)
    try:
        error = attempt.exception(TIMEOUT_S)
    except TimeoutError:
        error = TimeoutError(f"no answer within {TIMEOUT_S:g} s")
    if error is None:
        disable_progress_bars()
        return Path(hf_hub_download(name, file, revision=revision))
    reason = f"{file} of {name} at revision {revision}: {str(error).strip().splitlines()[0]}"
    if isinstance(error, HfHubHTTPError):
        raise UserCodeError(f"the hub has no {reason}") from error
    raise EnvironmentMissing(f"not in the local cache, and the hub cannot be reached: {reason}") from error


def _preprocessor(config: Path, source: str) -> dict[str, Any]:
    """Return the content of the ``preprocessor_config.json`` beside a configuration, empty where there is none."""
    path = config.with_name("preprocessor_config.json")
    if source.startswith("hf:"):
        with contextlib.suppress(EnvironmentMissing, UserCodeError):
            path = find_file(f"{source.partition('@')[0]}@{config.parent.name}", path.name)
    return read_json(path) if path.is_file() else {}


@contextlib.contextmanager
def _one_line(reason: str) -> Iterator[None]:
    """Raise an error of a library as one line: as EnvironmentMissing for an import, else as UserCodeError."""
    try:
        yield
    except (UserCodeError, EnvironmentMissing):
        raise
    except Exception as error:
        text = " ".join(line.strip() for line in str(error).splitlines() if line.strip())
        # a package that the model needs
        kind = EnvironmentMissing if isinstance(error, ImportError) else UserCodeError
        raise kind(f"{reason}: {type(error).__name__}: {text[:300]}") from error


_WINDOWS = ("sliding_window", "attention_chunk_size", "attention_window_size", "window_size", "local_attention")
"""Fields of the keys that a query sees, by family of models."""


def _own_window(settings: Any) -> int | None:
    """Return the window that a configuration states; None where it states none or no layer has it."""
    if not hasattr(settings, "get_text_config"):
        return None
    text = settings.get_text_config()
    kinds = getattr(text, "layer_types", None)
    if kinds and not any("sliding" in kind or "chunked" in kind for kind in kinds):
        return None
    for name in _WINDOWS:
        # the library refuses a field that differs by layer
        with contextlib.suppress(Exception):
            if type(value := getattr(text, name, None)) is int:
                return value
    return None


def _check_fields(fields: Mapping[str, Any], known: set[str]) -> None:
    for field in fields:
        if field not in known:
            raise UserCodeError(f"--set {field}: unknown field{did_you_mean(field, sorted(known))}")


_Model = tuple[nn.Module, Any]
"""A model and its configuration."""


def _from_transformers(
    package: Any, data: dict[str, Any], fields: Mapping[str, Any], dtype: str | None, notes: list[str]
) -> _Model:
    """Build a model of transformers; ``notes`` receives sentences on what was done with its configuration."""
    kind, has_own_code = data["model_type"], OWN_CODE in notes
    own_code = "its model needs code of its own (auto_map), which is not run (trust_remote_code=False)"
    if kind not in package.CONFIG_MAPPING:
        near = did_you_mean(str(kind), package.CONFIG_MAPPING)
        unknown = f"transformers {package.__version__} has no model_type {excerpt(kind)}{near}"
        raise EnvironmentMissing(own_code if has_own_code else unknown)
    if quantization := data.pop("quantization_config", None):
        method = quantization.get("quant_method", "") if isinstance(quantization, Mapping) else ""
        notes.append(f"quantization_config ({method}) is not applied: weights are counted unquantized")
    make = package.CONFIG_MAPPING[kind].from_dict
    # the library writes infinity as {"__float__": "Infinity"}, and reads it in its reader of files alone
    data = package.PreTrainedConfig._decode_special_floats(data)
    config = make(data)
    _check_fields(fields, _field_names(config))
    for field, value in fields.items():
        *parts, name = field.split(".")
        part, values = config, data
        for one in parts:
            part, values = getattr(part, one), values.setdefault(one, {})
        name = part.attribute_map.get(name, name)
        values[name] = value
        if name == "num_hidden_layers" and "layer_types" in values:
            values["layer_types"] = values["layer_types"][:value]
    config = make(data) if fields else config
    wanted = data.get("architectures") or []
    names = [name for name in wanted if hasattr(package, name)]
    if wanted and not names:
        if has_own_code:
            raise EnvironmentMissing(own_code)
        listed = excerpt(wanted).strip("[]").replace("'", "")
        notes.append(f"transformers {package.__version__} has no {listed}, which architectures names")
    cls = getattr(package, names[0]) if names else _auto_class(package, config)
    if not names:
        notes.append(f"{cls.__name__} was chosen: architectures names no class")
    own = config.dtype or config.get_text_config().dtype or DEFAULT_DTYPE
    model = cls._from_config(config, dtype=getattr(torch, str(dtype or own).removeprefix("torch.")))
    return model, config


def _field_names(config: Any, prefix: str = "") -> set[str]:
    """Return the names of a configuration's fields, those of its parts with the part's name before a dot."""
    names = {prefix + name for name in (*config.to_dict(), *config.attribute_map)}
    for part in config.sub_configs:
        if getattr(config, part, None) is not None:
            names |= _field_names(getattr(config, part), f"{prefix}{part}.")
    return names


def _auto_class(package: Any, config: Any) -> type:
    for name in AUTO_CLASSES:
        mapping = getattr(package, name)._model_mapping
        if type(config) in mapping:
            found = mapping[type(config)]
            return found[0] if isinstance(found, tuple) else found
    raise UserCodeError(f"transformers has no model for model_type {config.model_type!r}")


def _from_diffusers(
    package: Any, data: dict[str, Any], fields: Mapping[str, Any], dtype: str | None, notes: list[str]
) -> _Model:
    cls = getattr(package, data["_class_name"], None)
    if not (inspect.isclass(cls) and issubclass(cls, nn.Module)):
        raise EnvironmentMissing(f"diffusers {package.__version__} has no model {excerpt(data['_class_name'])}")
    _check_fields(fields, set(inspect.signature(cls.__init__).parameters) - {"self"})
    model = cls.from_config({**data, **fields}).to(getattr(torch, dtype or DEFAULT_DTYPE))
    return model, model.config


def _from_timm(
    package: Any, data: dict[str, Any], fields: Mapping[str, Any], dtype: str | None, notes: list[str]
) -> _Model:
    name = data["architecture"]
    if not package.is_model(name):
        near = did_you_mean(name, package.list_models())
        raise EnvironmentMissing(f"timm {package.__version__} has no model {excerpt(name)}{near}")
    keywords = {key: data[key] for key in ("num_classes", "global_pool") if key in data}
    keywords |= {**data.get("model_args", {}), **fields}
    check_loader_arguments(keywords)
    if keywords:
        check_constructor_arguments(package.create_model(name, pretrained=False), keywords)
    model = package.create_model(name, pretrained=False, **keywords)
    settings = {**model.pretrained_cfg, **data.get("pretrained_cfg", {})}
    return model.to(getattr(torch, dtype or DEFAULT_DTYPE)), settings


_LIBRARIES: dict[str, tuple[str, Callable[..., _Model]]] = {
    "model_type": ("transformers", _from_transformers),
    "_class_name": ("diffusers", _from_diffusers),
    "architecture": ("timm", _from_timm),
}
"""Name of the library and what builds its models, by the key that its configurations have."""
