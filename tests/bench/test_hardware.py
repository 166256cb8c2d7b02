"""Data sheets of hardware, and peaks by name or by number."""

import pytest
import torch

from headcount.bench.errors import UsageError
from headcount.bench.hardware import HARDWARE, SOURCES, Peak, find_card, parse_peak
from tests.cases import in_turns


@pytest.mark.parametrize("text, peak", [
    ("H100 SXM bf16", Peak(989.5e12, "H100 SXM", "bf16")), ("h100-sxm bf16", Peak(989.5e12, "H100 SXM", "bf16")),
    ("NVIDIA A100 40GB PCIe tf32", Peak(156e12, "A100 40GB PCIe", "tf32")),
    ("V100 SXM2 fp16", Peak(125e12, "V100 SXM2", "fp16")),
    ("TPU v5e bf16", Peak(197e12, "TPU v5e", "bf16")), ("989T", Peak(989e12)), ("1.5P bf16", Peak(1.5e15, "", "bf16")),
    ("3e14", Peak(3e14)), ("1979Gi", Peak(1979 * 2**30)), (989e12, Peak(989e12)), (10**15, Peak(1e15)),
    ("H100 SXM", Peak(989.5e12, "H100 SXM", "bf16")), ("V100 PCIe", Peak(112e12, "V100 PCIe", "fp16")),
    ("H100 SXM BF16", Peak(989.5e12, "H100 SXM", "bf16")), ("1P torch.bfloat16", Peak(1e15, "", "bf16")),
    ("H200", Peak(989.5e12, "H200 SXM", "bf16")), ("nvidia b200 bf16", parse_peak("B200")),
    (f"H100 SXM {torch.float16}", Peak(989.5e12, "H100 SXM", "fp16")), ("l40s Float32", Peak(91.6e12, "L40S", "fp32")),
    ("NVIDIA GeForce RTX 3090", Peak(71.2e12, "RTX 3090", "bf16")), ("RTX 5090", Peak(209.5e12, "RTX 5090", "bf16")),
])  # fmt: skip
def test_peak_by_name_or_number(text, peak):
    assert parse_peak(text) == peak


@pytest.mark.parametrize("text, named", [
    ("H100 bf16", "'H100' is H100 SXM, H100 PCIe or H100 NVL"), ("V100", "'V100' is V100 SXM2 or V100 PCIe"),
    ("H100", "'H100' is H100 SXM, H100 PCIe or H100 NVL"), ("H100 80GB", "is H100 SXM or H100 PCIe"),
    ("NVIDIA", "'NVIDIA' is H200 SXM, "), ("", "^no peak; .*989T"), (None, "^no peak; .* H100 SXM, .*989T"),
    ("RTX 4070", "^unknown card 'RTX 4070'; .* FLOP/s such as 165T"),
    ("RTX 4070 bf16", "^unknown card 'RTX 4070 bf16'"),
    ("GeForce RTX 4090 Laptop GPU", "^unknown card 'GeForce RTX 4090 Laptop GPU'; .* FLOP/s such as 165T"),
    ("V100 SXM2 bf16", "fp16, fp32, fp64"), ("0T", "the unit is FLOP/s"), ("-3T", "the unit is FLOP/s"),
    ("9T bf16 x", "'bf16 x' is no unit and no dtype"),
    ("989X", "989T"), ("1e999", "989T"), ("1,979 TFLOPS", "989T"), ("H100 SXM bananas", "no rate of 'bananas'"),
])  # fmt: skip
def test_unknown_peak_names_valid_ones(text, named):
    with pytest.raises(UsageError, match=named) as caught:
        parse_peak(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("text", "dtype"), in_turns([
    "989 TFLOPS", "989 TFLOP/s", "989TFLOPS", "989 TFLOPs", "989 TFLOP", "989 tflops per second", "989TFLOPs/s",
    "0.989 PFLOP/s", "989000 GFLOPS", "989e12 FLOP/s", "989e12", "9.89E+14", "494.5 TMAC/s", "494.5T MACs",
    "494.5 TMACs", "989 T", "989 teraflops", "0.989 PetaFLOPS", "494.5 teraMACs/s", "989 TeraFLOP per second",
    "+989T", "989000000000000", "989000000000000.0",
], ["", " bf16", " torch.bfloat16", " BFloat16", " (bf16)"]))  # fmt: skip
def test_units_of_a_peak(text, dtype):
    assert parse_peak(text + dtype) == Peak(989e12, "", "bf16" if dtype else "")


WORDS = ["bananas", "TOPS", "TB/s", "TF", "Tera", "sparse", "TFLOPS/GPU", "W", "TFLOPS bananas", "H100", "PiFLOPS"]


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("number", ["989", "989e12"])
def test_word_behind_a_peak_is_never_a_dtype(word, number):
    with pytest.raises(UsageError, match="FLOP/s") as caught:
        parse_peak(f"{number} {word}")
    assert word.split()[-1] in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("number", [989, 989.0, "989", "989 FLOPS", "989 kFLOP/s", 0, -989e12, "494 MMAC/s", 1e9 - 1])
def test_peak_without_its_unit_is_refused(number):
    with pytest.raises(UsageError, match=r"below 1e\+09; the unit is FLOP/s: write '989 TFLOP/s'"):
        parse_peak(number)
    assert parse_peak(1e9) == parse_peak("500 MMAC/s") == Peak(1e9)


A100S = [card.name for card in HARDWARE.values() if "A100" in card.name]


@pytest.mark.parametrize("text, rate", [
    ("A100", 312e12), ("A100 80GB", 312e12), ("A100 SXM", 312e12), ("a100-sxm4", 312e12), ("A100 PCIe tf32", 156e12),
    ("NVIDIA A100 (fp32)", 19.5e12), (("A100", torch.float16), 312e12),
])  # fmt: skip
def test_cards_of_one_rate_need_no_choice_for_a_peak(text, rate):
    assert len(A100S) == 4 and parse_peak(text).flops_per_s == rate and "A100" in str(parse_peak(text))


@pytest.mark.parametrize("text, cards", [
    ("A100", ["80GB SXM", "40GB SXM", "80GB PCIe", "40GB PCIe"]), ("A100 SXM", ["80GB SXM", "40GB SXM"]),
    ("A100 PCIe", ["80GB PCIe", "40GB PCIe"]), ("A100 80GB", ["80GB SXM", "80GB PCIe"]),
])  # fmt: skip
def test_card_by_some_words_lists_those_that_have_them(text, cards):
    listed = ", ".join(f"A100 {card}" for card in cards[:-1])
    with pytest.raises(UsageError, match=f"^'{text}' is {listed} or A100 {cards[-1]}$"):
        find_card(text)


@pytest.mark.parametrize("card", HARDWARE.values(), ids=HARDWARE)
def test_card_has_the_names_that_torch_gives_it(card):
    first, dtype, torch_dtype = parse_peak(card.short_name), next(iter(card.tflops)), next(iter(card.macs_per_s))
    for device in card.devices:
        for name in (device, device.lower(), device.partition(" ")[2]):
            assert parse_peak(name) == first and find_card(name, torch_dtype) is card
            assert parse_peak(f"{name} {dtype}") == parse_peak((name, dtype)) == parse_peak(f"{card.name} {dtype}")


@pytest.mark.parametrize("text, card", [
    ("H100 SXM5", "h100"), ("H100-SXM5", "h100"), ("H100-SXM5-80GB", "h100"),
    ("NVIDIA H100 SXM5", "h100"), ("H200 SXM5", "h200"),
    ("A100 80GB SXM4", "a100"), ("A100 SXM4 80GB", "a100"), ("A100-SXM-40GB", "a100-40gb"),
    ("A100 PCIe 80GB", "a100-pcie"),
    ("V100 SXM", "v100"), ("V100-SXM2-32GB", "v100"),
    ("H100 HBM3", "h100"), ("H100SXM", "h100"), ("A100SXM 80GB", "a100"), ("AMD", "mi300x"),
    ("GeForce RTX 4090", "rtx-4090"), ("rtx4090", "rtx-4090"), ("A6000", "rtx-a6000"),
])  # fmt: skip
def test_card_has_its_usual_names(text, card):
    assert find_card(text, "float16") is HARDWARE[card]
    assert parse_peak((text, torch.float16)) == parse_peak([HARDWARE[card].name, "fp16"])


def test_names_and_devices_are_unique():
    devices = [device for one in HARDWARE.values() for device in one.devices]
    assert len({one.name for one in HARDWARE.values()}) == len(HARDWARE) and len(set(devices)) == len(devices)


def test_rates_are_dense():
    """The rate of a tensor core halves where the bits of a number double; data sheets round."""
    for one in HARDWARE.values():
        rate = one.tflops
        assert rate.get("fp16", rate.get("bf16")) == rate.get("bf16", rate.get("fp16")), one.name
        for narrow, wide in (("fp8", "bf16"), ("bf16", "tf32")):
            if {narrow, wide} <= rate.keys():
                assert rate[narrow] == pytest.approx(2 * rate[wide], rel=0.025), one.name
        assert one.address.startswith("https://") and one.bytes_per_s > 1e11


OPTIONAL = ("memory_bytes", "multiprocessors", "link_bytes_per_s", "bridge_bytes_per_s", "node_cards")


def test_card_without_the_dtype_of_times_is_an_error():
    assert find_card("V100 PCIe", "float16").short_name == "V100 PCIe"
    with pytest.raises(
        UsageError, match="V100 PCIe states no rate of .bfloat16.; choose from float16, float32, float64$"
    ):
        find_card("V100 PCIe")


def test_each_figure_names_where_it_was_read():
    for one in HARDWARE.values():
        read = [figure for figures in one.read.values() for figure in figures]
        optional = [name for name in OPTIONAL if getattr(one, name) is not None]
        assert sorted(read) == sorted([*one.tflops, "bytes_per_s", *optional]), one.name
        places = [SOURCES[key] for key in one.read]
        assert all(one["address"].startswith(("https://", "reports/records/")) and one["read"] for one in places)
    assert {key for one in HARDWARE.values() for key in one.read} == SOURCES.keys()


def test_cards_with_a_bridge_have_a_slot():
    for one in HARDWARE.values():
        assert one.bridge_bytes_per_s is None or one.link_bytes_per_s < one.bridge_bytes_per_s, one.name
