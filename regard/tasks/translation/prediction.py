"""The translation of a text, as it is printed and sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from regard.errors import InputTooLongError, UnknownNameError
from regard.tasks.predictor import Prediction

__all__ = ["Translation", "check_head", "too_long_error"]


def too_long_error(row: int, length: int, limit: int) -> InputTooLongError:
    """The error for a text with more tokens than the model was trained for; `row` is counted from 0."""
    return InputTooLongError(
        f"the text has {length:,} tokens, but this model takes {limit:,} (max_length); split it",
        row=row,
        length=length,
        limit=limit,
    )


def check_head(layer: int | None, head: int | None, counts: Sequence[int]) -> None:
    """Refuse a layer or a head that a model does not have.

    Args:
        layer, head: counted from 0; None: all
        counts: how many layers and heads there are
    """
    for name, number, count in zip(("layer", "head"), (layer, head), counts, strict=True):
        if number is not None and number >= count:
            raise UnknownNameError(f"no {name} {number}: this model has {count}, counted from 0")


@dataclass(frozen=True)
class Translation(Prediction):
    """A translation.

    Args:
        text: the translation; empty for an empty source
        score: its log-probability divided by the length penalty
        log_prob: its log-probability
        tokens: as the tokenizer writes them
        token_log_probs: of each token, the end of the sentence last if it is `finished`
        finished: whether the end of the sentence was reached
        alternatives: the other hypotheses, best first
        alignment: words and weights, if they were requested
        num_source_tokens: tokens of the source; 0 if they were not counted
        token_ids: the ids of `tokens`
        search: the candidates of each step, if they were requested
    """

    log_prob: float = 0.0
    tokens: tuple[str, ...] = ()
    token_log_probs: tuple[float, ...] = ()
    finished: bool = True
    alternatives: tuple[Translation, ...] = ()
    alignment: Mapping[str, Any] | None = None
    num_source_tokens: int = 0
    token_ids: tuple[int, ...] = ()
    search: tuple[Any, ...] | None = None

    @property
    def token_counts(self) -> Mapping[str, int]:
        """The tokens of the source, and of all translations with the ends of the sentences."""
        output = sum(len(one.token_log_probs) for one in (self, *self.alternatives))
        return {"input": self.num_source_tokens, "output": output}

    def to_lines(self, number: int = 1) -> list[str]:
        """The text, or the number, score and text of each alternative; below it the alignment, if there is one."""
        several = (self, *self.alternatives) if self.alternatives else ()
        lines = [f"{number}\t{one.score:.4f}\t{one.text}" for one in several] or [self.text]
        if self.alignment is not None and self.alignment["source_words"] and self.alignment["target_words"]:
            from regard.viewing.terminal import heatmap

            weights = torch.tensor(self.alignment["word_weights"]).mean((0, 1))
            lines += [*heatmap(weights, self.alignment["target_words"], self.alignment["source_words"]).split("\n"), ""]
        return lines

    def to_json(self) -> dict[str, Any]:
        """Plain lists and numbers."""
        plain = {
            "text": self.text,
            "score": self.score,
            "log_prob": self.log_prob,
            "tokens": list(self.tokens),
            "token_ids": list(self.token_ids),
            "token_log_probs": list(self.token_log_probs),
            "finished": self.finished,
        }
        if self.alternatives:
            plain["alternatives"] = [one.to_json() for one in self.alternatives]
        plain |= {} if self.alignment is None else {"alignment": self.alignment}
        return plain | ({} if self.search is None else {"search": list(self.search)})
