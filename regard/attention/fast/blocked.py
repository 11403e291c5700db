"""Paths that cut the work into parts and ask for each: bands, gathered neighborhoods, blocks of queries.

A hidden key changes nothing, so a query need not be shown keys that its mask hides. Queries and keys are
projected once; then each part is an ordinary call on fewer keys, whatever the score and the normalizer.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from regard.attention._common import broadcast_batch_shape
from regard.attention.masks import PositionGrid
from regard.attention.masks.base import DenseMask
from regard.attention.masks.kinds import AroundMask
from regard.attention.normalizers import GaussianWindow
from regard.attention.output import AttentionInputs

ComputeContext = Callable[[AttentionInputs], Tensor]


MIN_BLOCK_QUERIES = 64
"""The least number of queries that share one stretch of keys."""


MAX_SCORES = 2**25
"""Above so many scores they are computed block by block, and again in the backward pass."""


def banded_attention(inputs: AttentionInputs, compute_context: ComputeContext) -> Tensor | None:
    """A window: blocks of queries, each with the stretch of keys that its queries may see.

    Time and memory are linear in the number of queries. With b queries a block and a window of w keys, a
    block is shown b + w - 1 keys.
    """
    if inputs.mask is None or not _is_row_independent(inputs.normalize):
        return None
    low, high = inputs.mask.band(inputs.num_queries, inputs.num_keys)
    if not high - low < math.inf:
        return None
    low, high = int(low), int(high)
    size = max(MIN_BLOCK_QUERIES, _next_power_of_two((high - low + 1) // 2))
    if high < low or inputs.num_queries <= size or 2 * (size + high - low) > inputs.num_keys:
        return None
    count = -(-inputs.num_queries // size)
    steps = torch.arange(count, device=inputs.query.device)[:, None, None] * size
    grid = PositionGrid(
        inputs.num_queries,
        inputs.num_keys,
        inputs.num_batch_axes,
        steps + torch.arange(size, device=steps.device)[:, None],
        steps + torch.arange(low, size + high, device=steps.device),
        num_inner_axes=1,
    )
    part = _project_inputs(inputs, grid)
    if part is None:
        return None
    short = count * size - inputs.num_queries
    query = F.pad(part.query, (0, 0, 0, short)).unflatten(-2, (count, size))
    stretch = size + high - low
    key, value = (
        # A negative pad cuts off keys that nobody sees.
        F.pad(t, (0, 0, -low, low + (count - 1) * size + stretch - inputs.num_keys))
        .unfold(-2, stretch, size)
        .mT
        for t in (part.key, inputs.value)
    )
    context = compute_context(part.replace(query=query, key=key, value=value))
    return context.flatten(-3, -2)[..., : inputs.num_queries, :]


def gathered_attention(inputs: AttentionInputs, compute_context: ComputeContext) -> Tensor | None:
    """Keys around a centre: each query with the few keys near its own; cost does not grow with the keys."""
    near: AroundMask | None = None if inputs.mask is None else inputs.mask.find_around()
    compiling = torch.compiler.is_compiling()  # where a choice by size would tie the graph to that size
    if near is None or (not compiling and 2 * near.radius + 2 >= inputs.num_keys):
        return None
    bell = inputs.normalize if isinstance(inputs.normalize, GaussianWindow) else None
    if not _is_row_independent(inputs.normalize if bell is None else bell.normalize):
        return None
    radius = math.ceil(near.radius)
    width = 2 * radius + 2
    whole = inputs.positions()
    centre = near.center_at(whole).expand(*near.center_at(whole).shape[:-2], inputs.num_queries, 1)
    if math.prod(centre.shape[:-2]) == 1:  # the same places for the whole batch
        centre = centre.reshape(inputs.num_queries, 1)
    first = centre.floor().long() - radius
    key_at = (first + torch.arange(width, device=first.device)).unsqueeze(-2)
    grid = PositionGrid(
        inputs.num_queries,
        inputs.num_keys,
        inputs.num_batch_axes,
        whole.query_positions[..., None],
        key_at,
        num_inner_axes=1,
        is_consecutive=False,
    )
    # Project every key once, or only the gathered ones, unless it matters where they stood.
    early = inputs.score.is_positional or compiling or inputs.num_queries * width > inputs.num_keys
    part = _project_inputs(inputs, grid, project_key=early)
    if part is None:
        return None
    at = key_at.clamp(0, inputs.num_keys - 1).squeeze(-2)
    key = _gather_rows(part.key, at)
    if not early:
        key = inputs.score.project_key(key)
    normalize = inputs.normalize if bell is None else _window_for_gathered_keys(bell, grid)
    query, value = part.query.unsqueeze(-2), _gather_rows(inputs.value, at)
    return compute_context(part.replace(query=query, key=key, value=value, normalize=normalize)).squeeze(-2)


def blocked_attention(inputs: AttentionInputs, compute_context: ComputeContext) -> Tensor | None:
    """Some queries at a time, with the keys their mask may show; computed again in the backward pass."""
    row = math.prod(broadcast_batch_shape(inputs.query, inputs.key)) * inputs.num_keys
    if (
        inputs.num_queries * row <= MAX_SCORES
        or inputs.is_dropout_active
        or not _is_row_independent(inputs.normalize)
    ):
        return None
    step = max(1, min(512, MAX_SCORES // 4 // row))
    if step >= inputs.num_queries or inputs.score.pairwise.restrict(_probe_grid(inputs)) is None:
        return None
    low, high = (
        (-math.inf, math.inf)
        if inputs.mask is None
        else inputs.mask.band(inputs.num_queries, inputs.num_keys)
    )
    query = inputs.score.project_query(inputs.query, inputs.num_keys)
    key = inputs.score.project_key(inputs.key)

    def context(start: int) -> Tensor:
        stop = min(start + step, inputs.num_queries)
        first = min(inputs.num_keys, int(max(0, start + low)))
        last = max(first, int(min(inputs.num_keys, stop + high)))
        grid = PositionGrid(
            inputs.num_queries,
            inputs.num_keys,
            inputs.num_batch_axes,
            torch.arange(start, stop, device=query.device)[:, None],
            torch.arange(first, last, device=query.device)[None, :],
        )
        part = inputs.replace(
            query=query[..., start:stop, :],
            key=key[..., first:last, :],
            value=inputs.value[..., first:last, :],
            mask=None if inputs.mask is None else DenseMask(inputs.mask.rule(grid)),
            score=inputs.score.pairwise.restrict(grid),
        )
        return compute_context(part)

    again = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, inputs.value))
    starts = range(0, inputs.num_queries, step)
    return torch.cat([_checkpointed(context, start) if again else context(start) for start in starts], -2)


def _checkpointed(context: Callable[[int], Tensor], start: int) -> Tensor:
    """Keep nothing for the backward pass but what went in."""
    return checkpoint(context, start, use_reentrant=False, preserve_rng_state=False)


def _is_row_independent(normalize: object) -> bool:
    """Whether each row of scores is shared out alike: no setting goes by place, query or head."""
    if getattr(normalize, "is_positional", False):
        return False
    settings = (*normalize.parameters(), *normalize.buffers()) if isinstance(normalize, nn.Module) else ()
    return all(setting.dim() == 0 for setting in settings)


def _probe_grid(inputs: AttentionInputs) -> PositionGrid:
    """One query and one key, to ask whether a score can tell parts apart at all."""
    first = torch.zeros(1, 1, dtype=torch.long, device=inputs.query.device)
    return PositionGrid(inputs.num_queries, inputs.num_keys, inputs.num_batch_axes, first, first)


def _project_inputs(
    inputs: AttentionInputs, grid: PositionGrid, project_key: bool = True
) -> AttentionInputs | None:
    """The call on projected vectors, with mask and score for the positions of the grid."""
    score = inputs.score.pairwise.restrict(grid)
    if score is None:
        return None
    seen = (grid.key_positions >= 0) & (grid.key_positions < inputs.num_keys)
    seen = seen if inputs.mask is None else seen & inputs.mask.rule(grid)
    return inputs.replace(
        query=inputs.score.project_query(inputs.query, inputs.num_keys),
        key=inputs.score.project_key(inputs.key) if project_key else inputs.key,
        mask=DenseMask(seen),
        score=score,
    )


def _window_for_gathered_keys(window: GaussianWindow, grid: PositionGrid) -> GaussianWindow:
    """The bell for gathered keys, where each query has become a batch entry of its own."""

    def laid_out(table: Tensor | float) -> Tensor | float:
        if not isinstance(table, Tensor) or table.dim() == 0:
            return table
        lead = (*table.shape[:-1], *[1] * (grid.num_batch_axes + 1 - table.dim()))
        return table.reshape(*lead, table.shape[-1], 1)

    return GaussianWindow(
        window.normalize, laid_out(window.center), laid_out(window.sigma)
    ).with_key_positions(grid.key_positions)


def _gather_rows(table: Tensor, indices: Tensor) -> Tensor:
    """Rows of (*batch, keys, dim) at (*batch, queries, width), batch axes broadcast: (..., queries, width, dim)."""
    axes = max(table.dim(), indices.dim()) - 2
    table = table.reshape((1,) * (axes + 2 - table.dim()) + table.shape)
    indices = indices.reshape((1,) * (axes + 2 - indices.dim()) + indices.shape)
    if not table.is_contiguous():  # whole rows would have to be copied first; so number by number
        return torch.take_along_dim(table, indices.flatten(-2)[..., None], -2).unflatten(
            -2, indices.shape[-2:]
        )
    *batch, keys, dim = table.shape
    first = torch.arange(math.prod(batch), device=indices.device).reshape(*batch, 1, 1) * keys
    rows = first + indices
    return table.reshape(-1, dim).index_select(0, rows.flatten()).reshape(*rows.shape, dim)


def _next_power_of_two(number: int) -> int:
    return 1 << max(number - 1, 0).bit_length()
