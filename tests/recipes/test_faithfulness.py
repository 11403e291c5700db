"""How much a translation depends on where it looked: much where weights do all the work, else not at all."""

import json
from random import Random

import pytest
import torch

from regard.data.batch import BOS, EOS, Batch
from regard.data.reverse import Reverse
from regard.data.tokenizer import Tokenizer
from regard.recipes import NextWord, Translator, settings_of
from regard.recipes.translation._models import build
from regard.recipes.translation.faithfulness import Change, Faithfulness, faithfulness

LETTERS = "abcdefgh"


def untrained(*words):
    torch.manual_seed(0)
    settings = settings_of("reverse", ["dim=16", "embed_dim=16", "max_length=40", *words])
    letters = Tokenizer.learn([LETTERS], kind="char", size=50)
    return Translator(build(settings, len(letters), len(letters)), letters, letters, settings)


@pytest.fixture(scope="module")
def trained():
    """A model that has learned to spell backwards, which it can do by looking only."""
    found = untrained("model=transformer", "heads=2", "layers=1", "dropout=0", "norm=pre", "dim=32")
    objective, strings = NextWord(found.model, smoothing=0.0), Reverse(letters=LETTERS, longest=4)
    optimizer = torch.optim.Adam(objective.parameters(), lr=1e-2)
    for step in range(100):
        pairs = strings.make(Random(step), 24)
        batch = Batch.of(
            [(found.source.encode(pair.source), found.target.encode(pair.target)) for pair in pairs]
        )
        optimizer.zero_grad()
        (objective(batch).total / batch.tokens).backward()
        optimizer.step()
    found.model.eval()
    return found


def test_who_spells_backwards_depends_on_where_it_looks(trained):
    found = faithfulness(trained, "face", "ecaf")
    assert found.permuted.moved > 0.3
    assert found.uniform.moved > 0.3
    assert found.most.moved > found.random.moved > found.least.moved
    assert found.verdict() != "idle"
    assert found.tokens == 5


def test_who_looks_evenly_does_not():
    found = faithfulness(untrained("score=constant"), "abcdef", "abc")
    assert found.permuted.moved == pytest.approx(0, abs=1e-6)
    assert found.uniform.moved == pytest.approx(0, abs=1e-6)
    assert found.verdict() == "idle"
    assert "hardly depends" in found.sentence()


MODELS = {
    "additive": [],
    "luong": ["order=luong", "input_feeding=on", "score=dot"],
    "local": ["scope=local-p", "radius=2"],
    "drawn": ["normalize=sample"],
    "transformer": ["model=transformer", "heads=2", "layers=2", "dropout=0"],
}


@pytest.mark.parametrize("words", MODELS)
def test_every_model_is_measured_and_left_as_it_was(words):
    translator, text = untrained(*MODELS[words]), "abcd"
    before = translator.align(text, "abc").weights
    found = faithfulness(translator, text, text)
    assert torch.equal(translator.align(text, "abc").weights, before)
    again = faithfulness(translator, text, text, draws=8, seed=0)
    assert found == again
    for change in (found.permuted, found.uniform, found.most, found.least, found.random):
        assert 0 <= change.moved <= 1
        assert 0 <= change.flipped <= 1


def test_the_averages_are_those_of_a_loop(trained):
    """Total variation and removal by hand, one source at a time."""
    found = faithfulness(trained, "face", "ecaf")
    ids = trained.target.encode("ecaf")

    def said(text):
        source = torch.tensor([[*trained.source.encode(text), EOS]])
        with torch.no_grad():
            hidden = trained.model(source, torch.tensor([source.shape[1]]), torch.tensor([[BOS, *ids]]))
            return trained.model.output(hidden).softmax(-1)[0]

    before = said("face")
    moved = torch.stack([(said(text) - before).abs().sum(-1) / 2 for text in ("ace", "fce", "fae", "fac")])
    assert found.random.moved == pytest.approx(moved.mean().item(), abs=1e-5)
    weights = trained.align("face", "ecaf").weights.mean((0, 1))[:, :4]
    most = moved[weights.argmax(-1), torch.arange(5)].mean().item()
    assert found.most.moved == pytest.approx(most, abs=1e-5)


def test_words_of_several_pieces_are_removed_as_words(trained):
    assert faithfulness(trained, "ab").tokens == 3
    assert faithfulness(trained, "ab", trained.target.encode("ba")) == faithfulness(trained, "ab", "ba")
    assert 0 <= faithfulness(trained, "a", "a").most.moved <= 1  # one word: without it, the end alone is left


def test_it_is_told_in_two_languages_and_in_json():
    change = Change(0.5, 0.25)
    found = Faithfulness(change, change, Change(0.4, 0.0), Change(0.01, 0.0), Change(0.1, 0.0), 8, 5)
    assert "With these weights mixed up at random, 50 % of" in found.sentence("en")
    assert "去掉看得最多的源词，移动 40 %" in found.sentence("zh")
    plain = json.loads(json.dumps(found.to_json()))
    assert plain["permuted"] == {"moved": 0.5, "flipped": 0.25}
    assert plain["sentence"]["zh"] == found.sentence("zh")
    assert plain["verdict"] == "matters"
    with pytest.raises(ValueError, match="no sentence in 'fr'; there is en and zh"):
        found.sentence("fr")


def test_what_cannot_be_measured_is_refused(trained):
    with pytest.raises(ValueError, match="an empty text"):
        faithfulness(trained, "  ")
    with pytest.raises(ValueError, match="no attention to align by"):
        faithfulness(untrained("scope=none"), "abc", "abc")
