"""Several attentions side by side, each on a projection of its own."""

from __future__ import annotations

from copy import copy

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.types import Device

from regard.attention.equation import (
    NormalizerLike,
    ScoreLike,
    attend_unwatched,
    default_normalizer,
    instantiate,
)
from regard.attention.masks import Mask, as_mask
from regard.attention.normalizers import Dropout, softmax
from regard.attention.observers import notify_watchers
from regard.attention.output import AttentionOutput
from regard.attention.projected import VersionGuard, project_keys, reorder_projected
from regard.attention.scores import Dot, ScaledDot
from regard.errors import ShapeError, UsageError


class MultiHead(nn.Module):
    """Several looks at once: project, split into heads, attend, join, project.

        head_h  = attend(W_q^h query, W_k^h key, W_v^h value).context
        context = W_o [head_1; ...; head_n]

    Vaswani et al. (2017), arXiv 1706.03762, 3.2.2; with fewer ``kv_heads`` than heads it is grouped-query
    (Ainslie et al. 2023, arXiv 2305.13245), with one multi-query attention (Shazeer 2019, arXiv 1911.02150).
    Tensors are (*batch, positions, dim), weights (*batch, heads, queries, keys); a dense mask broadcasts to
    these from the right, padding(lengths) goes by the leading batch axes.

    >>> heads = MultiHead(embed_dim=16, num_heads=4)
    >>> seen = heads(torch.randn(2, 3, 16))
    >>> seen.context.shape, seen.weights.shape
    (torch.Size([2, 3, 16]), torch.Size([2, 4, 3, 3]))
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        num_kv_heads: int | None = None,
        *,
        key_dim: int | None = None,
        value_dim: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        score: ScoreLike | None = None,
        normalize: NormalizerLike | None = None,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        if num_heads < 1 or embed_dim % num_heads:
            raise UsageError(
                f"MultiHead: dim must be a multiple of heads, got dim={embed_dim}, heads={num_heads}"
            )
        if num_kv_heads < 1 or num_heads % num_kv_heads:
            raise UsageError(
                f"MultiHead: heads must be a multiple of kv_heads, got heads={num_heads}, kv_heads={num_kv_heads}"
            )
        self.embed_dim, self.num_heads, self.num_kv_heads, self.head_dim = (
            embed_dim,
            num_heads,
            num_kv_heads,
            embed_dim // num_heads,
        )
        small = num_kv_heads * self.head_dim
        self.q_proj = nn.Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        self.k_proj = nn.Linear(
            embed_dim if key_dim is None else key_dim, small, bias=bias, device=device, dtype=dtype
        )
        self.v_proj = nn.Linear(
            self.k_proj.in_features if value_dim is None else value_dim,
            small,
            bias=bias,
            device=device,
            dtype=dtype,
        )
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        self.score = ScaledDot() if score is None else instantiate(score, "score")
        self.normalize = None if normalize is None else instantiate(normalize, "normalize")
        if dropout:
            self.normalize = Dropout(self.normalize or default_normalizer(self.score), dropout)
        self._init_parameters()

    @property
    def is_key_bias_redundant(self) -> bool:
        """Whether a bias of the keys cannot be seen in the weights.

        It adds query . bias to all scores of a query, and softmax is blind to that. The gradient that is computed
        for it is rounding and nothing else, which Adam would make as large as any other.
        """
        inner = self.normalize.normalize if isinstance(self.normalize, Dropout) else self.normalize
        return type(self.score) in (Dot, ScaledDot) and inner in (None, softmax)

    def reset_parameters(self) -> None:
        for layer in (self.q_proj, self.k_proj, self.v_proj, self.out_proj):
            layer.reset_parameters()
        self._init_parameters()

    def _init_parameters(self) -> None:
        for layer in (self.q_proj, self.k_proj, self.v_proj, self.out_proj):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)

    def forward(
        self,
        query: Float[Tensor, "*q queries dim"],
        key: Float[Tensor, "*k keys key_dim"] | None = None,
        value: Float[Tensor, "*v keys value_dim"] | None = None,
        mask: Mask | Bool[Tensor, "..."] | None = None,
        *,
        cache: KVCache | None = None,
    ) -> AttentionOutput:
        """Self-attention without ``key``; the keys are the values without ``value``; a cache grows by the new keys."""
        key = query if key is None else key
        value = key if value is None else value
        self._check_inputs(query, key, value)
        heads_key, heads_value = self._split_heads(self.k_proj(key)), self._split_heads(self.v_proj(value))
        if cache is not None:
            if mask is not None:  # before the cache has grown
                mask = as_mask(mask)
                mask.check_shape(
                    (*query.shape[:-2], self.num_heads), query.shape[-2], len(cache) + key.shape[-2]
                )
            heads_key, heads_value = cache.update(heads_key, heads_value)
        return self._attend(self.score, query, heads_key, heads_value, mask)

    def precompute(
        self, key: Tensor, value: Tensor | None = None, mask: Mask | Tensor | None = None
    ) -> ProjectedHeads:
        """The same heads with keys and values projected once, to be asked again and again."""
        return ProjectedHeads(self, key, key if value is None else value, mask)

    def _attend(
        self, score: ScoreLike, query: Tensor, key: Tensor, value: Tensor, mask: Mask | Tensor | None
    ) -> AttentionOutput:
        heads_query = self._split_heads(self.q_proj(query))
        seen = attend_unwatched(
            heads_query, self._shared(key), self._shared(value), mask, score, self.normalize
        )
        return notify_watchers(
            self, seen.replace_context(self.out_proj(seen.context.transpose(-3, -2).flatten(-2)))
        )

    def _split_heads(self, joined: Tensor) -> Tensor:
        return joined.unflatten(-1, (-1, self.head_dim)).transpose(-3, -2)

    def _shared(self, few: Tensor) -> Tensor:
        """Each group of heads reads one head of keys; one for all broadcasts by itself."""
        if self.num_kv_heads in (1, self.num_heads):
            return few
        return few.repeat_interleave(self.num_heads // self.num_kv_heads, -3)

    def _check_inputs(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        _check_input("query", query, self.q_proj)
        _check_input("key", key, self.k_proj)
        _check_input("value", value, self.v_proj)

    @classmethod
    def from_torch(cls, module: nn.MultiheadAttention) -> MultiHead:
        """The same attention with a copy of the weights of PyTorch's module; ours is batch-first always."""
        if module.bias_k is not None or module.add_zero_attn:
            raise UsageError("MultiHead.from_torch: add_bias_kv and add_zero_attn have no counterpart here")
        dim = module.embed_dim
        made = cls(
            dim,
            module.num_heads,
            key_dim=module.kdim,
            value_dim=module.vdim,
            bias=module.in_proj_bias is not None,
            dropout=module.dropout,
        ).to(module.out_proj.weight)
        joined: Tensor | None = module.in_proj_weight
        apart = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
        weights = apart if joined is None else joined.split(dim)
        with torch.no_grad():
            for layer, weight in zip((made.q_proj, made.k_proj, made.v_proj), weights, strict=True):
                layer.weight.copy_(weight)
            made.out_proj.weight.copy_(module.out_proj.weight)
            if module.in_proj_bias is not None:
                for layer, bias in zip(
                    (made.q_proj, made.k_proj, made.v_proj), module.in_proj_bias.split(dim), strict=True
                ):
                    layer.bias.copy_(bias)
                made.out_proj.bias.copy_(module.out_proj.bias)
        return made.train(module.training)

    def extra_repr(self) -> str:
        return f"dim={self.embed_dim}, heads={self.num_heads}, kv_heads={self.num_kv_heads}"


def _check_input(name: str, tensor: Tensor, layer: nn.Linear) -> None:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"MultiHead takes {name} as a tensor, got {type(tensor).__name__}")
    if tensor.dim() < 2 or tensor.shape[-1] != layer.in_features:
        want = f"(*batch, positions, {layer.in_features})"
        raise ShapeError(f"MultiHead takes {name} {want}, got {tuple(tensor.shape)}")


class ProjectedHeads:
    """Heads over keys and values that were given once: ``heads.over(key, value, mask)(query)``."""

    def __init__(self, multi_head: MultiHead, key: Tensor, value: Tensor, mask: Mask | Tensor | None = None):
        multi_head._check_inputs(key.new_empty(1, multi_head.embed_dim), key, value)
        self.multi_head = multi_head
        self.score, self.key = project_keys(multi_head.score, multi_head._split_heads(multi_head.k_proj(key)))
        self.value = multi_head._split_heads(multi_head.v_proj(value))
        self.mask = None if mask is None else as_mask(mask)
        self.guard = VersionGuard(multi_head.k_proj, multi_head.v_proj, multi_head.score)

    def __call__(self, query: Tensor) -> AttentionOutput:
        self.guard.assert_unchanged()
        _check_input("query", query, self.multi_head.q_proj)
        return self.multi_head._attend(self.score, query, self.key, self.value, self.mask)

    def reorder(self, rows: Int[Tensor, " new"], mask: Mask | Tensor | None = None) -> ProjectedHeads:
        """The same for other rows of the first batch axis, as a beam takes them; the mask is that of the new rows."""
        chosen = copy(self)
        chosen.score, chosen.key = reorder_projected(self.score, self.key, rows)
        chosen.value = self.value.index_select(0, rows)
        chosen.mask = None if mask is None else as_mask(mask)
        return chosen


class KVCache:
    """The keys and values of the past, so that one step of decoding costs one query.

    Without gradients it writes into room kept ahead, so that a step copies nothing old; what a step was
    shown is never written over, so its weights can still be read later.

    >>> heads, cache = MultiHead(embed_dim=8, num_heads=2), KVCache()
    >>> with torch.no_grad():
    ...     steps = [heads(torch.randn(1, 1, 8), mask=causal(), cache=cache) for _ in range(3)]
    >>> [step.weights.shape[-1] for step in steps], len(cache)
    ([1, 2, 3], 3)
    """

    def __init__(self) -> None:
        self._key: Tensor | None = None
        self._value: Tensor | None = None
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def update(self, key: Float[Tensor, "..."], value: Float[Tensor, "..."]) -> tuple[Tensor, Tensor]:
        """Add (*batch, heads, new, dim) at the end; returns everything so far."""
        if self._key is not None and self._key.shape[:-2] != key.shape[:-2]:
            held = (*self._key.shape[:-2], self._length, self._key.shape[-1])
            raise ShapeError(f"the cache holds keys {held}, which {tuple(key.shape)} cannot be appended to")
        start, self._length = self._length, self._length + key.shape[-2]
        self._key, self._value = _write_at(self._key, key, start), _write_at(self._value, value, start)
        return self._key[..., : self._length, :], self._value[..., : self._length, :]

    def __copy__(self) -> KVCache:
        """A branch of its own: it shares the past, but no room ahead."""
        branch = KVCache()
        branch._length = self._length
        branch._key = None if self._key is None else self._key[..., : self._length, :]
        branch._value = None if self._value is None else self._value[..., : self._length, :]
        return branch

    def reorder(self, rows: Int[Tensor, " batch"]) -> None:
        """Take the given rows of the first batch axis, as a beam does when it moves on."""
        if self._key is not None and self._value is not None:
            self._key = self._key[..., : self._length, :].index_select(0, rows)
            self._value = self._value[..., : self._length, :].index_select(0, rows)


def _write_at(buffer: Tensor | None, new: Tensor, start: int) -> Tensor:
    """The new rows behind the first ``start`` of the room, which grows by doubling."""
    if buffer is None:
        buffer = new[..., :0, :]
    if torch.is_grad_enabled() and (new.requires_grad or buffer.requires_grad):
        return torch.cat([buffer[..., :start, :], new], -2)
    stop = start + new.shape[-2]
    if stop > buffer.shape[-2] or start == 0 or _is_inference_only(buffer):
        wider = new.new_empty(*new.shape[:-2], max(2 * stop, 16), new.shape[-1])
        wider[..., :start, :] = buffer[..., :start, :]
        buffer = wider
    # Written past the version counter: these rows were never shown, so no earlier call's tensors have
    # changed.
    buffer.data[..., start:stop, :] = new
    return buffer


def _is_inference_only(buffer: Tensor) -> bool:
    """Made in inference mode, and not to be written outside of it."""
    return (
        not torch.compiler.is_compiling() and buffer.is_inference() and not torch.is_inference_mode_enabled()
    )
