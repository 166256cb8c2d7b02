"""Counts of configurations that are stored between runs: when one is read, and what makes it run again."""

import json
import sys
from dataclasses import replace
from importlib.util import spec_from_file_location

import pytest

from headcount.__main__ import main
from headcount.bench import store
from headcount.bench.accounts import Assumptions
from headcount.bench.store import count
from headcount.bench.targets.config_fields import library_of
from headcount.bench.targets.target import Target
from tests.bench.targets.conftest import LLAMA, write

WEIGHTS = 2 * (2 * 24 * 24 + 2 * 24 * 12 + 3 * 24 * 32) + 53 * 24


def macs(T):
    """Return the MACs of LLAMA: its weights once for each token, and scores and values."""
    return T * WEIGHTS + 2 * 2 * T * T * 24


@pytest.fixture
def runs(monkeypatch, tmp_path):
    """An empty store, and a list to which each run of a target is added."""
    pytest.importorskip("transformers", reason="the optional extra hf is not installed")
    monkeypatch.setenv("HEADCOUNT_CACHE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    runs, run = [], store.counting.count

    def spy(target, *args, **options):
        runs.append(target.spec)
        return run(target, *args, **options)

    monkeypatch.setattr(store.counting, "count", spy)
    return runs


@pytest.fixture
def target(tmp_path):
    write(tmp_path, LLAMA)
    return Target("config.json", lengths={"seq_len": 5})


def test_stored_count_equals_that_of_its_run(runs, target):
    options = {"columns": ("kv_bytes", "saved_bytes", "decode_bytes"), "given": Assumptions(element_bytes=1)}
    first, second = (count(target, **options) for _ in range(2))
    assert len(runs) == 1 and first.macs == macs(5) and second == first
    assert second.columns["kv_bytes"] == 2 * 2 * 5 * 12 and len(second.columns) == 3


def test_table_of_configurations_is_judged_without_a_process(runs, target, monkeypatch, capsys):
    rows = [f'"config.json,T={T}",macs,{macs(T)}' for T in (3, 5)] + ['"config.json,T=5",kv_elements,240']
    with open("rows.csv", "w") as file:
        file.write("\n".join(["target,quantity,printed", *rows]))
    assert main(["table", "rows.csv"]) == 0
    first = capsys.readouterr().out
    assert "3 reproduced" in first
    monkeypatch.setattr("headcount.bench.targets.process._start", None)
    assert main(["table", "rows.csv"]) == 0
    assert capsys.readouterr().out == first and len(runs) == 3


def changed_file(target, folder):
    write(folder, LLAMA | {"intermediate_size": 48})


def preprocessor(target, folder):
    (folder / "preprocessor_config.json").write_text("{}")


def other_version(target, folder):
    (folder / "site" / "any-2.dist-info").mkdir(parents=True)


def broken_store(target, folder):
    for file in (folder / "store" / "counts").iterdir():
        file.write_text(file.read_text()[:-9])


def older_store(target, folder):
    for file in (folder / "store" / "counts").iterdir():
        data = json.loads(file.read_text())
        del data["found"]["ledger"]
        file.write_text(json.dumps(data))


@pytest.mark.parametrize("change", [changed_file, preprocessor, other_version, broken_store, older_store])
def test_change_makes_a_configuration_run_again(change, runs, target, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    count(target)
    change(target, tmp_path)
    store._code.cache_clear()
    found = count(target)
    more = 5 * 2 * 3 * 24 * 16 if change is changed_file else 0
    assert len(runs) == 2 and found.macs == macs(5) + more
    assert count(target) == found and len(runs) == 2


@pytest.mark.parametrize("options", [
    {"lengths": {"seq_len": 7}}, {"settings": {"num_hidden_layers": 1}}, {"dtype": "float32"}, {"backward": True},
    {"elementwise": "include"},
])  # fmt: skip
def test_other_options_are_other_counts(options, runs, target):
    found = [count(one) for one in (target, replace(target, **options), target)]
    assert len(runs) == 2 and found[0] == found[2] != found[1]


def test_sources_of_a_library_are_in_the_state(tmp_path, monkeypatch):
    """Of a library that is edited in its folder too, whose version stays."""
    package = tmp_path / "site" / "timm"
    (package / "models").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "linked.py").symlink_to("nothing.py")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    config = write(tmp_path, {"architecture": "any"})
    states = []
    for content in ("SIZE = 3", "SIZE = 33", "SIZE = 33"):
        (package / "models" / "any.py").write_text(content)
        store._code.cache_clear()
        states.append(store._code(library_of(config)))
    monkeypatch.setattr(store, "SOURCES", ("bench",))
    store._code.cache_clear()
    states.append(store._code(library_of(config)))
    store._code.cache_clear()
    assert len({*states}) == len(states)


@pytest.mark.parametrize("is_found", [True, False])
def test_library_of_an_editable_installation(is_found, tmp_path, monkeypatch):
    """Its finder is no folder on the path; of a library without files nothing is stored."""
    (tmp_path / "timm").mkdir()
    source = tmp_path / "timm" / "__init__.py"
    source.touch()

    class Finder:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name == "timm" and is_found:
                return spec_from_file_location(name, source, submodule_search_locations=[str(tmp_path / "timm")])
            return None

    monkeypatch.setattr(sys, "meta_path", [Finder])
    config, states = write(tmp_path, {"architecture": "any"}), []
    for content in ("", "SIZE = 3"):
        source.write_text(content)
        store._code.cache_clear()
        states.append(store._code(library_of(config)))
    store._code.cache_clear()
    assert None not in states and states[0] != states[1] if is_found else states == [None, None]


@pytest.mark.parametrize("options", [
    {"inputs": ("1,5:long",), "lengths": {}}, {"device": "cpu"}, {"plan": "transformers", "ranks": 2},
])  # fmt: skip
def test_counts_of_inputs_devices_and_plans_run_again(options, runs, target):
    first, second = (count(replace(target, **options)) for _ in range(2))
    assert first == second and len(runs) == 2


def test_user_code_runs_again(runs, tmp_path):
    (tmp_path / "model.py").write_text("import torch\ndef make(): return torch.nn.Linear(7, 5), torch.ones(3, 7)\n")
    assert [count(Target("model.py:make")).macs for _ in range(2)] == [105, 105]
    assert len(runs) == 2


def test_file_that_changes_while_it_is_counted_is_not_stored(runs, target, tmp_path, monkeypatch):
    run = store.counting.count

    def change(*args, **options):
        write(tmp_path, LLAMA | {"intermediate_size": 48})
        return run(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(store.counting, "count", change)
        assert count(target).macs == macs(5) + 5 * 2 * 3 * 24 * 16
    write(tmp_path, LLAMA)
    assert count(target).macs == macs(5) and len(runs) == 2


@pytest.mark.parametrize("has_home", [True, False])
def test_store_that_cannot_be_written_is_no_error(has_home, runs, target, tmp_path, monkeypatch):
    (tmp_path / "store").touch()
    if not has_home:
        for name in ("HEADCOUNT_CACHE", "XDG_CACHE_HOME", "HOME"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    assert [count(target).macs for _ in range(2)] == [macs(5)] * 2 and len(runs) == 2
