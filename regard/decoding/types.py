"""What a model must offer to be searched, and how a search takes a step with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import ShapeError

__all__ = ["AttendingDecoderState", "DecoderState", "FastDecoderState", "SpecialTokens", "StepwiseModel"]


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
