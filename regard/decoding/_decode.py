"""The front door of the searches."""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Int
from torch import Tensor

from regard.decoding._beam import search
from regard.decoding._best import Best
from regard.decoding._protocol import Model, Specials, at_rest
from regard.decoding._record import Record
from regard.decoding._walk import drawn, likeliest, walk
from regard.decoding.hypothesis import Hypothesis, Trace
from regard.decoding.options import Decoding
from regard.errors import ShapeError


def decode(
    model: Model,
    source: Int[Tensor, "rows source"],
    source_lengths: Int[Tensor, " rows"],
    options: Decoding = Decoding(),
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
    >>> [best.ids for best, *_ in decode(Countdown(), source, torch.tensor([2, 2]))]
    [[6, 5, 4], [8, 7, 6, 5, 4]]
    """
    return _search(model, source, source_lengths, options, generator, Specials(bos, eos, pad)).hypotheses()


def trace(
    model: Model,
    source: Int[Tensor, "rows source"],
    source_lengths: Int[Tensor, " rows"],
    options: Decoding = Decoding(),
    *,
    generator: torch.Generator | None = None,
    bos: int = 2,
    eos: int = 3,
    pad: int = 0,
) -> list[tuple[list[Hypothesis], Trace]]:
    """What `decode` gives, and with it how the search came there: every candidate, its score and its parent."""
    record = _search(model, source, source_lengths, options, generator, Specials(bos, eos, pad))
    return list(zip(record.hypotheses(), record.traces(), strict=True))


def greedy(
    model: Model,
    source: Int[Tensor, "rows source"],
    source_lengths: Int[Tensor, " rows"],
    options: Decoding = Decoding(),
    *,
    bos: int = 2,
    eos: int = 3,
    pad: int = 0,
) -> list[Hypothesis]:
    """The likeliest token at every step: one translation of each sentence."""
    options = replace(options, method="greedy", best=1)
    found = decode(model, source, source_lengths, options, bos=bos, eos=eos, pad=pad)
    return [several[0] for several in found]


def beam(
    model: Model,
    source: Int[Tensor, "rows source"],
    source_lengths: Int[Tensor, " rows"],
    options: Decoding = Decoding(),
    *,
    bos: int = 2,
    eos: int = 3,
    pad: int = 0,
) -> list[list[Hypothesis]]:
    """The best translations that a beam search finds; the search is described in `Decoding`."""
    options = replace(options, method="beam")
    return decode(model, source, source_lengths, options, bos=bos, eos=eos, pad=pad)


def sample(
    model: Model,
    source: Int[Tensor, "rows source"],
    source_lengths: Int[Tensor, " rows"],
    options: Decoding = Decoding(),
    *,
    generator: torch.Generator | None = None,
    bos: int = 2,
    eos: int = 3,
    pad: int = 0,
) -> list[list[Hypothesis]]:
    """Translations drawn by chance, `options.best` of each sentence."""
    options = replace(options, method="sample")
    return decode(model, source, source_lengths, options, generator=generator, bos=bos, eos=eos, pad=pad)


def _search(
    model: Model,
    source: Tensor,
    source_lengths: Tensor,
    options: Decoding,
    generator: torch.Generator | None,
    specials: Specials,
) -> Record:
    if source.dim() != 2 or source_lengths.shape != source.shape[:1]:
        raise ShapeError(
            "decode: source must be (rows, source) with source_lengths (rows), but their shapes are"
            f" {tuple(source.shape)} and {tuple(source_lengths.shape)}."
        )
    if not len(source):
        return Record(0, options.best)
    with at_rest(model):
        if options.method == "beam":
            return search(model, source, source_lengths, options, specials)
        if options.method == "greedy":
            choose = likeliest(Best(specials, options.min_length, source.device))
        else:
            choose = drawn(options, specials, generator)
        return walk(model, source, source_lengths, options, specials, choose)
