"""A trained translator: its texts, scores and alignments do not depend on the batch."""

from functools import cache

import pytest
import torch

from regard.data.tokenizer import Tokenizer
from regard.data.vocabulary import UNK_ID
from regard.decoding import Hypothesis
from regard.errors import InputTooLongError
from regard.models import RNNSeq2Seq
from regard.tasks import Translator, make_config
from regard.tasks.translation.config import TranslateOptions
from regard.tasks.translation.scorer import group_by_length
from regard.tasks.translation.task import TranslationProcessor, build_model
from tests.tasks.letters import TEXTS, translator


@pytest.mark.parametrize("options", [{"beam_size": 1}, {"beam_size": 3}])
def test_translations_do_not_depend_on_order(any_translator, options):
    together = any_translator.translate(TEXTS, **options)
    assert together == [any_translator.translate(text, **options) for text in TEXTS]
    assert any_translator.translate(TEXTS[::-1], **options) == together[::-1]
    assert len(set(together)) > 1


def test_translations_do_not_depend_on_the_batch_size(any_translator, monkeypatch):
    together = any_translator.translate(TEXTS, beam_size=3)
    scores = [one.log_prob for one in any_translator.score(TEXTS, TEXTS)]
    monkeypatch.setattr("regard.tasks.translation.predictor.MAX_BATCH_TOKENS", 9)
    assert any_translator.translate(TEXTS, beam_size=3) == together
    assert [one.log_prob for one in any_translator.score(TEXTS, TEXTS)] == pytest.approx(scores, abs=1e-4)


@pytest.mark.parametrize("method", ["greedy", "beam", "sample"])
def test_forced_scores_equal_those_of_the_search(any_translator, method):
    options = any_translator.decoding_config(method=method, beam_size=3)
    best = [best[0] for best in any_translator.search(TEXTS, options)]
    rows = [i for i, one in enumerate(best) if one.finished and UNK_ID not in one.token_ids]
    assert rows
    sources, texts = [TEXTS[i] for i in rows], [any_translator.to_text(best[i]) for i in rows]
    hypotheses = any_translator.score_token_ids(sources, [best[i].token_ids for i in rows])
    for i, forced, same in zip(rows, any_translator.score(sources, texts), hypotheses, strict=True):
        assert list(forced.token_ids) == best[i].token_ids
        assert forced.log_prob == same.log_prob == pytest.approx(best[i].log_prob, abs=1e-4)
        assert forced.token_log_probs == pytest.approx(best[i].token_log_probs, abs=1e-4)
        if method != "sample":
            assert same.score == pytest.approx(best[i].score, abs=1e-4)


def test_empty_texts_have_empty_translations(any_translator):
    assert any_translator.translate("") == ""
    assert any_translator.translate([]) == []
    translations = any_translator.translate(["", "abc", " \n", "h"])
    assert translations == ["", any_translator.translate("abc"), "", any_translator.translate("h")]
    assert any_translator.search(["", "abc"])[0] == []


def test_texts_with_unknown_characters_are_translated(any_translator):
    assert isinstance(any_translator.translate("zébra 中文"), str)
    alignment = any_translator.align("a中b", "ba")
    assert alignment.words_of("source") == ("a", "中", "b")


def test_too_long_texts_are_refused_with_their_row(any_translator):
    limit = any_translator.max_length
    assert isinstance(any_translator.translate("a" * limit), str)
    with pytest.raises(
        InputTooLongError, match=rf"^the text has {limit + 1} tokens, but this model takes {limit}"
    ) as caught:
        any_translator.translate(["a", "b" * (limit + 1)])
    assert caught.value.row == 1
    for use in (any_translator.score, any_translator.align):
        with pytest.raises(InputTooLongError):
            use(["a", "b" * (limit + 1)], ["a", "a"])


def test_alignments(any_translator):
    best = any_translator.align(TEXTS, [text[::-1] for text in TEXTS])
    alone = [any_translator.align(text, text[::-1]) for text in TEXTS]
    for text, alignment, one in zip(TEXTS, best, alone, strict=True):
        layers, heads = (2, 2) if any_translator.config.model == "transformer" else (1, 1)
        assert alignment.weights.shape == (layers, heads, len(text) + 1, len(text) + 1)
        torch.testing.assert_close(alignment.weights, one.weights, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(alignment.weights.sum(-1), torch.ones(layers, heads, len(text) + 1))
        assert alignment.words_of("source") == tuple(text)
        assert alignment.words_of("target") == tuple(text[::-1])
        assert not alignment.weights.requires_grad


@pytest.mark.parametrize("name", ["score", "posterior_align"])
def test_two_texts_are_not_lists_of_characters(any_translator, name):
    for texts in (("abc", "cba"), (["abc"], "cba"), ("abc", ["cba"])):
        with pytest.raises(TypeError, match=rf"{name} takes two lists of texts; .* {name}\(\[source\]"):
            getattr(any_translator, name)(*texts)


def test_posterior_alignment(any_translator):
    texts = ["abc", "hello world"], ["cba", "dlrow olleh"]
    if isinstance(any_translator.model, RNNSeq2Seq):
        before, after = any_translator.align(*texts), any_translator.posterior_align(*texts)
        assert [one.weights.shape for one in after] == [one.weights.shape for one in before]
        assert [one.target for one in after] == [one.target for one in before]
        for one in after:
            torch.testing.assert_close(one.weights.sum(-1), torch.ones(1, 1, one.weights.shape[2]))
        certain = any_translator.config.normalize == "sample"  # a look that was drawn stays as it is
        same = [torch.equal(a.weights, b.weights) for a, b in zip(after, before, strict=True)]
        assert same == [certain, certain]
    else:
        with pytest.raises(ValueError, match="a Transformer has several"):
            any_translator.posterior_align(*texts)


def test_as_many_targets_as_sources_are_needed(any_translator):
    for use in (any_translator.score, any_translator.align):
        with pytest.raises(ValueError, match="2 sources, but 1 translation"):
            use(["a", "b"], ["a"])


def test_align_refuses_a_text_with_a_list(any_translator):
    for source, target in (("star", ["rats"]), (["star"], "rats")):
        with pytest.raises(TypeError, match="two texts or two lists") as caught:
            any_translator.align(source, target)
        assert "\n" not in str(caught.value)


@cache
def chinese():
    """An untrained model of Chinese into Chinese."""
    settings = make_config("translation", ["hidden_dim=16", "embed_dim=8"])
    tokenizer = Tokenizer.train(["我昨天在学校学习。", "学校在北京。", "昨天我在学校。"] * 2, "bpe", 22)
    return Translator(
        build_model(settings, len(tokenizer), len(tokenizer)), TranslationProcessor(tokenizer, tokenizer), settings
    )


def test_chinese_words_are_its_tokens():
    text = "我昨天在学校学习。"
    alignment = chinese().align(text, text)
    assert len(alignment.word_groups("source")) > 4
    assert "".join(alignment.words_of("source")) == "".join(alignment.words_of("target")) == text
    assert alignment.merge_words().weights.shape[2:] == (
        len(alignment.words_of("target")),
        len(alignment.words_of("source")),
    )
    (loose,) = chinese().align_token_ids([text], [chinese().target.encode(text)])
    assert (loose.source_words, loose.target_words) == (alignment.source_words, alignment.target_words)
    (spaced,) = chinese().align(["学校 在 北京 。"], ["学校 在 北京 。"], spaced=True)
    assert spaced.words_of("source") == spaced.words_of("target") == ("学校", "在", "北京", "。")


def copy_unknown(translator, text, hypothesis):
    """The text of a hypothesis, its unknown words copied from the source."""
    predictions = translator.make_predictions([text], [[hypothesis]], TranslateOptions(replace_unknown=True))
    return [one.text for one in predictions]


def test_an_unknown_word_of_chinese_is_replaced_by_one_word():
    trained, text = chinese(), "我昨天在鬱校学习。"
    ids = [*trained.target.encode("我昨天"), UNK_ID, *trained.target.encode("我在学校")[1:]]
    (alignment,) = trained.align_token_ids([text], [ids])
    best = Hypothesis(ids, -1.0, -1.0, [-0.3] * (len(ids) + 1))
    (copied,) = copy_unknown(trained, text, best)
    assert copied in [f"我昨天{word}在学校" for word in alignment.words_of("source")]
    assert "鬱" in alignment.words_of("source")


def test_alignment_has_the_words_of_both_sides(any_translator):
    alignment = any_translator.align("abcz", "cßa")
    assert (alignment.source_words, alignment.target_words) == (tuple("abcz"), tuple("cßa"))
    (best,) = any_translator.search(["abc"])
    (alignment,) = any_translator.align_token_ids(["abc"], [best[0].token_ids])
    assert alignment.target_words is not None
    assert len(alignment.target_words) == len(best[0].token_ids)


def test_n_best_and_traces(any_translator):
    options = any_translator.decoding_config(beam_size=4, num_best=3)
    (best,) = any_translator.search(["abcd"], options)
    assert [one.score for one in best] == sorted((one.score for one in best), reverse=True)
    assert len({tuple(one.token_ids) for one in best}) == len(best) == 3
    again, steps = any_translator.search_with_trace("abcd", options)
    assert [one.token_ids for one in again] == [one.token_ids for one in best]
    assert steps.steps
    assert any_translator.search_with_trace("", options)[0] == []


def test_samples_depend_on_the_seed(any_translator):
    options = any_translator.decoding_config(method="sample", num_best=4)
    one, two = (any_translator.search(["abc"], options, torch.Generator().manual_seed(1)) for _ in range(2))
    assert one == two
    assert len(one[0]) == 4


def test_the_model_is_left_in_eval_mode(any_translator):
    any_translator.translate(TEXTS)
    any_translator.score(TEXTS, TEXTS)
    assert not any_translator.model.training


def test_align_needs_attention():
    plain = translator("attention_scope=none")
    assert len(plain.translate(TEXTS)) == len(TEXTS)
    with pytest.raises(ValueError, match="no attention"):
        plain.align("abc", "cba")


def test_a_text_is_encoded_once(monkeypatch):
    trained, texts = translator(), []
    fresh = Translator(trained.model, trained.processor, trained.config)  # it has encoded no text yet
    encode = fresh.source.encode
    monkeypatch.setattr(Tokenizer, "encode", lambda self, text: texts.append(text) or encode(text))
    fresh.check(["abcd"])
    fresh.predict(["abcd"])
    assert texts == ["abcd"]


def test_unknown_words_are_replaced_by_the_most_attended_word():
    trained = translator()
    ids = [UNK_ID, trained.target.encode("a")[0], UNK_ID]
    best = Hypothesis(ids, -1.0, -1.0, [-0.3] * 4)
    (copied,) = copy_unknown(trained, "xyzzy", best)
    weights = trained.align_token_ids(["xyzzy"], [ids])[0].weights[0, 0, :, :5]  # not the EOS of the source
    assert copied == "".join(["xyzzy"[weights[0].argmax()], "a", "xyzzy"[weights[2].argmax()]])


def test_replace_unknown_without_unknown_words(any_translator):
    best = any_translator.translate(TEXTS, replace_unknown=True)
    for with_it, without in zip(best, any_translator.translate(TEXTS), strict=True):
        assert "<unk>" in without or with_it == without


def test_replace_unknown_without_attention():
    trained = translator("attention_scope=none")
    best = Hypothesis([UNK_ID], -1.0, -1.0, [-0.5, -0.5])
    assert copy_unknown(trained, "xyz", best) == [trained.to_text(best)]


@pytest.mark.parametrize("together", [1, 2, 3])
def test_groups_have_every_row_once_within_the_limit(together):
    lengths = [5, 1, 9, 9, 2, 30, 1]
    groups = list(group_by_length(range(7), lengths, 20, together))
    assert sorted(row for group in groups for row in group) == list(range(7))
    for group in groups:
        assert len(group) == 1 or max(lengths[row] for row in group) * len(group) <= 40


def test_groups_are_of_equal_size_for_all_workers():
    lengths = [number % 37 + 3 for number in range(500)]
    groups = list(group_by_length(range(500), lengths, 3600, num_workers=2))
    assert len(groups) == 4
    sizes = [sum(lengths[row] for row in group) for group in groups]
    assert max(sizes) - min(sizes) < 2 * max(lengths)
    assert len(list(group_by_length(range(500), lengths, 3600, num_workers=1))) == 3
    assert len(list(group_by_length(range(20), lengths, 3600, num_workers=2))) == 1  # too few to distribute
