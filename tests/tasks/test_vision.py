"""Image classification and visual question answering: training, resuming, loading, evaluation, explanations."""

import json

import pytest
import torch

from regard.attention import MaxPool
from regard.data.images import load_sklearn_digits
from regard.data.questions import ANSWERS, QUESTION_TYPES, QuestionGenerator
from regard.data.scenes import SceneGenerator
from regard.data.sources import seeded_generator
from regard.errors import ConfigError, InputError, UnsupportedError
from regard.tasks import ImageClassifier, Processor, VisualQA, get_recipe, grid, load, make_config, resume, train
from regard.tasks.loading import evaluate
from regard.tasks.vision import task as vision_task
from regard.tasks.vision.predictor import pointing_hits
from regard.tasks.vision.task import (
    ImageClassificationProcessor,
    ImageClassificationTask,
    VisualQAProcessor,
    VisualQATask,
)
from regard.training import RunFolder, load_weights
from tests.tasks.tiny_runs import quiet

TINY = [
    "conv_channels=4",
    "feature_dim=24",
    "hidden_dim=8",
    "image_size=32",
    "batch_size=8",
    "num_threads=1",
    "warmup_steps=2",
]
FOUR_STEPS = [*TINY, "steps=4", "validate_every=2", "save_every=2"]
IMAGES, QUESTIONS = "digits", "digit-questions"


@pytest.fixture(autouse=True)
def _few_scenes(monkeypatch):
    monkeypatch.setattr(grid, "NUM_VALID_SCENES", 12)
    monkeypatch.setattr(grid, "NUM_TEST_SCENES", 20)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of each task, after a few steps."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grid, "NUM_VALID_SCENES", 12)
        train(IMAGES, folder / IMAGES, FOUR_STEPS, log=quiet)
        train(QUESTIONS, folder / QUESTIONS, [*FOUR_STEPS, "num_hops=2"], log=quiet)
    return folder


def test_image_classifier_predicts_probabilities(runs):
    classifier = load(runs / IMAGES)
    assert isinstance(classifier, ImageClassifier)
    one, two = classifier.predict([torch.rand(32, 32), torch.rand(50, 40, 3)])
    assert set(one.probabilities) == set(two.probabilities) == set(map(str, range(10)))
    assert sum(one.probabilities.values()) == pytest.approx(1)
    assert one.score == one.probabilities[one.text] == max(one.probabilities.values())
    assert classifier.predict([]) == []
    with pytest.raises(TypeError, match="expects a list of images"):
        classifier.predict("x.png")


def test_image_explanation_has_weights_over_the_grid(runs, tmp_path):
    explanation = load(runs / IMAGES).explain(torch.rand(32, 32))
    assert explanation.weights.shape == (1, 4, 4)
    torch.testing.assert_close(explanation.weights.sum((1, 2)), torch.ones(1))
    assert explanation.image.shape == (32, 32, 3)
    assert explanation.to_figure().png()[1:4] == b"PNG"
    assert explanation.to_text().startswith(explanation.prediction.text)
    for suffix in (".txt", ".json", ".html", ".png", ".svg"):
        explanation.save(tmp_path / f"x{suffix}")
        assert (tmp_path / f"x{suffix}").stat().st_size > 100
    plain = json.loads(json.dumps(explanation.to_json()))
    assert plain["label"] == explanation.prediction.text
    assert plain["attention"][0]["weights"] == explanation.maps[0].weights.tolist()


def test_visual_qa_answers_questions(runs):
    predictor = load(runs / QUESTIONS)
    assert isinstance(predictor, VisualQA)
    (answer,) = predictor.predict([(torch.rand(32, 32), "How many 3s?")])
    assert answer.text == next(iter(answer.probabilities))
    assert set(answer.probabilities) == set(ANSWERS)
    explanation = predictor.explain((torch.rand(32, 32), "How many 3s?"))
    assert explanation.weights.shape == (2, 4, 4)
    assert explanation.names == ["hop 1", "hop 2"]
    assert explanation.title.startswith(f"How many 3s? {explanation.prediction.text} (")
    assert explanation.to_json()["question"] == "How many 3s"
    assert explanation.to_figure().png()[1:4] == b"PNG"
    for method in (predictor.predict, predictor.check):
        with pytest.raises(InputError, match="not a question that this model knows"):
            method([(torch.rand(32, 32), "why?")])


@pytest.mark.parametrize(
    ("name", "overrides", "has_attention"),
    [
        (IMAGES, ["learned_queries=none"], True),
        (IMAGES, ["learned_queries=each", "score=bilinear", "normalize=sparsemax"], True),
        (IMAGES, ["pooling=average"], False),
        (IMAGES, ["pooling=max"], False),
        (QUESTIONS, ["pooling=average"], False),
        (QUESTIONS, ["score=bilinear", "normalize=sigmoid", "dropout=0.1", "question_encoder=bag"], True),
    ],
)
def test_every_variant_trains_and_is_evaluated(name, overrides, has_attention, tmp_path):
    train(name, tmp_path / "run", [*FOUR_STEPS, *overrides, "steps=2"], log=quiet)
    predictor = load(tmp_path / "run")
    assert predictor.has_attention == has_attention
    ((split, report),) = evaluate(tmp_path / "run").items()
    assert split == "test"
    assert 0 <= report.metrics["accuracy"] <= 100
    assert ("inside" in report.metrics) == has_attention
    image = torch.rand(32, 32)
    explanation = predictor.explain(image if name == IMAGES else (image, "is there a 5"))
    if "learned_queries=each" in overrides:
        assert explanation.weights.shape == (10, 4, 4)
        assert explanation.names == list(explanation.probabilities)
    if not has_attention:
        assert explanation.weights is None
        with pytest.raises(UnsupportedError, match="no attention"):
            explanation.to_figure()
        assert explanation.to_text()


def test_evaluation_of_the_first_scenes(runs):
    """A limit gives the scenes one by one; together they are the same as a slice."""
    for name, count in ((IMAGES, 5), (QUESTIONS, 35)):
        report = evaluate(runs / name, "valid", limit=5)["valid"]
        assert report.num_examples == count
        data = get_recipe(name).load_data(load(runs / name).config)
        assert load(runs / name).evaluate(data.valid.load()[:5]) == report


def test_loading_needs_only_the_run(runs, monkeypatch):
    def fail(*args):
        raise AssertionError("the data was read")

    monkeypatch.setattr(grid, "load_sklearn_digits", fail)
    for name in (IMAGES, QUESTIONS):
        assert load(runs / name).processor.image_size == 32


@pytest.mark.parametrize("name", [IMAGES, QUESTIONS])
def test_a_resumed_run_is_equal_bit_for_bit(name, tmp_path):
    overrides = [*FOUR_STEPS, "dropout=0.2"]
    train(name, tmp_path / "full", overrides, log=quiet)
    train(name, tmp_path / "parts", [*overrides, "steps=2"], log=quiet)
    resume(tmp_path / "parts", log=quiet, steps=4)
    expected, resumed = (load_weights(RunFolder.open(tmp_path / which).find_weights()) for which in ("full", "parts"))
    assert all(torch.equal(expected[key], resumed[key]) for key in expected)


def test_visual_qa_begins_with_the_backbone_of_a_classifier(runs, tmp_path):
    overrides = [*FOUR_STEPS, "steps=1", "lr=1e-9"]
    train(QUESTIONS, tmp_path / "run", overrides, init_from=runs / IMAGES, log=quiet)
    before, after = (
        load_weights(RunFolder.open(folder).find_weights()) for folder in (runs / IMAGES, tmp_path / "run")
    )
    name = "backbone.layers.1.weight"
    torch.testing.assert_close(after[name], before[name], atol=1e-6, rtol=0)
    with pytest.raises(ConfigError, match="another kind of model"):
        train(IMAGES, tmp_path / "back", FOUR_STEPS, init_from=runs / QUESTIONS, log=quiet)


class Oracle(VisualQA):
    """Answers all questions but those of one type, and attends to the center of a relevant digit."""

    has_attention = True

    def __init__(self, questions, wrong_type):
        self.questions, self.wrong_type = questions, QUESTION_TYPES.index(wrong_type)

    def compute_logits(self, *inputs):
        questions = self.questions
        is_wrong = questions.types == self.wrong_type
        answers = torch.where(is_wrong, (questions.answers + 1) % 19, questions.answers)
        return torch.nn.functional.one_hot(answers, 19).float()

    def compute_weights(self, *inputs):
        relevant = self.questions.relevant_digits.long().argmax(-1)
        box = self.questions.scenes.boxes.gather(1, relevant[..., None].expand(-1, -1, 4))
        column, row = ((box[..., side] + box[..., side + 2]) // 16 for side in (0, 1))
        return torch.nn.functional.one_hot((8 * row + column)[:, :, None], 64).float()


@pytest.mark.bare
def test_evaluation_counts_answers_and_attention_by_type():
    generator = QuestionGenerator(SceneGenerator(load_sklearn_digits("test")))
    questions = generator.sample(seeded_generator(0), 50)
    report = Oracle(questions, "size").evaluate(questions)
    types = {row["type"]: row for row in report.tables["types"]}
    rate = types["size"]["examples"] / report.num_examples
    assert report.num_examples == 350
    assert report.metrics["accuracy"] == pytest.approx(100 * (1 - rate))
    assert types["size"]["accuracy"] == 0
    assert types["where"] == types["where"] | {"accuracy": 100.0, "inside": [100.0]}
    assert report.metrics["inside"] == 100


def test_weights_outside_of_the_box_do_not_count():
    scenes = SceneGenerator(load_sklearn_digits("test"), num_digits=1).sample(seeded_generator(0), 30)
    corners = torch.zeros(30, 1, 1, 64)
    corners[..., 0] = 1
    hits = pointing_hits(corners, scenes, torch.ones(30, 1, 1, dtype=torch.bool))[:, 0, 0]
    left, top = scenes.boxes[:, 0, 0], scenes.boxes[:, 0, 1]
    assert torch.equal(hits, (left <= 8) & (top <= 8))
    assert not bool(pointing_hits(corners, scenes, torch.zeros(30, 1, 1, dtype=torch.bool)).any())


def test_evaluation_counts_images_by_class(runs):
    classifier = load(runs / IMAGES)
    scenes = SceneGenerator(load_sklearn_digits("test"), size=32, digit_sizes=(4, 8), num_digits=1).sample(
        seeded_generator(0), 40
    )
    report = classifier.evaluate(scenes)
    counts = scenes.labels.flatten().bincount(minlength=10)
    rows = report.tables["classes"]
    assert {row["label"]: row["examples"] for row in rows} == {
        str(label): int(count) for label, count in enumerate(counts) if count
    }
    num_right = sum(row["accuracy"] * row["examples"] / 100 for row in rows)
    assert report.metrics["accuracy"] == pytest.approx(100 * num_right / 40)


def test_mnist_scenes_are_larger(tmp_path, monkeypatch):
    monkeypatch.setattr(grid, "load_mnist", lambda root, split: load_sklearn_digits(split))
    data = vision_task.mnist_cluttered(make_config("mnist-cluttered", data_dir=str(tmp_path)))
    scenes = data.train
    assert (scenes.size, scenes.digit_sizes, scenes.num_digits, scenes.num_distractors) == (96, (14, 28), 1, 8)
    assert data.valid.load().images.shape == (12, 96, 96)
    assert list(data.tests) == ["test"]


def test_options_become_modules():
    images, questions = ImageClassificationTask(), VisualQATask()
    processor = ImageClassificationProcessor()
    assert isinstance(images.build_model(make_config(IMAGES, ["pooling=max"]), processor).pool, MaxPool)
    model = images.build_model(make_config(IMAGES, ["learned_queries=each"]), processor)
    assert model.pool.query.shape == (10, 64)
    model = questions.build_model(make_config(QUESTIONS, ["num_hops=3"]), VisualQAProcessor())
    assert len(model.attentions) == 3


@pytest.mark.parametrize("processor", [ImageClassificationProcessor(image_size=40), VisualQAProcessor()])
def test_processors_are_saved(processor, tmp_path):
    processor.save(tmp_path)
    assert type(processor).load(tmp_path) == processor
    assert isinstance(processor, Processor)


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        (IMAGES, ["image_size=16"], "invalid value '16' for image_size: must be at least 32"),
        (IMAGES, ["monitor=bits"], "for monitor: expected one of loss, accuracy"),
        (IMAGES, ["pooling=max", "score=bilinear"], "invalid value 'bilinear' for score: needs pooling=attention"),
        (
            IMAGES,
            ["pooling=average", "learned_queries=each"],
            "invalid value 'each' for learned_queries: needs pooling=attention",
        ),
        (IMAGES, ["learned_queries=none", "score=bilinear"], "score=bilinear needs a query"),
        (IMAGES, ["score=nothing"], "invalid value 'nothing' for score"),
        (IMAGES, ["num_distractors=-1"], "invalid value '-1' for num_distractors: must be at least 0"),
        (QUESTIONS, ["pooling=average", "num_hops=2"], "invalid value '2' for num_hops: needs pooling=attention"),
        (QUESTIONS, ["num_hops=0"], "invalid value '0' for num_hops: must be at least 1"),
        ("mnist-cluttered", [], "data_dir=FOLDER with the four files of MNIST"),
        ("mnist-cluttered", ["data_dir=nowhere"], "there is no such folder"),
    ],
)
def test_invalid_options_are_refused_before_a_folder_is_created(name, overrides, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        train(name, tmp_path / "run", overrides, log=quiet)
    assert not (tmp_path / "run").exists()
