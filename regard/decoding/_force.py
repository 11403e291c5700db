"""Translations that are given rather than searched: what the model thinks of them, and where it looks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.decoding._protocol import at_rest
from regard.decoding.hypothesis import Hypothesis
from regard.decoding.options import Decoding
from regard.errors import UsageError

AT_ONCE = 1024  # positions whose log-probabilities over the vocabulary are held at one time


def force(
    model: nn.Module,
    source: Int[Tensor, "rows source"],
    source_lengths: Int[Tensor, " rows"],
    target: Int[Tensor, "rows target"],
    target_lengths: Int[Tensor, " rows"],
    options: Decoding = Decoding(),
    *,
    eos: int = 3,
) -> list[Hypothesis]:
    """Score given translations (forced decoding): one teacher-forced pass, in eval mode.

    Every target begins with BOS; one that does not end with EOS is scored as not finished. The model gives
    its hidden states, ``model(source, source_lengths, target[:, :-1])``, and has an ``output`` layer to the
    vocabulary. The score is divided by the length penalty of `options`; it has no coverage penalty.
    """
    if target_lengths.numel() and int(target_lengths.min()) < 2:
        row = int(target_lengths.argmin())
        raise UsageError(f"force: target {row} has nothing after BOS to score; give it at least EOS.")
    with at_rest(model):
        hidden = model(source, source_lengths, target[:, :-1])
        real = torch.arange(1, target.shape[1], device=target.device) < target_lengths[:, None]
        found = _log_probs(model.get_submodule("output"), hidden[real], target[:, 1:][real])
    counts = (target_lengths - 1).tolist()
    ids = (row[1 : count + 1] for row, count in zip(target.tolist(), counts, strict=True))
    parts = found.split(counts)
    return [_hypothesis(row, part.tolist(), options, eos) for row, part in zip(ids, parts, strict=True)]


def _log_probs(output: nn.Module, hidden: Tensor, words: Tensor) -> Tensor:
    """Of each word at its position; the logits of all positions at once might not fit into memory."""
    parts = zip(hidden.split(AT_ONCE), words.split(AT_ONCE), strict=True)
    found = [-nn.functional.cross_entropy(output(h).float(), w, reduction="none") for h, w in parts]
    return torch.cat(found) if found else hidden.new_zeros(0)


def _hypothesis(ids: list[int], log_probs: list[float], options: Decoding, eos: int) -> Hypothesis:
    finished = ids[-1] == eos
    total = math.fsum(log_probs)
    score = total / options.penalty(len(ids))
    return Hypothesis(ids[:-1] if finished else ids, score, total, log_probs, finished)


def look(
    model: Any,
    source: Int[Tensor, "rows source"],
    source_lengths: Int[Tensor, " rows"],
    hypotheses: Sequence[Hypothesis],
    *,
    bos: int = 2,
    eos: int = 3,
    pad: int = 0,
) -> list[Float[Tensor, "layers heads _ _"]]:
    """Where the model looks while it writes these translations, one of each row, however they were found.

    One teacher-forced pass in eval mode, ``model.looks``. The weights of a row are (layers, heads, target,
    source), on the CPU and without its padding: a row for every token and one for EOS if it is finished, a
    column for every source token and EOS. A model without attention gives none: 0 layers of 0 heads.
    """
    if len(hypotheses) != len(source):
        raise UsageError(f"look: one translation of each source, not {len(hypotheses)} of {len(source)}.")
    if not hypotheses:
        return []
    rows = [[bos, *one.ids, *([eos] if one.finished else [])] for one in hypotheses]
    longest = max(map(len, rows))
    target = torch.tensor([row + [pad] * (longest - len(row)) for row in rows], device=source.device)
    with at_rest(model):
        layers = model.looks(source, source_lengths, target)
    if layers:
        seen = torch.stack(list(layers), 1).float().cpu()
    else:
        seen = torch.zeros(len(rows), 0, 0, longest - 1, source.shape[1])
    sizes = zip(seen, rows, source_lengths.tolist(), strict=True)
    return [one[:, :, : len(row) - 1, :length] for one, row, length in sizes]
