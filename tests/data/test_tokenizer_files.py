"""tokenizer.json: the same tokens and texts as the tokenizer that regard trained."""

import pytest

from regard.data.tokenizer import Tokenizer
from regard.data.tokenizer_files import build_hub_tokenizer, save_hub_tokenizer
from regard.data.vocabulary import BOS_ID, EOS_ID, UNK_ID

TRAINING = ["the low and lower house, the newest!", "Ünïcödé 中文，好。 newest lowest", "don't stop: 3.5 %"] * 3
TEXTS = [
    *TRAINING, "", " ", "  a  b   c ", "\t tab\there\n", "ﬁne ①②  ＡＢＣ", "😀😀 emoji", "a▁b", "<s> hi </s> <pad>",
    "e\u0301 …\u3000中文", "x" * 2500, "a\x1cb\x85c\u00a0d", "ΟΔΟΣ İstanbul", "line\nbreak", "[a-z] && ^$ \\ -",
]  # fmt: skip


@pytest.mark.parametrize("changes", [{}, {"nfkc": True, "lowercase": True}])
@pytest.mark.parametrize("kind", ["bpe", "unigram", "char", "word"])
def test_same_tokens_and_texts(kind, changes):
    ours = Tokenizer.train(TRAINING, kind, 70, **changes)
    theirs = build_hub_tokenizer(ours, "source")
    for text in TEXTS:
        ids = ours.encode(text)
        assert theirs.encode(text).ids == [*ids, EOS_ID], text
        if UNK_ID not in ids:
            assert theirs.decode(theirs.encode(text).ids) == ours.decode(ids), text


def test_transformers_loads_it(tmp_path):
    transformers = pytest.importorskip("transformers")
    ours = Tokenizer.train(TRAINING, "bpe", 70)
    save_hub_tokenizer(ours, tmp_path, "prefix", 30)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs.model_max_length == 30
    assert (theirs.pad_token_id, theirs.eos_token_id) == (0, EOS_ID)
    for text in TEXTS:
        assert theirs(text).input_ids == [BOS_ID, *ours.encode(text)], text
    ids = theirs(TEXTS[0]).input_ids
    assert theirs.decode(ids, skip_special_tokens=True) == ours.decode(ours.encode(TEXTS[0]))
