"""Documents on the command line: train, classify, evaluate, show, info."""

import gzip
import json

import pytest

from tests.cli.calls import assert_refused, call, run
from tests.tasks.fixtures_reviews import reviews, write_tsv

SMALL = [
    "hidden_dim=8",
    "embed_dim=8",
    "vocab_size=100",
    "batch_tokens=400",
    "num_threads=1",
    "dropout=0",
    "warmup_steps=5",
    "lr=0.03",
]
HOSTILE = "</script><script>alert(1)</script> \u202eevil\u202c 🙂 superb"


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("documents")
    train, valid = write_tsv(folder / "x.tsv", reviews(120, 0)), write_tsv(folder / "y.tsv", reviews(40, 1))
    words = [*SMALL, "steps=60", "validate_every=30", "max_sentences=3"]
    answer = run("train", "documents", "--train", train, "--valid", valid, *words, "--out", str(folder / "run"))
    assert answer.returncode == 0, answer.stderr
    return folder / "run", answer


@pytest.fixture(scope="module")
def classifier(learned):
    return learned[0]


def test_train_says_what_was_read_and_what_can_be_done(learned):
    folder, answer = learned
    assert "train data" in answer.stdout
    assert "documents over 3 sentences truncated" in answer.stdout.replace("\n", " ").replace("  ", " ")
    assert f"regard classify {folder}" in answer.stdout


def test_classify_texts(classifier):
    answer = call("classify", classifier, stdin=b"A superb plot.\n\nSo awful. We saw it.\n")
    labels = [line.split("\t")[0] for line in answer.stdout.splitlines()]
    assert labels == ["pos", "", "neg"]
    assert 0.5 < float(answer.stdout.split("\n")[0].split("\t")[1]) <= 1


def test_classify_a_file_and_standard_input(classifier, tmp_path):
    texts = "superb\n\nThe plot awful.\n"
    with gzip.open(tmp_path / "a.txt.gz", "wt", encoding="utf-8") as file:
        file.write(texts)
    from_file = call("classify", classifier, "--file", tmp_path / "a.txt.gz")
    piped = call("classify", classifier, stdin=texts.encode())
    assert from_file.stdout == piped.stdout
    assert [line[:3] for line in piped.stdout.splitlines()] == ["pos", "", "neg"]
    document = call("classify", classifier, "--as-one-document", stdin=texts.encode())
    assert len(document.stdout.splitlines()) == 1


def test_classify_as_json_reports_truncation(classifier):
    answer = call("classify", classifier, "--json", stdin=b"The superb one. " * 5 + b"\n \n")
    result = json.loads(answer.stdout)["predictions"]
    assert result[0]["label"] == "pos"
    assert sum(result[0]["probabilities"].values()) == pytest.approx(1)
    assert sum(result[0]["truncation"].values()) == 2
    assert result[1]["text"] == ""
    assert "input 1: 2 sentences truncated" in answer.stderr


def test_evaluate(classifier, tmp_path):
    path = write_tsv(tmp_path / "z.tsv", reviews(30, 2))
    result = json.loads(call("evaluate", classifier, path, "--json").stdout)["splits"]["files"]
    assert result["num_examples"] == 30
    assert result["metrics"]["accuracy"] > 90
    output = call("evaluate", classifier, "--split", "valid", "--limit", "10").stdout
    assert "valid: 10 examples" in output
    assert "precision" in output
    assert "confusion" in output
    swapped = tmp_path / "s.tsv"
    swapped.write_text("The plot superb.\tpos\n", encoding="utf-8")
    assert "100.00" in call("evaluate", classifier, swapped, "--columns", "1,0").stdout


def test_evaluate_reports_truncated_and_omitted_documents(classifier, tmp_path):
    path = tmp_path / "long.tsv"
    path.write_text("pos\t" + "The superb one. " * 101 + "\n\nneg\tawful\n", encoding="utf-8")
    output = " ".join(call("evaluate", classifier, path).stdout.split())
    assert "3 documents read, 2 used" in output
    assert "1 empty left out (line 2)" in output
    assert "1 document over 3 sentences truncated (line 1; 98 sentences left out)" in output
    (result,) = json.loads(call("evaluate", classifier, path, "--json").stdout)["splits"]["files"]["tables"]["data"]
    assert (result["empty"], result["omitted_sentences"], result["long_documents"]) == (1, 98, 1)
    path.write_text("pos\tfine\nodd\tawful\n", encoding="utf-8")
    assert_refused(call("evaluate", classifier, path), "long.tsv, line 2: invalid label 'odd'; the classes")
    one = call("evaluate", classifier, path, "--limit", "1")
    assert one.stdout.startswith("files: 1 example\n")


def test_documents_can_be_held_out_of_one_file(tmp_path):
    path = write_tsv(tmp_path / "x.tsv", reviews(40, 0))
    answer = call("train", "documents", "--train", path, *SMALL, "steps=1", "--out", tmp_path / "run")
    assert answer.returncode == 0, answer.stderr
    assert "Every twentieth document was held out" in answer.stderr


def test_show_in_the_terminal_and_as_text(classifier, tmp_path):
    text = "We saw the plot. The music awful then."
    answer = call("show", classifier, text)
    assert answer.stdout.startswith("neg ")
    assert "█awful" in answer.stdout
    chinese = call("show", classifier, text, "--lang", "zh").stdout.splitlines()
    assert chinese[-1].startswith("词前：▒ ▓ █ 表示超过最大权重 ")
    call("show", classifier, text, "--out", tmp_path / "x.txt")
    assert "█awful" in (tmp_path / "x.txt").read_text(encoding="utf-8")
    piped = call("show", classifier, stdin=b"We saw\nThe music awful then.")
    assert "█awful" in piped.stdout


def test_show_as_a_page_is_safe(classifier, tmp_path):
    answer = call("show", classifier, HOSTILE, "--out", tmp_path / "x.html", "--lang", "zh")
    assert answer.returncode == 0, answer.stderr
    page = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert "alert" in page
    assert "<script>alert" not in page
    assert 'lang="zh-Hans"' in page


def test_show_as_json(classifier):
    result = json.loads(call("show", classifier, "So superb. Then.", "--json").stdout)
    assert [sentence["words"] for sentence in result["sentences"]] == [["So", "superb", "."], ["Then", "."]]


def test_info(classifier):
    answer = call("info", classifier)
    assert answer.returncode == 0, answer.stderr
    assert "120 documents read" in answer.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["classify", "{run}", "a", "--file", "x"], "--file cannot be combined with INPUT"),
        (["classify", "{run}", "a", "--as-one-document"], "--as-one-document cannot be combined with INPUT"),
        (["classify", "{run}", "a", "--device", "moon"], "no device 'moon'"),
        (["translate", "{run}", "x"], "was trained for text-classification; use: regard classify {run}"),
        (["show", "{run}", " "], "the text is empty"),
        (["show", "{run}", "x", "--out", "x.png"], "a document is shown as .html, .txt or .json, not as a figure"),
        (["show", "{run}", "x", "--heads"], "No such option: --heads"),
        (["evaluate", "{run}", "--split", "moon"], "no split 'moon'"),
        (["evaluate", "{run}", "--length", "3"], "No such option: --length"),
        (["train", "documents"], "--train x.tsv"),
        (["train", "mixed"], "mixed needs files to train on: --train x.tsv"),
    ],
)
def test_invalid_arguments_are_refused_in_a_sentence(classifier, words, sentence):
    assert_refused(call(*(word.format(run=classifier) for word in words)), sentence.format(run=classifier))


def test_a_translator_does_not_classify(backwards):
    assert_refused(call("classify", backwards, "x"), "was trained for translation; use: regard translate")
