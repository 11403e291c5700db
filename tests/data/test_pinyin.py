"""Pinyin: one syllable a character, and nothing asked that was answered as a whole."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.strings import Pinyin, clean_phrases, count_dropped_phrases

phrases_dict = pytest.importorskip("pypinyin.phrases_dict").phrases_dict
SPLITS = ("train", "valid", "test")


@pytest.fixture(scope="module")
def pairs():
    return {split: Pinyin(split).pairs() for split in SPLITS}


def test_character_i_is_said_as_syllable_i(pairs):
    for pair in (pair for own in pairs.values() for pair in own):
        syllables = pair.target.split(" ")
        assert [[syllable] for syllable in syllables] == phrases_dict[pair.source]
        assert pair.sure_links == pair.possible_links == tuple((i, i) for i in range(len(pair.source)))
        assert unicodedata.is_normalized("NFC", pair.target)
        assert "".join(syllables).isalpha()


def test_nothing_is_lost(pairs):
    sources = [pair.source for own in pairs.values() for pair in own]
    assert len(sources) == len(set(sources)) == len(phrases_dict) - count_dropped_phrases()
    assert count_dropped_phrases() < len(phrases_dict) / 1000


def test_no_phrase_that_is_asked_is_a_part_of_one_that_was_learned(pairs):
    learned = "\n".join(pair.source for pair in pairs["train"])
    for split in ("valid", "test"):
        assert 1500 < len(pairs[split]) < len(pairs["train"]) / 10
        assert [pair.source for pair in pairs[split] if pair.source in learned] == []


def test_the_order_is_always_the_same(pairs):
    assert Pinyin("test").pairs() == pairs["test"]


def test_sounds_that_depend_on_neighbors_are_there(pairs):
    said = {pair.source: pair.target for own in pairs.values() for pair in own}
    assert (said["长城"], said["成长"]) == ("cháng chéng", "chéng zhǎng")
    assert (said["银行"], said["行人"]) == ("yín háng", "xíng rén")


def test_counts(pairs):
    counts = {split: Pinyin(split).count_phrases() for split in SPLITS}
    for split, own in pairs.items():
        assert counts[split]["phrases"] == len(own)
        assert counts[split]["characters"] == len({sign for pair in own for sign in pair.source})
        assert counts[split]["syllables"] == len({word for pair in own for word in pair.target.split()})
    assert counts["train"]["with new character"] == counts["train"]["with new sound"] == 0
    assert (
        0
        < counts["test"]["with new character"]
        < counts["test"]["with new sound"]
        < 0.05 * len(pairs["test"])
    )


signs = st.text(st.sampled_from("长大一，A〇 々."), min_size=1, max_size=4)
said = st.lists(st.lists(st.sampled_from(["dà", "zhǎng", "，", "", "a b"]), max_size=2), max_size=4)


@given(st.dictionaries(signs, said))
def test_only_han_characters_with_one_syllable_each_are_kept(phrases):
    kept = clean_phrases(phrases)
    for phrase, choices in phrases.items():
        han = set(phrase) <= set("长大一〇")
        single = len(choices) == len(phrase) and all(own in (["dà"], ["zhǎng"]) for own in choices)
        assert (phrase in kept) == (han and single)
        if phrase in kept:
            assert list(kept[phrase]) == [own[0] for own in choices]


@pytest.mark.bare
def test_an_unknown_split_is_told():
    with pytest.raises(ValueError, match="no split 'dev'; choose one of train, valid, test"):
        Pinyin("dev")
