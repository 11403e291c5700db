"""Every head against alignments that people made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli._limit import Limit, TooLong
from regard.cli.output import print_status
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.decoding import Alignment, GoldAlignment, HeadError
    from regard.tasks import Translator


@dataclass(frozen=True)
class Heads:
    """The alignment error rate of each layer and head, the best first, that of the mean over all, and in hindsight."""

    sentences: int
    rated: list[HeadError]
    mean: float
    hindsight: float | None = None  # a recurrent model's, now that each word is known

    def as_dict(self) -> dict[str, Any]:
        return {
            "sentences": self.sentences,
            "heads": [one._asdict() for one in self.rated],
            "mean": self.mean,
            "hindsight": self.hindsight,
        }


def judged(translator: Translator, path: Path, over: TooLong, most: int | None) -> Heads:
    """Force the translations of a gold file, and compare where they looked with its links."""
    from regard.decoding import HeadError, alignment_error_rate

    numbered = _usable(translator, path, over, most)
    gold = [pair for _, pair in numbered]
    texts = _texts(translator, gold)
    seen = translator.align(*texts, spaced=True)
    for (line, pair), one in zip(numbered, seen, strict=True):
        for side in ("source", "target"):
            count, wanted = len(one.groups(side)), len(getattr(pair, side))
            if count != wanted:
                raise UsageError(f"{path}, line {line}: the {side} has {wanted} words, but the model sees {count}.")
    sure, possible = [pair.sure for pair in gold], [pair.possible for pair in gold]

    def error(layer: int | None = None, head: int | None = None, of: Sequence[Alignment] = seen) -> float:
        return alignment_error_rate([one.links(layer, head) for one in of], sure, possible)

    layers, heads = seen[0].weights.shape[:2]
    rated = [HeadError(layer, head, error(layer, head)) for layer in range(layers) for head in range(heads)]
    later = error(of=translator.posterior_align(*texts, spaced=True)) if translator.can_posterior_align else None
    return Heads(len(gold), sorted(rated, key=lambda one: one.aer), error(), later)


def _usable(translator: Translator, path: Path, over: TooLong, most: int | None) -> list[tuple[int, GoldAlignment]]:
    """The pairs of the file with their lines; one that had to be cut has lost its links, and is left out."""
    from regard.data.text_files import read_lines
    from regard.decoding import parse_gold

    gold = parse_gold(read_lines(path), str(path))[:most]
    sources, _ = _texts(translator, gold)
    fitted = Limit(translator, over, f"{path}, line").fitted(sources)
    kept = [
        (line, pair)
        for line, (pair, before, after) in enumerate(zip(gold, sources, fitted, strict=True), 1)
        if before == after
    ]
    if not kept:
        raise UsageError(f"{path}: no pair is left to judge, as all had to be cut.")
    if cut := len(gold) - len(kept):
        was, its = ("was", "its") if cut == 1 else ("were", "their")
        print_status(f"{path}: {cut:,} of {len(gold):,} pairs {was} cut, so {its} links are not judged")
    return kept


def _texts(translator: Translator, gold: Sequence[GoldAlignment]) -> tuple[list[str], list[str]]:
    return (
        [_joined(pair.source, translator.source.model_type) for pair in gold],
        [_joined(pair.target, translator.target.model_type) for pair in gold],
    )


def _joined(words: tuple[str, ...], kind: str) -> str:
    """Words as a text; where every character is a token, they stand without spaces."""
    return ("" if kind == "char" else " ").join(words)
