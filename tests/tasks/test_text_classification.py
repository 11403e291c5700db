"""Text classification: training, resuming, loading, evaluation and explanations."""

import json

import pytest
import torch

from regard.data.documents import Document
from regard.errors import ConfigError, DataError, EmptyInputError, UnsupportedError
from regard.tasks import TextClassifier, get_recipe, load, make_config, resume, train
from regard.tasks.loading import evaluate
from regard.training import RunFolder, load_weights
from tests.tasks.fixtures_reviews import SMALL, TINY, reviews, write_tsv
from tests.tasks.tiny_runs import quiet


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reviews")
    return {
        f"{name}_files": (write_tsv(folder / f"{name}.tsv", reviews(count, seed)),)
        for name, count, seed in (("train", 120, 0), ("valid", 40, 1), ("test", 40, 2))
    }


@pytest.fixture(scope="module")
def run(files, tmp_path_factory):
    """A run that has learned the decisive words."""
    folder = tmp_path_factory.mktemp("runs") / "documents"
    train("documents", folder, [*SMALL, "steps=60", "validate_every=30"], log=quiet, **files)
    return folder


def test_training_learns_the_classes(run):
    classifier = load(run)
    assert isinstance(classifier, TextClassifier)
    assert classifier.labels == ("neg", "pos")
    ((split, report),) = evaluate(run).items()
    assert split == "test"
    assert report.metrics["accuracy"] > 97
    assert report.num_examples == 40


def test_attention_is_on_the_decisive_word_of_the_decisive_sentence(run):
    explanation = load(run).explain("We saw the plot. The music awful then. A road.")
    assert explanation.prediction.label == "neg"
    assert explanation.words[1] == ["The", "music", "awful", "then", "."]
    assert int(explanation.sentence_weights.argmax()) == 1
    assert int(explanation.word_weights[1].argmax()) == 2
    torch.testing.assert_close(explanation.sentence_weights.sum(), torch.tensor(1.0))
    assert all(abs(float(row.sum()) - 1) < 1e-5 for row in explanation.word_weights)


def test_probabilities_do_not_depend_on_the_batch(run):
    classifier = load(run)
    texts = [text for _, text in reviews(30, 5)]
    for text, prediction in zip(texts, classifier.predict(texts), strict=True):
        assert sum(prediction.probabilities.values()) == pytest.approx(1)
        assert next(iter(prediction.probabilities)) == prediction.text
        assert prediction.score == prediction.probabilities[prediction.text]
        alone = classifier.predict([text])[0].probabilities
        assert alone == pytest.approx(prediction.probabilities, abs=1e-5)
        explained = classifier.explain(text).prediction.probabilities
        assert explained == pytest.approx(prediction.probabilities, abs=1e-5)


def test_predictions_report_truncation(run):
    classifier = load(run)
    prediction = classifier.predict(["The plot was lovely. " * 60])[0]
    truncation = prediction.truncation
    assert (truncation.omitted_sentences, truncation.omitted_words) == (20, 0)
    assert prediction.to_json()["truncation"]["omitted_sentences"] == 20
    assert not classifier.predict(["lovely " * 60])[0].truncation  # split, so nothing is left out


def test_empty_and_unusual_texts(run):
    classifier = load(run)
    for method in (classifier.predict, classifier.check):
        with pytest.raises(EmptyInputError, match="the text is empty") as caught:
            method(["lovely", " \n"])
        assert caught.value.row == 1
    with pytest.raises(TypeError, match="expects a list of texts"):
        classifier.predict("lovely")
    assert classifier.predict([]) == []
    for text in ("🙂", "中文很好。", "<script>alert(1)</script>", "a" * 5000, "\u202eabc", "x\ud800"):
        assert classifier.explain(text).prediction.text in classifier.labels


def test_a_text_may_be_a_list_of_sentences(run):
    explanation = load(run).explain(["the plot lovely .", "then ."])
    assert explanation.words == [["the", "plot", "lovely", "."], ["then", "."]]


def test_metrics_equal_a_count_by_hand(run):
    pairs = [("pos", "lovely"), ("pos", "awful"), ("neg", "boring"), ("neg", "awful"), ("neg", "superb"), ("pos", " ")]
    report = load(run).evaluate([Document(text, label) for label, text in pairs])
    assert report.num_examples == 5
    assert report.tables["data"][0]["empty"] == 1
    assert report.metrics["accuracy"] == 60
    assert report.metrics["error"] == pytest.approx(100 * (0.6 * 0.4 / 5) ** 0.5)
    assert report.tables["confusion"] == [{"label": "neg", "neg": 2, "pos": 1}, {"label": "pos", "neg": 1, "pos": 1}]
    labels = {row["label"]: row for row in report.tables["labels"]}
    assert labels["neg"]["precision"] == pytest.approx(200 / 3)
    assert labels["pos"]["recall"] == 50
    with pytest.raises(DataError, match="document 1: invalid label 'meh'; the classes are 'neg', 'pos'"):
        load(run).evaluate([Document("x", "meh")])
    with pytest.raises(DataError, match="nothing to evaluate"):
        load(run).evaluate([])


def test_evaluation_counts_truncated_empty_and_unknown(run):
    long = Document("The plot was lovely. " * 60, "pos")
    report = load(run).evaluate([long, Document(" ", "neg"), Document("awful qqq", "neg")])
    (data,) = report.tables["data"]
    assert (data["read"], data["used"], data["empty_lines"]) == (3, 2, [2])
    assert (data["long_documents"], data["omitted_sentences"], data["long_document_lines"]) == (1, 20, [1])
    assert data["unknown"] == 41  # "was" forty times, and "qqq"


def test_evaluation_agrees_with_predictions(run):
    pairs, classifier = reviews(50, 7), load(run)
    predicted = [prediction.text for prediction in classifier.predict([text for _, text in pairs])]
    report = classifier.evaluate([Document(text, label) for label, text in pairs])
    num_right = sum(label == other for (label, _), other in zip(pairs, predicted, strict=True))
    assert report.metrics["accuracy"] == 100 * num_right / 50


def test_an_explanation_has_every_form(run, tmp_path):
    explanation = load(run).explain("We saw the plot. The music awful then.")
    assert "█awful" in explanation.to_text(color=False, width=60)
    assert "\x1b[" in explanation.to_text(color=True, width=60)
    assert "awful" in explanation.to_page().html
    plain = json.loads(json.dumps(explanation.to_json()))
    assert len(plain["sentences"][1]["weights"]) == 5
    for suffix in (".txt", ".json", ".html"):
        explanation.save(tmp_path / f"x{suffix}")
        assert "awful" in (tmp_path / f"x{suffix}").read_text(encoding="utf-8")
    with pytest.raises(UnsupportedError, match="not as a figure"):
        explanation.save(tmp_path / "x.png")


def test_loading_needs_only_the_run(files, tmp_path):
    paths = [write_tsv(tmp_path / f"{name}.tsv", reviews(20, 3)) for name in ("a", "b")]
    train("documents", tmp_path / "run", TINY, log=quiet, train_files=(paths[0],), valid_files=(paths[1],))
    for path in paths:
        (tmp_path / path).unlink()
    assert load(tmp_path / "run").predict(["lovely"])[0].text in ("neg", "pos")


def test_a_resumed_run_is_equal_bit_for_bit(files, tmp_path):
    train("documents", tmp_path / "whole", [*TINY, "dropout=0.3"], log=quiet, **files)
    train("documents", tmp_path / "parts", [*TINY, "dropout=0.3", "steps=2"], log=quiet, **files)
    resume(tmp_path / "parts", log=quiet, steps=4)
    expected, resumed = (load_weights(RunFolder.open(tmp_path / name).find_weights()) for name in ("whole", "parts"))
    assert all(torch.equal(expected[name], resumed[name]) for name in expected)


@pytest.mark.parametrize(
    "overrides",
    [
        ["pooling=average"],
        ["pooling=max"],
        ["score=dot"],
        ["score=cosine(3)", "normalize=sparsemax"],
        ["score=gaussian"],
    ],
)
def test_every_pooling_and_mechanism_trains(files, tmp_path, overrides):
    train("documents", tmp_path / "run", [*TINY, *overrides], log=quiet, **files)
    classifier = load(tmp_path / "run")
    explanation = classifier.explain("We saw it. Lovely.")
    assert classifier.has_attention == (overrides != ["pooling=max"])
    assert (explanation.word_weights is None) == (overrides == ["pooling=max"])
    assert "Lovely" in explanation.to_text(color=False)
    assert "Lovely" in explanation.to_page().html
    if overrides == ["pooling=average"]:
        torch.testing.assert_close(explanation.sentence_weights, torch.tensor([0.5, 0.5]))


def test_init_from_another_run(run, files, tmp_path):
    result = train("documents", tmp_path / "more", [*TINY, "steps=1"], init_from=run, log=quiet, **files)
    assert result.step == 1
    assert load(tmp_path / "more").tokenizer == load(run).tokenizer


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["vocab_size=99"], "vocab_size is that of .*documents: 100, not 99; leave vocab_size out"),
        (["lowercase=off"], "lowercase is that of .*documents: on, not off"),
    ],
)
def test_inherited_options_cannot_be_changed(run, files, tmp_path, overrides, message):
    with pytest.raises(ConfigError, match=message):
        train("documents", tmp_path / "more", [*TINY, *overrides], init_from=run, log=quiet, **files)
    assert not (tmp_path / "more").exists()


@pytest.mark.parametrize("name", ["documents", "mixed"])
def test_every_twentieth_document_is_held_out_without_validation_files(name, tmp_path):
    pairs = reviews(45, 0)
    path, lines = write_tsv(tmp_path / "x.tsv", pairs), []
    train(name, tmp_path / "run", [*TINY, "steps=1"], log=lines.append, train_files=(path,))
    lines = [line for line in lines if not line.endswith("changes nothing here")]
    assert lines[0].startswith("train: 43 documents read")
    assert lines[1].startswith("valid: 2 documents read")
    assert lines[1].endswith("Every twentieth document was held out for it.")
    data = get_recipe(name).load_data(make_config(name, train_files=(path,)))
    assert [document.text for document in data.valid] == [pairs[19][1], pairs[39][1]]
    assert not {document.line for document in data.train} & {20, 40}
    few = write_tsv(tmp_path / "few.tsv", reviews(19, 0))
    with pytest.raises(DataError, match=r"few.tsv has 19 examples, too few to hold one of 20 out.*--valid"):
        train(name, tmp_path / "few", TINY, log=quiet, train_files=(few,))


def test_a_single_class_is_refused(files, tmp_path):
    path = write_tsv(tmp_path / "x.tsv", [("pos", text) for _, text in reviews(30)])
    with pytest.raises(DataError, match=r"x.tsv: all documents have the label 'pos'; .* two classes or more"):
        train("documents", tmp_path / "run", TINY, log=quiet, train_files=(path,), valid_files=files["valid_files"])
    assert not (tmp_path / "run").exists()


def test_training_reports_what_was_read(files, tmp_path):
    lines = []
    train("documents", tmp_path / "run", [*TINY, "max_sentences=2"], log=lines.append, **files)
    assert lines[0].startswith("train: 120 documents read, 120 used")
    assert "documents over 2 sentences truncated (line" in lines[0]
    assert RunFolder.open(tmp_path / "run").read_record()["data"]["train"]["long_documents"] > 0


@pytest.mark.parametrize(
    ("overrides", "message"),
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
def test_invalid_options(overrides, message, files, tmp_path):
    with pytest.raises(ConfigError, match=message):
        train("documents", tmp_path / "run", overrides, log=quiet, **files)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("documents", "documents needs .*--train x.tsv"),
        ("mixed", "mixed needs files"),
        ("imdb", "data_dir=FOLDER with train.tsv"),
    ],
)
def test_missing_files(name, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        train(name, tmp_path / "run", log=quiet)
