"""Image classification and visual question answering on the command line."""

import json

import pytest
import torch

from regard.tasks import grid
from tests.cli.calls import assert_refused, call

Image = pytest.importorskip("PIL.Image")

TINY = [
    *("conv_channels=4", "feature_dim=24", "hidden_dim=8", "image_size=32", "batch_size=8"),
    *("num_threads=1", "warmup_steps=2", "steps=2", "validate_every=2"),
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grid, "NUM_VALID_SCENES", 12)
        patch.setattr(grid, "NUM_TEST_SCENES", 20)
        for name, verb in (("digits", "classify"), ("digit-questions", "ask")):
            answer = call("train", name, *TINY, "--out", folder / name)
            assert answer.returncode == 0, answer.stderr
            assert f"regard {verb} {folder / name}\n" in answer.stdout
        yield folder


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    path = tmp_path_factory.mktemp("images") / "x.png"
    Image.fromarray((torch.rand(40, 40) * 255).byte().numpy()).save(path)
    return path


def test_classify(runs, image):
    first, second = call("classify", runs / "digits", image, image).stdout.splitlines()
    path, label, probability = first.split("\t")
    assert first == second
    assert path == str(image)
    assert label in "0123456789"
    assert 0 < float(probability) <= 1
    result = json.loads(call("classify", runs / "digits", image, "--json").stdout)["predictions"]
    assert (result[0]["label"], result[0]["input"]) == (label, {"image": str(image)})
    assert call("classify", runs / "digits", "--example", "3").stdout.split("\t")[0] in "0123456789"
    assert_refused(call("classify", runs / "digits"), "no input: this model takes IMAGE as arguments")
    assert_refused(call("classify", runs / "digits", "no.png"), "no.png")
    assert_refused(call("classify", runs / "digits", "--as-one-document"), "this model takes IMAGE as arguments")
    assert_refused(call("classify", runs / "digit-questions", image), "use: regard ask")


def test_ask(runs, image):
    run = runs / "digit-questions"
    answer, probability = call("ask", run, image, "how many 3s?").stdout.strip().split("\t")
    assert 0 < float(probability) <= 1
    (result,) = json.loads(call("ask", run, image, "how many 3s?", "--json").stdout)["predictions"]
    assert (result["text"], result["input"]["question"]) == (answer, "how many 3s?")
    assert call("ask", run, "is there a 5", "--example", "3").returncode == 0
    assert call("ask", run, "--example", "3").returncode == 0
    assert_refused(call("ask", run, image, "why?"), "is not a question that this model knows")
    assert_refused(call("ask", run, "--example", "99"), "invalid value '99' for --example: test has fewer examples")
    assert_refused(call("ask", run, image, "how", "many"), "3 arguments are not inputs of the form IMAGE QUESTION")
    assert_refused(call("ask", runs / "digits", image), "use: regard classify")
    assert_refused(call("ask", run, "--device", "abacus"), "no device 'abacus'")


def test_show(runs, image, tmp_path):
    for run, words, title in (
        ("digits", [image], ""),
        ("digits", ["--example", "2"], ""),
        ("digit-questions", [image, "where is the 7"], "where is the 7? "),
        ("digit-questions", ["where is the 7", "--example", "2"], "where is the 7? "),
        ("digit-questions", ["--example", "2"], "? "),
    ):
        answer = call("show", runs / run, *words)
        assert answer.returncode == 0, answer.stderr
        assert title in answer.stdout.splitlines()[0]
        assert "column" in answer.stdout
    for ending in ("png", "svg", "txt", "json", "html"):
        out = tmp_path / f"x.{ending}"
        answer = call("show", runs / "digit-questions", image, "is there a 5", "--no-smooth", "--out", out)
        assert answer.returncode == 0, answer.stderr
        assert out.stat().st_size > 50
    result = json.loads(call("show", runs / "digit-questions", image, "is there a 5", "--json").stdout)
    assert (result["question"], len(result["attention"][0]["weights"][0])) == ("is there a 5", 1)
    assert_refused(call("show", runs / "digits", image, "--heads"), "No such option: --heads")


def test_evaluate(runs):
    answer = call("evaluate", runs / "digit-questions", "--limit", "5")
    assert answer.returncode == 0, answer.stderr
    assert "test: 35 examples" in answer.stdout
    assert "inside" in answer.stdout
    assert "where" in answer.stdout
    assert "valid: 12 examples" in call("evaluate", runs / "digits", "--split", "valid").stdout
    result = json.loads(call("evaluate", runs / "digits", "--limit", "5", "--json").stdout)
    assert result["splits"]["test"]["num_examples"] == 5
    assert_refused(call("evaluate", runs / "digits", "--split", "no"), "no split 'no'")
    assert_refused(call("evaluate", runs / "digits", "x.jsonl"), "cannot be evaluated on files")
