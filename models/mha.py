"""Multi-head attention, and its grouped-query and multi-query forms."""

from jaxtyping import Bool, Float
from torch import Tensor, nn

from headcount.models.attention import own_projection, split_heads, zero_padded
from headcount.models.cache import Cached, KeyValueCache, keys_and_values
from headcount.models.configs.mha import MultiHeadAttentionConfig
from headcount.models.kernels.choose import Selectable
from headcount.models.rotary import Rotary, rotate


class MultiHeadAttention(Cached, Selectable):
    """y = sum_i Softmax(Q Wq_i (K Wk_i)^T / sqrt(d_h)) V Wv_i Wo_i (arXiv 1706.03762; 2210.05144, Eq. 4-5).

    With g < h key/value heads each serves h / g query heads (arXiv 2305.13245). Implementations differ in the
    core alone; ``auto`` is ``fused``.
    """

    def __init__(self, config: MultiHeadAttentionConfig) -> None:
        super().__init__(config)
        width, kv_width = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        self.q_proj = nn.Linear(config.d_model, width, bias=config.bias)
        self.k_proj = nn.Linear(config.d_model, kv_width, bias=config.bias)
        self.v_proj = nn.Linear(config.d_model, kv_width, bias=config.bias)
        self.out_proj = nn.Linear(width, config.d_model, bias=config.bias)

    def forward(
        self,
        query: Float[Tensor, "batch tgt d_model"],
        key: Float[Tensor, "batch src d_model"] | None = None,
        *,
        causal: bool = False,
        key_padding_mask: Bool[Tensor, "batch stored"] | None = None,
        query_padding_mask: Bool[Tensor, "batch tgt"] | None = None,
        rotary: Rotary | None = None,
        cache: KeyValueCache | None = None,
    ) -> Float[Tensor, "batch tgt d_model"]:
        """Attend from (B, T, d_m) to (B, S, d_m), to itself without ``key``; ``key`` gives the values too.

        Masks are True at padding; padded queries yield zeros. With ``cache`` the queries' keys and values are
        stored behind those it holds, and they attend to all S of them; a closed one gives the keys instead of
        ``key``. ``rotary`` turns the queries and their own keys; ValueError for it beside a ``key``.
        """
        core = self.chosen(query)
        q = rotate(split_heads(self.q_proj(query), self.config.head_dim), rotary)
        k, v = keys_and_values(own_projection(self, key, rotary), query, key, cache)
        out = core(
            q,
            k,
            v,
            causal=causal,
            key_padding_mask=key_padding_mask,
            dropout=self.config.attention_dropout if self.training else 0.0,
        )
        return zero_padded(self.out_proj(out.flatten(-2)), query_padding_mask)

    def automatic(self, query: Tensor) -> str:
        """``fused`` at every size: it keeps no (T, S) scores."""
        return "fused"

    def describe(self) -> str:
        """Sizes for the log."""
        config = self.config
        return f"mha d_model={config.d_model} h={config.num_heads} g={config.num_kv_heads} d_h={config.head_dim}"
