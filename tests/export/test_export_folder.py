"""Exported folders: whole, checked, usable without the run, and clear about what cannot be exported."""

import hashlib
import json
import shutil

import pytest
import torch

import regard
from regard.decoding import DecodingConfig
from regard.errors import ConfigError, ExportCorruptError, ExportError, UnknownNameError, UnsupportedError
from regard.export import export, to_engine
from regard.export import onnx as _onnx
from regard.tasks import make_config, recipe_name, train
from regard.tasks.translation.predictor import Translator
from tests.export.fixtures_translators import TEXTS, translator

QUICK = {"steps": 3, "validate_every": 3, "average_last": 0, "batch_tokens": 200, "monitor": "loss", "hidden_dim": 16}
FORMS = [("ctranslate2", None), ("ctranslate2", "int8"), ("onnx", None), ("onnx", "int8"), ("safetensors", None)]


def trained(folder, name="reverse", **given):
    train(name, folder, log=lambda line: None, **{**QUICK, "max_length": 8, **given})
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "reverse"
    return trained(folder, model="transformer", num_heads=2, num_layers=1)


@pytest.fixture(scope="module")
def recurrent(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("run") / "recurrent", embed_dim=8)


@pytest.mark.parametrize(("to", "quantize"), FORMS)
def test_a_folder_works_without_the_run(run, tmp_path, to, quantize):
    copy = shutil.copytree(run, tmp_path / "run")
    folder = export(copy, to, tmp_path / "out" / "model", quantize)
    shutil.rmtree(copy)
    found = regard.load(folder)
    assert isinstance(found, Translator)
    assert recipe_name(folder) == "reverse"
    texts = [text for text in TEXTS if len(text) <= 8]
    if quantize is None:
        assert found.translate(texts) == regard.load(run).translate(texts)
    else:
        assert len(found.translate(texts)) == len(texts)
    assert not list(folder.parent.glob(".*")), "nothing is left of the writing"
    record = json.loads((folder / "export.json").read_text(encoding="utf-8"))
    assert (record["format"], record["to"], record["quantize"]) == (2, to, quantize)
    assert str(tmp_path) not in json.dumps(record), "no path of this machine goes with it"
    assert "reverse" in (folder / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", ["pre", "luong"])
def test_eight_bits_are_nearly_the_same(tmp_path, kind):
    source, lengths = torch.tensor([[4, 5, 6, 7, 3]]), torch.tensor([5])
    logits = []
    for quantize in (None, "int8"):
        folder = tmp_path / str(quantize)
        folder.mkdir()
        _onnx.write_model(translator(kind), folder, quantize)
        logits.append(_onnx.OnnxEngine(folder, 20).start_decoding(source, lengths).step(torch.tensor([2])))
    away = (logits[0] - logits[1]).abs().max()
    assert 0 < away < 0.1 * logits[0].abs().max()


def test_weights_of_a_folder_can_be_run_by_any_engine(run, tmp_path):
    folder = export(run, "safetensors", tmp_path / "plain")
    expected = regard.load(folder).translate("abc")
    for engine in ("torch", "onnx", "ctranslate2"):
        for place in (folder, run):
            assert regard.load(place, engine=engine).translate("abc") == expected
    again = export(folder, "onnx", tmp_path / "onnx")
    assert regard.load(again).translate("abc") == expected
    with pytest.raises(UnsupportedError, match="was exported for onnx and runs with that engine only"):
        regard.load(again, engine="torch")
    with pytest.raises(ExportError, match="was exported for onnx already"):
        export(again, "ctranslate2", tmp_path / "more")


@pytest.mark.parametrize(("to", "name"), [("onnx", "decoder.onnx"), ("ctranslate2", "model.bin")])
def test_a_file_that_its_maker_spoiled_is_refused_too(run, tmp_path, to, name):
    """The checksum is right, but the engine cannot read what is there."""
    folder = export(run, to, tmp_path / "model")
    for content in (b"", b"no model", (folder / name).read_bytes()[:200]):
        (folder / name).write_bytes(content)
        record = json.loads((folder / "export.json").read_text(encoding="utf-8"))
        record["files"][name] = hashlib.sha256(content).hexdigest()
        (folder / "export.json").write_text(json.dumps(record), encoding="utf-8")
        with pytest.raises(ExportCorruptError, match="export the model again"):
            regard.load(folder)


def test_people_may_write_on_in_the_card(run, tmp_path):
    folder = export(run, "onnx", tmp_path / "model")
    with open(folder / "README.md", "a", encoding="utf-8") as card:
        card.write("\nLicense: none.\n")
    assert regard.load(folder).translate("abc") is not None


@pytest.mark.parametrize("to", ["ctranslate2", "onnx", "safetensors"])
def test_damage_is_noticed_before_anything_is_used(run, tmp_path, to):
    folder = export(run, to, tmp_path / "model")
    names = json.loads((folder / "export.json").read_text(encoding="utf-8"))["files"]
    assert len(names) >= 3
    for name in names:
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole[:-7] + bytes([whole[-7] ^ 1]) + whole[-6:])
        with pytest.raises(ExportCorruptError, match="has changed since it was exported"):
            regard.load(folder)
        (folder / name).unlink()
        with pytest.raises(ExportCorruptError, match="is missing"):
            regard.load(folder)
        (folder / name).write_bytes(whole)
    assert regard.load(folder).translate("ab") is not None


@pytest.mark.parametrize("kinds", [("post", "additive"), ("additive", "none"), ("luong", "post")])
def test_graphs_of_two_models_are_refused(tmp_path, kinds):
    folders = [tmp_path / kind for kind in kinds]
    for folder, kind in zip(folders, kinds, strict=True):
        folder.mkdir()
        _onnx.write_model(translator(kind), folder, None)
        assert _onnx.OnnxEngine(folder, 20).search([[4, 3]], DecodingConfig(method="greedy"))[0]
    (folders[0] / _onnx.DECODER_FILE).write_bytes((folders[1] / _onnx.DECODER_FILE).read_bytes())
    with pytest.raises(ExportCorruptError, match="do not belong together"):
        _onnx.OnnxEngine(folders[0], 20)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": 3}, "has format 3, but this regard reads 2"),
        ({"files": {"../../secret": "0"}}, "names a file outside of its folder"),
        ({"files": None}, "is damaged"),
        ({"to": ["onnx"]}, "is damaged"),
        ({"config": 3}, "is damaged"),
        ({"to": "pickle"}, "which this version of regard does not have"),
        ({"task": "no-such"}, "no-such"),
        ({"config": {"no_such": 1}}, "no_such"),
    ],
)
def test_a_strange_record_is_refused(run, tmp_path, change, words):
    folder = export(run, "onnx", tmp_path / "model")
    record = json.loads((folder / "export.json").read_text(encoding="utf-8"))
    (folder / "export.json").write_text(json.dumps({**record, **change}), encoding="utf-8")
    with pytest.raises((ValueError, LookupError), match=words):
        regard.load(folder)


def test_a_record_that_is_no_json(run, tmp_path):
    folder = export(run, "onnx", tmp_path / "model")
    for content in (b"", b"[]", b"{\xff", b"[" * 100_000):
        (folder / "export.json").write_bytes(content)
        with pytest.raises(ExportCorruptError, match="is damaged"):
            regard.load(folder)


def test_no_folder_is_written_over(run, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    with pytest.raises(FileExistsError, match="is not empty"):
        export(run, "safetensors", tmp_path / "full")
    (tmp_path / "empty").mkdir()
    assert regard.load(export(run, "safetensors", tmp_path / "empty"))


def test_what_fails_leaves_nothing(recurrent, tmp_path):
    with pytest.raises(ExportError, match="CTranslate2 has no recurrent models; export this one to onnx"):
        export(recurrent, "ctranslate2", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_recurrent_model_goes_to_onnx(recurrent, tmp_path):
    found = regard.load(export(recurrent, "onnx", tmp_path / "model"))
    ours = regard.load(recurrent)
    assert found.translate(TEXTS[:5]) == ours.translate(TEXTS[:5])
    torch.testing.assert_close(
        found.align("abc", "cba").weights, ours.align("abc", "cba").weights, atol=1e-5, rtol=1e-4
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["normalize=sample"], "the normalizer Sample cannot be exported to ONNX, but softmax"),
        (["normalize=sparsemax"], "the normalizer sparsemax cannot be exported"),
        (["score=cosine"], "the score Cosine cannot be exported to ONNX, but these can: Constant, Dot"),
        (["score=gaussian", "attention_scope=local-m"], "the score Gaussian cannot"),
    ],
)
def test_what_has_no_place_in_onnx_is_refused(words, sentence):
    from regard.tasks.translation.task import build_model

    settings = make_config("reverse", ["hidden_dim=16", *words])
    plain = translator("additive")
    strange = Translator(build_model(settings, 12, 12), plain.processor, settings)
    with pytest.raises(ExportError, match=sentence):
        to_engine(strange, "onnx")


@pytest.mark.parametrize("engine", ["onnx", "ctranslate2"])
def test_a_transformer_with_other_heads_is_refused(engine):
    from regard.attention import MultiHead, sparsemax
    from regard.models import Transformer

    plain = translator("post")
    for made in (lambda: MultiHead(16, 2, normalize=sparsemax), lambda: MultiHead(16, 2, 1)):
        model = Transformer(12, 12, embed_dim=16, num_heads=2, num_encoder_layers=1, ffn_dim=16, make_self_attn=made)
        strange = Translator(model, plain.processor, plain.config)
        with pytest.raises(ExportError, match="this one has another attention"):
            to_engine(strange, engine)


def test_what_is_asked_wrongly(run, tmp_path):
    for given, kind, words in (
        ({"to": "tensorflow"}, UnknownNameError, "no export format 'tensorflow'; did you mean safetensors"),
        ({"to": "onnx", "quantize": "int3"}, ConfigError, "expected int8, or leave it out"),
        ({"to": "safetensors", "quantize": "int8"}, ConfigError, "keep the weights as they were trained"),
    ):
        with pytest.raises(kind, match=words):
            export(run, out=tmp_path / "out", **given)
    with pytest.raises(UnknownNameError, match="choose from torch, ctranslate2, onnx"):
        regard.load(run, engine="jax")


def test_other_kinds_of_models_go_as_safetensors(tmp_path):
    copy = tmp_path / "copy"
    train(
        "copy",
        copy,
        steps=1,
        validate_every=1,
        log=lambda line: None,
        hidden_dim=8,
        memory_rows=8,
        memory_width=4,
        max_size=2,
    )
    with pytest.raises(ExportError, match="onnx takes translators only; export it with --to safetensors"):
        export(copy, "onnx", tmp_path / "out")
    folder = export(copy, "safetensors", tmp_path / "machine")
    shutil.rmtree(copy)
    assert type(regard.load(folder)).__name__ == "AlgorithmPredictor"
