"""Questions about scenes: every answer is computed again from the scene."""

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
def generator():
    return QuestionGenerator(SceneGenerator(load_sklearn_digits("train")))


@pytest.fixture(scope="module")
def questions(generator):
    return generator.sample(seeded_generator(1), 400)


def compute_answer(question_type, words, labels, boxes):
    """The answer, from the words of a question and what stands in the scene from left to right."""
    if question_type == "name":
        (place,) = (place for place, word in enumerate(("left", "middle", "right")) if word in words)
        return str(labels[place])
    (digit,) = (int(word) for word in words if word.isdigit())
    if question_type == "there":
        return "yes" if digit in labels else "no"
    if question_type == "count":
        return str(labels.count(digit))
    assert labels.count(digit) == 1  # "the 7" is one
    place = labels.index(digit)
    left, top, right, bottom = boxes[place]
    if question_type == "where":
        return f"{'top' if top + bottom < 64 else 'bottom'} {'left' if left + right < 64 else 'right'}"
    if question_type == "size":
        return "large" if right - left > 12 else "small"
    other = place - 1 if question_type == "left" else place + 1
    return str(labels[other]) if 0 <= other < 3 else "nothing"


def test_answers_are_correct(questions):
    for row in range(200):
        labels, boxes = questions.scenes.labels[row].tolist(), questions.scenes.boxes[row].tolist()
        for number in range(len(QUESTION_TYPES)):
            question_type = QUESTION_TYPES[int(questions.types[row, number])]
            words = questions.get_question(row, number).replace("s", " s").split()
            words = [word.strip() for word in words]
            assert questions.get_answer(row, number) == compute_answer(question_type, words, labels, boxes)


def test_relevant_digits(questions):
    for row in range(200):
        labels = questions.scenes.labels[row]
        for number in range(len(QUESTION_TYPES)):
            question_type, relevant = (
                QUESTION_TYPES[int(questions.types[row, number])],
                questions.relevant_digits[row, number],
            )
            answer = questions.get_answer(row, number)
            if question_type == "count":
                assert int(relevant.sum()) == int(answer)
            elif question_type in ("left", "right"):
                assert int(relevant.sum()) == (1 if answer == "nothing" else 2)
            elif question_type == "there":
                assert bool(relevant.any()) == (answer == "yes")
            elif question_type == "name":
                assert labels[relevant].tolist() == [int(answer)]
            else:
                assert int(relevant.sum()) == 1


def test_answers_are_balanced(questions):
    for question_type, limit in (("there", 0.65), ("count", 0.6), ("where", 0.4), ("size", 0.62), ("name", 0.2)):
        answers = questions.answers[questions.types == QUESTION_TYPES.index(question_type)]
        assert float(answers.bincount().max()) / len(answers) < limit
    counts = questions.answers[questions.types == QUESTION_TYPES.index("count")]
    assert int(counts.bincount(minlength=4).min()) > 10
    assert len(questions.answers.unique()) == len(ANSWERS)


def test_left_and_right_are_unambiguous(questions):
    for row, number in (questions.types == QUESTION_TYPES.index("where")).nonzero().tolist():
        left, _, right, _ = questions.scenes.boxes[row][questions.relevant_digits[row, number]][0].tolist()
        assert abs(left + right - 64) >= 8


def test_questions_can_be_encoded(questions):
    for row in range(50):
        for number in range(len(QUESTION_TYPES)):
            words = encode_question(questions.get_question(row, number))
            assert questions.questions[row, number].tolist() == words + [0] * (MAX_QUESTION_LENGTH - len(words))
            assert int(questions.lengths[row, number]) == len(words)


def test_encode_question_accepts_variants():
    assert encode_question("How many 3s are there?") == encode_question("how many 3 s are there")
    assert encode_question("Is there an 8?") == encode_question("is there a 8")
    assert len(ALL_QUESTIONS) == sum(len(forms) for forms in list(QUESTION_TEMPLATES.values())[:-1]) * 10 + 2 * 3
    assert QUESTION_WORDS[0] == ""


@pytest.mark.parametrize("text", ["", "why", "is there a dog", "how many 3s are there left", "where is the 12"])
def test_other_questions_are_refused(text):
    with pytest.raises(
        InputError, match="is not a question that this model knows; ask for instance: is there a 7; how many 7s"
    ):
        encode_question(text)


def test_question_batches_resume_exactly(generator):
    source = GeneratedBatches(generator.sample, QuestionBatch.from_questions, batch_size=4, seed=5)
    stream = source.batches()
    batches = [next(stream) for _ in range(3)]
    same, there = next(source.batches(batches[1][1]))
    assert there == batches[2][1]
    for name, value in vars(batches[2][0]).items():
        assert torch.equal(vars(same)[name], value)
    batch = batches[0][0]
    assert batch.num_tokens == 4 * len(QUESTION_TYPES)
    parts = [batch.shard(rank, 3) for rank in range(3)]
    assert sum(part.num_tokens for part in parts) == batch.num_tokens
    assert torch.equal(parts[1].questions[0], batch.questions[1])


def test_head(questions):
    few = questions.head(3)
    assert len(few) == len(few.scenes) == 3
    assert QuestionBatch.from_questions(few).num_tokens == 3 * len(QUESTION_TYPES)


def test_all_ten_digits_are_required():
    nine = Digits(torch.rand(9, 8, 8), torch.arange(9))
    with pytest.raises(ValueError, match="need images of all ten"):
        QuestionGenerator(SceneGenerator(nine))


def test_image_batches_resume_exactly():
    scenes = SceneGenerator(load_sklearn_digits("train"), num_digits=1)
    source = GeneratedBatches(scenes.sample, ImageBatch.from_scenes, batch_size=5, seed=2)
    stream = source.batches()
    _, position = next(stream)
    batch, _ = next(stream)
    same, _ = next(source.batches(position))
    assert torch.equal(batch.images, same.images)
    assert torch.equal(batch.labels, same.labels)
    assert batch.num_tokens == 5
    assert torch.equal(batch.shard(1, 2).labels, batch.labels[1::2])
    rendered = scenes.sample(seeded_generator(2, 1), 5)
    assert torch.equal(ImageBatch.from_scenes(rendered).labels, batch.labels)
