"""A trained model in use: texts in, texts out, the same whatever stands beside them; and how good they are."""

import contextlib
import sys
from functools import cache
from random import Random

import pytest
import sacrebleu
import torch

from regard.data.batch import UNK, Batch, Pair
from regard.data.reverse import Reverse
from regard.data.tokenizer import Tokenizer
from regard.decoding import Decoding, Hypothesis
from regard.models import Recurrent
from regard.recipes import NextWord, TooLong, Translator, evaluate, settings_of
from regard.recipes.translation._models import build
from regard.recipes.translation.evaluation import by_length, measures, tokenization
from regard.recipes.translation.translator import grouped

LETTERS = "abcdefgh"
TEXTS = ["abc", "h", "gfedcba", "aa", "badcafe", "abc"]
MODELS = {
    "additive": [],
    "luong": ["order=luong", "input_feeding=on", "score=dot", "cell=lstm"],
    "hard": ["normalize=sample"],
    "transformer": ["model=transformer", "heads=2", "layers=2", "norm=pre", "dropout=0"],
}


@cache
def translator(*words, max_length=40):
    """A model that has learned a little: it has opinions, and mostly comes to an end."""
    torch.manual_seed(0)
    settings = settings_of("reverse", ["dim=16", "embed_dim=16", f"max_length={max_length}", *words])
    letters = Tokenizer.learn([LETTERS], kind="char", size=50)
    objective = NextWord(build(settings, len(letters), len(letters)), smoothing=0.0).train()
    optimizer, strings = (
        torch.optim.Adam(objective.parameters(), lr=2e-2),
        Reverse(letters=LETTERS, longest=8),
    )
    for step in range(40):
        pairs = strings.make(Random(step), 16)
        batch = Batch.of([(letters.encode(pair.source), letters.encode(pair.target)) for pair in pairs])
        optimizer.zero_grad()
        (objective(batch).total / batch.tokens).backward()
        optimizer.step()
    return Translator(objective.model, letters, letters, settings)


@pytest.fixture(params=MODELS)
def any_translator(request):
    return translator(*MODELS[request.param])


@pytest.mark.parametrize("options", [{"beam": 1}, {"beam": 3}])
def test_order_and_neighbors_do_not_matter(any_translator, options):
    together = any_translator.translate(TEXTS, **options)
    assert together == [any_translator.translate(text, **options) for text in TEXTS]
    assert any_translator.translate(TEXTS[::-1], **options) == together[::-1]
    assert len(set(together)) > 1


def test_batches_do_not_matter(any_translator, monkeypatch):
    together = any_translator.translate(TEXTS, beam=3)
    scores = [one.log_prob for one in any_translator.score(TEXTS, TEXTS)]
    monkeypatch.setattr("regard.recipes.translation.translator.AT_ONCE", 9)
    assert any_translator.translate(TEXTS, beam=3) == together
    assert [one.log_prob for one in any_translator.score(TEXTS, TEXTS)] == pytest.approx(scores, abs=1e-4)


@pytest.mark.parametrize("method", ["greedy", "beam", "sample"])
def test_a_translation_scores_what_the_search_said(any_translator, method):
    options = any_translator.decoding(method=method, beam=3)
    found = [best[0] for best in any_translator.search(TEXTS, options)]
    rows = [i for i, one in enumerate(found) if one.finished and UNK not in one.ids]
    assert rows
    texts = [any_translator.text(found[i]) for i in rows]
    for i, forced in zip(rows, any_translator.score([TEXTS[i] for i in rows], texts), strict=True):
        assert forced.ids == found[i].ids
        assert forced.log_prob == pytest.approx(found[i].log_prob, abs=1e-4)
        assert forced.log_probs == pytest.approx(found[i].log_probs, abs=1e-4)
        if method != "sample":
            assert forced.score == pytest.approx(found[i].score, abs=1e-4)


def test_empty_texts_are_nothing_and_stay_in_place(any_translator):
    assert any_translator.translate("") == ""
    assert any_translator.translate([]) == []
    some = any_translator.translate(["", "abc", " \n", "h"])
    assert some == ["", any_translator.translate("abc"), "", any_translator.translate("h")]
    assert any_translator.search(["", "abc"])[0] == []


def test_unknown_characters_are_read(any_translator):
    assert isinstance(any_translator.translate("zébra 中文"), str)
    seen = any_translator.align("a中b", "ba")
    assert seen.names("source") == ("a", "中", "b")


def test_too_long_says_which(any_translator):
    limit = any_translator.max_length
    assert isinstance(any_translator.translate("a" * limit), str)
    with pytest.raises(
        TooLong, match=rf"^text 2 has {limit + 1} tokens, but this model takes {limit}"
    ) as caught:
        any_translator.translate(["a", "b" * (limit + 1)])
    assert caught.value.row == 1
    for use in (any_translator.score, any_translator.align):
        with pytest.raises(TooLong):
            use(["a", "b" * (limit + 1)], ["a", "a"])


def test_alignments(any_translator):
    found = any_translator.align(TEXTS, [text[::-1] for text in TEXTS])
    alone = [any_translator.align(text, text[::-1]) for text in TEXTS]
    for text, seen, one in zip(TEXTS, found, alone, strict=True):
        layers, heads = (2, 2) if any_translator.settings.model == "transformer" else (1, 1)
        assert seen.weights.shape == (layers, heads, len(text) + 1, len(text) + 1)
        torch.testing.assert_close(seen.weights, one.weights, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(seen.weights.sum(-1), torch.ones(layers, heads, len(text) + 1))
        assert seen.names("source") == tuple(text)
        assert seen.names("target") == tuple(text[::-1])
        assert not seen.weights.requires_grad


@pytest.mark.parametrize("name", ["score", "hindsight"])
def test_two_texts_are_not_taken_for_lists_of_letters(any_translator, name):
    for texts in (("abc", "cba"), (["abc"], "cba"), ("abc", ["cba"])):
        with pytest.raises(TypeError, match=rf"{name} takes two lists of texts; .* {name}\(\[source\]"):
            getattr(any_translator, name)(*texts)


def test_hindsight_is_an_alignment_like_any_other(any_translator):
    texts = ["abc", "hello world"], ["cba", "dlrow olleh"]
    if isinstance(any_translator.model, Recurrent):
        before, after = any_translator.align(*texts), any_translator.hindsight(*texts)
        assert [one.weights.shape for one in after] == [one.weights.shape for one in before]
        assert [one.target for one in after] == [one.target for one in before]
        for one in after:
            torch.testing.assert_close(one.weights.sum(-1), torch.ones(1, 1, one.weights.shape[2]))
        certain = any_translator.settings.normalize == "sample"  # a look that was drawn stays as it is
        same = [torch.equal(a.weights, b.weights) for a, b in zip(after, before, strict=True)]
        assert same == [certain, certain]
    else:
        with pytest.raises(ValueError, match="a Transformer has many"):
            any_translator.hindsight(*texts)


def test_counts_must_agree(any_translator):
    for use in (any_translator.score, any_translator.align):
        with pytest.raises(ValueError, match="2 sources, but 1 translation"):
            use(["a", "b"], ["a"])


def test_a_text_and_a_list_are_not_aligned(any_translator):
    for source, target in (("star", ["rats"]), (["star"], "rats")):
        with pytest.raises(TypeError, match="two texts or two lists") as caught:
            any_translator.align(source, target)
        assert "\n" not in str(caught.value)


@cache
def chinese():
    """A model of Chinese into Chinese that has learned nothing: what it looks at is its own affair."""
    settings = settings_of("translation", ["dim=16", "embed_dim=8"])
    tokenizer = Tokenizer.learn(["我昨天在学校学习。", "学校在北京。", "昨天我在学校。"] * 2, "bpe", 22)
    return Translator(build(settings, len(tokenizer), len(tokenizer)), tokenizer, tokenizer, settings)


def test_chinese_words_are_its_tokens():
    text = "我昨天在学校学习。"
    seen = chinese().align(text, text)
    assert len(seen.groups("source")) > 4
    assert "".join(seen.names("source")) == "".join(seen.names("target")) == text
    assert seen.words().weights.shape[2:] == (len(seen.names("target")), len(seen.names("source")))
    (loose,) = chinese().aligned([text], [chinese().target.encode(text)])
    assert (loose.source_words, loose.target_words) == (seen.source_words, seen.target_words)
    (spaced,) = chinese().align(["学校 在 北京 。"], ["学校 在 北京 。"], spaced=True)
    assert spaced.names("source") == spaced.names("target") == ("学校", "在", "北京", "。")


def test_of_chinese_a_word_is_copied_and_not_the_sentence():
    this, text = chinese(), "我昨天在鬱校学习。"
    ids = [*this.target.encode("我昨天"), UNK, *this.target.encode("我在学校")[1:]]
    (seen,) = this.aligned([text], [ids])
    found = Hypothesis(ids, -1.0, -1.0, [-0.3] * (len(ids) + 1))
    (copied,) = this._copied([text], [found], ["?"])
    assert copied in [f"我昨天{word}在学校" for word in seen.names("source")]
    assert "鬱" in seen.names("source")


def test_words_of_both_sides_are_told(any_translator):
    seen = any_translator.align("abcz", "cßa")
    assert (seen.source_words, seen.target_words) == (tuple("abcz"), tuple("cßa"))
    (found,) = any_translator.search(["abc"])
    (seen,) = any_translator.aligned(["abc"], [found[0].ids])
    assert seen.target_words is not None
    assert len(seen.target_words) == len(found[0].ids)


def test_n_best_and_traces(any_translator):
    options = any_translator.decoding(beam=4, best=3)
    (best,) = any_translator.search(["abcd"], options)
    assert [one.score for one in best] == sorted((one.score for one in best), reverse=True)
    assert len({tuple(one.ids) for one in best}) == len(best) == 3
    again, steps = any_translator.trace("abcd", options)
    assert [one.ids for one in again] == [one.ids for one in best]
    assert steps.steps
    assert any_translator.trace("", options)[0] == []


def test_a_seed_decides_what_is_drawn(any_translator):
    options = any_translator.decoding(method="sample", best=4)
    one, two = (any_translator.search(["abc"], options, torch.Generator().manual_seed(1)) for _ in range(2))
    assert one == two
    assert len(one[0]) == 4


def test_the_model_is_left_in_eval_mode(any_translator):
    any_translator.translate(TEXTS)
    any_translator.score(TEXTS, TEXTS)
    assert not any_translator.model.training


def test_without_attention_there_is_nothing_to_align():
    plain = translator("scope=none")
    assert len(plain.translate(TEXTS)) == len(TEXTS)
    with pytest.raises(ValueError, match="no attention"):
        plain.align("abc", "cba")


def test_unknown_words_are_copied_from_where_they_looked():
    this = translator()
    ids = [UNK, this.target.encode("a")[0], UNK]
    found = Hypothesis(ids, -1.0, -1.0, [-0.3] * 4)
    (copied,) = this._copied(["xyzzy"], [found], ["?a?"])
    weights = this.aligned(["xyzzy"], [ids])[0].weights[0, 0, :, :5]  # not the EOS of the source
    assert copied == "".join(["xyzzy"[weights[0].argmax()], "a", "xyzzy"[weights[2].argmax()]])


def test_asking_for_no_unknown_words_changes_nothing(any_translator):
    found = any_translator.translate(TEXTS, unknown=True)
    for with_it, without in zip(found, any_translator.translate(TEXTS), strict=True):
        assert "<unk>" in without or with_it == without


def test_copying_without_attention_leaves_unknown_words():
    this = translator("scope=none")
    this._copied(["xyz"], [Hypothesis([UNK], -1.0, -1.0, [-0.5, -0.5])], ["<unk>"])


@pytest.mark.parametrize("together", [1, 2, 3])
def test_groups_hold_every_row_once_and_no_more_than_fits(together):
    lengths = [5, 1, 9, 9, 2, 30, 1]
    groups = list(grouped(range(7), lengths, 20, together))
    assert sorted(row for group in groups for row in group) == list(range(7))
    for group in groups:
        assert len(group) == 1 or max(lengths[row] for row in group) * len(group) <= 40


def test_groups_are_equal_parts_for_all_workers():
    lengths = [number % 37 + 3 for number in range(500)]
    groups = list(grouped(range(500), lengths, 3600, together=2))
    assert len(groups) == 4
    sizes = [sum(lengths[row] for row in group) for group in groups]
    assert max(sizes) - min(sizes) < 2 * max(lengths)
    assert len(list(grouped(range(500), lengths, 3600, together=1))) == 3
    assert len(list(grouped(range(20), lengths, 3600, together=2))) == 1  # too few to be shared out


# -- evaluation


def test_bleu_is_sacrebleus():
    answers = ["the cat is on the mat", "there is a dog , here", "a b c d e"]
    references = ["the cat sat on the mat", "there is a dog, here", "a b c d f"]
    found = measures(answers, references, settings_of("translation"))
    bleu = sacrebleu.corpus_bleu(answers, [references])
    assert found["bleu"] == pytest.approx(bleu.score)
    assert found["brevity_penalty"] == bleu.bp
    assert found["chrf"] == pytest.approx(sacrebleu.corpus_chrf(answers, [references]).score)
    assert "tok:13a" in found["bleu_signature"]
    assert f"version:{sacrebleu.__version__}" in found["chrf_signature"]
    assert found["exact"] == 0
    assert measures(answers, answers, settings_of("translation"))["exact"] == 100


def test_chinese_is_cut_into_characters():
    settings = settings_of("tatoeba-zh-en", ["pair=en-zh"])
    answers, references = ["我不知道你在说什么。", "他是学生。"], ["我不知道他在说什么。", "他是一个学生。"]
    found = measures(answers, references, settings)
    assert found["bleu"] == pytest.approx(sacrebleu.corpus_bleu(answers, [references], tokenize="zh").score)
    assert found["bleu"] > measures(answers, references, settings_of("tatoeba-zh-en"))["bleu"]
    assert "tok:zh" in found["bleu_signature"]


@pytest.mark.parametrize(
    ("recipe", "words", "want"),
    [
        ("tatoeba-zh-en", [], "13a"),
        ("tatoeba-zh-en", ["pair=en-zh"], "zh"),
        ("multi30k", [], "13a"),
        ("multi30k-tok", [], "none"),
        ("translation", ["pair=zh"], "zh"),
        ("translation", ["pair=en-zh", "bleu=char"], "char"),
        ("translation", ["pair=en-zh_CN"], "zh"),
        ("tatoeba-zh-en", ["pair=en-zh", "target_tokenizer=char"], "zh"),
        ("translation", ["pair=en-ja"], "char"),
        ("translation", ["tokenizer=char"], "char"),
    ],
)
def test_tokenization(recipe, words, want):
    assert tokenization(settings_of(recipe, words)) == want


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
def test_without_a_known_language_the_script_decides(references, want):
    assert tokenization(settings_of("translation"), references) == want
    assert tokenization(settings_of("translation", ["pair=zh-en"]), references) == "13a"
    assert tokenization(settings_of("translation", ["bleu=intl"]), references) == "intl"
    assert tokenization(settings_of("translation", ["pair=en-zh"]), references) == "zh"


def test_all_lengths_are_cut_alike():
    """A group whose few references look otherwise is scored as the others are."""
    sources, references = (
        ["a"] * 3 + ["a " * 15],
        ["我不知道他在说什么", "他是学生", "他不是学生", "OK then do it"],
    )
    found = by_length(sources, references, references, settings_of("translation"))
    assert [row["sentences"] for row in found] == [3, 1]
    every = measures(references, references, settings_of("translation"))
    assert "tok:zh" in every["bleu_signature"]
    answers = [*references[:3], "OK then, do it"]
    alone = by_length(sources, answers, references, settings_of("translation"))[1]
    zh = by_length(sources, answers, references, settings_of("translation", ["bleu=zh"]))[1]
    assert alone == zh


def test_signatures_say_what_was_done_to_the_letters():
    small = measures(["abc d"], ["ＡＢＣ  D"], settings_of("translation", ["lowercase=on", "nfkc=on"]))
    assert "case:lc" in small["bleu_signature"]
    assert "case:lc" in small["chrf_signature"]
    assert small["nfkc"] is True
    usual = measures(["abc"], ["ABC"], settings_of("translation"))
    assert "case:mixed" in usual["bleu_signature"]
    assert "case:mixed" in usual["chrf_signature"]
    assert usual["nfkc"] is False


def test_a_tokenization_that_needs_another_package_says_so(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "MeCab", None)
        with pytest.raises(
            ValueError, match="bleu=ja-mecab needs another package: pip install sacrebleu"
        ) as caught:
            measures(["a"], ["a"], settings_of("translation", ["bleu=ja-mecab"]))
    assert "\n" not in str(caught.value)


def test_bleu_without_tokenization_can_be_asked_for():
    assert tokenization(settings_of("translation", ["bleu=none"])) == "none"


def test_references_are_judged_as_the_model_could_write_them():
    small = settings_of("translation", ["lowercase=on", "nfkc=on"])
    assert measures(["abc d"], ["ＡＢＣ  D"], small)["exact"] == 100
    assert measures(["abc"], ["ABC"], settings_of("translation"))["exact"] == 0


def test_lengths_add_up_to_everything():
    sources = [" ".join("x" * n) for n in (1, 10, 11, 20, 21, 59, 60, 61, 200)]
    answers = ["a b c d"] * len(sources)
    settings = settings_of("translation")
    table = by_length(sources, answers, answers, settings)
    assert sum(row["sentences"] for row in table) == len(sources)
    assert [(row["from"], row["to"], row["sentences"]) for row in table] == [
        (1, 10, 2), (11, 20, 2), (21, 30, 1), (51, 60, 2), (61, None, 2),
    ]  # fmt: skip
    assert all(row["exact"] == 100 for row in table)
    letters = by_length(["abcdefghijk"], ["x"], ["x"], settings_of("reverse"))
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
def test_where_there_are_no_spaces_characters_are_the_length(source, first):
    assert by_length([source], ["x"], ["x"], settings_of("translation"))[0]["from"] == first


def test_evaluate_says_all(any_translator):
    pairs = Reverse(letters=LETTERS, split="test", longest=8).fixed(12)
    found = evaluate(any_translator, pairs)
    answers = any_translator.translate([pair.source for pair in pairs])
    references = [pair.target for pair in pairs]
    assert found["sentences"] == sum(row["sentences"] for row in found["by_length"]) == 12
    assert found["exact"] == pytest.approx(
        100 * sum(a == r for a, r in zip(answers, references, strict=True)) / 12
    )
    assert found["bleu"] == pytest.approx(sacrebleu.corpus_bleu(answers, [references], tokenize="char").score)
    assert found["aer"] == pytest.approx(
        error_rate(any_translator, pairs, found["aer_layer"], found["aer_head"])
    )
    every = [
        error_rate(any_translator, pairs, layer, head)
        for layer in range(any_translator.align("a", "a").weights.shape[0])
        for head in range(any_translator.align("a", "a").weights.shape[1])
    ]
    assert found["aer"] == pytest.approx(min(every))
    recurrent = isinstance(any_translator.model, Recurrent)
    assert ("aer_hindsight" in found) == recurrent
    if recurrent:
        after = error_rate(any_translator, pairs, 0, 0, lambda *texts: any_translator.hindsight(*texts)[0])
        assert found["aer_hindsight"] == pytest.approx(after)


def error_rate(this, pairs, layer, head, align=None):
    """1 - 2 |found & gold| / (|found| + |gold|): each letter is linked to where it looked most."""
    right = total = 0
    for pair in pairs:
        seen = this.align(pair.source, pair.target) if align is None else align([pair.source], [pair.target])
        weights, links = seen.weights[layer, head], set()
        for j in range(len(pair.target)):
            place = max(range(len(pair.source) + 1), key=lambda i: float(weights[j, i]))
            if place < len(pair.source):  # a letter that looked at the end is linked to none
                links.add((place, j))
        right += 2 * len(links & set(pair.links))
        total += len(links) + len(pair.links)
    return 1 - right / total


def test_evaluate_without_gold_has_no_error_rate(any_translator):
    assert "aer" not in evaluate(any_translator, [Pair("abc", "cba")], Decoding(method="greedy"))


def test_the_baseline_without_attention_can_be_evaluated_too():
    found = evaluate(translator("scope=none"), Reverse(letters=LETTERS, split="test").fixed(5))
    assert "aer" not in found


def test_evaluating_nothing_is_a_sentence_or_zero():
    with contextlib.suppress(ValueError):
        assert evaluate(translator(), [])["sentences"] == 0
