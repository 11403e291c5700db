"""Questions about scenes: what is answered is what is there."""

import pytest
import torch

from regard.data.images import Digits, load_sklearn_digits
from regard.data.questions import (
    ALL_QUESTIONS,
    ANSWERS,
    MAX_QUESTION_LENGTH,
    QUESTION_TEMPLATES,
    QUESTION_TYPES,
    QUESTION_WORDS,
    QuestionBatch,
    QuestionGenerator,
    encode_question,
)
from regard.data.scenes import ImageBatch, SceneGenerator
from regard.data.sources import GeneratedBatches, seeded_generator
from regard.errors import InputError


@pytest.fixture(scope="module")
def asking():
    return QuestionGenerator(SceneGenerator(load_sklearn_digits("train")))


@pytest.fixture(scope="module")
def asked(asking):
    return asking.sample(seeded_generator(1), 400)


def by_hand(kind, words, labels, boxes):
    """The answer, from the words of a question and what stands in the scene from left to right."""
    if kind == "name":
        (place,) = (place for place, word in enumerate(("left", "middle", "right")) if word in words)
        return str(labels[place])
    (digit,) = (int(word) for word in words if word.isdigit())
    if kind == "there":
        return "yes" if digit in labels else "no"
    if kind == "count":
        return str(labels.count(digit))
    assert labels.count(digit) == 1  # "the 7" is one
    place = labels.index(digit)
    left, top, right, bottom = boxes[place]
    if kind == "where":
        return f"{'top' if top + bottom < 64 else 'bottom'} {'left' if left + right < 64 else 'right'}"
    if kind == "size":
        return "large" if right - left > 12 else "small"
    other = place - 1 if kind == "left" else place + 1
    return str(labels[other]) if 0 <= other < 3 else "nothing"


def test_every_answer_is_true(asked):
    for row in range(200):
        labels, boxes = asked.scenes.labels[row].tolist(), asked.scenes.boxes[row].tolist()
        for number in range(len(QUESTION_TYPES)):
            kind = QUESTION_TYPES[int(asked.types[row, number])]
            words = asked.get_question(row, number).replace("s", " s").split()
            words = [word.strip() for word in words]
            assert asked.get_answer(row, number) == by_hand(kind, words, labels, boxes)


def test_what_matters_is_what_is_asked_about(asked):
    for row in range(200):
        labels = asked.scenes.labels[row]
        for number in range(len(QUESTION_TYPES)):
            kind, matter = QUESTION_TYPES[int(asked.types[row, number])], asked.relevant_digits[row, number]
            answer = asked.get_answer(row, number)
            if kind == "count":
                assert int(matter.sum()) == int(answer)
            elif kind in ("left", "right"):
                assert int(matter.sum()) == (1 if answer == "nothing" else 2)
            elif kind == "there":
                assert bool(matter.any()) == (answer == "yes")
            elif kind == "name":
                assert labels[matter].tolist() == [int(answer)]
            else:
                assert int(matter.sum()) == 1


def test_answers_are_balanced(asked):
    for kind, most in (("there", 0.65), ("count", 0.6), ("where", 0.4), ("size", 0.62), ("name", 0.2)):
        told = asked.answers[asked.types == QUESTION_TYPES.index(kind)]
        assert float(told.bincount().max()) / len(told) < most
    counted = asked.answers[asked.types == QUESTION_TYPES.index("count")]
    assert int(counted.bincount(minlength=4).min()) > 10
    assert len(asked.answers.unique()) == len(ANSWERS)


def test_left_and_right_are_never_in_doubt(asked):
    for row, number in (asked.types == QUESTION_TYPES.index("where")).nonzero().tolist():
        left, _, right, _ = asked.scenes.boxes[row][asked.relevant_digits[row, number]][0].tolist()
        assert abs(left + right - 64) >= 8


def test_what_is_asked_can_be_read(asked):
    for row in range(50):
        for number in range(len(QUESTION_TYPES)):
            words = encode_question(asked.get_question(row, number))
            assert asked.questions[row, number].tolist() == words + [0] * (MAX_QUESTION_LENGTH - len(words))
            assert int(asked.lengths[row, number]) == len(words)


def test_people_write_as_they_like():
    assert encode_question("How many 3s are there?") == encode_question("how many 3 s are there")
    assert encode_question("Is there an 8?") == encode_question("is there a 8")
    assert (
        len(ALL_QUESTIONS) == sum(len(forms) for forms in list(QUESTION_TEMPLATES.values())[:-1]) * 10 + 2 * 3
    )
    assert QUESTION_WORDS[0] == ""


@pytest.mark.parametrize(
    "text", ["", "why", "is there a dog", "how many 3s are there left", "where is the 12"]
)
def test_other_questions_are_refused(text):
    with pytest.raises(
        InputError,
        match="is not a question that this model knows; ask for instance: is there a 7; how many 7s",
    ):
        encode_question(text)


def test_batches_go_on_from_a_position(asking):
    quiz = GeneratedBatches(asking.sample, QuestionBatch.from_questions, batch_size=4, seed=5)
    stream = quiz.batches()
    batches = [next(stream) for _ in range(3)]
    same, there = next(quiz.batches(batches[1][1]))
    assert there == batches[2][1]
    for name, value in vars(batches[2][0]).items():
        assert torch.equal(vars(same)[name], value)
    batch = batches[0][0]
    assert batch.num_tokens == 4 * len(QUESTION_TYPES)
    parts = [batch.shard(rank, 3) for rank in range(3)]
    assert sum(part.num_tokens for part in parts) == batch.num_tokens
    assert torch.equal(parts[1].questions[0], batch.questions[1])


def test_head(asked):
    few = asked.head(3)
    assert len(few) == len(few.scenes) == 3
    assert QuestionBatch.from_questions(few).num_tokens == 3 * len(QUESTION_TYPES)


def test_ten_digits_are_needed():
    nine = Digits(torch.rand(9, 8, 8), torch.arange(9))
    with pytest.raises(ValueError, match="need images of all ten"):
        QuestionGenerator(SceneGenerator(nine))


def test_labels_go_on_from_a_position():
    scenes = SceneGenerator(load_sklearn_digits("train"), num_digits=1)
    labeling = GeneratedBatches(scenes.sample, ImageBatch.from_scenes, batch_size=5, seed=2)
    stream = labeling.batches()
    _, position = next(stream)
    batch, _ = next(stream)
    same, _ = next(labeling.batches(position))
    assert torch.equal(batch.images, same.images)
    assert torch.equal(batch.labels, same.labels)
    assert batch.num_tokens == 5
    assert torch.equal(batch.shard(1, 2).labels, batch.labels[1::2])
    painted = scenes.sample(seeded_generator(2, 1), 5)
    assert torch.equal(ImageBatch.from_scenes(painted).labels, batch.labels)
