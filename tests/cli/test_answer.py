"""Images on the command line: train, classify, answer, show, evaluate."""

import json

import pytest
import torch

from regard.tasks.vision import task as _sights
from tests.cli.calls import call, refused

Image = pytest.importorskip("PIL.Image")

TINY = [
    *(
        "conv_channels=4",
        "feature_dim=24",
        "hidden_dim=8",
        "image_size=32",
        "batch_size=8",
        "num_threads=1",
        "warmup_steps=2",
    ),
    *("steps=2", "validate_every=2"),
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_sights, "NUM_VALID_SCENES", 12)
        patch.setattr(_sights, "NUM_TEST_SCENES", 20)
        for name in ("digits", "digit-questions"):
            answer = call("train", name, *TINY, "--out", folder / name)
            assert answer.returncode == 0, answer.stderr
        yield folder


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    path = tmp_path_factory.mktemp("images") / "x.png"
    Image.fromarray((torch.rand(40, 40) * 255).byte().numpy()).save(path)
    return path


def test_classify(runs, image):
    first, second = call("classify", runs / "digits", image, image).stdout.splitlines()
    path, label, share = first.split("\t")
    assert first == second
    assert path == str(image)
    assert label in "0123456789"
    assert 0 < float(share) <= 1
    plain = json.loads(call("classify", runs / "digits", image, "--json").stdout)
    assert plain["images"][0]["label"] == label
    refused(call("classify", runs / "digits"), "This model sees images: name one or more")
    refused(call("classify", runs / "digits", "no.png"), "There is no image no.png")
    refused(
        call("classify", runs / "digits", "--as-one-document"),
        "--file and --as-one-document are for documents",
    )
    refused(call("classify", runs / "digit-questions", image), "cannot classify")


def test_answer(runs, image):
    run = runs / "digit-questions"
    said, share = call("ask", run, image, "how many 3s?").stdout.strip().split("\t")
    assert 0 < float(share) <= 1
    plain = json.loads(call("ask", run, image, "how many 3s?", "--json").stdout)
    assert plain["answer"] == said
    about_scene = call("ask", run, "is there a 5", "--seed", "3")
    assert about_scene.returncode == 0
    whole = call("ask", run, "--seed", "3")
    assert "true answer" in whole.stderr
    assert "true" in json.loads(call("ask", run, "--json").stdout)
    refused(call("ask", run, image, "why?"), "is not a question that this model knows")
    refused(call("ask", run, "--seed", "99"), "--seed 99 is none of the 20 scenes")
    refused(call("ask", run, image, "how", "many"), "An image and one question at most")
    refused(call("ask", runs / "digits", image, "how many 3s"), "answers no questions")
    refused(call("ask", run, "--device", "abacus"), "no device 'abacus'")


def test_show(runs, image, tmp_path):
    for run, words, title in (
        ("digits", [image], ""),
        ("digits", ["--seed", "2"], ""),
        ("digit-questions", ["where is the 7", "--image", image], "where is the 7? "),
        ("digit-questions", ["--seed", "2"], "? "),
    ):
        answer = call("show", runs / run, *words)
        assert title in answer.stdout.splitlines()[0]
        assert "column" in answer.stdout
    for ending in ("png", "svg", "txt"):
        out = tmp_path / f"x.{ending}"
        call("show", runs / "digit-questions", "is there a 5", "--out", out)
        assert out.stat().st_size > 50
    plain = json.loads(call("show", runs / "digit-questions", "is there a 5", "--json").stdout)
    assert len(plain["weights"][0]) == 4
    out = tmp_path / "x.html"
    refused(call("show", runs / "digits", image, "--out", out), "a look at an image is shown as")
    refused(call("show", runs / "digits", "--image", image), "--image is what a question is about")
    refused(call("show", runs / "digit-questions", "--image", image), "Ask something about the image")
    refused(call("show", runs / "digits", image, "--heads"), "looks at images")


def test_evaluate(runs):
    answer = call("evaluate", runs / "digit-questions", "--limit", "5")
    assert "test: 35 questions" in answer.stdout
    assert "looked at the digit" in answer.stdout
    assert "where" in answer.stdout
    answer = call("evaluate", runs / "digits", "--split", "valid")
    assert "valid: 12 images" in answer.stdout
    plain = json.loads(call("evaluate", runs / "digits", "--limit", "5", "--json").stdout)
    assert plain["parts"]["test"]["images"] == 5
    refused(call("evaluate", runs / "digits", "--split", "no"), "no split 'no'")
    refused(call("evaluate", runs / "digits", "x.jsonl"), "judged by the scenes of its recipe")
