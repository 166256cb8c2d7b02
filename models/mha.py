"""Multi-head attention, and its grouped-query and multi-query forms."""

from jaxtyping import Bool, Float
from torch import Tensor, nn

from models.attention import attend, keys_and_values, split_heads, zero_padded
from models.cache import KeyValueCache
from models.config import MultiHeadAttentionConfig
from models.rotary import Rotary, rotate


class MultiHeadAttention(nn.Module):
    """y = sum_i Softmax(Q Wq_i (K Wk_i)^T / sqrt(d_h)) V Wv_i Wo_i (arXiv 1706.03762; 2210.05144, Eq. 4-5).

    With g < h key/value heads each serves h / g query heads (arXiv 2305.13245).
    """

    def __init__(self, config: MultiHeadAttentionConfig) -> None:
        super().__init__()
        self.config = config
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
        key_padding_mask: Bool[Tensor, "batch all_src"] | None = None,
        query_padding_mask: Bool[Tensor, "batch tgt"] | None = None,
        rotary: Rotary | None = None,
        cache: KeyValueCache | None = None,
    ) -> Float[Tensor, "batch tgt d_model"]:
        """Attend from (B, T, d_m) to (B, S, d_m), to itself without ``key``; ``key`` gives the values too.

        ``rotary`` turns queries and keys, which then are the same tokens. Keys and values go behind those in
        ``cache``, and the queries see them causally; S of ``key_padding_mask`` counts the cached ones too. Masks
        are True at padding; padded queries yield zeros.
        """
        k, v = keys_and_values(self, query, key, rotary, cache)
        out = attend(
            rotate(split_heads(self.q_proj(query), self.config.head_dim), rotary),
            k,
            v,
            causal=causal or cache is not None,
            key_padding_mask=key_padding_mask,
            dropout=self.config.attention_dropout if self.training else 0.0,
        )
        return zero_padded(self.out_proj(out.flatten(-2)), query_padding_mask)
