"""Active parameters under routers of every spelling, and of dense models that use the same operations."""

from itertools import cycle, product

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import headcount as hc

SIZES = [(4, 6, 23), (7, 4, 40)]
"""Experts, width, and tokens."""


def with_sizes(first, second):
    """Return a third of the pairs of ``first`` and ``second``, with one of SIZES by turns: each way has several."""
    pairs = [(one, other) for (i, one), (j, other) in product(enumerate(first), enumerate(second)) if (i + j) % 3 == 0]
    return [(*names, *sizes) for names, sizes in zip(pairs, cycle(SIZES), strict=False)]


class Routed(nn.Module):
    """A linear layer, experts that ``run`` applies to its result, and a layer behind them."""

    def __init__(self, run, experts, width, inner=0):
        super().__init__()
        self.before, self.after = nn.Linear(width, width), nn.Linear(width, width)
        self.router = nn.Linear(width, experts, bias=False)
        if inner:
            layers = [
                nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width)) for _ in range(experts)
            ]
        else:
            layers = [nn.Linear(width, width) for _ in range(experts)]
        self.experts = nn.ModuleList(layers)
        self.run = run

    def forward(self, x, ids=None):
        x = self.before(x)
        return self.after(x + self.run(self, x, ids))


def masks(m, x, chosen):
    """Write the rows of each expert where its number is chosen."""
    y = torch.zeros_like(x)
    for number, expert in enumerate(m.experts):
        mask = chosen == number
        y[mask] = expert(x[mask])
    return y


def gates(m, x, gate):
    """Sum the results of all experts, each times its column of a gate."""
    return sum(gate[:, n : n + 1] * expert(x) for n, expert in enumerate(m.experts))


def one_hot(m, chosen):
    return F.one_hot(chosen, len(m.experts)).float()


def by_places(m, x, chosen):
    y = torch.zeros_like(x)
    for number, expert in enumerate(m.experts):
        (places,) = torch.where(chosen == number)
        y.index_add_(0, places, expert(x.index_select(0, places)))
    return y


def by_order(m, x, chosen):
    order = chosen.argsort()
    parts = x[order].split(torch.bincount(chosen, minlength=len(m.experts)).tolist())
    y = torch.cat([expert(part) for expert, part in zip(m.experts, parts, strict=True)])
    return y[order.argsort()]


def by_item(m, x, chosen):
    return torch.stack([m.experts[chosen[t].item()](x[t]) for t in range(len(x))])


def by_list(m, x, chosen):
    return torch.cat([m.experts[n](x[t : t + 1]) for t, n in enumerate(chosen.tolist())])


def by_groups(m, x, chosen):
    y = torch.zeros_like(x)
    for n in chosen.unique().tolist():
        y[chosen == n] = m.experts[n](x[chosen == n])
    return y


def by_where(m, x, chosen):
    y = torch.zeros_like(x)
    for number, expert in enumerate(m.experts):
        y = torch.where((chosen == number)[:, None], expert(x), y)
    return y


def by_fill(m, x, chosen):
    return sum(e(x).masked_fill((chosen != n)[:, None], 0) for n, e in enumerate(m.experts))


def by_stack(m, x, chosen):
    return torch.stack([expert(x) for expert in m.experts])[chosen, torch.arange(len(x))]


def by_gather(m, x, chosen):
    stacked = torch.stack([expert(x) for expert in m.experts], 1)
    return stacked.gather(1, chosen[:, None, None].expand(-1, 1, x.shape[1]))[:, 0]


def by_product(m, x, chosen):
    return torch.einsum("ne,end->nd", one_hot(m, chosen), torch.stack([expert(x) for expert in m.experts]))


def by_input(m, x, chosen):
    gate = one_hot(m, chosen)
    return sum(expert(x * gate[:, n : n + 1]) for n, expert in enumerate(m.experts))


DISPATCHES = {
    "masks": masks, "places": by_places, "order": by_order, "item": by_item, "list": by_list, "groups": by_groups,
    "where": by_where, "fill": by_fill, "stack": by_stack, "gather": by_gather, "product": by_product,
    "one-hot": lambda m, x, chosen: gates(m, x, one_hot(m, chosen)), "input": by_input,
}  # fmt: skip
CHOICES = {
    "max": lambda m, x, ids: m.router(x).max(-1).indices,
    "argmax": lambda m, x, ids: m.router(x).argmax(-1),
    "softmax": lambda m, x, ids: m.router(x).softmax(-1).argmax(-1),
    "topk": lambda m, x, ids: m.router(x).topk(1).indices[:, 0],
    "sort": lambda m, x, ids: m.router(x).sort(-1, descending=True).indices[:, 0],
    "argsort": lambda m, x, ids: m.router(x).argsort(-1)[:, -1],
    "kthvalue": lambda m, x, ids: m.router(x).kthvalue(len(m.experts)).indices,
    "amax": lambda m, x, ids: (m.router(x) == m.router(x).amax(-1, keepdim=True)).long().argmax(-1),
    "nonzero": lambda m, x, ids: (m.router(x) == m.router(x).amax(-1, keepdim=True)).nonzero()[:, 1],
    "multinomial": lambda m, x, ids: m.router(x).softmax(-1).multinomial(1)[:, 0],
    "bucketize": lambda m, x, ids: torch.bucketize(
        m.router(x)[:, 0].contiguous(), torch.linspace(-0.3, 0.3, len(m.experts) - 1)
    ),
    "comparison": lambda m, x, ids: (m.router(x)[:, 0] > m.router(x)[:, 1]).long(),
    "hash": lambda m, x, ids: ids % len(m.experts),
    "shifted-hash": lambda m, x, ids: (ids * 7 + 3) % 5 % len(m.experts),
    "drawn": lambda m, x, ids: torch.randint(len(m.experts), ids.shape),
    "drawn by weights": lambda m, x, ids: torch.ones(len(m.experts)).multinomial(len(ids), replacement=True),
    "drawn order": lambda m, x, ids: torch.randperm(len(ids)) % len(m.experts),
}
UNLEARNED = ("hash", "shifted-hash", "drawn", "drawn by weights", "drawn order")
"""Choices without the router's weights."""


@pytest.mark.parametrize("choice, dispatch, experts, width, tokens", with_sizes(CHOICES, DISPATCHES))
def test_routed_experts_are_not_all_active(choice, dispatch, experts, width, tokens):
    torch.manual_seed(0)
    model = Routed(lambda m, x, ids: DISPATCHES[dispatch](m, x, CHOICES[choice](m, x, ids)), experts, width)
    count = hc.count(model, torch.randn(tokens, width), torch.arange(tokens))
    square = width * width + width
    router = 0 if choice in UNLEARNED else width * experts
    assert count.active_params in (None, 2 * square + router + square)


@pytest.mark.parametrize(
    "choice, dispatch, experts, width, tokens",
    with_sizes(UNLEARNED, ["masks", "places", "order", "item", "groups"]),
)
def test_experts_right_behind_an_embedding_are_not_all_active(choice, dispatch, experts, width, tokens):
    torch.manual_seed(0)
    model = Routed(lambda m, x, ids: DISPATCHES[dispatch](m, x, CHOICES[choice](m, x, ids)), experts, width)
    model.before = nn.Embedding(tokens, width)
    model.forward = lambda ids: model.run(model, model.before(ids), ids)
    count = hc.count(model, torch.arange(tokens))
    assert count.active_params in (None, tokens * width + width * width + width)


GATES = {
    "topk-scatter": lambda s: torch.zeros_like(s).scatter(-1, s.topk(2).indices, s.topk(2).values),
    "topk-mask": lambda s: s.softmax(-1) * (s >= s.topk(2).values[:, -1:]),
    "topk-fill": lambda s: s.masked_fill(s < s.topk(2).values[:, -1:], -torch.inf).softmax(-1),
    "kthvalue": lambda s: (s > s.kthvalue(s.shape[1] - 1, keepdim=True).values).float(),
    "amax": lambda s: (s == s.amax(-1, keepdim=True)).to(s.dtype),
    "threshold": lambda s: (s.sigmoid() > 0.5).float(),
    "where": lambda s: torch.where(s > 0, s, 0.0),
    "gumbel": lambda s: F.gumbel_softmax(s, hard=True),
    "straight-through": lambda s: (F.one_hot(s.argmax(-1), s.shape[1]) - s.softmax(-1)).detach() + s.softmax(-1),
    "renormalised": lambda s: F.normalize((s > s.mean(-1, keepdim=True)).float() * s.softmax(-1), p=1, dim=-1),
    "round": lambda s: s.sigmoid().round(),
    "heaviside": lambda s: torch.heaviside(s, torch.zeros(())),
    "bernoulli": lambda s: torch.bernoulli(s.sigmoid()),
}
APPLIED = {
    "columns": gates,
    "stacked": lambda m, x, gate: (torch.stack([e(x) for e in m.experts], -1) * gate[:, None]).sum(-1),
    "einsum": lambda m, x, gate: torch.einsum("ne,end->nd", gate, torch.stack([e(x) for e in m.experts])),
    "masks": lambda m, x, gate: sum(_scattered(e, x, gate[:, n] != 0) for n, e in enumerate(m.experts)),
    "skipped": lambda m, x, gate: sum(e(x) * gate[:, n, None] for n, e in enumerate(m.experts) if gate[:, n].any()),
}


def _scattered(expert, x, mask):
    y = torch.zeros_like(x)
    y[mask] = expert(x[mask])
    return y


@pytest.mark.parametrize("gate, applied, experts, width, tokens", with_sizes(GATES, APPLIED))
@pytest.mark.parametrize("inner", [0, 11])
def test_hard_gates_leave_active_parameters_unknown(gate, applied, experts, width, tokens, inner):
    torch.manual_seed(0)
    run = lambda m, x, ids: APPLIED[applied](m, x, GATES[gate](m.router(x)))  # noqa: E731
    assert hc.count(Routed(run, experts, width, inner), torch.randn(tokens, width)).active_params is None


ONE = {
    "depth": lambda m, x, ids: _scattered(m.experts[0], x, m.router(x)[:, 0] > 0),
    "depth-topk": lambda m, x, ids: _by_best(m.experts[0], x, m.router(x)[:, 0].topk(3).indices),
    "module": lambda m, x, ids: m.experts[m.router(x.mean(0)).argmax().item()](x),
    "branch": lambda m, x, ids: m.experts[0](x) if m.router(x).sum() > 0 else m.experts[1](x),
    "modality": lambda m, x, ids: _divided(m, x, ids < 5),
}


def _by_best(expert, x, best):
    return x.index_copy(0, best, expert(x[best]))


def _divided(m, x, mask):
    y = torch.empty_like(x)
    y[mask], y[~mask] = m.experts[0](x[mask]), m.experts[1](x[~mask])
    return y


@pytest.mark.parametrize("experts, width, tokens", SIZES)
@pytest.mark.parametrize("run", ONE.values(), ids=ONE)
def test_skipped_layers_leave_active_parameters_unknown(run, experts, width, tokens):
    count = hc.count(Routed(run, experts, width), torch.randn(tokens, width), torch.arange(tokens))
    assert count.active_params is None


def soft(m, x, ids):
    return gates(m, x, m.router(x).softmax(-1))


DENSE = {
    "soft": soft,
    "soft-stacked": lambda m, x, ids: APPLIED["einsum"](m, x, m.router(x).softmax(-1)),
    "padding": lambda m, x, ids: soft(m, x * (ids != 0)[:, None], ids) * (ids != 0)[:, None],
    "padding-each": lambda m, x, ids: gates(m, x, m.router(x).sigmoid() * (ids > 2).float()[:, None].expand(-1, 1)),
    "padded-layers": lambda m, x, ids: _layers(m, x, lambda y: y.masked_fill((ids == 1)[:, None], 0)),
    "padding-twice": lambda m, x, ids: _layers(
        m, x * (ids != 1)[:, None], lambda y: y.masked_fill((ids == 1)[:, None], 0)
    ),
    "unpadded": lambda m, x, ids: _scattered(lambda rows: soft(m, rows, ids), x, ids > 2),
    "head": lambda m, x, ids: soft(m, x, ids)[ids % 3 == 0].mean(),
    "first-of-largest": lambda m, x, ids: soft(m, x, ids)[ids.argmax()],
    "max-pool": lambda m, x, ids: soft(m, x, ids) + x.max(0).values + x.amax(0) + F.max_pool1d(x, 3, 1, 1),
    "relu": lambda m, x, ids: soft(m, x * (x > 0), ids) + torch.where(x > 0, x, x.exp() - 1),
    "dropout": lambda m, x, ids: soft(m, x * (torch.rand_like(x) > 0.1) / 0.9, ids),
    "prediction": lambda m, x, ids: soft(m, x, ids) + 0 * m.router(x).argmax(-1)[:, None],
    "best-score": lambda m, x, ids: soft(m, x, ids) + m.router(x).topk(2).values.mean(),
    "attention": lambda m, x, ids: soft(m, _attention(x, ids), ids),
    "length": lambda m, x, ids: soft(m, x[: int(ids.max().item()) + 1], ids),
    "sum-of-square": lambda m, x, ids: soft(m, x * x.square().mean(-1, keepdim=True).rsqrt(), ids),
    "clamped": lambda m, x, ids: soft(m, torch.where(torch.isinf(x), torch.zeros_like(x), x), ids),
}


def _layers(m, x, mask):
    for expert in m.experts:
        x = x + mask(expert(x))
    return x + m.router(x).sum()


def _attention(x, ids):
    scores = (x @ x.mT).masked_fill((ids == 0)[None] | (ids[:, None] < ids[None]), -1e9)
    return scores.softmax(-1) @ x


@pytest.mark.parametrize("experts, width, tokens", SIZES)
@pytest.mark.parametrize("run", DENSE.values(), ids=DENSE)
def test_dense_models_have_all_parameters_active(run, experts, width, tokens):
    model = Routed(run, experts, width)
    count = hc.count(model, torch.randn(tokens, width), torch.arange(tokens))
    assert count.active_params == count.params == sum(p.numel() for p in model.parameters())


class Heads(nn.Module):
    """Heads in one parameter, read in a loop; ``ids``: an embedding runs first, so that the run takes rows."""

    def __init__(self, read, ids):
        super().__init__()
        self.read, self.table = read, nn.Embedding(7, 5) if ids else nn.Linear(7, 5, bias=False)
        self.inward, self.outward = (nn.Parameter(torch.randn(3, *size)) for size in ((5, 2), (2, 5)))

    def forward(self, x):
        x = self.table(x)
        # a position that is looked up
        x = x + x[torch.arange(len(x)) // 2]
        return sum(self.read(x, self.inward, self.outward, head) for head in range(3))


READS = {
    "index": lambda x, inward, outward, head: x @ inward[head] @ outward[head],
    "unbind": lambda x, inward, outward, head: x @ inward.unbind(0)[head] @ outward.unbind(0)[head],
    "einsum": lambda x, inward, outward, head: torch.einsum(
        "te,ed->td", torch.einsum("td,de->te", x, inward[head]), outward[head]
    ),
    "copy": lambda x, inward, outward, head: x @ inward[head].clone() @ outward[head].contiguous(),
}


@pytest.mark.parametrize("ids", [False, True])
@pytest.mark.parametrize("read", READS.values(), ids=list(READS))
def test_heads_in_a_loop_select_nothing(read, ids):
    x = torch.tensor([1, 2, 3, 4]) if ids else torch.randn(4, 7)
    count = hc.count(Heads(read, ids), x)
    assert count.active_params == count.params == 7 * 5 + 2 * 3 * 5 * 2


def test_heads_chosen_in_python_are_selected():
    def read(x, inward, outward, head):
        chosen = int((x @ inward[0]).sum() > 0)
        return x @ inward[chosen] @ outward[chosen]

    assert hc.count(Heads(read, False), torch.randn(4, 7)).active_params is None


def test_heads_in_a_loop_are_linear_layers():
    class Loop(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(3, 5, 2))

        def forward(self, x):
            return sum(x @ self.weight[head] for head in range(3))

    assert hc.count(Loop(), torch.randn(4, 5)).by_kind() == {"linear": 3 * 4 * 5 * 2}
