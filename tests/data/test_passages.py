"""Plain text as passages: what is read, cut, planned, hidden, and taken up again."""

import gzip
import lzma
from itertools import islice

import pytest
import torch

from regard.data import BOS, EOS, PAD, UNK, Tokenizer
from regard.data.hiding import hide
from regard.data.passages import Passages, PlainText, TextBatch
from regard.errors import DataError

TEXTS = ["one two three four five six seven", "two", "three four\nfive", "six " * 40]


@pytest.fixture
def tokenizer():
    return Tokenizer.learn(TEXTS, kind="word", size=50)


def rows(batch):
    return [row[:n].tolist() for row, n in zip(batch.words, batch.lengths.tolist(), strict=True)]


@pytest.mark.parametrize("pack", [None, gzip, lzma])
def test_files(tmp_path, pack):
    path = tmp_path / {None: "a.txt", gzip: "a.txt.gz", lzma: "a.txt.xz"}[pack]
    text = b"\n\na b\nc\n \nd\n\n\n"
    path.write_bytes(text if pack is None else pack.compress(text))
    assert list(PlainText([path])) == ["a b\nc", "d"]
    assert list(PlainText([path, path], "line")) == ["a b", "c", "d"] * 2


def test_what_cannot_be_read(tmp_path, tokenizer):
    with pytest.raises(DataError, match="none is named"):
        PlainText([])
    with pytest.raises(ValueError, match="is not one of blank, line"):
        PlainText(["a"], "page")
    with pytest.raises(DataError, match="There is no file"):
        list(PlainText([tmp_path / "a.txt"]))
    (tmp_path / "b.txt").write_text("\n\n")
    with pytest.raises(DataError, match=r"There is nothing to read: .*b.txt is empty"):
        Passages(PlainText([tmp_path / "b.txt"]), tokenizer)
    with pytest.raises(DataError, match="raise batch_tokens"):
        Passages(TEXTS, tokenizer, length=10, tokens=10)


def test_every_token_is_predicted_once(tokenizer):
    text = Passages(TEXTS, tokenizer, length=5, tokens=30)
    whole = sorted(token for one in TEXTS for token in [*tokenizer.encode(one), EOS])
    for batches in (list(text.in_order()), [b for b, _ in islice(text.batches(), len(text._plan(0)))]):
        assert sorted(token for batch in batches for row in rows(batch) for token in row[1:]) == whole
        assert sum(batch.tokens for batch in batches) == len(whole) == text.report.tokens
        assert max(batch.words.numel() for batch in batches) <= 30
    starts = [row[0] for batch in text.in_order() for row in rows(batch)]
    assert starts.count(BOS) == len(TEXTS)


def test_passages_go_on_where_the_last_ended(tokenizer):
    text = Passages(["one two three four five six seven"], tokenizer, length=3, tokens=30)
    found = sorted((row for batch in text.in_order() for row in rows(batch)), key=lambda row: row[0] != BOS)
    ids = [BOS, *tokenizer.encode("one two three four five six seven"), EOS]
    assert sorted(found) == sorted([ids[0:4], ids[3:7], ids[6:9]])


def test_a_position_gives_what_follows_it(tokenizer):
    text = Passages(TEXTS * 5, tokenizer, length=6, tokens=24, seed=3)
    whole = list(islice(text.batches(), 60))
    for place in (0, 7, 30):
        again = list(islice(text.batches(whole[place][1]), 59 - place))
        for (a, p), (b, q) in zip(whole[place + 1 :], again, strict=True):
            assert torch.equal(a.words, b.words)
            assert p == q
    places = [{**whole[0][1], "batch": 0, "epoch": epoch} for epoch in (0, 1)]
    orders = [[rows(batch) for batch, _ in islice(text.batches(place), 9)] for place in places]
    assert orders[0] != orders[1]
    with pytest.raises(DataError, match="changed since"):
        next(Passages(TEXTS, tokenizer, length=6, tokens=24).batches(whole[0][1]))


def test_parts_of_a_batch(tokenizer):
    batch = next(iter(Passages(TEXTS, tokenizer, length=50, tokens=500).in_order()))
    both = [row for rank in range(2) for row in rows(batch.part(rank, 2))]
    assert sorted(both) == sorted(rows(batch))
    assert len(batch.part(8, 9)) == 0
    assert batch.part(8, 9).tokens == 0


def test_unknown_words_and_characters_are_counted(tokenizer):
    report = Passages(["one  two\nzzz"], tokenizer, length=50, tokens=500).report
    assert (report.unknown, report.tokens, report.characters) == (1, 4, 12)
    assert str(report) == (
        "1 document read (12 characters): 4 tokens in 1 passage; 1 token (25.0 %) is not in the vocabulary."
    )
    by_letter = Tokenizer.learn(["abc \n"], kind="char", size=20)
    assert Passages(["ab\nc"], by_letter, length=50, tokens=500).report.characters == 5


def test_hiding_hides_as_it_says():
    words = torch.randint(4, 1000, (200, 100))
    words[:, 0], words[:, 60] = BOS, EOS
    words[:, 61:] = PAD
    lengths = torch.full((200,), 61)
    shown, asked = hide(TextBatch(words, lengths), 0.15, 1000, torch.Generator().manual_seed(0))
    assert not asked[:, 0].any()
    assert not asked[:, 60:].any()
    assert torch.equal(shown[~asked], words[~asked])
    share = asked[:, 1:60].float().mean()
    assert 0.14 < share < 0.16
    masked, same = (shown[asked] == 1000).float().mean(), (shown[asked] == words[asked]).float().mean()
    assert 0.78 < masked < 0.82
    assert 0.08 < same < 0.12
    assert int(shown[asked & (shown != 1000)].min()) > EOS
    again = hide(TextBatch(words, lengths), 0.15, 1000, torch.Generator().manual_seed(0))
    assert torch.equal(again.words, shown)


def test_something_is_always_asked_for():
    words = torch.tensor([[BOS, 7, EOS], [BOS, UNK, EOS], [BOS, EOS, PAD]])
    asked = hide(TextBatch(words, torch.tensor([3, 3, 2])), 0.0001, 10).asked
    assert asked.tolist() == [[False, True, False], [False, False, False], [False, False, False]]
