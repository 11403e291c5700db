"""The task of filling in: words hidden in plain text, an encoder alone that says what they were."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from regard.data import Tokenizer
from regard.data.hiding import hide
from regard.data.passages import Passages, TextBatch
from regard.models.language import MaskedLanguageModel
from regard.recipes._task import Experiment, Recipe, Task, fitted
from regard.recipes.texts import _material as _texts
from regard.recipes.texts._layers import reader
from regard.recipes.texts.guesser import Guesser
from regard.recipes.texts.settings import MaskedLanguage
from regard.training import Loss, Run, Settings, word_loss

TOKENS = ("tokenizer", "vocab", "lowercase")


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


class Masking(Task[MaskedLanguage]):
    """From text with gaps to the words in them."""

    settings: ClassVar[type[Settings]] = MaskedLanguage
    uses = (
        'write {run} "Fill ___ in."',
        "train documents --init-from {run} ...",
        "evaluate {run}",
        "info {run}",
    )
    files = ("words.json",)

    def check(self, recipe: Recipe, settings: MaskedLanguage) -> None:
        recipe.material(settings)
        with torch.device("meta"):
            build(settings, 8)

    def experiment(self, run: Run, recipe: Recipe, settings: MaskedLanguage) -> Experiment[MaskedLanguage]:
        words, texts = kept(run), recipe.material(settings)
        data, valid = (passages(part(), words, settings) for part in (texts.train, texts.valid))
        objective = HiddenWords(build(settings, len(words)), settings.share)
        reports = {"train": data.report, "valid": valid.report}
        return Experiment(
            run,
            settings,
            objective,
            data,
            Validation(objective, valid),
            {"vocabulary": len(words), "data": {name: one.as_dict() for name, one in reports.items()}},
            [f"{name}: {one}" for name, one in reports.items()],
        )

    def load(
        self,
        run: Run,
        recipe: Recipe,
        settings: MaskedLanguage,
        weights: Mapping[str, Tensor],
        where: str,
        device: str,
    ) -> Guesser:
        words = kept(run)
        objective = fitted(lambda: HiddenWords(build(settings, len(words)), settings.share), weights, where)
        return Guesser(objective.to(device).model, words, settings)

    def judge(self, recipe: Recipe, made: Guesser, part: str | None = None) -> dict[str, Any]:
        texts = recipe.material(made.settings)
        known = {**texts.tests, "valid": texts.valid}
        chosen = part or next(iter(known))
        return {**evaluate(made, known[chosen]()), "part": chosen}

    def like(self, settings: MaskedLanguage, kept: Mapping[str, Any]) -> MaskedLanguage:
        return replace(settings, **{key: kept[key] for key in TOKENS})

    def ready(self, run: Run, recipe: Recipe, settings: MaskedLanguage, origin: Run | None) -> None:
        """The words: learned from the text, or those of the run it begins with."""
        words = learn(recipe.material(settings), settings) if origin is None else kept(origin)
        words.save(run.folder / self.files[0])


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
        each = total / max(count, 1)
        return {
            "loss": each,
            "perplexity": math.exp(min(each, 100.0)),
            "accuracy": 100 * right / max(count, 1),
        }


@torch.no_grad()
def evaluate(made: Guesser, texts: Any) -> dict[str, Any]:
    """The same for texts that somebody gives."""
    given = passages(texts, made.words, made.settings)
    objective = HiddenWords(made.model, made.settings.share).eval()
    return {**given.report.as_dict(), **Validation(objective, given)()}


def passages(texts: Any, words: Tokenizer, settings: MaskedLanguage) -> Passages:
    """Texts as the model reads them."""
    return Passages(
        texts,
        words,
        length=settings.length,
        tokens=settings.batch_tokens,
        seed=settings.seed,
        spaced=_texts.spaced(settings.tokenizer),
    )


def learn(texts: _texts.Texts, settings: MaskedLanguage) -> Tokenizer:
    """The most frequent words of the training text, as the recipes of documents know them."""
    cut = _texts.spaced(settings.tokenizer)
    return Tokenizer.learn(map(cut, texts.train()), "word", settings.vocab, lowercase=settings.lowercase)


def kept(run: Run) -> Tokenizer:
    """The words that a run keeps."""
    return Tokenizer.load(run.folder / Masking.files[0])


def build(settings: MaskedLanguage, words: int) -> MaskedLanguageModel:
    """The network that the settings describe; after the last word comes the mask."""
    return MaskedLanguageModel(reader(settings, words + 1))
