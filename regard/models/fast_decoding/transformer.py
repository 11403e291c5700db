"""The weights of a Transformer decoder for fast decoding: query, key and value are one product."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import Dropout, MultiHead, ScaledDot, Sinusoidal
from regard.models.fast_decoding.shared import (
    WeightCache,
    applies_softmax,
    cached_output_projection,
    can_fuse,
    get_or_build,
)
from regard.models.layers import FastDropout, FeedForward, TokenEmbedding
from regard.models.transformer_layers import TransformerDecoder, TransformerDecoderLayer

if TYPE_CHECKING:
    from regard.models.transformer import Transformer

__all__ = ["FusedDecoder", "fuse_decoder"]

INLINED = (
    TransformerDecoder,
    TransformerDecoderLayer,
    MultiHead,
    ScaledDot,
    Dropout,
    FeedForward,
    TokenEmbedding,
    Sinusoidal,
    FastDropout,
    nn.Linear,
    nn.LayerNorm,
    nn.ModuleList,
    nn.Identity,
)


class FusedDecoderLayer:
    """Weights of one decoder layer; projections of the same input are one product.

    Args:
        layer: the layer
    """

    def __init__(self, layer: TransformerDecoderLayer):
        self_attn, cross_attn = layer.self_attn, layer.cross_attn
        self.qkv_proj = _fuse_linears(self_attn.q_proj, self_attn.k_proj, self_attn.v_proj)
        self.self_out_proj = _fuse_linears(self_attn.out_proj)
        self.cross_q_proj, self.cross_out_proj = (_fuse_linears(cross_attn.q_proj), _fuse_linears(cross_attn.out_proj))
        self.linear1 = _fuse_linears(layer.feed_forward.linear1)
        self.linear2 = _fuse_linears(layer.feed_forward.linear2)
        self.norms = [_fuse_norm(norm) for norm in (layer.norm1, layer.norm2, layer.norm3)]


class FusedDecoder:
    """Weights of a Transformer's decoder, as the steps of `FusedDecoderState` need them.

    Args:
        model: the model

    Example:
        >>> from regard.models import Transformer
        >>> model = Transformer(11, 13, embed_dim=16, num_heads=2, num_encoder_layers=2, ffn_dim=32).eval()
        >>> len(FusedDecoder(model).layers)
        2
    """

    def __init__(self, model: Transformer):
        layers = _decoder_layers(model)
        self.layers = [FusedDecoderLayer(layer) for layer in layers]
        self.memory_kv_proj = _fuse_linears(
            *(proj for layer in layers for proj in (layer.cross_attn.k_proj, layer.cross_attn.v_proj))
        )
        self_attn = layers[0].self_attn
        self.embed_dim, self.num_heads = self_attn.embed_dim, self_attn.num_heads
        self.norm_first = layers[0].norm_first
        self.final_norm = _fuse_norm(cast(nn.LayerNorm, model.decoder.norm)) if self.norm_first else None
        embed = model.tgt_embed
        self.embed_weight, self.embed_scale = embed.weight, embed.scale
        self.positions = cast(Sinusoidal, embed.positions)
        self.output_projection = cached_output_projection(model.lm_head)

    def split_heads(
        self, projected: Float[Tensor, "batch positions dim"]
    ) -> Float[Tensor, "batch heads positions head_dim"]:
        """Split the last axis into heads."""
        head_dim = self.embed_dim // self.num_heads
        return projected.view(*projected.shape[:2], self.num_heads, head_dim).transpose(1, 2)

    def position_encodings(self, start: int, count: int) -> Float[Tensor, "count dim"]:
        """The encodings of positions start, start + 1, ..."""
        weight = self.embed_weight
        return self.positions.encoding(count, start, dtype=weight.dtype, device=weight.device)


FUSED_DECODERS: WeightCache[FusedDecoder] = WeakKeyDictionary()


def fuse_decoder(model: Transformer) -> FusedDecoder | None:
    """The fused decoder of a Transformer, cached as long as its weights are unchanged.

    None if every module must be called: with gradients, watchers, hooks, compilation or autocast, and with attention
    or positions other than the paper's.

    Args:
        model: the model

    Returns:
        the fused decoder, or None

    Example:
        >>> from regard.models import Transformer
        >>> model = Transformer(11, 13, embed_dim=16, num_heads=2, num_encoder_layers=2, ffn_dim=32).eval()
        >>> fuse_decoder(model) is None  # gradients are enabled
        True
    """
    modules = [*model.decoder.modules(), *model.tgt_embed.modules(), model.lm_head]
    if not (can_fuse(model.lm_head.weight, modules, INLINED) and _has_standard_layers(model)):
        return None
    return get_or_build(FUSED_DECODERS, model, modules, lambda: FusedDecoder(model))


def _has_standard_layers(model: Transformer) -> bool:
    """Whether positions and all decoder layers are the paper's, with the same number of heads."""
    if type(model.tgt_embed.positions) is not Sinusoidal:
        return False
    layers, residual = _decoder_layers(model), TransformerDecoderLayer._residual
    if not all(isinstance(layer.feed_forward, FeedForward) and type(layer)._residual is residual for layer in layers):
        return False
    attentions = [attention for layer in layers for attention in (layer.self_attn, layer.cross_attn)]
    if not all(isinstance(attention, MultiHead) and _is_standard_attention(attention) for attention in attentions):
        return False
    return len({(attention.num_heads, attention.q_proj.bias is None) for attention in attentions}) == 1


def _is_standard_attention(attention: MultiHead) -> bool:
    has_all_heads = attention.num_kv_heads == attention.num_heads
    return type(attention.score) is ScaledDot and has_all_heads and applies_softmax(attention)


def _decoder_layers(model: Transformer) -> list[TransformerDecoderLayer]:
    return [cast(TransformerDecoderLayer, layer) for layer in model.decoder.layers]


def _fuse_linears(*layers: nn.Linear) -> Callable[[Tensor], Tensor]:
    """One or more linear layers as one product, with a contiguous transposed weight."""
    weight_t = torch.cat(tuple(layer.weight for layer in layers)).t().contiguous()
    biases = tuple(layer.bias for layer in layers if layer._parameters["bias"] is not None)
    if not biases:
        return lambda x: torch.mm(x, weight_t)
    bias = torch.cat(biases)
    return lambda x: torch.addmm(bias, x, weight_t)


def _fuse_norm(norm: nn.LayerNorm) -> Callable[[Tensor], Tensor]:
    """Layer norm without the overhead of a module."""
    shape, weight, bias, eps = tuple(norm.normalized_shape), norm.weight, norm.bias, norm.eps
    return lambda x: torch.layer_norm(x, shape, weight, bias, eps, False)
