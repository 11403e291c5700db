"""The task of translation: tokenizers, batches of pairs, a model that writes the next word, and how good it is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from regard.data import Corpus, Filling, Generated, Pair, Report, Stream, Tokenizer, in_order
from regard.data._filling import Encoder, numbered
from regard.data._lines import readable
from regard.data.readers import Parallel
from regard.errors import ConfigError, DataError
from regard.recipes._task import Experiment, Recipe, Task, fitted
from regard.recipes.translation import _models
from regard.recipes.translation._material import Material, pairs
from regard.recipes.translation.evaluation import evaluate, measures, metric
from regard.recipes.translation.objective import NextWord
from regard.recipes.translation.settings import Translation
from regard.recipes.translation.translator import Translator
from regard.training import Run, Settings

NAMES = ("batch_tokens", "too_long")  # what a Filling's `tokens` and `over` are called among the settings


class Translating(Task[Translation]):
    """From one text to another."""

    settings: ClassVar[type[Settings]] = Translation
    uses = ('translate {run} "..."', "evaluate {run}", "info {run}")
    files = ("source.json", "target.json")

    def offers(self, settings: Translation) -> tuple[str, ...]:
        if settings.train and not settings.test:
            return tuple(f"{use} --part valid" if use.startswith("evaluate") else use for use in self.uses)
        return self.uses

    def check(self, recipe: Recipe, settings: Translation) -> None:
        recipe.material(settings)
        for file in (*settings.train, *settings.valid, *settings.test):
            readable(Path(file))
        if settings.bleu != "auto":
            metric(settings)  # which refuses, if it needs another package
        with torch.device("meta"):
            _models.build(settings, 8, 8)

    def experiment(self, run: Run, recipe: Recipe, settings: Translation) -> Experiment[Translation]:
        source, target = tokenizers(run)
        objective = _objective(settings, source, target)
        material = recipe.material(settings)
        data, report = _data(material, settings, source, target)
        valid, checked = _usable(material.valid, settings, source, target)
        translator = Translator(objective.model, source, target, settings, recipe)
        reports = {"train": report, "valid": checked}
        return Experiment(
            run,
            settings,
            objective,
            data,
            Validation(objective, translator, valid),
            {
                "words": [len(source), len(target)],
                "data": {name: one.as_dict() for name, one in reports.items()},
            },
            [f"{name}: {one}" for name, one in reports.items() if one.read],
        )

    def load(
        self,
        run: Run,
        recipe: Recipe,
        settings: Translation,
        weights: Mapping[str, Tensor],
        where: str,
        device: str,
    ) -> Translator:
        source, target = tokenizers(run)
        objective = fitted(lambda: _objective(settings, source, target), weights, where)
        objective.to(device)
        return Translator(objective.model, source, target, settings, recipe)

    def judge(self, recipe: Recipe, made: Translator, part: str | None = None) -> dict[str, Any]:
        material = recipe.material(made.settings)
        parts = material.tests or {"valid": material.valid}
        chosen = part or next(iter(parts))
        return {**evaluate(made, list(pairs(parts[chosen]))), "part": chosen}

    def ready(self, run: Run, recipe: Recipe, settings: Translation, origin: Run | None) -> None:
        """The tokenizers: learned from the text, or those of the run it starts from."""
        both = learn(recipe.material(settings), settings) if origin is None else tokenizers(origin)
        for tokenizer, name in zip(both, self.files, strict=True):
            tokenizer.save(run.folder / name)

    def begin_with(self, objective: nn.Module, weights: dict[str, Tensor], where: str) -> None:
        assert isinstance(objective, NextWord)
        objective.take(weights, where)


@dataclass(frozen=True)
class Validation:
    """The loss on the validation text, and the quality of greedy translations of it if that is watched."""

    objective: NextWord
    translator: Translator
    valid: Sequence[Pair]

    def __call__(self) -> dict[str, float]:
        translator, watch = self.translator, self.translator.settings.watch
        scores = loss_on(self.objective, translator, self.valid)
        if watch in ("bleu", "chrf", "exact"):
            greedy = translator.decoding(method="greedy")
            best = translator.search([pair.source for pair in self.valid], greedy)
            answers = [translator.text(several[0] if several else None) for several in best]
            found = measures(answers, [pair.target for pair in self.valid], translator.settings)
            scores |= {name: found[name] for name in (("exact",) if watch == "exact" else ("bleu", "chrf"))}
        return scores


def loss_on(objective: NextWord, translator: Translator, part: Sequence[Pair]) -> dict[str, float]:
    """Cross entropy a token, without smoothing, and its exponential."""
    total = count = 0.0
    for batch, _ in in_order(part, translator.source, translator.target):
        loss = objective(batch.to(translator.device))
        total, count = total + float(loss.extra["nll"]), count + loss.count
    return {"loss": total / count, "perplexity": math.exp(min(total / count, 100.0))}


def learn(material: Material, settings: Translation) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizers of both sides; one and the same if they are joint."""

    def cut(texts: Iterable[str], kind: str) -> Tokenizer:
        return Tokenizer.learn(texts, kind, settings.vocab, nfkc=settings.nfkc, lowercase=settings.lowercase)

    if settings.joint:
        both = cut(
            (text for pair in material.texts() for text in (pair.source, pair.target)), settings.tokenizer
        )
        return both, both
    return (
        cut((pair.source for pair in material.texts()), settings.tokenizer),
        cut((pair.target for pair in material.texts()), settings.target_tokenizer or settings.tokenizer),
    )


def tokenizers(run: Run) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizers that a run keeps."""
    source, target = (Tokenizer.load(run.folder / name) for name in Translating.files)
    return source, target


def _objective(settings: Translation, source: Tokenizer, target: Tokenizer) -> NextWord:
    model = _models.build(settings, len(source), len(target))
    return NextWord(model, settings.smoothing, settings.entropy, settings.discount)


def _data(
    material: Material, settings: Translation, source: Tokenizer, target: Tokenizer
) -> tuple[Corpus | Stream | Generated, Report]:
    filling = Filling(
        tokens=settings.batch_tokens,
        max_length=settings.max_length,
        over=settings.too_long,
        dropout=settings.bpe_dropout,
        seed=settings.seed,
        names=NAMES,
    )
    if settings.stream:
        if not isinstance(material.train, Parallel):
            raise ConfigError("stream=on is for files; this recipe does not read its training text from any")
        stream = Stream(material.train, source, target, filling)
        return stream, stream.survey()
    if callable(material.train):
        made = Generated(material.train, source, target, filling)
        return made, made.survey()
    corpus = Corpus(material.train, source, target, filling)
    return corpus, corpus.report


def _usable(
    part: Parallel | Sequence[Pair], settings: Translation, source: Tokenizer, target: Tokenizer
) -> tuple[list[Pair], Report]:
    """The pairs of a validation set within the limits, and a count of the others; alone, none is too wide."""
    filling = Filling(
        tokens=settings.max_length + 1, max_length=settings.max_length, over=settings.too_long, names=NAMES
    )
    name = str(part) if isinstance(part, Parallel) else "the pairs to validate with"
    encoder = Encoder(source, target, filling, name)
    report = encoder.report()
    used = [
        _cut(pair, settings.max_length, source, target) for pair, _ in encoder.plain(numbered(part), report)
    ]
    if not used:
        raise DataError(f"nothing is left to validate with: {report}")
    return used, report


def _cut(pair: Pair, most: int, source: Tokenizer, target: Tokenizer) -> Pair:
    """A pair of so many tokens at most; one that loses words loses its links, too."""
    cut = Pair(source.beginning(pair.source, most), target.beginning(pair.target, most))
    return pair if (cut.source, cut.target) == (pair.source, pair.target) else cut
