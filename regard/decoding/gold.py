"""Gold alignments and the alignment error rate."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from itertools import product
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from jaxtyping import Bool
from torch import Tensor

from regard.decoding.alignment import Alignment, LinkMethod
from regard.errors import DataError, UnsupportedError, UsageError

__all__ = [
    "GoldAlignment", "HeadError", "Link", "alignment_error_rate", "best_head", "head_errors", "parse_gold", "read_gold",
]  # fmt: skip

Link = tuple[int, int]
LinkSets = Sequence[Set[Link]]  # one for each sentence
Alignments = Sequence[Alignment]
LinkMatrices = Sequence[Bool[Tensor, "layers heads _ _"]]  # one for each sentence


@dataclass(frozen=True)
class GoldAlignment:
    """A sentence pair whose words were linked by people.

    Args:
        source, target: words
        sure: links (source word, target word), counted from 0, that everybody agrees on
        possible: links that are acceptable, including the sure ones

    Example:
        >>> sure = frozenset({(0, 0), (1, 1)})
        >>> GoldAlignment(("das", "Haus"), ("the", "house"), sure, possible=sure).target
        ('the', 'house')
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    sure: frozenset[Link]
    possible: frozenset[Link]


class HeadError(NamedTuple):
    """A head of a layer and its alignment error rate.

    Args:
        layer, head: indices
        aer: alignment error rate

    Example:
        >>> min([HeadError(0, 0, 0.4), HeadError(0, 1, 0.2)], key=lambda head: head.aer).head
        1
    """

    layer: int
    head: int
    aer: float


def alignment_error_rate(predicted: LinkSets, sure: LinkSets, possible: LinkSets | None = None) -> float:
    """Alignment error rate of a corpus, from 0 (perfect) to 1.

        AER = 1 - (|A & S| + |A & P|) / (|A| + |S|),    S within P

    Every predicted link A should be possible, and every sure link predicted. Counts are summed over sentences before
    the division.

    Args:
        predicted: links of each sentence
        sure: sure gold links of each sentence
        possible: possible gold links of each sentence; None: the sure ones

    Reference: Och and Ney (2003), Computational Linguistics 29(1).

    >>> alignment_error_rate([{(0, 0), (1, 1)}], sure=[{(0, 0)}], possible=[{(0, 0), (1, 1)}])
    0.0
    """
    possible = sure if possible is None else possible
    if not len(predicted) == len(sure) == len(possible):
        counts = f"{len(predicted)} predicted, {len(sure)} sure and {len(possible)} possible ones"
        raise UsageError(f"alignment_error_rate: expected links of the same sentences, not of {counts}")
    correct = total = 0
    for a, s, p in zip(predicted, sure, possible, strict=True):
        correct += len(a & s) + len(a & (p | s))
        total += len(a) + len(s)
    return 1 - correct / total if total else 0.0


def best_head(
    alignments: Alignments, gold: Sequence[GoldAlignment], method: LinkMethod = "argmax", threshold: float = 0.25
) -> HeadError:
    """The layer and head with the lowest alignment error rate, the first one if several are equal.

    Args:
        alignments: one for each gold alignment, with the same words
        gold: links by people
        method, threshold: as for `Alignment.links`

    Example:
        >>> gold = parse_gold(["das Haus\\tthe house\\t0-0 1-1"])
        >>> weights = torch.stack((torch.eye(2).flip(0), torch.eye(2)))[None]  # one layer, two heads
        >>> alignment = Alignment(("das", "Haus"), ("the", "house"), weights, source_end=False, target_end=False)
        >>> best_head([alignment], gold)
        HeadError(layer=0, head=1, aer=0.0)
    """
    if not alignments or len(alignments) != len(gold):
        expected = f"expected one alignment for each of {len(gold)} gold alignments"
        raise UsageError(f"best_head: {expected}, not {len(alignments)}")
    for (number, alignment), pair in zip(enumerate(alignments), gold, strict=True):
        for side in ("source", "target"):
            count, expected_count = len(alignment.word_groups(side)), len(getattr(pair, side))
            if count != expected_count:
                words = f"has {count} words, its gold alignment has {expected_count}"
                raise UsageError(f"best_head: the {side} of alignment {number} {words}")
    sure, possible = [pair.sure for pair in gold], [pair.possible for pair in gold]
    errors = head_errors([alignment.link_matrix(method, threshold) for alignment in alignments], sure, possible)
    if not errors:
        raise UnsupportedError("best_head: the model has no attention, so there is no head to choose")
    return min(errors, key=lambda error: error.aer)


def head_errors(matrices: LinkMatrices, sure: LinkSets, possible: LinkSets) -> list[HeadError]:
    """The alignment error rate of every head of every layer.

    Args:
        matrices: `Alignment.link_matrix` of each sentence
        sure, possible: gold links of each sentence

    Example:
        >>> head_errors([torch.ones(1, 1, 1, 1, dtype=torch.bool)], sure=[{(0, 0)}], possible=[{(0, 0)}])
        [HeadError(layer=0, head=0, aer=0.0)]
    """
    errors = []
    for layer, head in product(*map(range, matrices[0].shape[:2])):
        links = [{(i, j) for j, i in matrix[layer, head].nonzero().tolist()} for matrix in matrices]
        errors.append(HeadError(layer, head, alignment_error_rate(links, sure, possible)))
    return errors


def read_gold(path: str | PathLike[str]) -> list[GoldAlignment]:
    """Read a UTF-8 file of gold alignments, in the format of `parse_gold`.

    Args:
        path: the file

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> path = Path(tempfile.mkdtemp(), "gold.tsv")
        >>> _ = path.write_text("das Haus\\tthe house\\t0-0 1-1", encoding="utf-8")
        >>> sorted(read_gold(path)[0].sure)
        [(0, 0), (1, 1)]
    """
    with Path(path).open("rb") as file:  # bytes, so that a wrong encoding is reported with its line
        return parse_gold((_decode_line(line, f"{path}, line {n}") for n, line in enumerate(file, 1)), str(path))


def parse_gold(lines: Iterable[str], name: str = "gold") -> list[GoldAlignment]:
    """Parse gold alignments: source words, target words and links, separated by tabs.

    A link is "i-j" (sure) or "i?j" (possible) for source word i and target word j, counted from 0.

    Args:
        lines: one alignment each
        name: origin of the lines, for error messages

    >>> parse_gold(["das Haus\\tthe house\\t0-0 1-1"])[0].target
    ('the', 'house')
    """
    return [_parse_line(line, f"{name}, line {number}") for number, line in enumerate(lines, 1)]


def _decode_line(line: bytes, location: str) -> str:
    try:
        return line.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{location}: byte {error.start} is not UTF-8; convert the file to UTF-8") from None


def _parse_line(line: str, location: str) -> GoldAlignment:
    fields = line.split("\t")
    if len(fields) != 3:
        raise DataError(f"{location}: expected source, target and links separated by tabs, not {len(fields)} fields")
    source, target = fields[0].split(), fields[1].split()
    links: dict[str, set[Link]] = {"-": set(), "?": set()}
    for text in fields[2].split():
        match = re.fullmatch(r"([0-9]+)([-?])([0-9]+)", text)
        if match is None:
            raise DataError(f"{location}: a link must be i-j (sure) or i?j (possible), not {text!r}")
        i, j = int(match[1]), int(match[3])
        if i >= len(source) or j >= len(target):
            sizes = f"{len(source)} and {len(target)} words"
            raise DataError(f"{location}: link {text} is outside the sentences of {sizes}; words are counted from 0")
        links[match[2]].add((i, j))
    return GoldAlignment(tuple(source), tuple(target), frozenset(links["-"]), frozenset(links["-"] | links["?"]))
