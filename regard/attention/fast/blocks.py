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

from regard.attention._call import Call, batch_shape
from regard.attention.masks import Grid
from regard.attention.masks.base import Dense
from regard.attention.masks.kinds import Around
from regard.attention.normalizers import Bell

See = Callable[[Call], Tensor]
BAND = 64
"""The least number of queries that share one stretch of keys."""
LARGE = 2**25
"""Above so many scores they are computed block by block, and again in the backward pass."""


def band(call: Call, see: See) -> Tensor | None:
    """A window: blocks of queries, each with the stretch of keys that its queries may see.

    Time and memory are linear in the number of queries. With b queries a block and a window of w keys, a
    block is shown b + w - 1 keys.
    """
    if call.mask is None or not _every_row_alike(call.normalize):
        return None
    low, high = call.mask.band(call.queries, call.keys)
    if not high - low < math.inf:
        return None
    low, high = int(low), int(high)
    size = max(BAND, _power_of_two((high - low + 1) // 2))
    if high < low or call.queries <= size or 2 * (size + high - low) > call.keys:
        return None
    count = -(-call.queries // size)
    steps = torch.arange(count, device=call.query.device)[:, None, None] * size
    grid = Grid(
        call.queries,
        call.keys,
        call.batch,
        steps + torch.arange(size, device=steps.device)[:, None],
        steps + torch.arange(low, size + high, device=steps.device),
        inner=1,
    )
    part = _projected(call, grid)
    if part is None:
        return None
    short = count * size - call.queries
    query = F.pad(part.query, (0, 0, 0, short)).unflatten(-2, (count, size))
    stretch = size + high - low
    key, value = (
        # A negative pad cuts off keys that nobody sees.
        F.pad(t, (0, 0, -low, low + (count - 1) * size + stretch - call.keys)).unfold(-2, stretch, size).mT
        for t in (part.key, call.value)
    )
    context = see(part.part(query=query, key=key, value=value))
    return context.flatten(-3, -2)[..., : call.queries, :]


def gather(call: Call, see: See) -> Tensor | None:
    """Keys around a centre: each query with the few keys near its own; cost does not grow with the keys."""
    near: Around | None = None if call.mask is None else call.mask.near()
    compiling = torch.compiler.is_compiling()  # where a choice by size would tie the graph to that size
    if near is None or (not compiling and 2 * near.radius + 2 >= call.keys):
        return None
    bell = call.normalize if isinstance(call.normalize, Bell) else None
    if not _every_row_alike(call.normalize if bell is None else bell.normalize):
        return None
    radius = math.ceil(near.radius)
    width = 2 * radius + 2
    whole = call.grid()
    centre = near.centre_at(whole).expand(*near.centre_at(whole).shape[:-2], call.queries, 1)
    if math.prod(centre.shape[:-2]) == 1:  # the same places for the whole batch
        centre = centre.reshape(call.queries, 1)
    first = centre.floor().long() - radius
    key_at = (first + torch.arange(width, device=first.device)).unsqueeze(-2)
    grid = Grid(
        call.queries, call.keys, call.batch, whole.query_at[..., None], key_at, inner=1, consecutive=False
    )
    # Project every key once, or only the gathered ones, unless it matters where they stood.
    early = call.score.positional or compiling or call.queries * width > call.keys
    part = _projected(call, grid, project_key=early)
    if part is None:
        return None
    at = key_at.clamp(0, call.keys - 1).squeeze(-2)
    key = _taken(part.key, at)
    if not early:
        key = call.score.project_key(key)
    normalize = call.normalize if bell is None else _rung(bell, grid)
    query, value = part.query.unsqueeze(-2), _taken(call.value, at)
    return see(part.part(query=query, key=key, value=value, normalize=normalize)).squeeze(-2)


def blocks(call: Call, see: See) -> Tensor | None:
    """Some queries at a time, with the keys their mask may show; computed again in the backward pass."""
    row = math.prod(batch_shape(call.query, call.key)) * call.keys
    if call.queries * row <= LARGE or call.dropping or not _every_row_alike(call.normalize):
        return None
    step = max(1, min(512, LARGE // 4 // row))
    if step >= call.queries or call.score.inner.at(_corner(call)) is None:
        return None
    low, high = (-math.inf, math.inf) if call.mask is None else call.mask.band(call.queries, call.keys)
    query = call.score.project_query(call.query, call.keys)
    key = call.score.project_key(call.key)

    def context(start: int) -> Tensor:
        stop = min(start + step, call.queries)
        first = min(call.keys, int(max(0, start + low)))
        last = max(first, int(min(call.keys, stop + high)))
        grid = Grid(
            call.queries,
            call.keys,
            call.batch,
            torch.arange(start, stop, device=query.device)[:, None],
            torch.arange(first, last, device=query.device)[None, :],
        )
        part = call.part(
            query=query[..., start:stop, :],
            key=key[..., first:last, :],
            value=call.value[..., first:last, :],
            mask=None if call.mask is None else Dense(call.mask.rule(grid)),
            score=call.score.inner.at(grid),
        )
        return see(part)

    again = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, call.value))
    starts = range(0, call.queries, step)
    return torch.cat([_recomputed(context, start) if again else context(start) for start in starts], -2)


def _recomputed(context: Callable[[int], Tensor], start: int) -> Tensor:
    """Keep nothing for the backward pass but what went in."""
    return checkpoint(context, start, use_reentrant=False, preserve_rng_state=False)


def _every_row_alike(normalize: object) -> bool:
    """Whether each row of scores is shared out alike: no setting goes by place, query or head."""
    if getattr(normalize, "positional", False):
        return False
    settings = (*normalize.parameters(), *normalize.buffers()) if isinstance(normalize, nn.Module) else ()
    return all(setting.dim() == 0 for setting in settings)


def _corner(call: Call) -> Grid:
    """One query and one key, to ask whether a score can tell parts apart at all."""
    first = torch.zeros(1, 1, dtype=torch.long, device=call.query.device)
    return Grid(call.queries, call.keys, call.batch, first, first)


def _projected(call: Call, grid: Grid, project_key: bool = True) -> Call | None:
    """The call on projected vectors, with mask and score for the positions of the grid."""
    score = call.score.inner.at(grid)
    if score is None:
        return None
    seen = (grid.key_at >= 0) & (grid.key_at < call.keys)
    seen = seen if call.mask is None else seen & call.mask.rule(grid)
    return call.part(
        query=call.score.project_query(call.query, call.keys),
        key=call.score.project_key(call.key) if project_key else call.key,
        mask=Dense(seen),
        score=score,
    )


def _rung(bell: Bell, grid: Grid) -> Bell:
    """The bell for gathered keys, where each query has become a batch entry of its own."""

    def laid_out(table: Tensor | float) -> Tensor | float:
        if not isinstance(table, Tensor) or table.dim() == 0:
            return table
        lead = (*table.shape[:-1], *[1] * (grid.batch + 1 - table.dim()))
        return table.reshape(*lead, table.shape[-1], 1)

    return Bell(bell.normalize, laid_out(bell.centre), laid_out(bell.sigma)).at(grid.key_at)


def _taken(table: Tensor, at: Tensor) -> Tensor:
    """Rows of (*batch, keys, dim) at (*batch, queries, width), batch axes broadcast: (..., queries, width, dim)."""
    axes = max(table.dim(), at.dim()) - 2
    table = table.reshape((1,) * (axes + 2 - table.dim()) + table.shape)
    at = at.reshape((1,) * (axes + 2 - at.dim()) + at.shape)
    if not table.is_contiguous():  # whole rows would have to be copied first; so number by number
        return torch.take_along_dim(table, at.flatten(-2)[..., None], -2).unflatten(-2, at.shape[-2:])
    *batch, keys, dim = table.shape
    first = torch.arange(math.prod(batch), device=at.device).reshape(*batch, 1, 1) * keys
    rows = first + at
    return table.reshape(-1, dim).index_select(0, rows.flatten()).reshape(*rows.shape, dim)


def _power_of_two(number: int) -> int:
    return 1 << max(number - 1, 0).bit_length()
