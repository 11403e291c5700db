"""Questions about scenes of digits, and their answers: a small closed grammar.

    is there a 5    how many 3s    where is the 7    what is left of the 4    what is the left digit

Of each scene, one question of each kind is asked; what would be in doubt is not asked.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Generator, Tensor

from regard.data._question_words import (
    ANSWERS,
    CORNERS,
    FORMS,
    KINDS,
    LONGEST,
    NAMES,
    PLACES,
    WORDS,
    write_question,
)
from regard.data.labeled import first
from regard.data.scenes import Painted, Scenes
from regard.errors import UsageError

THERE, COUNT, WHERE, SIZE, LEFT, RIGHT, NAME = range(len(KINDS))
# Kinds that may be about a digit that is there twice, and how often kinds are about one that is not there.
ANYWHERE = torch.tensor([kind in ("there", "count", "name") for kind in KINDS])
ABSENT = torch.tensor([{"there": 0.5, "count": 0.25}.get(kind, 0.0) for kind in KINDS])
TWICE, THRICE = 0.4, 0.1  # how often a scene has a digit at least so many times


@dataclass(frozen=True)
class Asked:
    """Scenes with questions about each, their answers, and which of its digits each question is about.

    Questions are places in `WORDS`, answers in `ANSWERS`, kinds in `KINDS`.
    """

    painted: Painted
    questions: Int[Tensor, "rows asked words"]
    lengths: Int[Tensor, "rows asked"]
    answers: Int[Tensor, "rows asked"]
    kinds: Int[Tensor, "rows asked"]
    matter: Bool[Tensor, "rows asked digits"]

    def __len__(self) -> int:
        return len(self.answers)

    def question(self, row: int, number: int) -> str:
        return write_question([WORDS[word] for word in self.questions[row, number].tolist() if word])

    def answer(self, row: int, number: int) -> str:
        return ANSWERS[int(self.answers[row, number])]

    def first(self, count: int) -> Asked:
        """Of so many scenes."""
        others = {name: told[:count] for name, told in vars(self).items() if name != "painted"}
        return Asked(first(self.painted, count), **others)


class Asking:
    """Questions by chance about scenes by chance.

    >>> from regard.data.digits import Digits
    >>> digits = Digits(torch.rand(20, 8, 8), torch.arange(20) % 10)
    >>> asked = Asking(Scenes(digits)).make(torch.Generator().manual_seed(3), 2)
    >>> asked.painted.labels[0].tolist(), asked.question(0, 4), asked.answer(0, 4)
    ([6, 8, 7], 'what stands left of the 6', 'nothing')
    """

    def __init__(self, scenes: Scenes):
        self.scenes = scenes
        labels = scenes.digits.labels
        self._order, self._counts = labels.argsort(stable=True), labels.bincount(minlength=len(NAMES))
        if int(self._counts.min()) == 0 or scenes.count != len(PLACES):
            raise UsageError(f"questions are about {len(PLACES)} digits, and need images of all ten")
        forms = [[form.split() for form in forms] for forms in FORMS.values()]
        self._lengths = torch.tensor([[len(form) for form in some] for some in forms])
        self._forms = torch.tensor([[_numbered(form) for form in some] for some in forms])

    def make(self, random: Generator, rows: int) -> Asked:
        """So many scenes, and a question of each kind about each; one that cannot be asked becomes another."""
        painted = self._painted(random, rows)
        kinds, place = self._about(random, painted)
        digit = self._digit(random, painted, kinds, place)
        here = painted.labels[:, None] == digit[..., None]
        here = torch.where((kinds == NAME)[..., None], torch.arange(len(PLACES)) == place[..., None], here)
        form = torch.randint(self._forms.shape[1], kinds.shape, generator=random)
        slot = torch.where(kinds == NAME, WORDS.index(PLACES[0]) + place, WORDS.index(NAMES[0]) + digit)
        questions = torch.where(self._forms[kinds, form] < 0, slot[..., None], self._forms[kinds, form])
        answers, matter = answered(painted, kinds, here), here | beside(kinds, place)
        return Asked(painted, questions, self._lengths[kinds, form], answers, kinds, matter)

    def _painted(self, random: Generator, rows: int) -> Painted:
        """Scenes in which a digit is there several times more often than by chance, each any image of its label."""
        shape = rows, len(PLACES)
        labels = torch.randint(len(NAMES), shape, generator=random)
        luck = torch.rand(rows, 1, generator=random)
        copies = 1 + (luck < TWICE).long() + (luck < THRICE).long()
        rank = torch.rand(shape, generator=random).argsort(1)
        copied = labels.gather(1, rank.argmin(1, keepdim=True))
        labels = torch.where(rank < copies, copied, labels)
        starts, counts = (self._counts.cumsum(0) - self._counts)[labels], self._counts[labels]
        which = starts + (torch.rand(shape, generator=random) * counts).long()
        return self.scenes.make(random, rows, self._order[which])

    def _about(self, random: Generator, painted: Painted) -> tuple[Int[Tensor, "rows asked"], ...]:
        """The kinds of questions, and the place of the digit that each is about.

        "The 7" is there once; where it is no question of left or right if it stands in the middle.
        """
        labels, rows = painted.labels, len(painted)
        once = (labels[:, :, None] == labels[:, None]).sum(-1) == 1
        luck = torch.rand(rows, len(KINDS), len(PLACES), generator=random)
        place = (luck * (once[:, None] | ANYWHERE[:, None])).argmax(-1)
        kinds = torch.arange(len(KINDS)).expand(rows, -1)
        kinds = torch.where(once.any(1, keepdim=True) | ANYWHERE, kinds, COUNT)
        middling = (across(painted) - painted.images.shape[-1]).abs() < 2 * self.scenes.clear
        return torch.where((kinds == WHERE) & middling.gather(1, place), SIZE, kinds), place

    def _digit(
        self, random: Generator, painted: Painted, kinds: Tensor, place: Tensor
    ) -> Int[Tensor, "rows asked"]:
        """The digit at that place or, where that makes sense, sometimes one that is not there."""
        present = (painted.labels[..., None] == torch.arange(len(NAMES))).any(1, keepdim=True)
        luck = torch.rand(*kinds.shape, len(NAMES), generator=random)
        absent = (luck * ~present).argmax(-1)
        away = torch.rand(kinds.shape, generator=random) < ABSENT[kinds]
        return torch.where(away, absent, painted.labels.gather(1, place))


def _numbered(form: list[str]) -> list[int]:
    """A form as places in `WORDS`, filled up; -1 for the word that chance chooses."""
    return [*(-1 if word in "#@" else WORDS.index(word) for word in form), *[0] * (LONGEST - len(form))]


def across(painted: Painted) -> Int[Tensor, "rows digits"]:
    """Twice the middle of each digit, from left to right."""
    return painted.boxes[..., 0] + painted.boxes[..., 2]


def beside(kinds: Int[Tensor, "rows asked"], place: Tensor) -> Bool[Tensor, "rows asked digits"]:
    """The digit that is the answer, if it is the one left or right of another."""
    step = (kinds == RIGHT).long() - (kinds == LEFT).long()
    return (torch.arange(len(PLACES)) == (place + step)[..., None]) & (step != 0)[..., None]


def answered(
    painted: Painted, kinds: Int[Tensor, "rows asked"], here: Bool[Tensor, "rows asked digits"]
) -> Int[Tensor, "rows asked"]:
    """The answer to each question, where `here` says which digits are those that it names."""
    place = here.long().argmax(-1)
    corner = 2 * painted.below.long() + (across(painted) > painted.images.shape[-1]).long()
    nothing = torch.full((len(painted), 1), ANSWERS.index("nothing"))
    row = torch.cat((nothing, painted.labels, nothing), 1)
    every = (
        ANSWERS.index("no") + here.any(-1).long(),
        here.sum(-1),
        ANSWERS.index(CORNERS[0]) + corner.gather(1, place),
        ANSWERS.index("small") + painted.large.long().gather(1, place),
        row.gather(1, place),
        row.gather(1, place + 2),
        painted.labels.gather(1, place),
    )
    return torch.stack(every, -1).gather(-1, kinds[..., None])[..., 0]
