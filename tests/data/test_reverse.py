"""Reverse: strings and their reverse."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.strings import Reverse, split_of


@given(
    seed=st.integers(0, 1000),
    split=st.sampled_from(["train", "valid", "test"]),
    letters=st.text(st.characters(codec="utf-8"), min_size=5, max_size=30),
    length=st.tuples(st.integers(4, 8), st.integers(0, 8)),
)
def test_links_join_equal_letters_in_reverse(seed, split, letters, length):
    min_length, max_length = length[0], sum(length)
    reverse = Reverse(seed, split, "".join(sorted(set(letters + "abc"))), min_length, max_length)
    for pair in reverse.eval_set(5):
        assert min_length <= len(pair.source) == len(pair.target) <= max_length
        assert set(pair.source) <= set(reverse.alphabet)
        assert pair.sure_links == pair.possible_links
        assert sorted(i for i, _ in pair.sure_links) == [j for _, j in pair.sure_links] == list(range(len(pair.source)))
        assert all(pair.source[i] == pair.target[j] and i + j == len(pair.source) - 1 for i, j in pair.sure_links)
        assert split_of(pair.source) == split


def test_splits_share_no_string():
    sources = {
        split: {pair.source for pair in Reverse(0, split).eval_set(2000)} for split in ("train", "valid", "test")
    }
    assert sources["train"].isdisjoint(sources["valid"] | sources["test"])
    assert sources["valid"].isdisjoint(sources["test"])


def test_lengths_are_uniform():
    lengths = [len(pair.source) for pair in Reverse(min_length=3, max_length=6).eval_set(4000)]
    assert all(850 < lengths.count(length) < 1150 for length in range(3, 7))


def test_the_same_seed_gives_the_same_pairs():
    assert Reverse(1).eval_set(20) == Reverse(1).eval_set(20) != Reverse(2).eval_set(20)
    assert Reverse(1).sample(random.Random(5), 9) == Reverse(2).sample(random.Random(5), 9)


@pytest.mark.bare
def test_invalid_arguments():
    with pytest.raises(ValueError, match="no split 'dev'; choose from train, valid, test"):
        Reverse(split="dev")
    with pytest.raises(ValueError, match="strings of 5 to 4 of 26 letters cannot be generated"):
        Reverse(min_length=5, max_length=4)
    with pytest.raises(ValueError, match="strings of 0 to"):
        Reverse(min_length=0)
    with pytest.raises(ValueError, match="of 0 letters"):
        Reverse(alphabet="")
    unreachable = "test" if split_of("a") == "valid" else "valid"
    with pytest.raises(ValueError, match=f"no string is in the split '{unreachable}'; allow more letters"):
        Reverse(alphabet="a", max_length=1, split=unreachable).eval_set(1)
