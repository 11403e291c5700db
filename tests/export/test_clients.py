"""Exports used without regard: tokenizer.json, names of the ONNX graphs, and the clients on the page about export."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import regard
from regard.data.vocabulary import EOS_ID
from regard.errors import ExportCorruptError
from regard.export import export
from regard.export.onnx import DECODER_FILE, ENCODER_FILE, OnnxEngine, write_model
from regard.tasks import train
from tests.export.fixtures_translators import ARCHITECTURES, translator

DOCS = Path(__file__).parents[2] / "docs"
WITHOUT_REGARD = "import runpy, sys; sys.modules['regard'] = None; del sys.argv[0]; runpy.run_path(sys.argv[0])"
PAIRS = [(f"the {a} {b}", f"le {b} {a}") for a in ("red", "big", "old") for b in ("cat", "dog", "car")]
TEXTS = ["the red cat", " the  big\tcar dog, <s> zzz!", "old", "a red red red dog dog <pad>中"]
TRANSFORMER = {"model": "transformer", "num_heads": 2}
MODELS = {
    "transformer": {**TRANSFORMER, "norm_first": True},
    "two vocabularies": {**TRANSFORMER, "shared_vocab": False, "target_tokenizer": "char"},
    "rnn": {
        "hidden_dim": 16,
        "attention_scope": "local-m",
        "tokenizer": "char",
        "cell_type": "lstm",
        "decoder_type": "luong",
        "input_feeding": True,
    },
}
CASES = [("onnx_client.py", "onnx", name) for name in MODELS]
CASES += [("ctranslate2_client.py", "ctranslate2", name) for name in MODELS if "model" in MODELS[name]]


def read_clients(page):
    return dict(re.findall(r"^```\w+ (\w+\.\w+)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The run of each model, trained when it is first needed."""
    folder, trained = tmp_path_factory.mktemp("runs"), {}
    file = folder / "pairs.tsv"
    file.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS))
    options = {"steps": 20, "validate_every": 20, "warmup_steps": 5, "lr": 1e-2, "batch_tokens": 300, "monitor": "loss"}
    options |= {"embed_dim": 16, "num_layers": 1, "average_last": 0, "vocab_size": 60}
    options |= {"train_files": (str(file),), "valid_files": (str(file),)}

    def get(name):
        if name not in trained:
            trained[name] = folder / name
            train("translation", trained[name], log=lambda line: None, **options, **MODELS[name])
        return trained[name]

    return get


def check_output(process, run):
    assert process.returncode == 0, process.stderr
    expected = regard.load(run).translate(TEXTS, beam_size=1, max_length=60, max_length_offset=60)
    assert process.stdout.splitlines() == expected
    assert any(expected)


def test_both_languages_have_the_same_clients():
    clients = read_clients(DOCS / "export.md")
    assert set(clients) == {"onnx_client.py", "ctranslate2_client.py", "client.mjs"}
    assert read_clients(DOCS / "zh" / "export.md") == clients
    assert not any("regard" in code for code in clients.values())


@pytest.mark.parametrize(("client", "to", "name"), CASES)
def test_clients_in_python(client, to, name, runs, tmp_path):
    folder = export(runs(name), to, tmp_path / "model")
    (tmp_path / client).write_text(read_clients(DOCS / "export.md")[client], encoding="utf-8")
    command = [sys.executable, "-I", "-c", WITHOUT_REGARD, str(tmp_path / client), str(folder), *TEXTS]
    check_output(subprocess.run(command, capture_output=True, encoding="utf-8", cwd=tmp_path), runs(name))


@pytest.mark.parametrize("name", MODELS)
def test_client_in_javascript(name, runs, tmp_path):
    """NODE_PATH is the node_modules with onnxruntime-web and @huggingface/tokenizers."""
    modules = Path(os.environ.get("NODE_PATH", "node_modules"))
    packages = [modules / "onnxruntime-web", modules / "@huggingface" / "tokenizers"]
    if shutil.which("node") is None or not all(path.is_dir() for path in packages):
        pytest.skip("needs node, and NODE_PATH with onnxruntime-web and @huggingface/tokenizers")
    folder = export(runs(name), "onnx", tmp_path / "model")
    (tmp_path / "client.mjs").write_text(read_clients(DOCS / "export.md")["client.mjs"], encoding="utf-8")
    (tmp_path / "node_modules").symlink_to(modules.resolve())
    command = ["node", "client.mjs", str(folder), *TEXTS]
    check_output(subprocess.run(command, capture_output=True, encoding="utf-8", cwd=tmp_path), runs(name))


@pytest.mark.parametrize("to", ["onnx", "ctranslate2", "safetensors"])
def test_the_tokenizers_of_a_folder(to, runs, tmp_path):
    from tokenizers import Tokenizer

    folder = export(runs("two vocabularies"), to, tmp_path / "model")
    ours = regard.load(folder)
    for tokenizer, path in ((ours.source, folder), (ours.target, folder / "target_tokenizer")):
        theirs = Tokenizer.from_file(str(path / "tokenizer.json"))
        theirs.encode_special_tokens = True
        for text in (*TEXTS, "", "line\nbreak", "x" * 1500):
            assert theirs.encode(text).ids == [*tokenizer.encode(text), EOS_ID]
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(ExportCorruptError, match=r"tokenizer\.json"):
        regard.load(folder)


def test_no_tokenizer_that_differs(tmp_path):
    """The texts of `dates` are normalized before they are cut."""
    train("dates", tmp_path / "run", log=lambda line: None, steps=1, validate_every=1, hidden_dim=8, average_last=0)
    folder = export(tmp_path / "run", "onnx", tmp_path / "model")
    assert not list(folder.rglob("tokenizer.json"))


def open_sessions(folder, architecture):
    write_model(translator(architecture), folder, None)
    engine = OnnxEngine(folder, 20)
    return engine.encoder, engine.decoder


def test_names_of_a_transformer(tmp_path):
    encoder, decoder = open_sessions(tmp_path, "post")
    past = {f"{i}.decoder.{name}" for i in range(2) for name in ("key", "value")}
    memory = {f"{i}.encoder.{name}" for i in range(2) for name in ("key", "value")}
    present = {f"present.{name}" for name in past | memory}
    assert {one.name for one in encoder.get_inputs()} == {"input_ids", "attention_mask"}
    assert {one.name for one in encoder.get_outputs()} == {"last_hidden_state", *present}
    inputs = {"input_ids", "encoder_attention_mask", *(f"past_key_values.{name}" for name in past | memory)}
    assert {one.name for one in decoder.get_inputs()} == inputs
    outputs = {"logits", "cross_attentions", *(f"present.{name}" for name in past)}
    assert {one.name for one in decoder.get_outputs()} == outputs
    values = encoder.run(["present.0.encoder.key", "present.0.encoder.value"], make_inputs([[1, 1, 1], [1, 0, 0]]))
    assert [value.shape for value in values] == [(2, 2, 3, 8)] * 2


def test_names_of_an_rnn(tmp_path):
    encoder, decoder = open_sessions(tmp_path, "luong")
    assert {one.name for one in encoder.get_outputs()} == {"last_hidden_state", "present_states", "present_input_feed"}
    names = {"input_ids", "encoder_attention_mask", "encoder_hidden_states", "past_states", "past_input_feed"}
    assert {one.name for one in decoder.get_inputs()} == names
    outputs = {"logits", "cross_attentions", "present_states", "present_input_feed"}
    assert {one.name for one in decoder.get_outputs()} == outputs


def make_inputs(mask):
    mask = np.array(mask)
    return {"input_ids": np.full_like(mask, 5), "attention_mask": mask}


@pytest.mark.parametrize("architecture", ["pre", "additive", "none"])
def test_padding_elsewhere_is_refused(architecture, tmp_path):
    encoder, _ = open_sessions(tmp_path, architecture)
    encoder.run(None, make_inputs([[1, 1, 1], [1, 0, 0]]))
    for mask in ([[1, 1, 1], [0, 1, 1]], [[1, 0, 1], [1, 1, 1]]):
        with pytest.raises(Exception, match="attention_mask_has_its_padding_on_the_right"):
            encoder.run(None, make_inputs(mask))


@pytest.mark.parametrize("architecture", ["post", "additive", "local-m"])
def test_graphs_with_the_names_of_before_are_refused(architecture, tmp_path):
    """Before, a graph took `source` and `lengths`."""
    onnx = pytest.importorskip("onnx")
    assert architecture in ARCHITECTURES
    write_model(translator(architecture), tmp_path, None)
    for file, names in ((ENCODER_FILE, {"input_ids": "source", "attention_mask": "lengths"}), (DECODER_FILE, {})):
        names = names or {"input_ids": "tokens", "logits": "logits"}
        model = onnx.load_model(str(tmp_path / file))
        for value in model.graph.input:
            value.name = names.get(value.name, value.name)
        for node in model.graph.node:
            node.input[:] = [names.get(name, name) for name in node.input]
        onnx.save_model(model, str(tmp_path / file))
    with pytest.raises(ExportCorruptError, match="those of an earlier regard, whose inputs had other names; export"):
        OnnxEngine(tmp_path, 20)
