"""The record of a search: every token with its parent, from which hypotheses and traces are built."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from regard.decoding.types import Candidate, Hypothesis, SearchTrace

__all__ = ["SearchRecord", "SearchStep", "TokenColumns"]


class TokenColumns(NamedTuple):
    """Tokens of one step, as tensors of one shape.

    Args:
        sentence: index of the sentence
        token: id of the token
        parent: row of the previous step that it continues
        log_prob: log-probability of this token alone
        score: score of the sequence up to here, -inf for an unused place of a beam
    """

    sentence: Tensor
    token: Tensor
    parent: Tensor
    log_prob: Tensor
    score: Tensor

    def select(self, keep: Tensor) -> TokenColumns:
        """The tokens (or rows of tokens) where `keep` is True, or those at these indices."""
        return TokenColumns(*(column[keep] for column in self))


class SearchStep(NamedTuple):
    """One step as lists: first rows that continue, then finished ones, then abandoned ones.

    Args:
        sentence: the sentence of each row
        token: the token that each row takes
        parent: the row of the step before
        log_prob: the log-probability of the token
        score: the score of the sequence up to the token
        num_unfinished, num_finished: sizes of the first two groups
    """

    sentence: list[int]
    token: list[int]
    parent: list[int]
    log_prob: list[float]
    score: list[float]
    num_unfinished: int
    num_finished: int

    def is_finished(self, index: int) -> bool:
        """Whether the sequence of this index ends with EOS at this step."""
        return self.num_unfinished <= index < self.num_unfinished + self.num_finished


class SearchRecord:
    """The steps of a search. Tensors are collected as they are, and read only after the search.

    Args:
        num_sentences: sentences in the batch
        num_best: hypotheses to return for each sentence
    """

    def __init__(self, num_sentences: int, num_best: int):
        self.num_sentences, self.num_best = num_sentences, num_best
        self._steps: list[tuple[list[TokenColumns], int, int]] = []

    def add(
        self, unfinished: TokenColumns, finished: TokenColumns | None = None, abandoned: TokenColumns | None = None
    ) -> None:
        """Add a step.

        Args:
            unfinished: tokens that continue, in the order of the rows of the next step
            finished: tokens that end a sequence
            abandoned: tokens that do not continue, because their sentence is done or too long
        """
        parts = [part for part in (unfinished, finished, abandoned) if part is not None]
        num_finished = 0 if finished is None else finished.token.numel()
        self._steps.append((parts, unfinished.token.numel(), num_finished))

    def hypotheses(self) -> list[list[Hypothesis]]:
        """The best hypotheses of each sentence, best first; unfinished ones where there are too few finished ones."""
        steps = self._to_lists()
        ends: list[list[tuple[bool, float, int, int]]] = [[] for _ in range(self.num_sentences)]
        for number, step in enumerate(steps):
            for index in range(step.num_unfinished, len(step.token)):
                end = (step.is_finished(index), step.score[index], number, index)
                ends[step.sentence[index]].append(end)
        ranked = (sorted(row, key=lambda end: end[:2], reverse=True)[: self.num_best] for row in ends)
        return [
            [_backtrack(steps, number, index) for _, score, number, index in row if score > -math.inf] for row in ranked
        ]

    def traces(self) -> list[SearchTrace]:
        """The search of each sentence as a tree."""
        trees: list[list[tuple[Candidate, ...]]] = [[] for _ in range(self.num_sentences)]
        previous: dict[int, int] = {}  # from a row to its index among the candidates of its sentence
        for step in self._to_lists():
            candidates: list[list[Candidate]] = [[] for _ in range(self.num_sentences)]
            current: dict[int, int] = {}
            for index, (sentence, score) in enumerate(zip(step.sentence, step.score, strict=True)):
                if score == -math.inf:
                    continue
                current[index] = len(candidates[sentence])
                parent = previous.get(step.parent[index], -1)
                token, log_prob = step.token[index], step.log_prob[index]
                candidates[sentence].append(Candidate(token, log_prob, score, parent, step.is_finished(index)))
            previous = current
            for tree, row in zip(trees, candidates, strict=True):
                if row:
                    tree.append(tuple(row))
        return [SearchTrace(tuple(tree)) for tree in trees]

    def _to_lists(self) -> list[SearchStep]:
        return [_make_step(*step) for step in self._steps]


def _make_step(parts: list[TokenColumns], num_unfinished: int, num_finished: int) -> SearchStep:
    columns = (torch.cat([part.flatten() for part in column]) for column in zip(*parts, strict=True))
    sentence, token, parent, log_prob, score = (column.tolist() for column in columns)
    return SearchStep(sentence, token, parent, log_prob, score, num_unfinished, num_finished)


def _backtrack(steps: list[SearchStep], number: int, index: int) -> Hypothesis:
    """The hypothesis that ends at this index of step `number`, read from its last token to its first."""
    score, finished = steps[number].score[index], steps[number].is_finished(index)
    token_ids, log_probs = [], []
    for step in reversed(steps[: number + 1]):
        token_ids.append(step.token[index])
        log_probs.append(step.log_prob[index])
        index = step.parent[index]
    token_ids, log_probs = token_ids[::-1], log_probs[::-1]
    if finished:
        token_ids = token_ids[:-1]
    return Hypothesis(token_ids, score, math.fsum(log_probs), log_probs, finished)
