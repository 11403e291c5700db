"""What a model must offer to be searched, what a search returns, and the record of its steps.

The record has every token with its parent; hypotheses and traces are built from it after the search.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import ShapeError

__all__ = [
    "AttendingDecoderState", "Candidate", "DecoderState", "FastDecoderState", "Hypothesis", "SearchRecord",
    "SearchTrace", "SpecialTokens", "StepwiseModel", "TokenColumns",
]  # fmt: skip


@runtime_checkable
class DecoderState(Protocol):
    """Target sequences under construction, one token of each row at a time."""

    def step(self, tokens: Int[Tensor, " rows"], /) -> Float[Tensor, "rows vocab"]:
        """Logits of the next token of each row, given the previous one (BOS first)."""

    def reorder(self, rows: Int[Tensor, " new"], /) -> None:
        """Continue with these rows; a row may be dropped, moved, or repeated."""


@runtime_checkable
class AttendingDecoderState(DecoderState, Protocol):
    """A state with attention weights; the coverage penalty needs them."""

    def weights(self) -> Float[Tensor, "rows src_len"]:
        """Attention weights of the last step over the source."""


@runtime_checkable
class FastDecoderState(DecoderState, Protocol):
    """A state with faster methods for beam search; the results are the same."""

    def base2_logits(self, tokens: Int[Tensor, " rows"], block_size: int, /) -> Float[Tensor, "rows padded"]:
        """As `step`, but logits / ln 2 in float32, padded with -inf to a multiple of the block size.

        The search may modify the tensor, so a separate pass that scales the logits is not needed.
        """

    def reorder_beams(self, rows: Int[Tensor, "sentences width"], /) -> None:
        """As `reorder`, but one line of rows per sentence, with sentences in their previous order.

        So the beams of a sentence can share what was computed from its source.
        """


@runtime_checkable
class StepwiseModel(Protocol):
    """A model that encodes its sources once and then decodes step by step."""

    def start_decoding(
        self, source: Int[Tensor, "rows src_len"], source_lengths: Int[Tensor, " rows"], /
    ) -> DecoderState:
        """Encode the sources; the state is at the first target token."""


class SpecialTokens(NamedTuple):
    """Ids of the tokens that are not words.

    Args:
        bos: beginning of a sequence
        eos: end of a sequence
        pad: padding
    """

    bos: int = 2
    eos: int = 3
    pad: int = 0


@contextmanager
def eval_mode(model: Any) -> Iterator[None]:
    """Disable gradients and dropout inside; afterwards restore the mode of every submodule."""
    modules = [module for module in model.modules() if module.training] if isinstance(model, nn.Module) else []
    for module in modules:
        module.training = False
    try:
        with torch.no_grad():
            yield
    finally:
        for module in modules:
            module.training = True


def checked_step(state: DecoderState, tokens: Int[Tensor, " rows"]) -> Float[Tensor, "rows vocab"]:
    """Take a step and check the shape of its logits."""
    logits = state.step(tokens)
    if logits.dim() != 2 or len(logits) != len(tokens):
        expected = f"logits of shape (rows, vocab) with {len(tokens)} rows"
        raise ShapeError(f"decode: step must return {expected}, not {tuple(logits.shape)}")
    return logits


@dataclass(frozen=True)
class Hypothesis:
    """A decoded sequence and its scores.

    The log-probabilities are the model's own, also for sampling with a temperature or a restricted vocabulary.

    Args:
        token_ids: without BOS and EOS
        score: by which hypotheses are ranked, see `DecodingConfig`
        log_prob: sum of `token_log_probs`
        token_log_probs: one for each token, that of EOS last if the hypothesis is finished
        finished: whether it ends with EOS; otherwise it reached the maximum length

    >>> Hypothesis([7, 9], score=-0.5, log_prob=-0.6, token_log_probs=[-0.1, -0.2, -0.3]).length
    3
    """

    token_ids: list[int]
    score: float
    log_prob: float
    token_log_probs: list[float]
    finished: bool = True

    @property
    def length(self) -> int:
        """Number of tokens, including EOS."""
        return len(self.token_log_probs)

    def to_json(self) -> dict[str, Any]:
        """All fields as plain values."""
        return asdict(self)


@dataclass(frozen=True)
class Candidate:
    """A token that was considered at one step of a search.

    Args:
        token: its id
        log_prob: log-probability of this token alone
        score: score of the sequence up to here
        parent: index of the previous candidate among those of the step before, -1 for the first token
        finished: whether the sequence ends here

    Example:
        >>> Candidate(token=7, log_prob=-0.1, score=-0.1, parent=-1, finished=False).token
        7
    """

    token: int
    log_prob: float
    score: float
    parent: int
    finished: bool


@dataclass(frozen=True)
class SearchTrace:
    """The search of one sequence as a tree.

    Args:
        steps: the candidates of each step

    >>> first, end = Candidate(7, -0.1, -0.1, -1, False), Candidate(3, -0.2, -0.3, 0, True)
    >>> SearchTrace(((first,), (end,))).path(1, 0)
    [7, 3]
    """

    steps: tuple[tuple[Candidate, ...], ...]

    def path(self, step: int, index: int) -> list[int]:
        """Tokens that lead to a candidate, inclusive."""
        tokens: list[int] = []
        while index >= 0:
            candidate = self.steps[step][index]
            tokens.append(candidate.token)
            step, index = step - 1, candidate.parent
        return tokens[::-1]

    def to_json(self, decode_token: Callable[[int], str] | None = None) -> dict[str, Any]:
        """Plain lists and numbers; `decode_token` adds the text of each token."""

        def to_dict(candidate: Candidate) -> dict[str, Any]:
            text = {} if decode_token is None else {"text": decode_token(candidate.token)}
            return text | asdict(candidate)

        return {"steps": [[to_dict(candidate) for candidate in step] for step in self.steps]}


class TokenColumns(NamedTuple):
    """Tokens of one step, as tensors of one shape, or as lists once the search is over.

    Args:
        sentence: index of the sentence
        token: id of the token
        parent: row of the previous step that it continues
        log_prob: log-probability of this token alone
        score: score of the sequence up to here, -inf for an unused place of a beam
    """

    sentence: Any
    token: Any
    parent: Any
    log_prob: Any
    score: Any

    def select(self, keep: Tensor) -> TokenColumns:
        """The tokens (or rows of tokens) where `keep` is True, or those at these indices."""
        return TokenColumns(*(column[keep] for column in self))


RecordedStep = tuple[TokenColumns, range]  # as lists, and the indices of those that end with EOS


class SearchRecord:
    """The steps of a search. Tensors are collected as they are, and read only after the search.

    Args:
        num_sentences: sentences in the batch
        num_best: hypotheses to return for each sentence
    """

    def __init__(self, num_sentences: int, num_best: int):
        self.num_sentences, self.num_best = num_sentences, num_best
        self._steps: list[tuple[list[TokenColumns], range]] = []

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
        start = unfinished.token.numel()
        self._steps.append((parts, range(start, start + (0 if finished is None else finished.token.numel()))))

    def hypotheses(self) -> list[list[Hypothesis]]:
        """The best hypotheses of each sentence, best first; unfinished ones where there are too few finished ones."""
        steps = self._to_lists()
        ends: list[list[tuple[bool, float, int, int]]] = [[] for _ in range(self.num_sentences)]
        for number, (step, finished) in enumerate(steps):
            for index in range(finished.start, len(step.token)):
                ends[step.sentence[index]].append((index in finished, step.score[index], number, index))
        ranked = (sorted(row, key=lambda end: end[:2], reverse=True)[: self.num_best] for row in ends)
        return [[_backtrack(steps, *place) for _, score, *place in row if score > -math.inf] for row in ranked]

    def traces(self) -> list[SearchTrace]:
        """The search of each sentence as a tree."""
        trees: list[list[tuple[Candidate, ...]]] = [[] for _ in range(self.num_sentences)]
        previous: dict[int, int] = {}  # from a row to its index among the candidates of its sentence
        for step, finished in self._to_lists():
            candidates: list[list[Candidate]] = [[] for _ in range(self.num_sentences)]
            current: dict[int, int] = {}
            for index, (sentence, token, parent, log_prob, score) in enumerate(zip(*step, strict=True)):
                if score > -math.inf:
                    current[index] = len(candidates[sentence])
                    parent_index = previous.get(parent, -1)
                    candidates[sentence].append(Candidate(token, log_prob, score, parent_index, index in finished))
            previous = current
            for tree, row in zip(trees, candidates, strict=True):
                if row:
                    tree.append(tuple(row))
        return [SearchTrace(tuple(tree)) for tree in trees]

    def _to_lists(self) -> list[RecordedStep]:
        """The columns of each step as lists: first tokens that continue, then finished ones, then abandoned ones."""
        steps = []
        for parts, finished in self._steps:
            columns = (torch.cat([part.flatten() for part in column]).tolist() for column in zip(*parts, strict=True))
            steps.append((TokenColumns(*columns), finished))
        return steps


def _backtrack(steps: list[RecordedStep], number: int, index: int) -> Hypothesis:
    """The hypothesis that ends at this index of step `number`, read from its last token to its first."""
    score, is_finished = steps[number][0].score[index], index in steps[number][1]
    token_ids, log_probs = [], []
    for step, _ in reversed(steps[: number + 1]):
        token_ids.append(step.token[index])
        log_probs.append(step.log_prob[index])
        index = step.parent[index]
    token_ids = token_ids[:0:-1] if is_finished else token_ids[::-1]  # without EOS
    return Hypothesis(token_ids, score, math.fsum(log_probs), log_probs[::-1], is_finished)
