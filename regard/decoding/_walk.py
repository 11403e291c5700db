"""One token after the other, without looking back: the likeliest, or one that is drawn."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.decoding._best import Best
from regard.decoding._protocol import Model, Specials, log_probs, stepped
from regard.decoding._record import Nodes, Record
from regard.decoding._top import top
from regard.decoding.options import Decoding

Taken = tuple[Tensor, Tensor]
Choice = Callable[[Tensor, int], Taken]
"""From the logits of token number so-and-so: the token taken in each row, and its log-probability."""


def likeliest(best: Best) -> Choice:
    """A function that takes the token with the largest log-probability."""

    def take(logits: Tensor, length: int) -> Taken:
        none = torch.zeros(len(logits), 1, device=logits.device)
        found = best(logits, none, 1, length)
        return found.token.squeeze(1), found.log_prob.squeeze(1)

    return take


def drawn(options: Decoding, specials: Specials, generator: torch.Generator | None) -> Choice:
    """A function that draws one token a row, as `Decoding` describes it."""

    def take(logits: Tensor, length: int) -> Taken:
        found = log_probs(logits, length, specials, options.min_length)
        token = draw(found, options, generator)
        return token, found.gather(1, token[:, None]).squeeze(1)

    return take


def draw(
    found: Float[Tensor, "rows vocab"], options: Decoding, generator: torch.Generator | None
) -> Int[Tensor, " rows"]:
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
    leave = getattr(steps, "select_beams", None) or (lambda rows: steps.select(rows.flatten()))
    sentence = torch.arange(len(source), device=source.device).repeat_interleave(copies)
    if copies > 1:
        steps.select(sentence)
    limit = options.limits(source_lengths).repeat_interleave(copies)
    token = torch.full_like(sentence, specials.bos)
    total = torch.zeros(len(token), device=token.device)
    record, length = Record(len(source), options.best), 0
    while len(token):
        length += 1
        token, own = choose(stepped(steps, token), length)
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
            leave(rows[going][:, None])
    return record


def _some(nodes: Nodes, which: Tensor) -> Nodes:
    return Nodes(*(column[which] for column in nodes))
