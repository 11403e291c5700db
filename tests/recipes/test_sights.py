"""Recipes of images: put into classes, asked about; trained, resumed, loaded, judged, looked at."""

import json

import pytest
import torch

from regard.attention import MaxPool
from regard.data.images import load_sklearn_digits
from regard.data.questions import ANSWERS, QUESTION_TYPES, QuestionGenerator
from regard.data.scenes import SceneGenerator
from regard.data.sources import seeded_generator
from regard.errors import ConfigError, InputError
from regard.studies.vision import vision
from regard.tasks import ImageClassifier, VisualQA, get_recipe, load, make_config, resume, train
from regard.tasks.vision import task as material
from regard.tasks.vision.predictor import answer_report, image_report, pointing_hits
from regard.tasks.vision.task import build_image_classifier as build_glance
from regard.tasks.vision.task import build_vqa_model as build_answerer
from regard.training import RunFolder, load_weights
from tests.recipes.tiny import quiet

TINY = [
    "conv_channels=4",
    "feature_dim=24",
    "hidden_dim=8",
    "image_size=32",
    "batch_size=8",
    "num_threads=1",
    "warmup_steps=2",
]
SHORT = [*TINY, "steps=4", "validate_every=2", "save_every=2"]
IMAGES, QUESTIONS = "digits", "digit-questions"


@pytest.fixture(autouse=True)
def _few_scenes(monkeypatch):
    monkeypatch.setattr(material, "NUM_VALID_SCENES", 12)
    monkeypatch.setattr(material, "NUM_TEST_SCENES", 20)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """One of each, hardly trained."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(material, "NUM_VALID_SCENES", 12)
        train(IMAGES, folder / IMAGES, SHORT, log=quiet)
        train(QUESTIONS, folder / QUESTIONS, [*SHORT, "num_hops=2"], log=quiet)
    return folder


def test_an_image_has_a_class(runs):
    glancer = load(runs / IMAGES)
    assert isinstance(glancer, ImageClassifier)
    one, two = glancer.classify([torch.rand(32, 32), torch.rand(50, 40, 3)])
    assert set(one.probabilities) == set(map(str, range(10)))
    assert sum(one.probabilities.values()) == pytest.approx(1)
    assert one.probability == max(one.probabilities.values())
    assert one.truncation.__class__ is two.truncation.__class__
    assert glancer.classify([]) == []
    with pytest.raises(TypeError, match="takes many images"):
        glancer.classify("x.png")


def test_a_glance_has_weights(runs):
    sight = load(runs / IMAGES).explain(torch.rand(32, 32))
    assert sight.weights.shape == (1, 4, 4)
    torch.testing.assert_close(sight.weights.sum((1, 2)), torch.ones(1))
    assert sight.image.shape == (32, 32, 3)
    assert sight.to_figure().png()[1:4] == b"PNG"
    assert sight.to_text().startswith(sight.prediction)
    assert json.loads(json.dumps(sight.to_json()))["said"] == sight.prediction


def test_questions_are_answered(runs):
    respondent = load(runs / QUESTIONS)
    assert isinstance(respondent, VisualQA)
    found = respondent.predict(torch.rand(32, 32), "How many 3s?")
    assert str(found) == found.answer == next(iter(found.probabilities))
    assert set(found.probabilities) == set(ANSWERS)
    sight = respondent.explain(torch.rand(32, 32), "How many 3s?")
    assert sight.weights.shape == (2, 4, 4)
    assert sight.names == ["look 1", "look 2"]
    assert sight.title.startswith(f"How many 3s? {sight.prediction} (")
    assert sight.to_json()["question"] == "How many 3s"
    assert sight.to_figure().png()[1:4] == b"PNG"
    with pytest.raises(InputError, match="not a question that this model knows"):
        respondent.predict(torch.rand(32, 32), "why?")


@pytest.mark.parametrize(
    ("name", "words", "attends"),
    [
        (IMAGES, ["query_type=none"], True),
        (IMAGES, ["query_type=each", "score=bilinear", "normalize=sparsemax"], True),
        (IMAGES, ["pooling=average"], False),
        (IMAGES, ["pooling=max"], False),
        (QUESTIONS, ["pooling=average"], False),
        (QUESTIONS, ["score=bilinear", "normalize=sigmoid", "dropout=0.1", "question_encoder=bag"], True),
    ],
)
def test_every_kind_is_trained_and_judged(name, words, attends, tmp_path):
    train(name, tmp_path / "run", [*SHORT, *words, "steps=2"], log=quiet)
    made = load(tmp_path / "run")
    assert made.has_attention == attends
    found = get_recipe(name).task.judge(get_recipe(name), made)
    assert found["part"] == "test"
    assert 0 <= found["accuracy"] <= 100
    assert ("inside" in found) == attends
    given = () if name == IMAGES else ("is there a 5",)
    sight = made.explain(torch.rand(32, 32), *given)
    if "query_type=each" in words:
        assert sight.weights.shape == (10, 4, 4)
        assert sight.names == list(sight.probabilities)
    if not attends:
        assert sight.weights is None
        with pytest.raises(ValueError, match="no attention"):
            sight.to_figure()
        assert sight.to_text()


@pytest.mark.parametrize("name", [IMAGES, QUESTIONS])
def test_an_interrupted_run_goes_on_bit_for_bit(name, tmp_path):
    words = [*SHORT, "dropout=0.2"]
    train(name, tmp_path / "whole", words, log=quiet)
    train(name, tmp_path / "parts", [*words, "steps=2"], log=quiet)
    resume(tmp_path / "parts", log=quiet, steps=4)
    whole, again = (
        load_weights(RunFolder.open(tmp_path / which).find_weights()) for which in ("whole", "parts")
    )
    assert all(torch.equal(whole[key], again[key]) for key in whole)


def test_questions_begin_with_eyes_that_see(runs, tmp_path):
    words = [*SHORT, "steps=1", "lr=1e-9"]
    train(QUESTIONS, tmp_path / "run", words, init_from=runs / IMAGES, log=quiet)
    before, after = (
        load_weights(RunFolder.open(folder).find_weights()) for folder in (runs / IMAGES, tmp_path / "run")
    )
    name = "backbone.layers.1.weight"
    torch.testing.assert_close(after[name], before[name], atol=1e-6, rtol=0)
    with pytest.raises(ConfigError, match="another kind of model"):
        train(IMAGES, tmp_path / "back", SHORT, init_from=runs / QUESTIONS, log=quiet)


class Knowing:
    """Answers all questions rightly but those of one kind, and looks at the middle of a digit that matters."""

    has_attention = True

    def __init__(self, asked, wrong):
        self.asked, self.wrong = asked, QUESTION_TYPES.index(wrong)

    def compute_logits(self, *given):
        told = torch.where(self.asked.types == self.wrong, (self.asked.answers + 1) % 19, self.asked.answers)
        return torch.nn.functional.one_hot(told, 19).float()

    def compute_weights(self, *given):
        asked = self.asked
        box = asked.scenes.boxes.gather(
            1, asked.relevant_digits.long().argmax(-1)[..., None].expand(-1, -1, 4)
        )
        column, row = ((box[..., side] + box[..., side + 2]) // 16 for side in (0, 1))
        return torch.nn.functional.one_hot((8 * row + column)[:, :, None], 64).float()


@pytest.mark.bare
def test_right_answers_and_looks_are_counted():
    asked = QuestionGenerator(SceneGenerator(load_sklearn_digits("test"))).sample(seeded_generator(0), 50)
    found = answer_report(Knowing(asked, "size"), asked)
    share = found["kinds"]["size"]["questions"] / found["questions"]
    assert found["questions"] == 350
    assert found["accuracy"] == pytest.approx(100 * (1 - share))
    assert found["kinds"]["size"]["accuracy"] == 0
    assert found["kinds"]["where"] == found["kinds"]["where"] | {"accuracy": 100.0, "inside": [100.0]}
    assert found["inside"] == 100


def test_a_look_elsewhere_does_not_count():
    painted = SceneGenerator(load_sklearn_digits("test"), num_digits=1).sample(seeded_generator(0), 30)
    corners = torch.zeros(30, 1, 1, 64)
    corners[..., 0] = 1
    found = pointing_hits(corners, painted, torch.ones(30, 1, 1, dtype=torch.bool))[:, 0, 0]
    left, top = painted.boxes[:, 0, 0], painted.boxes[:, 0, 1]
    assert torch.equal(found, (left <= 8) & (top <= 8))
    assert not bool(pointing_hits(corners, painted, torch.zeros(30, 1, 1, dtype=torch.bool)).any())


def test_glances_are_counted_by_class(runs):
    glancer = load(runs / IMAGES)
    painted = SceneGenerator(load_sklearn_digits("test"), size=32, digit_sizes=(4, 8), num_digits=1).sample(
        seeded_generator(0), 40
    )
    found = image_report(glancer, painted)
    counts = painted.labels.flatten().bincount(minlength=10)
    right = sum(
        found["classes"][str(label)] * int(count) / 100 for label, count in enumerate(counts) if count
    )
    assert found["accuracy"] == pytest.approx(100 * right / 40)


def test_mnist_is_the_same_larger(tmp_path, monkeypatch):
    monkeypatch.setattr(material, "load_mnist", lambda root, part: load_sklearn_digits(part))
    sights = material.mnist_cluttered(make_config("mnist-cluttered", data_dir=str(tmp_path)))
    scenes = sights.train()
    assert (scenes.size, scenes.digit_sizes, scenes.num_digits, scenes.num_distractors) == (
        96,
        (14, 28),
        1,
        8,
    )
    assert sights.valid().images.shape == (12, 96, 96)
    assert list(sights.parts) == ["test", "valid"]


def test_settings_become_parts():
    assert isinstance(build_glance(make_config(IMAGES, ["pooling=max"])).pool, MaxPool)
    assert build_glance(make_config(IMAGES, ["query_type=each"])).pool.query.shape == (10, 64)
    assert len(build_answerer(make_config(QUESTIONS, ["num_hops=3"])).attentions) == 3


@pytest.mark.parametrize(
    ("name", "words", "sentence"),
    [
        (IMAGES, ["image_size=16"], "invalid value '16' for image_size: must be at least 32"),
        (IMAGES, ["monitor=bits"], "for monitor: expected one of loss, accuracy"),
        (
            IMAGES,
            ["pooling=max", "score=bilinear"],
            "invalid value 'bilinear' for score: needs pooling=attention",
        ),
        (
            IMAGES,
            ["pooling=average", "query_type=each"],
            "invalid value 'each' for query_type: needs pooling=attention",
        ),
        (IMAGES, ["query_type=none", "score=bilinear"], "score=bilinear needs a query"),
        (IMAGES, ["score=nothing"], "invalid value 'nothing' for score"),
        (IMAGES, ["num_distractors=-1"], "invalid value '-1' for num_distractors: must be at least 0"),
        (
            QUESTIONS,
            ["pooling=average", "num_hops=2"],
            "invalid value '2' for num_hops: needs pooling=attention",
        ),
        (QUESTIONS, ["num_hops=0"], "invalid value '0' for num_hops: must be at least 1"),
        ("mnist-cluttered", [], "data_dir=FOLDER with the four files of MNIST"),
        ("mnist-cluttered", ["data_dir=nowhere"], "there is no such folder"),
    ],
)
def test_what_cannot_be_trained_is_said_before_a_folder_is_made(name, words, sentence, tmp_path):
    with pytest.raises(ConfigError, match=sentence):
        train(name, tmp_path / "run", words, log=quiet)
    assert not (tmp_path / "run").exists()


def test_the_study_has_its_table(tmp_path, monkeypatch):
    from regard.studies import vision as _looking

    def small(*given, **more):
        shared = {
            "image_size": 32,
            "conv_channels": 4,
            "feature_dim": 24,
            "hidden_dim": 8,
            "batch_size": 8,
            "num_threads": 1,
        }
        return trial(*given, **more, **shared)

    trial = _looking.run_trial
    monkeypatch.setattr(_looking, "run_trial", small)
    for name in ("IMAGE_VARIANTS", "QUESTION_VARIANTS"):  # the first and the last are enough
        ways = list(getattr(_looking, name).items())
        monkeypatch.setattr(_looking, name, dict([ways[0], ways[-1]]))
    found = vision(tmp_path, "reverse", {"steps": 2, "validate_every": 2, "save_every": 2}, quiet)
    assert [row["pooling"] for row in found["images"]] == [*_looking.IMAGE_VARIANTS]
    assert [row["pooling"] for row in found["questions"]] == [*_looking.QUESTION_VARIANTS]
    assert "| pooling | accuracy | inside |" in found["table"]
    assert "| there | count | where |" in found["table"]
    assert (tmp_path / "table.md").is_file()
