"""Make the inputs that a model's forward needs, by its signature and its configuration."""

import inspect
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from headcount.bench.contractions.modules import outer_paths
from headcount.bench.targets.user_code import UserCodeError

MAX_TOKENS = 1000
"""Different tokens in a text at most."""
IMAGE_SIZE = 224
"""Height and width of an image in pixels where neither the user nor the configuration gives them."""
SAMPLING_RATE, FRAME_RATE = 16_000, 100
"""Samples and spectra of a second of sound, where the configuration does not give them."""
MAX_CHANNELS = 2
"""Channels of a sound at most; a convolution of more channels reads spectra."""
BINS = 128
"""Numbers of a spectrum that is read as an image, where the configuration does not give them."""
FRAMES = 16
"""Frames of a video where the configuration does not give them."""


_POSITIONS = re.compile(r"(wpe|position_embeddings?|embed_positions)$")
"""Paths of learned position tables."""
_IMAGES = ("pixel_values", "pixel_values_images", "pixel_values_videos", "flattened_patches")
_SOUNDS = ("input_features", "input_values", "audio_mel")
_GRIDS = ("image_grid_thw", "grid_thw")
"""Names of images, sounds, and the numbers of patches of an image along time, height and width, in forward."""
_SOUND_WIDTHS = (
    "num_mel_bins", "input_feat_per_channel", "feature_projection_input_dim", "input_feat_size", "mel_bins", "n_mels",
)  # fmt: skip
"""Fields of the numbers of a spectrum."""
REGIONS = 36
"""Regions of an image that a detector finds, as in the papers of models that read them."""
_FEATURES: dict[str, tuple[int | str, ...]] = {
    "visual_feats": (REGIONS, "visual_feat_dim"), "visual_pos": (REGIONS, "visual_pos_dim"),
    "task_inputs": ("task_seq_len",), "state": ("max_state_dim",),
    "states": ("seq_len", "state_dim"), "actions": ("seq_len", "act_dim"), "rewards": ("seq_len", 1),
    "returns_to_go": ("seq_len", 1),
}  # fmt: skip
"""Inputs that another model or a processor makes, with their sizes after the batch: numbers, --seq-len and fields."""
_INDICES: dict[str, tuple[int | str, ...]] = {
    "bbox": ("seq_len", 4),
    "timesteps": ("seq_len",),
    "classes_structure": (),
}
"""The same of inputs that are whole numbers."""


_RETURNS = "which returns (module, inputs)"


class _Reached(Exception):
    """An input has reached the layer that was watched."""


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
        if type(model).forward is nn.Module.forward:
            raise UserCodeError(f"{type(model).__name__} has no forward; FILE.py:FUNCTION, {_RETURNS}, counts a part")
        self.signature = inspect.signature(model.forward)
        self.used: set[str] = set()
        self.notes: list[str] = []
        self.absent: list[str] = []
        # why no inputs were found with which the model runs
        self.refusal: str | None = None
        names = list(self.signature.parameters)
        self.tensors: dict[str, Any] = {}
        for key, tensor in given.items():
            if key.isdecimal() and int(key) >= len(names) or not (key.isdecimal() or key in names):
                raise UserCodeError(f"--input {key}: {self._signature()} has no such input")
            name = names[int(key)] if key.isdecimal() else key
            cast = tree_map_only(Tensor, lambda one: one.to(dtype) if one.is_floating_point() else one, tensor)
            self.tensors[name] = cast
        self.batch = self._length("batch_size", 1)

    def finish(self) -> dict[str, Any]:
        """Return the keyword inputs. Raise UserCodeError for what is missing, unused or too long."""
        required = {
            name
            for name, one in self.signature.parameters.items()
            if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
        }
        missing = [name for name in self.signature.parameters if name in required and not self._has(name)]
        if missing or not self.tensors:
            names = f": {', '.join(missing)}" if missing else ""
            kinds = (self.signature.parameters[name].annotation for name in missing)
            # an object of a class of the library, as the session of a video
            takes_object = any(inspect.isclass(kind) and "transformers" in kind.__module__ for kind in kinds)
            option = f"add --input {missing[0] if missing else 'NAME'}=SIZES, NAME=[VALUES] or NAME=@FILE.json, or "
            raise UserCodeError(
                f"{self._signature()} needs inputs that no configuration gives{names}; "
                f"{'' if takes_object else option}write FILE.py:FUNCTION, {_RETURNS}"
            )
        unused = [f"--{name.replace('_', '-')}" for name in self.lengths if name not in self.used]
        if unused:
            raise UserCodeError(f"{', '.join(unused)}: {self._signature()} has no input of that length")
        self._check_positions()
        return self.tensors

    def transformers(self) -> None:
        """Add images, videos, sound, token ids and series, as far as ``forward`` takes them."""
        vision = self._vision()
        self._add_images(vision)
        if self._needs("pixel_values_videos"):
            self._add("pixel_values_videos", lambda: self._video(vision))
        self._add_sound()
        self._add_text(vision)
        self._add_series()
        self._add_features()

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
            two_towers = vision is not self.config and not self._has_placeholders("image")
            default = first_field(text, "max_position_embeddings") if two_towers else None
            self._add_tokens("input_ids", "seq_len", default)
        for name in self.signature.parameters:
            is_read = name == "decoder_input_ids" or self._requires(name)
            if name.endswith("_input_ids") and is_read and not self._has(name):
                self._add_tokens(name, "tgt_len", self._optional("seq_len"))

    def _add_tokens(self, name: str, length: str, default: int | None) -> None:
        self._add(name, lambda: self._tokens(self._length(length, default), self._codebooks(name)))

    def _codebooks(self, name: str) -> int | None:
        """Return the tokens at each position: those of codebooks, whose ids an embedding adds offsets to; else None."""
        for path, offsets in self.model.named_buffers():
            owner, _, buffer = path.rpartition(".")
            is_read = {"input_ids", "audio_codes"} & _parameters(self.model.get_submodule(owner))
            if buffer.endswith("offsets") and is_read and not self._has_placeholders("audio"):
                return len(offsets) if name == self._ids_of(path) else None
        return None

    def _ids_of(self, path: str) -> str:
        """Return the name of the token ids that the part at ``path`` reads."""
        is_decoder = "decoder." in path and "decoder_input_ids" in self.signature.parameters
        return "decoder_input_ids" if is_decoder else "input_ids"

    def _placeholder(self, *kinds: str) -> int | None:
        """Return the token that stands for a part of an image or a sound in a text."""
        names = (f"{kind}_token_{what}" for kind in kinds for what in ("id", "index"))
        return next((token for name in names if (token := _find(self.config, name)) is not None), None)

    def _choose_placeholder(self, kind: str) -> int:
        """Set the token that stands for a part of an image where the configuration leaves it open: the last one."""
        names = [f"{kind}_token_{what}" for what in ("index", "id")]
        parts = [self.config, *(getattr(self.config, part, None) for part in self.config.sub_configs)]
        part, name = next((part, name) for part in parts for name in names if hasattr(part, name))
        token = self.config.get_text_config().vocab_size - 1
        setattr(part, name, token)
        self.notes.append(f"{name} is {token:,}, the last token: the configuration names none; --set {name}=N sets it")
        return token

    def _has_placeholders(self, *kinds: str) -> bool:
        """Return whether images or sounds have places in the text, even where the configuration gives no token."""
        names = [f"{kind}_token_{what}" for kind in kinds for what in ("id", "index")]
        parts = [self.config, *(getattr(self.config, part, None) for part in self.config.sub_configs)]
        has_names = any(hasattr(part, name) for part in parts for name in names)
        return "input_ids" in self.signature.parameters and has_names

    def _needs(self, name: str) -> bool:
        """Return whether an input that is no text is needed: it is required, or there is no text."""
        return self._requires(name) or "input_ids" not in self.signature.parameters

    def _requires(self, name: str) -> bool:
        one = self.signature.parameters.get(name)
        return one is not None and one.default is one.empty

    def _add_images(self, vision: Any) -> None:
        """Add images; of a model that reads text with placeholders as many as --images asks for."""
        taken = [name for name in _IMAGES if name in self.signature.parameters and "video" not in name]
        kind = next((kind for kind in ("image", "video") if self._has_placeholders(kind)), None)
        if kind and taken:
            number = self._length("images", int(any(map(self._requires, taken))))
            if number:
                self._add_placed_images(vision, kind, number)
            elif not any(map(self._has, taken)):
                self.absent.append("--images 1")
        elif "pixel_values" in taken or self._takes_patches():
            self._add_image("pixel_values", vision, 1)
        elif "flattened_patches" in taken:
            # a patch's row and column stand before its pixels
            width = 2 + self._first_layer("flattened_patches").in_features
            patches = first_field(vision, "seq_len", "max_num_patches")
            self._add("flattened_patches", lambda: self._floats(self.batch, patches, width))

    def _takes_patches(self) -> bool:
        return "grid_thw" in self.signature.parameters and "hidden_states" in self.signature.parameters

    def _add_image(self, name: str, vision: Any, number: int) -> int | None:
        """Add ``number`` images for each of the batch, and return the patches of an image where a grid gives them."""
        grids = [grid for grid in _GRIDS if grid in self.signature.parameters]
        images = self.batch * number
        if grids:
            name = name if name in self.signature.parameters else "hidden_states"
            merge, patch = self._merge(vision), self._patch(vision)
            # sides are rounded to whole merged patches, as the processor does
            grid = [max(1, round(side / (patch * merge))) * merge for side in self._image_size(vision)]
            patches, channels = grid[0] * grid[1], self._channels(vision)
            frames = first_field(vision, "temporal_patch_size")
            width = getattr(self._first_layer(name), "in_features", channels * (frames or 1) * patch**2)
            self._add(grids[0], lambda: torch.tensor([[1, *grid]] * images))
            self._add("merge_sizes", lambda: torch.tensor([merge] * images))
            sizes: tuple[int, ...] = (width,)
            if isinstance(self._first_layer(name), nn.Conv2d) and not self._reached(name, patches, width):
                sizes = (channels, patch, patch)
            self._add(name, lambda: self._floats(images * patches, *sizes))
            return patches
        if "spatial_shapes" in self.signature.parameters:
            patch = self._patch(vision)
            grid = [max(1, side // patch) for side in self._image_size(vision)]
            patches = grid[0] * grid[1]
            self._add(name, lambda: self._floats(images, patches, self._channels(vision) * patch**2))
            self._add("pixel_attention_mask", lambda: torch.ones(images, patches, dtype=torch.long))
            self._add("spatial_shapes", lambda: torch.tensor([grid] * images))
            return patches
        has_frames = first_field(vision, "tubelet_size", "num_frames") is not None
        self._add(name, lambda: self._video(vision) if has_frames else self._grouped(name, vision, number))
        if "target_sizes" in self.signature.parameters:
            grid = [max(1, side // self._patch(vision)) for side in self._image_size(vision)]
            self._add("target_sizes", lambda: torch.tensor([grid] * images))
        return None

    def _grouped(self, name: str, vision: Any, number: int) -> Tensor:
        """Return images, with an axis for those of a text, or for two that are compared, where the model reads such."""
        image, layer = self._image(vision, number), self._first_layer(name)
        if isinstance(layer, nn.Conv2d) and not self._reached(name, *image.shape):
            for pair in (1, 2):
                sizes = (self.batch, number * pair, *image.shape[1:])
                if self._reached(name, *sizes):
                    return self._floats(*sizes)
        return image

    def _patch(self, vision: Any) -> int:
        patch = first_field(vision, "patch_size")
        if patch is None:
            raise UserCodeError(
                f"the configuration gives no patch_size; add --input pixel_values=SIZES of {self._signature()}"
            )
        return patch if isinstance(patch, int) else patch[-1]

    def _merge(self, vision: Any) -> int:
        """Return how many patches, along a side, become one token."""
        merge = first_field(vision, "spatial_merge_size", "merge_kernel_size", "merge_size") or 1
        return merge if isinstance(merge, int) else merge[-1]

    def _video(self, vision: Any) -> Tensor:
        """Return videos (batch, frames, channels, height, width)."""
        frames = first_field(vision, "num_frames", "frames_per_clip") or FRAMES
        return self._floats(self.batch, frames, self._channels(vision), *self._image_size(vision))

    def _add_sound(self) -> None:
        """Add sound where the model needs it, or where --audio asks for some; with placeholders in a text."""
        names = [name for name in _SOUNDS if name in self.signature.parameters]
        if not names:
            return
        reads_text = "input_ids" in self.signature.parameters
        part = self._part("audio", "speech", "sound")
        placeholder = self._placeholder("audio", "speech")
        is_needed = any(map(self._needs, names)) or part is not None and not self._has_placeholders("audio", "speech")
        seconds = self._length("audio", 0)
        if not seconds and not is_needed:
            if not any(map(self._has, names)):
                self.absent.append("--audio 30")
            return
        for name in names:
            if self._requires(name) or name == names[0]:
                self._add(name, lambda name=name: self._sound(name, part or self.config, seconds or 1))
        sound = self.tensors[names[0]]
        frames = sound.shape[-1] if self._sound_layout(names[0]) == "channels" else sound.shape[1]
        self._add("audio_mel_mask", lambda: torch.zeros(self.batch, frames, dtype=torch.bool))
        for name in (f"{names[0]}_mask", "feature_attention_mask"):
            self._add(name, lambda: torch.ones(self.batch, frames, dtype=torch.long))
        self._add("is_longer", lambda: torch.zeros(self.batch, 1, dtype=torch.bool))
        if reads_text and placeholder is not None:
            given = {name: one for name, one in self.tensors.items() if name != "input_ids"}
            self._place(placeholder, 1, self._tokens_of("get_audio_features", given), "sound")

    def _sound_layout(self, name: str) -> str:
        """Return "samples", "channels" or "frames": what the first layer that reads a sound takes.

        Samples of a wave; spectra as channels of a convolution over time; spectra one after the other.
        """
        layer = self._first_layer(name)
        if name == "input_values" and "input_features" in self.signature.parameters:
            return "samples"
        if not isinstance(layer, nn.Conv1d):
            return "frames"
        if layer.in_channels <= MAX_CHANNELS:
            return "samples"
        return "frames" if self._reached(name, 1, FRAME_RATE, layer.in_channels) else "channels"

    def _reached(self, name: str, *sizes: int) -> bool:
        """Return whether an input of these sizes reaches the layer that reads it, with the width of that layer."""
        layer, seen = self._first_layer(name), []

        def stop(_: nn.Module, args: tuple) -> None:
            seen.append(tuple(args[0].shape))
            raise _Reached

        inputs = {name: torch.ones(sizes, dtype=self.dtype, device="meta")}
        with layer.register_forward_pre_hook(stop), suppress(Exception), torch.no_grad():
            reader = self._reader(name)
            taken = {key: one for key, one in self.tensors.items() if key in _parameters(reader)}
            reader(**{**taken, **inputs})
        if isinstance(layer, nn.Linear):
            return bool(seen) and seen[0][-1] == layer.in_features
        return bool(seen) and len(seen[0]) == layer.weight.dim() and seen[0][1] == layer.in_channels

    def _first_layer(self, name: str) -> nn.Module | None:
        kinds = nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.ConvTranspose1d | nn.Linear
        layers = [part for part in self._reader(name).modules() if isinstance(part, kinds)]
        # a part for text may stand before the one that reads a wave
        of_waves = (part for part in layers if isinstance(part, nn.Conv1d) and part.in_channels <= MAX_CHANNELS)
        first = layers[0] if layers else None
        is_wave = name == "input_values" and not isinstance(first, nn.Conv2d)
        return next(of_waves, first) if is_wave else first

    def _reader(self, name: str) -> nn.Module:
        """Return the outermost part that reads an input and no text."""
        names = ((part, _parameters(part)) for part in self.model.modules())
        return next((part for part, taken in names if name in taken and "input_ids" not in taken), self.model)

    def _sound(self, name: str, config: Any, seconds: int) -> Tensor:
        """Return sound: a wave (batch, samples) or (batch, channels, samples), or spectra over time."""
        layout, layer = self._sound_layout(name), self._first_layer(name)
        if "audio" not in self.lengths and not first_field(config, "max_source_positions", "spec_size", "max_length"):
            self.notes.append(f"{seconds} s of sound; --audio N gives it another length")
        if layout == "samples":
            samples = seconds * (first_field(config, "sampling_rate", "sample_rate") or SAMPLING_RATE)
            channels = [] if self._reached(name, 1, samples) else [getattr(layer, "in_channels", 1)]
            return self._floats(self.batch, *channels, samples)
        width = next((found for field in _SOUND_WIDTHS if (found := _find(config, field))), None)
        if isinstance(layer, nn.Linear) and "input_ids" not in _parameters(self._reader(name)):
            # it may read several spectra at once, which the model itself may put together
            is_read = width and self._reached(name, 1, FRAME_RATE, width)
            width = width if is_read else layer.in_features
        width = width or (BINS if isinstance(layer, nn.Conv2d) else layer.weight.shape[1])
        positions, spectrum = first_field(config, "max_source_positions"), first_field(config, "spec_size")
        if spectrum:
            # time is folded into the rows of an image
            return self._floats(self.batch, 1, spectrum**2 // width, width)
        frames = seconds * FRAME_RATE
        if layout == "channels":
            return self._floats(self.batch, width, 2 * positions if positions else frames)
        return self._floats(self.batch, first_field(config, "max_length") or frames, width)

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
            raise UserCodeError(f"--seq-len {length}: {what} of {tokens} tokens: the least is {taken}")

    def _add_series(self) -> None:
        """Add the past of a series of numbers."""
        config, length = self.config, first_field(self.config, "context_length")
        if length is None:
            return
        length += max(first_field(config, "lags_sequence") or [0])
        width = first_field(config, "num_input_channels", "input_size") or 1
        width = () if width == 1 and first_field(config, "num_input_channels") is None else (width,)
        self._add("past_values", lambda: self._floats(self.batch, length, *width))
        if times := first_field(config, "num_time_features"):
            self._add("past_time_features", lambda: self._floats(self.batch, length, times))
        if self._requires("past_observed_mask"):
            self._add("past_observed_mask", lambda: self._floats(self.batch, length, *width))
        if self._requires("past_values_padding"):
            self._add("past_values_padding", lambda: torch.zeros(self.batch, length, dtype=torch.long))
        if self._requires("freq"):
            self._add("freq", lambda: torch.zeros(self.batch, 1, dtype=torch.long))

    def _add_features(self) -> None:
        """Add what another model or a processor makes: features, boxes, embeddings, and masks that are required."""
        for table, make in ((_FEATURES, self._floats), (_INDICES, partial(torch.ones, dtype=torch.long))):
            for name, fields in table.items():
                if name in self.signature.parameters and not self._has(name):
                    sizes = [self._size(one) for one in fields]
                    if None not in sizes:
                        self._add(name, partial(make, self.batch, *sizes))
        if "image_embeds_position_mask" in self.signature.parameters:
            # the places of an image in a text without a token for them
            tokens, length = self.config.latent_query_num, self._length("seq_len")
            self._check_places(length, tokens + 1, tokens, "1 image")
            places = (torch.arange(length) < tokens).long().repeat(self.batch, 1)
            self._add("image_embeds_position_mask", lambda: places)
        for name in filter(self._requires, self.signature.parameters):
            ids = self.tensors.get(name.replace("attention_mask", "input_ids"))
            if name.endswith(("embeds", "latents", "hidden_states")):
                self._add(name, lambda name=name: self._embeddings(name))
            elif name.endswith("attention_mask") and ids is not None:
                self._add(name, partial(torch.ones_like, ids))

    def _size(self, one: int | str) -> int | None:
        """Return a size: a number, the length of the text, or a field of the configuration; None where it has none."""
        if isinstance(one, int):
            return one
        text = next((self.tensors[name] for name in ("input_ids", "inputs_embeds") if name in self.tensors), None)
        if one == "seq_len":
            return self._length(one) if text is None else _text_length(text)
        return first_field(self.config, one)

    def _embeddings(self, name: str) -> Tensor:
        """Return embeddings of the width that the first layer reads: the last axis, or a convolution's channels."""
        layer, length = self._first_layer(name), self._length("seq_len")
        if isinstance(layer, nn.Conv1d | nn.ConvTranspose1d):
            return self._floats(self.batch, layer.in_channels, length)
        return self._floats(self.batch, length, getattr(layer, "in_features", None) or self.config.hidden_size)

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
        placeholder = self._placeholder(kind)
        if placeholder is None:
            placeholder = self._choose_placeholder(kind)
        tiled = {"aspect_ratio_ids", "pixel_attention_mask"} & set(self.signature.parameters)
        if tiled or first_field(self.config, "image_grid_pinpoints"):
            raise UserCodeError(f"--images: images of {self._signature()} are tiled: add --input pixel_values=SIZES")
        if kind == "video":
            self._add("pixel_values", lambda: self._video(vision))
        patches = self._add_image("pixel_values", vision, number)
        if patches is not None:
            tokens = patches // self._merge(vision) ** 2
        else:
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
        if size is None:
            self.notes.append(f"images of {IMAGE_SIZE} pixels: the configuration gives no size; --image-size N sets it")
        return self._sides(size or IMAGE_SIZE)

    def _timm_size(self) -> list[int] | None:
        """Return height and width of the images of a part from timm."""
        settings = (getattr(part, "pretrained_cfg", None) for part in self.model.modules())
        return next((list(one["input_size"][1:]) for one in settings if isinstance(one, Mapping)), None)

    def _sides(self, size: Any) -> list[int]:
        return (
            list(size[-2:]) * (3 - len(size[-2:]))
            if isinstance(size, list | tuple)
            else [self._length("image_size", size)] * 2
        )

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
            flag = f"--{name.replace('_', '-')}"
            example = "T=128" if name == "seq_len" else f"{name}=N"
            raise UserCodeError(f"{self._signature()} needs {flag}, or {example} behind the configuration's name")
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
