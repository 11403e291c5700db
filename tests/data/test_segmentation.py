"""Sentence and word segmentation; hard cases first."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.segmentation import split_characters, split_sentences, split_words


@pytest.mark.parametrize(
    "text",
    [
        "Mr. and Mrs. Smith met Dr. No in St. Louis.",
        "I like fruit, e.g. Apples, i.e. Pink Ladies.",
        "The U.S. Army paid $3.5 million for version 2.0.1.",
        "J. R. R. Tolkien and T.S. Eliot never met.",
        "Wait... what? no, wait..."[:12],
        "Well... I think so",
        "See vol. 3 and fig. 2 of example.com at 5 p.m. on Friday.",
        "He asked (why?) and left",
        '"Why?" she asked.',
        "Rocky vs. Apollo",
        "Ph.D. students at 3 a.m. sharp",
        "他说：“你好！”，然后走了。",
        "版本3.5很好",
        "什么…没有",
    ],
)
def test_one_sentence_is_not_split(text):
    assert split_sentences(text) == [text]


@pytest.mark.parametrize(
    "parts",
    [
        ["It was bad.", "The acting was worse!", "Why?"],
        ['He said, "I am here."', "Then he left.", '"Really?!"', '"Yes."'],
        ["He lives in the U.S.", "It is big."],
        ["At 5 p.m.", "The door opened."],
        ["He said no.", "No. 5 is alive."],
        ["So am I.", "I am."],
        ["1. The plot.", "2. The cast."],
        ["In 1999.", "2000 came."],
        ["It was bad...", "The end came."],
        ["(Nobody knew.)", "[Really.]", "Fine."],
        ["great movie!", "loved it.", "3.5 stars"],  # no capitals anywhere
        ["Quelle horreur !", "Vraiment."],
        ["मैं यहाँ हूँ।", "तुम कहाँ हो?"],
        ["مرحبا؟", "نعم."],
    ],
)
def test_spaced_scripts(parts):
    assert split_sentences(" ".join(parts)) == parts


@pytest.mark.parametrize(
    "parts",
    [
        ["房间太小。", "其他的都一般。。。。。。", "真的！！！", "是吗？！"],
        ["“太好了！”", "他说。", "服务一般；", "房间也小……", "不会再来"],
        ["（真的吗？）", "是的。"],
        ["「行くの？」", "彼は言った。"],
        ["重了点.", "可能是硬盘大的原故.", "其他还行"],  # ASCII stops between Chinese characters
        ["不错!", "下次再来?", "好"],
    ],
)
def test_chinese_and_japanese(parts):
    assert split_sentences("".join(parts)) == parts


def test_a_missing_space_after_a_stop():
    assert split_sentences("It was bad.The acting was worse!And how.") == [
        "It was bad.",
        "The acting was worse!",
        "And how.",
    ]


def test_line_breaks_end_sentences():
    assert split_sentences("one\ntwo\r\n\r\nthree four\u2028five") == ["one", "two", "three four", "five"]


@pytest.mark.parametrize("text", ["", "  \n ", "\t"])
def test_texts_without_words_have_no_sentences(text):
    assert split_sentences(text) == []


@pytest.mark.parametrize("text", ["mr. " * 20_000, "." * 200_000, "e.g. 1. " * 5_000, "！”" * 20_000, "a" * 300_000])
def test_time_is_linear_in_length(text):
    start = time.process_time()
    assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())
    assert time.process_time() - start < 10


@given(st.text(alphabet="aB1 .!?…。！；”\"')\n中A,;:-", max_size=60) | st.text(max_size=60))
def test_no_character_is_lost(text):
    pieces = split_sentences(text)
    assert "".join("".join(pieces).split()) == "".join(text.split())
    assert all(sentence == sentence.strip() and sentence for sentence in pieces)


@given(st.text(max_size=60))
def test_words_and_characters_lose_nothing(text):
    for split in (split_words, split_characters):
        pieces = split(text)
        assert "".join(pieces) == "".join(text.split())
        assert not any(piece == "" or any(c.isspace() for c in piece) for piece in pieces)


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("Don't you'll rock'n'roll", ["Don't", "you'll", "rock'n'roll"]),
        ("'quoted' (8/10) $3.50", ["'", "quoted", "'", "(", "8/10", ")", "$", "3.50"]),
        ("so bad...!!!", ["so", "bad", "...", "!!!"]),
        ("हिन्दी é 🙂🙂", ["हिन्दी", "é", "🙂🙂"]),
        ("iPad很好", ["iPad", "很", "好"]),
    ],
)
def test_words(text, pieces):
    assert split_words(text) == pieces
