"""Every head against alignments that people made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli._say import refuse

if TYPE_CHECKING:
    from regard.decoding import Head
    from regard.recipes import Translator


@dataclass(frozen=True)
class Heads:
    """The alignment error rate of each layer and head, the best first, and that of the mean over all."""

    sentences: int
    rated: list[Head]
    mean: float

    def as_dict(self) -> dict[str, Any]:
        return {
            "sentences": self.sentences,
            "heads": [one._asdict() for one in self.rated],
            "mean": self.mean,
        }


def judged(translator: Translator, path: Path) -> Heads:
    """Force the translations of a gold file, and compare where they looked with its links."""
    from regard.decoding import Head, aer, read_gold

    gold = read_gold(path)
    if not gold:
        refuse(f"{path} is empty: it should have source, target and links a line, with tabs between them.")
    seen = translator.align(
        [_joined(pair.source, translator.source.kind) for pair in gold],
        [_joined(pair.target, translator.target.kind) for pair in gold],
    )
    for line, (pair, one) in enumerate(zip(gold, seen, strict=True), 1):
        for side in ("source", "target"):
            count, wanted = len(one.groups(side)), len(getattr(pair, side))
            if count != wanted:
                refuse(f"{path}, line {line}: the {side} has {wanted} words, but the model sees {count}.")
    sure, possible = [pair.sure for pair in gold], [pair.possible for pair in gold]

    def error(layer: int | None = None, head: int | None = None) -> float:
        return aer([one.links(layer, head) for one in seen], sure, possible)

    layers, heads = seen[0].weights.shape[:2]
    rated = [Head(layer, head, error(layer, head)) for layer in range(layers) for head in range(heads)]
    return Heads(len(gold), sorted(rated, key=lambda one: one.aer), error())


def _joined(words: tuple[str, ...], kind: str) -> str:
    """Words as a text; where every character is a token, they stand without spaces."""
    return ("" if kind == "char" else " ").join(words)
