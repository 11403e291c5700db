"""One token after the other, without looking back: the likeliest, or one that is drawn."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.decoding._protocol import Model, Specials, log_probs
from regard.decoding._record import Nodes, Record
from regard.decoding._top import top
from regard.decoding.options import Decoding

Choice = Callable[[Tensor], Tensor]


def likeliest(found: Float[Tensor, "rows vocab"]) -> Int[Tensor, " rows"]:
    """The token with the largest log-probability.

    >>> likeliest(torch.tensor([[0.2, 0.8], [0.6, 0.4]]).log()).tolist()
    [1, 0]
    """
    return top(found, 1)[1].squeeze(1)


def drawn(options: Decoding, generator: torch.Generator | None) -> Choice:
    """A function that draws one token a row, as `Decoding` describes it."""

    def draw(found: Tensor) -> Tensor:
        vocab = found.shape[1]
        kept = min(options.top_k or vocab, vocab)
        scores, tokens = found / options.temperature, None
        if kept < vocab or options.top_p < 1:
            scores, tokens = top(scores, kept)
        shares = scores.softmax(-1)
        if options.top_p < 1:  # a token stays if those before it have not yet the share
            shares = shares.masked_fill(shares.cumsum(-1) - shares >= options.top_p, 0)
        place = shares.multinomial(1, generator=generator)
        return (place if tokens is None else tokens.gather(1, place)).squeeze(1)

    return draw


def walk(
    model: Model,
    source: Tensor,
    source_lengths: Tensor,
    options: Decoding,
    specials: Specials,
    choose: Choice,
) -> Record:
    """Write every row to its end with tokens that `choose` takes; a row that has ended leaves the batch."""
    copies = options.best if options.method == "sample" else 1
    steps = model.begin(source, source_lengths)
    sentence = torch.arange(len(source), device=source.device).repeat_interleave(copies)
    if copies > 1:
        steps.select(sentence)
    limit = options.limits(source_lengths).repeat_interleave(copies)
    token = torch.full_like(sentence, specials.bos)
    total = torch.zeros(len(token), device=token.device)
    record, length = Record(len(source), options.best), 0
    while len(token):
        length += 1
        found = log_probs(steps, token, length, specials, options.min_length)
        token = choose(found)
        own = found.gather(1, token[:, None]).squeeze(1)
        del found  # it is large: two of them at a time would cost more than one
        total = total + own
        rows = torch.arange(len(token), device=token.device)
        written = Nodes(sentence, token, rows, own, total / options.penalty(length))
        ended, late = token == specials.eos, limit <= length
        going = ~(ended | late)
        if bool(going.all()):
            record.add(written)
            continue
        record.add(_some(written, going), _some(written, ended), _some(written, late & ~ended))
        sentence, token, limit, total = (column[going] for column in (sentence, token, limit, total))
        if len(token):
            steps.select(rows[going])
    return record


def _some(nodes: Nodes, which: Tensor) -> Nodes:
    return Nodes(*(column[which] for column in nodes))
