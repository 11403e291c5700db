"""The metrics of translations: BLEU, chrF, by length, and the alignment error rate."""

import contextlib
import sys

import pytest
import sacrebleu

from regard.data.parallel import SentencePair
from regard.data.strings import Reverse
from regard.decoding import DecodingConfig
from regard.models import RNNSeq2Seq
from regard.tasks import evaluate, make_config
from regard.tasks.translation.evaluation import choose_bleu_tokenizer, corpus_metrics, metrics_by_length
from tests.tasks.letters import LETTERS, translator


def test_bleu_equals_sacrebleu():
    answers = ["the cat is on the mat", "there is a dog , here", "a b c d e"]
    references = ["the cat sat on the mat", "there is a dog, here", "a b c d f"]
    metrics = corpus_metrics(answers, references, make_config("translation"))
    bleu = sacrebleu.corpus_bleu(answers, [references])
    assert metrics["bleu"] == pytest.approx(bleu.score)
    assert metrics["brevity_penalty"] == bleu.bp
    assert metrics["chrf"] == pytest.approx(sacrebleu.corpus_chrf(answers, [references]).score)
    assert "tok:13a" in metrics["bleu_signature"]
    assert f"version:{sacrebleu.__version__}" in metrics["chrf_signature"]
    assert metrics["exact_match"] == 0
    assert corpus_metrics(answers, answers, make_config("translation"))["exact_match"] == 100


def test_chinese_is_tokenized_into_characters():
    settings = make_config("tatoeba-zh-en", ["language_pair=en-zh"])
    answers, references = ["我不知道你在说什么。", "他是学生。"], ["我不知道他在说什么。", "他是一个学生。"]
    metrics = corpus_metrics(answers, references, settings)
    assert metrics["bleu"] == pytest.approx(sacrebleu.corpus_bleu(answers, [references], tokenize="zh").score)
    assert metrics["bleu"] > corpus_metrics(answers, references, make_config("tatoeba-zh-en"))["bleu"]
    assert "tok:zh" in metrics["bleu_signature"]


@pytest.mark.parametrize(
    ("recipe", "words", "want"),
    [
        ("tatoeba-zh-en", [], "13a"),
        ("tatoeba-zh-en", ["language_pair=en-zh"], "zh"),
        ("multi30k", [], "13a"),
        ("multi30k-tok", [], "none"),
        ("translation", ["language_pair=zh"], "zh"),
        ("translation", ["language_pair=en-zh", "bleu_tokenizer=char"], "char"),
        ("translation", ["language_pair=en-zh_CN"], "zh"),
        ("tatoeba-zh-en", ["language_pair=en-zh", "target_tokenizer=char"], "zh"),
        ("translation", ["language_pair=en-ja"], "char"),
        ("translation", ["tokenizer=char"], "char"),
    ],
)
def test_bleu_tokenizer_by_language(recipe, words, want):
    assert choose_bleu_tokenizer(make_config(recipe, words)) == want


@pytest.mark.parametrize(
    ("references", "want"),
    [
        (["我不知道。", "他用 iPhone 6s。"], "zh"),
        (["東京タワーは333メートルです。"], "char"),
        (["나는 학교에 갔다."], "char"),
        (["ฉันไปโรงเรียน"], "char"),
        (["I met 王 in 1997."], "13a"),
        (["1997"], "13a"),
        ([], "13a"),
    ],
)
def test_bleu_tokenizer_by_script(references, want):
    assert choose_bleu_tokenizer(make_config("translation"), references) == want
    assert choose_bleu_tokenizer(make_config("translation", ["language_pair=zh-en"]), references) == "13a"
    assert choose_bleu_tokenizer(make_config("translation", ["bleu_tokenizer=intl"]), references) == "intl"
    assert choose_bleu_tokenizer(make_config("translation", ["language_pair=en-zh"]), references) == "zh"


def test_all_length_groups_have_the_same_tokenizer():
    """A group whose few references look otherwise is scored as the others are."""
    sources, references = (["a"] * 3 + ["a " * 15], ["我不知道他在说什么", "他是学生", "他不是学生", "OK then do it"])
    metrics = metrics_by_length(sources, references, references, make_config("translation"))
    assert [row["sentences"] for row in metrics] == [3, 1]
    every = corpus_metrics(references, references, make_config("translation"))
    assert "tok:zh" in every["bleu_signature"]
    answers = [*references[:3], "OK then, do it"]
    alone = metrics_by_length(sources, answers, references, make_config("translation"))[1]
    zh = metrics_by_length(sources, answers, references, make_config("translation", ["bleu_tokenizer=zh"]))[1]
    assert alone == zh


def test_signatures_name_lowercase_and_nfkc():
    small = corpus_metrics(["abc d"], ["ＡＢＣ  D"], make_config("translation", ["lowercase=on", "nfkc=on"]))
    assert "case:lc" in small["bleu_signature"]
    assert "case:lc" in small["chrf_signature"]
    assert small["nfkc"] is True
    default = corpus_metrics(["abc"], ["ABC"], make_config("translation"))
    assert "case:mixed" in default["bleu_signature"]
    assert "case:mixed" in default["chrf_signature"]
    assert default["nfkc"] is False


def test_missing_package_of_a_bleu_tokenizer(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "MeCab", None)
        with pytest.raises(
            ValueError, match="bleu_tokenizer=ja-mecab needs another package: pip install sacrebleu"
        ) as caught:
            corpus_metrics(["a"], ["a"], make_config("translation", ["bleu_tokenizer=ja-mecab"]))
    assert "\n" not in str(caught.value)


def test_bleu_tokenizer_none():
    assert choose_bleu_tokenizer(make_config("translation", ["bleu_tokenizer=none"])) == "none"


def test_references_are_normalized_like_the_training_text():
    small = make_config("translation", ["lowercase=on", "nfkc=on"])
    assert corpus_metrics(["abc d"], ["ＡＢＣ  D"], small)["exact_match"] == 100
    assert corpus_metrics(["abc"], ["ABC"], make_config("translation"))["exact_match"] == 0


def test_length_groups_add_up_to_all_sentences():
    sources = [" ".join("x" * n) for n in (1, 10, 11, 20, 21, 59, 60, 61, 200)]
    answers = ["a b c d"] * len(sources)
    settings = make_config("translation")
    table = metrics_by_length(sources, answers, answers, settings)
    assert sum(row["sentences"] for row in table) == len(sources)
    assert [(row["from"], row["to"], row["sentences"]) for row in table] == [
        (1, 10, 2), (11, 20, 2), (21, 30, 1), (51, 60, 2), (61, None, 2),
    ]  # fmt: skip
    assert all(row["exact_match"] == 100 for row in table)
    letters = metrics_by_length(["abcdefghijk"], ["x"], ["x"], make_config("reverse"))
    assert letters[0]["from"] == 11


@pytest.mark.parametrize(
    ("source", "first"),
    [
        ("我昨天在学校学习了很久。", 11),  # 12 characters
        ("我昨天在学校学。", 1),
        ("东京塔高333米，很不错，真的。", 11),  # 14 characters, 333 as one
        ("科学家 一直 猜想 土卫六 上 存在 。", 1),  # cut into words already
    ],
)
def test_length_of_text_without_spaces_is_in_characters(source, first):
    assert metrics_by_length([source], ["x"], ["x"], make_config("translation"))[0]["from"] == first


def test_evaluate_returns_all_metrics(any_translator):
    pairs = Reverse(alphabet=LETTERS, split="test", max_length=8).eval_set(12)
    metrics = evaluate(any_translator, pairs)
    answers = any_translator.translate([pair.source for pair in pairs])
    references = [pair.target for pair in pairs]
    assert metrics["sentences"] == sum(row["sentences"] for row in metrics["by_length"]) == 12
    assert metrics["exact_match"] == pytest.approx(
        100 * sum(a == r for a, r in zip(answers, references, strict=True)) / 12
    )
    assert metrics["bleu"] == pytest.approx(sacrebleu.corpus_bleu(answers, [references], tokenize="char").score)
    assert metrics["aer"] == pytest.approx(error_rate(any_translator, pairs, metrics["aer_layer"], metrics["aer_head"]))
    every = [
        error_rate(any_translator, pairs, layer, head)
        for layer in range(any_translator.align("a", "a").weights.shape[0])
        for head in range(any_translator.align("a", "a").weights.shape[1])
    ]
    assert metrics["aer"] == pytest.approx(min(every))
    recurrent = isinstance(any_translator.model, RNNSeq2Seq)
    assert ("aer_posterior" in metrics) == recurrent
    if recurrent:
        after = error_rate(any_translator, pairs, 0, 0, lambda *texts: any_translator.posterior_align(*texts)[0])
        assert metrics["aer_posterior"] == pytest.approx(after)


def error_rate(trained, pairs, layer, head, align=None):
    """1 - 2 |found & gold| / (|found| + |gold|): each letter is linked to the letter that it attends to most."""
    right = total = 0
    for pair in pairs:
        alignment = trained.align(pair.source, pair.target) if align is None else align([pair.source], [pair.target])
        weights, links = alignment.weights[layer, head], set()
        for j in range(len(pair.target)):
            position = max(range(len(pair.source) + 1), key=lambda i: float(weights[j, i]))
            if position < len(pair.source):  # a letter that attends to the end is linked to none
                links.add((position, j))
        right += 2 * len(links & set(pair.sure_links))
        total += len(links) + len(pair.sure_links)
    return 1 - right / total


def test_evaluate_without_gold_links_has_no_error_rate(any_translator):
    assert "aer" not in evaluate(any_translator, [SentencePair("abc", "cba")], DecodingConfig(method="greedy"))


def test_evaluate_a_model_without_attention():
    metrics = evaluate(translator("attention_scope=none"), Reverse(alphabet=LETTERS, split="test").eval_set(5))
    assert "aer" not in metrics


def test_evaluate_no_pairs():
    with contextlib.suppress(ValueError):
        assert evaluate(translator(), [])["sentences"] == 0
