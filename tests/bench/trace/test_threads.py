"""Counts while other threads run: equal numbers, no events of other threads, and torch restored afterwards."""

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo import eval_frame
from torch._dynamo.mutation_guard import install_generation_tagging_init
from torch.autograd.function import _SingleLevelFunction
from torch.nn.attention import flex_attention

from headcount.bench.api.count import count_macs
from tests.bench.contractions.function_modules import module

FLEX = "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG"
MLP_MACS = 4 * 3 * 5 + 4 * 5 * 7


def count_mlp(_: Any = None) -> int:
    return count_macs(nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 7)), torch.ones(4, 3)).macs


def process_state() -> dict[Any, Any]:
    """Return the functions of torch and threading that a count patches, and the settings that it changes."""
    owners = (nn.Module, F, torch, torch.Tensor, torch.functional, torch.overrides, torch.autograd.Function)
    owners += (_SingleLevelFunction, threading.Thread, eval_frame, flex_attention)
    names = {(owner, name): value for owner in owners for name, value in vars(owner).items() if callable(value)}
    settings = gc.get_threshold(), torch.is_grad_enabled(), eval_frame._stance, vars(flex_attention)[FLEX]
    return {**names, "settings": settings}


@pytest.fixture(autouse=True)
def check_process_state() -> Iterator[None]:
    # torch's first compilation replaces nn.Module.__init__ permanently
    install_generation_tagging_init()
    before = process_state()
    yield
    assert process_state() == before


def test_counts_in_threads_are_equal():
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(count_mlp, range(50))) == [MLP_MACS] * 50


def run_in_parallel(call: Callable[[], Any], count: Callable[[], Any]) -> tuple[list[Any], list[Any]]:
    """Return the results and errors of ``call``, repeated in a thread, and of 30 runs of ``count`` meanwhile."""
    done, found = threading.Event(), []

    def repeat() -> None:
        while not done.is_set():
            try:
                found.append(call())
            except Exception as error:
                found.append(error)

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        return found, [count() for _ in range(30)]
    finally:
        done.set()
        thread.join()


def test_modules_of_other_threads_are_not_recorded():
    net, x = nn.Sequential(nn.Linear(3, 3), nn.GELU(), nn.Linear(3, 3)), torch.ones(2, 3)

    def count_paths() -> set[str]:
        return {entry.path for entry in count_macs(nn.Sequential(nn.Linear(3, 5), nn.ReLU()), torch.ones(4, 3)).ledger}

    found, paths = run_in_parallel(lambda: net(x).shape == (2, 3), count_paths)
    assert found and set(found) == {True}
    assert paths == [{"0"}] * 30


def test_other_threads_may_compile():
    """A counted model runs uncompiled while another thread compiles."""
    compiled = []

    def backend(graph: Any, _: Any) -> Any:
        compiled.append(threading.current_thread())
        return graph.forward

    product = torch.compile(lambda x: x @ x, backend=backend, fullgraph=True)
    started, ended = threading.Event(), threading.Event()
    x = torch.ones(7, 7)

    def compile_sin() -> None:
        started.wait()
        torch.compile(torch.sin, backend=backend)(x)
        ended.set()

    thread = threading.Thread(target=compile_sin)

    def forward(x: torch.Tensor) -> torch.Tensor:
        started.set()
        ended.wait()
        return product(x)

    thread.start()
    assert count_macs(module(forward), x).macs == 7**3
    thread.join()
    assert compiled == [thread]


def test_count_inside_count_raises():
    with pytest.raises(RuntimeError, match="^a count inside a count: [^\n]*$"):
        count_macs(module(lambda x: x * count_mlp()), torch.ones(3))
    assert count_mlp() == MLP_MACS


# the interrupt may hit torch's callbacks of weak references
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_interrupted_counts_restore_torch():
    """An interrupt comes at the beginning of each Python call of a count, one after the other."""
    # made here: an interrupted constructor of torch leaves autograd off
    model, x = nn.Linear(3, 5), torch.ones(4, 3)
    before = process_state()

    def count_with_interrupt_at(number: int) -> int:
        calls = 0

        def interrupt(_frame: Any, event: str, _argument: Any) -> None:
            nonlocal calls
            calls += event == "call"
            if calls == number:
                sys.setprofile(None)
                raise KeyboardInterrupt

        sys.setprofile(interrupt)
        try:
            count_macs(model, x)
        except KeyboardInterrupt:
            pass
        sys.setprofile(None)
        return calls

    for number in range(1, count_with_interrupt_at(0) + 1):
        count_with_interrupt_at(number)
        assert process_state() == before, number
    assert count_mlp() == MLP_MACS


def test_forward_that_waits_for_a_count_raises(monkeypatch):
    monkeypatch.setattr("headcount.bench.trace.garbage_collector.DEADLOCK_S", 1)

    def forward(x: torch.Tensor) -> torch.Tensor:
        with ThreadPoolExecutor(1) as pool, pytest.raises(RuntimeError, match="^a count inside a count: [^\n]*$"):
            pool.submit(count_mlp).result()
        return x @ x.T

    assert count_macs(module(forward), torch.ones(4, 6), allow_unsupported=True).macs == 4 * 6 * 4
