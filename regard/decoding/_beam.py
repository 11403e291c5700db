"""Beam search: several beginnings of every translation are kept, and all of them grow together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.decoding._coverage import Coverage
from regard.decoding._protocol import Model, Specials, log_probs
from regard.decoding._record import Nodes, Record
from regard.decoding._top import top
from regard.decoding.options import Decoding


class Grown(NamedTuple):
    """The best continuations of each sentence's beam, the most probable first.

    `total` is the log-probability of all tokens up to here, `log_prob` that of the last one alone; `parent`
    is the place on the beam of what is continued.
    """

    total: Float[Tensor, "sentences places"]
    token: Int[Tensor, "sentences places"]
    parent: Int[Tensor, "sentences places"]
    log_prob: Float[Tensor, "sentences places"]

    def first(self, count: int) -> Grown:
        return Grown(*(column[:, :count] for column in self))


@dataclass
class Open:
    """The sentences that are still searched; one row each."""

    sentence: Int[Tensor, " sentences"]
    limit: Int[Tensor, " sentences"]
    penalty: Float[Tensor, " sentences"]  # that of the longest translation allowed
    total: Float[Tensor, "sentences width"]
    ended: Int[Tensor, " sentences"]  # how many translations have
    best: Float[Tensor, "sentences best"]  # scores of the best that have, the best first

    def keep(self, rows: Tensor) -> None:
        for name, column in vars(self).items():
            setattr(self, name, column[rows])


def search(
    model: Model, source: Tensor, source_lengths: Tensor, options: Decoding, specials: Specials
) -> Record:
    """Grow beams until their sentences are done.

    At each step the continuations of a sentence's beam are ranked by their log-probability. Those among the
    first `beam` that end are translations; of the others, the first `beam` go on. A sentence is done

    - when patience * beam translations have ended,
    - when not even its best beginning can come among the best n that have ended: all that follows can only
      lower its log-probability, and the penalty divides by no more than that of the longest translation
      allowed, so it never scores more than total / penalty(limit). This bound is exact for every alpha >= 0,
      and with the coverage penalty, which is never above 0; at alpha = 0 it is as tight as can be;
    - when its limit of tokens is reached.
    """
    steps = model.begin(source, source_lengths)
    coverage = Coverage(steps, source, source_lengths, options)
    now = _open(source_lengths, options)
    token = torch.full_like(now.sentence, specials.bos)
    record, length = Record(len(source), options.best), 0
    while len(now.sentence):
        length += 1
        # No name for the log-probabilities: two steps' worth of such large tensors cost a third more time.
        grown = _grow(now.total, log_probs(steps, token, length, specials, options.min_length), options.beam)
        coverage.look()
        ends = grown.token == specials.eos
        going = _going(grown, ends, options.beam)
        here = _nodes(now, going, coverage, options.penalty(length))

        ended = None
        if bool(ends[:, : options.beam].any()):
            first = _nodes(now, grown.first(options.beam), coverage, options.penalty(length))
            ended = _count(now, first, ends[:, : options.beam])
        hopeless = going.total[:, 0] / now.penalty <= now.best[:, -1]
        done = hopeless | (now.ended >= options.patience * options.beam) | (now.limit <= length)

        before = torch.arange(len(token), device=token.device)
        now.total, token, rows = going.total, going.token, here.parent
        if bool(done.any()):
            record.add(_some(here, ~done), ended, _some(here, done))
            now.keep(~done)
            token, rows = token[~done], rows[~done]
        else:
            record.add(here, ended)
        token, rows = token.flatten(), rows.flatten()
        if len(rows) and not torch.equal(rows, before):
            steps.select(rows)
            coverage.select(rows)
    return record


def _open(source_lengths: Tensor, options: Decoding) -> Open:
    limit = options.limits(source_lengths)
    penalty = options.penalties(limit)
    sentence = torch.arange(len(limit), device=limit.device)
    none = penalty.new_full((len(limit), options.best), -torch.inf)
    return Open(sentence, limit, penalty, penalty.new_zeros(len(limit), 1), torch.zeros_like(limit), none)


def _grow(total: Float[Tensor, "sentences width"], found: Float[Tensor, "rows vocab"], beam: int) -> Grown:
    """Twice as many as the beam is wide: at most one a row can end, so enough are left that do not."""
    sentences, width = total.shape
    each = min(beam + 1, found.shape[1])
    own, token = (part.view(sentences, width * each) for part in top(found, each))
    totals = own + total.repeat_interleave(each, 1)
    best = totals.topk(min(2 * beam, width * each))
    at = best.indices
    return Grown(best.values, token.gather(1, at), at // each, own.gather(1, at))


def _going(grown: Grown, ends: Bool[Tensor, "sentences places"], beam: int) -> Grown:
    """The first that do not end; where there are too few, the beam has empty places, of probability 0."""
    first = grown.total.masked_fill(ends, -torch.inf).topk(min(beam, ends.shape[1]))
    others = (column.gather(1, first.indices) for column in grown[1:])
    return Grown(first.values, *others)


def _nodes(now: Open, grown: Grown, coverage: Coverage, penalty: float) -> Nodes:
    """What is written down of continuations; their parents as rows of the step."""
    sentences, width = now.total.shape
    begin = torch.arange(0, sentences * width, width, device=grown.parent.device)
    return Nodes(
        now.sentence[:, None].expand(grown.token.shape),
        grown.token,
        grown.parent + begin[:, None],
        grown.log_prob,
        coverage.penalize(grown.total / penalty, grown.parent),
    )


def _count(now: Open, first: Nodes, ends: Bool[Tensor, "sentences beam"]) -> Nodes:
    """Those that end, after their number and the scores of the best so far are noted."""
    ends = ends & (first.score > -torch.inf)
    now.best = (
        torch.cat((now.best, first.score.masked_fill(~ends, -torch.inf)), 1).topk(now.best.shape[1]).values
    )
    now.ended = now.ended + ends.sum(1)
    return _some(first, ends)


def _some(nodes: Nodes, which: Tensor) -> Nodes:
    """Those of the sentences, or single ones, that a mask says."""
    return Nodes(*(column[which] for column in nodes))
