"""Beam search: several beginnings of every translation are kept, and all of them grow together."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.decoding._best import BLOCK, Best, Grown
from regard.decoding._coverage import Coverage
from regard.decoding._protocol import Model, Specials, stepped
from regard.decoding._record import Nodes, Record
from regard.decoding.options import Decoding


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
    move = getattr(steps, "select_beams", None) or (lambda rows: steps.select(rows.flatten()))
    coverage = Coverage(steps, source, source_lengths, options)
    best = Best(specials, options.min_length, source.device)
    bits = getattr(steps, "bits", None) or (lambda tokens, _: best.scaled(stepped(steps, tokens)))
    now = _open(source_lengths, options)
    token = torch.full_like(now.sentence, specials.bos)
    soonest, waiting = int(now.limit.min()), True  # before a limit and before any has ended, none can be done
    record, length = Record(len(source), options.best), 0
    while len(now.sentence):
        length += 1
        grown = best.ranked(bits(token, BLOCK), now.total, 2 * options.beam, length)
        coverage.look()
        ends = grown.token == specials.eos
        ending = bool(ends.any())
        going = _going(grown, ends, options.beam) if ending else grown.first(options.beam)
        here = _nodes(now, going, coverage, options.penalty(length))

        ended = None
        if ending and bool(ends[:, : options.beam].any()):
            first = _nodes(now, grown.first(options.beam), coverage, options.penalty(length))
            ended, waiting = _count(now, first, ends[:, : options.beam]), False

        before = torch.arange(len(token), device=token.device)
        now.total, token, rows = going.total, going.token, here.parent
        done = None if waiting and length < soonest else _done(now, length, options)
        if done is not None and bool(done.any()):
            record.add(_some(here, ~done), ended, _some(here, done))
            now.keep(~done)
            token, rows = token[~done], rows[~done]
        else:
            record.add(here, ended)
        token = token.flatten()
        if len(rows) and not torch.equal(rows.flatten(), before):
            move(rows)
            coverage.select(rows.flatten())
    return record


def _open(source_lengths: Tensor, options: Decoding) -> Open:
    limit = options.limits(source_lengths)
    penalty = options.penalties(limit)
    sentence = torch.arange(len(limit), device=limit.device)
    none = penalty.new_full((len(limit), options.best), -torch.inf)
    return Open(sentence, limit, penalty, penalty.new_zeros(len(limit), 1), torch.zeros_like(limit), none)


def _done(now: Open, length: int, options: Decoding) -> Bool[Tensor, " sentences"]:
    """Which sentences need no further step."""
    hopeless = now.total[:, 0] / now.penalty <= now.best[:, -1]
    return hopeless | (now.ended >= options.patience * options.beam) | (now.limit <= length)


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
