"""What a search asks of a model: that it can take a step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import ShapeError


@runtime_checkable
class Steps(Protocol):
    """Translations being written, one token of each row at a time.

    For the coverage penalty it offers one more method, ``weights() -> (rows, source)``: where the last
    step looked. If it has ``select_beams(rows)``, a beam search calls that instead of ``select``: rows are
    then (sentences, width), each line the beam of one sentence, and sentences keep their order. So a model
    can let the beams of a sentence share what was read. If it has ``bits(tokens, block)``, a beam search calls
    that instead of ``step``: the same scores divided by ln 2, in float32 and whole blocks of words, with -inf
    behind the last word, in a tensor that the search may change. So nobody has to read them all to scale them.
    """

    def step(self, tokens: Int[Tensor, " rows"], /) -> Float[Tensor, "rows vocab"]:
        """The scores of the next token of each row, given the token before it: BOS first."""
        ...

    def select(self, rows: Int[Tensor, " new"], /) -> None:
        """Go on with these rows; one may be left out, moved, or taken several times."""
        ...


@runtime_checkable
class Model(Protocol):
    """Anything that encodes its sources once and then takes steps."""

    def begin(self, source: Int[Tensor, "rows source"], source_lengths: Int[Tensor, " rows"], /) -> Steps: ...


class Specials(NamedTuple):
    """The tokens that are not words."""

    bos: int = 2
    eos: int = 3
    pad: int = 0


@contextmanager
def at_rest(model: Any) -> Iterator[None]:
    """No gradients and no dropout inside; afterwards every part is in the mode it was in."""
    parts = [part for part in model.modules() if part.training] if isinstance(model, nn.Module) else []
    for part in parts:
        part.training = False
    try:
        with torch.no_grad():
            yield
    finally:
        for part in parts:
            part.training = True


def stepped(steps: Steps, token: Int[Tensor, " rows"]) -> Float[Tensor, "rows vocab"]:
    """Take a step, and see that it gave what it promised."""
    logits = steps.step(token)
    if logits.dim() != 2 or len(logits) != len(token):
        raise ShapeError(
            f"decode: step must give logits (rows, vocab) with {len(token)} rows, but its shape is"
            f" {tuple(logits.shape)}."
        )
    return logits


def not_numbers(length: int) -> ValueError:
    return ValueError(
        f"decode: the model gave logits that are not numbers at token {length}; check its weights for NaN."
    )


def log_probs(
    logits: Float[Tensor, "rows vocab"], length: int, specials: Specials, at_least: int
) -> Float[Tensor, "rows vocab"]:
    """The log-probabilities of token number `length`, in float32 whatever the model computes in.

    PAD and BOS are never written, and EOS not before `at_least` tokens; the others keep their probability.
    """
    found = logits.log_softmax(-1, dtype=torch.float32)
    if bool(found[:, 0].isnan().any()):  # one NaN in a row makes the whole row NaN
        raise not_numbers(length)
    found[:, specials.pad] = -torch.inf
    found[:, specials.bos] = -torch.inf
    if length <= at_least:
        found[:, specials.eos] = -torch.inf
    return found
