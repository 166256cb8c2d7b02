"""Where mutants are made: what of a room is changed there."""

import pytest

from tests import mutation_stage


@pytest.mark.parametrize("there", [True, False])
def test_kernels_are_changed_where_they_can_be_run(there, monkeypatch):
    monkeypatch.setattr(mutation_stage, "find_spec", lambda name: object() if there else None)
    names = {path.name for path in mutation_stage.files_of("models")}
    assert ("triton_launch.py" in names) == there and "loop.py" in names
