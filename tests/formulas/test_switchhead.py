"""SwitchHead's closed form against sums written out here, as integers and as symbols, and its limits."""

import sympy

from headcount.formulas import mha, switchhead
from tests.formulas.operations import check

LETTERS = ("B", "T", "S", "d_m", "h", "d_h", "E", "K")
SIZES = dict(B=2, T=7, S=5, d_m=13, h=11, d_h=17, E=19, K=3)


def symbols():
    return {letter: sympy.Symbol(letter, positive=True, integer=True) for letter in LETTERS}


def by_path(form, of="macs"):
    return {path: size for path, size in form.group(lambda entry: entry.path, of).items() if size}


def test_macs_and_parameters_item_by_item():
    form = switchhead.layer("attn", **SIZES)
    assert by_path(form) == {
        "attn.q_proj": 2 * 7 * 13 * 11 * 17,
        "attn.k_proj": 2 * 5 * 13 * 11 * 17,
        "attn.router.value_proj": 2 * 5 * 13 * 11 * 19,
        "attn.v_proj": 2 * 5 * 11 * 3 * 13 * 17,
        "attn": 2 * (2 * 11 * 7 * 5 * 17),
        "attn.router.out_proj": 2 * 7 * 13 * 11 * 19,
        "attn.out_proj": 2 * 7 * 11 * 3 * 17 * 13,
    }
    assert by_path(form, "params") == {
        "attn.q_proj": 13 * 11 * 17,
        "attn.k_proj": 13 * 11 * 17,
        "attn.router.value_proj": 13 * 11 * 19,
        "attn.v_proj": 11 * 19 * 13 * 17,
        "attn.router.out_proj": 13 * 11 * 19,
        "attn.out_proj": 11 * 19 * 17 * 13,
    }
    assert form.params - form.active_params == 2 * (19 - 3) * 11 * 13 * 17


def test_macs_as_printed_in_the_docstring():
    z = symbols()
    B, T, S, d_m, h, d_h, E, K = z.values()
    token = d_m * h * (d_h + E + K * d_h)
    assert sympy.expand(switchhead.layer("", **z).macs - B * (T + S) * token - 2 * B * h * T * S * d_h) == 0


def test_one_expert_is_multi_head_attention_and_two_routers():
    z = symbols() | dict(E=1, K=1)
    B, T, S, d_m, h, d_h = (z[letter] for letter in LETTERS[:6])
    dense = mha.layer("", B=B, T=T, S=S, d_m=d_m, h=h, d_h=d_h, g=h, bias=False)
    form = switchhead.layer("", **z)
    assert sympy.expand(form.macs - dense.macs - B * (T + S) * d_m * h) == 0
    assert sympy.expand(form.params - dense.params - 2 * d_m * h) == 0


def test_all_experts_chosen_are_all_active():
    form = switchhead.layer("", **SIZES | dict(K=19))
    assert form.active_params == form.params


def test_macs_depend_on_the_number_of_experts_through_the_routers_alone():
    few, many = (switchhead.layer("", **SIZES | dict(E=e)).macs for e in (19, 23))
    assert many - few == 2 * (7 + 5) * 13 * 11 * (23 - 19)


def test_a_step_makes_keys_and_values_of_its_own_tokens_alone():
    sizes = SIZES | dict(T=1, S=31)
    assert switchhead.layer("", **sizes, n=30).macs == 2 * 11 * (2 * 13 * (17 + 19 + 3 * 17) + 2 * 31 * 17)
    stored = [entry.size for entry in switchhead.layer("", **sizes, n=30) if entry.kind == "cache"]
    assert sum(stored) == 2 * 2 * 31 * 11 * 17


def test_gates_and_sigmoids_are_no_products():
    sizes = [(entry.kind, entry.size) for entry in switchhead.layer("", **SIZES, n=2)]
    of_values, of_outputs = (11 * 19, 11 * 3 * 17), (11 * 3 * 17, 11 * 19)
    expected = [2 * 3 * size for size in of_values] + [2 * 7 * size for size in of_outputs]
    assert sorted(size for kind, size in sizes if kind == "elementwise") == sorted(expected)


def test_rotary_positions_turn_queries_and_new_keys():
    ropes = [entry.size for entry in switchhead.layer("", **SIZES, n=2, rotary=True) if entry.kind == "rope"]
    assert ropes == [2 * 7 * 11 * 17, 2 * 3 * 11 * 17]


OPERATIONS = """
    a.q_proj linear B T d_m h d_h | d_m h d_h x1
    a.k_proj linear B S d_m h d_h | d_m h d_h x1
    a.router.value_proj linear B S d_m h E | d_m h E x1
    a.router.value_proj elementwise B S h E x1
    a.v_proj expert_linear B S h K d_m d_h | h E d_m d_h x1
    a elementwise B S h K d_h x1
    a rope B T h d_h x1
    a rope B S h d_h x1
    a scores B h T S d_h x1
    a softmax B h T S x1
    a values B h T S d_h x1
    a.router.out_proj linear B T d_m h E | d_m h E x1
    a.router.out_proj elementwise B T h E x1
    a elementwise B T h K d_h x1
    a.out_proj expert_linear B T h K d_h d_m | h E d_h d_m x1
    a cache B S 2 h d_h x1
    a cache_write B S 2 h d_h x1
    a cache_read B S 2 h d_h x1
"""


def test_operations_line_by_line():
    check(switchhead.layer("a", **SIZES, rotary=True, n=2), OPERATIONS)
    plain = [line for line in OPERATIONS.splitlines() if " rope " not in line and " cache" not in line]
    check(switchhead.layer("a", **SIZES), "\n".join(plain))
