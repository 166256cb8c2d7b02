"""Words of fuzzed command lines: right ones by what an option takes, and hostile ones for any."""

from collections.abc import Sequence

PRESETS = ("moa-8K8E128D", "transformer-base", "moh-llm-s-75", "mae-7")
SANE: dict[str, Sequence[str]] = {
    "FIELD=VALUE": ("d_model=26", "num_experts=5", "bias=True"),
    "NAME=VALUE": ("d_model=26", "d_ff=31"),
    "LETTER=N": ("s=2", "r=1"),
    "LETTER=LOW:HIGH[:STEP]": ("K=1:3", "E=1:5:2"),
    "NAME=START[:STEP]": ("T=3", "d_h=2:2"),
    "SPEC": ("K=1 E=2 D=3 T=5", "model.py:make"),
    "NAME,NAME": ("T,S", "T,d_h"),
    "NAME": PRESETS,
    "PRESET[,FIELD=VALUE]": ("transformer-base",),
    "BUDGET": ("1G", "200M", "64Ki"),
    "SHARE": ("2%", "0.1"),
    "T": ("7", "128"),
    "A": ("whole.jsonl", "half.jsonl"),
    "B": ("whole.jsonl", "half.jsonl"),
    "LOCK": ("half.jsonl", "nested.json"),
    "FILE": ("half.jsonl", "ids.txt"),
}
"""A metavar -> values that are right for some command."""

NUMBERS = (
    *("0", "-1", "-0", "1.5", "1e3", "nan", "inf", "-inf", "", " ", "²", "٣", "1_000", "0x10", "1e-999999999"),
    *("1e999999", "9" * 30, "9" * 5001, "1/0", "None", "True", "two"),
)
TEXTS = (
    *(
        "",
        " ",
        "-",
        "--",
        "=",
        ":",
        ",",
        "\n",
        "\t",
        "a\nb",
        "é",
        "\u202e",
        "\x1b[31m",
        "ŧ" * 300,
        "x" * 70000,
        "{}",
        "%s",
        "\udcff",
        "\u2028",
        "../../x",
        "$(touch pwned)",
        "=cmd|'/c calc'!A1",
        "<script>alert(1)</script>",
    ),
    *(
        "$HOME",
        "__import__('os').system('touch pwned')",
        "lambda",
        "class",
        "a=b=c",
        "=1",
        "a=",
        "K=",
        "K=1:2:0",
        "K=5:1",
    ),
    *("K=1:1000000000", "K=1,2,3,4 E=1:100000 D=1:100000", "T=0", "K=9 E=8 D=4", "K=x", "K", "num_layers=1000000000"),
    *("num_encoder_layers=999999999999", "d_model=" + "9" * 5001, "d_model=²", "form=none", "gates=1", "attention=moa"),
)
PATHS = (
    *(
        "",
        ".",
        "..",
        "/",
        "/dev/null",
        "/dev/full",
        "/dev/zero",
        "/proc/self/mem",
        "missing",
        "missing/below.json",
        "whole.jsonl",
    ),
    *("loop", "x" * 300, "folder", "binary", "nested.json", "half.jsonl", "surrogate.txt", "table.tex"),
)
HOSTILE = (*NUMBERS, *TEXTS, *PATHS)
