"""How much a translation depends on where it looked: much where weights do all the work, else not at all."""

import json
from random import Random

import pytest
import torch

from regard.data.pair_batches import PairBatch
from regard.data.strings import Reverse
from regard.data.tokenizer import Tokenizer
from regard.data.vocabulary import BOS_ID, EOS_ID
from regard.tasks import NextTokenLoss, Translator, make_config
from regard.tasks.translation.faithfulness import Faithfulness, OutputChange, measure_faithfulness
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
    found = untrained("model=transformer", "num_heads=2", "num_layers=1", "dropout=0", "norm_first=on", "embed_dim=32")
    objective, strings = (
        Objective(found.model, NextTokenLoss(label_smoothing=0.0)),
        Reverse(alphabet=LETTERS, max_length=4),
    )
    optimizer = torch.optim.Adam(objective.parameters(), lr=1e-2)
    for step in range(100):
        pairs = strings.sample(Random(step), 24)
        batch = PairBatch.from_pairs(
            [(found.source.encode(pair.source), found.target.encode(pair.target)) for pair in pairs]
        )
        optimizer.zero_grad()
        (objective(batch).total / batch.num_tokens).backward()
        optimizer.step()
    found.model.eval()
    return found


def test_who_spells_backwards_depends_on_where_it_looks(trained):
    found = measure_faithfulness(trained, "face", "ecaf")
    assert found.permuted.probability_mass > 0.3
    assert found.uniform.probability_mass > 0.3
    assert found.most_attended.probability_mass > found.random.probability_mass > found.least_attended.probability_mass
    assert found.verdict() != "idle"
    assert found.num_tokens == 5


def test_who_looks_evenly_does_not():
    found = measure_faithfulness(untrained("score=constant"), "abcdef", "abc")
    assert found.permuted.probability_mass == pytest.approx(0, abs=1e-6)
    assert found.uniform.probability_mass == pytest.approx(0, abs=1e-6)
    assert found.verdict() == "idle"
    assert "hardly depends" in found.sentence()


MODELS = {
    "additive": [],
    "luong": ["order=luong", "input_feeding=on", "score=dot"],
    "local": ["attention_scope=local-p", "window_radius=2"],
    "drawn": ["normalize=sample"],
    "transformer": ["model=transformer", "num_heads=2", "num_layers=2", "dropout=0"],
}


@pytest.mark.parametrize("words", MODELS)
def test_every_model_is_measured_and_left_as_it_was(words):
    translator, text = untrained(*MODELS[words]), "abcd"
    before = translator.align(text, "abc").weights
    found = measure_faithfulness(translator, text, text)
    assert torch.equal(translator.align(text, "abc").weights, before)
    again = measure_faithfulness(translator, text, text, num_draws=8, seed=0)
    assert found == again
    for change in (found.permuted, found.uniform, found.most_attended, found.least_attended, found.random):
        assert 0 <= change.probability_mass <= 1
        assert 0 <= change.argmax_rate <= 1


def test_the_averages_are_those_of_a_loop(trained):
    """Total variation and removal by hand, one source at a time."""
    found = measure_faithfulness(trained, "face", "ecaf")
    ids = trained.target.encode("ecaf")

    def said(text):
        source = torch.tensor([[*trained.source.encode(text), EOS_ID]])
        with torch.no_grad():
            logits = trained.model(source, torch.tensor([source.shape[1]]), torch.tensor([[BOS_ID, *ids]]))
            return logits.softmax(-1)[0]

    before = said("face")
    moved = torch.stack([(said(text) - before).abs().sum(-1) / 2 for text in ("ace", "fce", "fae", "fac")])
    assert found.random.probability_mass == pytest.approx(moved.mean().item(), abs=1e-5)
    weights = trained.align("face", "ecaf").weights.mean((0, 1))[:, :4]
    most = moved[weights.argmax(-1), torch.arange(5)].mean().item()
    assert found.most_attended.probability_mass == pytest.approx(most, abs=1e-5)


def test_words_of_several_pieces_are_removed_as_words(trained):
    assert measure_faithfulness(trained, "ab").num_tokens == 3
    assert measure_faithfulness(trained, "ab", trained.target.encode("ba")) == measure_faithfulness(trained, "ab", "ba")
    assert (
        0 <= measure_faithfulness(trained, "a", "a").most_attended.probability_mass <= 1
    )  # one word: without it, the end alone is left


def test_it_is_told_in_two_languages_and_in_json():
    change = OutputChange(0.5, 0.25)
    found = Faithfulness(change, change, OutputChange(0.4, 0.0), OutputChange(0.01, 0.0), OutputChange(0.1, 0.0), 8, 5)
    assert "With these weights permuted at random, 50 % of" in found.sentence("en")
    assert "去掉权重最大的源词，转移 40 %" in found.sentence("zh")
    plain = json.loads(json.dumps(found.to_json()))
    assert plain["permuted"] == {"probability_mass": 0.5, "argmax_rate": 0.25}
    assert plain["sentence"]["zh"] == found.sentence("zh")
    assert plain["verdict"] == "matters"
    with pytest.raises(ValueError, match="no sentence in 'fr'; there is en and zh"):
        found.sentence("fr")


def test_what_cannot_be_measured_is_refused(trained):
    with pytest.raises(ValueError, match="an empty text"):
        measure_faithfulness(trained, "  ")
    with pytest.raises(ValueError, match="no attention to align by"):
        measure_faithfulness(untrained("attention_scope=none"), "abc", "abc")
