"""The cells of a latency table: a layer or a model at one shape, and which of them to measure. Imports no torch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headcount.bench.case import Case
from headcount.bench.errors import UsageError
from headcount.bench.latency.arms import ArmSpec, layer_arms, model_arms
from headcount.models.configs.base import AttentionConfig, ModelConfig
from headcount.models.configs.layers import layer
from headcount.models.configs.presets import preset

ELEMENT_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}

ROTATED_BYTES = {"cpu": 64 * 2**20, "cuda": 180 * 2**20}
"""Input sets together, or caches, at least: more than the last cache of the hardware holds."""


@dataclass(frozen=True)
class Cell:
    """A layer or model at one shape; ``subject`` is ``layer`` or ``model``; ``asked`` the arms that were asked for.

    Decoding is one token behind ``seq_len`` - 1 stored ones. ``blocks``: of a second measurement, in so many blocks and
    stored beside the first, which takes as many as the run says.
    """

    subject: str
    name: str
    seq_len: int
    batch_size: int
    dtype: str
    which: str
    device: str
    routing: str
    asked: tuple[str, ...] | None = None
    blocks: int | None = None

    @property
    def key(self) -> str:
        """What tells this cell from every other one."""
        parts = (self.subject, self.name, f"T{self.seq_len}", f"B{self.batch_size}", self.dtype, self.which)
        how = ("+".join(self.asked),) if self.asked else ()
        again = (f"again in {self.blocks} blocks",) if self.blocks else ()
        return " ".join((*parts, self.device, self.routing, *how, *again))

    @property
    def config(self) -> AttentionConfig | ModelConfig:
        """What its name stands for."""
        return layer(self.name) if self.subject == "layer" else preset(self.name)

    @property
    def new_len(self) -> int:
        """Tokens of a sequence that a call computes."""
        return 1 if self.which == "decode" else self.seq_len

    @property
    def tokens(self) -> int:
        """Tokens that a call computes."""
        return self.batch_size * self.new_len

    @property
    def element_bytes(self) -> int:
        """Bytes of a number of its type."""
        return ELEMENT_BYTES[self.dtype]

    def arms(self, *, of_every_device: bool = False) -> list[ArmSpec]:
        """The arms of this cell: those that run on its device, or on any."""
        how = layer_arms if self.subject == "layer" else model_arms
        arms = how(self.name, self.asked, None if of_every_device else self.device, self.tokens)
        # Decoding is causal, which an arm without masks cannot be.
        return [arm for arm in arms if arm.masks or self.which != "decode"]

    def case(self, config: AttentionConfig | ModelConfig) -> Case:
        """``config`` at the lengths of this cell."""
        if self.subject == "layer":
            lengths = {"batch_size": self.batch_size, "tgt_len": self.new_len, "src_len": self.seq_len}
        else:
            names = [name for name in config.lengths if name != "batch_size"]
            lengths = {"batch_size": self.batch_size, **dict.fromkeys(names, self.seq_len)}
        return Case(self.name, config, lengths)


def cells_of_layers(
    names: Sequence[str], seq_lens: Sequence[int], passes: Sequence[str], routings: Sequence[str], **shape
) -> Iterator[Cell]:
    """Every combination, the most telling first: shapes outside, layers inside. Routing is swept for layers that can
    be told where tokens go."""
    tokens, batch_size = shape.pop("tokens"), shape.pop("batch_size")
    for which in passes:
        for seq_len in seq_lens:
            for name in names:
                for routing in routings if layer(name).steerable else routings[:1]:
                    batch = batch_size or max(1, tokens // seq_len)
                    yield Cell("layer", name, seq_len, batch, which=which, routing=routing, **shape)


def cells_of_models(
    names: Sequence[str], seq_lens: Sequence[int] | None, passes: Sequence[str], **shape
) -> Iterator[Cell]:
    """Every combination; without ``seq_lens`` each model at its paper's length. Models are timed forward and
    forward + backward."""
    tokens, batch_size = shape.pop("tokens"), shape.pop("batch_size")
    for which in passes:
        if which not in ("forward", "both"):
            raise UsageError(f"a model is timed by --pass forward or both, not {which}")
        for name in names:
            config = preset(name)
            given = [value for key, value in config.lengths.items() if key != "batch_size"]
            # A model of images has no length to choose: its tokens are its patches.
            fixed = [] if given else [config.num_tokens]
            for seq_len in fixed or seq_lens or [max(given)]:
                batch = batch_size or max(1, tokens // seq_len)
                yield Cell("model", name, seq_len, batch, which=which, routing="natural", **shape)
