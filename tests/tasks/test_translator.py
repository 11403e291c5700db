"""A trained model in use: texts in, texts out, the same whatever stands beside them."""

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
def test_order_and_neighbors_do_not_matter(any_translator, options):
    together = any_translator.translate(TEXTS, **options)
    assert together == [any_translator.translate(text, **options) for text in TEXTS]
    assert any_translator.translate(TEXTS[::-1], **options) == together[::-1]
    assert len(set(together)) > 1


def test_batches_do_not_matter(any_translator, monkeypatch):
    together = any_translator.translate(TEXTS, beam_size=3)
    scores = [one.log_prob for one in any_translator.score(TEXTS, TEXTS)]
    monkeypatch.setattr("regard.tasks.translation.predictor.MAX_BATCH_TOKENS", 9)
    assert any_translator.translate(TEXTS, beam_size=3) == together
    assert [one.log_prob for one in any_translator.score(TEXTS, TEXTS)] == pytest.approx(scores, abs=1e-4)


@pytest.mark.parametrize("method", ["greedy", "beam", "sample"])
def test_a_translation_scores_what_the_search_said(any_translator, method):
    options = any_translator.decoding_config(method=method, beam_size=3)
    found = [best[0] for best in any_translator.search(TEXTS, options)]
    rows = [i for i, one in enumerate(found) if one.finished and UNK_ID not in one.token_ids]
    assert rows
    sources, texts = [TEXTS[i] for i in rows], [any_translator.to_text(found[i]) for i in rows]
    hypotheses = any_translator.score_token_ids(sources, [found[i].token_ids for i in rows])
    for i, forced, same in zip(rows, any_translator.score(sources, texts), hypotheses, strict=True):
        assert list(forced.token_ids) == found[i].token_ids
        assert forced.log_prob == same.log_prob == pytest.approx(found[i].log_prob, abs=1e-4)
        assert forced.token_log_probs == pytest.approx(found[i].token_log_probs, abs=1e-4)
        if method != "sample":
            assert same.score == pytest.approx(found[i].score, abs=1e-4)


def test_empty_texts_are_nothing_and_stay_in_place(any_translator):
    assert any_translator.translate("") == ""
    assert any_translator.translate([]) == []
    some = any_translator.translate(["", "abc", " \n", "h"])
    assert some == ["", any_translator.translate("abc"), "", any_translator.translate("h")]
    assert any_translator.search(["", "abc"])[0] == []


def test_unknown_characters_are_read(any_translator):
    assert isinstance(any_translator.translate("zébra 中文"), str)
    seen = any_translator.align("a中b", "ba")
    assert seen.words_of("source") == ("a", "中", "b")


def test_too_long_says_which(any_translator):
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
    found = any_translator.align(TEXTS, [text[::-1] for text in TEXTS])
    alone = [any_translator.align(text, text[::-1]) for text in TEXTS]
    for text, seen, one in zip(TEXTS, found, alone, strict=True):
        layers, heads = (2, 2) if any_translator.config.model == "transformer" else (1, 1)
        assert seen.weights.shape == (layers, heads, len(text) + 1, len(text) + 1)
        torch.testing.assert_close(seen.weights, one.weights, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(seen.weights.sum(-1), torch.ones(layers, heads, len(text) + 1))
        assert seen.words_of("source") == tuple(text)
        assert seen.words_of("target") == tuple(text[::-1])
        assert not seen.weights.requires_grad


@pytest.mark.parametrize("name", ["score", "posterior_align"])
def test_two_texts_are_not_taken_for_lists_of_letters(any_translator, name):
    for texts in (("abc", "cba"), (["abc"], "cba"), ("abc", ["cba"])):
        with pytest.raises(TypeError, match=rf"{name} takes two lists of texts; .* {name}\(\[source\]"):
            getattr(any_translator, name)(*texts)


def test_hindsight_is_an_alignment_like_any_other(any_translator):
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
    settings = make_config("translation", ["hidden_dim=16", "embed_dim=8"])
    tokenizer = Tokenizer.train(["我昨天在学校学习。", "学校在北京。", "昨天我在学校。"] * 2, "bpe", 22)
    return Translator(
        build_model(settings, len(tokenizer), len(tokenizer)), TranslationProcessor(tokenizer, tokenizer), settings
    )


def test_chinese_words_are_its_tokens():
    text = "我昨天在学校学习。"
    seen = chinese().align(text, text)
    assert len(seen.groups("source")) > 4
    assert "".join(seen.words_of("source")) == "".join(seen.words_of("target")) == text
    assert seen.merge_words().weights.shape[2:] == (len(seen.words_of("target")), len(seen.words_of("source")))
    (loose,) = chinese().align_token_ids([text], [chinese().target.encode(text)])
    assert (loose.source_words, loose.target_words) == (seen.source_words, seen.target_words)
    (spaced,) = chinese().align(["学校 在 北京 。"], ["学校 在 北京 。"], spaced=True)
    assert spaced.words_of("source") == spaced.words_of("target") == ("学校", "在", "北京", "。")


def copy_unknown(translator, text, hypothesis):
    """The text of a hypothesis, its unknown words copied from the source."""
    made = translator.make_predictions([text], [[hypothesis]], TranslateOptions(replace_unknown=True))
    return [one.text for one in made]


def test_of_chinese_a_word_is_copied_and_not_the_sentence():
    this, text = chinese(), "我昨天在鬱校学习。"
    ids = [*this.target.encode("我昨天"), UNK_ID, *this.target.encode("我在学校")[1:]]
    (seen,) = this.align_token_ids([text], [ids])
    found = Hypothesis(ids, -1.0, -1.0, [-0.3] * (len(ids) + 1))
    (copied,) = copy_unknown(this, text, found)
    assert copied in [f"我昨天{word}在学校" for word in seen.words_of("source")]
    assert "鬱" in seen.words_of("source")


def test_words_of_both_sides_are_told(any_translator):
    seen = any_translator.align("abcz", "cßa")
    assert (seen.source_words, seen.target_words) == (tuple("abcz"), tuple("cßa"))
    (found,) = any_translator.search(["abc"])
    (seen,) = any_translator.align_token_ids(["abc"], [found[0].token_ids])
    assert seen.target_words is not None
    assert len(seen.target_words) == len(found[0].token_ids)


def test_n_best_and_traces(any_translator):
    options = any_translator.decoding_config(beam_size=4, num_best=3)
    (best,) = any_translator.search(["abcd"], options)
    assert [one.score for one in best] == sorted((one.score for one in best), reverse=True)
    assert len({tuple(one.token_ids) for one in best}) == len(best) == 3
    again, steps = any_translator.search_with_trace("abcd", options)
    assert [one.token_ids for one in again] == [one.token_ids for one in best]
    assert steps.steps
    assert any_translator.search_with_trace("", options)[0] == []


def test_a_seed_decides_what_is_drawn(any_translator):
    options = any_translator.decoding_config(method="sample", num_best=4)
    one, two = (any_translator.search(["abc"], options, torch.Generator().manual_seed(1)) for _ in range(2))
    assert one == two
    assert len(one[0]) == 4


def test_the_model_is_left_in_eval_mode(any_translator):
    any_translator.translate(TEXTS)
    any_translator.score(TEXTS, TEXTS)
    assert not any_translator.model.training


def test_without_attention_there_is_nothing_to_align():
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


def test_unknown_words_are_copied_from_where_they_looked():
    this = translator()
    ids = [UNK_ID, this.target.encode("a")[0], UNK_ID]
    found = Hypothesis(ids, -1.0, -1.0, [-0.3] * 4)
    (copied,) = copy_unknown(this, "xyzzy", found)
    weights = this.align_token_ids(["xyzzy"], [ids])[0].weights[0, 0, :, :5]  # not the EOS of the source
    assert copied == "".join(["xyzzy"[weights[0].argmax()], "a", "xyzzy"[weights[2].argmax()]])


def test_asking_for_no_unknown_words_changes_nothing(any_translator):
    found = any_translator.translate(TEXTS, replace_unknown=True)
    for with_it, without in zip(found, any_translator.translate(TEXTS), strict=True):
        assert "<unk>" in without or with_it == without


def test_copying_without_attention_leaves_unknown_words():
    this = translator("attention_scope=none")
    found = Hypothesis([UNK_ID], -1.0, -1.0, [-0.5, -0.5])
    assert copy_unknown(this, "xyz", found) == [this.to_text(found)]


@pytest.mark.parametrize("together", [1, 2, 3])
def test_groups_hold_every_row_once_and_no_more_than_fits(together):
    lengths = [5, 1, 9, 9, 2, 30, 1]
    groups = list(group_by_length(range(7), lengths, 20, together))
    assert sorted(row for group in groups for row in group) == list(range(7))
    for group in groups:
        assert len(group) == 1 or max(lengths[row] for row in group) * len(group) <= 40


def test_groups_are_equal_parts_for_all_workers():
    lengths = [number % 37 + 3 for number in range(500)]
    groups = list(group_by_length(range(500), lengths, 3600, num_workers=2))
    assert len(groups) == 4
    sizes = [sum(lengths[row] for row in group) for group in groups]
    assert max(sizes) - min(sizes) < 2 * max(lengths)
    assert len(list(group_by_length(range(500), lengths, 3600, num_workers=1))) == 3
    assert len(list(group_by_length(range(20), lengths, 3600, num_workers=2))) == 1  # too few to be shared out
