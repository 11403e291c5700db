"""`regard evaluate` and `regard score`."""

import json
import lzma
import math

import pytest

from tests.cli.calls import assert_refused, call
from tests.cli.conftest import TINY


def test_the_tests_of_the_recipe(backwards):
    answer = call("evaluate", backwards)
    assert answer.returncode == 0, answer.stderr
    rows = {line.split("  ")[0]: line.split() for line in answer.stdout.splitlines() if line}
    assert answer.stdout.startswith("test: 500 examples\n")
    assert float(rows["exact match, %"][3]) > 90
    assert "nrefs:1|case:mixed" in rows["BLEU"][-1]
    assert rows["chrF"][-1].startswith("nrefs:1|")
    assert 0 <= float(rows["alignment error rate"][3]) < 0.5
    assert "by length" in rows
    assert answer.stderr == "evaluating test\n"


def test_the_same_as_json(backwards):
    answer = json.loads(
        call("evaluate", backwards, "--split", "valid", "--limit", 50, "--beam-size", 2, "--json").stdout
    )
    assert set(answer["splits"]) == {"valid"}
    report = answer["splits"]["valid"]
    assert report["num_examples"] == 50
    assert report["metrics"]["exact_match"] > 90
    assert report["tables"]["by_length"][0]["sentences"] == 50
    assert answer["options"]["beam_size"] == 2


def test_files_of_ones_own(backwards, tmp_path):
    file = tmp_path / "a.tsv"
    file.write_text("cba\tabc\nzzz\txyz\n", encoding="utf-8")
    answer = json.loads(call("evaluate", backwards, file, "--columns", "1,0", "--json").stdout)
    assert answer["splits"]["files"]["metrics"]["exact_match"] == 50
    file.write_text("abcdefg\tgfedcba\n", encoding="utf-8")
    assert_refused(
        call("evaluate", backwards, file), f"regard: {file}, line 1: the text has 7 tokens, but this model takes 4"
    )
    cut = call("evaluate", backwards, file, "--too-long", "truncate")
    assert cut.returncode == 0, cut.stderr
    assert f"{file}, line 1 was cut after 4 of 7 characters" in cut.stderr


def test_gold_alignments_rate_each_head(backwards, tmp_path):
    file = tmp_path / "gold.tsv"
    file.write_text("a b c d\td c b a\t3-0 2-1 1-2 0-3\nx y\ty x\t1-0 0-1\n", encoding="utf-8")
    result = json.loads(call("evaluate", backwards, "--gold-alignments", file, "--json").stdout)
    assert set(result["splits"]) == {"gold_alignments"}
    report = result["splits"]["gold_alignments"]
    assert report["num_examples"] == 2
    (head,) = report["tables"]["heads"]
    assert (head["layer"], head["head"]) == (0, 0)
    assert head["aer"] == report["metrics"]["aer"] <= 0.5
    printed = call("evaluate", backwards, "--gold-alignments", file).stdout.splitlines()
    assert printed[0] == "gold_alignments: 2 examples"
    assert f"{report['metrics']['aer_posterior']:.4f}" in printed[2]
    assert [line.split() for line in printed[-3:-1]] == [
        ["layer", "head", "alignment", "error", "rate"],
        ["0", "0", f"{head['aer']:.4f}"],
    ]
    both = json.loads(
        call("evaluate", backwards, "--split", "valid", "--limit", 2, "--gold-alignments", file, "--json").stdout
    )
    assert set(both["splits"]) == {"valid", "gold_alignments"}
    file.write_text("", encoding="utf-8")
    assert_refused(call("evaluate", backwards, "--gold-alignments", file), "is empty")
    file.write_text("a\tb\n", encoding="utf-8")
    assert_refused(call("evaluate", backwards, "--gold-alignments", file), "line 1: expected source, target and links")
    assert_refused(call("evaluate", backwards, "--gold-alignments", tmp_path / "none"), "There is no file")


def test_gold_is_read_as_all_other_text_is(backwards, tmp_path):
    file = tmp_path / "gold.tsv.xz"
    lines = ["\ufeffa b c d\td c b a\t3-0 2-1 1-2 0-3", "a b c d e f\tf e d\t5-0", "x y\ty x\t1-0 0-1"]
    file.write_bytes(lzma.compress("\r\n".join(lines).encode()))
    assert_refused(
        call("evaluate", backwards, "--gold-alignments", file),
        "gold_alignments, example 2: the text has 6 tokens, but this model takes 4 (max_length); split it, or cut it",
    )
    cut = call("evaluate", backwards, "--gold-alignments", file, "--too-long", "truncate", "--json")
    assert json.loads(cut.stdout)["splits"]["gold_alignments"]["num_examples"] == 2
    assert "example 2 was cut after 4 of 6 characters" in cut.stderr
    assert "1 of 3 examples cannot be cut, and are left out" in cut.stderr
    one = json.loads(call("evaluate", backwards, "--gold-alignments", file, "--limit", 1, "--json").stdout)
    assert one["splits"]["gold_alignments"]["num_examples"] == 1
    file.write_bytes(lzma.compress(lines[1].encode()))
    assert_refused(
        call("evaluate", backwards, "--gold-alignments", file, "--too-long", "truncate"), "no pairs were given"
    )
    file.write_bytes(lzma.compress(b"a b\tb\t0-0\nab c\tc\t0-0"))
    assert_refused(
        call("evaluate", backwards, "--gold-alignments", file),
        "gold_alignments, example 2: the source has 2 words, but 3 for the tokenizer",
    )


def test_segmented_gold_is_judged_by_its_words(texts):
    """A word of several tokens stays one, also where Chinese is otherwise cut at every token."""
    (texts / "zh.tsv").write_text("学校在北京\tx y\n我在学校\ty x\n" * 3, encoding="utf-8")
    files = ["--train", texts / "zh.tsv", "--valid", texts / "zh.tsv"]
    words = [*TINY[1:], "vocab_size=30", "steps=1"]
    assert call("train", "translation", *files, *words, "--out", texts / "zh").returncode == 0
    (texts / "gold.tsv").write_text("北京\tx\t0-0\n学校 在 北京\tx y\t0-0 2-1\n", encoding="utf-8")
    result = call("evaluate", texts / "zh", "--gold-alignments", texts / "gold.tsv", "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["splits"]["gold_alignments"]["num_examples"] == 2
    linked = call("evaluate", texts / "zh", texts / "gold.tsv", "--columns", "0,1,2", "--json")
    assert "2 sentences" in json.loads(linked.stdout)["splits"]["files"]["signatures"]["aer"]


def test_words_for_bleu_can_be_chosen(backwards, tmp_path):
    (tmp_path / "a.tsv").write_text("abc\tcba\n", encoding="utf-8")

    def signature(*words):
        result = json.loads(call("evaluate", backwards, tmp_path / "a.tsv", *words, "--json").stdout)
        return result["splits"]["files"]["signatures"]["bleu"]

    assert "tok:char" in signature()
    assert "tok:zh" in signature("--bleu-tokenizer", "zh")
    assert "tok:13a" in signature("--bleu-tokenizer", "13a")
    assert_refused(
        call("evaluate", backwards, tmp_path / "a.tsv", "--bleu-tokenizer", "chinese"),
        "invalid value 'chinese' for bleu_tokenizer: expected one of auto, none, 13a, intl, zh, char",
    )


def test_columns_must_fit_the_file(backwards, tmp_path):
    (tmp_path / "a.tsv").write_text("abc\tcba\n", encoding="utf-8")
    (tmp_path / "a.jsonl").write_text('{"source": "abc", "target": "cba"}\n', encoding="utf-8")
    assert_refused(call("evaluate", backwards, tmp_path / "a.tsv", "--columns", "en,de"), "columns en,de")
    assert_refused(call("evaluate", backwards, tmp_path / "a.tsv", "--columns=-1,0"), "columns -1,0")
    assert_refused(call("evaluate", backwards, tmp_path / "a.jsonl", "--columns", "0,1"), "columns 0,1")


def test_folded_references_are_told(texts):
    (texts / "c.tsv").write_text("ab\tＢＡ\n" * 4, encoding="utf-8")
    files = ["--train", texts / "c.tsv", "--valid", texts / "c.tsv"]
    words = [*TINY, "steps=1", "nfkc=on", "lowercase=on"]
    assert call("train", "translation", *files, *words, "--out", texts / "folded").returncode == 0
    answer = call("evaluate", texts / "folded", texts / "c.tsv").stdout
    assert "case:lc" in answer
    assert "references are normalized by NFKC" in answer


def test_many_heads_and_none(texts):
    """A transformer has a head to choose; a model without attention says that it has nothing to align."""
    files = ["--train", texts / "a.x.xz", texts / "a.y", "--valid", texts / "b.tsv"]
    words = [*TINY, "tokenizer=word", "steps=1"]
    heads = ["model=transformer", "num_layers=2", "num_heads=2"]
    assert call("train", "translation", *files, *words, *heads, "--out", texts / "transformer").returncode == 0
    (texts / "gold").write_text("ab bca c\tc acb ba\t2-0 1?1 0-2\n", encoding="utf-8")
    heads = json.loads(call("evaluate", texts / "transformer", "--gold-alignments", texts / "gold", "--json").stdout)
    heads = heads["splits"]["gold_alignments"]["tables"]["heads"]
    assert sorted((one["layer"], one["head"]) for one in heads) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    errors = [one["aer"] for one in heads]
    assert errors == sorted(errors)
    answer = call("translate", texts / "transformer", "ab c", "--align", "--layer", 1, "--head", 1, "--json")
    assert json.loads(answer.stdout)["predictions"][0]["alignment"]["shape"][:2] == [1, 1]

    assert call("train", "translation", *files, *words, "attention_scope=none", "--out", texts / "none").returncode == 0
    for arguments in (
        ["translate", texts / "none", "ab", "--align"],
        ["evaluate", texts / "none", "--gold-alignments"],
    ):
        gold = [texts / "gold"] if arguments[0] == "evaluate" else []
        assert_refused(call(*arguments, *gold), "this model has no attention")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--split", "tset"], "no split 'tset'; did you mean test?"),
        (["a.tsv", "--split", "test"], "FILE cannot be combined with --split"),
        (["nowhere.tsv"], "There is no file nowhere.tsv"),
    ],
)
def test_mistakes_of_evaluate(backwards, arguments, words):
    assert_refused(call("evaluate", backwards, *arguments), words)


def test_scores_of_files(backwards, tmp_path):
    for name, text in (("a", "abc\nabc\n"), ("b", "cba\nxyz\n")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    answer = call("score", backwards, tmp_path / "a", tmp_path / "b")
    assert answer.returncode == 0, answer.stderr
    right, wrong = ([float(x) for x in line.split("\t")] for line in answer.stdout.splitlines())
    assert right[0] > wrong[0]
    assert right[1] == pytest.approx(right[0] / 4, abs=1e-3)
    assert "2 answers, 8 tokens: perplexity" in answer.stderr


def test_the_score_of_a_text(backwards):
    result = json.loads(call("score", backwards, "--text", "abc", "cba", "--json").stdout)
    (one,) = result["scores"]
    assert one["tokens"] == ["c", "b", "a", "</s>"]
    assert one["log_prob"] == pytest.approx(sum(one["token_log_probs"]))
    assert one["perplexity"] == pytest.approx(math.exp(-one["log_prob"] / 4))
    assert result["perplexity"] == one["perplexity"] < 1.5
    printed = call("score", backwards, "--text", "abc", "cba").stdout
    assert printed.startswith("log-probability")
    assert "</s>" in printed


def test_mistakes_of_score(backwards, tmp_path):
    assert_refused(call("score", backwards), "expected files, or --text")
    assert_refused(call("score", backwards, "a", "--text", "a", "b"), "expected files, or --text")
    (tmp_path / "a").write_text("a\nb\n", encoding="utf-8")
    (tmp_path / "b").write_text("a\n", encoding="utf-8")
    assert_refused(call("score", backwards, tmp_path / "a", tmp_path / "b"), "has 2 lines")
    (tmp_path / "b").write_text("abcdefg\na\n", encoding="utf-8")
    assert_refused(
        call("score", backwards, tmp_path / "b", tmp_path / "a"), f"{tmp_path / 'b'}, line 1: the text has 7 tokens"
    )
    assert_refused(call("score", backwards, "--text", "abcdefg", "a"), "regard: the text has 7 tokens")
