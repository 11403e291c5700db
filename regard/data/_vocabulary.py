"""What a tokenizer has learned, and the model of Hugging Face's `tokenizers` that goes by it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from regard._imports import require_extra
from regard.data.batch import UNK
from regard.errors import UsageError

SPECIALS = ["<pad>", "<unk>", "<s>", "</s>"]  # numbers 0 to 3: PAD, UNK, BOS, EOS


@dataclass(frozen=True)
class Vocabulary:
    """The tokens by number, special ones first; for bpe its merges, for unigram its scores."""

    tokens: list[str]
    merges: list[tuple[str, str]]
    scores: list[float]

    @classmethod
    def of(cls, saved: dict[str, Any]) -> Vocabulary:
        if saved["tokens"][: len(SPECIALS)] != SPECIALS:
            raise UsageError(f"the first tokens should be {', '.join(SPECIALS)}")
        merges = [(left, right) for left, right in saved["merges"]]
        return cls(list(saved["tokens"]), merges, [float(score) for score in saved["scores"]])

    def as_dict(self) -> dict[str, Any]:
        return {"tokens": self.tokens, "merges": [list(pair) for pair in self.merges], "scores": self.scores}

    def model(self, kind: str) -> Any:
        """The model that cuts one piece of text into tokens.

        It is built without special tokens of its own: they would be found in the text, too.
        """
        models = require_extra("tokenizers", extra="recipes").models
        numbers = {token: number for number, token in enumerate(self.tokens)}
        if kind == "bpe":
            return models.BPE(vocab=numbers, merges=self.merges, unk_token=SPECIALS[UNK])
        if kind == "unigram":
            return models.Unigram(list(zip(self.tokens, self.scores, strict=True)), unk_id=UNK)
        return models.WordLevel(vocab=numbers, unk_token=SPECIALS[UNK])
