"""What a search asks of a model: that it can take a step.

What decoding gives back: translations with their scores, and how the search came to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import ShapeError


@runtime_checkable
class DecoderState(Protocol):
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

    def reorder(self, rows: Int[Tensor, " new"], /) -> None:
        """Go on with these rows; one may be left out, moved, or taken several times."""
        ...


@runtime_checkable
class StepwiseModel(Protocol):
    """Anything that encodes its sources once and then takes steps."""

    def start_decoding(
        self, source: Int[Tensor, "rows source"], source_lengths: Int[Tensor, " rows"], /
    ) -> DecoderState: ...


class SpecialTokens(NamedTuple):
    """The tokens that are not words."""

    bos: int = 2
    eos: int = 3
    pad: int = 0


@contextmanager
def eval_mode(model: Any) -> Iterator[None]:
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


def checked_step(state: DecoderState, token: Int[Tensor, " rows"]) -> Float[Tensor, "rows vocab"]:
    """Take a step, and see that it gave what it promised."""
    logits = state.step(token)
    if logits.dim() != 2 or len(logits) != len(token):
        raise ShapeError(
            f"decode: step must give logits (rows, vocab) with {len(token)} rows, but its shape is"
            f" {tuple(logits.shape)}."
        )
    return logits


def nan_error(length: int) -> ValueError:
    return ValueError(
        f"decode: the model gave logits that are not numbers at token {length}; check its weights for NaN."
    )


def next_token_log_probs(
    logits: Float[Tensor, "rows vocab"], length: int, specials: SpecialTokens, min_length: int
) -> Float[Tensor, "rows vocab"]:
    """The log-probabilities of token number `length`, in float32 whatever the model computes in.

    PAD and BOS are never written, and EOS not before `at_least` tokens; the others keep their probability.
    """
    found = logits.log_softmax(-1, dtype=torch.float32)
    if bool(found[:, 0].isnan().any()):  # one NaN in a row makes the whole row NaN
        raise nan_error(length)
    found[:, specials.pad] = -torch.inf
    found[:, specials.bos] = -torch.inf
    if length <= min_length:
        found[:, specials.eos] = -torch.inf
    return found


@dataclass(frozen=True)
class Hypothesis:
    """A translation and what the model thinks of it.

    `ids` are without BOS and EOS. `log_probs` has one number a token, the one of EOS last if the translation
    is `finished`; `log_prob` is their sum, and `score` what hypotheses are ranked by (see `Decoding`). They are
    the model's own log-probabilities, also where tokens were drawn at another temperature or left out.

    >>> Hypothesis(token_ids=[7, 9], score=-0.5, log_prob=-0.6, token_log_probs=[-0.1, -0.2, -0.3], finished=True).length
    3
    """

    token_ids: list[int]
    score: float
    log_prob: float
    token_log_probs: list[float]
    finished: bool = True

    @property
    def length(self) -> int:
        """The number of tokens, EOS counted."""
        return len(self.token_log_probs)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Candidate:
    """A token that was on a beam: how likely it was, how good all up to it, and what it continued.

    `parent` is the number of the candidate before it among those of the step before, -1 for the first token.
    """

    token: int
    log_prob: float
    score: float
    parent: int
    finished: bool


@dataclass(frozen=True)
class SearchTrace:
    """The search for one translation as a tree: the candidates of each step, with their parents.

    >>> first, end = Candidate(7, -0.1, -0.1, -1, False), Candidate(3, -0.2, -0.3, 0, True)
    >>> SearchTrace(((first,), (end,))).path(1, 0)
    [7, 3]
    """

    steps: tuple[tuple[Candidate, ...], ...]

    def path(self, step: int, index: int) -> list[int]:
        """The tokens that lead to a candidate, itself included."""
        tokens: list[int] = []
        while index >= 0:
            candidate = self.steps[step][index]
            tokens.append(candidate.token)
            step, index = step - 1, candidate.parent
        return tokens[::-1]

    def to_json(self, decode_token: Callable[[int], str] | None = None) -> dict[str, Any]:
        """Plain lists and numbers; with `name`, each token's text is there, too."""

        def plain(candidate: Candidate) -> dict[str, Any]:
            text = {} if decode_token is None else {"text": decode_token(candidate.token)}
            return text | asdict(candidate)

        return {"steps": [[plain(candidate) for candidate in step] for step in self.steps]}
