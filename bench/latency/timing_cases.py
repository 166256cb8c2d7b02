"""Timing cases: a layer or a model at one shape, with the implementations to time. Imports no torch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from operator import attrgetter

from headcount.bench.case import Case
from headcount.bench.column import Column
from headcount.bench.errors import UsageError
from headcount.bench.latency.implementations import ImplSpec, find_config, layer_impls, model_impls
from headcount.models.configs.base import AttentionConfig, ModelConfig

ROUTINGS = ("balanced", "paper", "zipf", "one-expert")
"""Distributions of the timed tokens over experts (``case_tensors.expert_shares``)."""
ELEMENT_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}

PASS = Column("pass", "pass", width=8, value=attrgetter("which"))
COLUMNS = (
    Column("layer", "layer", width=17),
    Column("implementation", "implementation", width=14, priority=0),
    Column("seq_len", "T", kind="int", width=5, priority=0),
    Column("batch_size", "B", kind="int", width=5, priority=2),
    PASS,
    Column("routing", "routing", width=10, priority=4),
)
"""Columns of every table of timing cases; estimates have no routing."""

ROTATED_BYTES = {"cpu": 64 * 2**20, "cuda": 180 * 2**20}
"""Bytes of all input sets, or of all key-value caches, at least: more than the last-level cache holds."""


def check_memory(target: str, weight_bytes: int, device: str) -> None:
    """Raise UsageError for weights that do not fit into the free memory of the CPU."""
    # a machine that has torch alone imports this file too
    import psutil

    free = psutil.virtual_memory().available
    if device == "cpu" and weight_bytes > free:
        raise UsageError(f"{target}: {weight_bytes:,} bytes of weights, and {free:,} bytes of memory are free")


@dataclass(frozen=True)
class TimingCase:
    """A layer or model at one shape.

    ``subject`` is ``layer`` or ``model``; ``which`` the pass; ``requested`` the implementations that were requested.
    Decoding is one token after ``seq_len`` - 1 cached ones. ``blocks``: the number of blocks of a second measurement,
    which is stored in addition to the first; 0 where implementations are checked and not timed. ``without``:
    implementations that are left out unless they are requested.
    """

    subject: str
    name: str
    seq_len: int
    batch_size: int
    dtype: str
    which: str
    device: str
    routing: str
    requested: tuple[str, ...] | None = None
    blocks: int | None = None
    without: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The unique name of this case."""
        parts = (self.subject, self.name, f"T{self.seq_len}", f"B{self.batch_size}", self.dtype, self.which)
        how = ("+".join(self.requested),) if self.requested else ()
        again = {None: (), 0: ("checked",)}.get(self.blocks, (f"again in {self.blocks} blocks",))
        return " ".join((*parts, self.device, self.routing, *how, *again))

    @property
    def config(self) -> AttentionConfig | ModelConfig:
        """The configuration of the layer or model."""
        return find_config(self.subject, self.name)

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
        """Bytes of an element."""
        return ELEMENT_BYTES[self.dtype]

    def impls(self, *, any_device: bool = False) -> list[ImplSpec]:
        """Return the rows of this case: implementations that run on its device, or on any, and dense layers."""
        how = layer_impls if self.subject == "layer" else model_impls
        impls = how(self.name, self.requested, None if any_device else self.device, self.tokens)
        left_out = () if self.requested else self.without
        # decoding needs a causal mask
        return [impl for impl in impls if impl.impl not in left_out and (impl.masks or self.which != "decode")]

    def at_lengths(self, config: AttentionConfig | ModelConfig) -> Case:
        """Return ``config`` at the lengths of this case."""
        if self.subject == "layer":
            lengths = {"tgt_len": self.new_len, "src_len": self.seq_len}
        else:
            lengths = dict.fromkeys(config.lengths, self.seq_len)
        return Case(self.name, config, lengths | {"batch_size": self.batch_size})


def layer_cases(
    names: Sequence[str], seq_lens: Sequence[int], passes: Sequence[str], routings: Sequence[str], **how
) -> Iterator[TimingCase]:
    """Yield every combination, shapes outside, layers inside, without a batch size. Routings are swept for layers whose
    router can be steered."""
    for which, seq_len, name in product(passes, seq_lens, names):
        for routing in routings if find_config("layer", name).steerable else routings[:1]:
            yield TimingCase("layer", name, seq_len, 0, which=which, routing=routing, **how)


def model_cases(
    names: Sequence[str], seq_lens: Sequence[int] | None, passes: Sequence[str], **how
) -> Iterator[TimingCase]:
    """Yield every combination without a batch size; without ``seq_lens`` each model at its paper's length. Models are
    timed forward and forward + backward."""
    for which, name in product(passes, names):
        if which not in ("forward", "both"):
            raise UsageError(f"a model is timed by --pass forward or both, not {which}")
        config = find_config("model", name)
        given = [value for key, value in config.lengths.items() if key != "batch_size"]
        # a model of images has a fixed length: its patches
        fixed = [] if given else [config.num_tokens]
        for seq_len in fixed or seq_lens or [max(given)]:
            yield TimingCase("model", name, seq_len, 0, which=which, routing="natural", **how)
