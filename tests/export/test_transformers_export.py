"""`--to transformers`: what regard trained gives the same tokens, logits and texts there."""

import pytest
import torch

import regard
from regard.errors import ExportError
from regard.export import export
from regard.tasks import train

transformers = pytest.importorskip("transformers")
PAIRS = [(f"the {a} {b}", f"le {b} {a}") for a in ("red", "big", "old") for b in ("cat", "dog", "car")]
OPTIONS = {"steps": 8, "warmup_steps": 2, "validate_every": 8, "batch_tokens": 300, "monitor": "loss", "vocab_size": 60}
OPTIONS |= {"embed_dim": 16, "num_heads": 2, "num_layers": 1, "ffn_dim": 24}
TRANSLATORS = {
    "MarianMTModel": {"tie_embeddings": "all"},
    "MarianMTModel, two vocabularies": {"shared_vocab": False},
    "PegasusForConditionalGeneration": {"tie_embeddings": "all", "norm_first": True},
}


@pytest.fixture(autouse=True)
def _quiet():
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()


def train_translator(folder, **options):
    file = folder / "a.tsv"
    file.write_text("".join(f"{a}\t{b}\n" for a, b in PAIRS))
    files = {"train_files": (str(file),), "valid_files": (str(file),)}
    options = {"model": "transformer", "average_last": 0, **OPTIONS, **files, **options}
    train("translation", folder / "run", log=lambda line: None, **options)
    return folder / "run"


@pytest.mark.parametrize("name", TRANSLATORS)
def test_translators(name, tmp_path):
    run = train_translator(tmp_path, **TRANSLATORS[name])
    out = export(run, "transformers", tmp_path / "out")
    ours, again = regard.load(run), regard.load(out)
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(out).eval()
    tokenizer = target = transformers.AutoTokenizer.from_pretrained(out)
    if "two" in name:
        target = transformers.AutoTokenizer.from_pretrained(out / "target_tokenizer")
    assert type(theirs).__name__ == name.split(",")[0]
    texts = ["the red cat", "the old dog!"]
    batch = tokenizer(texts, return_tensors="pt", padding=True)
    tokens, lengths = ours.pad(ours.encode(texts))
    assert torch.equal(batch.input_ids, tokens)
    prefix = torch.randint(4, 10, (2, 5))
    logits = ours.model(tokens, lengths, prefix)
    torch.testing.assert_close(again.model(tokens, lengths, prefix), logits, atol=1e-5, rtol=0)
    their_logits = theirs(batch.input_ids, attention_mask=batch.attention_mask, decoder_input_ids=prefix).logits
    torch.testing.assert_close(their_logits, logits, atol=1e-5, rtol=0)
    ids = theirs.generate(batch.input_ids, attention_mask=batch.attention_mask, num_beams=1, max_length=12)
    expected = target.batch_decode(ids, skip_special_tokens=True)
    assert ours.translate(texts, beam_size=1, max_length=11) == expected
    assert again.translate(texts) == ours.translate(texts)


def test_text_generators(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("\n\n".join(pair[0] for pair in PAIRS * 3))
    files = {"train_files": (str(file),), "valid_files": (str(file),), "passage_length": 20}
    train("language", tmp_path / "run", log=lambda line: None, **OPTIONS, **files)
    out = export(tmp_path / "run", "transformers", tmp_path / "out")
    ours, again = regard.load(tmp_path / "run"), regard.load(out)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(out).eval()
    tokens = transformers.AutoTokenizer.from_pretrained(out)("the old dog", return_tensors="pt").input_ids
    assert tokens.tolist() == [[2, *ours.tokenizer.encode("the old dog")]]
    torch.testing.assert_close(theirs(tokens).logits, ours.model(tokens), atol=1e-5, rtol=0)
    options = ours.predict_options(method="greedy", max_tokens=4)
    assert again.predict(["the"], options)[0].text == ours.predict(["the"], options)[0].text


def test_what_transformers_does_not_have_is_refused(tmp_path):
    run = train_translator(tmp_path, positions="rotary")
    with pytest.raises(ExportError, match="export it to safetensors"):
        export(run, "transformers", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (tmp_path / "b").mkdir()
    run = train_translator(tmp_path / "b", self_normalize="sparsemax")
    with pytest.raises(ExportError, match="another attention"):
        export(run, "transformers", tmp_path / "out")
    reverse = {"model": "rnn", "steps": 2, "validate_every": 2, "average_last": 0, "monitor": "loss", "hidden_dim": 8}
    train("reverse", tmp_path / "rnn", log=lambda line: None, **reverse)
    with pytest.raises(ExportError, match="no counterpart of RNNSeq2Seq"):
        export(tmp_path / "rnn", "transformers", tmp_path / "out")
