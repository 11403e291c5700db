"""Recipes of documents: trained, resumed, loaded, judged, looked at."""

import json

import pytest
import torch

from regard.data.documents import Document
from regard.errors import ConfigError, DataError, EmptyInputError
from regard.tasks import TextClassifier, get_recipe, load, load_translator, make_config, resume, train
from regard.tasks.text_classification.predictor import classification_report
from regard.training import RunFolder, load_weights
from tests.recipes.reviews import SMALL, TINY, reviews, tsv
from tests.recipes.tiny import quiet


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reviews")
    return {
        f"{name}_files": (tsv(folder / f"{name}.tsv", reviews(count, seed)),)
        for name, count, seed in (("train", 120, 0), ("valid", 40, 1), ("test", 40, 2))
    }


@pytest.fixture(scope="module")
def read(files, tmp_path_factory):
    """A run that has learned to tell the telling words."""
    folder = tmp_path_factory.mktemp("runs") / "documents"
    train("documents", folder, [*SMALL, "steps=60", "validate_every=30"], log=quiet, **files)
    return folder


def test_it_learns_to_read(read, files):
    classifier = load(read)
    assert isinstance(classifier, TextClassifier)
    assert classifier.labels == ("neg", "pos")
    found = get_recipe("documents").task.judge(get_recipe("documents"), classifier)
    assert found["part"] == "test"
    assert found["accuracy"] > 97
    assert found["documents"] == 40


def test_it_looks_at_the_telling_word_of_the_telling_sentence(read):
    reading = load(read).explain("We saw the plot. The music awful then. A road.")
    assert reading.prediction.label == "neg"
    assert reading.words[1] == ["The", "music", "awful", "then", "."]
    assert int(reading.sentence_weights.argmax()) == 1
    assert int(reading.word_weights[1].argmax()) == 2
    torch.testing.assert_close(reading.sentence_weights.sum(), torch.tensor(1.0))
    assert all(abs(float(row.sum()) - 1) < 1e-5 for row in reading.word_weights)
    shares = reading.word_shares()
    assert shares[1][2] == max(share for row in shares for share in row)
    assert sum(map(sum, shares)) == pytest.approx(1, abs=1e-5)


def test_probabilities_are_those_of_all_classes(read):
    classifier = load(read)
    texts = [text for _, text in reviews(30, 5)]
    many = classifier.classify(texts)
    for text, one in zip(texts, many, strict=True):
        assert sum(one.probabilities.values()) == pytest.approx(1)
        assert next(iter(one.probabilities)) == one.label
        alone = classifier.classify([text])[0]
        assert alone.probabilities == pytest.approx(one.probabilities, abs=1e-5)
        assert classifier.explain(text).prediction.probabilities == pytest.approx(one.probabilities, abs=1e-5)


def test_what_is_left_out_is_said(read):
    classifier = load(read)
    one = classifier.classify(["The plot was lovely. " * 60])[0]
    assert (one.truncation.omitted_sentences, one.truncation.omitted_words) == (20, 0)
    assert one.to_json()["truncation"]["sentences"] == 20
    assert not classifier.classify(["lovely " * 60])[0].truncation  # split, so nothing is lost


def test_empty_and_strange_texts(read):
    classifier = load(read)
    with pytest.raises(EmptyInputError, match="text 2 is empty"):
        classifier.classify(["lovely", " \n"])
    with pytest.raises(TypeError, match="takes many texts"):
        classifier.classify("lovely")
    assert classifier.classify([]) == []
    for text in ("🙂", "中文很好。", "<script>alert(1)</script>", "a" * 5000, "\u202eabc", "x\ud800"):
        assert classifier.explain(text).prediction.label in classifier.labels


def test_sentences_can_come_apart(read):
    reading = load(read).explain(["the plot lovely .", "then ."])
    assert reading.words == [["the", "plot", "lovely", "."], ["then", "."]]


def test_measures_against_a_hand_count(read):
    texts = [
        ("pos", "lovely"),
        ("pos", "awful"),
        ("neg", "boring"),
        ("neg", "awful"),
        ("neg", "superb"),
        ("pos", " "),
    ]
    found = classification_report(load(read), [Document(text, label) for label, text in texts])
    assert (found["documents"], found["empty"], found["right"]) == (5, 1, 3)
    assert found["accuracy"] == 60
    assert found["error"] == pytest.approx(100 * (0.6 * 0.4 / 5) ** 0.5)
    assert found["confusion"] == {"neg": {"neg": 2, "pos": 1}, "pos": {"neg": 1, "pos": 1}}
    assert found["classes"]["neg"]["precision"] == pytest.approx(200 / 3)
    assert found["classes"]["pos"]["recall"] == 50
    with pytest.raises(DataError, match="document 1: invalid label 'meh'; the classes are 'neg', 'pos'"):
        classification_report(load(read), [Document("x", "meh")])
    with pytest.raises(DataError, match="nothing to evaluate"):
        classification_report(load(read), [])


def test_judging_counts_what_was_cut_empty_or_unknown(read):
    long = Document("The plot was lovely. " * 60, "pos")
    found = classification_report(load(read), [long, Document(" ", "neg"), Document("awful qqq", "neg")])[
        "data"
    ]
    assert (found["read"], found["used"], found["empty_lines"]) == (3, 2, [2])
    assert (found["long_documents"], found["omitted_sentences"], found["long_document_lines"]) == (1, 20, [1])
    assert found["unknown"] == 41  # "was" forty times, and "qqq"


def test_judging_says_what_classify_says(read):
    texts, classifier = reviews(50, 7), load(read)
    said = [one.label for one in classifier.classify([text for _, text in texts])]
    found = classification_report(classifier, [Document(text, label) for label, text in texts])
    assert found["right"] == sum(label == one for (label, _), one in zip(texts, said, strict=True))


def test_a_reading_can_be_shown(read):
    reading = load(read).explain("We saw the plot. The music awful then.")
    drawn = reading.to_text(color=False, width=60)
    assert "█awful" in drawn
    assert "\x1b[" in reading.to_text(color=True, width=60)
    assert "awful" in reading.to_page().html
    plain = json.loads(json.dumps(reading.to_json()))
    assert len(plain["sentences"][1]["weights"]) == 5


def test_an_interrupted_run_goes_on_bit_for_bit(files, tmp_path):
    train("documents", tmp_path / "whole", [*TINY, "dropout=0.3"], log=quiet, **files)
    train("documents", tmp_path / "parts", [*TINY, "dropout=0.3", "steps=2"], log=quiet, **files)
    resume(tmp_path / "parts", log=quiet, steps=4)
    whole, again = (
        load_weights(RunFolder.open(tmp_path / name).find_weights()) for name in ("whole", "parts")
    )
    assert all(torch.equal(whole[name], again[name]) for name in whole)


@pytest.mark.parametrize(
    "words",
    [
        ["pooling=average"],
        ["pooling=max"],
        ["score=dot"],
        ["score=cosine(3)", "normalize=sparsemax"],
        ["score=gaussian"],
    ],
)
def test_twins_and_other_mechanisms_train(files, tmp_path, words):
    train("documents", tmp_path / "run", [*TINY, *words], log=quiet, **files)
    classifier = load(tmp_path / "run")
    reading = classifier.explain("We saw it. Lovely.")
    assert classifier.has_attention == (words != ["pooling=max"])
    assert (reading.word_weights is None) == (words == ["pooling=max"])
    assert "Lovely" in reading.to_text(color=False)
    assert "Lovely" in reading.to_page().html
    if words == ["pooling=average"]:
        torch.testing.assert_close(reading.sentence_weights, torch.tensor([0.5, 0.5]))


def test_begin_with_another_run(read, files, tmp_path):
    outcome = train("documents", tmp_path / "more", [*TINY, "steps=1"], init_from=read, log=quiet, **files)
    assert outcome.step == 1
    assert load(tmp_path / "more").tokenizer == load(read).tokenizer


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["vocab_size=99"], "vocab_size is that of .*documents: 100, not 99; leave vocab_size out"),
        (["lowercase=off"], "lowercase is that of .*documents: on, not off"),
    ],
)
def test_what_another_run_decides_cannot_be_chosen(read, files, tmp_path, words, sentence):
    with pytest.raises(ConfigError, match=sentence):
        train("documents", tmp_path / "more", [*TINY, *words], init_from=read, log=quiet, **files)
    assert not (tmp_path / "more").exists()


@pytest.mark.parametrize("name", ["documents", "mixed"])
def test_every_twentieth_document_is_held_out_where_no_other_is_named(name, tmp_path):
    pairs = reviews(45, 0)
    path, said = tsv(tmp_path / "x.tsv", pairs), []
    train(name, tmp_path / "run", [*TINY, "steps=1"], log=said.append, train_files=(path,))
    said = [line for line in said if not line.endswith("changes nothing here")]
    assert said[0].startswith("train: 43 documents read")
    assert said[1].startswith("valid: 2 documents read")
    assert said[1].endswith("Every twentieth document was held out for it.")
    shelves = get_recipe(name).load_data(make_config(name, train_files=(path,)))
    assert [document.text for document in shelves.valid()] == [pairs[19][1], pairs[39][1]]
    assert not {document.line for document in shelves.train()} & {20, 40}
    few = tsv(tmp_path / "few.tsv", reviews(19, 0))
    with pytest.raises(DataError, match=r"few.tsv has 19 documents, too few to hold one of 20 out.*--valid"):
        train(name, tmp_path / "few", TINY, log=quiet, train_files=(few,))


def test_one_class_alone_is_refused(files, tmp_path):
    path = tsv(tmp_path / "x.tsv", [("pos", text) for _, text in reviews(30)])
    with pytest.raises(DataError, match=r"x.tsv: all documents have the label 'pos'.* two classes or more"):
        train(
            "documents",
            tmp_path / "run",
            TINY,
            log=quiet,
            train_files=(path,),
            valid_files=files["valid_files"],
        )
    assert not (tmp_path / "run").exists()


def test_what_was_read_is_said(files, tmp_path):
    lines = []
    train("documents", tmp_path / "run", [*TINY, "max_sentences=2"], log=lines.append, **files)
    assert lines[0].startswith("train: 120 documents read, 120 used")
    assert "documents over 2 sentences cut (line" in lines[0]
    assert RunFolder.open(tmp_path / "run").read_record()["data"]["train"]["long_documents"] > 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["hidden_dim=7"], "invalid value '7' for hidden_dim: must be even"),
        (["pooling=max", "score=dot"], "invalid value 'dot' for score: needs pooling=attention"),
        (["score=nothing"], "invalid value 'nothing' for score"),
        (["normalize=kernel_sum"], "do not go together"),
        (["monitor=bleu"], "for monitor: expected one of loss, accuracy"),
        (["max_sentence_words=0"], "invalid value '0' for max_sentence_words: must be at least 1"),
        (["test_fold=10"], "for test_fold: must be at most 9"),
    ],
)
def test_settings_that_cannot_be(words, sentence, files, tmp_path):
    with pytest.raises(ConfigError, match=sentence):
        train("documents", tmp_path / "run", words, log=quiet, **files)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("documents", "documents needs .*--train x.tsv"),
        ("mixed", "mixed needs files"),
        ("imdb", "data_dir=FOLDER with train.tsv"),
    ],
)
def test_missing_files_are_asked_for(name, sentence, tmp_path):
    with pytest.raises(ConfigError, match=sentence):
        train(name, tmp_path / "run", log=quiet)


def test_it_does_not_translate(read):
    with pytest.raises(ConfigError, match="was trained for documents and cannot translate"):
        load_translator(read)
