"""Make the inputs that a model's forward needs, by its signature and its configuration."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from operator import add
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from headcount.bench.contractions.modules import outer_paths
from headcount.bench.errors import Option
from headcount.bench.targets.input_search import Candidate, Candidates, Search
from headcount.bench.targets.user_code import LengthMissing, UserCodeError

MAX_TOKENS = 1000
"""Different tokens in a text at most."""
IMAGE_SIZE = 224
"""Height and width of an image in pixels where neither the user nor the configuration gives them."""
SAMPLING_RATE, FRAME_RATE = 16_000, 100
"""Samples and spectra of a second of sound, where the configuration does not give them."""
WIDTH = 128
"""Numbers of a spectrum, and of any other place, until the layer that reads it is known."""
FRAMES = 16
"""Frames of a video where the configuration does not give them."""


_POSITIONS = re.compile(r"(wpe|position_embeddings?|embed_positions)$")
"""Paths of learned position tables."""
_IMAGES = ("pixel_values", "pixel_values_images", "pixel_values_videos", "flattened_patches")
_SOUNDS = ("input_features", "input_values", "audio_mel")
_GRIDS = {"image_grid_thw", "grid_thw"}
_DIVIDED = _GRIDS | {"spatial_shapes", "target_sizes", "pixel_position_ids"}
"""Names in forward of images, of sounds, and of the numbers of patches of an image or their places."""
_SOUND_WIDTHS = (
    "num_mel_bins", "input_feat_per_channel", "feature_projection_input_dim", "input_feat_size", "mel_bins", "n_mels",
)  # fmt: skip
"""Fields of the numbers of a spectrum."""
_RETURNS = "which returns (module, inputs)"
_WAVES = ("Bt", "Bat", "BfC")
_SPECTRA = ("BCT", "BfC", "B1fC", "BgC")
"""Layouts of a sound, the likeliest first: B batch, a channels, t samples, C numbers of a spectrum, T, f and g spectra.
"""


class Inputs:
    """Inputs of a model: those that the user gives, and for each library a method that adds the missing ones.

    Args:
        model: the model; its ``forward`` names the inputs.
        config: its configuration.
        lengths: any of target.LENGTHS.
        given: tensors by name or position; floating-point ones are cast to ``dtype``.
        dtype: type of the weights.
        preprocessor: reads ``preprocessor_config.json``.
    """

    def __init__(
        self, model: nn.Module, config: Any, lengths: Mapping[str, int], given: Mapping[str, Tensor],
        dtype: torch.dtype, preprocessor: Callable[[], Mapping[str, Any]],
    ) -> None:  # fmt: skip
        self.model, self.config, self.lengths, self.dtype = model, config, lengths, dtype
        self.preprocessor = preprocessor
        self.signature = inspect.signature(model.forward)
        kinds = {one.kind for one in self.signature.parameters.values()}
        # that of torch, and those of diffusers that raise an error, take any inputs
        if kinds <= {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}:
            raise UserCodeError(f"{type(model).__name__} has no forward; FILE.py:FUNCTION, {_RETURNS}, counts a part")
        self.used: set[str] = set()
        self.notes: list[str] = []
        self.absent: list[str] = []
        # why no inputs were found with which the model runs
        self.refusal: str | None = None
        # inputs whose layouts and channels were looked for
        self.searched: dict[str, Candidate] = {}
        names = list(self.signature.parameters)
        self.tensors: dict[str, Any] = {}
        self.has_given = bool(given)
        for key, tensor in given.items():
            if key.isdecimal() and int(key) >= len(names) or not (key.isdecimal() or key in names):
                raise UserCodeError(Option("input", key), f": {self._signature()} has no such input")
            name = names[int(key)] if key.isdecimal() else key
            cast = tree_map_only(Tensor, lambda one: one.to(dtype) if one.is_floating_point() else one, tensor)
            self.tensors[name] = cast
        self.batch = self._length("batch_size", 1)

    def finish(self) -> dict[str, Any]:
        """Return the keyword inputs. Raise UserCodeError for what is missing, unused or too long."""
        missing = [name for name in filter(self._requires, self.signature.parameters) if not self._has(name)]
        if missing or not self.tensors:
            kinds = [self._description(name) for name in missing]
            names = f": {', '.join(map(add, missing, kinds))}" if missing else ""
            reason = f"{type(self.model).__name__}.forward needs inputs that no configuration gives{names}"
            # numbers, lists, and objects of a library, as the session of a video, are written in Python
            is_tensor = all(re.match(r"$| \((torch\.)?\w*Tensor", kind) for kind in kinds)
            sizes = [word for name in missing or ["NAME"] for word in (" ", Option("input", f"{name}=SIZES"))]
            option = ["add", *sizes, ", NAME=[VALUES] or NAME=@FILE.json, or "] if is_tensor else []
            raise UserCodeError(reason, advice=[*option, f"write FILE.py:FUNCTION, {_RETURNS}"])
        if unused := [Option(name) for name in self.lengths if name not in self.used]:
            others = [word for one in unused[1:] for word in (", ", one)]
            raise UserCodeError(unused[0], *others, f": {self._signature()} has no input of that length")
        self._check_positions()
        return self.tensors

    def transformers(self) -> None:
        """Add images, videos, sound, token ids and series, as far as ``forward`` takes them."""
        vision = self._vision()
        self._add_images(vision)
        if self._needs("pixel_values_videos"):
            self._add("pixel_values_videos", lambda: self._video(vision))
        # a sound is tried together with a decoder's text
        self._add_text(vision)
        self._add_sound()
        self._add_documented()

    def _vision(self) -> Any:
        """Return the part of the configuration that describes images, else the configuration."""
        return self._part("vision", "visual", "image") or getattr(self.config, "encoder", None) or self.config

    def _part(self, *words: str) -> Any:
        """Return the outermost part of the configuration whose name has one of ``words``."""
        waiting = [("", self.config)]
        for name, config in waiting:
            if any(word in name for word in words):
                return config
            parts = ((part, getattr(config, part, None)) for part in config.sub_configs)
            waiting += [(part, found) for part, found in parts if found is not None]
        return None

    def _add_text(self, vision: Any) -> None:
        """Add token ids of the model and of its decoder."""
        if "input_ids" in self.signature.parameters and not self._has("input_ids"):
            text = self.config.get_text_config()
            two_towers = vision is not self.config and not self._placeholder("image")
            default = first_field(text, "max_position_embeddings") if two_towers else None
            self._add_tokens("input_ids", "seq_len", default)
        for name in self.signature.parameters:
            is_read = name == "decoder_input_ids" or self._requires(name)
            if name.endswith("_input_ids") and is_read and not self._has(name):
                positions = first_field(self._part(name.partition("_")[0]), "max_position_embeddings")
                length = self._optional("seq_len")
                self._add_tokens(name, "tgt_len", min(length, positions) if length and positions else length)

    def _add_tokens(self, name: str, length: str, default: int | None) -> None:
        self._add(name, lambda: self._tokens(self._length(length, default), self._codebooks(name)))

    def _codebooks(self, name: str) -> int | None:
        """Return the tokens at each position: those of codebooks, whose ids an embedding adds offsets to; else None."""
        for path, offsets in self.model.named_buffers():
            owner, _, buffer = path.rpartition(".")
            is_read = {"input_ids", "audio_codes"} & _parameters(self.model.get_submodule(owner))
            if buffer.endswith("offsets") and is_read and not self._placeholder("audio"):
                return len(offsets) if name == self._ids_of(path) else None
        return None

    def _ids_of(self, path: str) -> str:
        """Return the name of the token ids that the part at ``path`` reads."""
        names = (name for name in self.signature.parameters if name.endswith("_input_ids"))
        return next((name for name in names if f"{name.removesuffix('_input_ids')}." in path), "input_ids")

    def _placeholder(self, *kinds: str) -> tuple[Any, str] | None:
        """Return part and field of the configuration with the token that stands for a part of an image or a sound.

        None where a text has no places for them. The field may be None.
        """
        names = [f"{kind}_token_{what}" for kind in kinds for what in ("index", "id")]
        parts = [self.config, *(getattr(self.config, part, None) for part in self.config.sub_configs)]
        found = [(part, name) for part in parts for name in names if hasattr(part, name)]
        if not found or "input_ids" not in self.signature.parameters:
            return None
        return next((one for one in found if getattr(*one) is not None), found[0])

    def _needs(self, name: str) -> bool:
        """Return whether an input that is no text is needed: it is required, or there is no text."""
        return self._requires(name) or "input_ids" not in self.signature.parameters

    def _requires(self, name: str) -> bool:
        one = self.signature.parameters.get(name)
        return one is not None and one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)

    def _add_images(self, vision: Any) -> None:
        """Add images; of a model that reads text with placeholders as many as --images asks for."""
        taken = [name for name in _IMAGES if name in self.signature.parameters and "video" not in name]
        kind = next((kind for kind in ("image", "video") if self._placeholder(kind)), None)
        if kind and taken:
            number = self._length("images", int(any(map(self._requires, taken))))
            if number:
                self._add_placed_images(vision, kind, number)
            elif not any(map(self._has, taken)):
                self.absent.append("--images 1")
        elif "pixel_values" in taken or "grid_thw" in self.signature.parameters:
            self._add_image(vision, 1)
        elif "flattened_patches" in taken:
            patches = first_field(vision, "seq_len", "max_num_patches")
            one = self._candidate(("BNC",), {"N": patches})
            self._search({"flattened_patches": one}, self._reader("flattened_patches"))

    def _add_image(self, vision: Any, number: int) -> int | None:
        """Add ``number`` images for each of the batch, and return the tokens of one that is divided into patches."""
        taken, images = self.signature.parameters.keys(), self.batch * number
        if not taken & _DIVIDED:
            has_frames = first_field(vision, "tubelet_size", "num_frames") is not None
            self._add("pixel_values", lambda: self._video(vision) if has_frames else self._image(vision, number))
            return None
        merge, patch, channels = self._merge(vision), self._patch(vision), self._channels(vision)
        pixels = "pixel_values" if "pixel_values" in taken else "hidden_states"
        reader = self._reader(pixels)
        if "* spatial_merge_size" in self._documentation(pixels, reader):
            # a patch is as large as those of other models that become one token
            merge, patch = 1, patch * merge
        # sides are rounded to whole merged patches, as the processor does
        grid = [max(1, round(side / (patch * merge))) * merge for side in self._image_size(vision)]
        patches = grid[0] * grid[1]
        columns = torch.arange(patches) % grid[1], torch.arange(patches) // grid[1]
        values = {
            **dict.fromkeys(_GRIDS, [1, *grid]), "merge_sizes": merge, "spatial_shapes": grid, "target_sizes": grid,
            "pixel_position_ids": torch.stack(columns, 1).tolist(),
        }  # fmt: skip
        for name, value in values.items():
            self._add(name, partial(torch.tensor, [value] * images))
        if "target_sizes" in taken:
            self._add("pixel_values", lambda: self._image(vision, number))
            return None
        width = channels * (first_field(vision, "temporal_patch_size") or 1) * patch**2
        sizes = {"I": images, "N": patches, "P": images * patches, "K": channels, "p": patch}
        layouts = ("PC", "PKpp", "PppK") if taken & _GRIDS else ("INC",)
        self._search({pixels: self._candidate(layouts, sizes, width)}, reader)
        self._add("pixel_attention_mask", lambda: torch.ones(images, patches, dtype=torch.long))
        return patches // merge**2

    def _patch(self, vision: Any) -> int:
        patch = first_field(vision, "patch_size")
        if patch is None:
            given = ["add ", Option("input", "pixel_values=SIZES"), f" of {self._signature()}"]
            raise UserCodeError("the configuration gives no patch_size", advice=given)
        return patch if isinstance(patch, int) else patch[-1]

    def _merge(self, vision: Any) -> int:
        """Return how many patches, along a side, become one token."""
        merge = first_field(vision, "spatial_merge_size", "merge_kernel_size", "merge_size", "pooling_kernel_size") or 1
        return merge if isinstance(merge, int) else merge[-1]

    def _video(self, vision: Any) -> Tensor:
        """Return videos (batch, frames, channels, height, width)."""
        frames = first_field(vision, "num_frames", "frames_per_clip") or FRAMES
        return self._floats(self.batch, frames, self._channels(vision), *self._image_size(vision))

    def _add_sound(self) -> None:
        """Add sound where the model needs it, or where --audio asks for some; with placeholders in a text."""
        names = [name for name in _SOUNDS if name in self.signature.parameters]
        # of several that a model passes on, the one that its encoder takes
        names.sort(key=lambda name: not any(name in _parameters(part) for part in self.model.children()))
        if not names:
            return
        part = self._part("audio", "speech", "sound")
        place = self._placeholder("audio", "speech")
        is_needed = any(map(self._needs, names)) or part is not None and not place
        seconds = self._length("audio", 0)
        if not seconds and not is_needed:
            if not any(map(self._has, names)):
                self.absent.append("--audio 30")
            return
        wanted = [name for name in names if self._requires(name) or name == names[0]]
        sounds = {name: self._sound(name, part or self.config, seconds or 1) for name in wanted}
        masks = ["audio_mel_mask", f"{names[0]}_mask", "feature_attention_mask"]
        for name in filter(self._requires, masks):
            self._add(name, partial(self._sound_mask, name, sounds[names[0]].sizes["M"]))
        self._add("is_longer", lambda: torch.zeros(self.batch, 1, dtype=torch.bool))
        self._search(sounds, self._reader(names[0]) if len(wanted) == 1 else self.model)
        for name in masks:
            sound = self.searched.get(names[0])
            frames = sound and next(sound.sizes[axis] for axis in sound.axes if axis in "tTfg")
            self._add(name, partial(self._sound_mask, name, frames or self.tensors[names[0]].shape[-1]))
        if place and (placeholder := getattr(*place)) is not None:
            given = {name: one for name, one in self.tensors.items() if name != "input_ids"}
            self._place(placeholder, 1, self._tokens_of("get_audio_features", given), "sound")

    def _sound_mask(self, name: str, frames: int) -> Tensor:
        """Return a mask of a whole sound: ones, or zeros where it marks what is left out."""
        if name == "audio_mel_mask":
            return torch.zeros(self.batch, frames, dtype=torch.bool)
        return torch.ones(self.batch, frames, dtype=torch.long)

    def _reader(self, name: str) -> nn.Module:
        """Return the outermost part that reads an input and no text."""
        names = ((part, _parameters(part)) for part in self.model.modules())
        return next((part for part, taken in names if name in taken and "input_ids" not in taken), self.model)

    def _sound(self, name: str, config: Any, seconds: int) -> Candidate:
        """Return sound: a wave, or spectra over time."""
        fixed = first_field(config, "max_source_positions", "spec_size", "max_length")
        if "audio" not in self.lengths and not fixed:
            self.notes.append(f"{seconds} s of sound; --audio N gives it another length")
        width = next((found for field in _SOUND_WIDTHS if (found := _find(config, field))), None)
        positions, spectrum = first_field(config, "max_source_positions"), first_field(config, "spec_size")
        frames = seconds * FRAME_RATE
        rate = first_field(config, "sampling_rate", "sample_rate") or SAMPLING_RATE
        sizes = {"t": seconds * rate, "a": first_field(config, "audio_channels") or 1, "1": 1}
        sizes |= {"T": 2 * positions if positions else frames, "f": frames, "g": frames // 2}
        if spectrum:
            # time is folded into the rows of an image
            sizes["f"] = spectrum**2 // width
        elif "audio" not in self.lengths:
            sizes["f"] = first_field(config, "max_length") or frames
        is_wave = name == "input_values"
        # M is the length of a mask
        sizes["M"] = sizes["t" if is_wave else "T" if positions else "f"]
        return self._candidate(_WAVES if is_wave else _SPECTRA, sizes, width)

    def _search(self, candidates: Candidates, reader: nn.Module) -> None:
        """Add inputs, each of the first layout that the reader takes, with its channels."""
        wanted = {name: one for name, one in candidates.items() if name in self.signature.parameters}
        wanted = {name: one for name, one in wanted.items() if not self._has(name)}
        if any(len(one.layouts) > 1 or "C" in one.axes for one in wanted.values()):
            given = {key: one for key, one in self.tensors.items() if key in _parameters(reader)}
            wanted = Search(reader, given, self.dtype, {}, self._widths()).fit(wanted)
        self.searched |= wanted
        self.tensors |= {name: one.make(self.dtype) for name, one in wanted.items()}

    def _tokens_of(self, method: str, inputs: Mapping[str, Any]) -> int:
        """Return the tokens that the library's ``method`` makes of a sound of a text; 1 where it puts them itself."""
        # the model with a head passes all on to the one inside, whose signature names what it takes
        owners = (getattr(self.model, "model", None), self.model)
        function = next((getattr(owner, method) for owner in owners if hasattr(owner, method)), None)
        if function is None:
            self._add("attention_mask", lambda: torch.ones(self.batch, self._length("seq_len"), dtype=torch.long))
            return 1
        taken = {name: one.to("meta") for name, one in inputs.items() if name in _parameters(function)}
        with torch.no_grad():
            out = function(**taken)
        out = getattr(out, "pooler_output", out)
        tensors = [one for one in tree_leaves(out if isinstance(out, Tensor) else list(out)) if isinstance(one, Tensor)]
        width = self.config.get_text_config().hidden_size
        return sum(one.numel() for one in tensors) // width // self.batch

    def _place(self, placeholder: int, number: int, tokens: int, what: str) -> None:
        """Put ``tokens`` placeholders of each of ``number`` images or sounds at the start of each text."""
        length, taken = self._length("seq_len"), number * (tokens + 1)
        self._check_places(length, taken, tokens, what)
        ids = self.tensors["input_ids"] = self._tokens(length)
        for start in range(0, taken, tokens + 1):
            ids[:, start : start + tokens] = placeholder
        self.notes.append(f"{number * tokens:,} of {length:,} tokens are placeholders of {what}")

    def _check_places(self, length: int, taken: int, tokens: int, what: str) -> None:
        """Raise UserCodeError where a text is too short for images or sounds, each with a text token that ends it."""
        if length < taken:
            raise UserCodeError(Option("seq_len", length), f": {what} of {tokens} tokens: the least is {taken}")

    def _add_documented(self) -> None:
        """Add what is required besides images, sounds and texts; all that is documented where there is nothing else."""
        if "image_embeds_position_mask" in self.signature.parameters:
            # the places of an image in a text without a token for them
            tokens, length = self.config.latent_query_num, self._length("seq_len")
            self._check_places(length, tokens + 1, tokens, "1 image")
            places = (torch.arange(length) < tokens).long().repeat(self.batch, 1)
            self._add("image_embeds_position_mask", lambda: places)
        is_empty = not self.tensors and not any(map(self._requires, self.signature.parameters))
        found = {}
        for name in self.signature.parameters:
            ids = self.tensors.get(name.replace("attention_mask", "input_ids"))
            documented = self._documentation(name)
            is_needed = self._requires(name) or is_empty and "of shape" in documented and "optional" not in documented
            if not is_needed or self._has(name):
                continue
            if name.endswith("attention_mask") and ids is not None:
                self.tensors[name] = torch.ones_like(ids)
            elif one := self._documented(name):
                found[name] = one
        self._search(found, self.model)

    def _documentation(self, name: str, reader: nn.Module | None = None) -> str:
        """Return what the documentation of ``forward`` says of an input on its line; empty where it says nothing."""
        found = re.search(rf"^ *{name}( \(.*)", (reader or self.model).forward.__doc__ or "", re.MULTILINE)
        return found[1] if found else ""

    def _description(self, name: str) -> str:
        """Return an input's type and sizes in parentheses, with a space before; empty where nothing gives them."""
        documented, kind = self._documentation(name), self.signature.parameters[name].annotation
        if kind is inspect.Parameter.empty:
            return documented.replace("`", "").rstrip(":")
        sizes = re.search(r"`(\([^`]*,.*?\))`", documented)
        return f" ({inspect.formatannotation(kind)}{f' of shape {sizes[1]}' if sizes else ''})"

    def _documented(self, name: str) -> Candidate | None:
        """Return an input in the sizes that its documentation gives: numbers, fields of the configuration, a length.

        None where nothing says that it is a tensor. The first size is that of the batch.
        """
        kind, _, shape = self._documentation(name).replace("{0}", "batch_size, sequence_length").partition(" of shape ")
        if not shape:
            if name.endswith("mask"):
                return self._candidate(("BS:bool", "BS1:bool", "B1:bool"), {"1": 1})
            kind = self.signature.parameters[name].annotation
            is_tensor = self._requires(name) and ("Tensor" in str(kind) or kind is inspect.Parameter.empty)
            return self._candidate(("BCS", "BSC", "BS", "BC"), {}) if is_tensor else None
        dtype = "long" if "Long" in kind or "Int" in kind else "bool" if "Bool" in kind else ""
        sizes, channels, axes = {}, None, "B"
        image = self._image_size(self._vision()) if "height" in shape else (None, None)
        sides = dict(zip(("height", "width"), image, strict=True))
        _, *words = re.sub(r"[`'()\[\]]", "", re.split(r"[)\]][`':,]", shape)[0]).split(",")
        words = [word.strip() for word in words if word.strip()]
        # the text that goes with an input may have a length of its own
        sides["sequence_length"] = first_field(self.config, f"{name.partition('_')[0]}_seq_len")
        for axis, word in enumerate(words):
            named = sides.get(word) or _find(self.config, word.removeprefix("config."))
            size = int(word) if word.isdecimal() else named
            if not isinstance(size, int) and "S" not in axes and "dim" not in word:
                axes += "S"
            elif not dtype and axis == len(words) - 1:
                axes, channels = axes + "C", size if isinstance(size, int) else None
            elif isinstance(size, int):
                axes, sizes[str(axis)] = axes + str(axis), size
            else:
                return None
        layouts = ("BS", "BC") if axes == "BS" and not dtype else (f"{axes}:{dtype}" if dtype else axes,)
        return self._candidate(layouts, sizes, channels)

    def _widths(self) -> list[int]:
        fields = self.config.get_text_config().to_dict().items() if hasattr(self.config, "to_dict") else ()
        return [size for name, size in fields if name in ("hidden_size", "d_model") and type(size) is int]

    def _candidate(self, layouts: tuple[str, ...], sizes: Mapping[str, int], channels: int | None = None) -> Candidate:
        """Return an input whose layout and channels are looked for. S is the length of the text, or of a series."""
        if any("S" in layout for layout in layouts):
            sizes = {**sizes, "S": self._series_length()}
        return Candidate(layouts, layouts[0], channels or WIDTH, channels is not None, {"B": self.batch, **sizes})

    def _series_length(self) -> int:
        """Return the length of the text, or of the past of a series."""
        past = first_field(self.config, "context_length")
        if past and "seq_len" not in self.lengths:
            return past + max(first_field(self.config, "lags_sequence") or [0])
        text = next((self.tensors[name] for name in ("input_ids", "inputs_embeds") if name in self.tensors), None)
        return self._length("seq_len") if text is None else _text_length(text)

    @property
    def image_side(self) -> int | None:
        """The longest side of an image in pixels; None without one."""
        image = self.tensors.get("pixel_values")
        return max(image.shape[-2:]) if isinstance(image, Tensor) else None

    def other_lengths(self, name: str) -> Iterator[int]:
        """Iterate over other values of a length that the inputs have, the likeliest first."""
        if name == "audio":
            yield from (2, 3, 5, 10, 30)
        elif name == "seq_len":
            yield from (self.lengths[name] * 4**power for power in range(1, 6))
        elif side := self.image_side:
            if isinstance(own := _find(self.config, "image_size"), int) and own != side:
                yield own
            patch = _find(self.config, "patch_size") or IMAGE_SIZE // 7
            patch = patch if isinstance(patch, int) else patch[-1]
            yield from ((side // patch + more) * patch for more in range(1, 9))
            yield from (side // 2, 2 * side, 3 * side, 4 * side)

    def search_all(self) -> dict[str, Tensor] | None:
        """Return inputs with which the model runs, of other layouts and optional ones too; None where none do."""
        images = {name: self.tensors[name] for name in _IMAGES if isinstance(self.tensors.get(name), Tensor)}
        changed = {**self.searched, **{name: self._any_image(one) for name, one in images.items() if one.dim() == 4}}
        optional = {}
        for name in self.signature.parameters:
            if name in self.tensors or name in ("labels", "inputs_embeds", "decoder_inputs_embeds"):
                continue
            with suppress(UserCodeError):
                one = self._any_image(self._image(self._vision())) if name == "pixel_values" else self._documented(name)
                optional |= {name: one} if one else {}
        given = {name: one for name, one in self.tensors.items() if name not in changed}
        search = Search(self.model, given, self.dtype, optional, self._widths())
        found = search.fit(changed)
        return {name: one.make(self.dtype) for name, one in found.items()} if search.is_run else None

    def _any_image(self, image: Tensor) -> Candidate:
        """Return an image with an axis for those of a text, or for two that are compared, or without it."""
        number, channels, height, width = image.shape
        sizes = {"N": number, "H": height, "W": width, "2": 2, "n": number // self.batch}
        # or as many patches as the positions of another input
        patches = ("BSC",) if "seq_len" in self.lengths else ()
        return self._candidate(("NCHW", "BnCHW", "B2CHW", *patches), sizes, channels)

    def timm(self) -> None:
        """Add the image."""
        channels, *size = self.config["input_size"]
        side = self._optional("image_size")
        name = next(iter(self.signature.parameters))
        self._add(name, lambda: self._floats(self.batch, channels, *([side] * 2 if side else size)))

    def _add_placed_images(self, vision: Any, kind: str, number: int) -> None:
        """Add images, or films where ``kind`` is "video", and their placeholder tokens, at the start of each text."""
        if self._has("pixel_values") or self._has("input_ids"):
            return
        part, name = self._placeholder(kind) or (None, "")
        if (placeholder := getattr(part, name)) is None:
            placeholder = self.config.get_text_config().vocab_size - 1
            setattr(part, name, placeholder)
            self.notes.append(
                f"{name} is {placeholder:,}, the last token: the configuration names none; --set {name}=N sets it"
            )
        tiled = {"aspect_ratio_ids", "pixel_attention_mask"} & set(self.signature.parameters)
        if tiled or first_field(self.config, "image_grid_pinpoints"):
            given = Option("input", "pixel_values=SIZES")
            raise UserCodeError(Option("images"), f": images of {self._signature()} are tiled: add ", given)
        if kind == "video":
            self._add("pixel_values", lambda: self._video(vision))
        tokens = self._add_image(vision, number)
        if tokens is None:
            rows, columns = (side // self._patch(vision) for side in self._image_size(vision))
            full = first_field(self.config, "vision_feature_select_strategy") == "full"
            tokens = first_field(self.config, "mm_tokens_per_image", "num_query_tokens") or rows * columns + full
        if kind == "video":
            tokens *= self.tensors["pixel_values"].shape[1]
        self._place(placeholder, number, tokens, f"1 {kind}" if number == 1 else f"{number} {kind}s")
        ids = self.tensors["input_ids"]
        self._add("mm_token_type_ids", lambda: (ids == placeholder).int())
        self._add("token_type_ids", lambda: (ids == placeholder).int())

    def _image(self, vision: Any, number: int = 1) -> Tensor:
        return self._floats(self.batch * number, self._channels(vision), *self._image_size(vision))

    def _channels(self, vision: Any) -> int:
        return first_field(vision, "num_channels", "in_channels", "in_chans") or 3

    def _image_size(self, vision: Any) -> list[int]:
        """Return height and width: the user's, the configuration's, or the preprocessor's."""
        if side := self._optional("image_size"):
            return [side, side]
        size = first_field(vision, "image_size", "img_size", "max_img_size") or _find(self.config, "image_size")
        if size is None:
            found = self.preprocessor()
            size = found.get("crop_size" if found.get("do_center_crop") else "size")
        if isinstance(size, Mapping):
            size = [size["height"], size["width"]] if "height" in size else size.get("shortest_edge")
        size = size or self._timm_size()
        if not size:
            self.notes.append(f"images of {IMAGE_SIZE} pixels: the configuration gives no size; --image-size N sets it")
        return self._sides(size or IMAGE_SIZE)

    def _timm_size(self) -> list[int] | None:
        """Return height and width of the images of a part from timm."""
        settings = (getattr(part, "pretrained_cfg", None) for part in self.model.modules())
        return next((list(one["input_size"][1:]) for one in settings if isinstance(one, Mapping)), None)

    def _sides(self, size: Any) -> list[int]:
        if isinstance(size, list | tuple):
            return list(size[-2:]) * (3 - len(size[-2:]))
        return [self._length("image_size", size)] * 2

    def _tokens(self, length: int, codebooks: int | None = None) -> Tensor:
        """Return token ids (batch, length), with ``codebooks`` of them at each position.

        Tokens without a special meaning come in turns, so that routers see several.
        """
        fields = self.config.to_dict() | self.config.get_text_config().to_dict()
        # some of these are lists
        special = tree_leaves([value for name, value in fields.items() if name.endswith(("_token_id", "_token_index"))])
        size = min(fields.get("vocab_size") or MAX_TOKENS, MAX_TOKENS)
        ordinary = torch.tensor([token for token in range(size) if token not in special])
        tokens = ordinary[torch.arange(self.batch * length) % len(ordinary)].view(self.batch, length)
        return tokens.unsqueeze(-1).repeat(1, 1, codebooks) if codebooks else tokens

    def _floats(self, *sizes: int) -> Tensor:
        return torch.ones(sizes, dtype=self.dtype)

    def _has(self, name: str) -> bool:
        return name in self.tensors or name == "input_ids" and "inputs_embeds" in self.tensors

    def _add(self, name: str, make: Callable[[], Any]) -> None:
        if name in self.signature.parameters and name not in self.tensors:
            self.tensors[name] = make()

    def _optional(self, name: str) -> int | None:
        self.used.add(name)
        return self.lengths.get(name)

    def _length(self, name: str, default: int | None = None) -> int:
        value = self._optional(name)
        value = default if value is None else value
        if value is None:
            example = "T=128" if name == "seq_len" else f"{name}=N"
            # a length of presets alone
            instead = [", not ", Option("src_len")] if "src_len" in self.lengths else []
            raise (LengthMissing if name == "seq_len" else UserCodeError)(
                f"{self._signature()} needs ", Option(name), f", or {example} behind the configuration's name", *instead
            )
        return value

    def _signature(self) -> str:
        names = [name for name, one in self.signature.parameters.items() if one.kind != one.VAR_KEYWORD]
        return f"{type(self.model).__name__}.forward({', '.join(names)})"

    def _check_positions(self) -> None:
        """Raise UserCodeError where a text is longer than a table of positions: on meta no lookup fails."""
        for path, table in self.model.named_modules():
            if not (isinstance(table, nn.Embedding) and _POSITIONS.search(path)):
                continue
            name = self._ids_of(path)
            if name not in self.tensors or not self._reads_text(path):
                continue
            # positions of RoBERTa begin after the padding's, those of OPT and BART at an offset
            first = getattr(table, "offset", 0) or (0 if table.padding_idx is None else table.padding_idx + 1)
            length, places = _text_length(self.tensors[name]), table.num_embeddings - first
            if length > places:
                raise UserCodeError(f"{name} has {length:,} tokens, and {path} has {places:,} positions")

    def _reads_text(self, path: str) -> bool:
        """Return whether the innermost module around ``path`` that takes token ids takes no images with them."""
        for outer in reversed(list(outer_paths(path.rpartition(".")[0]))):
            part = self.model.get_submodule(outer)
            if "input_ids" in _parameters(part):
                return reads_text(part)
        return False


def _text_length(text: Tensor) -> int:
    """Return the positions of a text: an embedding, or a token of each codebook, has an axis more."""
    return text.shape[:2][-1]


def _parameters(part: Any) -> set[str]:
    """Return the names of the parameters of a function, or of a module's ``forward``."""
    return set(inspect.signature(part.forward if isinstance(part, nn.Module) else part).parameters)


def reads_text(part: nn.Module) -> bool:
    """Return whether a part takes token ids, and neither images nor sounds with them."""
    names = _parameters(part)
    return "input_ids" in names and not names & {*_IMAGES, *_SOUNDS}


def _find(config: Any, name: str) -> Any:
    """Return a field of the configuration, or the first of its parts that has it."""
    if (value := first_field(config, name)) is not None:
        return value
    parts = (getattr(config, part, None) for part in config.sub_configs)
    return next((found for part in parts if part is not None and (found := _find(part, name)) is not None), None)


def first_field(config: Any, *names: str) -> Any:
    """Return the first field of ``names`` that the configuration has, None where it has none."""
    return next((value for name in names if (value := getattr(config, name, None)) is not None), None)
