"""`regard export`, and translating with what it made."""

import json

import pytest

from tests.cli.calls import call, refused


@pytest.fixture(scope="module")
def exported(backwards, tmp_path_factory):
    out = tmp_path_factory.mktemp("exported") / "model"
    answer = call("export", backwards, "--to", "onnx", "--out", out)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.endswith(f"exported to {out}; use it: regard translate {out}\n")
    return out


def test_a_folder_is_translated_with_as_a_run_is(backwards, exported):
    wanted = call("translate", backwards, "abc", "", "xyz", "--align")
    found = call("translate", exported, "abc", "", "xyz", "--align")
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout == wanted.stdout


def test_a_run_can_be_computed_by_an_engine(backwards):
    answer = call("translate", backwards, "abc", "--engine", "onnx")
    assert answer.stdout == "cba\n"
    refused(call("translate", backwards, "abc", "--engine", "ctranslate2"), "CTranslate2 has no recurrent models")
    refused(call("translate", backwards, "abc", "--engine", "jax"), "choose from torch, ctranslate2, onnx")
    refused(call("translate", backwards, "abc", "--engine", "onnx", "--device", "cuda"), "onnx computes on the CPU")


def test_json_tells_what_was_written(backwards, tmp_path):
    out = tmp_path / "plain"
    answer = call("export", backwards, "--to", "safetensors", "--out", out, "--json")
    told = json.loads(answer.stdout)
    assert (told["to"], told["out"]) == ("safetensors", str(out))
    assert set(told["files"]) == {"README.md", "export.json", "model.safetensors"} | {
        f"processor/{name}.json" for name in ("processor", "source", "target")
    }


def test_mistakes_are_answered_in_words(backwards, exported, tmp_path):
    refused(
        call("export", backwards, "--to", "onnx", "--out", exported), "is not empty; choose an empty or a new folder"
    )
    refused(call("export", backwards, "--to", "ctranslate2", "--out", tmp_path / "x"), "no recurrent models")
    refused(call("export", tmp_path, "--to", "onnx", "--out", tmp_path / "x"), f"no run in {tmp_path}")
    (exported / "processor" / "source.json").write_text("{}", encoding="utf-8")
    refused(call("translate", exported, "abc"), "source.json has changed since it was exported")
