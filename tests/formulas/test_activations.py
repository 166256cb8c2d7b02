"""Schedules: taking and dropping named tensors, and small peaks added up by hand."""

import re

import pytest

from headcount.formulas.activations import mha as activations_mha
from headcount.formulas.activations import moa as activations_moa
from headcount.formulas.activations import moh as activations_moh
from headcount.formulas.activations import moh_ideal as activations_moh_ideal
from headcount.formulas.activations import schedule as activations


def test_a_schedule_remembers_what_was_live_when_most_was():
    run = activations.Schedule(4)
    run.take(a=3, b=5)
    run.drop("a")
    run.take_bytes("index", 9)
    run.derive("b", c=2)
    assert run.live == {"index": 9, "c": 8}
    assert run.moments == [{"a": 12}, {"a": 12, "b": 20}, {"b": 20, "index": 9}, {"b": 20, "index": 9, "c": 8}]
    assert run.peak == {"b": 20, "index": 9, "c": 8} and run.peak_bytes == 37


def test_the_first_of_equal_moments_is_the_peak():
    run = activations.Schedule(1)
    run.take(a=3)
    run.drop("a")
    run.take(b=3)
    assert run.peak == {"a": 3}


def test_a_name_is_live_once():
    run = activations.Schedule(1)
    run.take(a=3)
    with pytest.raises(ValueError, match="^a is live already$"):
        run.take(a=3)
    with pytest.raises(KeyError, match="b"):
        run.drop("b")


def test_a_tensor_is_called_otherwise_without_a_new_moment():
    run = activations.Schedule(2)
    run.take(a=3, b=5)
    run.rename("a", "c")
    assert run.live == {"b": 10, "c": 6} and len(run.moments) == 2
    with pytest.raises(ValueError, match="^b is live already$"):
        run.rename("c", "b")
    with pytest.raises(KeyError, match="a"):
        run.rename("a", "d")


def test_gradients_of_weights_and_rows():
    run = activations.Schedule(2)
    run.take(d_y=3)
    assert activations.rows_gradient(run, "d_y", 3, False) == "d_y"
    assert activations.rows_gradient(run, "d_y", 3, True) == "d_y_rows"
    activations.weight_gradient(run, "proj", "d_y_rows", 7)
    assert run.live == {"d_proj_weight": 14}
    run.take(d_z=1)
    activations.weight_gradient(run, "out", "d_z", 5, 2)
    assert run.live == {"d_proj_weight": 14, "d_out_weight": 10, "d_out_bias": 4}


def test_multi_query_attention_makes_no_copies():
    run = activations_mha.forward(B=2, T=7, S=5, d_m=13, h=6, d_h=3, g=1, bias=False, element_bytes=4)
    rows, keys, pairs = 2 * 7 * 18, 2 * 5 * 3, 2 * 6 * 7 * 5
    assert run.peak_bytes == 4 * (2 * rows + 2 * keys + 2 * pairs + rows)
    assert list(run.peak) == ["k", "v", "q", "scaled", "scores", "weights", "heads"]
    assert run.live == {"q": 4 * rows, "k": 4 * keys, "v": 4 * keys, "heads": 4 * rows, "y": 4 * 2 * 7 * 13}


@pytest.mark.parametrize(
    "h, names",
    [(3, {"q_copy", "k_copy", "v_copy", "side_by_side"}), (6, {"grouped", "k_copy", "v_copy", "ungrouped"})],
    ids=["mha", "gqa"],
)
def test_several_key_value_heads_make_copies(h, names):
    run = activations_mha.forward(B=2, T=7, S=5, d_m=13, h=h, d_h=3, g=3, bias=False, element_bytes=4)
    assert names <= {name for moment in run.moments for name in moment}
    single = activations_mha.forward(B=1, T=1, S=1, d_m=13, h=h, d_h=3, g=3, bias=False, element_bytes=4)
    copies = {"v_copy", "side_by_side", "q_copy", "ungrouped"}
    assert copies.isdisjoint(name for moment in single.moments for name in moment)


def test_rows_go_in_chunks_whose_matrices_fill_4_mib():
    limit = 4 * 2**20
    assert activations_moa.chunks(5, limit // 8, 4) == [2, 2, 1]
    assert activations_moa.chunks(4, limit // 8, 4) == [2, 2]
    assert activations_moa.chunks(3, limit, 4) == [1, 1, 1]
    assert activations_moa.chunks(3, 1, 4) == [3]
    sizes = dict(B=1, T=5, S=5, d_m=1024, E=3, K=2, D=512, element_bytes=4)
    run = activations_moa.forward(**sizes)
    assert max(moment.get("q_matrices_0", 0) for moment in run.moments) == 2 * 1024 * 512 * 4
    run = activations_moa.training(**sizes)
    # the last chunk's matrices wait for the backward with all others, and one weight's gradient is added up
    assert run.peak["out_matrices_0"] == 2 * 1024 * 512 * 4
    assert {"d_out_proj_weight", "zeros", "d_out_proj_chunk_3", "d_matrices"} <= run.peak.keys()


WITHOUT = {
    "no schedule for experts of width 1, which make other reshapes copy": (activations_moa, dict(E=5, K=2, D=1)),
    "no schedule for heads of width 1, which make other reshapes copy": (
        activations_moh,
        dict(h=3, s=1, r=1, d_h=1, g=3),
    ),
}


@pytest.mark.parametrize("reason", WITHOUT)
def test_what_has_no_schedule_says_why(reason):
    schedules, sizes = WITHOUT[reason]
    for schedule in (schedules.forward, schedules.training):
        with pytest.raises(activations.NoSchedule, match=f"^{reason}$"):
            schedule(B=2, T=3, S=3, d_m=7, **sizes, element_bytes=4)


def test_the_ideal_form_gathers_weights_keys_and_values_for_each_row():
    sizes = dict(B=1, T=3, S=5, d_m=13, h=7, s=2, r=2, d_h=11, g=1, element_bytes=4)
    rows = 3 * 4
    run = activations_moh_ideal.training(**sizes)
    sizes_of = {name: size for moment in run.moments for name, size in moment.items()}
    assert sizes_of["q_matrices_0"] == sizes_of["out_matrices_0"] == 4 * rows * 13 * 11
    assert sizes_of["keys_0"] == sizes_of["values_0"] == 4 * rows * 5 * 11
    assert sizes_of["weights_0"] == 4 * rows * 5
    assert sizes_of["d_q_proj_weight"] == sizes_of["d_out_proj_weight"] == 4 * 7 * 11 * 13


def test_gating_heads_adds_a_tensor_of_heads_to_multi_head_attention():
    sizes = dict(B=2, T=7, S=5, d_m=13, h=6, d_h=3, g=1, bias=False, element_bytes=4)
    run = activations_moh.forward(**sizes, s=0, r=6)
    dense = activations_mha.forward(**sizes)
    gates, router_result = 2 * 7 * 6 * 4, 2 * 7 * 6 * (4 + 8)
    assert run.live.keys() - dense.live.keys() == {"indices", "gates", "all_gates", "gated"}
    assert sum(run.live.values()) - sum(dense.live.values()) == router_result + gates + 2 * 7 * 18 * 4
    # the most is held in the middle of the core, where the router has left indices and gates
    assert run.peak_bytes - dense.peak_bytes == router_result


def test_indices_are_eight_bytes_each():
    run = activations_moa.forward(B=2, T=7, S=7, d_m=13, E=11, K=3, D=5, element_bytes=2)
    assert run.live["indices"] == 2 * 7 * 3 * 8
    assert run.live["gates"] == 2 * 7 * 3 * 2
    assert re.fullmatch("[a-z_]+", run.moments[-1].popitem()[0])


@pytest.mark.parametrize("schedules", [activations_moh, activations_moh_ideal])
def test_an_unknown_router_form_or_kind_of_gates_is_an_error(schedules):
    sizes = dict(B=1, T=3, S=5, d_m=13, h=7, s=2, r=2, d_h=11, g=1, element_bytes=4)
    for schedule in (schedules.forward, schedules.training):
        for unknown in (dict(router="norm"), dict(gates="ideal")):
            with pytest.raises(KeyError):
                schedule(**sizes, **unknown)
        with pytest.raises(TypeError, match="form"):
            schedule(**sizes, form="ideal")
