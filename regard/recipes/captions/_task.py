"""The task of describing pictures: words, batches of pictures, a network that looks and writes, and how good it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from regard.attention import Attended, Attention, Constant, Sample
from regard.data import Tokenizer
from regard.data._vocabulary import SPECIALS
from regard.data.captions import Album, CaptionBatch, Captioned, Painting
from regard.data.report import counted
from regard.data.scenes import WORDS, Scenes
from regard.data.words import apart
from regard.errors import DataError
from regard.models._convolutions import Convolutions
from regard.models.captioner import ShowAttendTell, doubly
from regard.recipes._held import told
from regard.recipes._mechanisms import score
from regard.recipes._task import Experiment, Recipe, Task, fitted
from regard.recipes.captions._judged import bleu, judged, nearest
from regard.recipes.captions._material import Gallery
from regard.recipes.captions.captioner import Captioner
from regard.recipes.captions.settings import Captioning
from regard.recipes.translation.objective import NextWord
from regard.training import Loss, Run, Settings

LEAST = 5  # words that are known, however rare they are


class NextCaptionWord(NextWord):
    """The cross entropy of each next word of a caption, and for soft attention the doubly stochastic penalty.

        loss += penalty sum_cells (1 - sum_words weights)^2

    Hard attention is rewarded as in `NextWord`. At first all captions see the expected look, which learns by the
    gradient where to look; who draws before that mostly draws in vain.
    """

    seen: Tensor

    def __init__(self, model: ShowAttendTell, settings: Captioning):
        super().__init__(model, settings.smoothing, settings.entropy, settings.discount)
        self.penalty = settings.penalty if settings.scope == "soft" else 0.0
        self.soft = settings.soft_first * settings.steps * settings.accumulate  # batches
        self.expected = settings.expected
        if self.sampled:
            self.register_buffer("seen", torch.zeros(()))  # batches of training

    def forward(self, batch: CaptionBatch) -> Loss:  # type: ignore[override]
        if self.sampled and self.training:
            return self._rewarded(batch)
        hidden, seen = self._decoded(batch)
        total, plain, _ = self._words(hidden, batch)
        if self.penalty and self.training:
            words = torch.arange(hidden.shape[1], device=hidden.device) < batch.target_lengths[:, None] - 1
            total = total + self.penalty * doubly(seen, words).sum()
        return Loss(total, batch.tokens, {"nll": float(plain.sum())})

    def _decoded(self, batch: CaptionBatch) -> tuple[Tensor, list[Attended]]:
        share = None
        if self.sampled and self.training:
            share = torch.where(self.seen < self.soft, 1.0, self.expected)
            self.seen = self.seen + 1
        return self.model.decode(batch.pictures, batch.target[:, :-1], share)


class Describing(Task[Captioning]):
    """From a picture to a caption."""

    settings: ClassVar[type[Settings]] = Captioning
    uses: ClassVar[tuple[str, ...]] = (
        "caption {run} IMAGE",
        "show {run} IMAGE --out x.png",
        "evaluate {run}",
        "info {run}",
    )
    files = ("words.json",)

    def check(self, recipe: Recipe, settings: Captioning) -> None:
        gallery: Gallery = recipe.material(settings)
        build(settings, 8, gallery.grid_dim)

    def experiment(self, run: Run, recipe: Recipe, settings: Captioning) -> Experiment[Captioning]:
        words, gallery = Tokenizer.load(run.folder / self.files[0]), recipe.material(settings)
        objective = NextCaptionWord(build(settings, len(words), gallery.grid_dim), settings)
        train, valid = gallery.train(), gallery.valid()
        data = (
            Painting(train, words, settings.batch, seed=settings.seed)
            if isinstance(train, Scenes)
            else _album("train", train, words, settings)
        )
        album = _album("valid", valid, words, settings)
        validation = Validation(objective, Captioner(objective.model, words, settings), valid, album)
        objective.train()
        reports = {"train": data.report} if isinstance(data, Album) else {}
        reports["valid"] = album.report
        return Experiment(
            run,
            settings,
            objective,
            data,
            validation,
            {"vocabulary": len(words), "data": {name: one.as_dict() for name, one in reports.items()}},
            told(reports, gallery.held, "image"),
        )

    def load(
        self,
        run: Run,
        recipe: Recipe,
        settings: Captioning,
        weights: Mapping[str, Tensor],
        where: str,
        device: str,
    ) -> Captioner:
        words = Tokenizer.load(run.folder / self.files[0])
        grid_dim = recipe.material(settings).grid_dim
        objective = fitted(
            lambda: NextCaptionWord(build(settings, len(words), grid_dim), settings), weights, where
        )
        return Captioner(objective.to(device).model, words, settings)

    def judge(self, recipe: Recipe, made: Captioner, part: str | None = None) -> dict[str, Any]:
        gallery: Gallery = recipe.material(made.settings)
        known = {**gallery.tests, "valid": gallery.valid}
        chosen = part or next(iter(known))
        pictures = known[chosen]()
        return {**judged(made, pictures), **against_the_floor(gallery, made, pictures), "part": chosen}

    def ready(self, run: Run, recipe: Recipe, settings: Captioning, origin: Run | None) -> None:
        """The words: learned from the training captions, or those of the run it begins with."""
        name = self.files[0]
        if origin is not None:
            words = Tokenizer.load(origin.folder / name)
        else:
            words = learn(recipe.material(settings), settings)
        words.save(run.folder / name)

    def begin_with(self, objective: Any, weights: dict[str, Tensor], where: str) -> None:
        objective.take(weights, where)


class DescribingFeatures(Describing):
    """From a grid of features to a caption: nobody can give it an image, but those of its test can be shown."""

    uses = ("show {run} --seed 3", "evaluate {run}", "info {run}")


@dataclass(frozen=True)
class Validation:
    """The loss on the pictures held out and, if that is watched, how good greedy captions of them are."""

    objective: NextCaptionWord
    captioner: Captioner
    valid: Captioned
    album: Album  # the same as batches

    def __call__(self) -> dict[str, float]:
        captioner, settings = self.captioner, self.captioner.settings
        total = count = 0.0
        for batch in self.album.in_order():
            loss = self.objective(batch.to(captioner.device))
            total, count = total + float(loss.extra["nll"]), count + loss.count
        scores = {"loss": total / count}
        if settings.watch == "loss":
            return scores
        found = judged(captioner, self.valid, captioner.decoding(beam=1))
        names = ("captions", "digits", "inside", "bleu")
        return scores | {name: found[name] for name in names if name in found}


def against_the_floor(gallery: Gallery, made: Captioner, pictures: Captioned) -> dict[str, Any]:
    """What copying the caption of the nearest training picture would get, where pictures are features."""
    if gallery.grid_dim is None:
        return {}
    train = gallery.train()
    assert isinstance(train, Captioned)
    said = [text.lower() if made.settings.lowercase else text for text in nearest(train, pictures)]
    floor = bleu(said, pictures.captions, made.settings.lowercase)
    return {"nearest": {name: value for name, value in floor.items() if isinstance(value, float)}}


def _album(name: str, captioned: Captioned, words: Tokenizer, settings: Captioning) -> Album:
    try:
        return Album(captioned, words, settings.batch, max_length=settings.max_length, seed=settings.seed)
    except DataError as error:
        raise DataError(f"{name}: {error}") from None


def learn(gallery: Gallery, settings: Captioning) -> Tokenizer:
    """The words of scenes, or those of the training captions that are there often enough."""
    train = gallery.train()
    if isinstance(train, Scenes):
        return Tokenizer.learn([" ".join(WORDS)], "word", len(SPECIALS) + len(WORDS))
    texts = [apart(text) for captions in train.captions for text in captions]
    counts = _counted(texts, settings.lowercase)
    often = sum(count >= settings.min_count for count in counts.values())
    if counts and not often:
        word, most = counts.most_common(1)[0]
        raise DataError(
            f"min_count={settings.min_count}: no word is in the training captions so often; the most frequent,"
            f" {word!r}, is there {counted(most, 'time')}"
        )
    return Tokenizer.learn(texts, "word", len(SPECIALS) + max(LEAST, often), lowercase=settings.lowercase)


def _counted(texts: Iterable[str], lowercase: bool) -> Counter[str]:
    return Counter(word for text in texts for word in (text.lower() if lowercase else text).split())


def build(settings: Captioning, words: int, grid_dim: int | None) -> ShowAttendTell:
    """The network that the settings describe; of pictures that are grids already, `grid_dim` is their size."""
    eyes = None
    if grid_dim is None:
        grid_dim = settings.grid_dim
        eyes = Convolutions(3 if settings.color else 1, grid_dim, settings.width)
    if settings.scope == "none":
        attention = Attention(Constant())
    else:
        how = score(settings.score, settings.dim, grid_dim, settings.dim // 2)
        attention = Attention(how, Sample() if settings.scope == "hard" else None)
    return ShowAttendTell(
        words,
        attention,
        eyes=eyes,
        grid_dim=grid_dim,
        embed_dim=settings.embed_dim,
        dim=settings.dim,
        dropout=settings.dropout,
        expected=settings.expected,
    )
