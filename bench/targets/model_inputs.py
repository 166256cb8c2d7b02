"""Make the inputs that a model's forward needs, by its signature and its configuration."""

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from headcount.bench.targets.user_code import UserCodeError

MAX_TOKENS = 1000
"""Different tokens in a text at most."""
VAE_FACTOR = 8
"""Pixels of an image for each latent, along a side, of the autoencoders of Stable Diffusion and Flux."""


_POSITIONS = re.compile(r"(wpe|position_embeddings?|embed_positions)$")
"""Paths of learned position tables."""


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
        self.used: set[str] = set()
        self.notes: list[str] = []
        names = list(self.signature.parameters)
        self.tensors: dict[str, Any] = {}
        for key, tensor in given.items():
            if key.isdecimal() and int(key) >= len(names) or not (key.isdecimal() or key in names):
                raise UserCodeError(f"--input {key}: {self._signature()} has no such input")
            name = names[int(key)] if key.isdecimal() else key
            self.tensors[name] = tensor.to(dtype) if tensor.is_floating_point() else tensor
        self.batch = self._length("batch_size", 1)

    def finish(self) -> dict[str, Any]:
        """Return the keyword inputs. Raise UserCodeError for what is missing, unused or too long."""
        required = [
            name
            for name, one in self.signature.parameters.items()
            if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
        ]
        main = getattr(self.model, "main_input_name", None)
        if not self.tensors or not set(required) <= set(self.tensors) or (main and not self._has(main)):
            raise UserCodeError(f"{self._signature()} needs inputs that no configuration gives: add --input NAME=SIZES")
        unused = [f"--{name.replace('_', '-')}" for name in self.lengths if name not in self.used]
        if unused:
            raise UserCodeError(f"{', '.join(unused)}: {self._signature()} has no input of that length")
        self._check_positions()
        return self.tensors

    def transformers(self) -> None:
        """Add token ids, decoder ids, images, log-mel features; images of a vision-language model with placeholders."""
        config, text = self.config, self.config.get_text_config()
        vision = next((part for name in ("vision_config", "encoder") if (part := getattr(config, name, None))), config)
        placeholder = _first(config, "image_token_id", "image_token_index")
        reads_text = "input_ids" in self.signature.parameters
        if "pixel_values" in self.signature.parameters and reads_text and placeholder is not None:
            self._add_images(vision, placeholder)
        else:
            self._add("pixel_values", lambda: self._image(vision))
        if reads_text and not self._has("input_ids"):
            two_towers = placeholder is None and vision is not config
            default = _first(text, "max_position_embeddings") if two_towers else None
            self._add("input_ids", lambda: self._tokens(self._length("seq_len", default)))
        mels, frames = _first(config, "num_mel_bins"), _first(config, "max_source_positions")
        if mels and frames:
            self._add("input_features", lambda: self._floats(self.batch, mels, 2 * frames))
        self._add("decoder_input_ids", lambda: self._tokens(self._length("tgt_len", self._optional("seq_len"))))

    def diffusers(self) -> None:
        """Add latents, timesteps, the text's embeddings and the image's positions."""
        config = self.config
        if "img_ids" in self.signature.parameters:
            tokens = (self._length("image_size") // (2 * VAE_FACTOR)) ** 2
            self._add("hidden_states", lambda: self._floats(self.batch, tokens, config.in_channels))
            self._add("img_ids", lambda: torch.zeros(tokens, 3))
            self._add("txt_ids", lambda: torch.zeros(self._length("seq_len"), 3))
        for name in ("sample", "hidden_states"):
            self._add(name, lambda: self._floats(self.batch, config.in_channels, *self._latent_side()))
        self._add("timestep", lambda: torch.ones(self.batch, dtype=torch.long))
        if width := _first(config, "cross_attention_dim", "joint_attention_dim"):
            self._add("encoder_hidden_states", lambda: self._floats(self.batch, self._length("seq_len"), width))
        if width := _first(config, "pooled_projection_dim"):
            self._add("pooled_projections", lambda: self._floats(self.batch, width))
        if _first(config, "guidance_embeds"):
            self._add("guidance", lambda: self._floats(self.batch))
        if _first(config, "addition_embed_type") == "text_time":
            width = config.projection_class_embeddings_input_dim - 6 * config.addition_time_embed_dim
            pooled = {"text_embeds": self._floats(self.batch, width), "time_ids": self._floats(self.batch, 6)}
            self._add("added_cond_kwargs", lambda: pooled)

    def timm(self) -> None:
        """Add the image."""
        channels, *size = self.config["input_size"]
        side = self._optional("image_size")
        name = next(iter(self.signature.parameters))
        self._add(name, lambda: self._floats(self.batch, channels, *([side] * 2 if side else size)))

    def _add_images(self, vision: Any, placeholder: int) -> None:
        """Add images and their placeholder tokens, at the start of each text, where --images asks for some."""
        number = self._length("images", 0)
        if not number or self._has("pixel_values"):
            return
        tiled = {"aspect_ratio_ids", "pixel_attention_mask"} & set(self.signature.parameters)
        if tiled or _first(self.config, "image_grid_pinpoints"):
            raise UserCodeError(f"--images: images of {self._signature()} are tiled: add --input pixel_values=SIZES")
        if "image_grid_thw" in self.signature.parameters:
            # sides are rounded to whole merged patches, as the processor does
            merge, patch = vision.spatial_merge_size, vision.patch_size
            grid = [max(1, round(side / (patch * merge))) * merge for side in self._image_size(vision)]
            patches, width = grid[0] * grid[1], self._channels(vision) * vision.temporal_patch_size * patch**2
            self._add("pixel_values", lambda: self._floats(self.batch * number * patches, width))
            self._add("image_grid_thw", lambda: torch.tensor([[1, *grid]] * (self.batch * number)))
            tokens = patches // merge**2
        else:
            self._add("pixel_values", lambda: self._image(vision, number))
            rows, columns = (side // vision.patch_size for side in self._image_size(vision))
            full = _first(self.config, "vision_feature_select_strategy") == "full"
            tokens = _first(self.config, "mm_tokens_per_image") or rows * columns + full
        # a text token follows each image, which ends it
        length, taken = self._length("seq_len"), number * (tokens + 1)
        images = "1 image" if number == 1 else f"{number} images"
        if length < taken:
            raise UserCodeError(f"--seq-len {length}: {images} of {tokens} tokens: the least is {taken}")
        ids = self._tokens(length)
        for start in range(0, taken, tokens + 1):
            ids[:, start : start + tokens] = placeholder
        self.tensors["input_ids"] = ids
        self._add("mm_token_type_ids", lambda: (ids == placeholder).int())
        self._add("token_type_ids", lambda: (ids == placeholder).int())
        self.notes.append(f"{number * tokens:,} of {length:,} tokens are placeholders of {images}")

    def _image(self, vision: Any, number: int = 1) -> Tensor:
        return self._floats(self.batch * number, self._channels(vision), *self._image_size(vision))

    def _channels(self, vision: Any) -> int:
        return _first(vision, "num_channels", "in_channels", "in_chans") or 3

    def _image_size(self, vision: Any) -> list[int]:
        """Return height and width: the user's, the configuration's, or the preprocessor's."""
        if side := self._optional("image_size"):
            return [side, side]
        size = _first(vision, "image_size")
        if size is None:
            found = self.preprocessor()
            size = found.get("crop_size" if found.get("do_center_crop") else "size")
        if isinstance(size, Mapping):
            size = [size["height"], size["width"]] if "height" in size else size.get("shortest_edge")
        return self._sides(size)

    def _latent_side(self) -> list[int]:
        if side := self._optional("image_size"):
            self.notes.append(f"an image of {side} pixels has {side // VAE_FACTOR} latents along a side")
            return [side // VAE_FACTOR] * 2
        return self._sides(_first(self.config, "sample_size"))

    def _sides(self, size: Any) -> list[int]:
        return list(size) if isinstance(size, list | tuple) else [self._length("image_size", size)] * 2

    def _tokens(self, length: int) -> Tensor:
        """Return token ids (batch, length): tokens without a special meaning in turns, so that routers see several."""
        fields = self.config.to_dict() | self.config.get_text_config().to_dict()
        # some of these are lists
        special = tree_leaves([value for name, value in fields.items() if name.endswith(("_token_id", "_token_index"))])
        size = min(fields.get("vocab_size") or MAX_TOKENS, MAX_TOKENS)
        ordinary = torch.tensor([token for token in range(size) if token not in special])
        return ordinary[torch.arange(self.batch * length) % len(ordinary)].view(self.batch, length)

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
            raise UserCodeError(f"{self._signature()} needs --{name.replace('_', '-')}")
        return value

    def _signature(self) -> str:
        names = [name for name, one in self.signature.parameters.items() if one.kind != one.VAR_KEYWORD]
        return f"{type(self.model).__name__}.forward({', '.join(names)})"

    def _check_positions(self) -> None:
        """Raise UserCodeError where a text is longer than a table of positions: on meta no lookup fails."""
        for path, table in self.model.named_modules():
            if not (isinstance(table, nn.Embedding) and _POSITIONS.search(path)):
                continue
            name = "decoder_input_ids" if "decoder." in path and "decoder_input_ids" in self.tensors else "input_ids"
            if name not in self.tensors or "vision" in path:
                continue
            # positions of RoBERTa begin after the padding's, those of OPT and BART at an offset
            first = getattr(table, "offset", 0) or (0 if table.padding_idx is None else table.padding_idx + 1)
            length, places = self.tensors[name].shape[-1], table.num_embeddings - first
            if length > places:
                raise UserCodeError(f"{name} has {length:,} tokens, and {path} has {places:,} positions")


def _first(config: Any, *names: str) -> Any:
    """Return the first field of ``names`` that the configuration has, None where it has none."""
    return next((value for name in names if (value := getattr(config, name, None)) is not None), None)
