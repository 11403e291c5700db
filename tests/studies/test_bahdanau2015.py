"""Bahdanau's claims: how large the gradient is that arrives at the first source words."""

import json

import pytest
import torch

from regard.data import SentencePair, Tokenizer, iter_eval_batches
from regard.studies import bahdanau_luong as study
from regard.tasks import DataSplits, NextTokenLoss, Translator, make_config
from regard.tasks.translation.task import TranslationProcessor, build_model

PAIRS = [SentencePair("abcdefghij", "jihgfedcba"), SentencePair("abc", "cba"), SentencePair("hgfedcba", "abcdefgh")]


@pytest.fixture
def translator():
    settings = make_config("reverse", ["hidden_dim=8", "embed_dim=6", "dropout=0", "bidirectional=off"])
    letters = Tokenizer.train(["abcdefghij"], model_type="char")
    return Translator(
        build_model(settings, len(letters), len(letters)), TranslationProcessor(letters, letters), settings
    )


def gradients(translator, pair):
    """The norms at the words of a sentence that is alone in its batch."""
    ((batch, _),) = list(iter_eval_batches([pair], translator.source, translator.target))
    kept = []
    handle = translator.torch_model.src_embed.register_forward_hook(
        lambda module, given, words: kept.append(words) or words.retain_grad()
    )
    NextTokenLoss(label_smoothing=0.0).eval()(translator.torch_model, batch).total.backward()
    handle.remove()
    return kept[0].grad[0, : len(pair.source)].norm(dim=-1)


def test_sizes_are_norms_of_the_loss_of_a_sentence(translator):
    """Sentences beside it in a batch do not matter, and short ones do not count."""
    found = study.gradient_by_position(translator, PAIRS)
    norms = [gradients(translator, pair) for pair in (PAIRS[0], PAIRS[2])]
    first = torch.stack([norm[0] for norm in norms]).mean()
    last = torch.stack([norm[-1] for norm in norms]).mean()
    quarter = torch.stack([norm.tensor_split(4)[1].mean() for norm in norms]).mean()
    got = torch.tensor([found.norms[0], found.norms[2], found.norms[-1]])
    torch.testing.assert_close(got, torch.stack([first, quarter, last]), rtol=1e-4, atol=1e-8)
    share = torch.stack([norm[0] / norm.mean() for norm in norms]).mean()
    assert found.shares[0] == pytest.approx(float(share), rel=1e-4)


def test_the_study_tells_sizes_beside_shares(tmp_path, monkeypatch):
    def judged(name, folder, **given):
        return {"exact": 50.0, "parameters": 9, "minutes": 0.1, "by_length": [{"from": 1, "to": 9, "exact": 50.0}]}

    arrivals = iter([study.PositionGradients([1.0] * 6, [1e-7] * 6), study.PositionGradients([1.0] * 6, [0.25] * 6)])
    monkeypatch.setattr(study, "run_trial", judged)
    monkeypatch.setattr(study, "get_recipe", lambda name: _Recipe())
    monkeypatch.setattr(study, "gradient_by_position", lambda translator, part: next(arrivals))
    monkeypatch.setattr(study, "load", lambda folder: _Recipe())
    found = json.loads(json.dumps(study.bahdanau2015(tmp_path, "reverse", {}, lambda line: None)))
    assert found["gradient_sizes"][0] == {
        "place": "first word", "without attention": 1e-7, "with attention": 0.25,
    }  # fmt: skip
    assert "| first word | 1.00e-07 | 2.50e-01 |" in found["table"]
    assert (tmp_path / "bahdanau2015.png").stat().st_size > 10_000


class _Recipe:
    """As much of a recipe, its data and its translator as the study reads."""

    config = None

    def load_data(self, config):
        return DataSplits((), (), {"test": ()})
