"""Fingerprints of Triton kernels follow their code, and the code that they call."""

import pytest

from headcount.bench.performance import sources

KERNEL = '''
LOG = 2
def _helper(x):
    """{text}"""
    return x {sign} LOG
def other_kernel(x):
    return x
def sum_kernel(x):  # {text}
    return _helper(x)
'''


def fingerprint(tmp_path, monkeypatch, kernel="sum", launch=(), **changes):
    code = KERNEL.format(**{"text": "text", "sign": "+"} | changes)
    (tmp_path / "triton_rows.py").write_text(code)
    (tmp_path / "triton_attention.py").write_text("")
    monkeypatch.setattr(sources, "files", lambda _: tmp_path)
    sources._definitions.cache_clear()
    try:
        return sources.fingerprint(kernel, *launch)
    finally:
        sources._definitions.cache_clear()


@pytest.mark.parametrize("kernel, changes, same", [
    ("sum", {"text": "another"}, True), ("sum", {"sign": "-"}, False), ("other", {"sign": "-"}, True),
    ("sum", {"launch": (128,)}, False),
])  # fmt: skip
def test_fingerprint_follows_code(tmp_path, monkeypatch, kernel, changes, same):
    before = fingerprint(tmp_path, monkeypatch, kernel)
    assert (fingerprint(tmp_path, monkeypatch, kernel, **changes) == before) == same


def test_each_kernel_has_its_own_fingerprint():
    names = ("route", "expert", "mqa", "decode", "combine")
    assert len({sources.fingerprint(name) for name in names}) == len(names)
