"""Whether a run reads values that are computed from weights: if not, other values make the same run."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.utils.rnn import pack_padded_sequence

from headcount.bench.counting import copies
from headcount.bench.counting.copies import FakeWeights, with_fake_weights
from headcount.bench.counting.run import may_read_weights
from headcount.bench.trace.record import record

NOT_READ = {
    "taken": lambda x, best: x[best],
    "gathered": lambda x, best: x.gather(0, best[:, None].expand(-1, 5)),
    "embedded": lambda x, best: F.embedding(best, x),
    "hidden": lambda x, best: x.masked_fill(best[:, None] > 3, 0.0),
    "only-inputs": lambda x, best: x[: int(x.sum() > 0)],
}
READ = {
    "item": lambda x, best: x if best[0] > 2 else x + x,
    "slice": lambda x, best: x[: best.sum()],
    "list": lambda x, best: x[: best.tolist()[0]],
    "array": lambda x, best: x[: int(best.numpy()[0])],
    "mask": lambda x, best: x[best > 3],
    "where": lambda x, best: x[torch.where(best > 3)],
    "sizes": lambda x, best: x.split(best.bincount(minlength=7).tolist()),
    "repeated": lambda x, best: x.repeat_interleave(best, 0),
    "unique": lambda x, best: best.unique(),
    "equal": lambda x, best: torch.equal(best, best + 1),
    "split": lambda x, best: x.tensor_split(best.sort().values),
    "one-hot": lambda x, best: F.one_hot(best),
    "range": lambda x, best: torch.arange(best.sum()),
    "padded": lambda x, best: pack_padded_sequence(x[None].expand(7, -1, -1), best + 1, True, False).data,
}


class Chooses(nn.Module):
    """Choose a position for each row by weights."""

    def __init__(self, way):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, 7))
        self.way = way

    def forward(self, x):
        return self.way(x, (x @ self.weight).argmax(-1))


@pytest.mark.parametrize("way", NOT_READ | READ)
def test_values_of_weights_that_are_read(way):
    call = with_fake_weights((Chooses((NOT_READ | READ)[way]), (torch.ones(7, 5),), {}), FakeWeights(0))
    assert may_read_weights(record(*call)) == (way in READ)


def test_many_integers_are_not_drawn(monkeypatch):
    class Sorts(nn.Linear):
        def forward(self, x):
            return super().forward(x).argsort(-1)

    for most, kind in ((35, torch.Tensor), (34, FakeTensor)):
        monkeypatch.setattr(copies, "MAX_DRAWN", most)
        mode = FakeWeights(0)
        module, inputs, _ = with_fake_weights((Sorts(3, 5), (torch.ones(7, 3),), {}), mode)
        assert type(module(*inputs)) is kind and mode.has_drawn == (kind is torch.Tensor)
