"""hc.lock and the fixture macs_lock."""

import json
import re
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

import headcount as hc
from headcount.bench.contractions.classify import UnsupportedError
from headcount.bench.errors import UsageError
from headcount.bench.lock.api import CostChanged
from headcount.bench.snapshot import file

pytest_plugins = ["pytester"]
PLUGIN = ("-p", "headcount.bench.lock.pytest_plugin", "-p", "no:cacheprovider", "-p", "no:benchmark")


def net(width=13):
    return torch.nn.Sequential(torch.nn.Linear(11, width), torch.nn.ReLU(), torch.nn.Linear(width, 5))


def test_check_raises_where_cost_changed(tmp_path):
    x, path = torch.zeros(7, 11), tmp_path / "macs.lock"
    counted = hc.lock(net(), x)
    assert counted.macs == 7 * (11 * 13 + 13 * 5) and counted.params == 11 * 13 + 13 + 13 * 5 + 5
    counted.write(path)
    assert json.loads(path.read_text())["targets"][0]["target"] is None
    hc.lock(net(), x).check(path)
    with pytest.raises(AssertionError) as raised:
        hc.lock(net(17), x).check(path)
    first, second, *changes = str(raised.value).split("\n")
    # 448 of 1,456, and 68 of 226
    assert first == f"{path}: cost changed: +30.8 % MACs, +30.1 % parameters"
    assert second.startswith("1,456 -> 1,904 (+448) MACs (2 changed)")
    assert changes[0] == "  0: MACs changed, m=7 i=11 j=13->17, +308" and changes[-1] == "  and 1 smaller change"
    assert "1.weight" not in str(raised.value)
    with pytest.raises(UsageError, match="cannot read"):
        counted.check(tmp_path / "none.lock")


def test_check_reads_one_of_several_targets_with_its_limits(tmp_path):
    x, path = torch.zeros(7, 11), tmp_path / "two.lock"
    limited = replace(hc.lock(net(13), x), name="wide", limits={"macs": 1904})
    path.write_text(file.text(hc.lock(net(3), x), limited))
    hc.lock(net(3), x).check(path, "Sequential")
    hc.lock(net(17), x).check(path, "wide")
    for width, target in ((5, "Sequential"), (18, "wide")):
        with pytest.raises(CostChanged, match=" -> "):
            hc.lock(net(width), x).check(path, target)
    with pytest.raises(UsageError, match="has the targets Sequential, wide; one is expected, not all$"):
        limited.check(path)


class Spectrum(torch.nn.Module):
    """Module with an unsupported operation, an elementwise contraction, and in training a product of 7 x 7 x 5."""

    def forward(self, x):
        y = torch.fft.rfft(x).abs()
        z = (y * y.flip(0)).sum(-1)
        return y @ y.mT @ y if self.training else z


def test_lock_takes_options_of_count():
    x = torch.zeros(7, 9)
    with pytest.raises(UnsupportedError):
        hc.lock(Spectrum(), x)
    known = hc.lock(Spectrum(), kwargs={"x": x}, formulas={"_fft_r2c": lambda event: 3}, elementwise="include")
    assert (known.macs, known.inputs) == (3 + 7 * 5, ("x: 7x9 float32",))
    allowed = hc.lock(Spectrum(), x, allow_unsupported=True, training=True)
    assert allowed.macs == 2 * 7 * 7 * 5
    assert [line.text() for line in allowed.unsupported] == ["_fft_r2c on 7x9 (in the model)"]
    assert allowed.elementwise_macs == 7 * 5
    assert hc.lock(net(), torch.zeros(7, 11), backward=True).macs == 3 * hc.lock(net(), torch.zeros(7, 11)).macs


TEST = """
import pytest, torch

def test_cost(macs_lock):
    assert macs_lock(torch.nn.Linear(11, 13), torch.zeros(7, 11)).macs == 1001

class TestNet:
    @pytest.mark.parametrize("width", [3, 5])
    def test_width(self, macs_lock, width):
        macs_lock(torch.nn.Linear(11, width), torch.zeros(7, 11))
        macs_lock(torch.nn.Linear(width, 11), torch.zeros(7, width), name="back")
"""
LOCKS = [
    "TestNet.test_width[3].back.lock", "TestNet.test_width[3].lock", "TestNet.test_width[5].back.lock",
    "TestNet.test_width[5].lock", "test_cost.lock",
]  # fmt: skip


def test_fixture_writes_and_compares(pytester):
    path = pytester.makepyfile(test_net=TEST)
    missing = pytester.runpytest(*PLUGIN)
    missing.assert_outcomes(failed=3)
    missing.stdout.fnmatch_lines("*LockMissing: there is no lock *test_net/test_cost.lock; pytest --macs-lock-update*")
    assert not (pytester.path / "test_net").exists()
    pytester.runpytest(*PLUGIN, "--macs-lock-update").assert_outcomes(passed=3)
    assert sorted(one.name for one in (pytester.path / "test_net").iterdir()) == LOCKS
    pytester.runpytest(*PLUGIN).assert_outcomes(passed=3)
    path.write_text(TEST.replace("Linear(width, 11)", "Linear(width, 17)"))
    changed = pytester.runpytest(*PLUGIN)
    changed.assert_outcomes(passed=1, failed=2)
    # 357 of 231, and 68 of 44
    changed.stdout.fnmatch_lines("*test_width?3?.back.lock: cost changed: +54.5 % MACs, +54.5 % parameters")
    # a failure is the line of the test and what changed, without the source of the plugin
    changed.stdout.no_fnmatch_line("*def check*")


def test_import_warns_of_nothing():
    """``pytest -W error`` makes a warning of what a count imports an error of the user's test."""
    code = "import headcount, torch; headcount.count(torch.nn.Linear(3, 5), torch.zeros(2, 3))"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_lock_name_is_unique(pytester):
    pytester.makepyfile(
        """
        import torch

        def test_twice(macs_lock):
            macs_lock(torch.nn.Linear(11, 13), torch.zeros(7, 11))
            macs_lock(torch.nn.Linear(11, 13), torch.zeros(7, 11))
        """
    )
    done = pytester.runpytest(*PLUGIN, "--macs-lock-update")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines("*ValueError: *test_twice.lock is already the lock of *; give each lock its own name=*")


LIMITED = """
import pytest, torch, headcount as hc

X = torch.zeros(3, 7)
def net(width): return torch.nn.Linear(7, width, bias=False)

def test_percent(macs_lock): macs_lock(net(WIDTH), X, max={"macs": "+10%", "params": "+10.5 %"})
def test_number(macs_lock): macs_lock(net(WIDTH), X, max={"macs": "0.231k"})
def test_wrong(macs_lock): macs_lock(net(WIDTH), X, max={"macs": "5%"})
def test_unknown(macs_lock): macs_lock(net(WIDTH), X, max={"flops": 3})
"""


@pytest.mark.parametrize("width, passes", [(10, 2), (7, 2), (11, 2), (12, 0)])
def test_limits_of_a_test(pytester, width, passes):
    """210 MACs and 70 parameters are locked, 231 MACs are 10 % more."""
    pytester.makepyfile(test_net=LIMITED.replace("WIDTH", "10"))
    written = pytester.runpytest(*PLUGIN, "--macs-lock-update")
    written.assert_outcomes(passed=2, failed=2)
    written.stdout.fnmatch_lines(["*ValueError: '5%' is no limit; write +5% or 2.1G*", "*'flops' has no limit; *"])
    pytester.makepyfile(test_net=LIMITED.replace("WIDTH", str(width)))
    checked = pytester.runpytest(*PLUGIN, "-k", "percent or number")
    checked.assert_outcomes(passed=passes, failed=2 - passes)
    if not passes:
        checked.stdout.fnmatch_lines(
            "*test_percent.lock: 252 MACs, above the limit of 231; 84 *, above the limit of 77*"
        )
        # nor is a lock above its own limit written
        again = pytester.runpytest(*PLUGIN, "--macs-lock-update", "-k", "number")
        again.stdout.fnmatch_lines("*test_number.lock is not written: 252 MACs, above the limit of 231*")


FAILURES = """
import torch, headcount as hc
from torch import nn

class Spectrum(nn.Module):
    def forward(self, x): return torch.linalg.lu(x)[0]

X = torch.ones(4, 4)
def test_macs(): hc.assert_macs(nn.Linear(4, 5), X, expected=7)
def test_argument(macs_lock): macs_lock(nn.Linear(4, 5), X, rtol=3)
def test_operator(): hc.count(Spectrum(), X)
def test_shape(): hc.count(nn.Linear(3, 5), (2, 4))
def test_peak(): hc.MFU(nn.Linear(4, 5), X, peak="H100")
"""


def test_failures_show_no_line_of_headcount(pytester):
    path = pytester.makepyfile(test_failures=FAILURES)
    done = pytester.runpytest(*PLUGIN)
    done.assert_outcomes(failed=5)
    places = [line for line in done.outlines if re.match(r"\S+\.py:\d+: ", line)]
    assert len(places) >= 5 and all(path.name in line or "torch" in line for line in places)
    errors = [line for line in done.outlines if line.startswith("E   ")]
    assert len(errors) <= 12
    done.stdout.fnmatch_lines(["E * 80 multiply-accumulates, expected 7*", "E *no rtol; an expected number*",
                               "E *operations*linalg_lu*", "E *cannot be multiplied*", "E *made from sizes, (2, 4)*",
                               "E *peak 'H100': 'H100' is H100 SXM, *"])  # fmt: skip
