"""Tokens as soon as they are chosen: work that emits values, and a model that reports its inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any, TypeVar

from jaxtyping import Float, Int
from torch import Tensor

__all__ = ["ObservedModel", "iterate_emitted"]

ItemT = TypeVar("ItemT")


def iterate_emitted(work: Callable[[Callable[[ItemT], None]], Iterable[ItemT]]) -> Iterator[ItemT]:
    """The values that some work emits, then those that it returns; the work runs in a thread of its own.

    Args:
        work: called with the function that takes the values

    Example:
        >>> def work(emit):
        ...     emit(1)
        ...     return [2]
        >>> list(iterate_emitted(work))
        [1, 2]
    """
    queue: SimpleQueue[tuple[ItemT] | None] = SimpleQueue()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(copy_context().run, work, lambda item: queue.put((item,)))
        running.add_done_callback(lambda _: queue.put(None))
        while (emitted := queue.get()) is not None:
            yield emitted[0]
        yield from running.result()


class ObservedModel:
    """A model that reports each token as soon as it is chosen: when it is the input of the next step.

    Args:
        model: a `StepwiseModel`
        num_rows: number of sentences
        emit: called with the row of a sentence and its next token

    Example:
        >>> from regard.decoding import DecodingConfig, greedy
        >>> from regard.models import RNNSeq2Seq
        >>> tokens, model = [], RNNSeq2Seq(10, 10, embed_dim=4, hidden_dim=8)
        >>> observed = ObservedModel(model.eval(), 1, lambda row, token: tokens.append(token))
        >>> (best,) = greedy(observed, torch.tensor([[5, 3]]), torch.tensor([2]), DecodingConfig(max_length=4))
        >>> tokens == best.token_ids[: len(tokens)]
        True
    """

    def __init__(self, model: Any, num_rows: int, emit: Callable[[int, int], None]):
        self.model, self.emit, self.rows = model, emit, list(range(num_rows))

    def start_decoding(self, source: Tensor, source_lengths: Tensor, /) -> ObservedModel:
        """Begin the translations."""
        self.state, self.has_begun = self.model.start_decoding(source, source_lengths), False
        return self

    def step(self, tokens: Int[Tensor, " batch"], /) -> Float[Tensor, "batch vocab"]:
        """The logits of the next tokens."""
        if self.has_begun:  # the first token is the beginning of the sentence
            for row, token in zip(self.rows, tokens.tolist(), strict=True):
                self.emit(row, token)
        self.has_begun = True
        return self.state.step(tokens)

    def reorder(self, rows: Int[Tensor, " batch"], /) -> None:
        """Continue with these rows."""
        self.rows = [self.rows[row] for row in rows.tolist()]
        self.state.reorder(rows)
