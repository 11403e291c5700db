"""Tokenizers: encoding, decoding, words, saving and dropout."""

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data import BOS_ID, EOS_ID, PAD_ID, UNK_ID, Tokenizer
from regard.data.vocabulary import MAX_CACHED_WORDS, MODEL_TYPES, DropoutVariants, apply_merges
from regard.errors import DataError
from tests.data.texts import SENTENCES, all_texts, make_lines

SPECIAL_TEXTS = ["<pad>", "<unk> a", "a </s><s> b", "</s>", "▁a"]


@cache
def trained(kind: str = "bpe", size: int = 600, nfkc: bool = False, lowercase: bool = False) -> Tokenizer:
    return Tokenizer.train(all_texts() + SPECIAL_TEXTS * 3, kind, size, nfkc=nfkc, lowercase=lowercase)


words = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.text(st.sampled_from("abdefgiklmnoprstu.,! ▁<>/"), max_size=30),
    st.sampled_from(SENTENCES + SPECIAL_TEXTS + make_lines(20)),
)


@pytest.mark.parametrize("kind", MODEL_TYPES)
def test_decode_inverts_encode(kind):
    tokenizer = trained(kind, size=2000)
    for text in all_texts():
        ids = tokenizer.encode(text)
        assert tokenizer.decode([BOS_ID, *ids, EOS_ID, PAD_ID]) == text
        assert not {PAD_ID, UNK_ID, BOS_ID, EOS_ID} & set(ids)


@pytest.mark.parametrize("kind", MODEL_TYPES)
@given(text=words)
def test_words_surface_forms_and_tokens_agree(kind, text):
    tokenizer = trained(kind)
    ids = tokenizer.encode(text)
    forms, tokens = tokenizer.surface_forms(text), tokenizer.convert_ids_to_tokens(ids)
    assert len(forms) == len(tokens) == len(ids)
    normalized = text if kind == "char" else text.replace("▁", "_")
    words = list(text) if kind == "char" else normalized.split()
    for groups in (tokenizer.group_words(ids, spaces_only=True), tokenizer.group_words(ids, forms)):
        assert [position for group in groups for position in group] == list(range(len(ids)))
        merged = ["".join(forms[i] for i in group) for group in groups]
        assert "".join(merged) == "".join(words)
        assert all(merged) or "" in words
    spaced = tokenizer.group_words(ids, spaces_only=True)
    assert ["".join(forms[i] for i in group) for group in spaced] == words
    for number, token, surface in zip(ids, tokens, forms, strict=True):
        assert number == UNK_ID or token.removeprefix("▁") == surface or kind == "char"
    if UNK_ID not in ids:
        assert tokenizer.decode(ids) == (text if kind == "char" else " ".join(normalized.split()))


def words_of(tokenizer, text, **options):
    """The words of a text, which are the same without it unless it has characters without a token."""
    ids, forms = tokenizer.encode(text), tokenizer.surface_forms(text)
    groups = tokenizer.group_words(ids, forms, **options)
    assert UNK_ID in ids or tokenizer.group_words(ids, **options) == groups
    return ["".join(forms[i] for i in group) for group in groups]


def test_adjacent_unknown_characters_are_words():
    tokenizer = Tokenizer.train(["我叫小明", "我叫小红"] * 9, model_type="bpe", vocab_size=40)
    ids = tokenizer.encode("我叫龘靐")
    assert ids[-2:] == [UNK_ID, UNK_ID]
    assert tokenizer.group_words(ids)[-2:] == [[len(ids) - 2], [len(ids) - 1]]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize("size", [150, 600])
def test_each_token_is_a_word_without_spaces(kind, size):
    tokenizer = trained(kind, size)
    for text in ("我们明天去北京，好吗？", "東京タワーは333メートルです。"):
        forms = tokenizer.surface_forms(text)
        words = words_of(tokenizer, text, spaces_only=False)
        assert "".join(words) == text
        assert len(words) > 4
        assert words == [word for word in forms if word] or "333" in words
    assert words_of(tokenizer, "我们明天去北京，好吗？") == words_of(
        tokenizer, "我们明天去北京，好吗？", spaces_only=False
    )


def test_other_scripts_within_chinese_are_words():
    letters = Tokenizer.train(["我 用 的 机 手 ， 。 i P h o n e X"] * 2, "bpe", 60)
    assert words_of(letters, "我用iPhone的手机，iPhone X。") == [
        "我", "用", "iPhone", "的", "手", "机", "，", "iPhone", "X", "。",
    ]  # fmt: skip


def test_frequent_spaces_delimit_words():
    letters = Tokenizer.train(["科 学 家 一 直 猜 想 存 在 海 洋 。"] * 2, "bpe", 60)
    text = "科学家 一直 猜想 海洋 存在 。"
    assert words_of(letters, text) == text.split()
    assert words_of(letters, "科学家一直猜想。 海洋存在。") == list("科学家一直猜想。海洋存在。")
    assert words_of(letters, "科学家") == list("科学家")
    assert words_of(letters, "科学家", spaces_only=True) == ["科学家"]


def test_spaced_languages_are_split_at_spaces():
    for text in (*SENTENCES[:5], *SENTENCES[7:9], "나는 「학교」에 갔다.", "Hello，world"):
        assert words_of(trained(), text) == text.split()


def test_an_unknown_character_within_chinese_is_a_word():
    letters = Tokenizer.train(["我 们 北"] * 2, "bpe", 60)
    assert words_of(letters, "我们京都北鬱") == list("我们京都北鬱")
    ids = letters.encode("我们京北")
    assert letters.convert_ids_to_tokens(ids) == ["▁我", "们", "<unk>", "北"]
    assert letters.group_words(ids) == [[0], [1], [2], [3]]


@pytest.mark.parametrize("kind", MODEL_TYPES)
def test_truncate(kind):
    tokenizer = trained(kind)
    for text in SENTENCES:
        for max_tokens in (1, 3, 7, 500):
            cut = tokenizer.truncate(text, max_tokens)
            assert text.startswith(cut)
            assert len(tokenizer.encode(cut)) <= max_tokens
    assert tokenizer.truncate("Two", 500) == "Two"


@pytest.mark.parametrize("kind", MODEL_TYPES)
def test_special_tokens_in_text_are_text(kind):
    for text in SPECIAL_TEXTS[:-1]:
        ids = trained(kind, size=2000).encode(text)
        assert not {PAD_ID, UNK_ID, BOS_ID, EOS_ID} & set(ids)
        assert trained(kind, size=2000).decode(ids) == text
    marked = trained(kind, size=2000).encode("▁a")
    assert trained(kind, size=2000).decode(marked) == ("▁a" if kind == "char" else "_a")


@pytest.mark.parametrize("kind", MODEL_TYPES)
def test_special_ids_and_vocab_size(kind):
    tokenizer = trained(kind, size=100)
    assert tokenizer.convert_ids_to_tokens([PAD_ID, UNK_ID, BOS_ID, EOS_ID]) == ["<pad>", "<unk>", "<s>", "</s>"]
    assert 50 < len(tokenizer) <= 100
    assert max(max(tokenizer.encode(text)) for text in all_texts()) < len(tokenizer)


def test_unknown_characters_and_words():
    bpe, word = trained(), trained("word")
    ids = bpe.encode("a ᚠb ᚠᚱ")
    assert bpe.convert_ids_to_tokens(ids) == ["▁a", "▁", "<unk>", "b", "▁", "<unk>", "<unk>"]
    assert bpe.surface_forms("a ᚠb ᚠᚱ") == ["a", "", "ᚠ", "b", "", "ᚠ", "ᚱ"]
    assert bpe.decode(ids) == "a <unk>b <unk><unk>"
    assert bpe.decode(ids, {2: "f", 5: "r", 6: "s"}) == "a fb rs"
    ids = word.encode("Two Ozelot men")
    assert ids[1] == UNK_ID
    assert word.surface_forms("Two Ozelot men")[1] == "Ozelot"
    assert word.decode(ids) == "Two <unk> men"
    assert word.decode(ids, {1: "ocelots"}) == "Two ocelots men"
    assert trained("unigram").surface_forms("aᚠᚱb ᚠ")[-1] == "ᚠ"


def test_rare_characters_leave_room_for_merges():
    texts = ["".join(chr(0x4E00 + i) for i in range(k, k + 8)) for k in range(0, 800, 4)] + make_lines(100)
    tokenizer = Tokenizer.train(texts, "bpe", vocab_size=200)
    assert len(tokenizer) == 200
    assert sum(len(token) == 1 for token in tokenizer.vocabulary.tokens) == 100


def test_half_a_surrogate_pair():
    for kind in MODEL_TYPES:
        ids = trained(kind).encode("a \ud83d")
        assert len(trained(kind).surface_forms("a \ud83d")) == len(ids) > 1
    trained().encode_with_dropout("a \ud83d", 0.5, Random(0))
    assert "?" in Tokenizer.train(["a \ud83d"], "char").vocabulary.tokens


def test_normalizing():
    assert (
        trained(nfkc=True, lowercase=True).decode(trained(nfkc=True, lowercase=True).encode("ﬁve ＴＷＯ")) == "five two"
    )
    assert trained("char", nfkc=True).surface_forms("ﬁ") == ["f", "i"]


@pytest.mark.parametrize("kind", MODEL_TYPES)
def test_saved_and_loaded(kind, tmp_path):
    tokenizer = trained(kind, lowercase=True)
    tokenizer.save(tmp_path / "t.json")
    again = Tokenizer.load(tmp_path / "t.json")
    assert again == tokenizer
    assert again.encode_all(all_texts()) == tokenizer.encode_all(all_texts())
    assert json.loads((tmp_path / "t.json").read_text())["format"] == 2
    assert again != trained(kind)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: text.replace('"model_type": "bpe"', '"model_type": "magic"'),
        lambda text: text.replace('"<pad>", ', ""),
        lambda text: json.dumps(json.loads(text) | {"merges": [["no", "such"]]}),
        lambda text: json.dumps(json.loads(text) | {"format": 1}),
    ],
)
def test_damaged_files_are_refused(damage, tmp_path):
    path = tmp_path / "t.json"
    trained().save(path)
    path.write_text(damage(path.read_text()))
    with pytest.raises(DataError, match=r"t\.json") as caught:
        Tokenizer.load(path)
    assert "\n" not in str(caught.value)
    with pytest.raises(DataError, match="no tokenizer"):
        Tokenizer.load(tmp_path / "none.json")


def test_invalid_arguments():
    with pytest.raises(ValueError, match="no tokenizer model 'bytes'"):
        Tokenizer.train(["a"], "bytes")
    with pytest.raises(TypeError, match="many texts"):
        Tokenizer.train("a text")
    with pytest.raises(DataError, match="every line is empty"):
        Tokenizer.train(["", " "])
    for size in (3, 8):
        with pytest.raises(ValueError, match=f"vocabulary of {size} tokens is too small: .* at least 9"):
            Tokenizer.train(["a"], vocab_size=size)
    assert len(Tokenizer.train(["a"], vocab_size=9)) <= 9
    with pytest.raises(ValueError, match="another tokenizer"):
        trained().decode([100_000])


@pytest.mark.parametrize("kind", MODEL_TYPES)
@pytest.mark.parametrize("text", ["a", "a a", "ab ab ab", "."])
def test_tiny_texts(kind, text):
    tokenizer = Tokenizer.train([text], kind)
    assert tokenizer.decode(tokenizer.encode(text)) == text


TRAIN = """
import hashlib, json, sys
from regard.data import Tokenizer
from regard.data.vocabulary import MODEL_TYPES
texts = json.load(sys.stdin)
for kind in MODEL_TYPES:
    for size in (150, 500):
        saved = json.dumps(Tokenizer.train(texts, kind, size)._as_dict())
        print(kind, size, hashlib.sha256(saved.encode()).hexdigest())
"""


def test_training_is_deterministic_across_processes():
    env = os.environ | {"PYTHONHASHSEED": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    options = {"input": json.dumps(all_texts()), "text": True, "env": env}
    other_process = subprocess.run([sys.executable, "-c", TRAIN], capture_output=True, check=True, **options).stdout
    this_process = "".join(
        f"{kind} {size} "
        + hashlib.sha256(json.dumps(Tokenizer.train(all_texts(), kind, size)._as_dict()).encode()).hexdigest()
        + "\n"
        for kind in MODEL_TYPES
        for size in (150, 500)
    )
    assert other_process == this_process


@given(text=words)
def test_apply_merges_equals_the_library(text):
    tokenizer = trained()
    variants = DropoutVariants(tokenizer.vocabulary, 0.0)
    assert variants.draw(tokenizer._pre_tokenize(text), Random(0)) == tokenizer.encode(text)
    assert tokenizer.encode_with_dropout(text, 0.0, Random(0)) == tokenizer.encode(text)


def test_apply_merges_equals_the_library_on_long_words():
    tokenizer = trained()
    variants = DropoutVariants(tokenizer.vocabulary, 0.0)
    for text in [*all_texts(), "a" * 999, "".join(make_lines(50)).replace(" ", ""), "北京" * 2000]:
        assert variants.draw(tokenizer._pre_tokenize(text), Random(0)) == tokenizer.encode(text)


def test_dropout_is_seeded_varied_and_lossless():
    tokenizer, texts = trained(), all_texts()
    first, second, other = ([tokenizer.encode_with_dropout(t, 0.3, r) for t in texts] for r in map(Random, (1, 1, 2)))
    assert first == second != other
    assert all(tokenizer.decode(ids) == text for ids, text in zip(first, texts, strict=True))
    assert len({tuple(tokenizer.encode_with_dropout(texts[0], 0.3, Random(i))) for i in range(50)}) > 20
    lengths = [sum(len(tokenizer.encode_with_dropout(t, p, Random(0))) for t in texts) for p in (0.0, 0.1, 0.5, 1.0)]
    assert lengths == sorted(set(lengths))
    assert lengths[-1] == sum(len("".join(tokenizer._pre_tokenize(text))) for text in texts)


def test_dropout_is_independent_of_earlier_calls():
    fresh, used = (Tokenizer("bpe", trained().vocabulary) for _ in range(2))
    for text in make_lines(50, seed=9):
        used.encode_with_dropout(text, 0.2, Random(5))
    used.encode_with_dropout("a", 0.7, Random(0))
    assert [fresh.encode_with_dropout(t, 0.2, Random(3)) for t in all_texts()] == [
        used.encode_with_dropout(t, 0.2, Random(3)) for t in all_texts()
    ]


def exact_distribution(symbols, ranks, dropout):
    """The probability of each segmentation: each pair is dropped independently, the best other one merges."""
    pairs = sorted((ranks[pair], i) for i, pair in enumerate(pairwise(symbols)) if pair in ranks)
    probabilities = Counter({symbols: dropout ** len(pairs)})
    for place, (_, i) in enumerate(pairs):
        merged = (*symbols[:i], symbols[i] + symbols[i + 1], *symbols[i + 2 :])
        for segmentation, probability in exact_distribution(merged, ranks, dropout).items():
            probabilities[segmentation] += dropout**place * (1 - dropout) * probability
    return probabilities


@pytest.mark.parametrize("word", ["ab", "abc", "abcdef", "ababc"])
def test_dropout_has_the_distribution_of_the_paper(word):
    ranks = {("a", "b"): 0, ("c", "d"): 1, ("e", "f"): 2, ("b", "c"): 3, ("ab", "cd"): 4, ("ab", "ab"): 5}
    samples = Counter(tuple(apply_merges(word, ranks, 0.4, Random(i))) for i in range(8000))
    expected = exact_distribution(tuple(word), ranks, 0.4)
    assert sum(expected.values()) == pytest.approx(1)
    assert set(samples) <= set(expected)
    for segmentation, probability in expected.items():  # tolerance: more than three standard deviations
        assert abs(samples[segmentation] / 8000 - probability) < 0.018, segmentation


def test_dropout_needs_merges():
    for kind in ("unigram", "char", "word"):
        with pytest.raises(ValueError, match="Only a bpe tokenizer"):
            trained(kind).encode_with_dropout("a", 0.1, Random(0))
        assert trained(kind).encode_with_dropout("a", 0.0, Random(0)) == trained(kind).encode("a")
    with pytest.raises(ValueError, match="probability"):
        trained().encode_with_dropout("a", 1.5, Random(0))


def test_a_full_cache_changes_nothing(monkeypatch):
    assert MAX_CACHED_WORDS > 1000
    expected = (
        trained().encode_all(all_texts()),
        [trained().encode_with_dropout(t, 0.2, Random(1)) for t in all_texts()],
    )
    monkeypatch.setattr("regard.data.vocabulary.MAX_CACHED_WORDS", 3)
    monkeypatch.setattr("regard.data.tokenizer.MAX_CACHED_WORDS", 3)
    small = Tokenizer("bpe", trained().vocabulary)
    assert (
        small.encode_all(all_texts()),
        [small.encode_with_dropout(t, 0.2, Random(1)) for t in all_texts()],
    ) == expected
    assert len(small._cache) <= 3


@pytest.mark.parametrize("word", ["x" * 1001, "ab" * 80_000, "!" * 160_000], ids=len)
@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_long_words_are_split_and_restored(kind, word):
    """The trainers of Hugging Face crash on long words, or take minutes."""
    tokenizer = trained(kind)
    assert max(map(len, tokenizer._pre_tokenize(word))) <= 1001, "with the mark of the word"
    ids = tokenizer.encode(f"a {word}")
    assert len(tokenizer.group_words(ids)) == 2
    assert "".join(tokenizer.surface_forms(word)) == word
    if UNK_ID not in ids:
        assert tokenizer.decode(ids) == f"a {word}"


@pytest.mark.parametrize("kind", ["bpe", pytest.param("unigram", marks=pytest.mark.slow)])
def test_a_long_word_stops_no_training(kind):
    """In another process, since it ended with a segmentation fault."""
    script = (
        "import random, sys\n"
        "from regard.data import Tokenizer\n"
        "word = ''.join(random.Random(0).choices('abcdefghij', k=160_000))\n"
        "Tokenizer.train([word, 'ab cd ab cd'], sys.argv[1], 60)\n"
    )
    subprocess.run([sys.executable, "-c", script, kind], check=True, timeout=100)
