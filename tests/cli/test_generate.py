"""Language models on the command line: train, generate, fill, evaluate, info."""

import json
import re

import pytest

from tests.cli.calls import assert_refused, call
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
def generator(begun):
    return begun[0]


@pytest.fixture(scope="module")
def masked_model(files):
    answer = call("train", "masked-language", "--train", files / "a.txt", *SMALL, "--out", files / "m")
    assert answer.returncode == 0, answer.stderr
    return files / "m"


def test_train_says_what_was_read_and_what_can_be_done(begun):
    folder, answer = begun
    assert "57 documents read" in " ".join(answer.stdout.split())
    assert f"regard generate {folder}" in answer.stdout


def test_a_text_is_continued(generator):
    words = ("generate", generator, "one two", "--seed", "3", "--max-tokens", "4")
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
    assert call("generate", generator, "one", "--method", "greedy", "--max-tokens", "2").stderr == ""


def test_streaming(generator):
    words = ("generate", generator, "one two", "--seed", "3", "--max-tokens", "4")
    text = call(*words).stdout.removesuffix("\n").removesuffix(" ...")
    assert call(*words, "--stream").stdout == text + "\n"


def test_samples_as_json(generator):
    answer = call("generate", generator, "one", "--num-samples", "3", "--max-tokens", "5", "--seed", "1", "--json")
    (result,) = json.loads(answer.stdout)["predictions"]
    assert len(result["samples"]) == 3
    assert all(one["num_tokens"] <= 5 and one["score"] < 0 for one in result["samples"])


def test_fill(masked_model):
    answer = call("fill", masked_model, "one ___ three ___.", "--num-best", "3")
    assert answer.returncode == 0, answer.stderr
    assert "___" not in answer.stdout
    assert "gap 2" in answer.stdout
    (result,) = json.loads(call("fill", masked_model, "one ___.", "--num-best", "2", "--json").stdout)["predictions"]
    assert len(result["gaps"][0]) == 2
    assert len(call("fill", masked_model, "one ___.", "three ___").stdout.splitlines()) == 2, "one line for each input"


def test_evaluate(generator, masked_model, files):
    result = json.loads(call("evaluate", generator, files / "b.txt", "--json").stdout)["splits"]["files"]
    assert result["num_examples"] == 10
    assert result["metrics"]["bits_per_character"] > 0
    output = call("evaluate", generator, "--split", "valid", "--limit", "2").stdout
    assert "valid: 2 examples" in output
    assert "bits a character" in output
    assert "masked words predicted, %" in call("evaluate", masked_model).stdout


def test_info(generator):
    answer = call("info", generator)
    assert answer.returncode == 0, answer.stderr
    assert "57 documents read" in " ".join(answer.stdout.split())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["generate", "{generator}", "x", "--temperature", "-1"], "for temperature: must be at least 0.001"),
        (["generate", "{generator}", "x", "--top-p", "2"], "for top_p: must be at most 1"),
        (["generate", "{generator}", "one two " * 20], "shorten it"),
        (["generate", "{generator}", "x", "--beam-size", "3"], "No such option: --beam-size"),
        (["generate", "{generator}", "x", "--device", "moon"], "no device 'moon'"),
        (["fill", "{masked_model}", "no gap"], "there is no gap"),
        (["fill", "{masked_model}", "a ___", "--seed", "1"], "No such option: --seed"),
        (["generate", "{masked_model}", "a ___"], "use: regard fill"),
        (["evaluate", "{generator}", "--split", "moon"], "no split 'moon'"),
        (["translate", "{generator}", "x"], "was trained for text-generation; use: regard generate"),
        (["train", "language"], "--train a.txt"),
    ],
)
def test_invalid_arguments_are_refused_in_a_sentence(generator, masked_model, words, sentence):
    assert_refused(call(*(word.format(generator=generator, masked_model=masked_model) for word in words)), sentence)


def test_generate_refuses_a_translation_run(backwards):
    assert_refused(call("generate", backwards, "x"), "was trained for translation; use: regard translate")


def test_a_file_without_text_is_named(generator, tmp_path):
    (tmp_path / "blank.txt").write_text("\n\n", encoding="utf-8")
    assert_refused(call("evaluate", generator, tmp_path / "blank.txt"), "blank.txt is empty")
