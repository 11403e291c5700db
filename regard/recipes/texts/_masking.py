"""The task of filling in: words hidden in plain text, an encoder alone that says what they were."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn

from regard.data import Tokenizer
from regard.data.hiding import hide
from regard.data.passages import Passages, TextBatch
from regard.errors import DataError
from regard.models.language import MaskedLanguageModel
from regard.recipes.texts._layers import reader
from regard.recipes.texts._material import Texts, spaced
from regard.recipes.texts._reading import Reading
from regard.recipes.texts.guesser import Guesser
from regard.recipes.texts.settings import MaskedLanguage
from regard.training import Loss, Settings, word_loss


class HiddenWords(nn.Module):
    """The cross entropy of each hidden word, summed over a batch."""

    def __init__(self, model: MaskedLanguageModel, share: float):
        super().__init__()
        self.model, self.share = model, share

    def forward(self, batch: TextBatch, generator: torch.Generator | None = None) -> Loss:
        output = self.model.output
        words, asked = hide(batch, self.share, len(output.weight) - 1, generator)
        states, right = self.model(words, batch.lengths)[asked], batch.words[asked]
        total, _ = word_loss(states, output.weight, output.bias, right)
        if self.training:
            return Loss(total, len(right))
        hits = (output(states).argmax(-1) == right).sum()
        return Loss(total, len(right), {"right": hits})


class Masking(Reading[MaskedLanguage]):
    """From text with gaps to the words in them."""

    settings: ClassVar[type[Settings]] = MaskedLanguage
    uses = (
        'write {run} "Fill ___ in."',
        "train documents --init-from {run} ...",
        "evaluate {run}",
        "info {run}",
    )
    files = ("words.json",)
    gives = Guesser

    def learn(self, texts: Texts, settings: MaskedLanguage) -> Tokenizer:
        """The most frequent words, as the recipes of documents know them."""
        cut = spaced(settings.tokenizer)
        return Tokenizer.learn(map(cut, texts.train()), "word", settings.vocab, lowercase=settings.lowercase)

    def passages(self, texts: Iterable[str], tokenizer: Tokenizer, settings: MaskedLanguage) -> Passages:
        return Passages(
            texts,
            tokenizer,
            length=settings.length,
            tokens=settings.batch_tokens,
            seed=settings.seed,
            spaced=spaced(settings.tokenizer),
        )

    def objective(self, settings: MaskedLanguage, tokens: int) -> HiddenWords:
        return HiddenWords(build(settings, tokens), settings.share)

    def validation(self, objective: HiddenWords, valid: Passages) -> Validation:
        return Validation(objective, valid)

    @torch.no_grad()
    def judged(self, made: Guesser, texts: Iterable[str]) -> dict[str, Any]:
        given = self.passages(texts, made.words, made.settings)
        objective = HiddenWords(made.model, made.settings.share).eval()
        return {**given.report.as_dict(), **Validation(objective, given)()}


@dataclass(frozen=True)
class Validation:
    """What a hidden word costs, its exponential, and how many in a hundred are guessed; each time the same words."""

    objective: HiddenWords
    valid: Passages

    def __call__(self) -> dict[str, float]:
        device, generator = self.objective.model.output.weight.device, torch.Generator()
        total = right = count = 0.0
        for number, batch in enumerate(self.valid.in_order()):
            loss = self.objective(batch.to(device), generator.manual_seed(number))
            total, count = total + float(loss.total), count + loss.count
            right += float(loss.extra["right"])
        if not count:
            raise DataError(
                "There is no word in the text that could be hidden: the model knows none of them; give it other text,"
                " or train with a larger vocab."
            )
        each = total / count
        return {
            "loss": each,
            "perplexity": math.exp(min(each, 100.0)),
            "accuracy": 100 * right / count,
        }


def build(settings: MaskedLanguage, words: int) -> MaskedLanguageModel:
    """The network that the settings describe; after the last word comes the mask."""
    return MaskedLanguageModel(reader(settings, words + 1))
