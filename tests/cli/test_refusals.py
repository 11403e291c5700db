"""Refusals: nothing is announced before them, they exit with 2, and say the same on the command line and over HTTP."""

import json

import pytest
import torch

import regard
from regard.errors import UnknownNameError, UnsupportedError
from regard.training.weights import resolve_device
from tests.cli.calls import assert_refused, call
from tests.cli.test_imports import imports_torch


@pytest.mark.parametrize("command", ["translate", "predict", "show", "evaluate"])
def test_a_missing_folder_is_reported_without_importing_torch(command, tmp_path):
    missing = tmp_path / "missing"
    assert_refused(call(command, missing, "x"), f"regard: no run in {missing}: no such folder")
    assert not imports_torch(command, str(missing), "x")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_a_model_is_not_loaded_on_a_device_that_is_missing(backwards, device):
    with pytest.raises(UnsupportedError, match=f"device={device}: no CUDA device found; use device=auto or device=cpu"):
        regard.load(backwards, device=device)


def test_a_device_must_have_a_known_name(backwards):
    with pytest.raises(UnknownNameError, match="no device 'gpu'; did you mean cpu"):
        regard.load(backwards, device="gpu")
    assert next(regard.load(backwards, device="auto").model.parameters()).device == resolve_device("auto")


@pytest.fixture
def pair(tmp_path):
    for name, line in {"a.en": "a b", "a.de": "b a", "b.en": "c", "links": "0-1 1-0"}.items():
        (tmp_path / name).write_text(f"{line}\n")
    return [str(tmp_path / name) for name in ("a.en", "a.de")]


def train(pair, files, *words):
    return call("train", "translation", "--train", *files, "--valid", *pair, "--out", f"{pair[0]}.run", *words)


def test_a_third_file_of_training_data_that_has_no_links_is_explained(pair, tmp_path):
    answer = train(pair, [*pair, tmp_path / "b.en"])
    assert_refused(answer, f"{tmp_path}/b.en, line 1: invalid link 'c'; the third file has alignment links")
    assert "leave it out" in answer.stderr


@pytest.mark.parametrize(
    ("files", "words", "sentence"),
    [
        (["a.en"], [], "is a single file, so it must be a .tsv or .jsonl"),
        (["a.en", "a.de", "b.en"], [], "invalid link"),
        (["a.en", "a.de"], ["steps=0"], "invalid value '0' for steps"),
        (["a.en", "a.de"], ["epochs=2", "steps=3"], "invalid value '2' for epochs"),
        (["a.en", "missing"], [], "missing"),
        *([] if torch.cuda.is_available() else [(["a.en", "a.de"], ["device=cuda"], "no CUDA device found")]),
    ],
)
def test_a_training_is_announced_when_nothing_can_refuse_it_any_more(pair, tmp_path, files, words, sentence):
    answer = train(pair, [str(tmp_path / name) for name in files], *words)
    assert_refused(answer, sentence)
    assert "training translation in" not in answer.stderr
    assert len(answer.stderr.splitlines()) == 1
    assert not (tmp_path / "a.en.run").exists()


def test_a_training_that_begins_is_announced_first(tmp_path):
    options = ["steps=1", "max_length=4", "hidden_dim=8", "embed_dim=8", "batch_size=4", "monitor=loss"]
    answer = call("train", "reverse", *options, "--out", tmp_path / "run")
    assert answer.returncode == 0
    assert answer.stderr.splitlines()[0] == f"training reverse in {tmp_path / 'run'}"


def test_a_comparison_in_which_nothing_can_be_trained_is_refused(tmp_path):
    answer = call("compare", "translation", "score=dot,additive", "steps=1", "--out", tmp_path / "out")
    assert answer.returncode == 2
    assert answer.stdout == ""
    assert answer.stderr.splitlines()[-1].startswith("regard: nothing can be compared: translation needs text to train")


def test_an_empty_text_is_refused_as_an_argument_and_kept_as_a_line(backwards):
    for text in ("", "  "):
        assert_refused(call("translate", backwards, text), "regard: input 1 is empty")
        assert_refused(call("translate", backwards, text, "--json"), "regard: input 1 is empty")
        assert_refused(call("show", backwards, text), "the text is empty")
        assert_refused(call("score", backwards, "--text", text, "a"), "regard: input 1 is empty")
    assert_refused(call("translate", backwards, "ab", ""), "regard: input 2 is empty")
    assert call("translate", backwards, stdin=b"ab\n\nb\n").stdout.splitlines() == ["ba", "", "b"]


def test_command_line_and_http_say_the_same_and_use_the_same_keys(backwards):
    from starlette.testclient import TestClient

    from regard.serving import build_app

    with TestClient(build_app(regard.load(backwards)), base_url="http://127.0.0.1") as client:

        def post(path, **body):
            return client.post(path, json=body)

        for option, value in {"beam_size": 0, "length_penalty": -1.5}.items():
            sentence = post("/v1/predict", inputs=["ab"], options={option: value}).json()["error"]["message"]
            flag = "--" + option.replace("_", "-")
            assert call("translate", backwards, "ab", flag, str(value)).stderr == f"regard: {sentence[:-1]}\n"
        message = post("/v1/predict", inputs=[""]).json()["error"]["message"]
        assert call("translate", backwards, "").stderr == f"regard: {message[:-1]}\n"
        by_line = json.loads(call("translate", backwards, "ab", "--json").stdout)["predictions"][0]
        (by_http,) = post("/v1/predict", inputs=["ab"]).json()["predictions"]
        assert by_line.keys() - {"input"} == by_http.keys()
        by_line = json.loads(call("score", backwards, "--text", "ab", "ba", "--json").stdout)
        by_http = post("/v1/score", pairs=[{"input": "ab", "target": "ba"}]).json()
        assert by_http["scores"][0].keys() <= by_line["scores"][0].keys()
