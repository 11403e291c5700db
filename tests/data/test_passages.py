"""Plain text as passages: reading, splitting, planning, masking and resuming."""

import gzip
import lzma
from itertools import islice

import pytest
import torch

from regard.data import BOS_ID, EOS_ID, PAD_ID, UNK_ID, Tokenizer
from regard.data.passages import PassageBatches, PlainTextFiles, TextBatch, mask_tokens
from regard.errors import DataError

TEXTS = ["one two three four five six seven", "two", "three four\nfive", "six " * 40]


@pytest.fixture
def tokenizer():
    return Tokenizer.train(TEXTS, model_type="word", vocab_size=50)


def rows(batch):
    return [row[:n].tolist() for row, n in zip(batch.token_ids, batch.lengths.tolist(), strict=True)]


@pytest.mark.parametrize("pack", [None, gzip, lzma])
def test_files(tmp_path, pack):
    path = tmp_path / {None: "a.txt", gzip: "a.txt.gz", lzma: "a.txt.xz"}[pack]
    text = b"\n\na b\nc\n \nd\n\n\n"
    path.write_bytes(text if pack is None else pack.compress(text))
    assert list(PlainTextFiles([path])) == ["a b\nc", "d"]
    assert list(PlainTextFiles([path, path], "line")) == ["a b", "c", "d"] * 2


def test_invalid_arguments_are_refused(tmp_path, tokenizer):
    with pytest.raises(DataError, match="no file is named"):
        PlainTextFiles([])
    with pytest.raises(ValueError, match="invalid value 'page' for separator: must be one of blank, line"):
        PlainTextFiles(["a"], "page")
    with pytest.raises(DataError, match="There is no file"):
        list(PlainTextFiles([tmp_path / "a.txt"]))
    (tmp_path / "b.txt").write_text("\n\n")
    with pytest.raises(DataError, match=r"There is nothing to read: .*b.txt is empty"):
        PassageBatches(PlainTextFiles([tmp_path / "b.txt"]), tokenizer)
    with pytest.raises(DataError, match="raise batch_tokens"):
        PassageBatches(TEXTS, tokenizer, length=10, max_tokens=10)


def test_every_token_is_predicted_once(tokenizer):
    text = PassageBatches(TEXTS, tokenizer, length=5, max_tokens=30)
    expected = sorted(token for text in TEXTS for token in [*tokenizer.encode(text), EOS_ID])
    for batches in (list(text.iter_eval_batches()), [b for b, _ in islice(text.batches(), len(text._plan_batches(0)))]):
        assert sorted(token for batch in batches for row in rows(batch) for token in row[1:]) == expected
        assert sum(batch.num_tokens for batch in batches) == len(expected) == text.report.tokens
        assert max(batch.token_ids.numel() for batch in batches) <= 30
    starts = [row[0] for batch in text.iter_eval_batches() for row in rows(batch)]
    assert starts.count(BOS_ID) == len(TEXTS)


def test_passages_overlap_by_one_token(tokenizer):
    text = PassageBatches(["one two three four five six seven"], tokenizer, length=3, max_tokens=30)
    passages = sorted(
        (row for batch in text.iter_eval_batches() for row in rows(batch)), key=lambda row: row[0] != BOS_ID
    )
    ids = [BOS_ID, *tokenizer.encode("one two three four five six seven"), EOS_ID]
    assert sorted(passages) == sorted([ids[0:4], ids[3:7], ids[6:9]])


def test_every_position_resumes_exactly(tokenizer):
    text = PassageBatches(TEXTS * 5, tokenizer, length=6, max_tokens=24, seed=3)
    expected = list(islice(text.batches(), 60))
    for place in (0, 7, 30):
        again = list(islice(text.batches(expected[place][1]), 59 - place))
        for (a, p), (b, q) in zip(expected[place + 1 :], again, strict=True):
            assert torch.equal(a.token_ids, b.token_ids)
            assert p == q
    places = [{**expected[0][1], "batch": 0, "epoch": epoch} for epoch in (0, 1)]
    orders = [[rows(batch) for batch, _ in islice(text.batches(place), 9)] for place in places]
    assert orders[0] != orders[1]
    with pytest.raises(DataError, match="changed since"):
        next(PassageBatches(TEXTS, tokenizer, length=6, max_tokens=24).batches(expected[0][1]))


def test_shards_make_up_the_batch(tokenizer):
    batch = next(iter(PassageBatches(TEXTS, tokenizer, length=50, max_tokens=500).iter_eval_batches()))
    both = [row for rank in range(2) for row in rows(batch.shard(rank, 2))]
    assert sorted(both) == sorted(rows(batch))
    assert len(batch.shard(8, 9)) == 0
    assert batch.shard(8, 9).num_tokens == 0


def test_unknown_words_and_characters_are_counted(tokenizer):
    report = PassageBatches(["one  two\nzzz"], tokenizer, length=50, max_tokens=500).report
    assert (report.unknown, report.tokens, report.characters) == (1, 4, 12)
    assert str(report) == (
        "1 document read (12 characters): 4 tokens in 1 passage; 1 of 4 tokens (25 %) is not in the vocabulary."
    )
    by_letter = Tokenizer.train(["abc \n"], model_type="char", vocab_size=20)
    assert PassageBatches(["ab\nc"], by_letter, length=50, max_tokens=500).report.characters == 5


def test_mask_rates():
    ids = torch.randint(4, 1000, (200, 100))
    ids[:, 0], ids[:, 60] = BOS_ID, EOS_ID
    ids[:, 61:] = PAD_ID
    lengths = torch.full((200,), 61)
    masked, is_target = mask_tokens(TextBatch(ids, lengths), 0.15, 1000, torch.Generator().manual_seed(0))
    assert not is_target[:, 0].any()
    assert not is_target[:, 60:].any()
    assert torch.equal(masked[~is_target], ids[~is_target])
    share = is_target[:, 1:60].float().mean()
    assert 0.14 < share < 0.16
    mask_share = (masked[is_target] == 1000).float().mean()
    same_share = (masked[is_target] == ids[is_target]).float().mean()
    assert 0.78 < mask_share < 0.82
    assert 0.08 < same_share < 0.12
    assert int(masked[is_target & (masked != 1000)].min()) > EOS_ID
    again = mask_tokens(TextBatch(ids, lengths), 0.15, 1000, torch.Generator().manual_seed(0))
    assert torch.equal(again.token_ids, masked)


def test_every_passage_has_a_target():
    ids = torch.tensor([[BOS_ID, 7, EOS_ID], [BOS_ID, UNK_ID, EOS_ID], [BOS_ID, EOS_ID, PAD_ID]])
    is_target = mask_tokens(TextBatch(ids, torch.tensor([3, 3, 2])), 0.0001, 10).target_mask
    assert is_target.tolist() == [[False, True, False], [False, False, False], [False, False, False]]
