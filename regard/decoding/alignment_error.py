"""How well links agree with those that people made: the alignment error rate."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from regard.decoding.alignment import Alignment, LinkMethod
from regard.errors import DataError, UnsupportedError, UsageError

Link = tuple[int, int]


@dataclass(frozen=True)
class GoldAlignment:
    """A pair of sentences whose words were linked by hand; the possible links have the sure ones among them."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    sure: frozenset[Link]
    possible: frozenset[Link]


class HeadError(NamedTuple):
    """A head of a layer, and its alignment error rate."""

    layer: int
    head: int
    aer: float


def alignment_error_rate(
    predicted: Sequence[Set[Link]], sure: Sequence[Set[Link]], possible: Sequence[Set[Link]] | None = None
) -> float:
    """The alignment error rate of a corpus: 0 is perfect, 1 has nothing right.

        AER = 1 - (|A & S| + |A & P|) / (|A| + |S|),    S within P

    Och and Ney (2003), Computational Linguistics 29(1): every predicted link A should be possible, every sure
    one predicted. Counts are summed over sentences before they are divided.

    >>> alignment_error_rate([{(0, 0), (1, 1)}], sure=[{(0, 0)}], possible=[{(0, 0), (1, 1)}])
    0.0
    """
    possible = sure if possible is None else possible
    if not len(predicted) == len(sure) == len(possible):
        raise UsageError(
            f"aer: links of the same sentences, not of {len(predicted)} predicted, {len(sure)} sure and"
            f" {len(possible)} possible."
        )
    right = all_links = 0
    for a, s, p in zip(predicted, sure, possible, strict=True):
        right += len(a & s) + len(a & (p | s))
        all_links += len(a) + len(s)
    return 1 - right / all_links if all_links else 0.0


def best_head(
    alignments: Sequence[Alignment],
    gold: Sequence[GoldAlignment],
    method: LinkMethod = "argmax",
    threshold: float = 0.25,
) -> HeadError:
    """The layer and head whose links agree best with the gold ones; of equals the first."""
    _check_pairs(alignments, gold)
    layers, heads = alignments[0].weights.shape[:2]
    predicted: dict[Link, list[set[Link]]]
    predicted = {(layer, head): [] for layer in range(layers) for head in range(heads)}
    if not predicted:
        raise UnsupportedError("best_head: this model has no attention, so there is no head to choose.")
    for one in alignments:
        linked = one.link_matrix(method, threshold).tolist()
        for (layer, head), links in predicted.items():
            rows = enumerate(linked[layer][head])
            links.append({(i, j) for j, row in rows for i, here in enumerate(row) if here})
    sure, possible = [one.sure for one in gold], [one.possible for one in gold]
    rated = [
        HeadError(*place, alignment_error_rate(links, sure, possible)) for place, links in predicted.items()
    ]
    return min(rated, key=lambda one: one.aer)


def _check_pairs(alignments: Sequence[Alignment], gold: Sequence[GoldAlignment]) -> None:
    if not alignments or len(alignments) != len(gold):
        raise UsageError(f"best_head: one alignment of each gold pair, not {len(alignments)} of {len(gold)}.")
    for number, (one, pair) in enumerate(zip(alignments, gold, strict=True)):
        for side in ("source", "target"):
            count, wanted = len(one.groups(side)), len(getattr(pair, side))
            if count != wanted:
                raise UsageError(
                    f"best_head: the {side} of alignment {number} has {count} words, its gold pair has {wanted}."
                )


def read_gold(path: str | PathLike[str]) -> list[GoldAlignment]:
    """Read a file of gold links, plain and in UTF-8; `parse_gold` says what stands in a line."""
    with Path(path).open("rb") as file:  # bytes, so that a wrong encoding is found in its line
        return parse_gold(
            (_decode_line(line, f"{path}, line {n}") for n, line in enumerate(file, 1)), str(path)
        )


def parse_gold(lines: Iterable[str], name: str = "gold") -> list[GoldAlignment]:
    """Gold links from lines: source words, target words and links, with tabs between them.

    A link is "i-j" (sure) or "i?j" (possible) for word i of the source and word j of the target, counted from 0.
    The name is where the lines come from, for messages.

    >>> parse_gold(["das Haus\\tthe house\\t0-0 1-1"])[0].target
    ('the', 'house')
    """
    return [_parse_line(line, f"{name}, line {number}") for number, line in enumerate(lines, 1)]


def _decode_line(line: bytes, location: str) -> str:
    try:
        return line.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{location}: byte {error.start} is not UTF-8; convert the file to it.") from None


def _parse_line(line: str, location: str) -> GoldAlignment:
    fields = line.split("\t")
    if len(fields) != 3:
        raise DataError(
            f"{location}: source, target and links with tabs between them, not {len(fields)} fields."
        )
    source, target = fields[0].split(), fields[1].split()
    sure: set[Link] = set()
    possible: set[Link] = set()
    for text in fields[2].split():
        found = re.fullmatch(r"([0-9]+)([-?])([0-9]+)", text)
        if found is None:
            raise DataError(f"{location}: a link is i-j (sure) or i?j (possible), not {text!r}.")
        i, j = int(found[1]), int(found[3])
        if i >= len(source) or j >= len(target):
            raise DataError(
                f"{location}: link {text} leaves the sentences of {len(source)} and {len(target)} words; words are"
                " counted from 0."
            )
        (sure if found[2] == "-" else possible).add((i, j))
    return GoldAlignment(tuple(source), tuple(target), frozenset(sure), frozenset(sure | possible))
