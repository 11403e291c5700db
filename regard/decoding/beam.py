"""Beam search and the coverage penalty."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.decoding.config import DecodingConfig
from regard.decoding.ranking import BLOCK_SIZE, ContinuationRanker, Continuations
from regard.decoding.types import (
    AttendingDecoderState,
    DecoderState,
    FastDecoderState,
    SearchRecord,
    SpecialTokens,
    StepwiseModel,
    TokenColumns,
    checked_step,
)
from regard.errors import ShapeError, UnsupportedError

__all__ = ["Coverage", "OpenBeams", "run_beam_search"]

MIN_COVERAGE = 1e-6  # of a source token without attention; the logarithm of 0 would be -inf


class OpenBeams:
    """The sentences that are not done, one row each.

    Args:
        source_lengths: tokens of each source
        config: the search options

    Attributes:
        sentence: index of the sentence
        max_length: maximum number of its tokens
        length_norm: length norm at the maximum length
        total_log_prob: log-probability of each hypothesis of the beam
        num_finished: number of its finished hypotheses
        best_scores: scores of its best finished hypotheses, best first
    """

    def __init__(self, source_lengths: Int[Tensor, " sentences"], config: DecodingConfig):
        self.max_length = config.max_lengths(source_lengths)
        self.length_norm = config.length_norms(self.max_length)
        self.sentence = torch.arange(len(self.max_length), device=self.max_length.device)
        self.total_log_prob = self.length_norm.new_zeros(len(self.sentence), 1)
        self.num_finished = torch.zeros_like(self.max_length)
        self.best_scores = self.length_norm.new_full((len(self.sentence), config.num_best), -torch.inf)

    def keep(self, rows: Tensor) -> None:
        """Drop all other rows."""
        for name, column in vars(self).items():
            setattr(self, name, column[rows])


def run_beam_search(
    model: StepwiseModel, source: Tensor, source_lengths: Tensor, config: DecodingConfig, specials: SpecialTokens
) -> SearchRecord:
    """Extend the beams of all sentences until they are done.

    At each step the continuations of a beam are ranked by log-probability. Those among the first `beam_size` that end
    with EOS are finished; of the others, the first `beam_size` continue. A sentence is done

    - when patience * beam_size hypotheses are finished,
    - when its best unfinished hypothesis can no longer be among the best `num_best`: more tokens can only lower its
      log-probability, and the length norm is at most that of the maximum length, so its score never exceeds
      total / length_norm(max_length). This bound is exact for every length_penalty >= 0, also with the coverage
      penalty, which is at most 0; with length_penalty = 0 it is tight;
    - when it reaches its maximum length.

    Args:
        model: the model
        source: token ids, padded, (sentences, src_len)
        source_lengths: tokens of each source
        config: the search options
        specials: ids of the special tokens

    Shape:
        - source: (sentences, src_len), source_lengths: (sentences,)
    """
    state = model.start_decoding(source, source_lengths)
    fast = state if isinstance(state, FastDecoderState) else None
    ranker = ContinuationRanker(specials, config.min_length, source.device)
    coverage = Coverage(state, source, source_lengths, config)
    beams = OpenBeams(source_lengths, config)
    token = torch.full_like(beams.sentence, specials.bos)
    # No sentence can be done before the shortest maximum length or its first finished hypothesis.
    shortest, none_finished = int(beams.max_length.min()), True
    record, length = SearchRecord(len(source), config.num_best), 0
    while len(beams.sentence):
        length += 1
        logits = (
            fast.base2_logits(token, BLOCK_SIZE) if fast is not None else ranker.to_base2(checked_step(state, token))
        )
        continuations = ranker.rank(logits, beams.total_log_prob, 2 * config.beam_size, length)
        coverage.update()
        is_eos = continuations.token == specials.eos
        any_eos = bool(is_eos.any())
        unfinished = (
            _take_unfinished(continuations, is_eos, config.beam_size)
            if any_eos
            else continuations.take(config.beam_size)
        )
        columns = _to_columns(beams, unfinished, coverage, config.length_norm(length))

        finished = None
        if any_eos and bool(is_eos[:, : config.beam_size].any()):
            first = _to_columns(beams, continuations.take(config.beam_size), coverage, config.length_norm(length))
            finished, none_finished = _record_finished(beams, first, is_eos[:, : config.beam_size]), False

        previous = torch.arange(len(token), device=token.device)
        beams.total_log_prob, token, rows = unfinished.total, unfinished.token, columns.parent
        done = None if none_finished and length < shortest else _is_finished(beams, length, config)
        if done is not None and bool(done.any()):
            record.add(columns.select(~done), finished, columns.select(done))
            beams.keep(~done)
            token, rows = token[~done], rows[~done]
        else:
            record.add(columns, finished)
        token = token.flatten()
        if len(rows) and not torch.equal(rows.flatten(), previous):
            if fast is None:
                state.reorder(rows.flatten())
            else:
                fast.reorder_beams(rows)
            coverage.reorder(rows.flatten())
    return record


def _is_finished(beams: OpenBeams, length: int, config: DecodingConfig) -> Bool[Tensor, " sentences"]:
    """Which sentences need no further step."""
    hopeless = beams.total_log_prob[:, 0] / beams.length_norm <= beams.best_scores[:, -1]
    enough = beams.num_finished >= config.patience * config.beam_size
    return hopeless | enough | (beams.max_length <= length)


def _take_unfinished(
    continuations: Continuations, is_eos: Bool[Tensor, "sentences places"], beam_size: int
) -> Continuations:
    """The first continuations without EOS; missing ones have probability 0."""
    first = continuations.total.masked_fill(is_eos, -torch.inf).topk(min(beam_size, is_eos.shape[1]))
    others = (column.gather(1, first.indices) for column in continuations[1:])
    return Continuations(first.values, *others)


def _to_columns(beams: OpenBeams, continuations: Continuations, coverage: Coverage, length_norm: float) -> TokenColumns:
    """Continuations for the record; parents as rows of the step."""
    sentences, width = beams.total_log_prob.shape
    first_row = torch.arange(0, sentences * width, width, device=continuations.parent.device)
    return TokenColumns(
        beams.sentence[:, None].expand(continuations.token.shape),
        continuations.token,
        continuations.parent + first_row[:, None],
        continuations.log_prob,
        coverage.apply(continuations.total / length_norm, continuations.parent),
    )


def _record_finished(beams: OpenBeams, first: TokenColumns, is_eos: Bool[Tensor, "sentences beam"]) -> TokenColumns:
    """The finished tokens; their number and scores are added to the beams."""
    is_eos = is_eos & (first.score > -torch.inf)
    scores = torch.cat((beams.best_scores, first.score.masked_fill(~is_eos, -torch.inf)), 1)
    beams.best_scores = scores.topk(beams.best_scores.shape[1]).values
    beams.num_finished = beams.num_finished + is_eos.sum(1)
    return first.select(is_eos)


class Coverage:
    """Sum of the attention weights of each source token, for each row of a search.

        penalty = coverage_penalty * sum_i log min(max(sum_j weights[j, i], 1e-6), 1)

    where i runs over the source including EOS and j over the target. The penalty is at most 0.

    Args:
        state: the decoder state; a penalty needs its attention weights
        source, source_lengths: the sources
        config: `coverage_penalty` is the strength; 0: the object does nothing

    Reference: Wu et al. (2016), arXiv 1609.08144, equation 14.
    """

    def __init__(self, state: DecoderState, source: Tensor, source_lengths: Tensor, config: DecodingConfig):
        self.strength = config.coverage_penalty
        if not self.strength:
            return
        if not isinstance(state, AttendingDecoderState):
            raise UnsupportedError(
                f"decode: coverage_penalty={self.strength} needs attention weights, but the decoder state of this"
                " model has no method weights(); use coverage_penalty=0"
            )
        self.state = state
        self.source_mask = torch.arange(source.shape[1], device=source.device) < source_lengths[:, None]
        self.attention_sum = torch.zeros(source.shape, device=source.device)

    def update(self) -> None:
        """Add the attention weights of the last step."""
        if not self.strength:
            return
        weights = self.state.weights()
        if weights.shape != self.attention_sum.shape:
            raise ShapeError(
                f"decode: weights() must return shape (rows, src_len) = {tuple(self.attention_sum.shape)}, not"
                f" {tuple(weights.shape)}"
            )
        self.attention_sum = self.attention_sum + weights

    def apply(
        self, scores: Float[Tensor, "sentences places"], parents: Int[Tensor, "sentences places"]
    ) -> Float[Tensor, "sentences places"]:
        """Add the penalty of the parents to the scores of continuations."""
        if not self.strength:
            return scores
        penalty = self.attention_sum.clamp(MIN_COVERAGE, 1).log().masked_fill(~self.source_mask, 0).sum(1)
        return scores + self.strength * penalty.view(len(parents), -1).gather(1, parents)

    def reorder(self, rows: Int[Tensor, " new"]) -> None:
        """Continue with these rows."""
        if self.strength:
            self.attention_sum, self.source_mask = self.attention_sum[rows], self.source_mask[rows]
