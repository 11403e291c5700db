"""Inference beyond a plain call of the network: other engines, batches in threads, streaming."""

from __future__ import annotations

import os
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from contextvars import copy_context
from functools import cache
from typing import TYPE_CHECKING, ClassVar, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.data.vocabulary import EOS_ID
from regard.decoding import DecoderState, DecodingConfig, Hypothesis
from regard.errors import UnsupportedError

if TYPE_CHECKING:
    from regard.tasks.translation.predictor import Translator

__all__ = ["InferenceEngine", "group_by_length", "map_in_threads", "warm_up"]


class InferenceEngine(ABC):
    """A model that another program computes; a `Translator` takes it in place of a network.

    It returns complete translations. An engine that also implements `start_decoding` (and sets `takes_steps`) shows
    its search, and one that implements `attention_weights` (and sets `has_attention`) shows alignments.
    """

    name: ClassVar[str]
    device = torch.device("cpu")  # of its input tensors
    has_attention: bool = False
    takes_steps: bool = False

    @abstractmethod
    def search(
        self, sources: Sequence[list[int]], options: DecodingConfig, generator: torch.Generator | None = None
    ) -> list[list[Hypothesis]]:
        """The best translations of each source, whose tokens end with EOS."""

    def start_decoding(
        self, source: Int[Tensor, "batch src_len"], source_lengths: Int[Tensor, " batch"], /
    ) -> DecoderState:
        """Begin a batch of translations; optional."""
        raise UnsupportedError(f"{self.name} returns complete translations only; use the run it was exported from")

    def attention_weights(
        self,
        source: Int[Tensor, "batch src_len"],
        source_lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch tgt_len"],
    ) -> list[Float[Tensor, "batch heads tgt_len-1 src_len"]]:
        """The weights of each layer for given translations; optional."""
        raise UnsupportedError(f"{self.name} returns no attention weights; use the run it was exported from")


ItemT = TypeVar("ItemT")


ResultT = TypeVar("ResultT")


def map_in_threads(function: Callable[[ItemT], ResultT], items: Iterable[ItemT]) -> list[ResultT]:
    """The answers for all items in order, as many at a time as PyTorch has threads, each computed by one.

    A step of a small model is too short to be shared out among threads; whole batches are not.

    >>> map_in_threads(lambda number: number**2, [1, 2, 3])
    [1, 4, 9]
    """
    items, threads = list(items), torch.get_num_threads()
    several = min(threads, len(items))
    if several < 2:
        return [function(item) for item in items]
    # Who watches here is told of what happens there; what is computed in another precision here, is there, too.
    cast = _with_autocast(function)
    waiting = [_thread_pool(several).submit(copy_context().run, cast, item) for item in items]
    try:
        return [one.result() for one in waiting]
    finally:
        for one in waiting:
            one.cancel()  # after a failure, those that have not begun need not
        torch.set_num_threads(threads)  # a thread's own number is also that of threads to come


def _with_autocast(function: Callable[[ItemT], ResultT]) -> Callable[[ItemT], ResultT]:
    """The same work under the autocast of this thread, which others do not see."""
    kinds = [kind for kind in ("cpu", "cuda", "mps") if torch.is_autocast_enabled(kind)]
    types = {kind: torch.get_autocast_dtype(kind) for kind in kinds}

    def cast(item: ItemT) -> ResultT:
        with ExitStack() as stack:
            for kind, dtype in types.items():
                stack.enter_context(torch.autocast(kind, dtype))
            return function(item)

    return cast if types else function


@cache
def _thread_pool(num_threads: int) -> ThreadPoolExecutor:
    """Threads that stay: each new one would have memory of its own from the libraries, which it never gives back."""
    return ThreadPoolExecutor(num_threads, "regard", initializer=lambda: torch.set_num_threads(1))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_thread_pool.cache_clear)  # a forked process has none of its parent's threads


# With less than a tenth of a batch for each thread, one batch with all threads is faster.
MIN_THREAD_LOAD = 10


def group_by_length(
    rows: Sequence[int], lengths: Sequence[int], max_tokens: int, num_workers: int = 1
) -> Iterator[list[int]]:
    """Group rows of similar length, the longest first, so that all groups take about as long.

    Args:
        rows: indices
        lengths: number of tokens, by index
        max_tokens: about the largest size of a group; with padding at most twice as many
        num_workers: the number of groups becomes a multiple of it if there are enough tokens

    Example:
        >>> list(group_by_length([0, 1, 2, 3], [5, 1, 4, 2], max_tokens=10))
        [[0, 2], [3, 1]]
    """
    total = sum(lengths[row] for row in rows)
    groups = max(1, -(-total // max_tokens))
    if MIN_THREAD_LOAD * total > num_workers * max_tokens:
        groups = -(-groups // num_workers) * num_workers
    group: list[int] = []
    done = ended = 0
    for row in sorted(rows, key=lambda row: -lengths[row]):
        if group and (done * groups >= total * (ended + 1) or lengths[group[0]] * (len(group) + 1) > 2 * max_tokens):
            yield group
            group, ended = [], ended + 1
        group.append(row)
        done += lengths[row]
    if group:
        yield group


WARM_UP_LENGTH = 40  # tokens: few sentences have more
NUM_WARM_UPS = 6  # full batches; after so many, memory hardly grows


def warm_up(translator: Translator, batch_size: int) -> None:
    """Translate batches of random texts: first of long ones, then of all lengths.

    Most of the memory that full batches need is allocated then before the first request. Without it, the memory of a
    server grew for thousands of requests.

    Args:
        translator: the model
        batch_size: number of texts
    """
    rng, tokenizer, longest = random.Random(0), translator.source, min(WARM_UP_LENGTH, translator.max_length)
    first = min(EOS_ID + 1, len(tokenizer) - 1)  # the last one of a vocabulary of special tokens
    for batch in range(NUM_WARM_UPS):
        lengths = [longest if batch == 0 else rng.randint(1, longest) for _ in range(batch_size)]
        texts = [tokenizer.decode(rng.choices(range(first, len(tokenizer)), k=length)) for length in lengths]
        short = [text for text in texts if len(translator.encode_source(text)) <= translator.max_length]
        translator.search(short, translator.decoding_config(max_length=longest))
