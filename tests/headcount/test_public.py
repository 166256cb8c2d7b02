"""``import headcount as hc``: its names, and that using one imports no unrelated package."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import headcount as hc
from headcount.models.configs.registry import VARIANTS

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "numpy", "pandas", "sympy", "matplotlib", "tabulate")


def imported(program, *options):
    """Return the heavy packages that ``program`` has imported at its end, in a new Python process."""
    code = f"import sys\n{program}\nprint(*(name for name in {HEAVY} if name in sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, *options, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    return done.stderr.splitlines()[-1].split()


@pytest.mark.parametrize(
    "program",
    [
        "import headcount",
        "import headcount as hc; dir(hc)",
        "import headcount as hc; hc.preset('moa-8K8E128D')",
        "import headcount as hc; hc.moa.layer('', B=1, T=7, S=7, d_m=13, E=11, K=3, D=5).macs",
        "from headcount.__main__ import main; main(['--help'])",
        "from headcount.__main__ import main; main(['nothing'])",
    ],
)
def test_light_commands_import_no_torch(program):
    assert imported(f"try:\n  {program}\nexcept SystemExit: pass") == []


def test_the_public_names():
    assert sorted(hc.__all__) == [
        "assert_macs", "build", "convert", "count", "count_macs", "load_hugging_face", "lock", "preset",
    ]  # fmt: skip
    assert dir(hc) == sorted({*hc.__all__, *VARIANTS})
    for name in dir(hc):
        assert getattr(hc, name).__doc__, name
    with pytest.raises(AttributeError, match="module 'headcount' has no attribute 'flops'"):
        hc.flops  # noqa: B018


def test_a_module_is_counted_and_checked():
    module, x = torch.nn.Linear(5, 7, bias=False), torch.zeros(3, 5)
    assert hc.count(module, x).macs == hc.count_macs(module, x).macs == 3 * 5 * 7
    hc.assert_macs(module, x, expected="n*a*b", n=3, a=5, b=7)
    with pytest.raises(AssertionError, match="expected 104"):
        hc.assert_macs(module, x, expected=104)


def test_preset_macs_match_closed_form():
    config = hc.preset("moa-8K8E128D", {"d_model": 7, "num_experts": 13, "top_k": 11, "head_dim": 17})
    layer = hc.build(config, device="meta").encoder.layers[0].self_attn
    x = torch.zeros(2, 3, 7, device="meta")
    form = hc.moa.layer("", B=2, T=3, S=3, d_m=7, E=13, K=11, D=17)
    # a router, queries and outputs of K experts, one key and one value, scores and sums
    wanted = 2 * 3 * (7 * 13 + 2 * 11 * 7 * 17 + 2 * 7 * 17 + 2 * 11 * 3 * 17)
    assert hc.count(layer, x).macs == form.macs == wanted


def test_readme_examples_run(tmp_path, monkeypatch):
    text = (ROOT / "README.md").read_text("utf-8")
    blocks = dict(re.findall(r"^```(py|python)\n(.*?)^```", text, re.DOTALL | re.MULTILINE))
    (tmp_path / "model.py").write_text(blocks["py"])
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "model", raising=False)
    names = {}
    exec(blocks["python"], names)
    assert (
        names["layer"].macs == 128 * 512 * 32 + 2 * 16 * 128 * 512 * 256 + 2 * 128 * 512 * 256 + 2 * 16 * 128**2 * 256
    )
    del sys.modules["model"]
