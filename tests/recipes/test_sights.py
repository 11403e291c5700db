"""Recipes of images: put into classes, asked about; trained, resumed, loaded, judged, looked at."""

import json

import pytest
import torch

from regard.data._question_words import ANSWERS, KINDS
from regard.data.algorithms import chance
from regard.data.digits import sklearn_digits
from regard.data.questions import Asking
from regard.data.scenes import Scenes
from regard.errors import ConfigError, InputError
from regard.models.glance import Largest
from regard.recipes import Glancer, Respondent, load, recipe, resume, settings_of, train
from regard.recipes.sights import _material as material
from regard.recipes.sights._answering import build as build_answerer
from regard.recipes.sights._glancing import build as build_glance
from regard.recipes.sights._judged import judged_answers, judged_glances, looked_at
from regard.recipes.studies._looking import looking
from regard.training import Run, load_weights
from tests.recipes.tiny import quiet

TINY = ["width=4", "grid_dim=24", "dim=8", "size=32", "batch=8", "threads=1", "warmup=2"]
SHORT = [*TINY, "steps=4", "validate_every=2", "save_every=2"]
IMAGES, QUESTIONS = "digits", "digit-questions"


@pytest.fixture(autouse=True)
def _few_scenes(monkeypatch):
    monkeypatch.setattr(material, "CHOOSING", 12)
    monkeypatch.setattr(material, "TESTING", 20)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """One of each, hardly trained."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(material, "CHOOSING", 12)
        train(IMAGES, folder / IMAGES, SHORT, say=quiet)
        train(QUESTIONS, folder / QUESTIONS, [*SHORT, "looks=2"], say=quiet)
    return folder


def test_an_image_has_a_class(runs):
    glancer = load(runs / IMAGES)
    assert isinstance(glancer, Glancer)
    one, two = glancer.classify([torch.rand(32, 32), torch.rand(50, 40, 3)])
    assert set(one.probabilities) == set(map(str, range(10)))
    assert sum(one.probabilities.values()) == pytest.approx(1)
    assert one.probability == max(one.probabilities.values())
    assert one.left.__class__ is two.left.__class__
    assert glancer.classify([]) == []
    with pytest.raises(TypeError, match="takes many images"):
        glancer.classify("x.png")


def test_a_glance_has_weights(runs):
    sight = load(runs / IMAGES).look(torch.rand(32, 32))
    assert sight.weights.shape == (1, 4, 4)
    torch.testing.assert_close(sight.weights.sum((1, 2)), torch.ones(1))
    assert sight.image.shape == (32, 32, 3)
    assert sight.picture().png()[1:4] == b"PNG"
    assert sight.drawn().startswith(sight.said)
    assert json.loads(json.dumps(sight.to_json()))["said"] == sight.said


def test_questions_are_answered(runs):
    respondent = load(runs / QUESTIONS)
    assert isinstance(respondent, Respondent)
    found = respondent.answer(torch.rand(32, 32), "How many 3s?")
    assert str(found) == found.answer == next(iter(found.probabilities))
    assert set(found.probabilities) == set(ANSWERS)
    sight = respondent.look(torch.rand(32, 32), "How many 3s?")
    assert sight.weights.shape == (2, 4, 4)
    assert sight.names == ["look 1", "look 2"]
    assert sight.title.startswith(f"How many 3s? {sight.said} (")
    assert sight.to_json()["question"] == "How many 3s"
    assert sight.picture().png()[1:4] == b"PNG"
    with pytest.raises(InputError, match="no question that this model knows"):
        respondent.answer(torch.rand(32, 32), "why?")


@pytest.mark.parametrize(
    ("name", "words", "attends"),
    [
        (IMAGES, ["queries=none"], True),
        (IMAGES, ["queries=each", "score=bilinear", "normalize=sparsemax"], True),
        (IMAGES, ["pooling=average"], False),
        (IMAGES, ["pooling=max"], False),
        (QUESTIONS, ["pooling=average"], False),
        (QUESTIONS, ["score=bilinear", "normalize=sigmoid", "dropout=0.1", "reader=bag"], True),
    ],
)
def test_every_kind_is_trained_and_judged(name, words, attends, tmp_path):
    train(name, tmp_path / "run", [*SHORT, *words, "steps=2"], say=quiet)
    made = load(tmp_path / "run")
    assert made.attends == attends
    found = recipe(name).task.judge(recipe(name), made)
    assert found["part"] == "test"
    assert 0 <= found["accuracy"] <= 100
    assert ("inside" in found) == attends
    given = () if name == IMAGES else ("is there a 5",)
    sight = made.look(torch.rand(32, 32), *given)
    if "queries=each" in words:
        assert sight.weights.shape == (10, 4, 4)
        assert sight.names == list(sight.probabilities)
    if not attends:
        assert sight.weights is None
        with pytest.raises(ValueError, match="no attention"):
            sight.picture()
        assert sight.drawn()


@pytest.mark.parametrize("name", [IMAGES, QUESTIONS])
def test_an_interrupted_run_goes_on_bit_for_bit(name, tmp_path):
    words = [*SHORT, "dropout=0.2"]
    train(name, tmp_path / "whole", words, say=quiet)
    train(name, tmp_path / "parts", [*words, "steps=2"], say=quiet)
    resume(tmp_path / "parts", say=quiet, steps=4)
    whole, again = (load_weights(Run.open(tmp_path / which).weights()) for which in ("whole", "parts"))
    assert all(torch.equal(whole[key], again[key]) for key in whole)


def test_questions_begin_with_eyes_that_see(runs, tmp_path):
    words = [*SHORT, "steps=1", "lr=1e-9"]
    train(QUESTIONS, tmp_path / "run", words, init_from=runs / IMAGES, say=quiet)
    before, after = (load_weights(Run.open(folder).weights()) for folder in (runs / IMAGES, tmp_path / "run"))
    name = "model.eyes.layers.1.weight"
    torch.testing.assert_close(after[name], before[name], atol=1e-6, rtol=0)
    with pytest.raises(ConfigError, match="another kind of model"):
        train(IMAGES, tmp_path / "back", SHORT, init_from=runs / QUESTIONS, say=quiet)


class Knowing:
    """Answers all questions rightly but those of one kind, and looks at the middle of a digit that matters."""

    attends = True

    def __init__(self, asked, wrong):
        self.asked, self.wrong = asked, KINDS.index(wrong)

    def scores(self, *given):
        told = torch.where(self.asked.kinds == self.wrong, (self.asked.answers + 1) % 19, self.asked.answers)
        return torch.nn.functional.one_hot(told, 19).float()

    def weights(self, *given):
        asked = self.asked
        box = asked.painted.boxes.gather(1, asked.matter.long().argmax(-1)[..., None].expand(-1, -1, 4))
        column, row = ((box[..., side] + box[..., side + 2]) // 16 for side in (0, 1))
        return torch.nn.functional.one_hot((8 * row + column)[:, :, None], 64).float()


@pytest.mark.bare
def test_right_answers_and_looks_are_counted():
    asked = Asking(Scenes(sklearn_digits("test"))).make(chance(0), 50)
    found = judged_answers(Knowing(asked, "size"), asked)
    share = found["kinds"]["size"]["questions"] / found["questions"]
    assert found["questions"] == 350
    assert found["accuracy"] == pytest.approx(100 * (1 - share))
    assert found["kinds"]["size"]["accuracy"] == 0
    assert found["kinds"]["where"] == found["kinds"]["where"] | {"accuracy": 100.0, "inside": [100.0]}
    assert found["inside"] == 100


def test_a_look_elsewhere_does_not_count():
    painted = Scenes(sklearn_digits("test"), count=1).make(chance(0), 30)
    corners = torch.zeros(30, 1, 1, 64)
    corners[..., 0] = 1
    found = looked_at(corners, painted, torch.ones(30, 1, 1, dtype=torch.bool))[:, 0, 0]
    left, top = painted.boxes[:, 0, 0], painted.boxes[:, 0, 1]
    assert torch.equal(found, (left <= 8) & (top <= 8))
    assert not bool(looked_at(corners, painted, torch.zeros(30, 1, 1, dtype=torch.bool)).any())


def test_glances_are_counted_by_class(runs):
    glancer = load(runs / IMAGES)
    painted = Scenes(sklearn_digits("test"), size=32, sides=(4, 8), count=1).make(chance(0), 40)
    found = judged_glances(glancer, painted)
    counts = painted.labels.flatten().bincount(minlength=10)
    right = sum(
        found["classes"][str(label)] * int(count) / 100 for label, count in enumerate(counts) if count
    )
    assert found["accuracy"] == pytest.approx(100 * right / 40)


def test_mnist_is_the_same_larger(tmp_path, monkeypatch):
    monkeypatch.setattr(material, "mnist", lambda root, part: sklearn_digits(part))
    sights = material.mnist_cluttered(settings_of("mnist-cluttered", data=str(tmp_path)))
    scenes = sights.train()
    assert (scenes.size, scenes.sides, scenes.count, scenes.clutter) == (96, (14, 28), 1, 8)
    assert sights.valid().images.shape == (12, 96, 96)
    assert list(sights.parts) == ["test", "valid"]


def test_settings_become_parts():
    assert isinstance(build_glance(settings_of(IMAGES, ["pooling=max"])).pool, Largest)
    assert build_glance(settings_of(IMAGES, ["queries=each"])).pool.query.shape == (10, 64)
    assert len(build_answerer(settings_of(QUESTIONS, ["looks=3"])).attentions) == 3


@pytest.mark.parametrize(
    ("name", "words", "sentence"),
    [
        (IMAGES, ["size=16"], "invalid value '16' for size: must be at least 32"),
        (IMAGES, ["watch=bits"], "for watch: expected one of loss, accuracy"),
        (
            IMAGES,
            ["pooling=max", "score=bilinear"],
            "invalid value 'bilinear' for score: needs pooling=attention",
        ),
        (
            IMAGES,
            ["pooling=average", "queries=each"],
            "invalid value 'each' for queries: needs pooling=attention",
        ),
        (IMAGES, ["queries=none", "score=bilinear"], "score=bilinear needs a query"),
        (IMAGES, ["score=nothing"], "invalid value 'nothing' for score"),
        (IMAGES, ["clutter=-1"], "invalid value '-1' for clutter: must be at least 0"),
        (QUESTIONS, ["pooling=average", "looks=2"], "invalid value '2' for looks: needs pooling=attention"),
        (QUESTIONS, ["looks=0"], "invalid value '0' for looks: must be at least 1"),
        ("mnist-cluttered", [], "data=FOLDER with the four files of MNIST"),
        ("mnist-cluttered", ["data=nowhere"], "there is no such folder"),
    ],
)
def test_what_cannot_be_trained_is_said_before_a_folder_is_made(name, words, sentence, tmp_path):
    with pytest.raises(ConfigError, match=sentence):
        train(name, tmp_path / "run", words, say=quiet)
    assert not (tmp_path / "run").exists()


def test_the_study_has_its_table(tmp_path, monkeypatch):
    from regard.recipes.studies import _looking

    def small(*given, **more):
        shared = {"size": 32, "width": 4, "grid_dim": 24, "dim": 8, "batch": 8, "threads": 1}
        return trial(*given, **more, **shared)

    trial = _looking.trial
    monkeypatch.setattr(_looking, "trial", small)
    for name in ("GLANCES", "ANSWERS"):  # the first and the last are enough
        ways = list(getattr(_looking, name).items())
        monkeypatch.setattr(_looking, name, dict([ways[0], ways[-1]]))
    found = looking(tmp_path, "reverse", {"steps": 2, "validate_every": 2, "save_every": 2}, quiet)
    assert [row["pooling"] for row in found["images"]] == [*_looking.GLANCES]
    assert [row["pooling"] for row in found["questions"]] == [*_looking.ANSWERS]
    assert "| pooling | accuracy | inside |" in found["table"]
    assert "| there | count | where |" in found["table"]
    assert (tmp_path / "table.md").is_file()
