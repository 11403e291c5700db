"""Beam search and the coverage penalty; the best continuations, in few passes over logits of a large vocabulary."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.decoding.config import DecodingConfig
from regard.decoding.types import (
    AttendingDecoderState,
    DecoderState,
    FastDecoderState,
    SearchRecord,
    SpecialTokens,
    TokenColumns,
    checked_step,
)
from regard.errors import ShapeError, UnsupportedError, WeightsMismatchError

__all__ = ["ContinuationRanker", "Continuations", "Coverage", "OpenBeams", "blockwise_topk", "run_beam_search"]

MIN_COVERAGE = 1e-6  # of a source token without attention; the logarithm of 0 would be -inf
BLOCK_SIZE = 64  # tokens; the fastest on a CPU of 32 to 256, for a vocabulary of 10,000 and a beam of 5
CACHED_ROWS = 16  # rows whose powers fit in the cache of a core, for a vocabulary of 10,000
SAFE_EXPONENT = 60.0  # between 2^-60 and 2^60 a sum of powers is accurate in float32
LN2, LOG2E = math.log(2), 1 / math.log(2)
PaddedLogits = Float[Tensor, "rows padded"]


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

    def are_done(self, length: int, config: DecodingConfig) -> Bool[Tensor, " sentences"]:
        """Which sentences need no step after this length."""
        hopeless = self.total_log_prob[:, 0] / self.length_norm <= self.best_scores[:, -1]
        enough = self.num_finished >= config.patience * config.beam_size
        return hopeless | enough | (self.max_length <= length)

    def keep(self, rows: Tensor) -> None:
        """Drop all other rows."""
        for name, column in vars(self).items():
            setattr(self, name, column[rows])


def run_beam_search(
    state: DecoderState, source: Tensor, source_lengths: Tensor, config: DecodingConfig, specials: SpecialTokens
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
        state: the state of the model at the first target token
        source: token ids, padded, (sentences, src_len)
        source_lengths: tokens of each source
        config: the search options
        specials: ids of the special tokens

    Shape:
        - source: (sentences, src_len), source_lengths: (sentences,)
    """
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
        logits = ranker.to_base2(checked_step(state, token)) if fast is None else fast.base2_logits(token, BLOCK_SIZE)
        continuations = ranker.rank(logits, beams.total_log_prob, 2 * config.beam_size, length)
        coverage.update()
        is_eos = continuations.token == specials.eos
        any_eos = bool(is_eos.any())
        first, finished = Continuations(*(column[:, : config.beam_size] for column in continuations)), None
        unfinished = _take_unfinished(continuations, is_eos, config.beam_size) if any_eos else first
        columns = _to_columns(beams, unfinished, coverage, config.length_norm(length))
        is_eos = is_eos[:, : config.beam_size]
        if any_eos and bool(is_eos.any()):
            first_columns = _to_columns(beams, first, coverage, config.length_norm(length))
            finished, none_finished = _record_finished(beams, first_columns, is_eos), False

        previous = torch.arange(len(token), device=token.device)
        beams.total_log_prob, token, rows = unfinished.total, unfinished.token, columns.parent
        done = None if none_finished and length < shortest else beams.are_done(length, config)
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


def _take_unfinished(
    continuations: Continuations, is_eos: Bool[Tensor, "sentences places"], beam_size: int
) -> Continuations:
    """The first continuations without EOS; missing ones have probability 0."""
    first = continuations.total.masked_fill(is_eos, -torch.inf).topk(min(beam_size, is_eos.shape[1]))
    return Continuations(first.values, *(column.gather(1, first.indices) for column in continuations[1:]))


def _to_columns(beams: OpenBeams, continuations: Continuations, coverage: Coverage, length_norm: float) -> TokenColumns:
    """Continuations for the record; parents as rows of the step."""
    sentences, width = beams.total_log_prob.shape
    first_row = torch.arange(0, sentences * width, width, device=continuations.parent.device)
    sentence = beams.sentence[:, None].expand(continuations.token.shape)
    rows = continuations.parent + first_row[:, None]
    scores = coverage.apply(continuations.total / length_norm, continuations.parent)
    return TokenColumns(sentence, continuations.token, rows, continuations.log_prob, scores)


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
            missing = "the decoder state of this model has no method weights(); use coverage_penalty=0"
            raise UnsupportedError(f"decode: coverage_penalty={self.strength} needs attention weights, but {missing}")
        self.state = state
        self.source_mask = torch.arange(source.shape[1], device=source.device) < source_lengths[:, None]
        self.attention_sum = torch.zeros(source.shape, device=source.device)

    def update(self) -> None:
        """Add the attention weights of the last step."""
        if not self.strength:
            return
        weights = self.state.weights()
        if weights.shape != self.attention_sum.shape:
            expected = f"shape (rows, src_len) = {tuple(self.attention_sum.shape)}"
            raise ShapeError(f"decode: weights() must return {expected}, not {tuple(weights.shape)}")
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


class Continuations(NamedTuple):
    """The best continuations of the beam of each sentence, most probable first.

    Args:
        total: log-probability of all tokens up to here
        token: id of the new token
        parent: index, on the beam, of the hypothesis that is continued
        log_prob: log-probability of the new token alone
    """

    total: Float[Tensor, "sentences places"]
    token: Int[Tensor, "sentences places"]
    parent: Int[Tensor, "sentences places"]
    log_prob: Float[Tensor, "sentences places"]


class ContinuationRanker:
    """Ranks continuations; buffers for the logits are reused from step to step.

        log p(token) = ln 2 (x_token - log2 sum_v 2^x_v)          x = logits / ln 2

    Powers of 2 cost half as much as powers of e. The best `count` tokens of a beam are in the `count` blocks of tokens
    with the largest maxima, so only these blocks are searched. PAD and BOS are excluded, and EOS up to `min_length`
    tokens; the others keep their probability.

    Args:
        specials: ids of BOS, EOS and PAD
        min_length: number of tokens before which EOS is excluded
        device: device of the logits
    """

    def __init__(self, specials: SpecialTokens, min_length: int, device: torch.device):
        forbidden = (specials.pad, specials.bos)
        self.forbidden, self.min_length = torch.tensor(forbidden, device=device), min_length
        self.forbidden_early = torch.tensor((*forbidden, specials.eos), device=device)
        self.logits_buffer = self.power_buffer = torch.empty(0, 0, device=device)

    def to_base2(self, logits: Float[Tensor, "rows vocab"]) -> PaddedLogits:
        """Logits / ln 2, padded with -inf to whole blocks, in a buffer of this object."""
        rows, vocab = logits.shape
        if len(self.logits_buffer) < rows:
            padded = -(-vocab // BLOCK_SIZE) * BLOCK_SIZE
            self.logits_buffer = self.logits_buffer.new_full((rows, padded), -math.inf)
        buffer = self.logits_buffer[:rows]
        torch.mul(logits.float(), LOG2E, out=buffer[:, :vocab])
        return buffer

    def rank(
        self, base2_logits: PaddedLogits, total: Float[Tensor, "sentences width"], count: int, length: int
    ) -> Continuations:
        """The best `count` continuations of every beam with token number `length`.

        Args:
            base2_logits: as `to_base2` returns them; rows are sentences x width. Excluded tokens become -inf in them
            total: log-probability of each hypothesis on the beams
            count: continuations of each beam
            length: number of the token, from 1
        """
        sentences, width = total.shape
        log_sum = self._log2_sum(base2_logits, length)
        base2_logits.index_fill_(1, self._excluded(length), -math.inf)
        blocks = base2_logits.unflatten(1, (-1, BLOCK_SIZE))
        maxima = blocks.amax(-1).sub_(log_sum[:, None]).mul_(LN2)
        maxima = maxima.view(sentences, width, -1).add_(total[:, :, None]).flatten(1)
        best_blocks = maxima.topk(min(count, maxima.shape[1]), sorted=False).indices
        first_block = torch.arange(0, maxima.numel(), maxima.shape[1], device=total.device)
        chosen = (best_blocks + first_block[:, None]).flatten()
        logits = blocks.flatten(0, 1).index_select(0, chosen).view(*best_blocks.shape, BLOCK_SIZE)

        parent = best_blocks.div(blocks.shape[1], rounding_mode="floor")
        log_probs = logits.sub_(log_sum.view(sentences, width).gather(1, parent)[:, :, None]).mul_(LN2)
        totals = (log_probs + total.gather(1, parent)[:, :, None]).flatten(1)
        best = totals.topk(min(count, totals.shape[1]))
        block, offset = best.indices.div(BLOCK_SIZE, rounding_mode="floor"), best.indices % BLOCK_SIZE
        token = best_blocks.gather(1, block).remainder_(blocks.shape[1]).mul_(BLOCK_SIZE).add_(offset)
        # A place of probability 0 may be in the padding, beyond the vocabulary.
        token = token.masked_fill_(best.values == -math.inf, 0)
        log_prob = log_probs.flatten(1).gather(1, best.indices)
        return Continuations(best.values, token, parent.gather(1, block), log_prob)

    def log_probs(self, logits: Float[Tensor, "rows vocab"], length: int) -> Float[Tensor, "rows vocab"]:
        """Log-probabilities of token number `length`, in float32; -inf for the excluded tokens."""
        log_probs = logits.log_softmax(-1, dtype=torch.float32)
        _require_numbers(~log_probs[:, 0].isnan(), length)  # one NaN in a row makes the whole row NaN
        return log_probs.index_fill_(1, self._excluded(length), -math.inf)

    def _excluded(self, length: int) -> Int[Tensor, " excluded"]:
        return self.forbidden_early if length <= self.min_length else self.forbidden

    def _log2_sum(self, base2_logits: PaddedLogits, length: int) -> Float[Tensor, " rows"]:
        """log2 of the sum of all powers, before any token is excluded."""
        rows = CACHED_ROWS if base2_logits.device.type == "cpu" else len(base2_logits)
        if len(self.power_buffer) < min(rows, len(base2_logits)):
            self.power_buffer = base2_logits.new_empty(min(rows, len(base2_logits)), base2_logits.shape[1])
        result = base2_logits.new_empty(len(base2_logits))
        for chunk, sums in zip(base2_logits.split(rows), result.split(rows), strict=True):
            torch.sum(torch.exp2(chunk, out=self.power_buffer[: len(chunk)]), -1, out=sums)
        result.log2_()
        if not bool((result.abs() < SAFE_EXPONENT).all()):
            maximum = base2_logits.amax(-1)
            result = torch.exp2(base2_logits - maximum[:, None]).sum(-1).log2_().add_(maximum)
            _require_numbers(result.isfinite(), length)
        return result


def _require_numbers(is_number: Tensor, length: int) -> None:
    if not bool(is_number.all()):
        problem = f"the logits of token {length} are not finite numbers"
        raise WeightsMismatchError(f"decode: {problem}; check the weights of the model for NaN")


def blockwise_topk(
    scores: Float[Tensor, "rows vocab"], count: int
) -> tuple[Float[Tensor, "rows count"], Int[Tensor, "rows count"]]:
    """Find the `count` largest numbers of each row and their indices, largest first, as torch.topk.

    The best `count` numbers are in the `count` blocks with the largest maxima, so only these are searched: about half
    the time of torch.topk for a vocabulary of 10,000.

    Args:
        scores: the numbers
        count: how many to find

    Shape:
        - scores: (rows, vocab)
        - returns: (rows, count), (rows, count)

    Returns:
        The numbers and their indices.

    >>> values, indices = blockwise_topk(torch.tensor([[0.1, 0.7, 0.2]]), 2)
    >>> indices.tolist()
    [[1, 2]]
    """
    rows, vocab = scores.shape
    num_blocks = vocab // BLOCK_SIZE
    if num_blocks < 4 * count:
        return _topk(scores, count)
    blocks = scores[:, : num_blocks * BLOCK_SIZE].unflatten(1, (num_blocks, BLOCK_SIZE))
    best_blocks = blocks.amax(-1).topk(count, sorted=False).indices[:, :, None]
    values = blocks.gather(1, best_blocks.expand(-1, -1, BLOCK_SIZE)).flatten(1)
    indices = (best_blocks * BLOCK_SIZE + torch.arange(BLOCK_SIZE, device=scores.device)).flatten(1)
    if num_blocks * BLOCK_SIZE < vocab:
        remaining = torch.arange(num_blocks * BLOCK_SIZE, vocab, device=scores.device)
        values = torch.cat((values, scores[:, remaining[0] :]), 1)
        indices = torch.cat((indices, remaining.expand(rows, -1)), 1)
    values, places = _topk(values, count)
    return values, indices.gather(1, places)


def _topk(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    best = scores.topk(count)
    return best.values, best.indices
