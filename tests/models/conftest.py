"""Fixtures of the Triton kernel tests."""

from dataclasses import replace

import pytest
import torch

from tests.models.triton_cases import INTERPRETED


@pytest.fixture
def memory_full_of_nan():
    """Fill new memory with NaN or the highest integer, so that unwritten elements are noticed."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(before)


@pytest.fixture
def kernels_in_interpreter(monkeypatch):
    """Run kernels in Triton's interpreter where there is no GPU."""
    if INTERPRETED:
        monkeypatch.setenv("TRITON_INTERPRET", "1")
        _patch_language_once(monkeypatch)
        _skip_overflow_checks(monkeypatch)


def _patch_language_once(monkeypatch):
    """Skip what Triton's interpreter repeats at each call of a function in a kernel: a third of its time."""
    from triton import language
    from triton.runtime import interpreter

    patch = interpreter._patch_lang

    def patch_once(fn):
        modules = [one for one in fn.__globals__.values() if one is language or one is language.core]
        is_patched = not any(language.core.is_builtin(module.load) for module in modules)
        return interpreter._LangPatchScope() if is_patched else patch(fn)

    monkeypatch.setattr(interpreter, "_patch_lang", patch_once)


def _skip_overflow_checks(monkeypatch):
    """Skip conditions of integer overflows, which the interpreter computes and does not assert: a third of its time."""
    from triton.runtime import interpreter

    builder = interpreter.interpreter_builder
    assert not builder.options.debug
    monkeypatch.setattr(builder, "options", replace(builder.options, sanitize_overflow=False))
