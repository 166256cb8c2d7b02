"""Make the inputs of a model of diffusers: latents, a text's embeddings, times, positions, and what conditions them.

The kind of an input follows from its name, and its lengths from the configuration. The order of its axes and the
number of its channels are those that the first layer takes which reads it: trial runs without values find them.
"""

import copy
import heapq
import math
import re
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

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
MAX_VALUES = 2**16
"""Elements up to which inputs keep their values in trial runs."""
NO_VALUES = "a tensor has no values"
"""Error of a trial run that reads values."""
RUNS, CALLS = 500, 50_000
"""The most trial runs, and the most calls in all of them."""

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
embeddings, P places of text and image, Q with those of a sound, V of a text with one for four of an image, A axes of a
position, D channels of all heads, I numbers that describe an image, and digits. The type "no" is a mask that selects
nothing, "image" one of an image after a text.
"""
_KINDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"^(t|fps|ofs|sigma)$|timestep(_r|_ratio)?$|_time$", TIMES),
    (r"^guidance$", ("B",)),
    (r"^class_labels$|_lens$", ("B:long",)),
    (r"^(original|target)_size$|^crop_coords$", ("B2",)),
    (r"^micro_conds$|^added_time_ids$", ("BI",)),
    (r"^img_ids$", ("NA:float32",)),
    (r"^txt_ids$", ("SA:float32",)),
    (r"^position_ids$", ("PA:long", "BPA:long", "QA:long")),
    (r"rotary_emb(edding)?$", ("BND", "ND")),
    (r"^indices_", ("F:long", "BF:long")),
    (r"^segment_ids$|^indicator$", ("BF:long", "BP:long")),
    (r"^video_indices$", ("N:long",)),
    (r"^(audio|text)_indices$|^text_rope_pos$", ("S:long",)),
    (r"_indices$|_tags$", ("Q:long",)),
    (r"^decoder_input_tokens$", ("BTC",)),
    (r"input_ids$|token_ids?$", ("BS:long", "BN:long", "BHW:long")),
    (r"_drop$", ("BN:no",)),
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


@dataclass(frozen=True)
class Candidate:
    """An input whose layout and number of channels are looked for.

    Attributes:
        layouts: those that its kind may have; ``layout`` is the present one.
        channels: the size of the axis C; ``is_known`` says that the configuration gives it.
        sizes: of the other axes.
        listed: a list of so many tensors; 0 says as many as the batch, without its axis.
    """

    layouts: tuple[str, ...]
    layout: str
    channels: int
    is_known: bool
    sizes: Mapping[str, int]
    listed: int | None = None

    @property
    def axes(self) -> str:
        """The letters of the present layout."""
        return self.layout.partition(":")[0]

    def make(self, dtype: torch.dtype, most: int | None = None) -> Any:
        """Return the input, without values where it has more than ``most`` elements."""
        name = self.layout.partition(":")[2]
        sizes = [self.channels if axis == "C" else self.sizes[axis] for axis in self.axes]
        if name in ("no", "image"):
            first = self.sizes["S"] if name == "image" else sizes[-1]
            return (torch.arange(sizes[-1]) >= first).expand(sizes)
        dtype = getattr(torch, name) if name else dtype
        device = "cpu" if most is None or math.prod(sizes) <= most else "meta"
        if self.listed is None:
            return torch.ones(sizes, dtype=dtype, device=device)
        sizes = sizes if self.listed else sizes[1:]
        return [torch.ones(sizes, dtype=dtype, device=device) for _ in range(self.listed or self.sizes["B"])]


Candidates = dict[str, Candidate]
"""Inputs by name."""


@dataclass(order=True)
class Attempt:
    """Inputs with which a model failed.

    Attributes:
        rank: the less, the further the run came; then the order of the runs.
        inputs: the inputs.
        error: what was raised, with the lines of the code.
        misfit: that of Readers.
        others: inputs that may let a run come further.
    """

    rank: tuple[int, ...]
    inputs: Candidates = field(compare=False)
    error: str = field(compare=False)
    misfit: tuple[int, int] | None = field(compare=False)
    others: Iterator[Candidates] = field(compare=False)


class _Misread(Exception):
    """A layer takes another number of channels or of axes than an input has."""


class _Enough(Exception):
    """All inputs are read."""


class Readers(TorchFunctionMode):
    """Run without values, and note for each input the size that the first layer to read it finds and the one it takes.

    Attributes:
        sizes: both by the input's name; None where the layer takes another number of axes.
        misfit: the same of a linear layer that takes other channels, after others read all inputs on which it depends.
        last: the inputs on which the last call depended.
        calls: how many calls depended on inputs.
    """

    def __init__(self, inputs: Mapping[str, Any]) -> None:
        super().__init__()
        self.sizes: dict[str, tuple[int, int] | None] = {}
        self.misfit: tuple[int, int] | None = None
        self.last: set[str] = set()
        self.calls = 0
        # tensors are kept: one that is made later could have the identity of one that is gone
        self._names: dict[int, tuple[Tensor, set[str]]] = {}
        for name, given in inputs.items():
            self._remember(given, {name})

    def wrong(self) -> list[str]:
        """Return the inputs of other sizes than their layers take."""
        return [name for name, sizes in self.sizes.items() if sizes is None or sizes[0] != sizes[1]]

    def _remember(self, result: Any, names: set[str]) -> None:
        for tensor in _tensors(result):
            self._names[id(tensor)] = (tensor, names | self._names_of(tensor))

    def _names_of(self, tensor: Tensor) -> set[str]:
        return self._names[id(tensor)][1] if id(tensor) in self._names else set()

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        tensors = list(_tensors((args, kwargs)))
        names = set().union(*map(self._names_of, tensors))
        if names:
            self.calls += 1
            self.last = names
            for sizes in _layer_sizes(function, args, kwargs):
                is_read = self._names_of(args[0]) <= self.sizes.keys()
                if is_read and function is F.linear and sizes and sizes[0] != sizes[1]:
                    self.misfit = sizes
                for name in self._names_of(args[0]):
                    self.sizes.setdefault(name, sizes)
            if self.wrong():
                raise _Misread(*self.wrong())
        # small inputs keep their values until they meet a tensor that has none
        if any(tensor.is_meta for tensor in tensors) or sum(tensor.numel() for tensor in tensors) > MAX_VALUES:
            if function in (Tensor.__getitem__, Tensor.__setitem__):
                args = (args[0], _positions(args[1]), *args[2:])
            args, kwargs = tree_map(_on_meta, (args, kwargs))
        result = function(*args, **kwargs)
        if names:
            self._remember(result, names)
        return result


def _tensors(tree: Any) -> Iterable[Tensor]:
    return (leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor))


def _positions(index: Any) -> tuple[Any, ...]:
    """Return an index with the positions that its masks with values select."""
    found: list[Any] = []
    for part in index if isinstance(index, tuple) else (index,):
        has_values = isinstance(part, Tensor) and part.dtype == torch.bool and not part.is_meta
        found += part.nonzero(as_tuple=True) if has_values else (part,)
    return tuple(found)


def _on_meta(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.to("meta")
    return torch.device("meta") if isinstance(value, torch.device) else value


def _layer_sizes(function: Any, args: tuple, kwargs: Mapping[str, Any]) -> list[tuple[int, int] | None]:
    """Return, for a layer, the channels that it finds and those that it takes, or None; an empty list for no layer."""
    name = getattr(function, "__name__", "")
    if len(args) < 2 or not isinstance(args[0], Tensor):
        return []
    read, weight = args[:2]
    if name == "linear":
        return [(read.shape[-1], weight.shape[-1])]
    if name in ("layer_norm", "rms_norm"):
        return [(read.shape[-1], tuple(weight)[-1])]
    if name in ("mul", "__mul__", "__rmul__") and isinstance(weight, nn.Parameter) and weight.dim() == 1:
        return [(read.shape[-1], weight.shape[0])]
    if name in ("add", "__add__", "mul", "__mul__") and isinstance(weight, Tensor) and read.dim() and weight.dim():
        sizes = read.shape[-1], weight.shape[-1]
        return [] if sizes[0] == sizes[1] or 1 in sizes else [sizes]
    if name in ("reshape", "view"):
        shape = weight if isinstance(weight, list | tuple) else args[1:]
        numbers = read.numel(), math.prod(size for size in shape if isinstance(size, int))
        return [] if numbers[0] == numbers[1] or -1 in shape else [numbers]
    if name.startswith("conv"):
        groups = kwargs.get("groups", args[6] if len(args) > 6 else 1)
        channels = weight.shape[0] if "transpose" in name else weight.shape[1] * groups
        return [(read.shape[1], channels) if read.dim() == weight.dim() else None]
    return []


class LatentInputs(Inputs):
    """Inputs of a model of diffusers."""

    def diffusers(self) -> None:
        """Add what ``forward`` needs."""
        self._assumed: dict[str, str] = {}
        self._sizes = self._axis_sizes()
        self._add_values()
        candidates, optional = {}, []
        for name in self.signature.parameters:
            has_field = any(first_field(self.config, field) for field in _IF_FIELD.get(name, ()))
            if self._requires(name) or _USUAL.search(name) or has_field:
                if candidate := self._candidate(name):
                    candidates[name] = candidate
            elif name not in _IF_FIELD:
                optional.append(name)
        if all(self._has(name) or name in candidates for name in filter(self._requires, self.signature.parameters)):
            candidates = self._fit(candidates, optional)
        for name, candidate in candidates.items():
            self.tensors[name] = candidate.make(self.dtype)
        self._note_lengths("".join(one.axes for one in candidates.values()))

    def _axis_sizes(self) -> dict[str, int]:
        """Return the sizes of the axes of layouts, but for channels."""
        config, names = self.config, self.signature.parameters
        is_denoiser = self._is_denoiser = any(re.search(_KINDS[0][0], name) for name in names)
        is_latent = is_denoiser or "sample" not in names and "x" not in names
        factor = (first_field(config, "spatial_compression_ratio") or VAE_FACTOR) if is_latent else 1
        height, width = self._side(factor)
        # frames that are divided into chunks, or overlapping clips
        chunks = sum(first_field(config, "chunk_partition") or ()) or 2 * (first_field(config, "clip_length") or 0)
        given = first_field(config, "sample_frames", "num_frames")
        frames = chunks or self._assume("F", given, FRAMES, "frames (--input)")
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
            "G": 4 * (frames - 2) + 1, "Q": places + 2 * text,
            "D": (first_field(config, "num_attention_heads") or 1) * (first_field(config, "attention_head_dim") or 1),
            "H": height, "W": width, "S": text, "P": text + places,
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
        used |= {"S"} if {*axes} & {*"SPQV"} or "encodings_and_masks" in self.tensors else set()
        used |= {"H"} if {*axes} & {*"NPQVHh"} else set()
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
        ones = partial(self._floats, self.batch, sizes["S"])
        self._add("encodings_and_masks", lambda: [(ones(config.d_model), ones())])
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

    def _candidate(self, name: str) -> Candidate | None:
        """Return an input whose layout is looked for, None where it is given or its kind is not known."""
        layouts = _layouts(name)
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
        annotation = str(self.signature.parameters[name].annotation)
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
        """Return inputs with layouts and channels with which the model runs, and the optional ones that it needs.

        Those whose run came furthest are changed first, and returned where no run comes to its end.
        """
        # a run may leave tensors without values in the modules
        self._trial = _share_tensors(self.model)
        seen: list[Candidates] = []
        waiting: list[Attempt] = []
        done: list[Attempt] = []
        parent, changed, left = None, candidates, CALLS
        while changed is not None and left > 0:
            seen.append(changed)
            readers, error = self._run(changed)
            # the count has values where a run without them cannot go on
            is_furthest = all(readers.calls >= -attempt.rank[0] for attempt in (*done, *waiting))
            if error is None or error == NO_VALUES and is_furthest:
                return changed
            left -= CALLS // RUNS + readers.calls
            # an optional input that changes nothing but the number of calls is not needed
            if parent is None or changed.keys() == parent.inputs.keys() or error != parent.error:
                others = self._alternatives(changed, readers, error, optional)
                calls, is_placed = self._progress(changed, readers)
                heapq.heappush(
                    waiting, Attempt((-calls, -is_placed, len(seen)), changed, error, readers.misfit, others)
                )
            changed = None
            while waiting and changed is None:
                parent = waiting[0]
                changed = next((other for other in parent.others if other not in seen), None)
                if changed is None:
                    done.append(heapq.heappop(waiting))
        best = min([*done, *waiting])
        if best.misfit is not None:
            reads, takes = best.misfit
            self.refusal = f"this configuration: a layer of {takes:,} channels reads {reads:,}"
        return best.inputs

    def _progress(self, candidates: Candidates, readers: Readers) -> tuple[int, int]:
        """Return how far a run came: its calls, and 0 where channels stand elsewhere than the last layer takes them.

        1 says that their number is another, and 2 that the layer takes them.
        """
        sizes = [(candidates[name].channels, readers.sizes[name]) for name in readers.wrong()]
        is_placed = any(size is not None and size[0] % channels == 0 for channels, size in sizes)
        return readers.calls, (1 if is_placed else 0) if sizes else 2

    def _alternatives(
        self, candidates: Candidates, readers: Readers, error: str, optional: list[str]
    ) -> Iterator[Candidates]:
        """Yield what may let a run come further: other channels, an optional input, another layout, any given width."""
        wrong = readers.wrong()
        # what the configuration gives is changed last
        for name in sorted(wrong, key=lambda name: candidates[name].is_known):
            if resized := self._resize(candidates, name, readers):
                yield {**candidates, name: resized}
        for name in sorted(optional, key=lambda name: not _is_named(error, name)):
            if name not in candidates and not wrong and ("None" in error or _is_named(error, name)):
                if added := self._candidate(name):
                    yield {**candidates, name: added}
        names = list(reversed(candidates))
        blamed = [name for name in names if name in (wrong or readers.last)]
        for name in [*blamed, *(name for name in names if name not in readers.sizes and name not in blamed)]:
            for layout in candidates[name].layouts:
                if layout != candidates[name].layout:
                    yield {**candidates, name: replace(candidates[name], layout=layout)}
        fields = vars(self.config).items()
        widths = {one for field, one in fields if type(one) is int and field.endswith(("channels", "dim"))}
        for name in (name for name in names if name not in readers.sizes and "C" in candidates[name].axes):
            yield from ({**candidates, name: replace(candidates[name], channels=width)} for width in sorted(widths))

    def _resize(self, candidates: Candidates, name: str, readers: Readers) -> Candidate | None:
        """Return an input with as many channels as its layer takes; None where channels do not change what it finds."""
        before, candidate = readers.sizes[name], candidates[name]
        wider = replace(candidate, channels=candidate.channels + 1)
        after = self._run({**candidates, name: wider})[0].sizes.get(name)
        if before is None or after is None:
            return None
        # a layer may read several places at once, and channels to which others were added
        times, missing = after[0] - before[0], before[1] - before[0]
        if not times or missing % times or candidate.channels + missing // times < 1:
            return None
        return replace(candidate, channels=candidate.channels + missing // times)

    def _run(self, candidates: Candidates) -> tuple[Readers, str | None]:
        """Run the model without values, and return what read the inputs, and the error if there was one."""
        tried = {name: candidate.make(self.dtype, MAX_VALUES) for name, candidate in candidates.items()}
        readers = Readers(tried)
        hooks = self._stop_early(candidates, readers)
        try:
            with readers, torch.no_grad():
                self._trial(**self.tensors, **tried)
        except _Enough:
            pass
        except Exception as error:
            # torch says so in either way where an operation reads values, which says nothing of the inputs
            if "meta tensor" in str(error) or isinstance(error, NotImplementedError) and "meta" in str(error):
                return readers, NO_VALUES
            lines = [line for _, line in traceback.walk_tb(error.__traceback__)]
            return readers, f"{type(error).__name__}: {error} {lines}"
        finally:
            for hook in hooks:
                hook.remove()
        return readers, None

    def _stop_early(self, candidates: Candidates, readers: Readers) -> list[Any]:
        """Stop a denoiser at the third of a long row of blocks, if layers have read every input that has channels."""
        if not self._is_denoiser:
            # a decoder may refuse what an encoder has read
            return []
        needed = {name for name, one in candidates.items() if "C" in one.axes}

        def stop(*_: Any) -> None:
            if needed <= readers.sizes.keys():
                raise _Enough

        # some rows have gaps; layers of several kinds are a part of a block
        rows = [[*filter(None, part)] for part in self._trial.modules() if isinstance(part, nn.ModuleList)]
        rows = [row for row in rows if len(row) > 2 and len({*map(type, row)}) == 1]
        longest = max(map(len, rows), default=0)
        return [row[2].register_forward_pre_hook(stop) for row in rows if 2 * len(row) >= longest]


def _share_tensors(model: nn.Module) -> nn.Module:
    """Return a copy of a model with the same tensors."""
    tensors = [*model.parameters(), *model.buffers()]
    tensors += [value for part in model.modules() for value in vars(part).values() if isinstance(value, Tensor)]
    return copy.deepcopy(model, {id(tensor): tensor for tensor in tensors})


def _is_named(error: str, name: str) -> bool:
    """Return whether an error names a parameter."""
    return f"`{name}`" in error or f"'{name}'" in error


def _layouts(name: str) -> tuple[str, ...]:
    return next((layouts for pattern, layouts in _KINDS if re.search(pattern, name)), ())
