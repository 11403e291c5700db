"""Decoding with any stepwise model: beam search, greedy search and sampling."""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from regard.decoding.beam import ContinuationRanker, blockwise_topk, run_beam_search
from regard.decoding.config import DecodingConfig
from regard.decoding.types import (
    DecoderState,
    FastDecoderState,
    Hypothesis,
    SearchRecord,
    SearchTrace,
    SpecialTokens,
    StepwiseModel,
    TokenColumns,
    checked_step,
    eval_mode,
)
from regard.errors import ShapeError

__all__ = ["beam_search", "decode", "decode_with_trace", "greedy", "sample"]


def decode(
    model: StepwiseModel,
    source: Int[Tensor, "rows src_len"],
    source_lengths: Int[Tensor, " rows"],
    config: DecodingConfig = DecodingConfig(),
    *,
    generator: Generator | None = None,
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

    Shape:
        - source: (rows, src_len), source_lengths: (rows,)

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
    return _run_search(model, source, source_lengths, config, generator, SpecialTokens(bos, eos, pad)).hypotheses()


def decode_with_trace(
    model: StepwiseModel,
    source: Int[Tensor, "rows src_len"],
    source_lengths: Int[Tensor, " rows"],
    config: DecodingConfig = DecodingConfig(),
    *,
    generator: Generator | None = None,
    **special_tokens: int,
) -> list[tuple[list[Hypothesis], SearchTrace]]:
    """As `decode`, together with every candidate of the search, its score and its parent.

    Args:
        model, source, source_lengths, config, generator: as for `decode`
        special_tokens: `bos`, `eos`, `pad`, as for `decode`

    Shape:
        - source: (rows, src_len), source_lengths: (rows,)

    Returns:
        The hypotheses and the trace of each sentence.

    Example:
        >>> from regard.attention import Additive, Attention
        >>> from regard.models import RNNSeq2Seq
        >>> model = RNNSeq2Seq(10, 10, Attention(Additive(8, 8, 4)), embed_dim=4, hidden_dim=8)
        >>> source, lengths = torch.tensor([[5, 6, 3], [7, 3, 0]]), torch.tensor([3, 2])
        >>> (hypotheses, trace), _ = decode_with_trace(model, source, lengths, DecodingConfig(max_length=4))
        >>> len(trace.steps) <= 4
        True
    """
    record = _run_search(model, source, source_lengths, config, generator, SpecialTokens(**special_tokens))
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

    Shape:
        - source: (rows, src_len), source_lengths: (rows,)

    Returns:
        One hypothesis of each sentence.

    Example:
        >>> from regard.attention import Additive, Attention
        >>> from regard.models import RNNSeq2Seq
        >>> model = RNNSeq2Seq(10, 10, Attention(Additive(8, 8, 4)), embed_dim=4, hidden_dim=8)
        >>> source, lengths = torch.tensor([[5, 6, 3], [7, 3, 0]]), torch.tensor([3, 2])
        >>> [hypothesis.length <= 4 for hypothesis in greedy(model, source, lengths, DecodingConfig(max_length=4))]
        [True, True]
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

    Shape:
        - source: (rows, src_len), source_lengths: (rows,)

    Returns:
        The `config.num_best` best hypotheses of each sentence, best first.

    Example:
        >>> from regard.attention import Additive, Attention
        >>> from regard.models import RNNSeq2Seq
        >>> model = RNNSeq2Seq(10, 10, Attention(Additive(8, 8, 4)), embed_dim=4, hidden_dim=8)
        >>> source, lengths = torch.tensor([[5, 6, 3], [7, 3, 0]]), torch.tensor([3, 2])
        >>> config = DecodingConfig(beam_size=3, num_best=2, max_length=4)
        >>> [len(hypotheses) for hypotheses in beam_search(model, source, lengths, config)]
        [2, 2]
    """
    return decode(model, source, source_lengths, replace(config, method="beam"), generator=None, **special_tokens)


def sample(
    model: StepwiseModel,
    source: Int[Tensor, "rows src_len"],
    source_lengths: Int[Tensor, " rows"],
    config: DecodingConfig = DecodingConfig(),
    *,
    generator: Generator | None = None,
    **special_tokens: int,
) -> list[list[Hypothesis]]:
    """Sample targets.

    Args:
        model, source, source_lengths, config, generator: as for `decode`
        special_tokens: `bos`, `eos`, `pad`, as for `decode`

    Shape:
        - source: (rows, src_len), source_lengths: (rows,)

    Returns:
        `config.num_best` samples of each sentence, best first.

    Example:
        >>> from regard.attention import Additive, Attention
        >>> from regard.models import RNNSeq2Seq
        >>> model = RNNSeq2Seq(10, 10, Attention(Additive(8, 8, 4)), embed_dim=4, hidden_dim=8)
        >>> source, lengths = torch.tensor([[5, 6, 3], [7, 3, 0]]), torch.tensor([3, 2])
        >>> config = DecodingConfig(num_best=5, max_length=4, temperature=0.7)
        >>> [len(samples) for samples in sample(model, source, lengths, config)]
        [5, 5]
    """
    config = replace(config, method="sample")
    return decode(model, source, source_lengths, config, generator=generator, **special_tokens)


def _run_search(
    model: StepwiseModel,
    source: Tensor,
    source_lengths: Tensor,
    config: DecodingConfig,
    generator: Generator | None,
    specials: SpecialTokens,
) -> SearchRecord:
    if source.dim() != 2 or source_lengths.shape != source.shape[:1]:
        shapes = f"{tuple(source.shape)} and {tuple(source_lengths.shape)}"
        expected = "source must have shape (rows, src_len) and source_lengths (rows)"
        raise ShapeError(f"decode: {expected}, but their shapes are {shapes}")
    if not len(source):
        return SearchRecord(0, config.num_best)
    with eval_mode(model):
        state = model.start_decoding(source, source_lengths)
        if config.method == "beam":
            return run_beam_search(state, source, source_lengths, config, specials)
        return generate(state, source_lengths, config, generator, specials)


def sample_token(
    log_probs: Float[Tensor, "rows vocab"], config: DecodingConfig, generator: Generator | None
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
    state: DecoderState, lengths: Tensor, config: DecodingConfig, generator: Generator | None, specials: SpecialTokens
) -> SearchRecord:
    """Extend every row with the most probable token, or with a sampled one, until it ends and leaves the batch."""
    copies = config.num_best if config.method == "sample" else 1
    fast = state if isinstance(state, FastDecoderState) else None
    sentence = torch.arange(len(lengths), device=lengths.device).repeat_interleave(copies)
    if copies > 1:
        state.reorder(sentence)
    max_length = config.max_lengths(lengths).repeat_interleave(copies)
    token = torch.full_like(sentence, specials.bos)
    total = torch.zeros(len(token), device=token.device)
    ranker = ContinuationRanker(specials, config.min_length, token.device)
    record, length = SearchRecord(len(lengths), config.num_best), 0
    while len(token):
        length += 1
        logits = checked_step(state, token)
        if config.method == "greedy":
            best = ranker.rank(ranker.to_base2(logits), torch.zeros(len(logits), 1, device=logits.device), 1, length)
            token, log_prob = best.token.squeeze(1), best.log_prob.squeeze(1)
        else:
            log_probs = ranker.log_probs(logits, length)
            token = sample_token(log_probs, config, generator)
            log_prob = log_probs.gather(1, token[:, None]).squeeze(1)
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
