"""How much a translation depends on its attention weights: much where they do all the work, else not at all."""

import json
from random import Random

import pytest
import torch

from regard.config import load_translations
from regard.data.pair_batches import PairBatch
from regard.data.strings import Reverse
from regard.data.tokenizer import Tokenizer
from regard.data.vocabulary import BOS_ID, EOS_ID
from regard.tasks import NextTokenLoss, Translator, make_config
from regard.tasks.translation.faithfulness import SENTENCES, Faithfulness, OutputChange, measure_faithfulness
from regard.tasks.translation.task import TranslationProcessor, build_model
from regard.training.trainer import Objective

LETTERS = "abcdefgh"


def untrained(*words):
    torch.manual_seed(0)
    settings = make_config("reverse", ["hidden_dim=16", "embed_dim=16", "max_length=40", *words])
    letters = Tokenizer.train([LETTERS], model_type="char", vocab_size=50)
    return Translator(
        build_model(settings, len(letters), len(letters)), TranslationProcessor(letters, letters), settings
    )


@pytest.fixture(scope="module")
def trained():
    """A model that has learned to spell backwards, which it can do by looking only."""
    result = untrained("model=transformer", "num_heads=2", "num_layers=1", "dropout=0", "norm_first=on", "embed_dim=32")
    objective, strings = (
        Objective(result.model, NextTokenLoss(label_smoothing=0.0)),
        Reverse(alphabet=LETTERS, max_length=4),
    )
    optimizer = torch.optim.Adam(objective.parameters(), lr=1e-2)
    for step in range(100):
        pairs = strings.sample(Random(step), 24)
        batch = PairBatch.from_pairs(
            [(result.source.encode(pair.source), result.target.encode(pair.target)) for pair in pairs]
        )
        optimizer.zero_grad()
        (objective(batch).total / batch.num_tokens).backward()
        optimizer.step()
    result.model.eval()
    return result


def test_a_reversing_model_depends_on_its_attention(trained):
    result = measure_faithfulness(trained, "face", "ecaf")
    assert result.permuted.probability_mass > 0.3
    assert result.uniform.probability_mass > 0.3
    assert (
        result.most_attended.probability_mass > result.random.probability_mass > result.least_attended.probability_mass
    )
    assert result.verdict() != "idle"
    assert result.num_tokens == 5


def test_uniform_attention_is_idle():
    result = measure_faithfulness(untrained("score=constant"), "abcdef", "abc")
    assert result.permuted.probability_mass == pytest.approx(0, abs=1e-6)
    assert result.uniform.probability_mass == pytest.approx(0, abs=1e-6)
    assert result.verdict() == "idle"
    assert "hardly depends" in result.sentence()


MODELS = {
    "additive": [],
    "luong": ["decoder_type=luong", "input_feeding=on", "score=dot"],
    "local": ["attention_scope=local-p", "window_radius=2"],
    "drawn": ["normalize=sample"],
    "transformer": ["model=transformer", "num_heads=2", "num_layers=2", "dropout=0"],
}


@pytest.mark.parametrize("words", MODELS)
def test_measuring_does_not_change_the_model(words):
    translator, text = untrained(*MODELS[words]), "abcd"
    before = translator.align(text, "abc").weights
    result = measure_faithfulness(translator, text, text)
    assert torch.equal(translator.align(text, "abc").weights, before)
    again = measure_faithfulness(translator, text, text, num_draws=8, seed=0)
    assert result == again
    for change in (result.permuted, result.uniform, result.most_attended, result.least_attended, result.random):
        assert 0 <= change.probability_mass <= 1
        assert 0 <= change.argmax_rate <= 1


def test_averages_equal_a_plain_loop(trained):
    """Total variation and removal by hand, one source at a time."""
    result = measure_faithfulness(trained, "face", "ecaf")
    ids = trained.target.encode("ecaf")

    def predict(text):
        source = torch.tensor([[*trained.source.encode(text), EOS_ID]])
        with torch.no_grad():
            logits = trained.model(source, torch.tensor([source.shape[1]]), torch.tensor([[BOS_ID, *ids]]))
            return logits.softmax(-1)[0]

    before = predict("face")
    moved = torch.stack([(predict(text) - before).abs().sum(-1) / 2 for text in ("ace", "fce", "fae", "fac")])
    assert result.random.probability_mass == pytest.approx(moved.mean().item(), abs=1e-5)
    weights = trained.align("face", "ecaf").weights.mean((0, 1))[:, :4]
    most = moved[weights.argmax(-1), torch.arange(5)].mean().item()
    assert result.most_attended.probability_mass == pytest.approx(most, abs=1e-5)


def test_words_of_many_tokens_are_removed_as_words(trained):
    assert measure_faithfulness(trained, "ab").num_tokens == 3
    assert measure_faithfulness(trained, "ab", trained.target.encode("ba")) == measure_faithfulness(trained, "ab", "ba")
    assert (
        0 <= measure_faithfulness(trained, "a", "a").most_attended.probability_mass <= 1
    )  # one word: without it, the end alone is left


def test_every_sentence_has_a_chinese_one():
    keys = {f"Faithfulness.{key}" for key in SENTENCES} | {"TranslationExplanation.no_attention"}
    assert keys <= load_translations("zh").keys()


def test_sentences_in_two_languages_and_json():
    change = OutputChange(0.5, 0.25)
    result = Faithfulness(change, change, OutputChange(0.4, 0.0), OutputChange(0.01, 0.0), OutputChange(0.1, 0.0), 8, 5)
    assert "With these weights permuted at random, 50 % of" in result.sentence("en")
    assert "去掉权重最大的源词，转移 40 %" in result.sentence("zh")
    plain = json.loads(json.dumps(result.to_json()))
    assert plain["permuted"] == {"probability_mass": 0.5, "argmax_rate": 0.25}
    assert plain["sentence"]["zh"] == result.sentence("zh")
    assert plain["verdict"] == "matters"
    with pytest.raises(ValueError, match="no sentence in 'fr'; there is en and zh"):
        result.sentence("fr")


def test_refusals(trained):
    with pytest.raises(ValueError, match="an empty text"):
        measure_faithfulness(trained, "  ")
    with pytest.raises(ValueError, match="no attention to align by"):
        measure_faithfulness(untrained("attention_scope=none"), "abc", "abc")
