"""Pictures on the command line: train, caption, evaluate, show, info."""

import json
from pathlib import Path

import pytest

from tests.cli.calls import assert_refused, call, run
from tests.tasks.fixtures_images import write_features, write_squares

pytest.importorskip("PIL.Image")

NET = [
    "conv_channels=8",
    "feature_dim=40",
    "embed_dim=32",
    "hidden_dim=48",
    "image_size=24",
    "batch_size=30",
    "dropout=0",
    "min_word_count=1",
]
RATE = ["lr=0.01", "schedule=constant", "steps=100", "validate_every=50", "num_threads=1", "warmup_steps=5"]


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("squares")
    train, valid = write_squares(folder, "x", 60, 0), write_squares(folder, "y", 12, 1)
    words = [*NET, *RATE]
    answer = run("train", "captions", "--train", train, "--valid", valid, *words, "--out", str(folder / "run"))
    assert answer.returncode == 0, answer.stderr
    return folder / "run", answer


@pytest.fixture(scope="module")
def captioner(learned):
    return learned[0]


@pytest.fixture(scope="module")
def images(captioner):
    """Two images, and what there is to say of them."""
    lines = (captioner.parent / "y.jsonl").read_text(encoding="utf-8").splitlines()[:2]
    records = [json.loads(line) for line in lines]
    return [(str(captioner.parent / one["image"]), one["captions"][0]) for one in records]


def test_train_says_what_can_be_done(learned):
    folder, answer = learned
    assert f"regard caption {folder}" in answer.stdout


def test_caption(captioner, images):
    answer = call("caption", captioner, *(path for path, _ in images))
    assert answer.stdout.splitlines() == [f"{path}\t{text}" for path, text in images]
    plain = json.loads(call("caption", captioner, images[0][0], "--beam-size", "3", "--json").stdout)
    (predictions,) = plain["predictions"]
    assert (predictions["input"], predictions["text"]) == ({"image": images[0][0]}, images[0][1])


def test_what_cannot_be_described_is_said(captioner, tmp_path):
    assert_refused(call("caption", captioner), "no input: this model takes IMAGE as arguments")
    assert_refused(call("caption", captioner, tmp_path / "no.png"), "There is no image")
    (tmp_path / "bad.png").write_text("no image")
    assert_refused(call("caption", captioner, tmp_path / "bad.png"), "cannot be read as an image")
    assert_refused(call("caption", captioner, "x.png", "--device", "abacus"), "no device 'abacus'")


def test_evaluate(captioner):
    answer = call("evaluate", captioner)
    assert "valid: 12 examples" in answer.stdout
    assert "BLEU-4" in answer.stdout
    plain = json.loads(call("evaluate", captioner, captioner.parent / "x.jsonl", "--limit", "9", "--json").stdout)
    assert plain["splits"]["files"]["num_examples"] == 9
    assert plain["splits"]["files"]["metrics"]["bleu1"] > 90
    assert "valid: 1 example\n" in call("evaluate", captioner, "--limit", "1").stdout
    assert_refused(call("evaluate", captioner, "--split", "nowhere"), "no split 'nowhere'")


def test_show(captioner, images, tmp_path):
    path, text = images[0]
    answer = call("show", captioner, path)
    assert answer.stdout.startswith(text)
    assert "column" in answer.stdout
    for ending in ("png", "svg", "txt", "html"):
        out = tmp_path / f"x.{ending}"
        assert call("show", captioner, path, "--out", out).stdout == f"{text}\n"
        assert out.stat().st_size > 50
    plain = json.loads(call("show", captioner, path, "--json").stdout)
    assert plain["text"] == text
    assert len(plain["attention"][0]["weights"][0]) == len(plain["attention"][0]["queries"])
    assert call("show", captioner, "--example", "1").stdout.startswith(images[1][1])
    assert_refused(
        call("show", captioner, "--example", "99"), "invalid value '99' for --example: valid has fewer examples"
    )
    assert_refused(call("show", captioner, path, "--heads"), "No such option: --heads")


def test_info(captioner):
    assert "captions" in call("info", captioner).stdout


def test_features_cannot_be_shown_as_images(tmp_path):
    words = [
        "hidden_dim=16",
        "embed_dim=8",
        "batch_size=8",
        "steps=2",
        "validate_every=2",
        "num_threads=1",
        "min_word_count=1",
    ]
    data = write_features(tmp_path / "flickr")
    answer = call("train", "flickr8k", *words, f"data_dir={data}", "--out", tmp_path / "run")
    assert answer.returncode == 0, answer.stderr
    assert f"regard show {tmp_path / 'run'}" in answer.stdout
    assert call("show", tmp_path / "run", "--example", "3").returncode == 0
    assert_refused(call("caption", tmp_path / "run", "x.jpg"), "was trained on features and cannot read images")
    assert_refused(call("evaluate", tmp_path / "run", "x.jsonl"), "x.jsonl")
    assert "of the nearest training image" in call("evaluate", tmp_path / "run").stdout


def test_caption_refuses_the_run_of_another_task(backwards, images):
    assert_refused(call("caption", backwards, images[0][0]), "was trained for translation; use: regard translate")
    assert Path(images[0][0]).is_file()
