"""Documents from files, split within limits, in batches that can be resumed."""

import gzip
import json
import lzma
from itertools import islice

import pytest
import torch

from regard.data import Tokenizer
from regard.data.document_batches import DocumentBatch, DocumentBatches, DocumentReport
from regard.data.documents import Document, DocumentFiles, DocumentSplitter, Truncation, leading_spaces
from regard.errors import DataError


def read(path, **options):
    return [(document.label, document.text, line) for document, line in DocumentFiles([path], **options)]


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
        ("a.tsv", "pos\n", (), r"a.tsv, line 1: 1 column, but column 1 is required"),
        ("a.tsv", "pos\tx\n", ("label", "text"), "has no names for its columns"),
        ("a.tsv", "pos\tx\n", (0,), "columns must be two"),
        ("a.csv", "a,b\n1,2\n", (), "line 1: no column 'label' in the first row, only 'a', 'b'"),
        ("a.csv", "label,text\n1\n", (), "line 2: 1 column"),
        ("a.csv", 'label,text\n1,"open\n', (), "not CSV"),
        ("a.jsonl", '{"label": 1}\n', (), "line 1: no key 'text', only 'label'"),
        ("a.jsonl", "[1]\n", (), "line 1: a list, but each line must be one object"),
        ("a.jsonl", "{\n", (), "line 1: not JSON"),
        ("a.jsonl", '{"label": 1, "text": 5}\n', (), "the text is a number, but"),
        ("a.jsonl", '{"label": 1, "text": ["a", null]}\n', (), "the text is null, but"),
        ("a.jsonl", '{"label": null, "text": "a"}\n', (), "the label is null, but must be text or a whole number"),
        ("a.jsonl", '{"label": true, "text": "a"}\n', (), "the label is true or false, but"),
        ("a.jsonl", '{"label": 1, "text": "\\ud800"}\n', (), "half a surrogate pair"),
        ("a.tsv", "pos\tgood\n\tfine\n", (), "line 2: the text has no label; add one"),
        ("a.csv", "label,text\n,fine\n", (), "line 2: the text has no label"),
        ("a.jsonl", '{"label": " ", "text": "fine"}\n', (), "line 1: the text has no label"),
        ("a.tsv", "pos\tgood film\tbut\n", (), r"line 1: 3 columns, but there must be 2; remove the tabs"),
        ("a.tsv", "a\tb\tc\na\tb\tc\td\n", (0, 2), "line 2: 4 columns, but there must be 3"),
        ("a.csv", "label,text\npos,good, but\n", (), "line 2: 3 columns.* put the text in quotes"),
        ("a.tsv", "", (), "a.tsv is empty: there is nothing to read in it"),
        ("a.txt", "pos\n", (), "must be a .tsv, .csv or .jsonl"),
    ],
)
def test_errors_name_file_and_line(tmp_path, name, text, columns, sentence):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=sentence):
        read(path, columns=columns)


def test_a_missing_file_is_named(tmp_path):
    (tmp_path / "train.tsv").write_text("a\tb\n")
    with pytest.raises(DataError, match=r"There is no file .*trian.tsv; the folder has train.tsv"):
        read(tmp_path / "trian.tsv")
    with pytest.raises(DataError, match="no file is named"):
        DocumentFiles([])


def test_long_sentences_are_split_or_truncated():
    text = "One two three four five. Six."
    document, truncation = DocumentSplitter(max_words=4).split(text)
    assert document == [["One", "two", "three", "four"], ["five", "."], ["Six", "."]]
    assert truncation == Truncation(long_sentences=1)
    assert not truncation
    document, truncation = DocumentSplitter(max_words=4, overflow="truncate", max_sentences=1).split(text)
    assert document == [["One", "two", "three", "four"]]
    assert truncation == Truncation(long_sentences=1, omitted_words=2, omitted_sentences=1)
    assert str(truncation) == "1 sentence and 2 words of long sentences"


def test_texts_that_are_split_already_stay_split():
    document, _ = DocumentSplitter().split(["a . b .", "", "c"])
    assert document == [["a", ".", "b", "."], ["c"]]


@pytest.mark.parametrize("options", [{"unit": "bpe"}, {"overflow": "drop"}, {"max_words": 0}, {"max_sentences": 0}])
def test_invalid_splitter_options(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        DocumentSplitter(**options)


def test_leading_spaces():
    text = "It's well-data.\nYes! 好的。Ok"
    document, _ = DocumentSplitter().split(text)
    merged = "".join(
        " " * space + word
        for sentence, spaces in zip(document, leading_spaces(text, document), strict=True)
        for word, space in zip(sentence, spaces, strict=True)
    )
    assert merged == text.replace("\n", " ")


def test_the_report_counts_everything():
    report = DocumentReport.from_splitter(DocumentSplitter(max_words=2, max_sentences=2))
    words = Tokenizer.train(["go on now ."], model_type="word", vocab_size=10)
    documents = [Document("go on now. go.", "x"), Document(" ", "x"), Document("go. on. now. go.", "y")]
    make_batches = DocumentBatches(documents, words, DocumentSplitter(max_words=2, max_sentences=2))
    assert (make_batches.report.read, make_batches.report.used, make_batches.report.empty_lines) == (3, 2, [2])
    assert (
        make_batches.report.long_sentences,
        make_batches.report.omitted_sentences,
        make_batches.report.long_document_lines,
    ) == (1, 3, [1, 3])
    assert "1 sentence over 2 words split" in str(make_batches.report)
    assert report.as_dict().keys() == make_batches.report.as_dict().keys()


@pytest.fixture
def make_batches():
    texts = ["a.", "b b. c c c.", "c.", "a b c a b c.", "b. b. b.", "c a."] * 4
    words = Tokenizer.train(texts, model_type="word", vocab_size=20)
    return lambda seed=0, size=12: DocumentBatches(
        [Document(text, "pos" if "a" in text else "neg") for text in texts],
        words,
        DocumentSplitter(),
        max_tokens=size,
        seed=seed,
    )


def test_an_epoch_is_every_document_once(make_batches):
    data = make_batches()
    documents, position = [], None
    for batch, position in data.batches():
        assert len(batch.token_ids) <= 12
        assert int(batch.lengths.sum()) == len(batch.token_ids)
        assert int(batch.sentences_per_document.sum()) == len(batch.lengths)
        parts = batch.token_ids.split(batch.lengths.tolist())
        for count, label in zip(batch.sentences_per_document.tolist(), batch.labels.tolist(), strict=True):
            own, parts = parts[:count], parts[count:]
            documents.append((label, tuple(map(tuple, (part.tolist() for part in own)))))
        if position["epoch"] == 1:
            break
    expected = []
    for batch in data.iter_eval_batches():
        parts = batch.token_ids.split(batch.lengths.tolist())
        for count, label in zip(batch.sentences_per_document.tolist(), batch.labels.tolist(), strict=True):
            own, parts = parts[:count], parts[count:]
            expected.append((label, tuple(map(tuple, (part.tolist() for part in own)))))
    assert len(expected) == 24
    assert sorted(documents) == sorted(expected)
    assert documents != expected  # shuffled


def test_every_position_resumes_exactly(make_batches):
    batches = list(islice(make_batches().batches(), 30))
    for place in (0, 3, 12, 20):
        position = json.loads(json.dumps(batches[place][1]))
        again = list(islice(make_batches().batches(position), 5))
        for (batch, _), (other, _) in zip(batches[place + 1 : place + 6], again, strict=True):
            assert torch.equal(batch.token_ids, other.token_ids)
            assert torch.equal(batch.labels, other.labels)
    assert not torch.equal(next(make_batches(1).batches())[0].token_ids, batches[0][0].token_ids)


def test_a_position_of_other_data_is_refused(make_batches):
    _, position = next(make_batches(size=20).batches())
    with pytest.raises(DataError, match="changed since this position was saved"):
        next(make_batches().batches(position))


def test_unknown_labels_and_empty_data_are_refused():
    words = Tokenizer.train(["a"], model_type="word", vocab_size=10)
    unknown = [Document("a", "x"), Document("a", "z")]
    with pytest.raises(DataError, match="document 2: invalid label 'z'; the classes are 'x', 'y'"):
        DocumentBatches(unknown, words, DocumentSplitter(), labels=("x", "y"))
    with pytest.raises(DataError, match="1 empty left out"):
        DocumentBatches([Document("", "z")], words, DocumentSplitter())


def test_documents_from_files_have_their_location(tmp_path):
    words, path = Tokenizer.train(["a"], model_type="word", vocab_size=10), tmp_path / "a.tsv"
    path.write_text("x\ta\n\nz\ta\n", encoding="utf-8")
    documents = [document for document, _ in DocumentFiles([path])]
    assert documents[0] == Document("a", "x")
    with pytest.raises(DataError, match=r"a.tsv, line 3: invalid label 'z'; the classes are"):
        DocumentBatches(documents, words, DocumentSplitter(), labels=("x", "y"))
    assert DocumentBatches(documents[1:], words, DocumentSplitter()).report.empty_lines == [2]


def test_unknown_words_are_counted():
    words = Tokenizer.train(["a b"], model_type="word", vocab_size=10)
    report = DocumentBatches([Document("a b q q", "x"), Document("a b", "y")], words, DocumentSplitter()).report
    assert (report.words, report.unknown, report.as_dict()["unknown"]) == (6, 2, 2)
    assert str(report) == "2 documents read, 2 used (6 words); 2 of 6 words (33 %) are not in the vocabulary."


def test_shards_make_up_the_batch():
    batch = DocumentBatch.from_documents([[[1, 2], [3]], [[4]], [[5, 6, 7]]], [0, 1, 2])
    first, second = batch.shard(0, 2), batch.shard(1, 2)
    assert first.token_ids.tolist() == [1, 2, 3, 5, 6, 7]
    assert first.sentences_per_document.tolist() == [2, 1]
    assert second.lengths.tolist() == [1]
    assert [*first.labels.tolist(), *second.labels.tolist()] == [0, 2, 1]
    assert batch.shard(3, 4).num_tokens == 0
