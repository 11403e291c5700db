"""Exported folders: complete, checked, independent of the run; models that cannot be exported are refused."""

import hashlib
import json
import shutil
from functools import partial

import pytest
import torch

import regard
from regard.decoding import DecodingConfig
from regard.errors import ConfigError, ExportCorruptError, ExportError, UnknownNameError, UnsupportedError
from regard.export import export, read_record, to_engine
from regard.export.onnx import DECODER_FILE, OnnxEngine, write_model
from regard.files import add_checksum, read_json, sha256_of_file, write_json
from regard.tasks import make_config, recipe_name, train
from regard.tasks.translation.predictor import Translator
from tests.export.fixtures_translators import TEXTS, translator

QUICK_OPTIONS = {
    "steps": 3,
    "validate_every": 3,
    "average_last": 0,
    "batch_tokens": 200,
    "monitor": "loss",
    "hidden_dim": 16,
}
FORMATS = [("ctranslate2", None), ("ctranslate2", "int8"), ("onnx", None), ("onnx", "int8"), ("safetensors", None)]


def train_run(folder, name="reverse", **options):
    train(name, folder, log=lambda line: None, **{**QUICK_OPTIONS, "max_length": 8, **options})
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "reverse"
    return train_run(folder, model="transformer", num_heads=2, num_layers=1)


@pytest.fixture(scope="module")
def rnn_run(tmp_path_factory):
    return train_run(tmp_path_factory.mktemp("run") / "rnn", embed_dim=8)


@pytest.mark.parametrize(("to", "quantize"), FORMATS)
def test_a_folder_does_not_need_the_run(run, tmp_path, to, quantize):
    copy = shutil.copytree(run, tmp_path / "run")
    folder = export(copy, to, tmp_path / "out" / "model", quantize)
    shutil.rmtree(copy)
    exported = regard.load(folder)
    assert isinstance(exported, Translator)
    assert recipe_name(folder) == "reverse"
    texts = [text for text in TEXTS if len(text) <= 8]
    if quantize is None:
        assert exported.translate(texts) == regard.load(run).translate(texts)
    else:
        assert len(exported.translate(texts)) == len(texts)
    assert not list(folder.parent.glob(".*")), "temporary files are left"
    record = json.loads((folder / "export.json").read_text(encoding="utf-8"))
    assert (record["format"], record["to"], record["quantize"]) == (2, to, quantize)
    assert str(tmp_path) not in json.dumps(record), "paths of this machine are left out"
    assert "reverse" in (folder / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("architecture", ["pre", "luong"])
def test_quantized_logits_are_nearly_equal(tmp_path, architecture):
    source, lengths = torch.tensor([[4, 5, 6, 7, 3]]), torch.tensor([5])
    logits = []
    for quantize in (None, "int8"):
        folder = tmp_path / str(quantize)
        folder.mkdir()
        write_model(translator(architecture), folder, quantize)
        logits.append(OnnxEngine(folder, 20).start_decoding(source, lengths).step(torch.tensor([2])))
    error = (logits[0] - logits[1]).abs().max()
    assert 0 < error < 0.1 * logits[0].abs().max()


def test_safetensors_can_be_opened_with_any_engine(run, tmp_path):
    folder = export(run, "safetensors", tmp_path / "plain")
    expected = regard.load(folder).translate("abc")
    for engine in ("torch", "onnx", "ctranslate2"):
        for path in (folder, run):
            assert regard.load(path, engine=engine).translate("abc") == expected
    onnx_folder = export(folder, "onnx", tmp_path / "onnx")
    assert regard.load(onnx_folder).translate("abc") == expected
    with pytest.raises(UnsupportedError, match="was exported for onnx and runs with that engine only"):
        regard.load(onnx_folder, engine="torch")
    with pytest.raises(ExportError, match="was exported for onnx already"):
        export(onnx_folder, "ctranslate2", tmp_path / "more")


@pytest.mark.parametrize(("to", "name"), [("onnx", "decoder.onnx"), ("ctranslate2", "model.bin")])
def test_unreadable_model_files_with_the_right_checksum_are_refused(run, tmp_path, to, name):
    folder = export(run, to, tmp_path / "model")
    for content in (b"", b"no model", (folder / name).read_bytes()[:200]):
        (folder / name).write_bytes(content)
        record = read_json(folder / "export.json")
        record["files"][name] = hashlib.sha256(content).hexdigest()
        write_json(folder / "export.json", add_checksum(record))
        with pytest.raises(ExportCorruptError, match="export the model again"):
            regard.load(folder)


def test_the_model_card_may_be_edited(run, tmp_path):
    folder = export(run, "onnx", tmp_path / "model")
    with open(folder / "README.md", "a", encoding="utf-8") as card:
        card.write("\nLicense: none.\n")
    assert regard.load(folder).translate("abc") is not None


@pytest.mark.parametrize("to", ["ctranslate2", "onnx", "safetensors"])
def test_damaged_files_are_refused(run, tmp_path, to):
    folder = export(run, to, tmp_path / "model")
    names = json.loads((folder / "export.json").read_text(encoding="utf-8"))["files"]
    assert len(names) >= 3
    for name in names:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[:-7] + bytes([content[-7] ^ 1]) + content[-6:])
        with pytest.raises(ExportCorruptError, match="has changed since it was written"):
            regard.load(folder)
        (folder / name).unlink()
        with pytest.raises(ExportCorruptError, match="is missing"):
            regard.load(folder)
        (folder / name).write_bytes(content)
    assert regard.load(folder).translate("ab") is not None


@pytest.mark.parametrize("to", ["ctranslate2", "onnx", "safetensors"])
def test_a_file_without_a_checksum_is_refused(run, tmp_path, to):
    folder = export(run, to, tmp_path / "model")
    record = read_json(folder / "export.json")
    for name in record["files"]:
        files = {other: checksum for other, checksum in record["files"].items() if other != name}
        write_json(folder / "export.json", add_checksum({**record, "files": files}))
        with pytest.raises(ExportCorruptError, match=f"has no checksum of {name}"):
            regard.load(folder)
    write_json(folder / "export.json", add_checksum(record))
    (folder / "LICENSE").write_text("none")
    (folder / ".gitattributes").write_text("*.onnx filter=lfs")
    assert regard.load(folder).translate("ab") is not None


def test_every_flipped_bit_of_the_record_is_detected(run, tmp_path):
    path = export(run, "safetensors", tmp_path / "model") / "export.json"
    content, before = path.read_bytes(), read_record(path.parent)
    for place in range(0, len(content), 5):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1 << place % 8]) + content[place + 1 :])
        try:
            record = read_record(path.parent)
        except ExportCorruptError:
            continue
        assert {key: record[key] for key in before} == before


def test_a_graph_with_a_loop_is_refused(run, tmp_path):
    """It would run for 2^60 steps."""
    onnx = pytest.importorskip("onnx")
    folder = export(run, "onnx", tmp_path / "model")
    model = onnx.load_model(str(folder / DECODER_FILE))
    model.graph.node.insert(0, endless_loop(onnx))
    for name, value, kind in (("count", 2**60, onnx.TensorProto.INT64), ("go", True, onnx.TensorProto.BOOL)):
        model.graph.initializer.append(onnx.helper.make_tensor(name, kind, (), [value]))
    onnx.save_model(model, str(folder / DECODER_FILE))
    record = read_json(folder / "export.json")
    record["files"][DECODER_FILE] = sha256_of_file(folder / DECODER_FILE)
    write_json(folder / "export.json", add_checksum(record))
    with pytest.raises(ExportCorruptError, match="no graph that ONNX Runtime can run"):
        regard.load(folder).translate("ab")


def endless_loop(onnx):
    make = onnx.helper
    scalars = [make.make_tensor_value_info(name, kind, ()) for name, kind in (("i", 7), ("c", 9), ("d", 9))]
    body = make.make_graph([make.make_node("Identity", ["c"], ["d"])], "body", scalars[:2], scalars[2:])
    return make.make_node("Loop", ["count", "go"], [], body=body)


@pytest.mark.parametrize("architectures", [("post", "additive"), ("additive", "none"), ("luong", "post")])
def test_graphs_of_two_models_are_refused(tmp_path, architectures):
    folders = [tmp_path / name for name in architectures]
    for folder, name in zip(folders, architectures, strict=True):
        folder.mkdir()
        write_model(translator(name), folder, None)
        assert OnnxEngine(folder, 20).search([[4, 3]], DecodingConfig(method="greedy"))[0]
    (folders[0] / DECODER_FILE).write_bytes((folders[1] / DECODER_FILE).read_bytes())
    with pytest.raises(ExportCorruptError, match="do not belong together"):
        OnnxEngine(folders[0], 20)


@pytest.mark.parametrize(
    ("change", "message"),
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
def test_an_invalid_record_is_refused(run, tmp_path, change, message):
    folder = export(run, "onnx", tmp_path / "model")
    record = read_json(folder / "export.json")
    write_json(folder / "export.json", add_checksum({**record, **change}))
    with pytest.raises((ValueError, LookupError), match=message):
        regard.load(folder)


def test_a_record_that_is_not_json(run, tmp_path):
    folder = export(run, "onnx", tmp_path / "model")
    for content in (b"", b"[]", b"{\xff", b"[" * 100_000):
        (folder / "export.json").write_bytes(content)
        with pytest.raises(ExportCorruptError, match="is damaged"):
            regard.load(folder)


def test_a_full_folder_is_refused(run, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    with pytest.raises(FileExistsError, match="is not empty"):
        export(run, "safetensors", tmp_path / "full")
    (tmp_path / "empty").mkdir()
    assert regard.load(export(run, "safetensors", tmp_path / "empty"))


def test_a_failed_export_leaves_no_files(rnn_run, tmp_path):
    with pytest.raises(ExportError, match="CTranslate2 has no recurrent models; export this one to onnx"):
        export(rnn_run, "ctranslate2", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_an_rnn_can_be_exported_to_onnx(rnn_run, tmp_path):
    exported = regard.load(export(rnn_run, "onnx", tmp_path / "model"))
    original = regard.load(rnn_run)
    assert exported.translate(TEXTS[:5]) == original.translate(TEXTS[:5])
    torch.testing.assert_close(
        exported.align("abc", "cba").weights, original.align("abc", "cba").weights, atol=1e-5, rtol=1e-4
    )


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["normalize=sample"], "the normalizer Sample cannot be exported to ONNX, but softmax"),
        (["normalize=sparsemax"], "the normalizer sparsemax cannot be exported"),
        (["score=cosine"], "the score Cosine cannot be exported to ONNX, but these can: Constant, Dot"),
        (["score=gaussian", "attention_scope=local-m"], "the score Gaussian cannot"),
    ],
)
def test_mechanisms_without_onnx_support_are_refused(overrides, message):
    from regard.tasks.translation.task import build_model

    config = make_config("reverse", ["hidden_dim=16", *overrides])
    standard = translator("additive")
    unsupported = Translator(build_model(config, 12, 12), standard.processor, config)
    with pytest.raises(ExportError, match=message):
        to_engine(unsupported, "onnx")


@pytest.mark.parametrize("engine", ["onnx", "ctranslate2"])
def test_a_transformer_with_other_attention_is_refused(engine):
    from regard.attention import MultiHead, sparsemax
    from regard.models import Transformer

    standard = translator("post")
    others = (
        {"normalize": sparsemax},
        {"num_kv_heads": 1},
        {"head_dim": 4},
        {"value_head_dim": 4},
        {"out_bias": False},
    )
    extras = ({"qk_norm": torch.nn.RMSNorm}, {"add_bias_kv": True}, {"add_zero_attn": True})
    for options in (*others, *extras):
        make_attention = partial(MultiHead, 16, 2, **options)
        model = Transformer(
            12, 12, embed_dim=16, num_heads=2, num_encoder_layers=1, ffn_dim=16, make_self_attn=make_attention
        )
        unsupported = Translator(model, standard.processor, standard.config)
        with pytest.raises(ExportError, match="this one has another attention"):
            to_engine(unsupported, engine)


def test_invalid_arguments_are_refused(run, tmp_path):
    for arguments, error_class, message in (
        ({"to": "tensorflow"}, UnknownNameError, "no export format 'tensorflow'; did you mean safetensors"),
        ({"to": "onnx", "quantize": "int3"}, ConfigError, "expected int8, or leave it out"),
        ({"to": "safetensors", "quantize": "int8"}, ConfigError, "keep the weights as they were trained"),
    ):
        with pytest.raises(error_class, match=message):
            export(run, out=tmp_path / "out", **arguments)
    with pytest.raises(UnknownNameError, match="choose from torch, ctranslate2, onnx"):
        regard.load(run, engine="jax")


def test_models_of_other_tasks_can_be_exported_to_safetensors(tmp_path):
    run = tmp_path / "copy"
    train(
        "copy",
        run,
        steps=1,
        validate_every=1,
        log=lambda line: None,
        hidden_dim=8,
        memory_rows=8,
        memory_width=4,
        max_size=2,
    )
    with pytest.raises(ExportError, match="onnx takes translators only; export it with --to safetensors"):
        export(run, "onnx", tmp_path / "out")
    folder = export(run, "safetensors", tmp_path / "ntm")
    shutil.rmtree(run)
    assert type(regard.load(folder)).__name__ == "AlgorithmPredictor"
