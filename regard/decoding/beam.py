"""The coverage penalty: a translation that has looked at only a part of its source is worth less.

Beam search: several beginnings of every translation are kept, and all of them grow together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.decoding.config import DecodingConfig
from regard.decoding.ranking import BLOCK_SIZE, ContinuationRanker, Continuations
from regard.decoding.record import SearchRecord, TokenColumns
from regard.decoding.types import SpecialTokens, StepwiseModel, checked_step
from regard.errors import ShapeError, UnsupportedError

MIN_COVERAGE = (
    1e-6  # the share taken for a source token that was never looked at, whose logarithm would be -inf
)


class Coverage:
    """How much regard each source token has had so far, for each row of a search.

        penalty = coverage * sum_i log min(max(sum_j weights[j, i], 1e-6), 1)

    Wu et al. (2016), arXiv 1609.08144, equation 14; i goes over the source with its EOS, j over the target. It
    is never above 0.
    """

    def __init__(self, state: Any, source: Tensor, source_lengths: Tensor, config: DecodingConfig):
        self.strength = config.coverage_penalty
        if not self.strength:
            return
        weights = getattr(state, "weights", None)
        if weights is None:
            raise UnsupportedError(
                f"decode: coverage={self.strength} needs to know where each step looked, but this model has no"
                " attention to tell (its steps have no weights()); take coverage=0."
            )
        self.last_weights: Callable[[], Tensor] = weights
        self.source_mask = torch.arange(source.shape[1], device=source.device) < source_lengths[:, None]
        self.attention_sum = torch.zeros(source.shape, device=source.device)

    def update(self) -> None:
        """Add where the last step looked."""
        if not self.strength:
            return
        seen = self.last_weights()
        if seen.shape != self.attention_sum.shape:
            raise ShapeError(
                f"decode: weights() must be (rows, source) = {tuple(self.attention_sum.shape)}, but is {tuple(seen.shape)}."
            )
        self.attention_sum = self.attention_sum + seen

    def apply(
        self, scores: Float[Tensor, "sentences places"], parents: Int[Tensor, "sentences places"]
    ) -> Float[Tensor, "sentences places"]:
        """Scores of what continues these places of each sentence's beam, with the penalty added."""
        if not self.strength:
            return scores
        lacking = self.attention_sum.clamp(MIN_COVERAGE, 1).log().masked_fill(~self.source_mask, 0).sum(1)
        return scores + self.strength * lacking.view(len(parents), -1).gather(1, parents)

    def reorder(self, rows: Int[Tensor, " new"]) -> None:
        if self.strength:
            self.attention_sum, self.source_mask = self.attention_sum[rows], self.source_mask[rows]


@dataclass
class OpenBeams:
    """The sentences that are still searched; one row each."""

    sentence: Int[Tensor, " sentences"]
    max_length: Int[Tensor, " sentences"]
    length_norm: Float[Tensor, " sentences"]  # that of the longest translation allowed
    total_log_prob: Float[Tensor, "sentences width"]
    num_finished: Int[Tensor, " sentences"]  # how many translations have
    best_scores: Float[Tensor, "sentences best"]  # scores of the best that have, the best first

    def keep(self, rows: Tensor) -> None:
        for name, column in vars(self).items():
            setattr(self, name, column[rows])


def run_beam_search(
    model: StepwiseModel,
    source: Tensor,
    source_lengths: Tensor,
    config: DecodingConfig,
    specials: SpecialTokens,
) -> SearchRecord:
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
    steps = model.start_decoding(source, source_lengths)
    move = getattr(steps, "reorder_beams", None) or (lambda rows: steps.reorder(rows.flatten()))
    coverage = Coverage(steps, source, source_lengths, config)
    best = ContinuationRanker(specials, config.min_length, source.device)
    bits = getattr(steps, "base2_logits", None) or (
        lambda tokens, _: best.to_base2(checked_step(steps, tokens))
    )
    now = _init_beams(source_lengths, config)
    token = torch.full_like(now.sentence, specials.bos)
    soonest, waiting = (
        int(now.max_length.min()),
        True,
    )  # before a limit and before any has ended, none can be done
    record, length = SearchRecord(len(source), config.num_best), 0
    while len(now.sentence):
        length += 1
        grown = best.rank(bits(token, BLOCK_SIZE), now.total_log_prob, 2 * config.beam_size, length)
        coverage.update()
        ends = grown.token == specials.eos
        ending = bool(ends.any())
        going = _take_unfinished(grown, ends, config.beam_size) if ending else grown.take(config.beam_size)
        here = _to_columns(now, going, coverage, config.length_norm(length))

        ended = None
        if ending and bool(ends[:, : config.beam_size].any()):
            first = _to_columns(now, grown.take(config.beam_size), coverage, config.length_norm(length))
            ended, waiting = _record_finished(now, first, ends[:, : config.beam_size]), False

        before = torch.arange(len(token), device=token.device)
        now.total_log_prob, token, rows = going.total, going.token, here.parent
        done = None if waiting and length < soonest else _is_finished(now, length, config)
        if done is not None and bool(done.any()):
            record.add(_select(here, ~done), ended, _select(here, done))
            now.keep(~done)
            token, rows = token[~done], rows[~done]
        else:
            record.add(here, ended)
        token = token.flatten()
        if len(rows) and not torch.equal(rows.flatten(), before):
            move(rows)
            coverage.reorder(rows.flatten())
    return record


def _init_beams(source_lengths: Tensor, config: DecodingConfig) -> OpenBeams:
    limit = config.max_lengths(source_lengths)
    penalty = config.length_norms(limit)
    sentence = torch.arange(len(limit), device=limit.device)
    none = penalty.new_full((len(limit), config.num_best), -torch.inf)
    return OpenBeams(
        sentence, limit, penalty, penalty.new_zeros(len(limit), 1), torch.zeros_like(limit), none
    )


def _is_finished(beams: OpenBeams, length: int, config: DecodingConfig) -> Bool[Tensor, " sentences"]:
    """Which sentences need no further step."""
    hopeless = beams.total_log_prob[:, 0] / beams.length_norm <= beams.best_scores[:, -1]
    return (
        hopeless | (beams.num_finished >= config.patience * config.beam_size) | (beams.max_length <= length)
    )


def _take_unfinished(
    continuations: Continuations, ends: Bool[Tensor, "sentences places"], beam_size: int
) -> Continuations:
    """The first that do not end; where there are too few, the beam has empty places, of probability 0."""
    first = continuations.total.masked_fill(ends, -torch.inf).topk(min(beam_size, ends.shape[1]))
    others = (column.gather(1, first.indices) for column in continuations[1:])
    return Continuations(first.values, *others)


def _to_columns(
    beams: OpenBeams, continuations: Continuations, coverage: Coverage, length_norm: float
) -> TokenColumns:
    """What is written down of continuations; their parents as rows of the step."""
    sentences, width = beams.total_log_prob.shape
    begin = torch.arange(0, sentences * width, width, device=continuations.parent.device)
    return TokenColumns(
        beams.sentence[:, None].expand(continuations.token.shape),
        continuations.token,
        continuations.parent + begin[:, None],
        continuations.log_prob,
        coverage.apply(continuations.total / length_norm, continuations.parent),
    )


def _record_finished(
    beams: OpenBeams, first: TokenColumns, ends: Bool[Tensor, "sentences beam"]
) -> TokenColumns:
    """Those that end, after their number and the scores of the best so far are noted."""
    ends = ends & (first.score > -torch.inf)
    beams.best_scores = (
        torch.cat((beams.best_scores, first.score.masked_fill(~ends, -torch.inf)), 1)
        .topk(beams.best_scores.shape[1])
        .values
    )
    beams.num_finished = beams.num_finished + ends.sum(1)
    return _select(first, ends)


def _select(nodes: TokenColumns, keep: Tensor) -> TokenColumns:
    """Those of the sentences, or single ones, that a mask says."""
    return TokenColumns(*(column[keep] for column in nodes))
