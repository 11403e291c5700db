"""Byte pair encoding of one word, with merges left out by chance."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from itertools import pairwise
from random import Random

from regard.data._vocabulary import Vocabulary
from regard.data.batch import UNK

VARIANTS = 64  # ways to cut a word under dropout
KEPT = 200_000  # words remembered before beginning anew
Ranks = Mapping[tuple[str, str], int]


def merged(word: str, ranks: Ranks, dropout: float = 0.0, random: Random | None = None) -> list[str]:
    """The pieces of a word: its best-ranked pair of neighbors is joined, again and again.

    With dropout, each pair is passed over with that probability each time the best is looked for, so that a word
    is cut in many ways and its rarer pieces are learned too. BPE-dropout: Provilkov, Emelianenko and Voita
    (2020), arXiv 1910.13267. Pairs are drawn for in the order of their rank and only as far as the first that
    stays, which comes to the same and is quicker.

    >>> ranks = {("e", "r"): 0, ("h", "er"): 1}
    >>> merged("here", ranks), merged("here", ranks, dropout=1.0, random=Random(0))
    (['her', 'e'], ['h', 'e', 'r', 'e'])
    """
    symbols: list[str] = list(word)
    end = len(symbols)
    after, before = list(range(1, end + 1)), list(range(-1, end - 1))
    ready = [(ranks[pair], i) for i, pair in enumerate(pairwise(symbols)) if pair in ranks]
    heapify(ready)
    passed: list[tuple[int, int]] = []
    while ready:
        rank, i = best = heappop(ready)
        j = after[i]
        if j >= end or ranks.get((symbols[i], symbols[j])) != rank:
            continue  # one of the two has been joined with another since
        if random is not None and random.random() < dropout:
            passed.append(best)
            continue
        symbols[i] += symbols[j]
        symbols[j] = ""
        after[i] = after[j]
        if after[i] < end:
            before[after[i]] = i
        for left in (before[i], i):
            if left >= 0 and after[left] < end:
                rank_here = ranks.get((symbols[left], symbols[after[left]]))
                if rank_here is not None:
                    heappush(ready, (rank_here, left))
        for item in passed:
            heappush(ready, item)
        passed.clear()
    return [symbol for symbol in symbols if symbol]


class Variants:
    """The ways to cut a word under one dropout, each settled by the word and an index below VARIANTS.

    So a draw is an index, and a word that comes again costs a look into a table. Forgetting changes nothing.
    """

    def __init__(self, vocabulary: Vocabulary, dropout: float) -> None:
        self.dropout = dropout
        self._ranks = {pair: rank for rank, pair in enumerate(vocabulary.merges)}
        self._numbers = {token: number for number, token in enumerate(vocabulary.tokens)}
        self._known: dict[str, list[tuple[int, ...] | None]] = {}

    def draw(self, pieces: list[str], random: Random) -> list[int]:
        numbers: list[int] = []
        for piece in pieces:
            index = int(random.random() * VARIANTS)
            ways = self._known.get(piece)
            numbers += (ways and ways[index]) or self._cut(piece, index)
        return numbers

    def _cut(self, piece: str, index: int) -> tuple[int, ...]:
        if len(self._known) >= KEPT:
            self._known.clear()
        random = Random(f"{piece} {index} {self.dropout!r}".encode("utf-8", "replace"))
        tokens = merged(piece, self._ranks, self.dropout, random)
        numbers = tuple(self._numbers.get(token, UNK) for token in tokens)
        self._known.setdefault(piece, [None] * VARIANTS)[index] = numbers
        return numbers
