"""``import headcount as hc``: public names, light imports, and checks of sizes."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import headcount as hc
from headcount.models.configs.registry import VARIANTS

ROOT = Path(__file__).parents[2]


LIGHT = """
import sys
import headcount as hc
from headcount.__main__ import main

dir(hc)
hc.preset("moa-8K8E128D")
hc.moa.layer("", B=1, T=7, S=7, d_m=13, E=11, K=3, D=5).macs
for word in ("--help", "nothing"):
    try:
        main([word])
    except SystemExit:
        pass
print({"torch", "numpy", "pandas", "sympy", "matplotlib", "tabulate"} & sys.modules.keys(), file=sys.stderr)
"""


WRONG = """
from torch import nn, ones
import headcount as hc

calls = {
    "build": (lambda: hc.build("moa-8K8E128D"), "preset('moa-8K8E128D') returns, not 'moa-8K8E128D'"),
    "build of nothing": (lambda: hc.build(None), "a configuration is expected"),
    "convert": (lambda: hc.convert(nn.Linear(2, 3), shared=1, routed=1), "a model of build"),
    "write": (lambda: hc.lock(nn.Linear(2, 3), ones(1, 2)).write(None), "NoneType"),
    "preset": (lambda: hc.preset(5), "unknown preset 5"),
}
for name, (call, words) in calls.items():
    try:
        print(name, call())
    except (TypeError, hc.models.configs.base.ConfigError) as error:
        assert words in str(error), (name, error)
"""


def test_arguments_of_a_wrong_type_are_named():
    """In a process of its own: the tests' type checks would raise first."""
    done = subprocess.run([sys.executable, "-c", WRONG], capture_output=True, text=True, cwd=ROOT)
    assert (done.stdout, done.returncode) == ("", 0), done.stderr


def test_closed_forms_import_no_heavy_package():
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stderr.splitlines()[-1] == "set()"


def test_public_names():
    assert sorted(hc.__all__) == [
        "CostChanged", "EnvironmentMissing", "MFU", "UnsupportedError", "UsageError", "assert_macs", "build", "convert",
        "count", "count_macs", "load_hugging_face", "lock", "preset", "summary",
    ]  # fmt: skip
    assert dir(hc) == sorted({*hc.__all__, *VARIANTS, "gqa", "mqa"})
    for name in dir(hc):
        assert getattr(hc, name).__doc__, name
    with pytest.raises(AttributeError, match="module 'headcount' has no attribute 'flops'"):
        hc.flops  # noqa: B018


@pytest.mark.parametrize("name, meant", [
    ("profile", "hc.count(model, x)"), ("FlopCountAnalysis", "hc.count(model, x)"), ("sumary", "did you mean summary?"),
    ("switch_head", "did you mean switchhead?"), ("compare", "it is a command: headcount compare --help"),
    ("latency", "headcount latency --help"),
])  # fmt: skip
def test_wrong_name_has_the_right_one(name, meant):
    with pytest.raises(AttributeError) as caught:
        getattr(hc, name)
    assert str(caught.value).endswith(meant) or meant in str(caught.value)
    assert not hasattr(hc, "_anything")


def test_readme_examples_run(tmp_path, monkeypatch):
    text = (ROOT / "README.md").read_text("utf-8")
    module, example = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    (tmp_path / "model.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "model", raising=False)
    names = {}
    exec(example, names)
    assert (
        names["layer"].macs == 128 * 512 * 32 + 2 * 16 * 128 * 512 * 256 + 2 * 128 * 512 * 256 + 2 * 16 * 128**2 * 256
    )
    del sys.modules["model"]


B, T, S, D = 2, 7, 11, 13
MHA = {"B": B, "T": T, "S": S, "d_m": D, "h": 6, "d_h": 5}
MOA = {"B": B, "T": T, "S": S, "d_m": D, "E": 11, "K": 3, "D": 5}
MOH = {**MHA, "s": 2, "r": 3, "g": 6}


@pytest.mark.parametrize(
    ("name", "sizes", "message"),
    [
        ("moa", {**MOA, "K": 12}, "K must be at most E = 11, not 12"),
        ("moa", {**MOA, "g": 2}, "g must divide D, and 2 does not divide 5"),
        ("mha", {**MHA, "g": 4}, "g must divide h, and 4 does not divide 6"),
        ("gqa", {**MHA, "g": 4}, "g must divide h, and 4 does not divide 6"),
        ("mha", {**MHA, "T": -2}, "T must be a whole number of at least 1, not -2"),
        ("mha", {**MHA, "T": 1.5}, "T must be a whole number of at least 1, not 1.5"),
        ("mha", {**MHA, "d_h": 0}, "d_h must be a whole number of at least 1, not 0"),
        ("mqa", {**MHA, "n": -1}, "n must be a whole number of at least 0, not -1"),
        ("mqa", {**MHA, "n": 12}, "n must be at most S = 11, not 12"),
        ("moh", {**MOH, "s": 7}, "s must be at most h = 6, not 7"),
        ("moh", {**MOH, "r": 5}, "r must be at most h - s = 4, not 5"),
        ("switchhead", {**MHA, "E": 3, "K": 5}, "K must be at most E = 3, not 5"),
    ],
)
def test_sizes_of_no_layer_raise(name, sizes, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        getattr(hc, name).layer("", **sizes)


def test_gqa_and_mqa_are_mha_with_fewer_key_value_heads():
    shared = 2 * B * T * D * 6 * 5 + 2 * B * 6 * T * S * 5
    for form, g in ((hc.mqa.layer("", **MHA), 1), (hc.gqa.layer("", g=3, **MHA), 3), (hc.mha.layer("", **MHA), 6)):
        assert form.macs == shared + 2 * B * S * D * g * 5
    with pytest.raises(TypeError, match="needs g"):
        hc.gqa.layer("", **MHA)
    with pytest.raises(TypeError, match="^g is 1 in mqa.layer, not 2"):
        hc.mqa.layer("", g=2, **MHA)
    assert hc.mha.macs_eq19(T=T, d_m=D) == T**2 * D + 4 * T * D**2


def test_symbols_are_not_checked():
    sympy = pytest.importorskip("sympy")
    K, E, t, g = sympy.symbols("K E T g", positive=True)
    form = hc.moa.layer("", **{**MOA, "K": K, "E": E, "T": t, "S": t})
    assert (
        sympy.expand(form.macs - (B * t * D * E + 2 * B * t * K * D * 5 + 2 * B * t * D * 5 + 2 * B * K * t**2 * 5))
        == 0
    )
    assert hc.mha.layer("", **{**MHA, "g": g}).macs.has(g)


def test_editors_see_every_public_name():
    """Type checkers read the imports under TYPE_CHECKING and py.typed."""
    source = (ROOT / "headcount" / "__init__.py").read_text()
    block = source.partition("if TYPE_CHECKING:")[2].partition("__version__")[0]
    assert {name for name in dir(hc) if not re.search(rf"\b{name}\b(,| =|$)", block, re.MULTILINE)} == set()
    assert (ROOT / "headcount" / "py.typed").is_file()


def test_citation_names_this_version():
    text = (hc.CHECKOUT / "CITATION.cff").read_text()
    assert re.search("^version: (.+)$", text, re.MULTILINE).group(1) == hc.__version__
