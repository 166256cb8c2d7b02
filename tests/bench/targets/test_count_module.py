"""The count of one user module: its device and its parameters, and errors of user code."""

from importlib.metadata import version
from types import SimpleNamespace

import psutil
import pytest
import torch
from torch import nn

from headcount.bench.counters import base
from headcount.bench.counting import copies, devices, tools
from headcount.bench.counting.devices import FAKE
from headcount.bench.counting.result import Parameter
from headcount.bench.counting.run import inputs_of
from headcount.bench.targets.user_code import UserCodeError

FACTORY = """
import threading
import torch
from torch import nn

class By(nn.Module):
    def __init__(self, function, **parts):
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)
    def forward(self, *args, **kwargs): return self.function(self, *args, **kwargs)

def _hidden(): pass
def linear(): return nn.Linear(5, 7), (torch.ones(3, 5),)
def lazy(): return nn.Sequential(nn.LazyLinear(7)), (torch.ones(3, 5),)
def lazy_by_keyword(): return nn.LazyLinear(7), {"input": torch.ones(3, 5)}
def of_values(): return By(lambda m, x: x[x > 0] @ x[x > 0]), (torch.arange(-3.0, 8.0),)
def of_numbers(): return By(lambda m, n: torch.ones(n, 5) @ torch.ones(5, 7), lock=threading.Lock()), (3,)
def by_device(): return By(lambda m, a, b: a @ b if a.is_meta else a @ b @ b.mT), (torch.ones(3, 5), torch.ones(5, 7))
def by_device_by_keyword():
    module, tensors = by_device()
    return module, dict(zip("ab", tensors))
def on_meta(): return nn.Linear(5, 7, device="meta"), (torch.ones(3, 5, device="meta"),)
def of_meta_alone(m, a, b):
    assert a.is_meta, "it has values"
    return a @ b
def meta_alone(): return By(of_meta_alone), (torch.ones(3, 5), torch.ones(5, 7))
class Changes(nn.Linear):
    def forward(self, x):
        self.weight.mul_(2)
        return super().forward(x.add_(1))
def changes(): return Changes(5, 7), (torch.ones(3, 5),)
def changes_many():
    layers = nn.Sequential(*(nn.Linear(5, 5, bias=False) for _ in range(3)))
    return By(lambda m, x: [one.weight.mul_(2) for one in m.layers] and m.layers(x), layers=layers), (torch.ones(3, 5),)
def fails(): return nn.Linear(5, 7), (torch.ones(3, 11),)
def shares():
    inner = nn.Linear(7, 7, bias=False).requires_grad_(False)
    return nn.Sequential(nn.Sequential(inner), inner, nn.LayerNorm(7, bias=False)), (torch.ones(3, 7),)
def integers(): return nn.Linear(5, 7, bias=False), (torch.ones(3, 5, dtype=torch.int),)
def sparse(): return By(lambda m, a, b: a @ b), (torch.eye(3, 5).to_sparse(), torch.ones(5, 7))
def nested(): return nn.Linear(5, 7), (torch.nested.nested_tensor([torch.ones(3, 5), torch.ones(2, 5)]),)
class NoCopy(nn.Linear):
    def __deepcopy__(self, memo): return None
def no_copy(): return NoCopy(5, 7), (torch.ones(3, 5),)
def stops(m, x): raise m.error
def interrupt(): return By(stops, error=KeyboardInterrupt()), (torch.ones(3, 5),)
class Hostile(Exception):
    def __str__(self): raise ValueError
def hostile(): return By(stops, error=Hostile()), (torch.ones(3, 5),)
class NoInit(nn.Module):
    def __init__(self): pass
def no_init(): return NoInit(), (torch.ones(3, 5),)
@torch.jit.script
def script(n: int): return n
def rows(): return nn.Linear(5, 7)(torch.ones(3, 5, 1)), torch.ones(3, 5)
def alone(): return nn.Linear(5, 7)
def no_inputs(): return nn.Linear(5, 7), 35
def bare(): return nn.Linear(5, 7), torch.ones(3, 5)
def needs_rows(rows, width=5): pass
"""


@pytest.fixture
def answer(count, tmp_path):
    """Return a function that counts the module that a function of FACTORY builds."""
    (tmp_path / "a_factory_of_modules.py").write_text(FACTORY)

    def answer(function, device=None, counters=(), **options):
        return count(f"a_factory_of_modules.py:{function}", device=device, counters=counters, **options)

    return answer


def macs_and_device(found):
    return found.macs, found.device, found.why_there


@pytest.mark.parametrize("device", [None, "meta"])
@pytest.mark.parametrize("function", ["linear", "bare"])
def test_module_is_counted_on_meta(answer, function, device):
    assert macs_and_device(answer(function, device)) == (3 * 5 * 7, "meta", None)


@pytest.mark.parametrize("function", ["lazy", "lazy_by_keyword"])
def test_lazy_module_is_initialised_from_inputs(answer, function):
    found = answer(function)
    assert macs_and_device(found) == (3 * 5 * 7, "meta", None)
    assert found.params == 5 * 7 + 7


def test_data_dependent_module_is_counted_on_cpu(answer):
    macs, device, why = macs_and_device(answer("of_values"))
    assert (macs, device) == (7, "cpu") and why.startswith("a run on meta fails: the size of what torch.nonzero")
    with pytest.raises(UserCodeError, match="^a run on meta fails: "):
        answer("of_values", "meta")


@pytest.mark.parametrize(("limit", "macs", "device"), [(105, 210, "cpu"), (104, 105, "meta")])
def test_small_module_is_also_run_on_its_device(answer, monkeypatch, limit, macs, device):
    """The module has one product of 3 x 5 x 7 on meta, and two elsewhere."""
    monkeypatch.setattr(devices, "MAX_CHECKED_MACS", limit)
    why = "it counts 105 there and 210 on cpu" if device == "cpu" else None
    for function in ("by_device", "by_device_by_keyword"):
        assert macs_and_device(answer(function)) == (macs, device, why)


def test_failing_module_is_a_user_error(answer, monkeypatch):
    with pytest.raises(UserCodeError, match="^the module's forward pass on cpu raised RuntimeError: mat1 and mat2"):
        answer("fails")
    with pytest.raises(UserCodeError, match="^moving the module to cpu raised NotImplementedError: "):
        answer("on_meta", "cpu")
    monkeypatch.setattr(tools, "count_contractions", lambda *_, **__: 1 // 0)
    for function in ("linear", "lazy_by_keyword"):
        with pytest.raises(ZeroDivisionError):
            answer(function)


@pytest.mark.parametrize(("device", "there", "biases"), [(None, "cpu", 3 * 7), ("meta", "meta", 3 * 7 + 3 * 5 * 7)])
@pytest.mark.parametrize("function", ["linear", "on_meta"])
def test_tools_run_on_the_cpu_and_headcount_on_meta(answer, function, device, there, biases):
    """On meta ptflops counts a biased linear layer twice, on the CPU once; weights of meta are zeros there."""
    found = answer(function, device, ["ptflops-pytorch", "headcount"])
    (tool, own), macs = found.tools, 3 * 5 * 7
    assert (tool.device, tool.macs, tool.explained) == (there, macs + biases, True)
    assert (tool.result.tool, tool.result.version) == ("ptflops", version("ptflops"))
    assert (own.device, own.macs, found.device) == ("meta", macs, "meta")


def test_tools_count_large_models_on_meta(answer, monkeypatch):
    monkeypatch.setattr(base, "MAX_CPU_MACS", 3 * 5 * 7 - 1)
    (tool,) = answer("linear", counters=["torch"]).tools
    assert (tool.device, tool.why_there) == ("meta", "the model has more than 0 GMACs")
    monkeypatch.setattr(base, "MAX_CPU_MACS", 3 * 5 * 7)
    stored = 4 * (3 * 5 + 5 * 7 + 7)
    for free, where in ((2 * stored, "cpu"), (2 * stored - 1, "meta")):
        memory = SimpleNamespace(available=free)
        monkeypatch.setattr(psutil, "virtual_memory", lambda memory=memory: memory)
        (tool,) = answer("linear", counters=["torch"]).tools
        assert tool.device == where
    assert tool.why_there == "weights and inputs take more than half of the free memory"


def test_tools_count_on_a_device_that_runs_the_module(answer):
    """Tools use the CPU for a module that needs values, and meta, with the reason, for one that fails on the CPU."""
    for function in ("of_values", "of_numbers"):
        (tool,) = answer(function, counters=["torch"]).tools
        assert (tool.device, tool.why_there, tool.explained) == ("cpu", None, True)
    (tool,) = answer("meta_alone", counters=["torch"]).tools
    assert (tool.device, tool.macs) == ("meta", 3 * 5 * 7)
    assert tool.why_there == "a run on cpu raised AssertionError: it has values"


def test_in_place_changes_are_noted(answer):
    expected = ("The run changes inputs in place: 0.", "The run changes weights in place: weight.")
    assert tuple(answer("changes").notes) == expected
    assert tuple(answer("on_meta").notes) == ()


def test_weights_that_change_are_few_names(answer):
    (note,) = answer("changes_many").notes
    assert note == "The run changes 3 weights in place: layers.0.weight, layers.1.weight, …."


def test_run_that_reads_sizes_of_the_command_is_noted(answer):
    for text, notes in (("7", 1), ("x=[1, 2, 3.0]", 0)):
        assert len(answer("of_values", inputs=(text,)).notes) == notes


def test_failure_on_own_device_is_noted(answer):
    """Meta multiplies integers by floats, and the CPU does not."""
    found = answer("integers")
    (note,) = found.notes
    assert macs_and_device(found) == (3 * 5 * 7, "meta", None)
    assert note.startswith("Not verified: a run on cpu raised RuntimeError: ") and "dtype" in note


@pytest.mark.parametrize("function", ["no_copy", "of_numbers"])
def test_module_without_a_copy_on_meta_counts_on_cpu(answer, function):
    found = answer(function)
    assert macs_and_device(found)[:2] == (3 * 5 * 7, "cpu") and "raised TypeError" in found.why_there
    assert found.notes == ()


@pytest.mark.parametrize(("function", "words"), [
    ("interrupt", "the module's forward pass on cpu raised KeyboardInterrupt"),
    ("hostile", "the module's forward pass on cpu raised Hostile: "),
    ("no_init", "reading the module raised AttributeError"),
    ("script", "script raised RuntimeError: script() is missing value for argument 'n'"),
    ("alone", "alone must return (module, inputs), inputs a tensor, a tuple or a dict of keywords; it returned a L"),
    ("no_inputs", "no_inputs must return (module, inputs)"),
    ("needs_rows", "needs_rows takes rows, width: "),
    ("absent", "a_factory_of_modules.py has no function absent; it has linear, lazy, lazy_by_keyword, "),
])  # fmt: skip
def test_error_of_user_code_is_one_line(answer, function, words):
    with pytest.raises(UserCodeError) as raised:
        answer(function)
    assert str(raised.value).startswith(words) and "\n" not in str(raised.value)


def test_traceback_has_frames_of_user_code_only(answer):
    with pytest.raises(UserCodeError) as raised:
        answer("rows")
    (frame,) = (line.strip() for line in raised.value.trace.splitlines() if line.lstrip().startswith("File"))
    assert "a_factory_of_modules.py" in frame and frame.endswith("in rows")


@pytest.mark.parametrize("counters", [(), ["torch"]])
def test_sparse_input_is_counted_by_its_stored_elements(answer, counters):
    assert answer("sparse", counters=counters).macs == 3 * 7


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested")
def test_nested_input_is_described_by_its_parts(answer):
    found = answer("nested")
    assert (found.macs, found.inputs) == ((3 + 2) * 5 * 7, ("0: 3x5, 2x5 float32",))


def test_negative_formula_is_a_user_error(answer):
    with pytest.raises(UserCodeError, match="^--formula addmm=a-100: it gives -93, below 0$"):
        answer("on_meta", formulas={"addmm": "a-100"})


def test_shared_parameters_are_listed_once(answer):
    assert answer("shares").parameters == (Parameter("0.0.weight", (7, 7), False), Parameter("2.weight", (7,)))


def test_inputs_are_described_by_position():
    x, ids = torch.ones(7, 11), torch.zeros(3, dtype=torch.long)
    found = inputs_of((x, [ids, 5], {"deep": (x,)}), {"scale": torch.tensor(2.0), "flag": True})
    assert found == ("0: 7x11 float32", "1[0]: 3 int64", "2['deep'][0]: 7x11 float32", "scale: scalar float32")


def test_meta_copy_keeps_sharing_and_frozen():
    module = nn.Module()
    module.one = module.other = nn.Parameter(torch.ones(3, 5))
    module.frozen = nn.Parameter(torch.ones(7, dtype=torch.int8), requires_grad=False)
    module.register_buffer("table", torch.ones(11))
    module.again = module.table
    found = copies.copy_module(module, lambda tensor: tensor.to("meta"))
    assert found.one is found.other and found.again is found.table
    shapes = {"one": (3, 5), "frozen": (7,), "table": (11,)}
    assert {name: (*getattr(found, name).shape,) for name in shapes} == shapes
    assert {getattr(found, name).device.type for name in shapes} == {"meta"}
    assert [getattr(found, name).requires_grad for name in shapes] == [True, False, False]
    assert module.one.device.type == module.table.device.type == "cpu"


READS = """
import torch
from torch import nn
class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(5, 4, bias=False, device="meta")
        self.experts = nn.ModuleList(nn.Linear(5, 7, bias=False, device="meta") for _ in range(4))
    def forward(self, x):
        chosen = self.router(x).topk(2).indices.view(-1)
        sizes = chosen.bincount(minlength=4).tolist()
        rows = x[chosen.argsort() // 2].split(sizes)
        return [expert(part) for expert, part in zip(self.experts, rows)]
class Length(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(5, 5, bias=False, device="meta")
    def forward(self, x):
        return self.inner(x[: int((self.inner(x)[:, 0] > 0.5).sum())])
class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.utils.weight_norm(nn.Linear(5, 7, bias=False, device="meta"))
    def forward(self, x): return self.inner(x[: int(x.sum())])
class Converted(Experts):
    def forward(self, x):
        self.router = self.router.to(torch.bfloat16)
        chosen = self.router(x.bfloat16()).argmax(-1)
        return [self.experts[one](row) for one, row in zip(chosen.tolist(), x)]
def router(): return Experts(), (torch.ones(3, 5),)
def converted(): return Converted(), (torch.ones(3, 5),)
def length(): return Length(), (torch.ones(97, 5),)
def normed(): return Normed(), (torch.full((3, 5), 2 / 15),)
"""


@pytest.fixture
def reads(count, tmp_path):
    """Return a function that counts a module on meta, which reads values, by a function of READS."""
    (tmp_path / "a_module_that_reads.py").write_text(READS)
    return lambda function, **options: count(f"a_module_that_reads.py:{function}", **options)


def test_router_that_reads_its_choice(reads):
    found = reads("router")
    assert (found.macs, found.device) == (3 * 5 * 4 + 3 * 2 * 5 * 7, FAKE)
    assert any("are drawn: the MACs are the same with others" in note for note in found.notes)


def test_weight_that_is_converted_while_values_are_read(reads):
    found = reads("converted")
    assert (found.macs, found.device) == (3 * 5 * 4 + 3 * 5 * 7, FAKE)
    assert found.params == 5 * 4 + 4 * 5 * 7


@pytest.mark.parametrize("limit", [0, 10**9])
def test_tools_count_what_reads_values_without_weights(reads, monkeypatch, limit):
    """A model too large for the CPU, which does not run on meta either, is counted by tools where headcount does."""
    monkeypatch.setattr(base, "MAX_CPU_MACS", limit)
    (tool,) = reads("router", counters=["torch"]).tools
    assert (tool.device, tool.macs) == ("cpu" if limit else FAKE, 3 * 5 * 4 + 3 * 2 * 5 * 7)


def test_count_that_depends_on_drawn_values_says_so(reads):
    found = reads("length")
    assert any("are drawn: " in note and note.endswith("MACs with others") for note in found.notes)
    assert 97 * 25 < found.macs < 2 * 97 * 25


@pytest.mark.filterwarnings("ignore:.*weight_norm")
def test_weight_norm_has_a_copy_without_values(reads):
    found = reads("normed")
    assert (found.macs, found.device) == (2 * 5 * 7, FAKE)
    assert not any("drawn" in note for note in found.notes)
