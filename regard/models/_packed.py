"""A Transformer's decoder laid out for steps: what `PackedSteps` needs of it, made once and kept with the model."""

from __future__ import annotations

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import Dropout, MultiHead, ScaledDot, softmax
from regard.attention._watching import WATCHING
from regard.models._kept import Kept, kept, plain
from regard.models._words import unrecorded, words


class Affine(NamedTuple):
    """A linear layer without the module around it, its weights in the order in which a product reads them."""

    columns: Float[Tensor, "input output"]
    bias: Float[Tensor, " output"] | None

    def __call__(self, x: Float[Tensor, "rows input"]) -> Float[Tensor, "rows output"]:
        return torch.mm(x, self.columns) if self.bias is None else torch.addmm(self.bias, x, self.columns)


class Gain(NamedTuple):
    """A layer norm without the module around it."""

    shape: tuple[int, ...]
    weight: Tensor
    bias: Tensor
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        return torch.layer_norm(x, self.shape, self.weight, self.bias, self.eps, False)


class Layer:
    """The weights of one decoder layer; those that are asked with the same vector are joined."""

    def __init__(self, layer: Any):
        look, back = layer.look, layer.look_back
        self.look, self.look_out = _joined(look.query, look.key, look.value), _joined(look.output)
        self.back, self.back_out = _joined(back.query), _joined(back.output)
        self.widen, self.narrow = _joined(layer.think[0]), _joined(layer.think[2])
        self.norms = [_gain(add.norm) for add in (layer.add_look, layer.add_back, layer.add_think)]


class Packed:
    """A decoder's weights as its steps want them."""

    def __init__(self, model: Any):
        layers, heads = model.decoder.layers, model.decoder.layers[0].look
        self.layers = [Layer(layer) for layer in layers]
        self.read = _joined(
            *(part for layer in layers for part in (layer.look_back.key, layer.look_back.value))
        )
        self.dim, self.heads, self.first = heads.dim, heads.heads, layers[0].add_look.first
        self.last = _gain(model.decoder.norm) if self.first else None
        self.words, self.scale, self.positions = (
            model.write.words.weight,
            model.write.scale,
            model.write.positions,
        )
        self.output = words(model.output)

    def split(
        self, joined: Float[Tensor, "some positions dim"]
    ) -> Float[Tensor, "some heads positions part"]:
        return joined.view(*joined.shape[:2], self.heads, self.dim // self.heads).transpose(1, 2)

    def places(self, start: int, count: int) -> Float[Tensor, "count dim"]:
        return self.positions.encoding(count, start, dtype=self.words.dtype, device=self.words.device)


KEPT: Kept[Packed] = WeakKeyDictionary()


def packed(model: Any) -> Packed | None:
    """The decoder of a Transformer laid out, the same as long as its weights are; None if steps must be the plain ones.

    The shortcut knows the paper's heads only. Where somebody watches, hooks a part, wants gradients, compiles or
    computes in other precisions than the weights', each part of the model must be called.
    """
    parts = [*model.decoder.modules(), *model.write.modules(), model.output]
    if not (_plain_call(model) and _plain_layers(model) and all(map(plain, parts))):
        return None
    return kept(KEPT, model, parts, lambda: Packed(model))


def _plain_call(model: Any) -> bool:
    weight = model.output.weight
    return unrecorded(weight) and not WATCHING.get() and weight.dtype in (torch.float32, torch.float64)


def _plain_layers(model: Any) -> bool:
    """Whether all layers of the decoder are the paper's, with as many heads in each."""
    heads = [heads for layer in model.decoder.layers for heads in (layer.look, layer.look_back)]
    kinds = {
        (type(part), part.heads, part.query.bias is None) for part in heads if isinstance(part, MultiHead)
    }
    same = len(kinds) == 1 and all(type(part) is MultiHead and _papers(part) for part in heads)
    return same and all(type(layer.think[1]) is nn.ReLU for layer in model.decoder.layers)


def _papers(part: MultiHead) -> bool:
    normalize = part.normalize
    inner = normalize.normalize if isinstance(normalize, Dropout) else normalize
    return type(part.score) is ScaledDot and part.kv_heads == part.heads and inner in (None, softmax)


def _joined(*layers: nn.Linear) -> Affine:
    biases: list[Tensor] = [layer.bias for layer in layers if layer._parameters["bias"] is not None]
    weights: list[Tensor] = [layer.weight for layer in layers]
    return Affine(torch.cat(weights).t().contiguous(), torch.cat(biases) if biases else None)


def _gain(norm: nn.LayerNorm) -> Gain:
    return Gain(tuple(norm.normalized_shape), norm.weight, norm.bias, norm.eps)
