"""The questions that can be asked about a scene of digits, as words and as numbers: a small closed grammar.

Questions about scenes of digits, and their answers: a small closed grammar.

    is there a 5    how many 3s    where is the 7    what is left of the 4    what is the left digit

Of each scene, one question of each kind is asked; what would be in doubt is not asked.

Questions about scenes as batches that can be taken up again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from regard.data.scenes import RenderedScenes, SceneGenerator, select_first_scenes
from regard.data.sources import seeded_generator
from regard.errors import InputError, UsageError

QUESTION_TEMPLATES = {  # of each kind of question; # is a digit, @ one of the three places
    "there": ("is there a #", "can you see a #"),
    "count": ("how many # s", "how many # s are there"),
    "where": ("where is the #", "find the #"),
    "size": ("how large is the #", "what size is the #"),
    "left": ("what is left of the #", "what stands left of the #"),
    "right": ("what is right of the #", "what stands right of the #"),
    "name": ("what is the @ digit", "which digit is the @ one"),
}


QUESTION_TYPES = tuple(QUESTION_TEMPLATES)


SINGLE_DIGIT_TYPES = (
    "there",
    "where",
    "size",
    "name",
)  # questions about one digit: there is one place to look at


PLACES = ("left", "middle", "right")


CORNERS = ("top left", "top right", "bottom left", "bottom right")


DIGIT_NAMES = tuple(map(str, range(10)))


ANSWERS = (*DIGIT_NAMES, "no", "yes", *CORNERS, "small", "large", "nothing")


TEMPLATE_WORDS = {
    word for forms in QUESTION_TEMPLATES.values() for form in forms for word in form.split()
} - {"#", "@", *PLACES}


QUESTION_WORDS = ("", *DIGIT_NAMES, *PLACES, *sorted(TEMPLATE_WORDS))  # the first one fills a question up


MAX_QUESTION_LENGTH = max(len(form.split()) for forms in QUESTION_TEMPLATES.values() for form in forms)


ALL_QUESTIONS = {  # all questions there are
    form.replace(sign, word)
    for forms in QUESTION_TEMPLATES.values()
    for form in forms
    for sign, words in (("#", DIGIT_NAMES), ("@", PLACES))
    for word in words
    if sign in form
}


def encode_question(text: str) -> list[int]:
    """A question as places in `WORDS`; what is none of the grammar's raises `DataError` and says what is.

    >>> [QUESTION_WORDS[word] for word in encode_question("How many 3s?")]
    ['how', 'many', '3', 's']
    """
    found = ["a" if word == "an" else word for word in re.findall(r"[0-9]|[^\W\d_]+", text.lower())]
    if " ".join(found) not in ALL_QUESTIONS:
        forms = (forms[0].replace("#", "7").replace("@", "left") for forms in QUESTION_TEMPLATES.values())
        known = "; ".join(format_question(form.split()) for form in forms)
        raise InputError(f"{text!r} is no question that this model knows; ask such as: {known}")
    return [QUESTION_WORDS.index(word) for word in found]


def format_question(words: Sequence[str]) -> str:
    """Words as people write them.

    >>> format_question(["how", "many", "3", "s"])
    'how many 3s'
    """
    return re.sub(r"(\d) s\b", r"\1s", " ".join(words))


THERE, COUNT, WHERE, SIZE, LEFT, RIGHT, NAME = range(len(QUESTION_TYPES))


# Kinds that may be about a digit that is there twice, and how often kinds are about one that is not there.
ALLOWS_REPEATED_DIGIT = torch.tensor([kind in ("there", "count", "name") for kind in QUESTION_TYPES])


ABSENT_RATE = torch.tensor([{"there": 0.5, "count": 0.25}.get(kind, 0.0) for kind in QUESTION_TYPES])


TWO_COPIES_RATE, THREE_COPIES_RATE = 0.4, 0.1  # how often a scene has a digit at least so many times


@dataclass(frozen=True)
class ImageQuestions:
    """Scenes with questions about each, their answers, and which of its digits each question is about.

    Questions are places in `WORDS`, answers in `ANSWERS`, kinds in `KINDS`.
    """

    scenes: RenderedScenes
    questions: Int[Tensor, "rows asked words"]
    lengths: Int[Tensor, "rows asked"]
    answers: Int[Tensor, "rows asked"]
    types: Int[Tensor, "rows asked"]
    relevant_digits: Bool[Tensor, "rows asked digits"]

    def __len__(self) -> int:
        return len(self.answers)

    def get_question(self, row: int, question_index: int) -> str:
        return format_question(
            [QUESTION_WORDS[word] for word in self.questions[row, question_index].tolist() if word]
        )

    def get_answer(self, row: int, question_index: int) -> str:
        return ANSWERS[int(self.answers[row, question_index])]

    def head(self, count: int) -> ImageQuestions:
        """Of so many scenes."""
        others = {name: told[:count] for name, told in vars(self).items() if name != "painted"}
        return ImageQuestions(select_first_scenes(self.scenes, count), **others)


class QuestionGenerator:
    """Questions by chance about scenes by chance.

    >>> from regard.data.images import Digits
    >>> digits = Digits(torch.rand(20, 8, 8), torch.arange(20) % 10)
    >>> asked = QuestionGenerator(SceneGenerator(digits)).sample(torch.Generator().manual_seed(3), 2)
    >>> asked.scenes.labels[0].tolist(), asked.get_question(0, 4), asked.get_answer(0, 4)
    ([6, 8, 7], 'what stands left of the 6', 'nothing')
    """

    def __init__(self, scenes: SceneGenerator):
        self.scenes = scenes
        labels = scenes.digits.labels
        self._digit_order, self._digit_counts = (
            labels.argsort(stable=True),
            labels.bincount(minlength=len(DIGIT_NAMES)),
        )
        if int(self._digit_counts.min()) == 0 or scenes.num_digits != len(PLACES):
            raise UsageError(f"questions are about {len(PLACES)} digits, and need images of all ten")
        forms = [[form.split() for form in forms] for forms in QUESTION_TEMPLATES.values()]
        self._template_lengths = torch.tensor([[len(form) for form in some] for some in forms])
        self._templates = torch.tensor([[_encode_template(form) for form in some] for some in forms])

    def sample(self, generator: Generator, batch_size: int) -> ImageQuestions:
        """So many scenes, and a question of each kind about each; one that cannot be asked becomes another."""
        painted = self._sample_scenes(generator, batch_size)
        kinds, place = self._choose_subjects(generator, painted)
        digit = self._choose_digits(generator, painted, kinds, place)
        here = painted.labels[:, None] == digit[..., None]
        here = torch.where((kinds == NAME)[..., None], torch.arange(len(PLACES)) == place[..., None], here)
        form = torch.randint(self._templates.shape[1], kinds.shape, generator=generator)
        slot = torch.where(
            kinds == NAME,
            QUESTION_WORDS.index(PLACES[0]) + place,
            QUESTION_WORDS.index(DIGIT_NAMES[0]) + digit,
        )
        questions = torch.where(
            self._templates[kinds, form] < 0, slot[..., None], self._templates[kinds, form]
        )
        answers, matter = compute_answers(painted, kinds, here), here | neighbor_of(kinds, place)
        return ImageQuestions(painted, questions, self._template_lengths[kinds, form], answers, kinds, matter)

    def _sample_scenes(self, generator: Generator, batch_size: int) -> RenderedScenes:
        """Scenes in which a digit is there several times more often than by chance, each any image of its label."""
        shape = batch_size, len(PLACES)
        labels = torch.randint(len(DIGIT_NAMES), shape, generator=generator)
        luck = torch.rand(batch_size, 1, generator=generator)
        copies = 1 + (luck < TWO_COPIES_RATE).long() + (luck < THREE_COPIES_RATE).long()
        rank = torch.rand(shape, generator=generator).argsort(1)
        copied = labels.gather(1, rank.argmin(1, keepdim=True))
        labels = torch.where(rank < copies, copied, labels)
        starts, counts = (
            (self._digit_counts.cumsum(0) - self._digit_counts)[labels],
            self._digit_counts[labels],
        )
        which = starts + (torch.rand(shape, generator=generator) * counts).long()
        return self.scenes.sample(generator, batch_size, self._digit_order[which])

    def _choose_subjects(
        self, generator: Generator, scenes: RenderedScenes
    ) -> tuple[Int[Tensor, "rows asked"], ...]:
        """The kinds of questions, and the place of the digit that each is about.

        "The 7" is there once; where it is no question of left or right if it stands in the middle.
        """
        labels, rows = scenes.labels, len(scenes)
        once = (labels[:, :, None] == labels[:, None]).sum(-1) == 1
        luck = torch.rand(rows, len(QUESTION_TYPES), len(PLACES), generator=generator)
        place = (luck * (once[:, None] | ALLOWS_REPEATED_DIGIT[:, None])).argmax(-1)
        kinds = torch.arange(len(QUESTION_TYPES)).expand(rows, -1)
        kinds = torch.where(once.any(1, keepdim=True) | ALLOWS_REPEATED_DIGIT, kinds, COUNT)
        middling = (
            horizontal_centers(scenes) - scenes.images.shape[-1]
        ).abs() < 2 * self.scenes.min_separation
        return torch.where((kinds == WHERE) & middling.gather(1, place), SIZE, kinds), place

    def _choose_digits(
        self, generator: Generator, scenes: RenderedScenes, types: Tensor, place: Tensor
    ) -> Int[Tensor, "rows asked"]:
        """The digit at that place or, where that makes sense, sometimes one that is not there."""
        present = (scenes.labels[..., None] == torch.arange(len(DIGIT_NAMES))).any(1, keepdim=True)
        luck = torch.rand(*types.shape, len(DIGIT_NAMES), generator=generator)
        absent = (luck * ~present).argmax(-1)
        away = torch.rand(types.shape, generator=generator) < ABSENT_RATE[types]
        return torch.where(away, absent, scenes.labels.gather(1, place))


def _encode_template(template: list[str]) -> list[int]:
    """A form as places in `WORDS`, filled up; -1 for the word that chance chooses."""
    return [
        *(-1 if word in "#@" else QUESTION_WORDS.index(word) for word in template),
        *[0] * (MAX_QUESTION_LENGTH - len(template)),
    ]


def horizontal_centers(scenes: RenderedScenes) -> Int[Tensor, "rows digits"]:
    """Twice the middle of each digit, from left to right."""
    return scenes.boxes[..., 0] + scenes.boxes[..., 2]


def neighbor_of(types: Int[Tensor, "rows asked"], place: Tensor) -> Bool[Tensor, "rows asked digits"]:
    """The digit that is the answer, if it is the one left or right of another."""
    step = (types == RIGHT).long() - (types == LEFT).long()
    return (torch.arange(len(PLACES)) == (place + step)[..., None]) & (step != 0)[..., None]


def compute_answers(
    scenes: RenderedScenes, types: Int[Tensor, "rows asked"], mentioned: Bool[Tensor, "rows asked digits"]
) -> Int[Tensor, "rows asked"]:
    """The answer to each question, where `here` says which digits are those that it names."""
    place = mentioned.long().argmax(-1)
    corner = 2 * scenes.is_below.long() + (horizontal_centers(scenes) > scenes.images.shape[-1]).long()
    nothing = torch.full((len(scenes), 1), ANSWERS.index("nothing"))
    row = torch.cat((nothing, scenes.labels, nothing), 1)
    every = (
        ANSWERS.index("no") + mentioned.any(-1).long(),
        mentioned.sum(-1),
        ANSWERS.index(CORNERS[0]) + corner.gather(1, place),
        ANSWERS.index("small") + scenes.is_large.long().gather(1, place),
        row.gather(1, place),
        row.gather(1, place + 2),
        scenes.labels.gather(1, place),
    )
    return torch.stack(every, -1).gather(-1, types[..., None])[..., 0]


@dataclass(frozen=True)
class QuestionBatch:
    """Images, questions about each and their answers."""

    images: Float[Tensor, "rows channels height width"]
    questions: Int[Tensor, "rows asked words"]
    lengths: Int[Tensor, "rows asked"]
    answers: Int[Tensor, "rows asked"]

    @classmethod
    def from_questions(cls, image_questions: ImageQuestions) -> QuestionBatch:
        return cls(
            image_questions.scenes.images[:, None],
            image_questions.questions,
            image_questions.lengths,
            image_questions.answers,
        )

    def __len__(self) -> int:
        return len(self.images)

    @property
    def num_tokens(self) -> int:
        """How many questions there are."""
        return self.answers.numel()

    @property
    def model_inputs(self) -> tuple[Tensor, ...]:
        """What a model sees and reads."""
        return self.images, self.questions, self.lengths

    @property
    def targets(self) -> Int[Tensor, "rows asked"]:
        """What it should say."""
        return self.answers

    def to(self, device: torch.device | str) -> QuestionBatch:
        return replace(self, **{name: value.to(device) for name, value in vars(self).items()})

    def shard(self, rank: int, world_size: int) -> QuestionBatch:
        """The share of one of `world` processes: every world-th row."""
        return replace(self, **{name: value[rank::world_size] for name, value in vars(self).items()})


class GeneratedQuestionBatches:
    """Questions without end; each batch is a function of the seed and its number alone."""

    def __init__(self, question_generator: QuestionGenerator, batch_size: int = 32, *, seed: int = 0):
        self.question_generator, self.batch_size, self.seed = question_generator, batch_size, seed

    def batches(
        self, position: dict[str, Any] | None = None
    ) -> Iterator[tuple[QuestionBatch, dict[str, Any]]]:
        number = 0 if position is None else int(position["batch"])
        while True:
            asked = self.question_generator.sample(seeded_generator(self.seed, number), self.batch_size)
            number += 1
            yield QuestionBatch.from_questions(asked), {"batch": number}
