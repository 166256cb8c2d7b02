"""Recording runs no full garbage collection and restores the thresholds."""

import gc

import pytest

from headcount.bench.trace.collector import no_full_gc


def test_no_full_gc_restores_thresholds():
    before = gc.get_threshold()
    gc.set_threshold(701, 11, 13)
    try:
        with pytest.raises(KeyError), no_full_gc():
            assert gc.get_threshold() == (701, 11, 1_000_000)
            raise KeyError
        assert gc.get_threshold() == (701, 11, 13)
    finally:
        gc.set_threshold(*before)
