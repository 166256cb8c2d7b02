"""Block sizes of the Triton kernels by the sizes of a call: committed, so that nothing is tuned while it is timed.

Importable without triton and torch. The first row of a kernel whose sizes a call reaches is taken.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Launch(NamedTuple):
    """Block sizes by the letter that the kernel gives them, warps of a block, stages of its pipeline."""

    blocks: Mapping[str, int]
    num_warps: int
    num_stages: int

    @property
    def options(self) -> dict[str, int]:
        """What Triton is told beside the constants: fused products and sums too, from 3.10 on not its default."""
        return {"num_warps": self.num_warps, "num_stages": self.num_stages, "enable_fp_fusion": True}


class Row(NamedTuple):
    """``launch`` for calls whose sizes are all at least those of ``least``."""

    least: Mapping[str, int]
    launch: Launch


# arch: compute capability, 90 for 9.0; E experts (or heads); rows: expected rows of an
# expert, or of a head in a sequence; i, o: width of what is multiplied and of the product; plain: 1 without sums of
# rows in the epilogue, else 0; D: width of a head, as the kernel pads it. What an H200 ran fastest spills on 8.0, and
# some of it on 10.0, where nothing was measured
TABLE: Mapping[str, tuple[Row, ...]] = {
    "route": (
        Row({"E": 33}, Launch({"BM": 32, "BD": 64}, 4, 3)),
        Row({"arch": 100}, Launch({"BM": 64, "BD": 64}, 8, 3)),
        Row({}, Launch({"BM": 64, "BD": 64}, 4, 3)),
    ),
    "head_route": (Row({}, Launch({"BM": 64, "BD": 64}, 4, 3)),),
    # of more rows it spills
    "norm_route": (Row({"arch": 100}, Launch({"BM": 16}, 4, 2)), Row({}, Launch({"BM": 32}, 4, 2))),
    "place": (Row({}, Launch({"BB": 64}, 4, 1)),),
    "expert": (
        Row({"arch": 90, "rows": 512, "o": 256, "i": 512, "plain": 1}, Launch({"BM": 128, "BN": 256, "BK": 64}, 8, 3)),
        Row({"rows": 512, "o": 256}, Launch({"BM": 128, "BN": 128, "BK": 64}, 8, 3)),
        Row({"arch": 90, "rows": 256, "plain": 1}, Launch({"BM": 128, "BN": 128, "BK": 64}, 4, 3)),
        Row({"rows": 256}, Launch({"BM": 128, "BN": 128, "BK": 64}, 8, 3)),
        Row({"rows": 32}, Launch({"BM": 64, "BN": 128, "BK": 64}, 4, 4)),
        Row({}, Launch({"BM": 16, "BN": 128, "BK": 64}, 4, 4)),
    ),
    "slots": (Row({}, Launch({"BM": 4, "BN": 512}, 4, 1)),),
    "weight_grad": (Row({}, Launch({"BI": 128, "BO": 128, "BR": 64}, 8, 3)),),
    # wider blocks spill, and more warps leave room for fewer blocks on a multiprocessor
    "gated": (
        Row({"arch": 90}, Launch({"BM": 128, "BN": 128, "BK": 64}, 4, 3)),
        Row({}, Launch({"BM": 128, "BN": 128, "BK": 32}, 4, 4)),
    ),
    "gated_grad": (
        Row({"D": 128}, Launch({"BM": 128, "BN": 128, "BK": 64}, 8, 3)),
        Row({}, Launch({"BM": 128, "BN": 64, "BK": 64}, 4, 3)),
    ),
    "mqa": (
        Row({"arch": 90, "D": 128}, Launch({"BM": 128, "BN": 32}, 4, 4)),
        Row({"D": 128}, Launch({"BM": 128, "BN": 64}, 8, 3)),
        Row({"arch": 90}, Launch({"BM": 128, "BN": 64}, 4, 3)),
        Row({}, Launch({"BM": 128, "BN": 32}, 4, 3)),
    ),
    "frame": (Row({}, Launch({"BM": 64}, 4, 1)),),
    "ragged": (
        Row({"arch": 90, "rows": 256, "D": 128}, Launch({"BM": 128, "BN": 128}, 8, 3)),
        Row({"arch": 100, "rows": 256}, Launch({"BM": 64, "BN": 64}, 4, 3)),
        Row({"rows": 256}, Launch({"BM": 128, "BN": 64}, 8, 3)),
        Row({"D": 128}, Launch({"BM": 128, "BN": 64}, 8, 3)),
        Row({}, Launch({"BM": 64, "BN": 64}, 4, 3)),
    ),
    "decode": (Row({}, Launch({"BM": 16, "BN": 64}, 4, 2)),),
    "combine": (Row({}, Launch({}, 4, 1)),),
}

# in the interpreter a program costs the same whatever it computes, and a matrix product has no side below 16; blocks of
# counts and of features are small too, so that the loops over them run more than once
INTERPRETED_BLOCKS = {"BB": 4, "BD": 32}

# keys up to which heads of few tokens, packed into one tile, outweigh a slower core: on an H200 it takes 14 us at 10
# keys, where torch's takes 36; at 128 keys 55 against 26, and the whole layer takes the same time by either
MOST_KEYS_OF_MQA = 64
# widest heads whose rows fit the registers
WIDEST_HEAD_OF_MQA, WIDEST_HEAD_OF_RAGGED, WIDEST_HEAD_OF_DECODE = 128, 128, 256
# programs that decoding keeps busy, and fewest keys of a part
DECODE_PROGRAMS, FEWEST_KEYS = 264, 128
# parts of the keys that an output product puts together; more of them spill
MOST_PARTS_OF_A_PRODUCT = 4


def launch_for(kernel: str, **sizes: int) -> Launch:
    """The launch of ``kernel`` for a call of these sizes. KeyError where one that its table asks for is missing."""
    return next(row.launch for row in TABLE[kernel] if all(sizes[name] >= least for name, least in row.least.items()))


def interpreted_launch(kernel: str) -> Launch:
    """The launch of ``kernel`` in the interpreter, for calls of any sizes: blocks of the last row, small ones."""
    blocks = TABLE[kernel][-1].launch.blocks.items()
    return Launch({name: min(size, INTERPRETED_BLOCKS.get(name, 16)) for name, size in blocks}, 1, 1)


def splits_of_keys(tiles: int, src_len: int) -> int:
    """How many parts, a power of two, the keys of each of ``tiles`` of decoding rows are split in."""
    splits = 1
    while tiles * splits < DECODE_PROGRAMS and src_len // (2 * splits) >= FEWEST_KEYS and splits < 64:
        splits *= 2
    return splits
