"""Tokenizers of checkpoints: BERT's vocab.txt, tokenizer.json, and their tokens with the ids of regard."""

import json

import pytest
from tokenizers import Tokenizer as HubTokenizer
from tokenizers import decoders, models, pre_tokenizers

from regard.data.pretrained_tokenizer import PretrainedTokenizer, order_ids, read_definition
from regard.data.tokenizer import Tokenizer
from regard.errors import DataError

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [*SPECIAL, "你", "好", "世", "界", "un", "##able", "a", "##b", ",", "，", "naive", "Naive"]
TEXTS = ["你好，世界", "unable ab, a", "Naïve naive", "", "xyz", "[MASK] a", "a\tb\u3000你"]


@pytest.mark.parametrize("settings", [{}, {"do_lower_case": False}, {"tokenize_chinese_chars": False}])
def test_vocab_txt_is_read_as_transformers_reads_it(tmp_path, settings):
    transformers = pytest.importorskip("transformers")
    (tmp_path / "vocab.txt").write_text("".join(f"{word}\n" for word in WORDS), encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    ours = HubTokenizer.from_str(read_definition(tmp_path))
    theirs = transformers.BertTokenizer.from_pretrained(tmp_path)
    for text in TEXTS:
        if "[" not in text:  # there a special token of transformers
            assert ours.encode(text).tokens == theirs.tokenize(text)


def test_ids_of_regard(tmp_path):
    (tmp_path / "vocab.txt").write_text("".join(f"{word}\n" for word in WORDS), encoding="utf-8")
    order = order_ids(len(WORDS), pad=0, unk=1, bos=2, eos=3)
    tokenizer = PretrainedTokenizer(read_definition(tmp_path), [WORDS[index] for index in order])
    assert tokenizer.encode("你 unable") == [order.index(WORDS.index(word)) for word in ("你", "un", "##able")]
    assert tokenizer.decode(tokenizer.encode("unable a")) == "unable a"
    assert tokenizer.group_words(tokenizer.encode("unable a")) == [[0, 1], [2]]
    tokenizer.save(tmp_path / "saved.json")
    assert Tokenizer.load(tmp_path / "saved.json") == tokenizer
    with pytest.raises(DataError, match=r"no tokenizer\.json"):
        read_definition(tmp_path / "missing")
    with pytest.raises(DataError, match="outside of the vocabulary"):
        order_ids(5, pad=5, unk=1, bos=2, eos=3)


def test_tokens_of_bytes():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = ["<pad>", "<unk>", "<s>", "</s>", *alphabet, "Ġa", "Ġab"]
    hub = HubTokenizer(models.BPE({token: index for index, token in enumerate(raw)}, [("Ġ", "a"), ("Ġa", "b")]))
    hub.pre_tokenizer, hub.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer = PretrainedTokenizer(hub.to_str(), raw)
    tokens = tokenizer.convert_ids_to_tokens(range(len(raw)))
    assert len(set(tokens)) == len(raw)
    assert tokens[-2:] == ["▁a", "▁ab"]
    for text in ("x ab a", "é 中\n y"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.surface_forms("x ab") == ["x", "ab"]
