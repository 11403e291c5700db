"""Paths that split the work into parts: bands, gathered neighborhoods, blocks of queries.

A hidden key changes nothing, so a query does not need keys that its mask hides. Queries and keys are projected once;
then each part is an ordinary call with fewer keys, whatever the score and the normalizer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from regard.attention._common import is_symbolic
from regard.attention.masks import PositionGrid
from regard.attention.masks.base import DenseMask
from regard.attention.masks.kinds import AroundMask
from regard.attention.normalizers.wrappers import GaussianWindow
from regard.attention.output import AttentionInputs

__all__ = ["ComputeContext", "banded_attention", "blocked_attention", "gathered_attention"]

ComputeContext = Callable[[AttentionInputs], Tensor]
MIN_BLOCK_QUERIES = 64
"""The smallest number of queries that share one block of keys."""
MAX_SCORES = 2**25
"""More scores than these are computed block by block, and again in the backward pass; see `equation.is_large`."""


def banded_attention(inputs: AttentionInputs, compute_context: ComputeContext) -> Tensor | None:
    """Attention in a window: blocks of queries, each with the keys that are visible to its queries.

    Time and memory are linear in the number of queries. With b queries per block and a window of w keys, a block has
    b + w - 1 keys.

    Args:
        inputs: the validated arguments
        compute_context: computes the context of each part

    Returns: the context, or None if this path does not apply

    Example:
        >>> from regard.attention.equation import compute_context, validate
        >>> inputs = validate(*torch.randn(3, 500, 4), window(3, 3), ScaledDot(), None)
        >>> banded_attention(inputs, compute_context).shape
        torch.Size([500, 4])

    Reference: Beltagy, Peters and Cohan (2020), arXiv 2004.05150.
    """
    if inputs.mask is None or not _is_row_independent(inputs.normalize):
        return None
    if is_symbolic(inputs.num_queries) or is_symbolic(inputs.num_keys):
        return None
    low, high = inputs.mask.band(inputs.num_queries, inputs.num_keys)
    if not high - low < math.inf:
        return None
    low, high = int(low), int(high)
    size = max(MIN_BLOCK_QUERIES, 1 << max((high - low + 1) // 2 - 1, 0).bit_length())  # a power of two
    if high < low or inputs.num_queries <= size or 2 * (size + high - low) > inputs.num_keys:
        return None
    count = -(-inputs.num_queries // size)
    starts = torch.arange(count, device=inputs.query.device)[:, None, None] * size
    queries = torch.arange(size, device=starts.device)[:, None]
    keys = torch.arange(low, size + high, device=starts.device)
    grid = inputs.grid(starts + queries, starts + keys, num_inner_axes=1)
    part = _project_inputs(inputs, grid)
    if part is None:
        return None
    missing = count * size - inputs.num_queries
    query = F.pad(part.query, (0, 0, 0, missing)).unflatten(-2, (count, size))
    width = size + high - low
    key, value = (
        # A negative pad removes keys that are visible to no query.
        F.pad(t, (0, 0, -low, low + (count - 1) * size + width - inputs.num_keys)).unfold(-2, width, size).mT
        for t in (part.key, inputs.value)
    )
    context = compute_context(part.replace(query=query, key=key, value=value))
    return context.flatten(-3, -2)[..., : inputs.num_queries, :]


def gathered_attention(inputs: AttentionInputs, compute_context: ComputeContext) -> Tensor | None:
    """Attention around a center: each query with the keys near it; the cost does not grow with the number of keys.

    Args:
        inputs: the validated arguments
        compute_context: computes the context of each part

    Returns: the context, or None if this path does not apply

    Example:
        >>> from regard.attention.equation import compute_context, validate
        >>> inputs = validate(*torch.randn(3, 50, 4), around(torch.arange(50.0), 2), ScaledDot(), None)
        >>> gathered_attention(inputs, compute_context).shape
        torch.Size([50, 4])
    """
    nearby: AroundMask | None = None if inputs.mask is None else inputs.mask.find_around()
    compiling = torch.compiler.is_compiling()  # a choice by size would tie the graph to that size
    if nearby is None or (not compiling and 2 * nearby.radius + 2 >= inputs.num_keys):
        return None
    window = inputs.normalize if isinstance(inputs.normalize, GaussianWindow) else None
    if not _is_row_independent(inputs.normalize if window is None else window.normalize):
        return None
    radius = math.ceil(nearby.radius)
    width = 2 * radius + 2
    grid_of_all = inputs.positions()
    center = nearby.center_at(grid_of_all)
    center = center.expand(*center.shape[:-2], inputs.num_queries, 1)
    if math.prod(center.shape[:-2]) == 1:  # the same positions for the whole batch
        center = center.reshape(inputs.num_queries, 1)
    first = center.floor().long() - radius
    key_positions = (first + torch.arange(width, device=first.device)).unsqueeze(-2)
    queries = grid_of_all.query_positions[..., None]
    grid = inputs.grid(queries, key_positions, num_inner_axes=1, is_consecutive=False)
    # Project every key once, or only the gathered ones if their positions do not matter.
    project_all = inputs.score.is_positional or compiling or inputs.num_queries * width > inputs.num_keys
    part = _project_inputs(inputs, grid, project_key=project_all)
    if part is None:
        return None
    indices = key_positions.clamp(0, inputs.num_keys - 1).squeeze(-2)
    key = _gather_rows(part.key, indices)
    if not project_all:
        key = inputs.score.project_key(key)
    normalize = inputs.normalize if window is None else _window_for_gathered_keys(window, grid_of_all, key_positions)
    query, value = part.query.unsqueeze(-2), _gather_rows(inputs.value, indices)
    return compute_context(part.replace(query=query, key=key, value=value, normalize=normalize)).squeeze(-2)


def blocked_attention(inputs: AttentionInputs, compute_context: ComputeContext) -> Tensor | None:
    """Blocks of queries, with the keys that may be visible to them; computed again in the backward pass.

    Args:
        inputs: the validated arguments
        compute_context: computes the context of each part

    Returns: the context, or None if this path does not apply

    Reference: Rabe and Staats (2021), arXiv 2112.05682.
    """
    if inputs.is_dropout_active or not _is_row_independent(inputs.normalize):
        return None
    row = math.prod(inputs.batch_shape) * inputs.num_keys
    step = max(1, min(512, MAX_SCORES // 4 // row))
    if step >= inputs.num_queries or inputs.score.pairwise.restrict(_probe_grid(inputs)) is None:
        return None
    low, high = (-math.inf, math.inf) if inputs.mask is None else inputs.mask.band(inputs.num_queries, inputs.num_keys)
    query = inputs.score.project_query(inputs.query, inputs.num_keys)
    key = inputs.score.project_key(inputs.key)

    def block_context(start: int) -> Tensor:
        stop = min(start + step, inputs.num_queries)
        first = min(inputs.num_keys, int(max(0, start + low)))
        last = max(first, int(min(inputs.num_keys, stop + high)))
        queries = torch.arange(start, stop, device=query.device)[:, None]
        grid = inputs.grid(queries, torch.arange(first, last, device=query.device)[None, :])
        part = inputs.replace(
            query=query[..., start:stop, :],
            key=key[..., first:last, :],
            value=inputs.value[..., first:last, :],
            mask=None if inputs.mask is None else DenseMask(inputs.mask.rule(grid)),
            score=inputs.score.pairwise.restrict(grid),
        )
        return compute_context(part)

    has_backward = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, inputs.value))
    if has_backward:  # only the inputs of a block are stored
        block_context = partial(checkpoint, block_context, use_reentrant=False, preserve_rng_state=False)
    return torch.cat([block_context(start) for start in range(0, inputs.num_queries, step)], -2)


def _is_row_independent(normalize: object) -> bool:
    """Whether the normalizer treats all rows of scores alike: no setting depends on position, query or head."""
    if getattr(normalize, "is_positional", False):
        return False
    settings = (*normalize.parameters(), *normalize.buffers()) if isinstance(normalize, nn.Module) else ()
    return all(setting.dim() == 0 for setting in settings)


def _probe_grid(inputs: AttentionInputs) -> PositionGrid:
    """One query and one key, to find out whether a score can be restricted to parts at all."""
    first = torch.zeros(1, 1, dtype=torch.long, device=inputs.query.device)
    return inputs.grid(first, first)


def _project_inputs(inputs: AttentionInputs, grid: PositionGrid, project_key: bool = True) -> AttentionInputs | None:
    """The call with projected vectors, and with mask and score for the positions of the grid."""
    score = inputs.score.pairwise.restrict(grid)
    if score is None:
        return None
    visible = (grid.key_positions >= 0) & (grid.key_positions < inputs.num_keys)
    visible = visible if inputs.mask is None else visible & inputs.mask.rule(grid)
    return inputs.replace(
        query=inputs.score.project_query(inputs.query, inputs.num_keys),
        key=inputs.score.project_key(inputs.key) if project_key else inputs.key,
        mask=DenseMask(visible),
        score=score,
    )


def _window_for_gathered_keys(window: GaussianWindow, grid: PositionGrid, key_positions: Tensor) -> GaussianWindow:
    """The window for gathered keys, where each query is a batch entry."""
    center, sigma = (
        grid.align_leading(table[..., None], 2) if isinstance(table, Tensor) and table.dim() else table
        for table in (window.center, window.sigma)
    )
    return GaussianWindow(window.normalize, center, sigma).with_key_positions(key_positions)


def _gather_rows(table: Tensor, indices: Tensor) -> Tensor:
    """Rows of (*batch, keys, dim) at (*batch, queries, width), batch axes broadcast: (..., queries, width, dim)."""
    axes = max(table.dim(), indices.dim()) - 2
    table = table.reshape((1,) * (axes + 2 - table.dim()) + table.shape)
    indices = indices.reshape((1,) * (axes + 2 - indices.dim()) + indices.shape)
    if not table.is_contiguous():  # element by element: complete rows would have to be copied first
        return torch.take_along_dim(table, indices.flatten(-2)[..., None], -2).unflatten(-2, indices.shape[-2:])
    *batch, keys, dim = table.shape
    first = torch.arange(math.prod(batch), device=indices.device).reshape(*batch, 1, 1) * keys
    rows = first + indices
    return table.reshape(math.prod(batch) * keys, dim).index_select(0, rows.flatten()).reshape(*rows.shape, dim)
