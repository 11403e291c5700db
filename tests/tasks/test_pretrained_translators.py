"""The folder of a Marian model in every command: tokens, translations, explanations, exports, refusals."""

import json
import struct

import pytest
import torch

import regard
from regard.data.sentencepiece import read_sentencepiece
from regard.errors import DataError, ExportError, UnsupportedError
from regard.export import export
from regard.tasks.registry import open_record

transformers = pytest.importorskip("transformers")
WORDS = ["▁the", "▁a", "▁red", "▁old", "▁cat", "▁dog", "▁is", "▁here", "s", "c", "at", "▁", ".", "d", "o", "g", "é"]
VOCAB = ["</s>", "<unk>", *WORDS[:-1], ">>deu<<", "<pad>"]  # é has no row
PAD, EOS = len(VOCAB) - 1, 0
TEXTS = ["the red cat is here.", "a dog", "old cats", "", "the the the", ">>deu<< the old dog is here"]
NORMAL, UNKNOWN, CONTROL = 1, 2, 3


def varint(number):
    head = b""
    while number > 0x7F:
        head, number = head + bytes([number & 0x7F | 0x80]), number >> 7
    return head + bytes([number])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def write_spm(path, pieces=WORDS, model_type=1, keeps_spaces=False):
    """A model file of SentencePiece: longer pieces are more probable."""
    rows = [("<unk>", 0.0, UNKNOWN), ("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL)]
    rows += [(piece, float(len(piece) - 8), NORMAL) for piece in pieces]
    message = b"".join(
        field(1, field(1, text.encode()) + field(2, score) + field(3, kind)) for text, score, kind in rows
    )
    message += field(2, field(3, model_type)) + field(3, field(1, b"identity") + field(4, int(not keeps_spaces)))
    path.write_bytes(message)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What an OPUS-MT folder has, with a tiny model."""
    folder = tmp_path_factory.mktemp("marian") / "opus-mt-en-de"
    config = transformers.MarianConfig(
        vocab_size=len(VOCAB), decoder_vocab_size=len(VOCAB), d_model=16, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=24, decoder_ffn_dim=24,
        max_position_embeddings=40, pad_token_id=PAD, eos_token_id=EOS, decoder_start_token_id=PAD,
        forced_eos_token_id=None, activation_function="swish", scale_embedding=True,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.MarianMTModel(config)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(60):  # it learns to reverse its source a little, so that targets differ and end
        words = torch.randint(2, PAD, (16, int(torch.randint(2, 7, ()))))
        end = torch.full((16, 1), EOS)
        loss = model(input_ids=torch.cat((words, end), 1), labels=torch.cat((words.flip(1), end), 1)).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.final_logits_bias.normal_(std=0.3)
    model.generation_config.update(num_beams=3, bad_words_ids=[[PAD]], max_length=40, early_stopping=True)
    model.save_pretrained(folder)
    (folder / "vocab.json").write_text(json.dumps({token: index for index, token in enumerate(VOCAB)}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"source_lang": "en", "target_lang": "de"}))
    for name in ("source.spm", "target.spm"):
        write_spm(folder / name)
    return folder


def copy_with(folder, target, file, change):
    target.mkdir()
    for path in folder.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    content = json.loads((target / file).read_text())
    (target / file).write_text(json.dumps(content | change))
    return target


def their_tokens(translator, text):
    return [translator.source.raw_tokens[index] for index in translator.encode([text])[0]]


def test_tokens(folder):
    translator = regard.load(folder)
    assert their_tokens(translator, "the red cats") == ["▁the", "▁red", "▁cat", "s", "</s>"]
    assert their_tokens(translator, ">>deu<<a dog.") == [">>deu<<", "▁a", "▁dog", ".", "</s>"]
    assert their_tokens(translator, "a  cé </s>") == ["▁a", "▁", "c", "<unk>", "▁", "<unk>", "s", "<unk>", "</s>"]
    assert translator.target.decode(translator.target.encode("the red cats.")) == "the red cats."
    assert translator.source.surface_forms("the  red cats") == ["the", "red", "cat", "s"]


def test_tokens_are_those_of_sentencepiece(folder):
    pytest.importorskip("sentencepiece")
    theirs, translator = transformers.MarianTokenizer.from_pretrained(folder), regard.load(folder)
    for text in [*TEXTS, "a  cé </s> <unk>", "\t x"]:
        ids = theirs(text).input_ids
        assert theirs.convert_ids_to_tokens(ids) == their_tokens(translator, text)


@pytest.mark.parametrize("beam_size", [1, 3])
@pytest.mark.parametrize("renormalize", [False, True])
def test_translations_are_those_of_generate(folder, tmp_path, beam_size, renormalize):
    folder = copy_with(folder, tmp_path / "a", "generation_config.json", {"renormalize_logits": renormalize})
    theirs, ours = transformers.MarianMTModel.from_pretrained(folder), regard.load(folder)
    assert ours.config.beam_size == 3
    for text in TEXTS:
        if not text:
            assert ours.translate(text) == ""
            continue
        source = torch.tensor([[VOCAB.index(token) for token in their_tokens(ours, text)]])
        options = {"num_beams": beam_size, "early_stopping": beam_size > 1, "max_length": 40}
        output = theirs.generate(source, **options, output_scores=True, return_dict_in_generate=True)
        (best,) = ours.predict([text], ours.predict_options(beam_size=beam_size))
        expected = [VOCAB[token] for token in output.sequences[0, 1:].tolist() if token not in (EOS, PAD)]
        assert [ours.target.raw_tokens[token] for token in best.token_ids] == expected
        if beam_size > 1:
            assert best.score == pytest.approx(output.sequences_scores.item(), abs=1e-4)


def test_explanation_and_record(folder):
    translator = regard.load(folder)
    explanation = translator.explain("the red cat")
    assert explanation.maps[0].weights.shape[0] == 2
    assert explanation.maps[0].keys[:2] == ("▁the", "▁red")
    facts = translator.describe()
    assert (facts["source_language"], facts["target_language"], facts["max_length"]) == ("en", "de", 39)
    assert open_record(folder)["task"] == "translation"


@pytest.mark.parametrize("engine", ["onnx", "ctranslate2"])
def test_exports_translate_alike(folder, tmp_path, engine):
    pytest.importorskip({"onnx": "onnxruntime"}.get(engine, engine))
    out = export(folder, engine, tmp_path / "out")
    assert regard.load(out).translate(TEXTS) == regard.load(folder).translate(TEXTS)
    assert regard.load(folder, engine=engine).translate(TEXTS) == regard.load(folder).translate(TEXTS)


def test_what_cannot_be_used_is_refused(folder, tmp_path):
    with pytest.raises(ExportError, match="copy the folder"):
        export(folder, "safetensors", tmp_path / "out")
    settings = {"no_repeat_ngram_size": 3, "encoder_no_repeat_ngram_size": 2, "do_sample": True, "min_new_tokens": 4}
    settings |= {"diversity_penalty": 0.5, "forced_bos_token_id": 7, "suppress_tokens": [5]}
    neutral = copy_with(folder, tmp_path / "n", "generation_config.json", dict.fromkeys(settings))
    regard.load(
        copy_with(neutral, tmp_path / "m", "generation_config.json", {"do_sample": False, "suppress_tokens": []})
    )
    for name, value in settings.items():
        changed = copy_with(folder, tmp_path / name, "generation_config.json", {name: value})
        with pytest.raises(UnsupportedError) as caught:
            regard.load(changed)
        assert f"asks for {name}={value}" in str(caught.value)
    changed = copy_with(folder, tmp_path / "b", "vocab.json", {"more": 99})
    with pytest.raises(DataError, match="does not fit"):
        regard.load(changed)
    changed = copy_with(folder, tmp_path / "c", "config.json", {"model_type": "bert"})
    with pytest.raises(UnsupportedError, match=r"regard\.from_pretrained"):
        regard.load(changed)
    changed = copy_with(folder, tmp_path / "d", "config.json", {})
    (changed / "target.spm").unlink()
    with pytest.raises(DataError, match=r"no .*target.spm"):
        regard.load(changed)


def test_other_files_of_sentencepiece_are_refused(tmp_path):
    path = tmp_path / "a.spm"
    for options, words in (({"model_type": 2}, "another kind"), ({"keeps_spaces": True}, "keeps spaces")):
        write_spm(path, **options)
        with pytest.raises(UnsupportedError, match=words):
            read_sentencepiece(path)
    for content in (b"", b"\x0a\xff", b"{}", path.read_bytes()[:40]):
        path.write_bytes(content)
        with pytest.raises(DataError, match="no model of SentencePiece"):
            read_sentencepiece(path)
