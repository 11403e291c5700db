"""One token after the other, without looking back: the likeliest, or one that is drawn.

The front door of the searches.

Translations that are given rather than searched: what the model thinks of them, and where it looks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.decoding.beam import run_beam_search
from regard.decoding.config import DecodingConfig
from regard.decoding.ranking import ContinuationRanker, blockwise_topk
from regard.decoding.record import SearchRecord, TokenColumns
from regard.decoding.types import (
    Hypothesis,
    SearchTrace,
    SpecialTokens,
    StepwiseModel,
    checked_step,
    eval_mode,
    next_token_log_probs,
)
from regard.errors import ShapeError, UsageError

ChosenTokens = tuple[Tensor, Tensor]


ChooseFn = Callable[[Tensor, int], ChosenTokens]
"""From the logits of token number so-and-so: the token taken in each row, and its log-probability."""


def greedy_choice(ranker: ContinuationRanker) -> ChooseFn:
    """A function that takes the token with the largest log-probability."""

    def take(logits: Tensor, length: int) -> ChosenTokens:
        none = torch.zeros(len(logits), 1, device=logits.device)
        found = ranker(logits, none, 1, length)
        return found.token.squeeze(1), found.log_prob.squeeze(1)

    return take


def sampling_choice(
    config: DecodingConfig, specials: SpecialTokens, generator: torch.Generator | None
) -> ChooseFn:
    """A function that draws one token a row, as `Decoding` describes it."""

    def take(logits: Tensor, length: int) -> ChosenTokens:
        found = next_token_log_probs(logits, length, specials, config.min_length)
        token = sample_token(found, config, generator)
        return token, found.gather(1, token[:, None]).squeeze(1)

    return take


def sample_token(
    log_probs: Float[Tensor, "rows vocab"], config: DecodingConfig, generator: torch.Generator | None
) -> Int[Tensor, " rows"]:
    vocab = log_probs.shape[1]
    kept = min(config.top_k or vocab, vocab)
    scores, tokens = log_probs / config.temperature, None
    if kept < vocab or config.top_p < 1:
        scores, tokens = blockwise_topk(scores, kept)
    shares = scores.softmax(-1)
    if config.top_p < 1:  # a token stays if those before it have not yet the share
        shares = shares.masked_fill(shares.cumsum(-1) - shares >= config.top_p, 0)
    place = shares.multinomial(1, generator=generator)
    return (place if tokens is None else tokens.gather(1, place)).squeeze(1)


def generate(
    model: StepwiseModel,
    source: Tensor,
    source_lengths: Tensor,
    config: DecodingConfig,
    specials: SpecialTokens,
    choose: ChooseFn,
) -> SearchRecord:
    """Write every row to its end with tokens that `choose` takes; a row that has ended leaves the batch."""
    copies = config.num_best if config.method == "sample" else 1
    steps = model.start_decoding(source, source_lengths)
    leave = getattr(steps, "reorder_beams", None) or (lambda rows: steps.reorder(rows.flatten()))
    sentence = torch.arange(len(source), device=source.device).repeat_interleave(copies)
    if copies > 1:
        steps.reorder(sentence)
    limit = config.max_lengths(source_lengths).repeat_interleave(copies)
    token = torch.full_like(sentence, specials.bos)
    total = torch.zeros(len(token), device=token.device)
    record, length = SearchRecord(len(source), config.num_best), 0
    while len(token):
        length += 1
        token, own = choose(checked_step(steps, token), length)
        total = total + own
        rows = torch.arange(len(token), device=token.device)
        written = TokenColumns(sentence, token, rows, own, total / config.length_norm(length))
        ended, late = token == specials.eos, limit <= length
        going = ~(ended | late)
        if bool(going.all()):
            record.add(written)
            continue
        record.add(_select(written, going), _select(written, ended), _select(written, late & ~ended))
        sentence, token, limit, total = (column[going] for column in (sentence, token, limit, total))
        if len(token):
            leave(rows[going][:, None])
    return record


def _select(nodes: TokenColumns, keep: Tensor) -> TokenColumns:
    return TokenColumns(*(column[keep] for column in nodes))


def decode(
    model: StepwiseModel,
    source: Int[Tensor, "rows source"],
    source_lengths: Int[Tensor, " rows"],
    config: DecodingConfig = DecodingConfig(),
    *,
    generator: torch.Generator | None = None,
    bos: int = 2,
    eos: int = 3,
    pad: int = 0,
) -> list[list[Hypothesis]]:
    """The translations of each sentence, best first.

    The model need only promise `begin`, `step` and `select` (see `Model` and `Steps`); a sentence's
    translations do not depend on its neighbors in the batch, those that are drawn excepted. Each sentence
    leaves the batch when it is done, so that the last ones go fast.

    >>> class Countdown:  # the likeliest next token is the one before, down to EOS = 3
    ...     def begin(self, source, source_lengths):
    ...         self.last = source[:, 0] + 1
    ...         return self
    ...     def step(self, tokens):
    ...         self.last = self.last - 1
    ...         return 5 * torch.nn.functional.one_hot(self.last, 10).float()
    ...     def select(self, rows):
    ...         self.last = self.last[rows]
    >>> source = torch.tensor([[6, 3], [8, 3]])
    >>> [best.token_ids for best, *_ in decode(Countdown(), source, torch.tensor([2, 2]))]
    [[6, 5, 4], [8, 7, 6, 5, 4]]
    """
    return _run_search(
        model, source, source_lengths, config, generator, SpecialTokens(bos, eos, pad)
    ).hypotheses()


def decode_with_trace(
    model: StepwiseModel,
    source: Int[Tensor, "rows source"],
    source_lengths: Int[Tensor, " rows"],
    config: DecodingConfig = DecodingConfig(),
    *,
    generator: torch.Generator | None = None,
    bos: int = 2,
    eos: int = 3,
    pad: int = 0,
) -> list[tuple[list[Hypothesis], SearchTrace]]:
    """What `decode` gives, and with it how the search came there: every candidate, its score and its parent."""
    record = _run_search(model, source, source_lengths, config, generator, SpecialTokens(bos, eos, pad))
    return list(zip(record.hypotheses(), record.traces(), strict=True))


def greedy(
    model: StepwiseModel,
    source: Int[Tensor, "rows source"],
    source_lengths: Int[Tensor, " rows"],
    config: DecodingConfig = DecodingConfig(),
    *,
    bos: int = 2,
    eos: int = 3,
    pad: int = 0,
) -> list[Hypothesis]:
    """The likeliest token at every step: one translation of each sentence."""
    config = replace(config, method="greedy", num_best=1)
    found = decode(model, source, source_lengths, config, bos=bos, eos=eos, pad=pad)
    return [several[0] for several in found]


def beam_search(
    model: StepwiseModel,
    source: Int[Tensor, "rows source"],
    source_lengths: Int[Tensor, " rows"],
    config: DecodingConfig = DecodingConfig(),
    *,
    bos: int = 2,
    eos: int = 3,
    pad: int = 0,
) -> list[list[Hypothesis]]:
    """The best translations that a beam search finds; the search is described in `Decoding`."""
    config = replace(config, method="beam")
    return decode(model, source, source_lengths, config, bos=bos, eos=eos, pad=pad)


def sample(
    model: StepwiseModel,
    source: Int[Tensor, "rows source"],
    source_lengths: Int[Tensor, " rows"],
    config: DecodingConfig = DecodingConfig(),
    *,
    generator: torch.Generator | None = None,
    bos: int = 2,
    eos: int = 3,
    pad: int = 0,
) -> list[list[Hypothesis]]:
    """Translations drawn by chance, `options.best` of each sentence."""
    config = replace(config, method="sample")
    return decode(model, source, source_lengths, config, generator=generator, bos=bos, eos=eos, pad=pad)


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
            "decode: source must be (rows, source) with source_lengths (rows), but their shapes are"
            f" {tuple(source.shape)} and {tuple(source_lengths.shape)}."
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


CHUNK_SIZE = 1024  # positions whose log-probabilities over the vocabulary are held at one time


def score_targets(
    model: nn.Module,
    source: Int[Tensor, "rows source"],
    source_lengths: Int[Tensor, " rows"],
    target: Int[Tensor, "rows target"],
    target_lengths: Int[Tensor, " rows"],
    config: DecodingConfig = DecodingConfig(),
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
    with eval_mode(model):
        hidden = model(source, source_lengths, target[:, :-1])
        real = torch.arange(1, target.shape[1], device=target.device) < target_lengths[:, None]
        found = _target_log_probs(model.get_submodule("output"), hidden[real], target[:, 1:][real])
    counts = (target_lengths - 1).tolist()
    ids = (row[1 : count + 1] for row, count in zip(target.tolist(), counts, strict=True))
    parts = found.split(counts)
    return [_make_hypothesis(row, part.tolist(), config, eos) for row, part in zip(ids, parts, strict=True)]


def _target_log_probs(output: nn.Module, hidden: Tensor, tokens: Tensor) -> Tensor:
    """Of each word at its position; the logits of all positions at once might not fit into memory."""
    parts = zip(hidden.split(CHUNK_SIZE), tokens.split(CHUNK_SIZE), strict=True)
    found = [-nn.functional.cross_entropy(output(h).float(), w, reduction="none") for h, w in parts]
    return torch.cat(found) if found else hidden.new_zeros(0)


def _make_hypothesis(
    token_ids: list[int], token_log_probs: list[float], config: DecodingConfig, eos: int
) -> Hypothesis:
    finished = token_ids[-1] == eos
    total = math.fsum(token_log_probs)
    score = total / config.length_norm(len(token_ids))
    return Hypothesis(token_ids[:-1] if finished else token_ids, score, total, token_log_probs, finished)


def attention_over_hypotheses(
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
    rows = [[bos, *one.token_ids, *([eos] if one.finished else [])] for one in hypotheses]
    longest = max(map(len, rows))
    target = torch.tensor([row + [pad] * (longest - len(row)) for row in rows], device=source.device)
    with eval_mode(model):
        layers = model.looks(source, source_lengths, target)
    if layers:
        seen = torch.stack(list(layers), 1).float().cpu()
    else:
        seen = torch.zeros(len(rows), 0, 0, longest - 1, source.shape[1])
    sizes = zip(seen, rows, source_lengths.tolist(), strict=True)
    return [one[:, :, : len(row) - 1, :length] for one, row, length in sizes]
