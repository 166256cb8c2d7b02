"""SwitchHead (arXiv 2312.07987): values and outputs of each head are of K of E experts with sigmoid gates."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headcount.models.attention import Attention, split_heads
from headcount.models.configs.switchhead import SwitchHeadConfig
from headcount.models.experts import ExpertLinear
from headcount.models.rotary import Rotary, rotate
from headcount.models.shapes import Queries, Sources, Tokens


class SwitchHead(Attention):
    """y_t = sum_i sum_{e in topK(s')} s'_e (A_i V_i)[t] Wo_i,e, V_i[u] = sum_{e in topK(s)} s_e x_u Wv_i,e.

    s = sigmoid(x_u Ws_i) of key token u and s' = sigmoid(x_t Wd_i) of query token t; A_i are the softmax weights of
    dense queries and keys. Expert e of head i has index i E + e among all h E.
    """

    def __init__(self, config: SwitchHeadConfig) -> None:
        super().__init__(config)
        d_model, num_heads, head_dim = config.d_model, config.num_heads, config.head_dim
        experts = num_heads * config.num_experts
        self.q_proj = nn.Linear(d_model, num_heads * head_dim, bias=False)
        self.k_proj = nn.Linear(d_model, num_heads * head_dim, bias=False)
        self.router = nn.ModuleDict(
            {name: nn.Linear(d_model, experts, bias=False) for name in ("value_proj", "out_proj")}
        )
        self.v_proj = ExpertLinear(experts, d_model, head_dim)
        self.out_proj = ExpertLinear(experts, head_dim, d_model)

    def combine(self, out: Float[Tensor, "batch tgt heads width"], query: Queries) -> Queries:
        """Return the sum over heads of their outputs, each projected by the head's experts that ``query`` selects."""
        chosen, gates = self.choose(self.router.out_proj, query)
        slots = out.repeat_interleave(self.config.top_k, dim=2)
        return self.out_proj(slots, chosen, gates).sum(dim=2)

    def choose(
        self, router: nn.Linear, x: Tokens
    ) -> tuple[Int[Tensor, "batch seq slots"], Float[Tensor, "batch seq slots"]]:
        """Return for each token the K experts of each head, as indices into all h E, and their gates."""
        logits = router(x).unflatten(-1, (self.config.num_heads, -1))
        # selected by logits: sigmoids of logits above about 17 are all 1 in float32
        experts = torch.topk(logits, self.config.top_k, dim=-1)[1]
        gates = torch.sigmoid(logits).gather(-1, experts)
        first = torch.arange(self.config.num_heads, device=x.device)[:, None] * self.config.num_experts
        return (experts + first).flatten(2), gates.flatten(2)

    def project(
        self, key: Sources, value: Sources, rotary: Rotary | None = None
    ) -> tuple[Float[Tensor, "batch src heads head_dim"], Float[Tensor, "batch src heads head_dim"]]:
        """Return the keys of ``key`` (B, S, d_m), rotated by ``rotary``, and the values of ``value`` by its experts."""
        chosen, gates = self.choose(self.router.value_proj, value)
        slots = value[:, :, None].expand(-1, -1, chosen.shape[-1], -1)
        # the gate multiplies the head_dim-wide output, not the d_model-wide input
        values = self.v_proj(slots, chosen) * gates[..., None]
        keys = rotate(split_heads(self.k_proj(key), self.config.head_dim), rotary)
        return keys, values.unflatten(2, (self.config.num_heads, -1)).sum(dim=3)
