"""Decoding with any stepwise model: beam search, greedy search, sampling, and scores of given targets."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.decoding.beam import run_beam_search
from regard.decoding.config import DecodingConfig
from regard.decoding.ranking import ContinuationRanker, blockwise_topk
from regard.decoding.record import SearchRecord, TokenColumns
from regard.decoding.types import (
    FastDecoderState,
    Hypothesis,
    SearchTrace,
    SpecialTokens,
    StepwiseModel,
    checked_step,
    eval_mode,
    next_token_log_probs,
)
from regard.errors import ShapeError, UsageError

__all__ = [
    "attention_over_hypotheses",
    "beam_search",
    "decode",
    "decode_with_trace",
    "greedy",
    "sample",
    "score_targets",
]

CHUNK_SIZE = 1024  # positions whose log-probabilities over the vocabulary are in memory at a time

ChosenTokens = tuple[Tensor, Tensor]
ChooseFn = Callable[[Tensor, int], ChosenTokens]
"""From the logits of token number n to the token of each row and its log-probability."""


def decode(
    model: StepwiseModel,
    source: Int[Tensor, "rows src_len"],
    source_lengths: Int[Tensor, " rows"],
    config: DecodingConfig = DecodingConfig(),
    *,
    generator: torch.Generator | None = None,
    bos: int = 2,
    eos: int = 3,
    pad: int = 0,
) -> list[list[Hypothesis]]:
    """Decode a batch of sources with the method of the config.

    Except for samples, the hypotheses of a sentence do not depend on the other sentences of the batch. A sentence
    leaves the batch when it is done.

    Args:
        model: see `StepwiseModel`; it runs in eval mode, without gradients
        source: token ids of the sources, padded
        source_lengths: their numbers of tokens
        config: method, beam size, limits, sampling
        generator: random numbers of "sample"
        bos, eos, pad: ids of the special tokens

    Returns:
        The hypotheses of each sentence, best first.

    >>> class Countdown:  # the most probable token is the previous one minus 1, down to EOS = 3
    ...     def start_decoding(self, source, source_lengths):
    ...         self.last = source[:, 0] + 1
    ...         return self
    ...     def step(self, tokens):
    ...         self.last = self.last - 1
    ...         return 5 * torch.nn.functional.one_hot(self.last, 10).float()
    ...     def reorder(self, rows):
    ...         self.last = self.last[rows]
    >>> source = torch.tensor([[6, 3], [8, 3]])
    >>> [best.token_ids for best, *_ in decode(Countdown(), source, torch.tensor([2, 2]))]
    [[6, 5, 4], [8, 7, 6, 5, 4]]
    """
    specials = SpecialTokens(bos, eos, pad)
    return _run_search(model, source, source_lengths, config, generator, specials).hypotheses()


def decode_with_trace(
    model: StepwiseModel,
    source: Int[Tensor, "rows src_len"],
    source_lengths: Int[Tensor, " rows"],
    config: DecodingConfig = DecodingConfig(),
    *,
    generator: torch.Generator | None = None,
    bos: int = 2,
    eos: int = 3,
    pad: int = 0,
) -> list[tuple[list[Hypothesis], SearchTrace]]:
    """As `decode`, together with every candidate of the search, its score and its parent.

    Args:
        model, source, source_lengths, config, generator, bos, eos, pad: as for `decode`

    Returns:
        The hypotheses and the trace of each sentence.
    """
    record = _run_search(model, source, source_lengths, config, generator, SpecialTokens(bos, eos, pad))
    return list(zip(record.hypotheses(), record.traces(), strict=True))


def greedy(
    model: StepwiseModel,
    source: Int[Tensor, "rows src_len"],
    source_lengths: Int[Tensor, " rows"],
    config: DecodingConfig = DecodingConfig(),
    **special_tokens: int,
) -> list[Hypothesis]:
    """Decode with the most probable token at every step.

    Args:
        model, source, source_lengths, config: as for `decode`
        special_tokens: `bos`, `eos`, `pad`, as for `decode`

    Returns:
        One hypothesis of each sentence.
    """
    config = replace(config, method="greedy", num_best=1)
    return [best for (best,) in decode(model, source, source_lengths, config, generator=None, **special_tokens)]


def beam_search(
    model: StepwiseModel,
    source: Int[Tensor, "rows src_len"],
    source_lengths: Int[Tensor, " rows"],
    config: DecodingConfig = DecodingConfig(),
    **special_tokens: int,
) -> list[list[Hypothesis]]:
    """Decode with beam search, see `DecodingConfig`.

    Args:
        model, source, source_lengths, config: as for `decode`
        special_tokens: `bos`, `eos`, `pad`, as for `decode`

    Returns:
        The `config.num_best` best hypotheses of each sentence, best first.
    """
    return decode(
        model, source, source_lengths, replace(config, method="beam"), generator=None, **special_tokens
    )


def sample(
    model: StepwiseModel,
    source: Int[Tensor, "rows src_len"],
    source_lengths: Int[Tensor, " rows"],
    config: DecodingConfig = DecodingConfig(),
    *,
    generator: torch.Generator | None = None,
    **special_tokens: int,
) -> list[list[Hypothesis]]:
    """Sample targets.

    Args:
        model, source, source_lengths, config, generator: as for `decode`
        special_tokens: `bos`, `eos`, `pad`, as for `decode`

    Returns:
        `config.num_best` samples of each sentence, best first.
    """
    config = replace(config, method="sample")
    return decode(model, source, source_lengths, config, generator=generator, **special_tokens)


def score_targets(
    model: nn.Module,
    source: Int[Tensor, "rows src_len"],
    source_lengths: Int[Tensor, " rows"],
    target: Int[Tensor, "rows tgt_len"],
    target_lengths: Int[Tensor, " rows"],
    config: DecodingConfig = DecodingConfig(),
    *,
    eos: int = 3,
) -> list[Hypothesis]:
    """Score given targets (forced decoding): one teacher-forced pass in eval mode.

    Args:
        model: has `forward_hidden(source, source_lengths, target[:, :-1])` and the output layer `lm_head`
        source, source_lengths: as for `decode`
        target: token ids that begin with BOS, padded; a target without EOS at its end is scored as unfinished
        target_lengths: their numbers of tokens, including BOS
        config: its length penalty is applied; the coverage penalty is not
        eos: id of EOS

    Returns:
        The hypothesis of each row.
    """
    if target_lengths.numel() and int(target_lengths.min()) < 2:
        row = int(target_lengths.argmin())
        raise UsageError(f"score_targets: target {row} has no token after BOS; add at least EOS")
    with eval_mode(model):
        hidden = cast(Any, model).forward_hidden(source, source_lengths, target[:, :-1])
        is_token = torch.arange(1, target.shape[1], device=target.device) < target_lengths[:, None]
        log_probs = _target_log_probs(
            model.get_submodule("lm_head"), hidden[is_token], target[:, 1:][is_token]
        )
    counts = (target_lengths - 1).tolist()
    token_ids = (row[1 : count + 1] for row, count in zip(target.tolist(), counts, strict=True))
    rows = zip(token_ids, log_probs.split(counts), strict=True)
    return [_make_hypothesis(ids, row.tolist(), config, eos) for ids, row in rows]


def attention_over_hypotheses(
    model: Any,
    source: Int[Tensor, "rows src_len"],
    source_lengths: Int[Tensor, " rows"],
    hypotheses: Sequence[Hypothesis],
    *,
    bos: int = 2,
    eos: int = 3,
    pad: int = 0,
) -> list[Float[Tensor, "layers heads _ _"]]:
    """Attention weights of one hypothesis for each source: one teacher-forced pass in eval mode.

    Args:
        model: has `attention_weights(source, source_lengths, target)`
        source, source_lengths: as for `decode`
        hypotheses: one of each row, from any search or from elsewhere
        bos, eos, pad: ids of the special tokens

    Returns:
        For each row the weights of shape (layers, heads, tgt_len, src_len), on the CPU and without padding: a row for
        every token, and for EOS if the hypothesis is finished. A model without attention gives 0 layers of 0 heads.
    """
    if len(hypotheses) != len(source):
        raise UsageError(
            f"attention_over_hypotheses: expected one hypothesis for each of {len(source)} sources, not"
            f" {len(hypotheses)}"
        )
    if not hypotheses:
        return []
    rows = [[bos, *one.token_ids, *([eos] if one.finished else [])] for one in hypotheses]
    longest = max(map(len, rows))
    target = torch.tensor([row + [pad] * (longest - len(row)) for row in rows], device=source.device)
    with eval_mode(model):
        layers = model.attention_weights(source, source_lengths, target)
    if layers:
        weights = torch.stack(list(layers), 1).float().cpu()
    else:
        weights = torch.zeros(len(rows), 0, 0, longest - 1, source.shape[1])
    sizes = zip(weights, rows, source_lengths.tolist(), strict=True)
    return [padded[:, :, : len(row) - 1, :length] for padded, row, length in sizes]


def _run_search(
    model: StepwiseModel,
    source: Tensor,
    source_lengths: Tensor,
    config: DecodingConfig,
    generator: torch.Generator | None,
    specials: SpecialTokens,
) -> SearchRecord:
    if source.dim() != 2 or source_lengths.shape != source.shape[:1]:
        raise ShapeError(
            "decode: source must have shape (rows, src_len) and source_lengths (rows), but their shapes are"
            f" {tuple(source.shape)} and {tuple(source_lengths.shape)}"
        )
    if not len(source):
        return SearchRecord(0, config.num_best)
    with eval_mode(model):
        if config.method == "beam":
            return run_beam_search(model, source, source_lengths, config, specials)
        if config.method == "greedy":
            choose = greedy_choice(ContinuationRanker(specials, config.min_length, source.device))
        else:
            choose = sampling_choice(config, specials, generator)
        return generate(model, source, source_lengths, config, specials, choose)


def greedy_choice(ranker: ContinuationRanker) -> ChooseFn:
    """A function that chooses the most probable token."""

    def choose(logits: Tensor, length: int) -> ChosenTokens:
        zero = torch.zeros(len(logits), 1, device=logits.device)
        best = ranker(logits, zero, 1, length)
        return best.token.squeeze(1), best.log_prob.squeeze(1)

    return choose


def sampling_choice(
    config: DecodingConfig, specials: SpecialTokens, generator: torch.Generator | None
) -> ChooseFn:
    """A function that samples one token of each row, as described in `DecodingConfig`."""

    def choose(logits: Tensor, length: int) -> ChosenTokens:
        log_probs = next_token_log_probs(logits, length, specials, config.min_length)
        token = sample_token(log_probs, config, generator)
        return token, log_probs.gather(1, token[:, None]).squeeze(1)

    return choose


def sample_token(
    log_probs: Float[Tensor, "rows vocab"], config: DecodingConfig, generator: torch.Generator | None
) -> Int[Tensor, " rows"]:
    """One token of each row, with the temperature, top_k and top_p of the config."""
    vocab = log_probs.shape[1]
    top_k = min(config.top_k or vocab, vocab)
    scores, tokens = log_probs / config.temperature, None
    if top_k < vocab or config.top_p < 1:
        scores, tokens = blockwise_topk(scores, top_k)
    probs = scores.softmax(-1)
    if config.top_p < 1:  # a token is kept if those before it do not reach top_p
        probs = probs.masked_fill(probs.cumsum(-1) - probs >= config.top_p, 0)
    index = probs.multinomial(1, generator=generator)
    return (index if tokens is None else tokens.gather(1, index)).squeeze(1)


def generate(
    model: StepwiseModel,
    source: Tensor,
    source_lengths: Tensor,
    config: DecodingConfig,
    specials: SpecialTokens,
    choose: ChooseFn,
) -> SearchRecord:
    """Extend every row with the tokens of `choose` until it ends; a finished row leaves the batch."""
    copies = config.num_best if config.method == "sample" else 1
    state = model.start_decoding(source, source_lengths)
    fast = state if isinstance(state, FastDecoderState) else None
    sentence = torch.arange(len(source), device=source.device).repeat_interleave(copies)
    if copies > 1:
        state.reorder(sentence)
    max_length = config.max_lengths(source_lengths).repeat_interleave(copies)
    token = torch.full_like(sentence, specials.bos)
    total = torch.zeros(len(token), device=token.device)
    record, length = SearchRecord(len(source), config.num_best), 0
    while len(token):
        length += 1
        token, log_prob = choose(checked_step(state, token), length)
        total = total + log_prob
        rows = torch.arange(len(token), device=token.device)
        columns = TokenColumns(sentence, token, rows, log_prob, total / config.length_norm(length))
        finished, too_long = token == specials.eos, max_length <= length
        keep = ~(finished | too_long)
        if bool(keep.all()):
            record.add(columns)
            continue
        record.add(columns.select(keep), columns.select(finished), columns.select(too_long & ~finished))
        sentence, token, max_length, total = (column[keep] for column in (sentence, token, max_length, total))
        if not len(token):
            break
        if fast is None:
            state.reorder(rows[keep])
        else:
            fast.reorder_beams(rows[keep][:, None])
    return record


def _target_log_probs(lm_head: nn.Module, hidden: Tensor, tokens: Tensor) -> Tensor:
    """Log-probability of each token, in chunks: the logits of all positions might not fit into memory."""
    chunks = zip(hidden.split(CHUNK_SIZE), tokens.split(CHUNK_SIZE), strict=True)
    log_probs = [-nn.functional.cross_entropy(lm_head(h).float(), t, reduction="none") for h, t in chunks]
    return torch.cat(log_probs) if log_probs else hidden.new_zeros(0)


def _make_hypothesis(
    token_ids: list[int], token_log_probs: list[float], config: DecodingConfig, eos: int
) -> Hypothesis:
    finished = token_ids[-1] == eos
    total = math.fsum(token_log_probs)
    score = total / config.length_norm(len(token_ids))
    return Hypothesis(token_ids[:-1] if finished else token_ids, score, total, token_log_probs, finished)
