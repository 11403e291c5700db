"""What a search wrote down on its way: every token with its parent, from which translations are read back."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from regard.decoding.types import Candidate, Hypothesis, SearchTrace


class TokenColumns(NamedTuple):
    """Tokens written at one step, as columns of any shape.

    `parent` is a row of the step before; `log_prob` is that of the token alone, `score` that of all up to it,
    -inf for an empty place.
    """

    sentence: Tensor
    token: Tensor
    parent: Tensor
    log_prob: Tensor
    score: Tensor


class SearchStep(NamedTuple):
    """One step as plain lists: first the rows that went on, then those that ended, then those given up."""

    sentence: list[int]
    token: list[int]
    parent: list[int]
    log_prob: list[float]
    score: list[float]
    num_unfinished: int
    num_finished: int

    def is_finished(self, index: int) -> bool:
        return self.num_unfinished <= index < self.num_unfinished + self.num_finished


class SearchRecord:
    """The steps of a search. Tensors are kept as they are, and read only when the search is over."""

    def __init__(self, num_sentences: int, num_best: int):
        self.num_sentences, self.num_best = num_sentences, num_best
        self._steps: list[tuple[list[TokenColumns], int, int]] = []

    def add(
        self,
        unfinished: TokenColumns,
        finished: TokenColumns | None = None,
        abandoned: TokenColumns | None = None,
    ) -> None:
        """Write down a step; `going` is in the order of the rows of the next step."""
        parts = [nodes for nodes in (unfinished, finished, abandoned) if nodes is not None]
        self._steps.append(
            (parts, unfinished.token.numel(), 0 if finished is None else finished.token.numel())
        )

    def hypotheses(self) -> list[list[Hypothesis]]:
        """The best translations of each sentence, best first; unfinished ones only where finished are too few."""
        levels = self._to_lists()
        ends: list[list[tuple[bool, float, int, int]]] = [[] for _ in range(self.num_sentences)]
        for number, level in enumerate(levels):
            for index in range(level.num_unfinished, len(level.token)):
                one = (level.is_finished(index), level.score[index], number, index)
                ends[level.sentence[index]].append(one)
        chosen = (sorted(several, key=lambda one: one[:2], reverse=True)[: self.num_best] for several in ends)
        return [
            [_backtrack(levels, number, index) for _, score, number, index in several if score > -math.inf]
            for several in chosen
        ]

    def traces(self) -> list[SearchTrace]:
        """The search of each sentence as a tree."""
        trees: list[list[tuple[Candidate, ...]]] = [[] for _ in range(self.num_sentences)]
        before: dict[int, int] = {}  # of a row: its place among its sentence's candidates
        for level in self._to_lists():
            step: list[list[Candidate]] = [[] for _ in range(self.num_sentences)]
            here: dict[int, int] = {}
            for index, (sentence, score) in enumerate(zip(level.sentence, level.score, strict=True)):
                if score == -math.inf:
                    continue
                here[index] = len(step[sentence])
                parent = before.get(level.parent[index], -1)
                token, own, ended = level.token[index], level.log_prob[index], level.is_finished(index)
                step[sentence].append(Candidate(token, own, score, parent, ended))
            before = here
            for tree, candidates in zip(trees, step, strict=True):
                if candidates:
                    tree.append(tuple(candidates))
        return [SearchTrace(tuple(tree)) for tree in trees]

    def _to_lists(self) -> list[SearchStep]:
        return [_make_step(*level) for level in self._steps]


def _make_step(parts: list[TokenColumns], num_unfinished: int, num_finished: int) -> SearchStep:
    columns = (torch.cat([part.flatten() for part in column]) for column in zip(*parts, strict=True))
    sentence, token, parent, log_prob, score = (column.tolist() for column in columns)
    return SearchStep(sentence, token, parent, log_prob, score, num_unfinished, num_finished)


def _backtrack(steps: list[SearchStep], step: int, index: int) -> Hypothesis:
    """A translation from its last token to its first."""
    score, finished = steps[step].score[index], steps[step].is_finished(index)
    ids, log_probs = [], []
    for level in reversed(steps[: step + 1]):
        ids.append(level.token[index])
        log_probs.append(level.log_prob[index])
        index = level.parent[index]
    ids, log_probs = ids[::-1], log_probs[::-1]
    return Hypothesis(ids[:-1] if finished else ids, score, math.fsum(log_probs), log_probs, finished)
