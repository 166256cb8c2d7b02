"""A closed form's operations as text: path, kind and letters, for tests that hold them line by line."""

from headcount.formulas import mha
from headcount.formulas.symbols import by_letter


def operations(form):
    for entry in form:
        weight = " ".join(entry.weight)
        weight = f" | {weight}" if entry.trainable and weight else f" | ({weight})" if weight else ""
        yield f"{entry.path or '.'} {entry.kind} {' '.join(entry.dims)}{weight} x{entry.times}"


def lines(text):
    return [" ".join(line.split()) for line in text.strip().splitlines()]


def attention(path, *, B, T, S, n=None, rotary=False):
    assert (B, T, S, n) in ((2, 7, 7, None), (2, 7, 17, None), (2, 17, 17, None), (2, 7, 7, 0), (2, 7, 17, 17))
    return mha.layer(path, B=B, T=T, S=S, n=n, d_m=15, h=6, d_h=5, g=2, bias=False, rotary=rotary)


ATTENTION = """
    {0}.q_proj linear B T d_m h d_h | d_m h d_h x{1}
    {0}.k_proj linear B S d_m g d_h | d_m g d_h x{1}
    {0}.v_proj linear B S d_m g d_h | d_m g d_h x{1}
    {0} scores B h T S d_h x{1}
    {0} softmax B h T S x{1}
    {0} values B h T S d_h x{1}
    {0}.out_proj linear B T h d_h d_m | h d_h d_m x{1}
"""

ROTARY = ATTENTION.replace("    {0} scores", "    {0} rope B T h d_h x{1}\n    {0} rope B S g d_h x{1}\n    {0} scores")

RESIDUAL = """
    {0} elementwise B T d_m x{2}
    {0}.{1}_norm norm B T d_m | 2 d_m x{2}
"""

FEED_FORWARD = """
    {0}.fc1 linear B T d_m F | d_m F x{1}
    {0}.fc1 bias B T F | F x{1}
    {0} activation B T F x{1}
    {0}.fc2 linear B T F d_m | F d_m x{1}
    {0}.fc2 bias B T d_m | d_m x{1}
"""


def post_norm(path, times, *names):
    text = ""
    for name in names:
        text += (FEED_FORWARD if name == "feed_forward" else ATTENTION).format(f"{path}.{name}", times)
        text += RESIDUAL.format(path, name, times)
    return text.replace("\n\n", "\n")


EMBEDDING = """
    embedding embedding B S d_m | V d_m x1
    embedding embedding B T d_m x1
    . elementwise 2 B S d_m x1
    . elementwise 2 B T d_m x1
"""

OUTPUT = "output_proj linear B T d_m V x1"


def check(form, text):
    assert list(operations(form)) == [line for line in lines(text) if line]
    for entry in form:
        assert isinstance(entry.trainable, bool)
        for letter in (*entry.dims, *entry.weight):
            assert by_letter(letter)


SIZES = {"B": 2, "T": 7, "S": 17, "d_m": 15}
