"""Configurations in commands: columns, comparisons and cards by a closed form that is proved once."""

import json
import shutil
from contextlib import contextmanager, nullcontext

import pytest

from headcount.bench.accounts import Assumptions, values
from headcount.bench.budget import fit
from headcount.bench.case import Case
from headcount.bench.closed_form import derivation, solve, store
from headcount.bench.closed_form.case import configuration_case
from headcount.bench.closed_form.terms import Bytes
from headcount.bench.commands import compare, count
from headcount.bench.errors import UsageError
from headcount.bench.latency import __main__ as latency
from headcount.bench.store import count as count_target
from headcount.bench.targets.target import Target
from headcount.bench.targets.user_code import UserCodeError
from headcount.bench.training_flops import flops_per_token
from headcount.formulas.conventions import CONVENTIONS, TRAINING
from tests.bench.closed_form.families import BASE, ERNIE, config

pytest.importorskip("transformers", reason="the optional extra hf is not installed")

PARAMS = 2 * 53 * 24 + 2 * (2 * 24 * 24 + 2 * 24 * 12 + 3 * 24 * 32 + 2 * 24) + 24


def table(command, capsys, *words, name=None):
    """Return the exit code and one table of a command."""
    code = command.main([*words, "--format", "json"])
    tables = json.loads(capsys.readouterr().out)["tables"]
    return code, next(one for one in tables if name in (None, one["name"]))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with configurations of a LLaMA, plain.json, and of one with a window of 5, window.json."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(store, "_FOUND", {})
    (tmp_path / "plain.json").write_text(
        json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"], **BASE})
    )
    (tmp_path / "window.json").write_text(json.dumps(config("mistral")))
    return tmp_path


def test_window_bounds_cache_and_step(folder, capsys):
    words = ["--counter", "closed-form", "--columns", "kv_bytes", "decode_macs", "windowed_macs"]
    for T in (4, 300):
        _, found = table(count, capsys, "window.json", *words, "--seq-len", str(T), name="memory")
        (row,) = found["rows"]
        # 2 key/value heads of 6, bfloat16, of the last 4 tokens; a query sees 5
        assert row["kv_bytes"] == 2 * 2 * 2 * 6 * 2 * min(T, 4)
        step = PARAMS - 53 * 24 - 5 * 24
        assert row["decode_macs"] == step + 2 * 2 * 24 * min(T, 5)
        pairs = sum(min(t, 5) for t in range(1, T + 1))
        assert row["windowed_macs"] == T * step + 2 * 2 * 24 * pairs


def test_proved_form_is_read_again(folder, capsys, monkeypatch):
    words = ["plain.json", "--counter", "closed-form", "--seq-len", "100"]
    assert table(count, capsys, *words)[0] == 0
    monkeypatch.setattr(store, "_FOUND", {})
    monkeypatch.setattr(store, "isolated_process", None)
    code, found = table(count, capsys, *words)
    assert code == 0 and "equal the count at" in json.dumps(found)


def test_forms_are_of_content_settings_and_code(folder, monkeypatch):
    """Another content, setting or state of torch's and the library's code is derived again, an equal content is not."""
    derived = []

    def run(self, task, target, *words):
        derived.append(target.spec)
        return store.Refusal(f"number {len(derived)}")

    def refused(*targets):
        return [store._find_stored(None, "derivation", target).refused for target in targets]

    monkeypatch.setenv("HEADCOUNT_CACHE", str(folder / "own"))
    monkeypatch.setattr(store._Processes, "run", run)
    (folder / "other").mkdir()
    shutil.copy("plain.json", "other/copy.json")
    plain, copied = Target("plain.json"), Target("other/copy.json")
    other = Target("plain.json", settings={"num_hidden_layers": 3})
    assert refused(plain, copied, other, plain) == ["number 1", "number 1", "number 2", "number 1"]
    monkeypatch.setattr("headcount.bench.store._code", lambda library: f"{library}, edited")
    assert refused(plain, plain) == ["number 3"] * 2
    (folder / "plain.json").write_text(json.dumps(config("mistral")))
    assert refused(plain, copied) == ["number 4", "number 3"]


def test_wrong_form_is_refused_by_its_entry(folder, monkeypatch):
    solved = solve.Solver.solve

    def wrong(self, values, **options):
        """Take a size that does not depend on the batch for one that does, where the runs do not tell."""
        found = solved(self, values, **options)
        if found and any(one.of == "T" for one in found) and not options.get("keys"):
            return [one for one in found if one.of != "T"] + [solve.Factor("", 7)]
        return found

    monkeypatch.setattr(solve.Solver, "solve", wrong)
    with pytest.raises(UserCodeError, match=r"model\.embed_tokens embedding counts"):
        derivation.derive(Target("plain.json", lengths={"seq_len": 8}))


def test_crossover_of_configurations(folder, capsys):
    plain = json.loads((folder / "plain.json").read_text())
    for name, changed in (("wide", {"intermediate_size": 77}), ("heads", {"num_attention_heads": 6})):
        (folder / f"{name}.json").write_text(json.dumps(plain | changed))
    _, found = table(compare, capsys, "heads.json", "wide.json", "--seq-len", "16", name="compare-crossovers")
    # two heads of width 6 more against 45 units of three matrices: 2 x 24 x 12 T + 2 x 12 T^2 = 3 x 24 x 45 T
    assert [(row["below"], row["above"]) for row in found["rows"]] == [(110, 111), (111, 112)]
    assert all(row["counted"] == "torch" and "failures" not in row for row in found["rows"])


def test_stored_closed_forms_are_compared_without_a_count(folder, capsys, monkeypatch):
    plain = json.loads((folder / "plain.json").read_text())
    (folder / "wide.json").write_text(json.dumps(plain | {"intermediate_size": 77}))
    for name in ("plain.json", "wide.json"):
        store.find_closed_form(Target(name))
    monkeypatch.setattr("headcount.bench.counting.count.run_isolated", None)
    words = ["wide.json", "plain.json", "--seq-len", "16", "--counter", "closed-form"]
    code, found = table(compare, capsys, *words, name="compare-kind")
    # three matrices of 45 more units in two layers
    assert code == 0 and found["rows"][-1]["amounts"]["exact"]["difference"] == 2 * 3 * 24 * 45 * 16


def test_configuration_without_closed_form_is_counted(folder, capsys, monkeypatch):
    def refuse(target, *words):
        raise UsageError("counts have no closed form")

    monkeypatch.setattr("headcount.bench.closed_form.case.find_closed_form", refuse)
    words = ["plain.json,intermediate_size=77", "plain.json", "--seq-len", "16", "--counter", "closed-form"]
    code, found = table(compare, capsys, *words, name="compare-kind")
    assert code == 0 and found["rows"][-1]["amounts"]["exact"]["difference"] == 2 * 3 * 24 * 45 * 16


def test_largest_context_is_the_last_that_fits(folder, capsys):
    words = ["plain.json", "--on", "200k", "--batch-size", "3", "--context"]
    most = table(fit, capsys, *words, "32")[1]["largest"]
    assert most["context"] > 32
    assert [table(fit, capsys, *words, str(length))[0] for length in (most["context"], most["context"] + 1)] == [0, 1]


def test_configuration_has_one_time_by_every_way_in(folder, capsys):
    words = ["window.json", "--seq-len", "48", "--batch-size", "2", "--on", "h100-sxm"]
    _, found = table(count, capsys, *words, name="time")
    times = {row["what"]: row for row in found["rows"]}
    assert list(times) == ["prefill", "decode step", "training step"]
    _, estimated = table(latency, capsys, "--estimate", *words, name="time")
    _, closed = table(count, capsys, *words, "--counter", "closed-form", name="time")
    assert estimated["rows"] == closed["rows"] == found["rows"]
    for train, passes in (([], ["prefill", "decode step"]), (["--train"], ["training step"])):
        _, fitted = table(fit, capsys, *words, *train, name="time")
        assert fitted["rows"] == [times[what] for what in passes]
    _, decoded = table(latency, capsys, "--estimate", *words, "--pass", "decode", name="time")
    assert decoded["rows"] == [times["decode step"]]
    form = configuration_case(Target("window.json", lengths={"batch_size": 2, "seq_len": 48})).ledger
    rate = 3 * form.macs / (times["training step"]["expected_ms"] / 1000)
    assert times["training step"]["mfu"] == pytest.approx(100 * rate / (989.5e12 / 2))


@pytest.mark.parametrize(("named", "words"), [({"torch_dtype": "float32"}, []), ({}, ["--dtype", "float32"])])
def test_bytes_have_the_type_that_is_named(named, words, folder, capsys):
    plain = json.loads((folder / "plain.json").read_text())
    (folder / "named.json").write_text(json.dumps(plain | {"num_hidden_layers": 1} | named))
    words = ["named.json", "--seq-len", "16", "--batch-size", "2", *words]
    _, counted = table(count, capsys, *words, "--columns", "saved_bytes", "kv_bytes", name="memory")
    (row,) = counted["rows"]
    kept, cached = (
        {part["part"]: part["bytes"] for part in table(fit, capsys, *words, "--on", "1G", *more, name="fit")[1]["rows"]}
        for more in (["--train"], [])
    )
    # of float32: keys and values of 2 heads of 6, 16 tokens of 2 sequences
    assert row["kv_bytes"] == cached["cache"] == 4 * 2 * 2 * 6 * 16 * 2
    assert row["saved_bytes"] == kept["activations"]
    # more than the inputs of the products of the layer, which each are kept
    assert row["saved_bytes"] > 4 * (24 + 24 + 24 + 3 * 32) * 16 * 2


@pytest.mark.nightly
def test_model_without_a_closed_form_has_the_times_of_a_run(folder, capsys):
    (folder / "bert.json").write_text(json.dumps(config("bert")))
    words = ["bert.json", "--seq-len", "16", "--on", "h100-sxm"]
    found = [table(count, capsys, *words, name="time"), table(latency, capsys, "--estimate", *words, name="time")]
    assert [row["what"] for row in found[0][1]["rows"]] == ["forward pass", "training step"]
    assert found[0][1]["rows"] == found[1][1]["rows"]
    assert latency.main(["--estimate", *words]) == 0
    assert "By a run: bert.json: no closed form" in capsys.readouterr().out
    assert latency.main(["--estimate", *words, "--pass", "decode"]) == 2
    assert "takes no cache" in capsys.readouterr().err


@pytest.mark.parametrize(("words", "named"), [
    (["plain.json"], "T=128"), (["plain.json", "--seq-len", "0"], "at least 1"),
    (["plain.json", "--seq-len", "8", "--tgt-len", "3"], "tgt_len"),
    (["window.json", "--seq-len", "8", "--columns", "decode_macs", "--window", "3"], "window of 5"),
])  # fmt: skip
def test_wrong_words_are_named(words, named, folder, capsys):
    code = count.main([*words, "--counter", "closed-form"])
    out = capsys.readouterr()
    assert named in out.err + out.out and (code == 2 or "window" in named)


LATENT = {
    "num_dense_layers": 1, "expert_d_ff": 16, "num_shared_experts": 1, "ffn_num_experts": 8, "ffn_top_k": 2,
    "num_heads": 4, "head_dim": 6, "rotary_dim": 4, "value_dim": 5, "kv_rank": 7, "query_rank": 11,
}  # fmt: skip
SIZES = {"d_model": 24, "d_ff": 32, "num_layers": 2, "vocab_size": 53}
PRESETS = {
    "llama": ("llama3-8b", {**SIZES, "num_heads": 4, "num_kv_heads": 2, "head_dim": 6}),
    "deepseek_v3": ("deepseek-v3", {**SIZES, **LATENT}),
}
COLUMNS = (
    "kv_bytes", "kv_token_bytes", "decode_macs", "decode_bytes", "prefill_macs", "prefill_last_macs", "generate_macs",
    "generate_bytes", "causal_macs", "training_macs", "training_recompute_macs", "training_state_bytes",
    "macs_per_token", "forward_bytes",
)  # fmt: skip


@pytest.mark.parametrize("kind", PRESETS)
def test_configuration_has_the_columns_of_its_preset(kind, folder):
    name, fields = PRESETS[kind]
    (folder / "config.json").write_text(json.dumps(config(kind)))
    lengths = {"batch_size": 2, "seq_len": 31}
    preset = Case.of(name, fields, lengths)
    found = configuration_case(Target("config.json", lengths=lengths))
    assert (found.ledger.macs, found.ledger.params) == (preset.ledger.macs, preset.ledger.params)
    for given in (Assumptions(context=100, window=40), Assumptions(context=70, generate=9)):
        assert values(COLUMNS, found, given) == values(COLUMNS, preset, given)
    for rule in TRAINING:
        given = Assumptions(rule=rule)
        assert (rule, values(["training_flops_per_step"], found, given)) == (
            rule, values(["training_flops_per_step"], preset, given),
        )  # fmt: skip


def test_closed_form_and_run_have_one_gradient_of_frozen_weights(folder):
    (folder / "config.json").write_text(json.dumps(ERNIE))
    target = Target("config.json", lengths={"batch_size": 2, "seq_len": 7})
    closed, run = configuration_case(target), count_target(target)
    assert closed.trainable_params == run.trainable_params < run.params
    for rule in ("6n", "palm", "maxtext_before_644"):
        assert flops_per_token(closed, CONVENTIONS[rule]) == flops_per_token(run, CONVENTIONS[rule])


def test_one_count_has_the_columns_of_several(folder, capsys):
    given = ["--context", "29", "--window", "40", "--peak-macs", "494.5T", "--bandwidth", "3.35T", "--on", "H100 SXM"]
    words = [
        "plain.json",
        *given,
        "--format",
        "json",
        "--columns",
        *COLUMNS,
        "decode_bound",
        "prefill_ms",
        "saved_bytes",
    ]
    rows = []
    for way in (["--vary", "T=31", "--vary", "B=2"], ["--seq-len", "31", "--batch-size", "2"]):
        assert count.main([*words, *way]) == 0
        tables = json.loads(capsys.readouterr().out)["tables"]
        (row,) = next(one["rows"] for one in tables if one["name"] in ("survey", "memory"))
        rows.append({name: row[name] for name in (*COLUMNS, "decode_bound", "prefill_ms", "saved_bytes", "missing")})
    assert rows[0] == rows[1] and rows[0]["missing"] == {} and None not in rows[0].values()


def test_written_out_norms_are_named_beside_bytes_and_times(folder, capsys):
    words = ["--plan", "dp=2", "--seq-len", "7", "--counter", "closed-form", "--on", "H100 SXM"]
    for target, is_written_out in (("plain.json", True), ("llama3-8b", False)):
        assert count.main([target, *words]) == 0
        text = " ".join(capsys.readouterr().out.split())
        assert ("norms and rotations are written out" in text) == is_written_out
        # neither bytes nor times are larger in every case
        assert "so they are larger" not in text


def test_derivation_says_that_it_happens_once(folder, monkeypatch):
    said = []

    @contextmanager
    def stage(what):
        said.append(what)
        yield

    monkeypatch.setattr(store, "stage", stage)
    monkeypatch.setattr(store, "isolated_process", lambda *words: nullcontext(lambda *words: Bytes()))
    store.find_activations(Target("plain.json"), "saved_bytes")
    assert said == ["deriving saved_bytes of plain.json, once; a large model takes a minute"]
