"""Documents from files, cut within limits, in batches that can be taken up again."""

import gzip
import json
import lzma
from itertools import islice

import pytest
import torch

from regard.data import Tokenizer
from regard.data.document_batches import DocumentBatch, DocumentBatches
from regard.data.document_splitter import DocumentReport, DocumentSplitter, Truncation, leading_spaces
from regard.data.documents import Document, DocumentFiles
from regard.errors import DataError


def read(path, **options):
    return [(found.label, found.text, line) for found, line in DocumentFiles([path], **options)]


def test_tsv(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("pos\t9\tFine.\\nReally.\n\nneg\t2\tBad.\n", encoding="utf-8")
    assert read(path, columns=(0, 2)) == [("pos", "Fine.\\nReally.", 1), ("", "", 2), ("neg", "Bad.", 3)]
    assert read(path, columns=(0, 2), escaped=True)[0][1] == "Fine.\nReally."


def test_csv_with_and_without_names(tmp_path):
    path = tmp_path / "a.csv.gz"
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write('label,review\n1,"two\nlines, ""quoted"""\n0,short\n')
    assert read(path, columns=("label", "review")) == [("1", 'two\nlines, "quoted"', 3), ("0", "short", 4)]
    assert read(path, columns=(0, 1))[2] == ("0", "short", 4)


def test_jsonl_with_text_or_sentences(tmp_path):
    path = tmp_path / "a.jsonl.xz"
    records = [{"label": 1, "text": "Fine."}, {"label": "neg", "sentences": ["So bad .", "really ."]}]
    with lzma.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)
    assert read(path) == [("1", "Fine.", 1), ("neg", ("So bad .", "really ."), 2)]


@pytest.mark.parametrize(
    ("name", "text", "columns", "sentence"),
    [
        ("a.tsv", "pos\n", (), r"a.tsv, line 1: 1 column, but column 1 is wanted"),
        ("a.tsv", "pos\tx\n", ("label", "text"), "has no names for its columns"),
        ("a.tsv", "pos\tx\n", (0,), "columns should be two"),
        ("a.csv", "a,b\n1,2\n", (), "line 1: no column 'label' in the first row, only 'a', 'b'"),
        ("a.csv", "label,text\n1\n", (), "line 2: 1 column"),
        ("a.csv", 'label,text\n1,"open\n', (), "not CSV"),
        ("a.jsonl", '{"label": 1}\n', (), "line 1: no key 'text', only 'label'"),
        ("a.jsonl", "[1]\n", (), "line 1: a list, but each line should be one object"),
        ("a.jsonl", "{\n", (), "line 1: not JSON"),
        ("a.jsonl", '{"label": 1, "text": 5}\n', (), "the text is a number, but"),
        ("a.jsonl", '{"label": 1, "text": ["a", null]}\n', (), "the text is null, but"),
        (
            "a.jsonl",
            '{"label": null, "text": "a"}\n',
            (),
            "the label is null, but should be text or a whole number",
        ),
        ("a.jsonl", '{"label": true, "text": "a"}\n', (), "the label is true or false, but"),
        ("a.jsonl", '{"label": 1, "text": "\\ud800"}\n', (), "half a surrogate pair"),
        ("a.tsv", "pos\tgood\n\tfine\n", (), "line 2: the text has no label; give it one"),
        ("a.csv", "label,text\n,fine\n", (), "line 2: the text has no label"),
        ("a.jsonl", '{"label": " ", "text": "fine"}\n', (), "line 1: the text has no label"),
        (
            "a.tsv",
            "pos\tgood film\tbut\n",
            (),
            r"line 1: 3 columns, but there should be 2; take the tabs out",
        ),
        ("a.tsv", "a\tb\tc\na\tb\tc\td\n", (0, 2), "line 2: 4 columns, but there should be 3"),
        ("a.csv", "label,text\npos,good, but\n", (), "line 2: 3 columns.* put the text in quotes"),
        ("a.tsv", "", (), "a.tsv is empty: there is nothing to read in it"),
        ("a.txt", "pos\n", (), "should be a .tsv, .csv or .jsonl"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path, name, text, columns, sentence):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=sentence):
        read(path, columns=columns)


def test_a_missing_file_is_named(tmp_path):
    (tmp_path / "train.tsv").write_text("a\tb\n")
    with pytest.raises(DataError, match=r"There is no file .*trian.tsv; the folder has train.tsv"):
        read(tmp_path / "trian.tsv")
    with pytest.raises(DataError, match="none is named"):
        DocumentFiles([])


def test_long_sentences_are_split_or_cut_and_counted():
    text = "One two three four five. Six."
    cut, left = DocumentSplitter(max_words=4).split(text)
    assert cut == [["One", "two", "three", "four"], ["five", "."], ["Six", "."]]
    assert left == Truncation(long_sentences=1)
    assert not left
    cut, left = DocumentSplitter(max_words=4, overflow="cut", max_sentences=1).split(text)
    assert cut == [["One", "two", "three", "four"]]
    assert left == Truncation(long_sentences=1, omitted_words=2, omitted_sentences=1)
    assert str(left) == "1 sentence and 2 words of long sentences"


def test_sentences_that_come_apart_stay_so():
    cut, _ = DocumentSplitter().split(["a . b .", "", "c"])
    assert cut == [["a", ".", "b", "."], ["c"]]


@pytest.mark.parametrize(
    "wrong", [{"pieces": "bpe"}, {"over": "drop"}, {"max_words": 0}, {"max_sentences": 0}]
)
def test_a_cutting_that_cannot_be(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        DocumentSplitter(**wrong)


def test_gaps_are_where_spaces_were():
    text = "It's well-made.\nYes! 好的。Ok"
    cut, _ = DocumentSplitter().split(text)
    shown = "".join(
        " " * gap + word
        for sentence, spaces in zip(cut, leading_spaces(text, cut), strict=True)
        for word, gap in zip(sentence, spaces, strict=True)
    )
    assert shown == text.replace("\n", " ")


def test_the_report_counts_everything():
    report = DocumentReport.from_splitter(DocumentSplitter(max_words=2, max_sentences=2))
    words = Tokenizer.train(["go on now ."], model_type="word", vocab_size=10)
    documents = [Document("go on now. go.", "x"), Document(" ", "x"), Document("go. on. now. go.", "y")]
    shelf = DocumentBatches(documents, words, DocumentSplitter(max_words=2, max_sentences=2))
    assert (shelf.report.read, shelf.report.used, shelf.report.empty_lines) == (3, 2, [2])
    assert (
        shelf.report.long_sentences,
        shelf.report.omitted_sentences,
        shelf.report.long_document_lines,
    ) == (
        1,
        3,
        [1, 3],
    )
    assert "1 sentence over 2 words split" in str(shelf.report)
    assert report.as_dict().keys() == shelf.report.as_dict().keys()


@pytest.fixture
def shelf():
    texts = ["a.", "b b. c c c.", "c.", "a b c a b c.", "b. b. b.", "c a."] * 4
    words = Tokenizer.train(texts, model_type="word", vocab_size=20)
    return lambda seed=0, size=12: DocumentBatches(
        [Document(text, "pos" if "a" in text else "neg") for text in texts],
        words,
        DocumentSplitter(),
        max_tokens=size,
        seed=seed,
    )


def test_an_epoch_is_every_document_once(shelf):
    made = shelf()
    seen, position = [], None
    for batch, position in made.batches():
        assert len(batch.token_ids) <= 12
        assert int(batch.lengths.sum()) == len(batch.token_ids)
        assert int(batch.sentences_per_document.sum()) == len(batch.lengths)
        parts = batch.token_ids.split(batch.lengths.tolist())
        for count, label in zip(batch.sentences_per_document.tolist(), batch.labels.tolist(), strict=True):
            mine, parts = parts[:count], parts[count:]
            seen.append((label, tuple(map(tuple, (part.tolist() for part in mine)))))
        if position["epoch"] == 1:
            break
    expected = []
    for batch in made.iter_eval_batches():
        parts = batch.token_ids.split(batch.lengths.tolist())
        for count, label in zip(batch.sentences_per_document.tolist(), batch.labels.tolist(), strict=True):
            mine, parts = parts[:count], parts[count:]
            expected.append((label, tuple(map(tuple, (part.tolist() for part in mine)))))
    assert len(expected) == 24
    assert sorted(seen) == sorted(expected)
    assert seen != expected  # by chance


def test_from_a_position_comes_exactly_what_follows(shelf):
    whole = list(islice(shelf().batches(), 30))
    for place in (0, 3, 12, 20):
        position = json.loads(json.dumps(whole[place][1]))
        again = list(islice(shelf().batches(position), 5))
        for (batch, _), (other, _) in zip(whole[place + 1 : place + 6], again, strict=True):
            assert torch.equal(batch.words, other.words)
            assert torch.equal(batch.labels, other.labels)
    assert not torch.equal(next(shelf(1).batches())[0].words, whole[0][0].words)


def test_a_position_of_other_data_is_refused(shelf):
    _, position = next(shelf(size=20).batches())
    with pytest.raises(DataError, match="changed since this position was saved"):
        next(shelf().batches(position))


def test_a_strange_label_and_nothing_at_all():
    words = Tokenizer.train(["a"], model_type="word", vocab_size=10)
    strange = [Document("a", "x"), Document("a", "z")]
    with pytest.raises(
        DataError, match="document 2: the label 'z' is none of the classes, which are 'x', 'y'"
    ):
        DocumentBatches(strange, words, DocumentSplitter(), labels=("x", "y"))
    with pytest.raises(DataError, match="1 empty left out"):
        DocumentBatches([Document("", "z")], words, DocumentSplitter())


def test_a_document_that_was_read_knows_where_it_stood(tmp_path):
    words, path = Tokenizer.train(["a"], model_type="word", vocab_size=10), tmp_path / "a.tsv"
    path.write_text("x\ta\n\nz\ta\n", encoding="utf-8")
    found = [document for document, _ in DocumentFiles([path])]
    assert found[0] == Document("a", "x")
    with pytest.raises(DataError, match=r"a.tsv, line 3: the label 'z' is none of the classes"):
        DocumentBatches(found, words, DocumentSplitter(), labels=("x", "y"))
    assert DocumentBatches(found[1:], words, DocumentSplitter()).report.empty_lines == [2]


def test_words_that_nobody_knows_are_counted():
    words = Tokenizer.train(["a b"], model_type="word", vocab_size=10)
    report = DocumentBatches(
        [Document("a b q q", "x"), Document("a b", "y")], words, DocumentSplitter()
    ).report
    assert (report.words, report.unknown, report.as_dict()["unknown"]) == (6, 2, 2)
    assert str(report) == "2 documents read, 2 used (6 words); 2 words (33.3 %) are not in the vocabulary."


def test_the_parts_of_processes_make_up_the_batch():
    batch = DocumentBatch.from_documents([[[1, 2], [3]], [[4]], [[5, 6, 7]]], [0, 1, 2])
    first, second = batch.shard(0, 2), batch.shard(1, 2)
    assert first.token_ids.tolist() == [1, 2, 3, 5, 6, 7]
    assert first.sentences_per_document.tolist() == [2, 1]
    assert second.lengths.tolist() == [1]
    assert [*first.labels.tolist(), *second.labels.tolist()] == [0, 2, 1]
    assert batch.shard(3, 4).num_tokens == 0
