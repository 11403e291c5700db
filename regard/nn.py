"""PyTorch's `nn.MultiheadAttention` on the attention of regard: one import line, or one call, changes a model.

    from regard.nn import MultiheadAttention     # in place of: from torch.nn import MultiheadAttention
    regard.nn.convert(model)                     # exchanges those inside of a model, nn.Transformer included

Constructor, arguments, results and state-dict keys are PyTorch's. The difference: a query whose keys are all masked has
weights 0 and context 0, where PyTorch gives NaN or 0 depending on its path; and `regard.watch` sees the weights.
"""

from __future__ import annotations

from typing import Literal, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from regard.attention import AttentionOutput, Bias, Dropout, Mask, ScaledDot, causal, dense, softmax
from regard.attention.equation import aggregate, attend_unwatched, scores_and_weights, validate
from regard.attention.masks.nested import lengths_of_nested, to_nested_like, to_padded
from regard.attention.observers import notify_watchers
from regard.errors import DtypeError, ShapeError, UsageError

__all__ = ["MultiheadAttention", "convert"]

ModuleT = TypeVar("ModuleT", bound=nn.Module)
SCALED_DOT = ScaledDot()


class MultiheadAttention(nn.MultiheadAttention):
    """`torch.nn.MultiheadAttention`, computed by `regard.attend`: the same arguments, results and state-dict keys.

    As in PyTorch, ``need_weights=False`` is faster, and the weights that are returned in training are those after
    dropout; which of them are dropped differs for the same seed.

    Args:
        embed_dim: the size of queries and outputs
        num_heads: the number of heads, a divisor of embed_dim
        dropout: the probability that a weight is dropped in training
        bias: whether the projections have a bias
        add_bias_kv: whether a learned key and value follow those of the input
        add_zero_attn: whether a key and value of zeros follow those of the input
        kdim: the size of a key; embed_dim by default
        vdim: the size of a value; embed_dim by default
        batch_first: whether tensors are (batch, length, dim), not (length, batch, dim)
        device: the device of the parameters
        dtype: the dtype of the parameters

    Shape: as in PyTorch: query (queries, batch, embed_dim), key (keys, batch, kdim), value (keys, batch, vdim), or
        batch first, or without a batch -> output of the shape of the query, weights (batch, queries, keys) or
        (batch, heads, queries, keys)

    Example:
        >>> from regard.nn import MultiheadAttention
        >>> attention = MultiheadAttention(16, 4, batch_first=True)
        >>> x = torch.randn(2, 3, 16)
        >>> output, weights = attention(x, x, x, key_padding_mask=torch.tensor([[False, False, True], [True] * 3]))
        >>> output.shape, weights.sum(-1)[0, 0].round(decimals=4), weights[1].abs().sum()
        (torch.Size([2, 3, 16]), tensor(1., grad_fn=<RoundBackward1>), tensor(0., grad_fn=<SumBackward0>))

    Reference: Vaswani et al. (2017), arXiv 1706.03762, 3.2.2.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: torch.types.Device = None,
        dtype: torch.dtype | None = None,
    ):
        if embed_dim < 1 or num_heads < 1 or embed_dim % num_heads:
            raise UsageError(
                f"MultiheadAttention: embed_dim must be a multiple of num_heads, got {embed_dim=}, {num_heads=}"
            )
        options = {"device": device, "dtype": dtype}
        super().__init__(
            embed_dim, num_heads, dropout, bias, add_bias_kv, add_zero_attn, kdim, vdim, batch_first, **options
        )
        _disable_fast_path(self)

    def reset_parameters(self) -> None:
        """Initialize all parameters again: the same seed gives the values of the constructor."""
        self.out_proj.reset_parameters()
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        self._qkv_same_embed_dim = self.in_proj_weight is not None
        super()._reset_parameters()
        _disable_fast_path(self)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The output, and the weights or None.

        Args:
            query, key, value: as in the class
            key_padding_mask: (batch, keys) or (keys,): True hides a key; numbers are added to the scores
            need_weights: whether to return the weights
            attn_mask: (queries, keys) or (batch * heads, queries, keys): True hides a key from a query; numbers are
                added to the scores
            average_attn_weights: whether to return the mean of the weights of all heads
            is_causal: says that attn_mask is causal, so that it need not be read
        """
        if is_causal and attn_mask is None:
            raise UsageError("MultiheadAttention: is_causal is a hint, which needs attn_mask, the causal mask itself")
        for name, tensor in (("query", query), ("key", key), ("value", value)):
            self._check_input(name, tensor)
        original, is_batched, key_lengths = query, query.dim() == 3, lengths_of_nested(key)
        if key.dim() != query.dim() or value.dim() != query.dim():
            shapes = f"query {tuple(query.shape)}, key {tuple(key.shape)}, value {tuple(value.shape)}"
            raise ShapeError(f"MultiheadAttention: query, key and value must all have a batch, or none, got {shapes}")
        # One tensor stays one tensor, which is projected at once.
        is_self_attention, is_key_value = key is query, value is key
        query = self._to_batch_first(query)
        key = query if is_self_attention else self._to_batch_first(key)
        value = key if is_key_value else self._to_batch_first(value)
        if key_padding_mask is not None and not is_batched:
            key_padding_mask = key_padding_mask[None]
        batch = query.shape[0]  # not len(), which would be a constant of an exported program
        if not batch == key.shape[0] == value.shape[0]:
            sizes = f"{batch}, {key.shape[0]} and {value.shape[0]}"
            raise ShapeError(f"MultiheadAttention: query, key and value must have the same batch size, got {sizes}")
        self._check_masks(query, key, key_padding_mask, attn_mask)
        q, k, v = (self._split_heads(tensor) for tensor in self._project(query, key, value))
        k, v = self._append_keys(k, self.bias_k), self._append_keys(v, self.bias_v)
        num_extra = k.shape[-2] - key.shape[-2]
        is_hint_used = is_causal and key_padding_mask is None and not need_weights and not num_extra
        parts = [None if is_hint_used or attn_mask is None else self._to_four_axes(attn_mask, batch)]
        parts += [None if key_padding_mask is None else key_padding_mask[:, None, None]]
        if key_lengths is not None:
            parts += [torch.arange(key.shape[1], device=key.device) >= key_lengths[:, None, None, None]]
        mask, bias = _split_masks([F.pad(part, (0, num_extra)) for part in parts if part is not None])
        mask = causal(offset=0) if is_hint_used else mask
        score = SCALED_DOT if bias is None else SCALED_DOT + Bias(bias)
        normalize = Dropout(softmax, self.dropout) if self.training and self.dropout else softmax
        weights: Tensor | None = None
        if need_weights:  # by definition, as fast paths have no weights
            inputs = validate(q, k, v, mask, score, normalize)
            computed = scores_and_weights(inputs)
            weights = computed[1] if inputs.dropout is None else inputs.dropout.drop_weights(computed[1])
            output = AttentionOutput(aggregate(weights, v), inputs, scores_and_weights, computed)
            weights = (weights.mean(1) if average_attn_weights else weights).to(q.dtype)
        else:
            output = attend_unwatched(q, k, v, mask, score, normalize)
        notify_watchers(self, output)
        result = self.out_proj(output.context.transpose(1, 2).flatten(2))
        if original.is_nested:
            return to_nested_like(result, original), weights
        if not is_batched:
            return result[0], None if weights is None else weights[0]
        return result if self.batch_first else result.transpose(0, 1), weights

    def _check_input(self, name: str, tensor: Tensor) -> None:
        size = {"query": self.embed_dim, "key": self.kdim, "value": self.vdim}[name]
        if not isinstance(tensor, Tensor) or tensor.dim() not in (2, 3) or tensor.size(-1) != size:
            shape = tuple(tensor.shape) if isinstance(tensor, Tensor) else type(tensor).__name__
            order = "batch, length" if self.batch_first else "length, batch"
            raise ShapeError(f"MultiheadAttention: {name} must be ({order}, {size}) or (length, {size}), got {shape}")

    def _to_batch_first(self, tensor: Tensor) -> Tensor:
        if tensor.is_nested:
            return to_padded(tensor)
        return tensor[None] if tensor.dim() == 2 else tensor if self.batch_first else tensor.transpose(0, 1)

    def _check_masks(self, query: Tensor, key: Tensor, padding_mask: Tensor | None, attn_mask: Tensor | None) -> None:
        (batch, queries), keys = query.shape[:2], key.shape[1]
        shapes_of_attn_mask: list[tuple[int, ...]] = [(queries, keys), (batch * self.num_heads, queries, keys)]
        for name, mask, shapes in (
            ("key_padding_mask", padding_mask, [(batch, keys)]),
            ("attn_mask", attn_mask, shapes_of_attn_mask),
        ):
            if mask is not None and mask.dtype != torch.bool and not mask.is_floating_point():
                raise DtypeError(
                    f"MultiheadAttention: {name} must be bool, True where a key is hidden, or floating point, added to "
                    f"the scores; got {mask.dtype}"
                )
            if mask is not None and tuple(mask.shape) not in shapes:
                expected = " or ".join(map(str, shapes))
                raise ShapeError(f"MultiheadAttention: {name} must have shape {expected}, got {tuple(mask.shape)}")

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        packed: Tensor | None = self.in_proj_weight
        if packed is None:
            weights: tuple[Tensor, ...] = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        elif query is key and key is value:
            return F.linear(query, packed, self.in_proj_bias).chunk(3, -1)
        else:
            weights = packed.chunk(3)
        inputs = (query, key, value)
        return tuple(F.linear(*arguments) for arguments in zip(inputs, weights, biases, strict=True))

    def _split_heads(self, projected: Tensor) -> Tensor:
        return projected.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)

    def _append_keys(self, heads: Tensor, learned: Tensor | None) -> Tensor:
        """The keys or values, then the learned one of add_bias_kv, then the zeros of add_zero_attn."""
        if learned is not None:
            extra = self._split_heads(learned).to(heads.dtype)
            heads = torch.cat([heads, extra.expand(heads.shape[0], -1, -1, -1)], -2)
        return F.pad(heads, (0, 0, 0, 1)) if self.add_zero_attn else heads

    def _to_four_axes(self, mask: Tensor, batch: int) -> Tensor:
        return mask[None, None] if mask.dim() == 2 else mask.unflatten(0, (batch, self.num_heads))


def convert(model: ModuleT, to: Literal["regard", "torch"] = "regard") -> ModuleT:
    """Exchange the attention modules inside of a model: PyTorch's for regard's, or back.

    The modules stay the same objects with the same parameters; their class changes, so that optimizers, hooks and
    references to them remain valid. Modules of a class derived from nn.MultiheadAttention are left as they are.

    Args:
        model: a model, such as an nn.Transformer, or an attention module itself
        to: "regard" for `regard.nn.MultiheadAttention`, "torch" for `torch.nn.MultiheadAttention`

    Returns: the same model

    Example:
        >>> import regard.nn
        >>> model = regard.nn.convert(torch.nn.TransformerEncoderLayer(16, 2, batch_first=True))
        >>> type(model.self_attn).__module__
        'regard.nn'
    """
    if to not in ("regard", "torch"):
        raise UsageError(f"convert: to must be 'regard' or 'torch', got {to!r}")
    for module in model.modules():
        if isinstance(module, nn.MultiheadAttention) and is_parametrized(module):
            raise UsageError(
                "convert: an attention module has parametrizations; convert the model before they are added"
            )
        if to == "regard" and type(module) is nn.MultiheadAttention:
            module.__class__ = MultiheadAttention
            _disable_fast_path(module)
        elif to == "torch" and type(module) is MultiheadAttention:
            module.__class__ = nn.MultiheadAttention  # type: ignore[assignment]
            module._qkv_same_embed_dim = module.in_proj_weight is not None
    return model


def _disable_fast_path(module: nn.MultiheadAttention) -> None:
    """Keep nn.TransformerEncoderLayer from computing the attention itself, without a call of `forward`."""
    module._qkv_same_embed_dim = False


def _split_masks(masks: list[Tensor]) -> tuple[Mask | None, Tensor | None]:
    """Bool masks of PyTorch as one mask of visible keys, and the sum of the float masks."""
    mask: Mask | None = None
    bias: Tensor | None = None
    for part in masks:
        if part.dtype != torch.bool:
            bias = part if bias is None else bias + part
        else:
            mask = dense(~part) if mask is None else mask & dense(~part)
    return mask, bias
