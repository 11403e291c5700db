"""Pinyin: one syllable per character, and test phrases that are not in training."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.strings import Pinyin, clean_phrases

phrases_dict = pytest.importorskip("pypinyin.phrases_dict").phrases_dict
SPLITS = ("train", "valid", "test")


@pytest.fixture(scope="module")
def pairs():
    return {split: Pinyin(split).pairs() for split in SPLITS}


def test_characters_and_syllables_are_linked(pairs):
    for pair in (pair for group in pairs.values() for pair in group):
        syllables = pair.target.split(" ")
        assert [[syllable] for syllable in syllables] == phrases_dict[pair.source]
        assert pair.sure_links == pair.possible_links == tuple((i, i) for i in range(len(pair.source)))
        assert unicodedata.is_normalized("NFC", pair.target)
        assert "".join(syllables).isalpha()


def test_every_clean_phrase_is_used_once(pairs):
    sources = [pair.source for group in pairs.values() for pair in group]
    assert len(sources) == len(set(sources)) == len(clean_phrases(phrases_dict))
    assert len(phrases_dict) - len(sources) < len(phrases_dict) / 1000


def test_held_out_phrases_are_not_in_training(pairs):
    training = "\n".join(pair.source for pair in pairs["train"])
    for split in ("valid", "test"):
        assert 1500 < len(pairs[split]) < len(pairs["train"]) / 10
        assert [pair.source for pair in pairs[split] if pair.source in training] == []


def test_the_order_is_fixed(pairs):
    assert Pinyin("test").pairs() == pairs["test"]


def test_pronunciation_depends_on_neighbors(pairs):
    syllables_of = {pair.source: pair.target for group in pairs.values() for pair in group}
    assert (syllables_of["长城"], syllables_of["成长"]) == ("cháng chéng", "chéng zhǎng")
    assert (syllables_of["银行"], syllables_of["行人"]) == ("yín háng", "xíng rén")


def test_few_test_phrases_have_new_characters_or_sounds(pairs):
    sounds = {
        split: [set(zip(p.source, p.target.split(), strict=True)) for p in group] for split, group in pairs.items()
    }
    known_sounds = set().union(*sounds["train"])
    known_characters = {character for character, _ in known_sounds}
    with_new_sound = sum(not known_sounds.issuperset(phrase) for phrase in sounds["test"])
    with_new_character = sum(not known_characters.issuperset(pair.source) for pair in pairs["test"])
    assert 0 < with_new_character < with_new_sound < 0.05 * len(pairs["test"])


signs = st.text(st.sampled_from("长大一，A〇 々."), min_size=1, max_size=4)
syllables_of = st.lists(st.lists(st.sampled_from(["dà", "zhǎng", "，", "", "a b"]), max_size=2), max_size=4)


@given(st.dictionaries(signs, syllables_of))
def test_only_han_characters_with_one_syllable_each_are_kept(phrases):
    cleaned = clean_phrases(phrases)
    for phrase, choices in phrases.items():
        han = set(phrase) <= set("长大一〇")
        single = len(choices) == len(phrase) and all(group in (["dà"], ["zhǎng"]) for group in choices)
        assert (phrase in cleaned) == (han and single)
        if phrase in cleaned:
            assert list(cleaned[phrase]) == [group[0] for group in choices]


@pytest.mark.bare
def test_unknown_split():
    with pytest.raises(ValueError, match="no split 'dev'; choose from train, valid, test"):
        Pinyin("dev")
