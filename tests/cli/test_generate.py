"""Language models on the command line: train, generate, fill, evaluate, info."""

import json
import re

import pytest

from tests.cli.calls import call, refused
from tests.tasks.fixtures_texts import make_text

SMALL = [
    "embed_dim=16",
    "num_heads=2",
    "ffn_dim=16",
    "passage_length=24",
    "batch_tokens=200",
    "num_threads=1",
    "steps=3",
]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    (folder / "a.txt").write_text(make_text(60), encoding="utf-8")
    (folder / "b.txt").write_text(make_text(10, 1), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def begun(files):
    answer = call(
        "train", "language", "--train", files / "a.txt", *SMALL, "num_layers=1", "vocab_size=60", "--out", files / "w"
    )
    assert answer.returncode == 0, answer.stderr
    return files / "w", answer


@pytest.fixture(scope="module")
def written(begun):
    return begun[0]


@pytest.fixture(scope="module")
def filled(files):
    answer = call("train", "masked-language", "--train", files / "a.txt", *SMALL, "--out", files / "m")
    assert answer.returncode == 0, answer.stderr
    return files / "m"


def test_train_says_what_was_read_and_what_can_be_done(begun):
    folder, answer = begun
    assert "57 documents read" in " ".join(answer.stdout.split())
    assert f"regard generate {folder}" in answer.stdout


def test_a_text_is_continued(written):
    words = ("generate", written, "one two", "--seed", "3", "--max-tokens", "4")
    one, two = (call(*words) for _ in range(2))
    assert one.returncode == 0, one.stderr
    assert one.stdout == two.stdout
    assert one.stdout.startswith("one two")
    other = call(*words[:3], "--max-tokens", "4", "--temperature", "0.5", "--top-k", "5", "--top-p", "0.9")
    assert re.fullmatch(r"input 1: seed \d+ gives the same text again\n", other.stderr)
    assert (
        call(
            *words[:3],
            *words[5:],
            "--seed",
            other.stderr.split()[3],
            "--temperature",
            "0.5",
            "--top-k",
            "5",
            "--top-p",
            "0.9",
        ).stdout
        == other.stdout
    )
    assert call("generate", written, "one", "--method", "greedy", "--max-tokens", "2").stderr == ""


def test_a_text_is_streamed(written):
    words = ("generate", written, "one two", "--seed", "3", "--max-tokens", "4")
    whole = call(*words).stdout.removesuffix("\n").removesuffix(" ...")
    assert call(*words, "--stream").stdout == whole + "\n"


def test_texts_as_json(written):
    answer = call("generate", written, "one", "--num-samples", "3", "--max-tokens", "5", "--seed", "1", "--json")
    (found,) = json.loads(answer.stdout)["predictions"]
    assert len(found["samples"]) == 3
    assert all(one["num_tokens"] <= 5 and one["score"] < 0 for one in found["samples"])


def test_gaps_are_filled(filled):
    answer = call("fill", filled, "one ___ three ___.", "--num-best", "3")
    assert answer.returncode == 0, answer.stderr
    assert "___" not in answer.stdout
    assert "gap 2" in answer.stdout
    (found,) = json.loads(call("fill", filled, "one ___.", "--num-best", "2", "--json").stdout)["predictions"]
    assert len(found["gaps"][0]) == 2
    assert len(call("fill", filled, "one ___.", "three ___").stdout.splitlines()) == 2, "one line for each input"


def test_evaluate_both(written, filled, files):
    found = json.loads(call("evaluate", written, files / "b.txt", "--json").stdout)["splits"]["files"]
    assert found["num_examples"] == 10
    assert found["metrics"]["bits_per_character"] > 0
    shown = call("evaluate", written, "--split", "valid", "--limit", "2").stdout
    assert "valid: 2 examples" in shown
    assert "bits a character" in shown
    assert "accuracy" in call("evaluate", filled).stdout


def test_info(written):
    answer = call("info", written)
    assert answer.returncode == 0, answer.stderr
    assert "57 documents read" in " ".join(answer.stdout.split())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["generate", "{written}", "x", "--temperature", "-1"], "for temperature: must be at least 0.001"),
        (["generate", "{written}", "x", "--top-p", "2"], "for top_p: must be at most 1"),
        (["generate", "{written}", "one two " * 20], "shorten it"),
        (["generate", "{written}", "x", "--beam-size", "3"], "No such option: --beam-size"),
        (["generate", "{written}", "x", "--device", "moon"], "no device 'moon'"),
        (["fill", "{filled}", "no gap"], "there is no gap"),
        (["fill", "{filled}", "a ___", "--seed", "1"], "No such option: --seed"),
        (["generate", "{filled}", "a ___"], "use: regard fill"),
        (["evaluate", "{written}", "--split", "moon"], "no split 'moon'"),
        (["translate", "{written}", "x"], "was trained for text-generation; use: regard generate"),
        (["train", "language"], "--train a.txt"),
    ],
)
def test_what_cannot_be_done_is_said(written, filled, words, sentence):
    refused(call(*(word.format(written=written, filled=filled) for word in words)), sentence)


def test_a_translator_does_not_write(backwards):
    refused(call("generate", backwards, "x"), "was trained for translation; use: regard translate")


def test_a_file_without_text_is_named(written, tmp_path):
    (tmp_path / "blank.txt").write_text("\n\n", encoding="utf-8")
    refused(call("evaluate", written, tmp_path / "blank.txt"), "blank.txt is empty")
