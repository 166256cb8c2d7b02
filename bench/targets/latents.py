"""Make the inputs of a model of diffusers: latents, a text's embeddings, times, positions, and what conditions them.

The kind of an input follows from its name, and its lengths from the configuration. The order of its axes and the
number of its channels are those that the first layer takes which reads it: trial runs without values find them.
"""

import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from headcount.bench.targets.input_search import Candidate, Candidates, Search
from headcount.bench.targets.model_inputs import Inputs, first_field

TEXT_TOKENS = 512
"""Tokens of a text where neither the user nor the configuration gives them, as T5's in Flux and Wan."""
VAE_FACTOR = 8
"""Pixels of an image for each latent, along a side, of the autoencoders of Stable Diffusion and Flux."""
IMAGE_SIZE = 512
"""Height and width of an image in pixels where neither the user nor the configuration gives them."""
FRAMES = 17
"""Frames of a film where the configuration does not give them."""
SOUND_LATENTS = 256
"""Latents of a sound where the configuration does not give them."""
SECONDS = 1
"""Length of a sound that an autoencoder codes."""
MAX_SIDE = 4096
"""The most pixels along a side: a longer sample_size is that of a sound."""
CHANNELS = 16
"""Channels of an input before the layer that reads it is known."""

TIMES = ("B:long", "BF:long", "BN:long", "B1F:long")
LATENTS = ("BNC", "BCHW", "BCFHW", "BFCHW", "BC1HW", "BCT", "BFHWC", "BTC", "BPC", "BNCpqr", "BC")
SPECTRA = ("BCTM", "BCT", "Bt")
CONDITIONS = ("BNC", "BCHW", "BChw", "BCFHW", "BFCHW", "BCEHW", "BCFhw", "BCGhw", "BCT", "BTC")
TEXTS = ("BSC", "BLSC", "BSLC", "B1SC", "XSC", "BPC", "BTC")
VECTORS = ("BC", "B1C")
MASKS = ("BS:long", "BS:bool", "BN:long", "BN:bool")
"""Layouts, the likeliest first: an axis a letter, then the type where it is not that of the weights.

B batch, C channels, N places of an image or a film, H and W its latents along a side, h and w its pixels, F frames, E
frames after the first, G those of a film whose latents E are, X frames of the batch, p, q and r sides of a patch, T
time of a sound, t its samples, M bins of its spectrum, S places of a text, L layers of the model that made its
embeddings, P places of text and image, V of a text with one for four of an image, A axes of a position, D channels of
all heads, I numbers that describe an image, and digits. The type "image" is a mask of an image after a text.
"""
_KINDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"^(t|fps|ofs|sigma)$|timestep(_r|_ratio)?$|_time$", TIMES),
    (r"^guidance$", ("B",)),
    (r"^class_labels$|_lens$", ("B:long",)),
    (r"^(original|target)_size$|^crop_coords$", ("B2",)),
    (r"^micro_conds$|^added_time_ids$", ("BI",)),
    (r"^img_ids$", ("NA:float32",)),
    (r"^txt_ids$", ("SA:float32",)),
    (r"^position_ids$", ("PA:long", "BPA:long")),
    (r"rotary_emb(edding)?$", ("BND", "ND")),
    (r"^indices_", ("F:long", "BF:long")),
    (r"^segment_ids$|^indicator$", ("BP:long",)),
    (r"^text_(rope_pos|indices)$", ("S:long",)),
    (r"^video_indices$", ("N:long",)),
    (r"^audio_indices$", ("T:long",)),
    (r"^timestep_indices$|^token_tags$", ("P:long",)),
    (r"input_ids$|token_ids?$", ("BS:long", "BN:long", "BHW:long")),
    (r"_drop$", ("BN:bool",)),
    (r"^img_mask$", ("BV:image",)),
    (r"^condition(ing)?_mask$", ("B1FHW",)),
    (r"^padding_mask$", ("B1HW", "BN:bool")),
    (r"mask(_\d)?$", MASKS),
    (r"^(hidden_states|sample|latents|z|x|mel)$", LATENTS),
    (r"pooled|^timestep_cond$|proj_embedding$|image_embeddings$|^global_", VECTORS),
    (r"cond$|latents$|^(pose|control)_hidden_states$|pixel_values$", CONDITIONS),
    (r"hidden_states|embeds$|embeddings$|feats$|_bth$|^text_encoder_layers$", TEXTS),
)
"""Layouts of an input by its name."""
_USUAL = re.compile(r"^(t|timestep|img_ids|txt_ids|sample|hidden_states|encoder_hidden_states|pooled_projections)$")
"""Inputs that are given though ``forward`` has a default for them."""
_IF_FIELD = {"guidance": ("guidance_embeds",), "class_labels": ("num_class_embeds", "num_embeds_ada_norm")}
"""Inputs that are given where the configuration has one of these fields."""
_WIDTHS = {
    LATENTS: (
        "audio_acoustic_hidden_dim", "in_channels", "in_visual_dim", "in_dim", "input_channels", "audio_channels",
        "num_channels", "encoder_in_channels",
    ),
    TEXTS: ("text_embed_dim", "joint_attention_dim", "text_dim", "context_in_dim", "cross_attention_dim"),
    VECTORS: ("pooled_projection_dim",),
}  # fmt: skip
"""Fields of the number of channels, where a first guess comes from."""


class LatentInputs(Inputs):
    """Inputs of a model of diffusers."""

    def diffusers(self) -> None:
        """Add what ``forward`` needs."""
        self._assumed: dict[str, str] = {}
        self._is_run = False
        self._sizes = self._axis_sizes()
        self._add_values()
        candidates, optional = {}, []
        for name in self.signature.parameters:
            has_field = any(first_field(self.config, field) for field in _IF_FIELD.get(name, ()))
            if self._requires(name) or _USUAL.search(name) or has_field:
                if candidate := self._latent(name):
                    candidates[name] = candidate
            elif name not in _IF_FIELD:
                optional.append(name)
        if all(self._has(name) or name in candidates for name in filter(self._requires, self.signature.parameters)):
            candidates = self._fit(candidates, optional)
        for name, candidate in candidates.items():
            self.tensors[name] = candidate.make(self.dtype)
        self._note_lengths("".join(one.axes for one in candidates.values()))

    def search_all(self) -> dict[str, Any] | None:
        """Return the inputs where a trial run with them came to its end, else None."""
        return self.tensors if self._is_run else None

    @property
    def image_side(self) -> int:
        """The longest side of an image in pixels."""
        return self._pixels

    def other_lengths(self, name: str) -> Iterator[int]:
        """Iterate over other values of a length, the likeliest first."""
        yield from (self.image_side // 2, 2 * self.image_side) if name == "image_size" else super().other_lengths(name)

    def _axis_sizes(self) -> dict[str, int]:
        """Return the sizes of the axes of layouts, but for channels."""
        config, names = self.config, self.signature.parameters
        is_denoiser = self._is_denoiser = any(re.search(_KINDS[0][0], name) for name in names)
        is_latent = is_denoiser or "sample" not in names and "x" not in names
        factor = (first_field(config, "spatial_compression_ratio") or VAE_FACTOR) if is_latent else 1
        height, width = self._side(factor)
        self._pixels = max(height, width) * factor
        # frames that are divided into chunks, or overlapping clips
        chunks = sum(first_field(config, "chunk_partition") or ()) or 2 * (first_field(config, "clip_length") or 0)
        given = first_field(config, "sample_frames", "num_frames")
        # by the library's names of classes
        is_image = re.search("2D|Image", type(self.model).__name__)
        default, what = (1, "frame") if is_image else (FRAMES, "frames")
        frames = chunks or self._assume("F", given, default, f"{what} (--input)")
        ratio = first_field(config, "temporal_compression_ratio") if is_latent else None
        frames = (frames - 1) // ratio + 1 if ratio else frames
        places = frames * height * width if "num_frames" in names else (height // 2) * (width // 2)
        fields = ("max_text_seq_length", "max_sequence_length", "text_len", "num_embeddings", "max_position_embeddings")
        length = first_field(config, *fields)
        text = self._optional("seq_len") or self._assume("S", length, TEXT_TOKENS, "tokens of a text (--seq-len)")
        axes = first_field(config, "axes_dims_rope", "axes_dims", "axes_dim_rope", "rope_axes_dim", "mrope_section")
        described = first_field(config, "projection_class_embeddings_input_dim", "micro_cond_embed_dim") or 1
        described //= first_field(config, "addition_time_embed_dim", "micro_cond_encode_dim") or 1
        injected = first_field(config, "injection_layer_ids") or ()
        patch = first_field(config, "patch_size") or 1
        patch = patch if isinstance(patch, list | tuple) and len(patch) == 3 else (1, patch, patch)
        return {
            "t": self._samples(), "B": self.batch, "X": self.batch * frames, "N": places, "F": frames, "E": frames - 1,
            "G": 4 * (frames - 2) + 1,
            "D": (first_field(config, "num_attention_heads") or 1) * (first_field(config, "attention_head_dim") or 1),
            "H": height, "W": width, "S": text, "P": text + places + ("audio_indices" in names) * self._time(),
            "h": height * VAE_FACTOR, "w": width * VAE_FACTOR, "T": self._time(),
            "M": first_field(config, "mel_bins") or 1, "L": first_field(config, "num_text_layers") or 1 + len(injected),
            "V": text + places // 4, "A": len(axes or "thw"), "I": described, "1": 1, "2": 2,
            "p": patch[0], "q": patch[1], "r": patch[2],
        }  # fmt: skip

    def _side(self, factor: int) -> list[int]:
        """Return height and width in latents, or in pixels where the factor is 1."""
        config = self.config
        if side := self._optional("image_size"):
            if factor > 1:
                self.notes.append(f"an image of {side} pixels has {side // factor} latents along a side")
            return [side // factor] * 2
        size = first_field(config, "sample_size")
        if isinstance(size, int) and size > MAX_SIDE:
            size = None
        if size is None and (height := first_field(config, "sample_height")):
            size = [height, first_field(config, "sample_width") or height]
        what = "pixels along a side" if factor == 1 else f"latents along a side of {IMAGE_SIZE} pixels"
        return self._sides(size or self._assume("H", None, IMAGE_SIZE // factor, f"{what} (--image-size)"))

    def _time(self) -> int:
        """Return samples of a wave, spectra or latents of a sound."""
        samples = self._samples()
        if not samples or "sample" not in self.signature.parameters or self._is_denoiser:
            size = first_field(self.config, "sample_size", "targets_length")
            return self._assume("T", size, SOUND_LATENTS, "latents of a sound (--input)")
        hop = first_field(self.config, "mel_hop_length", "hop_length") if first_field(self.config, "mel_bins") else None
        return samples // (hop or 1)

    def _samples(self) -> int:
        """Return samples of a wave; 0 where the configuration does not say how many a second has."""
        rate = first_field(self.config, "sampling_rate", "sample_rate")
        if rate is None:
            return 0
        return rate * (self._optional("audio") or self._assume("T", None, SECONDS, "s of a sound (--audio)"))

    def _assume(self, axis: str, given: Any, default: int, what: str) -> int:
        if isinstance(given, int):
            return given
        self._assumed[axis] = f"{default} {what}"
        return default

    def _note_lengths(self, axes: str) -> None:
        """Note which lengths of the layouts were assumed; an option for another length was not used."""
        used = {"T"} if {*axes} & {*"Tt"} else set()
        used |= {"S"} if {*axes} & {*"SPV"} else set()
        used |= {"H"} if {*axes} & {*"NPVHh"} else set()
        used |= {"F"} if {*axes} & {*"FEGX"} or "num_frames" in self.signature.parameters else set()
        for axis, option in {"S": "seq_len", "H": "image_size", "T": "audio"}.items():
            if axis not in used:
                self.used.discard(option)
        if assumed := [text for axis, text in self._assumed.items() if axis in used]:
            self.notes.append(f"assumed: {', '.join(assumed)}")

    def _add_values(self) -> None:
        """Add numbers and shapes: those of the film, and what a field of the configuration is called like."""
        sizes, config = self._sizes, self.config
        for name in filter(self._requires, self.signature.parameters):
            value = first_field(config, name, f"{name}s")
            if isinstance(value, list | tuple) and not hasattr(config, name):
                # a choice of several
                value = value[0]
            if not _layouts(name) and value is not None:
                self._add(name, lambda value=value: value)
            elif name == "visual_rope_pos":
                patch = zip("FHW", first_field(config, "patch_size"), strict=True)
                self._add(name, lambda patch=patch: tuple(torch.arange(sizes[axis] // side) for axis, side in patch))
        self._add("audio_num_frames", lambda: sizes["S"])
        if "hidden_states" in self.signature.parameters:
            for name, axis in (("num_frames", "F"), ("height", "H"), ("width", "W")):
                self._add(name, lambda axis=axis: sizes[axis])
        for name in {"img_shapes", "shape_list"} & self.signature.parameters.keys():
            shape: Any = (1, sizes["H"] // 2, sizes["W"] // 2)
            is_nested = "list[list" in str(self.signature.parameters[name].annotation)
            self._add(name, lambda shape=[shape] if is_nested else shape: [shape] * self.batch)
        if first_field(config, "addition_embed_type") == "text_time":
            width = config.projection_class_embeddings_input_dim - 6 * config.addition_time_embed_dim
            pooled = {"text_embeds": self._floats(self.batch, width), "time_ids": self._floats(self.batch, 6)}
            self._add("added_cond_kwargs", lambda: pooled)
        if any(path.endswith("resolution_embedder") for path, _ in self.model.named_modules()):
            shape = {"resolution": self._floats(self.batch, 2), "aspect_ratio": self._floats(self.batch, 1)}
            self._add("added_cond_kwargs", lambda: shape)

    def _latent(self, name: str) -> Candidate | None:
        """Return an input whose layout is looked for, None where it is given or its kind is not known."""
        layouts, annotation = _layouts(name), str(self.signature.parameters[name].annotation)
        if name in self.tensors or not layouts:
            return None
        channels = first_field(self.config, *_WIDTHS.get(layouts, ()))
        if layouts is LATENTS and first_field(self.config, "mel_bins"):
            layouts = SPECTRA
        if channels is None and layouts in (LATENTS, SPECTRA):
            # of an autoencoder the first layer reads the input
            layers = (part for part in self.model.modules() if isinstance(part, nn.Conv1d | nn.Conv2d | nn.Conv3d))
            channels = getattr(next(layers, None), "in_channels", None)
        is_known = isinstance(channels, int)
        listed = None
        if annotation == "<class 'list'>":
            listed = sum(first_field(self.config, field) or 0 for field in ("num_layers", "num_single_layers"))
        elif re.match(r"(typing\.)?[Ll]ist\[", annotation):
            listed = 0
        elif "rotary" in name:
            # cosines and sines
            listed = 2
        return Candidate(layouts, layouts[0], channels if is_known else CHANNELS, is_known, self._sizes, listed)

    def _fit(self, candidates: Candidates, optional: list[str]) -> Candidates:
        fields = vars(self.config).items()
        widths = [one for field, one in fields if type(one) is int and one and field.endswith(("channels", "dim"))]
        added = {name: one for name in optional if (one := self._latent(name))}
        # a decoder may refuse what an encoder has read
        search = Search(self.model, self.tensors, self.dtype, added, widths, stops_early=self._is_denoiser)
        found = search.fit(candidates)
        self._is_run = search.is_run
        for name in set(added) - set(found):
            # a mask of a text that was needed too
            if name.replace("attention_mask", "hidden_states") in found.keys() & added.keys():
                found[name] = added[name]
        if search.misfit:
            reads, takes = search.misfit
            self.refusal = f"this configuration: a layer of {takes:,} channels reads {reads:,}"
        return found


def _layouts(name: str) -> tuple[str, ...]:
    return next((layouts for pattern, layouts in _KINDS if re.search(pattern, name)), ())
