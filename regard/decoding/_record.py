"""What a search wrote down on its way: every token with its parent, from which translations are read back."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from regard.decoding.hypothesis import Candidate, Hypothesis, Trace


class Nodes(NamedTuple):
    """Tokens written at one step, as columns of any shape.

    `parent` is a row of the step before; `log_prob` is that of the token alone, `score` that of all up to it,
    -inf for an empty place.
    """

    sentence: Tensor
    token: Tensor
    parent: Tensor
    log_prob: Tensor
    score: Tensor


class Level(NamedTuple):
    """One step as plain lists: first the rows that went on, then those that ended, then those given up."""

    sentence: list[int]
    token: list[int]
    parent: list[int]
    log_prob: list[float]
    score: list[float]
    going: int
    ended: int

    def has_ended(self, index: int) -> bool:
        return self.going <= index < self.going + self.ended


class Record:
    """The steps of a search. Tensors are kept as they are, and read only when the search is over."""

    def __init__(self, sentences: int, best: int):
        self.sentences, self.best = sentences, best
        self._levels: list[tuple[list[Nodes], int, int]] = []

    def add(self, going: Nodes, ended: Nodes | None = None, left: Nodes | None = None) -> None:
        """Write down a step; `going` is in the order of the rows of the next step."""
        parts = [nodes for nodes in (going, ended, left) if nodes is not None]
        self._levels.append((parts, going.token.numel(), 0 if ended is None else ended.token.numel()))

    def hypotheses(self) -> list[list[Hypothesis]]:
        """The best translations of each sentence, best first; unfinished ones only where finished are too few."""
        levels = self._lists()
        ends: list[list[tuple[bool, float, int, int]]] = [[] for _ in range(self.sentences)]
        for number, level in enumerate(levels):
            for index in range(level.going, len(level.token)):
                one = (level.has_ended(index), level.score[index], number, index)
                ends[level.sentence[index]].append(one)
        chosen = (sorted(several, key=lambda one: one[:2], reverse=True)[: self.best] for several in ends)
        return [
            [_read_back(levels, number, index) for _, score, number, index in several if score > -math.inf]
            for several in chosen
        ]

    def traces(self) -> list[Trace]:
        """The search of each sentence as a tree."""
        trees: list[list[tuple[Candidate, ...]]] = [[] for _ in range(self.sentences)]
        before: dict[int, int] = {}  # of a row: its place among its sentence's candidates
        for level in self._lists():
            step: list[list[Candidate]] = [[] for _ in range(self.sentences)]
            here: dict[int, int] = {}
            for index, (sentence, score) in enumerate(zip(level.sentence, level.score, strict=True)):
                if score == -math.inf:
                    continue
                here[index] = len(step[sentence])
                parent = before.get(level.parent[index], -1)
                token, own, ended = level.token[index], level.log_prob[index], level.has_ended(index)
                step[sentence].append(Candidate(token, own, score, parent, ended))
            before = here
            for tree, candidates in zip(trees, step, strict=True):
                if candidates:
                    tree.append(tuple(candidates))
        return [Trace(tuple(tree)) for tree in trees]

    def _lists(self) -> list[Level]:
        return [_level(*level) for level in self._levels]


def _level(parts: list[Nodes], going: int, ended: int) -> Level:
    columns = (torch.cat([part.flatten() for part in column]) for column in zip(*parts, strict=True))
    sentence, token, parent, log_prob, score = (column.tolist() for column in columns)
    return Level(sentence, token, parent, log_prob, score, going, ended)


def _read_back(levels: list[Level], number: int, index: int) -> Hypothesis:
    """A translation from its last token to its first."""
    score, finished = levels[number].score[index], levels[number].has_ended(index)
    ids, log_probs = [], []
    for level in reversed(levels[: number + 1]):
        ids.append(level.token[index])
        log_probs.append(level.log_prob[index])
        index = level.parent[index]
    ids, log_probs = ids[::-1], log_probs[::-1]
    return Hypothesis(ids[:-1] if finished else ids, score, math.fsum(log_probs), log_probs, finished)
