"""Multi-head attention and its key-value cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.attention import equation
from regard.attention._common import instantiate, part_name
from regard.attention.equation import NormalizerLike, ScoreLike
from regard.attention.masks import Mask, PositionGrid
from regard.attention.masks.base import CombinedMask
from regard.attention.masks.nested import pad_nested_inputs, to_nested_like
from regard.attention.module import Device, Dtype, FactoryKwargs, reset_modules
from regard.attention.normalizers.basic import softmax
from regard.attention.normalizers.wrappers import Dropout, resolve_normalizer
from regard.attention.output import AttentionOutput
from regard.attention.projected import ProjectedKV, _AttentionModule
from regard.attention.scores.dot import Dot, ScaledDot
from regard.errors import ShapeError, UnsupportedError, UsageError

__all__ = ["KVCache", "MultiHead"]

IN_PROJECTIONS = ("q_proj", "k_proj", "v_proj")


class MultiHead(_AttentionModule):
    """Multi-head attention: project, split into heads, attend, concatenate, project.

        head_h  = attend(W_q^h query, W_k^h key, W_v^h value).context
        context = W_o [head_1; ...; head_n]

    Args:
        embed_dim: the size of queries and contexts, a multiple of num_heads unless head_dim is given
        num_heads: the number of heads
        num_kv_heads: the number of heads of keys and values, a divisor of num_heads; num_heads by default, fewer for
            grouped-query and 1 for multi-query attention
        key_dim: the size of a key; query_dim by default
        value_dim: the size of a value; key_dim by default
        query_dim: the size of a query; embed_dim by default
        head_dim: the size of the queries and keys of a head; embed_dim / num_heads by default
        value_head_dim: the size of the values of a head; head_dim by default
        bias: whether the projections have a bias
        out_bias: whether the last projection has one; ``bias`` by default
        qk_norm: from head_dim to a module that normalizes the projected queries and keys of each head, as
            ``nn.RMSNorm``; none by default
        add_bias_kv: whether a learned key and value, ``bias_k`` and ``bias_v``, follow those of the input
        add_zero_attn: whether a key and a value of zeros follow them; masks hide neither
        dropout: the probability that a weight is dropped in training
        score: from query and key to scores; ScaledDot() by default
        normalize: from scores to weights; that of the score by default
        device: the device of the parameters
        dtype: the dtype of the parameters

    Shape: query (*batch, queries, query_dim), key (*batch, keys, key_dim), value (*batch, keys, value_dim) ->
        AttentionOutput with context (*batch, queries, embed_dim) and weights (*batch, heads, queries, keys). A dense
        mask is (queries, keys) or has all axes of the weights, each of its size or 1; the axes of padding(lengths) are
        the batch axes. The weights of a learned and a zero key are the last ones.

    Reference: Vaswani et al. (2017), arXiv 1706.03762, 3.2.2; grouped-query: Ainslie et al. (2023), arXiv 2305.13245;
        multi-query: Shazeer (2019), arXiv 1911.02150; qk_norm: Henry et al. (2020), arXiv 2010.04245.

    Example:
        >>> attention = MultiHead(16, 4)
        >>> output = attention(torch.randn(2, 3, 16))
        >>> output.context.shape, output.weights.shape
        (torch.Size([2, 3, 16]), torch.Size([2, 4, 3, 3]))
    """

    repr_settings = ("embed_dim", "num_heads", "num_kv_heads")
    has_heads = True

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        num_kv_heads: int | None = None,
        *,
        key_dim: int | None = None,
        value_dim: int | None = None,
        query_dim: int | None = None,
        head_dim: int | None = None,
        value_head_dim: int | None = None,
        bias: bool = True,
        out_bias: bool | None = None,
        qk_norm: Callable[[int], nn.Module] | None = None,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        dropout: float = 0.0,
        score: ScoreLike | None = None,
        normalize: NormalizerLike | None = None,
        device: Device = None,
        dtype: Dtype = None,
    ):
        super().__init__()
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        if head_dim is None:
            _check_multiple(embed_dim=embed_dim, num_heads=num_heads)
        _check_multiple(num_heads=num_heads, num_kv_heads=num_kv_heads)
        self.embed_dim, self.num_heads, self.num_kv_heads = embed_dim, num_heads, num_kv_heads
        self.head_dim = embed_dim // num_heads if head_dim is None else head_dim
        self.value_head_dim = self.head_dim if value_head_dim is None else value_head_dim
        for name, size in {"head_dim": self.head_dim, "value_head_dim": self.value_head_dim}.items():
            if size < 1:
                raise UsageError(f"MultiHead: {name} must be at least 1, got {size}")
        # One head of keys for all heads of queries broadcasts by itself.
        self.num_groups = 1 if num_kv_heads == 1 else num_heads // num_kv_heads
        query_dim = embed_dim if query_dim is None else query_dim
        key_dim = query_dim if key_dim is None else key_dim
        value_dim = key_dim if value_dim is None else value_dim
        out_bias = bias if out_bias is None else out_bias
        factory: FactoryKwargs = {"device": device, "dtype": dtype}
        self.q_proj = nn.Linear(query_dim, num_heads * self.head_dim, bias=bias, **factory)
        self.k_proj = nn.Linear(key_dim, num_kv_heads * self.head_dim, bias=bias, **factory)
        self.v_proj = nn.Linear(value_dim, num_kv_heads * self.value_head_dim, bias=bias, **factory)
        self.out_proj = nn.Linear(num_heads * self.value_head_dim, embed_dim, bias=out_bias, **factory)
        self.q_norm: nn.Module | None = None
        self.k_norm: nn.Module | None = None
        if qk_norm is not None:
            self.q_norm, self.k_norm = (qk_norm(self.head_dim).to(device, dtype) for _ in range(2))
        self.bias_k: nn.Parameter | None = None
        self.bias_v: nn.Parameter | None = None
        if add_bias_kv:
            self.bias_k = nn.Parameter(torch.empty(1, 1, self.k_proj.out_features, **factory))
            self.bias_v = nn.Parameter(torch.empty(1, 1, self.v_proj.out_features, **factory))
        self.add_zero_attn = add_zero_attn
        self.num_extra_keys = add_bias_kv + add_zero_attn
        self.score = ScaledDot() if score is None else instantiate(score, "score")
        self.normalize = None if normalize is None else resolve_normalizer(normalize)
        if dropout:
            self.normalize = Dropout(self.normalize or equation.default_normalizer(self.score), dropout)
        for part in (self.score, self.normalize) if self.num_extra_keys else ():
            if isinstance(part, nn.Module) and getattr(part, "is_positional", False):
                raise UsageError(
                    f"MultiHead: {part_name(part)} needs the position of every key, and add_bias_kv and add_zero_attn "
                    "add keys without one"
                )
        self._init_parameters()

    @property
    def is_standard(self) -> bool:
        """Whether sizes and keys are the paper's: exported models and fused decoders have no others."""
        inner_dims = {self.embed_dim, self.q_proj.in_features, self.q_proj.out_features, self.v_proj.out_features}
        has_equal_biases = (self.q_proj.bias is None) == (self.out_proj.bias is None)
        has_standard_keys = self.num_kv_heads == self.num_heads and not self.num_extra_keys
        return len(inner_dims) == 1 and has_standard_keys and has_equal_biases and self.q_norm is None

    @property
    def is_scaled_dot_product(self) -> bool:
        """Whether it is softmax of scaled dot products, and `is_standard`: other engines compute no other."""
        return self.is_standard and type(self.score) is ScaledDot and self.normalize in (None, softmax)

    @property
    def is_key_bias_redundant(self) -> bool:
        """Whether the bias of the keys has no influence on the weights.

        It adds query . bias to all scores of a query, which softmax cancels. Its computed gradient is rounding error
        only, which Adam would scale up like any other.
        """
        inner = self.normalize.normalize if isinstance(self.normalize, Dropout) else self.normalize
        is_plain = self.k_norm is None and not self.num_extra_keys
        return is_plain and type(self.score) in (Dot, ScaledDot) and inner in (None, softmax)

    def reset_parameters(self) -> None:
        """Initialize all parameters again: the score, which the caller created first, then the projections."""
        # The values that nn.Linear draws are overwritten, but they advance the random number generator.
        reset_modules(self.score, self.normalize, *self._projections(), self.q_norm, self.k_norm)
        self._init_parameters()

    def _projections(self) -> tuple[nn.Linear, ...]:
        return self.q_proj, self.k_proj, self.v_proj, self.out_proj

    def _init_parameters(self) -> None:
        for layer in self._projections():
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        if self.bias_k is not None and self.bias_v is not None:
            nn.init.xavier_normal_(self.bias_k)
            nn.init.xavier_normal_(self.bias_v)

    def forward(
        self,
        query: Float[Tensor, "*q queries query_dim"],
        key: Float[Tensor, "*k keys key_dim"] | None = None,
        value: Float[Tensor, "*v keys value_dim"] | None = None,
        mask: Mask | Bool[Tensor, "..."] | None = None,
        *,
        cache: KVCache | None = None,
    ) -> AttentionOutput:
        """Attend to the keys; self-attention without ``key``.

        Args:
            query: (*batch, queries, query_dim)
            key: (*batch, keys, key_dim); the query by default
            value: (*batch, keys, value_dim); the key by default
            mask: the visible keys, those in the cache included
            cache: keys and values of earlier calls, to which those of this call are appended; for self-attention only
        """
        if cache is not None and key is not None and key is not query:
            raise UsageError(
                "MultiHead: a cache is for self-attention, as other keys would be appended again in each call; project "
                "them once with precompute(key, value, mask)"
            )
        key = query if key is None else key
        value = key if value is None else value
        if isinstance(query, Tensor) and isinstance(key, Tensor) and (query.is_nested or key.is_nested):
            return self._attend_nested(query, key, value, mask, cache)
        self._check_inputs(query=query, key=key, value=value)
        heads_key = self._project(self.k_proj, key, self.head_dim, self.k_norm)
        heads_value = self._project(self.v_proj, value, self.value_head_dim)
        if cache is not None:
            if mask is not None:  # before the cache is updated
                batch = (*query.shape[:-2], self.num_heads)
                mask = equation.resolve_mask(mask, batch, query.shape[-2], len(cache) + key.shape[-2], has_heads=True)
            heads_key, heads_value = cache.update(heads_key, heads_value)
        if self.num_extra_keys:
            heads_key, heads_value, mask = *self._append_keys(heads_key, heads_value), self._resolve_mask(mask)
        heads_query = self._project(self.q_proj, query, self.head_dim, self.q_norm)
        arguments = mask, self.score, self.normalize, self.num_groups, self.has_heads
        return self._project_output(equation.attend_unwatched(heads_query, heads_key, heads_value, *arguments))

    def _attend_nested(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Mask | Tensor | None, cache: KVCache | None
    ) -> AttentionOutput:
        if cache is not None or self.num_extra_keys:
            raise UnsupportedError(
                "MultiHead: nested tensors cannot be used with a cache, add_bias_kv or add_zero_attn; pad them, as in "
                "torch.nested.to_padded_tensor(x, 0.0), and hide the rest with mask=padding(lengths)"
            )
        padded: Any = pad_nested_inputs(query, key, value, mask, self.score)
        output = self.forward(*padded)
        return output.replace_context(to_nested_like(output.context, query)) if query.is_nested else output

    def precompute(self, key: Tensor, value: Tensor | None = None, mask: Mask | Tensor | None = None) -> ProjectedKV:
        """The same attention with fixed keys and values, which are projected once."""
        return super().precompute(key, key if value is None else value, mask)

    def attend_projected(self, query: Tensor, keys: ProjectedKV) -> AttentionOutput:
        """Attend to keys and values that are projected already; `ProjectedKV` calls it."""
        self._check_inputs(query=query)
        return self._project_output(keys.attend(self._project(self.q_proj, query, self.head_dim, self.q_norm)))

    def _project_kv(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, list[Any]]:
        self._check_inputs(key=key, value=value)
        modules = [self.k_proj, self.v_proj, self.score, self.k_norm, self.bias_k, self.bias_v]
        heads_key = self._project(self.k_proj, key, self.head_dim, self.k_norm)
        heads_value = self._project(self.v_proj, value, self.value_head_dim)
        return *self._append_keys(heads_key, heads_value), modules

    def _append_keys(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """The learned key and value and those of zeros after (*batch, heads, keys, dim)."""
        if self.bias_k is not None and self.bias_v is not None:
            key = torch.cat([key, self._expand_bias(self.bias_k, key)], -2)
            value = torch.cat([value, self._expand_bias(self.bias_v, value)], -2)
        return (F.pad(key, (0, 0, 0, 1)), F.pad(value, (0, 0, 0, 1))) if self.add_zero_attn else (key, value)

    def _expand_bias(self, bias: Tensor, heads: Tensor) -> Tensor:
        return bias.view(-1, 1, heads.shape[-1]).to(heads.dtype).expand(*heads.shape[:-2], -1, -1)

    def _resolve_mask(self, mask: Mask | Tensor | None) -> Mask | None:
        resolved = super()._resolve_mask(mask)
        return resolved if resolved is None or not self.num_extra_keys else _ExtendedMask(resolved, self.num_extra_keys)

    def _project_output(self, output: AttentionOutput) -> AttentionOutput:
        context = self.out_proj(output.context.transpose(-3, -2).flatten(-2))
        return self._notified(output.replace_context(context))

    @staticmethod
    def _project(layer: nn.Linear, x: Tensor, head_dim: int, norm: nn.Module | None = None) -> Tensor:
        heads = layer(x).unflatten(-1, (-1, head_dim)).transpose(-3, -2)
        return heads if norm is None else norm(heads)

    def _check_inputs(self, **inputs: Tensor) -> None:
        for name, tensor in inputs.items():
            size = getattr(self, f"{name[0]}_proj").in_features
            if not isinstance(tensor, Tensor) or tensor.is_nested or tensor.dim() < 2 or tensor.shape[-1] != size:
                equation.check_tensor(f"MultiHead: {name}", tensor, f"positions, {size}")
                raise ShapeError(f"MultiHead: {name} must be (*batch, positions, {size}), got {tuple(tensor.shape)}")

    @classmethod
    def from_torch(cls, module: nn.MultiheadAttention) -> MultiHead:
        """The same attention with a copy of the weights of PyTorch's module; the result is always batch-first."""
        has_bias = module.in_proj_bias is not None
        options: dict[str, Any] = {"key_dim": module.kdim, "value_dim": module.vdim, "dropout": module.dropout}
        options |= {"add_bias_kv": module.bias_k is not None, "add_zero_attn": module.add_zero_attn}
        converted = cls(module.embed_dim, module.num_heads, bias=has_bias, **options).to(module.out_proj.weight)
        in_proj: Tensor | None = module.in_proj_weight
        separate = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
        weights = separate if in_proj is None else in_proj.chunk(3)
        state = {f"out_proj.{name}": tensor for name, tensor in module.out_proj.state_dict().items()}
        state |= {f"{name}.weight": weight for name, weight in zip(IN_PROJECTIONS, weights, strict=True)}
        if has_bias:
            biases = module.in_proj_bias.chunk(3)
            state |= {f"{name}.bias": bias for name, bias in zip(IN_PROJECTIONS, biases, strict=True)}
        state |= {name: bias for name in ("bias_k", "bias_v") if (bias := getattr(module, name)) is not None}
        converted.load_state_dict(state)
        return converted.train(module.training)


class _ExtendedMask(CombinedMask):
    """A mask of the keys of the input, followed by keys that are visible to every query."""

    def __init__(self, mask: Mask, num_extra_keys: int):
        super().__init__(mask)
        self.num_extra_keys = num_extra_keys

    def rule(self, grid: PositionGrid) -> Tensor:
        (mask,), num_keys = self.parts, grid.num_keys - self.num_extra_keys
        if grid.is_full:
            device = grid.key_positions.device
            visible = mask.rule(PositionGrid.full(grid.num_queries, num_keys, grid.num_batch_axes, device))
            return F.pad(visible.expand(*visible.shape[:-1], num_keys), (0, self.num_extra_keys), value=True)
        inner = replace(grid, num_keys=num_keys, key_positions=grid.key_positions.clamp(max=max(num_keys - 1, 0)))
        return mask.rule(inner) | (grid.key_positions >= num_keys)

    def check_shape(self, batch_shape: tuple[int, ...], queries: int, keys: int) -> None:
        super().check_shape(batch_shape, queries, keys - self.num_extra_keys)

    def __repr__(self) -> str:
        return f"{self.parts[0]} and {self.num_extra_keys} more"


def _check_multiple(**sizes: int) -> None:
    (name, size), (part, count) = sizes.items()
    if count < 1 or size % count:
        raise UsageError(f"MultiHead: {name} must be a multiple of {part}, got {name}={size}, {part}={count}")


class KVCache:
    """The keys and values of earlier positions, so that a decoding step costs one query.

    Without gradients it writes into a preallocated buffer, so that a step copies no earlier keys. Rows that a step has
    returned are never overwritten, so the weights of that step can still be read later. Under a compiler it copies
    them, so that steps of all lengths share one graph.

    Example:
        >>> attention, cache = MultiHead(8, 2), KVCache()
        >>> with torch.no_grad():
        ...     steps = [attention(torch.randn(1, 1, 8), mask=causal(), cache=cache) for _ in range(3)]
        >>> [step.weights.shape[-1] for step in steps], len(cache)
        ([1, 2, 3], 3)
    """

    def __init__(self) -> None:
        self._buffers: tuple[Tensor, ...] = ()  # the keys and the values, with room for more after them
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def update(self, key: Float[Tensor, "..."], value: Float[Tensor, "..."]) -> tuple[Tensor, Tensor]:
        """Append (*batch, heads, new, dim); returns all keys and all values so far."""
        keys, values = self._buffers or (key[..., :0, :], value[..., :0, :])
        if keys.shape[:-2] != key.shape[:-2]:
            shape = (*keys.shape[:-2], self._length, keys.shape[-1])
            raise ShapeError(f"the cache holds keys {shape}, to which {tuple(key.shape)} cannot be appended")
        start, self._length = self._length, self._length + key.shape[-2]
        self._buffers = keys, values = _write_at(keys, key, start), _write_at(values, value, start)
        return keys[..., : self._length, :], values[..., : self._length, :]

    def __copy__(self) -> KVCache:
        """An independent branch: it shares the earlier keys, but no preallocated buffer."""
        branch = KVCache()
        branch._length, branch._buffers = self._length, self._filled()
        return branch

    def reorder(self, rows: Int[Tensor, " batch"]) -> None:
        """Keep the given rows of the first batch axis, as beam search selects them."""
        self._buffers = tuple(tensor.index_select(0, rows) for tensor in self._filled())

    def _filled(self) -> tuple[Tensor, ...]:
        return tuple(buffer[..., : self._length, :] for buffer in self._buffers)


def _write_at(buffer: Tensor, new: Tensor, start: int) -> Tensor:
    """The new rows after the first ``start`` rows of the buffer, which grows by doubling."""
    # A compiler would build another graph each time the buffer grows, and copies a buffer that a graph writes to.
    has_gradient = torch.is_grad_enabled() and (new.requires_grad or buffer.requires_grad)
    if has_gradient or torch.compiler.is_compiling():
        return torch.cat([buffer[..., :start, :], new], -2)
    stop = start + new.shape[-2]
    if stop > buffer.shape[-2] or start == 0 or _is_inference_only(buffer):
        larger = new.new_empty(*new.shape[:-2], max(2 * stop, 16), new.shape[-1])
        larger[..., :start, :] = buffer[..., :start, :]
        buffer = larger
    # Written without the version counter: these rows were not returned before, so no tensor of an earlier call changes.
    buffer.data[..., start:stop, :] = new
    return buffer


def _is_inference_only(buffer: Tensor) -> bool:
    """Whether the buffer was created in inference mode and cannot be written to outside of it."""
    return not torch.compiler.is_compiling() and buffer.is_inference() and not torch.is_inference_mode_enabled()
