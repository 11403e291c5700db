"""Language models: causal and masked.

Radford et al. (2018), "Improving language understanding by generative pre-training", and Devlin et al. (2019), "BERT",
arXiv 1810.04805.
"""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import KVCache, Mask, causal, window
from regard.attention.module import Device, Dtype, FactoryKwargs, ResettableModule
from regard.errors import UsageError
from regard.models.hybrid_encoder import HybridEncoder
from regard.models.layers import Lengths, MakeModule, MakePositions, TokenEmbedding, untie
from regard.models.transformer_layers import MakeAttention, TransformerEncoder

__all__ = ["CausalDecoderState", "CausalLM", "MaskedLM"]

Vectors = Float[Tensor, "batch seq_len embed_dim"]


class CausalLM(ResettableModule):
    """Causal language model: a Transformer decoder without a source.

    Args:
        vocab_size: number of tokens
        embed_dim: size of a token's vector and of all hidden states
        num_heads: attention heads of each layer
        num_layers: number of layers
        ffn_dim: inner size of the feed-forward networks; `4 * embed_dim` if None
        dropout: probability of dropout on embeddings and on the output of each sublayer
        norm_first: normalize before each sublayer, not after it
        tie_embeddings: whether `lm_head` shares the weight of the embeddings
        make_self_attn, make_feed_forward, make_norm: as in `TransformerEncoderLayer`
        make_positions, embed_scale: as in `Transformer`
        window_size: how many of the last tokens, itself included, a token attends to; all if None
        device, dtype: of the parameters, as in PyTorch

    Shape: (batch, seq_len) -> (batch, seq_len, vocab_size)

    Example:
        >>> model = CausalLM(20, embed_dim=8, num_heads=2, num_layers=1, ffn_dim=16)
        >>> model(torch.randint(4, 20, (2, 5))).shape
        torch.Size([2, 5, 20])
    """

    def __init__(
        self,
        vocab_size: int,
        *,
        embed_dim: int = 256,
        num_heads: int = 4,
        num_layers: int = 4,
        ffn_dim: int | None = None,
        dropout: float = 0.1,
        norm_first: bool = True,
        tie_embeddings: bool = True,
        make_self_attn: MakeAttention | None = None,
        make_feed_forward: MakeModule | None = None,
        make_norm: MakeModule | None = None,
        make_positions: MakePositions | None = None,
        embed_scale: float | None = None,
        window_size: int | None = None,
        device: Device = None,
        dtype: Dtype = None,
    ):
        super().__init__()
        if window_size is not None and window_size < 1:
            raise UsageError(f"CausalLM: window_size must be at least 1, got {window_size}")
        self.window_size = window_size
        factory: FactoryKwargs = {"device": device, "dtype": dtype}
        ffn_dim, self.tie_embeddings = ffn_dim or 4 * embed_dim, tie_embeddings
        embed_options = {"make_positions": make_positions, "scale": embed_scale, **factory}
        self.embed = TokenEmbedding(vocab_size, embed_dim, dropout, **embed_options)
        options = {"num_layers": num_layers, "dropout": dropout, "norm_first": norm_first, **factory}
        options |= {"make_self_attn": make_self_attn, "make_feed_forward": make_feed_forward, "make_norm": make_norm}
        self.decoder = TransformerEncoder(embed_dim, num_heads, ffn_dim=ffn_dim, **options)
        self.lm_head = nn.Linear(embed_dim, vocab_size, bias=False, **factory)
        self._init_parameters()

    def reset_parameters(self) -> None:
        untie(self.lm_head, self.embed)
        super().reset_parameters()

    def _init_parameters(self) -> None:
        if self.tie_embeddings:
            self.lm_head.weight = self.embed.weight

    def forward(self, tokens: Int[Tensor, "batch seq_len"]) -> Float[Tensor, "batch seq_len vocab"]:
        """Logits of the next token after each token; padding comes after the tokens, so causal masking hides it."""
        return self.lm_head(self.forward_hidden(tokens))

    def forward_hidden(self, tokens: Int[Tensor, "batch seq_len"]) -> Vectors:
        """The input of `lm_head`, for losses that compute logits in chunks."""
        return self.decoder(self.embed(tokens), self.mask())

    def mask(self) -> Mask:
        """The tokens that each token attends to."""
        return causal() if self.window_size is None else window(self.window_size - 1, 0)

    def start_decoding(self, source: Int[Tensor, "batch seq_len"], source_lengths: Lengths) -> CausalDecoderState:
        """Run the model over prefixes, all of one length, and return a state that takes one token per step."""
        if bool((source_lengths != source.shape[1]).any()):
            raise UsageError(
                "CausalLM.start_decoding: all prefixes must have the length of the batch, got lengths"
                f" {sorted(set(source_lengths.tolist()))}; decode the prefixes of each length in a batch of their own"
            )
        return CausalDecoderState(self, source)


class CausalDecoderState:
    """State of a causal language model that takes one token of each row per step, with cached keys and values.

    Args:
        model: the model
        prefix: the tokens so far, (batch, seq_len)

    Example:
        >>> model = CausalLM(20, embed_dim=8, num_heads=2, num_layers=1).eval()
        >>> decoder = model.start_decoding(torch.randint(4, 20, (2, 5)), torch.tensor([5, 5]))
        >>> decoder.step(torch.tensor([4, 4])).shape
        torch.Size([2, 20])
    """

    def __init__(self, model: CausalLM, prefix: Int[Tensor, "batch seq_len"]):
        self.model, self.caches = model, [KVCache() for _ in model.decoder.layers]
        self.pending_token: Tensor | None = prefix[:, -1]
        if prefix.shape[1] > 1:
            self._run_decoder(prefix[:, :-1])

    def step(self, tokens: Int[Tensor, " batch"]) -> Float[Tensor, "batch vocab"]:
        """Logits of the next token of each row; the first step continues the prefix and ignores `tokens`."""
        tokens, self.pending_token = tokens if self.pending_token is None else self.pending_token, None
        return self.model.lm_head(self._run_decoder(tokens[:, None])[:, -1])

    def reorder(self, rows: Int[Tensor, " new_batch"]) -> None:
        """Continue with these rows; a row may be repeated or left out."""
        self.pending_token = None if self.pending_token is None else self.pending_token[rows]
        for cache in self.caches:
            cache.reorder(rows)

    def _run_decoder(self, tokens: Int[Tensor, "batch new"]) -> Float[Tensor, "batch new embed_dim"]:
        x = self.model.embed(tokens, offset=len(self.caches[0]))
        return self.model.decoder(x, self.model.mask(), self.caches)


class MaskedLM(ResettableModule):
    """Masked language model: predicts the tokens at masked positions from both sides.

        logits of token t = E x_t + b          x = encoder(tokens), E the encoder's embeddings

    The paper learns its positions and has GELU and one more layer before the logits; here positions and activation are
    those of the Transformer. There is no next-sentence prediction, which helps little (Liu et al. 2019, arXiv
    1907.11692).

    Args:
        encoder: the encoder, whose embeddings are shared with `lm_head`
        device, dtype: of the output bias, as in PyTorch; `encoder` has its own

    Shape: tokens (batch, seq_len), lengths (batch,) -> (batch, seq_len, vocab_size)

    Example:
        >>> from regard.models.hybrid_encoder import SelfAttentionLayer
        >>> model = MaskedLM(HybridEncoder(20, 8, [SelfAttentionLayer(8, 2)]))
        >>> model(torch.randint(4, 20, (2, 5)), torch.tensor([5, 3])).shape
        torch.Size([2, 5, 20])
    """

    def __init__(self, encoder: HybridEncoder, *, device: Device = None, dtype: Dtype = None):
        super().__init__()
        self.encoder = encoder
        vocab_size, embed_dim = encoder.embed.weight.shape
        self.lm_head = nn.Linear(embed_dim, vocab_size, device=device, dtype=dtype)
        self._init_parameters()

    def reset_parameters(self) -> None:
        untie(self.lm_head, self.encoder.embed)
        super().reset_parameters()

    def _init_parameters(self) -> None:
        self.lm_head.weight = self.encoder.embed.weight
        nn.init.zeros_(self.lm_head.bias)

    def forward(self, tokens: Int[Tensor, "batch seq_len"], lengths: Lengths) -> Float[Tensor, "batch seq_len vocab"]:
        """Logits of the token at each position."""
        return self.lm_head(self.forward_hidden(tokens, lengths))

    def forward_hidden(self, tokens: Int[Tensor, "batch seq_len"], lengths: Lengths) -> Vectors:
        """The input of `lm_head`, for losses that need the logits of some positions only."""
        return self.encoder(tokens, lengths)
