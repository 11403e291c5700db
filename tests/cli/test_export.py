"""`regard export`, and translating with what it made."""

import json

import pytest

from tests.cli.calls import assert_refused, call


@pytest.fixture(scope="module")
def exported(backwards, tmp_path_factory):
    out = tmp_path_factory.mktemp("exported") / "model"
    answer = call("export", backwards, "--to", "onnx", "--out", out)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.endswith(f"exported to {out}; use it: regard translate {out}\n")
    return out


def test_an_exported_folder_translates_like_its_run(backwards, exported):
    expected = call("translate", backwards, "--align", stdin=b"abc\n\nxyz\n")
    answer = call("translate", exported, "--align", stdin=b"abc\n\nxyz\n")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout == expected.stdout


def test_a_run_can_be_computed_by_an_engine(backwards):
    answer = call("translate", backwards, "abc", "--engine", "onnx")
    assert answer.stdout == "cba\n"
    assert_refused(
        call("translate", backwards, "abc", "--engine", "ctranslate2"), "CTranslate2 has no recurrent models"
    )
    assert_refused(call("translate", backwards, "abc", "--engine", "jax"), "choose from torch, ctranslate2, onnx")
    assert_refused(
        call("translate", backwards, "abc", "--engine", "onnx", "--device", "cuda"), "onnx computes on the CPU"
    )


def test_json_tells_what_was_written(backwards, tmp_path):
    out = tmp_path / "plain"
    answer = call("export", backwards, "--to", "safetensors", "--out", out, "--json")
    result = json.loads(answer.stdout)
    assert (result["to"], result["out"]) == ("safetensors", str(out))
    plain = {"README.md", "export.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert set(result["files"]) == plain | {f"processor/{name}.json" for name in ("processor", "source", "target")}


def test_invalid_arguments_are_refused_in_a_sentence(backwards, exported, tmp_path):
    assert_refused(
        call("export", backwards, "--to", "onnx", "--out", exported), "is not empty; choose an empty or a new folder"
    )
    assert_refused(call("export", backwards, "--to", "ctranslate2", "--out", tmp_path / "x"), "no recurrent models")
    assert_refused(call("export", tmp_path, "--to", "onnx", "--out", tmp_path / "x"), f"no run in {tmp_path}")
    (exported / "processor" / "source.json").write_text("{}", encoding="utf-8")
    assert_refused(call("translate", exported, "abc"), "source.json has changed since it was written")
