"""Questions about scenes of digits, and their answers: a small closed grammar.

    is there a 5    how many 3s    where is the 7    what is left of the 4    what is the left digit

Each scene has one question of each type; ambiguous questions are left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, product

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from regard.data.scenes import RenderedScenes, SceneGenerator
from regard.data.sources import BatchWithLabels, TensorRows
from regard.errors import InputError, UsageError

__all__ = [
    "ALL_QUESTIONS", "ANSWERS", "MAX_QUESTION_LENGTH", "QUESTION_TEMPLATES", "QUESTION_TYPES", "QUESTION_WORDS",
    "SINGLE_DIGIT_TYPES", "ImageQuestions", "QuestionBatch", "QuestionGenerator", "compute_answers",
    "encode_question", "format_question",
]  # fmt: skip

PerQuestion = Int[Tensor, "count questions"]
QUESTION_TEMPLATES = {  # by type; # is a digit, @ one of the three places
    "there": ("is there a #", "can you see a #"),
    "count": ("how many # s", "how many # s are there"),
    "where": ("where is the #", "find the #"),
    "size": ("how large is the #", "what size is the #"),
    "left": ("what is left of the #", "what stands left of the #"),
    "right": ("what is right of the #", "what stands right of the #"),
    "name": ("what is the @ digit", "which digit is the @ one"),
}
QUESTION_TYPES = tuple(QUESTION_TEMPLATES)
THERE, COUNT, WHERE, SIZE, LEFT, RIGHT, NAME = range(len(QUESTION_TYPES))
SINGLE_DIGIT_TYPES = ("there", "where", "size", "name")  # a single digit of the scene is relevant
PLACES = ("left", "middle", "right")
CORNERS = ("top left", "top right", "bottom left", "bottom right")
DIGIT_NAMES = tuple(map(str, range(10)))
ANSWERS = (*DIGIT_NAMES, "no", "yes", *CORNERS, "small", "large", "nothing")
TEMPLATES = tuple(chain.from_iterable(QUESTION_TEMPLATES.values()))
TEMPLATE_WORDS = {word for template in TEMPLATES for word in template.split()} - {"#", "@", *PLACES}
QUESTION_WORDS = ("", *DIGIT_NAMES, *PLACES, *sorted(TEMPLATE_WORDS))  # the first one is padding
MAX_QUESTION_LENGTH = max(len(template.split()) for template in TEMPLATES)
ALL_QUESTIONS = {form.replace("#", n).replace("@", p) for form, n, p in product(TEMPLATES, DIGIT_NAMES, PLACES)}
# Types that may be about a digit that is there twice, and how often a type is about one that is not there.
ALLOWS_REPEATED_DIGIT = torch.tensor([name in ("there", "count", "name") for name in QUESTION_TYPES])
ABSENT_RATE = torch.tensor([{"there": 0.5, "count": 0.25}.get(name, 0.0) for name in QUESTION_TYPES])
TWO_COPIES_RATE, THREE_COPIES_RATE = 0.4, 0.1  # scenes that have a digit at least that often


def encode_question(text: str) -> list[int]:
    """Encode a question as indices of `QUESTION_WORDS`.

    Args:
        text: a question of the grammar, in any case, with or without a question mark.

    Returns:
        The indices.

    Raises:
        InputError: the question is not in the grammar; the message lists examples that are.

    Example:
        >>> [QUESTION_WORDS[word] for word in encode_question("How many 3s?")]
        ['how', 'many', '3', 's']
    """
    words = ["a" if word == "an" else word for word in re.findall(r"[0-9]|[^\W\d_]+", text.lower())]
    if " ".join(words) not in ALL_QUESTIONS:
        examples = (templates[0].replace("#", "7").replace("@", "left") for templates in QUESTION_TEMPLATES.values())
        known = "; ".join(format_question(template.split()) for template in examples)
        raise InputError(f"{text!r} is not a question that this model knows; ask for instance: {known}")
    return [QUESTION_WORDS.index(word) for word in words]


def format_question(words: Sequence[str]) -> str:
    """Join the words of a question as people write them.

    Args:
        words: the words.

    Returns:
        The question.

    Example:
        >>> format_question(["how", "many", "3", "s"])
        'how many 3s'
    """
    return re.sub(r"(\d) s\b", r"\1s", " ".join(words))


@dataclass(frozen=True)
class ImageQuestions(TensorRows):
    """Scenes with questions, their answers, and the digits that each question is about.

    Args:
        scenes: the scenes.
        questions: indices of `QUESTION_WORDS`, padded with 0.
        lengths: words of each question.
        answers: indices of `ANSWERS`.
        types: indices of `QUESTION_TYPES`.
        relevant_digits: whether a digit matters for the answer.

    Shape:
        questions: (count, questions, words), relevant_digits: (count, questions, digits), the others:
        (count, questions).

    Example:
        >>> from regard.data.images import Digits
        >>> digits = Digits(torch.rand(20, 8, 8), torch.arange(20) % 10)
        >>> len(QuestionGenerator(SceneGenerator(digits)).sample(torch.Generator(), 3).head(2))
        2
    """

    scenes: RenderedScenes
    questions: Int[Tensor, "count questions words"]
    lengths: PerQuestion
    answers: PerQuestion
    types: PerQuestion
    relevant_digits: Bool[Tensor, "count questions digits"]

    def get_question(self, row: int, question_index: int) -> str:
        """Return a question as text.

        Args:
            row: the scene.
            question_index: the question of this scene.

        Returns:
            The question.
        """
        return format_question([QUESTION_WORDS[word] for word in self.questions[row, question_index].tolist() if word])

    def get_answer(self, row: int, question_index: int) -> str:
        """Return an answer as text.

        Args:
            row: the scene.
            question_index: the question of this scene.

        Returns:
            The answer.
        """
        return ANSWERS[int(self.answers[row, question_index])]


class QuestionGenerator:
    """Generates random questions about random scenes.

    Args:
        scenes: generates scenes of three digits, from images of all ten.

    Example:
        >>> from regard.data.images import Digits
        >>> digits = Digits(torch.rand(20, 8, 8), torch.arange(20) % 10)
        >>> questions = QuestionGenerator(SceneGenerator(digits)).sample(torch.Generator().manual_seed(3), 2)
        >>> questions.scenes.labels[0].tolist(), questions.get_question(0, 4), questions.get_answer(0, 4)
        ([6, 8, 7], 'what stands left of the 6', 'nothing')
    """

    def __init__(self, scenes: SceneGenerator) -> None:
        self.scenes = scenes
        labels = scenes.digits.labels
        self._digit_order = labels.argsort(stable=True)
        self._digit_counts = labels.bincount(minlength=len(DIGIT_NAMES))
        if int(self._digit_counts.min()) == 0 or scenes.num_digits != len(PLACES):
            raise UsageError(f"questions are about {len(PLACES)} digits, and need images of all ten")
        self._templates = torch.tensor([list(map(_encode_template, group)) for group in QUESTION_TEMPLATES.values()])
        self._template_lengths = (self._templates != 0).sum(-1)

    def sample(self, generator: Generator, batch_size: int) -> ImageQuestions:
        """Generate scenes with a question of each type; an impossible question becomes one of another type.

        Args:
            generator: the source of randomness.
            batch_size: the number of scenes.

        Returns:
            The scenes and questions.
        """
        scenes = self._sample_scenes(generator, batch_size)
        types, place = self._choose_subjects(generator, scenes)
        digit = self._choose_digits(generator, scenes, types, place)
        mentioned = scenes.labels[:, None] == digit[..., None]
        is_name = types == NAME
        mentioned = torch.where(is_name[..., None], torch.arange(len(PLACES)) == place[..., None], mentioned)
        template = torch.randint(self._templates.shape[1], types.shape, generator=generator)
        first_place, first_digit = QUESTION_WORDS.index(PLACES[0]), QUESTION_WORDS.index(DIGIT_NAMES[0])
        word = torch.where(is_name, first_place + place, first_digit + digit)
        chosen = self._templates[types, template]
        questions = torch.where(chosen < 0, word[..., None], chosen)
        answers = compute_answers(scenes, types, mentioned)
        step = (types == RIGHT).long() - (types == LEFT).long()
        is_neighbor = (torch.arange(len(PLACES)) == (place + step)[..., None]) & (step != 0)[..., None]
        relevant = mentioned | is_neighbor  # the neighbor answers a question of type left or right
        return ImageQuestions(scenes, questions, self._template_lengths[types, template], answers, types, relevant)

    def _sample_scenes(self, generator: Generator, batch_size: int) -> RenderedScenes:
        """Generate scenes in which repeated digits are more frequent than in uniform ones."""
        shape = batch_size, len(PLACES)
        labels = torch.randint(len(DIGIT_NAMES), shape, generator=generator)
        draws = torch.rand(batch_size, 1, generator=generator)
        copies = 1 + (draws < TWO_COPIES_RATE).long() + (draws < THREE_COPIES_RATE).long()
        rank = torch.rand(shape, generator=generator).argsort(1)
        labels = torch.where(rank < copies, labels.gather(1, rank.argmin(1, keepdim=True)), labels)
        starts = (self._digit_counts.cumsum(0) - self._digit_counts)[labels]
        indices = starts + (torch.rand(shape, generator=generator) * self._digit_counts[labels]).long()
        return self.scenes.sample(generator, batch_size, self._digit_order[indices])

    def _choose_subjects(self, generator: Generator, scenes: RenderedScenes) -> tuple[PerQuestion, PerQuestion]:
        """Choose the types of questions, and the place of the digit that each is about.

        "The 7" occurs once; "where" is not asked about a digit between left and right.
        """
        labels = scenes.labels
        is_unique = (labels[:, :, None] == labels[:, None]).sum(-1) == 1
        draws = torch.rand(len(scenes), len(QUESTION_TYPES), len(PLACES), generator=generator)
        place = (draws * (is_unique[:, None] | ALLOWS_REPEATED_DIGIT[:, None])).argmax(-1)
        types = torch.arange(len(QUESTION_TYPES)).expand(len(scenes), -1)
        types = torch.where(is_unique.any(1, keepdim=True) | ALLOWS_REPEATED_DIGIT, types, COUNT)
        is_central = (scenes.horizontal_centers - scenes.images.shape[-1]).abs() < 2 * self.scenes.min_separation
        return torch.where((types == WHERE) & is_central.gather(1, place), SIZE, types), place

    def _choose_digits(self, generator: Generator, scenes: RenderedScenes, types: Tensor, place: Tensor) -> PerQuestion:
        """Return the digit at each place or, at a rate that depends on the type, one that is not in the scene."""
        is_present = (scenes.labels[..., None] == torch.arange(len(DIGIT_NAMES))).any(1, keepdim=True)
        absent = (torch.rand(*types.shape, len(DIGIT_NAMES), generator=generator) * ~is_present).argmax(-1)
        use_absent = torch.rand(types.shape, generator=generator) < ABSENT_RATE[types]
        return torch.where(use_absent, absent, scenes.labels.gather(1, place))


def _encode_template(template: str) -> list[int]:
    """Encode a template as padded indices of `QUESTION_WORDS`, with -1 for the word to fill in."""
    words = [-1 if word in "#@" else QUESTION_WORDS.index(word) for word in template.split()]
    return words + [0] * (MAX_QUESTION_LENGTH - len(words))


def compute_answers(
    scenes: RenderedScenes, types: PerQuestion, mentioned: Bool[Tensor, "count questions digits"]
) -> PerQuestion:
    """Compute the answer to each question.

    Args:
        scenes: the scenes.
        types: indices of `QUESTION_TYPES`.
        mentioned: whether a digit is mentioned in the question.

    Returns:
        Indices of `ANSWERS`.

    Shape:
        (count, questions).

    Example:
        >>> from regard.data.images import Digits
        >>> scenes = SceneGenerator(Digits(torch.rand(5, 8, 8), torch.arange(5))).sample(torch.Generator(), 1)
        >>> mentioned = torch.tensor([[[True, True, False]]])
        >>> ANSWERS[compute_answers(scenes, torch.tensor([[COUNT]]), mentioned)]
        '2'
    """
    place = mentioned.long().argmax(-1)
    corner = 2 * scenes.is_below.long() + (scenes.horizontal_centers > scenes.images.shape[-1]).long()
    nothing = torch.full((len(scenes), 1), ANSWERS.index("nothing"))
    row = torch.cat((nothing, scenes.labels, nothing), 1)
    by_type = (
        ANSWERS.index("no") + mentioned.any(-1).long(),
        mentioned.sum(-1),
        ANSWERS.index(CORNERS[0]) + corner.gather(1, place),
        ANSWERS.index("small") + scenes.is_large.long().gather(1, place),
        row.gather(1, place),
        row.gather(1, place + 2),
        scenes.labels.gather(1, place),
    )
    return torch.stack(by_type, -1).gather(-1, types[..., None])[..., 0]


@dataclass(frozen=True)
class QuestionBatch(BatchWithLabels):
    """Images with questions about each, and their answers.

    Args:
        images: the images.
        questions: indices of `QUESTION_WORDS`, padded with 0.
        lengths: words of each question.
        labels: the answers, indices of `ANSWERS`.

    Shape:
        images: (batch, channels, height, width), questions: (batch, questions, words), the others: (batch, questions).

    Example:
        >>> from regard.data.images import Digits
        >>> digits = Digits(torch.rand(20, 8, 8), torch.arange(20) % 10)
        >>> questions = QuestionGenerator(SceneGenerator(digits)).sample(torch.Generator(), 2)
        >>> QuestionBatch.from_questions(questions).num_tokens
        14
    """

    images: Float[Tensor, "batch channels height width"]
    questions: Int[Tensor, "batch questions words"]
    lengths: Int[Tensor, "batch questions"]
    labels: Int[Tensor, "batch questions"]

    @classmethod
    def from_questions(cls, questions: ImageQuestions) -> QuestionBatch:
        """Convert questions to a batch.

        Args:
            questions: scenes with questions.

        Returns:
            The batch.
        """
        return cls(questions.scenes.images[:, None], questions.questions, questions.lengths, questions.answers)
