"""Build a model and its inputs from a configuration file, without weights and, but for ``hf:NAME``, without network.

``model_type`` means transformers, ``_class_name`` diffusers and ``architecture`` timm.
"""

import contextlib
import inspect
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from headcount.bench.errors import EnvironmentMissing, Option, excerpt, flag
from headcount.bench.targets.config_data import (
    OWN_CODE,
    check_constructor_arguments,
    check_loader_arguments,
    offline,
    read_json,
    restrict,
)
from headcount.bench.targets.config_fields import LIBRARIES
from headcount.bench.targets.input_search import NO_VALUES, is_named, trial_error
from headcount.bench.targets.latents import LatentInputs
from headcount.bench.targets.model_inputs import Inputs, reads_text
from headcount.bench.targets.target import Target
from headcount.bench.targets.user_code import Built, UserCodeError
from headcount.models.configs.suggest import did_you_mean

AUTO_CLASSES = (
    "AutoModelForCausalLM", "AutoModelForSeq2SeqLM", "AutoModelForImageTextToText", "AutoModelForMaskedLM",
    "AutoModelForImageClassification", "AutoModel",
)  # fmt: skip
"""Auto classes of transformers, tried in order for a configuration file that names no class."""
DEFAULT_DTYPE = "bfloat16"
"""Type of the weights where neither the user nor the configuration gives one: some models run in no wider type."""
SECOND_DTYPE = "float32"
"""Type of the weights of a model that does not run in the one that was chosen for it."""
MAX_BYTES = 2**30
"""Bytes of weights up to which a model is tried with their values."""
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
    name = next((library for key, library in LIBRARIES.items() if config.get(key)), None)
    if name is None:
        keys = ", ".join(f"{key} ({library})" for key, library in LIBRARIES.items())
        raise UserCodeError(f"{path.name} names no model; it needs one of {keys}")
    require_library(name)
    with _one_line(f"importing {name}"):
        package = import_module(name)
    logging.getLogger(name).setLevel(logging.ERROR)
    notes: list[str] = []
    with torch.device(device), _IntegersWithValues(), offline(), _one_line("the configuration cannot be built"):
        config, fields = restrict(config, notes), restrict(fields, notes)
        model, settings = _BUILDERS[name](package, config, fields, dtype, notes)
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
    window, absent = _own_window(settings), tuple(maker.absent)
    trials = _Trials(name, maker, make, _names_dtype(config), getattr(settings, "use_cache", False) is True)
    return Built(model, (), maker.finish(), tuple(notes), versions, window, absent, trials.alternatives, trials.failure)


class _Trials:
    """Trials of a model that does not run: of another type, without a cache, with other inputs and on the CPU.

    Args:
        library: its name.
        maker: the inputs with which the model does not run.
        make: returns the inputs of other lengths.
        names_dtype: whether the configuration names the type of the weights.
        has_cache: whether the configuration says that the model fills a cache.
    """

    def __init__(
        self, library: str, maker: Inputs, make: Callable[[Mapping[str, int]], Inputs], names_dtype: bool,
        has_cache: bool,
    ) -> None:  # fmt: skip
        self._library, self.maker, self._make = library, maker, make
        self._names_dtype, self._has_cache = names_dtype, has_cache
        self._is_found = False

    @cached_property
    def _errors(self) -> list[tuple[str, str | None]]:
        """Errors of trial runs, with the length that was changed; that of the inputs themselves first."""
        return [("", trial_error(self.maker.model, self.maker.tensors))]

    def alternatives(self, target: Target) -> Iterator[tuple[Target, str]]:
        """Iterate over targets that may run, with what the user has not set changed, and over the options that say so.

        First on the target's own device, then with the values of weights on the CPU, of a model that may read some.
        """
        tried = [(target, "")]
        for one in self._changes(target):
            tried.append(one)
            yield one
        size = sum(weight.nbytes for weight in self.maker.model.parameters())
        if target.device is None and size <= MAX_BYTES and (self._reads_values or self._is_found):
            for other, words in tried:
                yield replace(other, device="cpu"), f"{words} --device cpu".strip()

    def _changes(self, target: Target) -> Iterator[tuple[Target, str]]:
        if target.dtype is None and not self._names_dtype:
            yield replace(target, dtype=SECOND_DTYPE), f"--dtype {SECOND_DTYPE}"
        if self._has_cache and "use_cache" not in target.settings:
            yield replace(target, settings={**target.settings, "use_cache": False}), "--set use_cache=false"
        for lengths, inputs in self._others():
            options = [f"{flag(name)} {size}" for name, size in lengths.items() if size]
            kept = {name: size for name, size in {**target.lengths, **lengths}.items() if size}
            words = " ".join([*options, *(f"--input {text}" for text in inputs)])
            yield replace(target, lengths=kept, inputs=(*target.inputs, *inputs)), words

    def _others(self) -> Iterator[tuple[Mapping[str, int | None], tuple[str, ...]]]:
        """Iterate over lengths that the user has not set, and texts of --input; a length of None is dropped."""
        maker = self.maker
        if "--images 1" in maker.absent:
            yield {"images": 1}, ()
        for name in ("image_size", "audio"):
            if name not in maker.lengths and (length := self.length_that_runs(name)):
                yield {name: length}, ()
        text = maker.tensors.get("input_ids")
        for name, sound in maker.searched.items():
            for times in (1, 2, 4, 8, 16) if text is not None and "T" in sound.axes else ():
                # a part of the sound is added to each token
                one = replace(sound, sizes={**sound.sizes, "T": times * text.shape[1]}).make(maker.dtype)
                if trial_error(maker.model, {**maker.tensors, name: one}) is None:
                    yield {}, (f"{name}={_text(one)}",)
        # one that needs less memory too
        for part in (1, 2, 4):
            lengths: dict[str, int | None] = {"image_size": maker.image_side // part} if part > 1 else {}
            other = self._make({**maker.lengths, **lengths}) if lengths else maker
            if (found := other.search_all()) is None:
                return
            self._is_found = True
            before = {name: _text(one) for name, one in other.tensors.items()}
            changed = {name: text for name, one in found.items() if (text := _text(one)) != before.get(name)}
            # a given image has no other size
            lengths = {"image_size": None} if "pixel_values" in changed else lengths
            if lengths or changed:
                yield lengths, tuple(f"{name}={text}" for name, text in changed.items())
            if "image_size" in maker.lengths or not maker.image_side:
                return

    def length_that_runs(self, name: str, to_its_end: bool = False) -> int | None:
        """Return a length with which the model runs, or comes to where it reads values; None where no other does."""
        if name not in self.maker.used:
            return None
        for length in self.maker.other_lengths(name):
            with contextlib.suppress(UserCodeError):
                error = trial_error(self.maker.model, self._make({**self.maker.lengths, name: length}).finish())
                if error is None or not to_its_end and error == NO_VALUES and not self._reads_values:
                    return length
                self._errors.append((name, error))
        return None

    @property
    def _reads_values(self) -> bool:
        """Whether a run without values stops where it reads some."""
        return self._errors[0][1] == NO_VALUES

    def failure(self, error: UserCodeError) -> UserCodeError:
        """Return the error of a model that runs with no alternative: why it does not, or the length that runs."""
        for name in self.maker.lengths if self._errors[0][1] else ():
            if length := self.length_that_runs(name, to_its_end=True):
                return UserCodeError(*error.args, advice=[Option(name, length), " runs"], trace=error.trace)
        cause: BaseException = error
        while cause.__cause__:
            cause = cause.__cause__
        reason = self.maker.refusal or self._failure_of_all(f"{type(cause).__name__}: {cause}")
        if reason is None:
            return error
        return UserCodeError(f"{self._library} itself does not run {reason}", advice=error.advice, trace=error.trace)

    def _failure_of_all(self, reason: str) -> str | None:
        """Return ``reason``, or the error of the part that reads a text alone, where several lengths raise it alike.

        None where it may be that of the inputs.
        """
        # inputs with which a trial run comes to its end say nothing
        errors, where = [] if self._is_found else self._errors, "this configuration, with inputs"
        named = self.maker.model.named_modules() if "input_ids" in self.maker.tensors else ()
        if text := next(((path, part) for path, part in named if reads_text(part)), None):
            texts = [("", trial_error(text[1], {"input_ids": torch.ones(1, size, dtype=torch.long)})) for size in TEXTS]
            # the whole model may give the part more than a text
            first = texts[0][1] or ""
            if first.partition(":")[0] == reason.partition(":")[0]:
                errors, where, reason = texts, f"{text[0] or 'it'} on texts", first.rpartition(" [")[0]
        # errors name the sizes of a tensor in brackets, and these differ
        kinds = [(name, re.sub(r"\[.*?\]", "", error or NO_VALUES)) for name, error in errors]
        alike = [name for name, kind in kinds if kind == kinds[0][1] != NO_VALUES]
        missing = self.maker.signature.parameters.keys() - self.maker.tensors.keys()
        is_of_inputs = self.maker.has_given or any(is_named(reason, name) for name in missing)
        # each length that was changed raises it too
        if is_of_inputs or len(alike) < len(TEXTS) or {*alike} != {name for name, _ in kinds}:
            return None
        return f"{where} of {len(alike)} lengths: {reason.splitlines()[0].rstrip('.')}"


def _text(one: Any) -> str | None:
    """Return the text of --input for a tensor of ones; None for anything else."""
    if not isinstance(one, Tensor):
        return None
    return f"{','.join(map(str, one.shape))}:{str(one.dtype).removeprefix('torch.')}"


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
        if isinstance(error, ImportError) and (cause := _first_cause(error)) is not error:
            # transformers names the class that it could not import, and not why
            text = f"{excerpt(error)} {type(cause).__name__}: {excerpt(cause)}"
        # a package that the model needs
        kind = EnvironmentMissing if isinstance(error, ImportError) else UserCodeError
        raise kind(f"{reason}: {type(error).__name__}: {text[:300]}") from error


def _first_cause(error: BaseException) -> BaseException:
    """Return the error that began a chain of errors."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


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
            raise UserCodeError(Option("set", field), f": unknown field{did_you_mean(field, sorted(known))}")


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
    # fields that a class reads and does not store, such as num_labels
    made = [name for name, one in inspect.getmembers(type(config)) if isinstance(one, property) and one.fset]
    names = {prefix + name for name in (*config.to_dict(), *config.attribute_map, *made)}
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


_BUILDERS: dict[str, Callable[..., _Model]] = {
    "transformers": _from_transformers,
    "diffusers": _from_diffusers,
    "timm": _from_timm,
}
"""What builds the models of a library."""
