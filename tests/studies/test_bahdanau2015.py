"""The study of Bahdanau et al.: the gradient at the source words, and the table."""

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
    config = make_config("reverse", ["hidden_dim=8", "embed_dim=6", "dropout=0", "bidirectional=off"])
    tokenizer = Tokenizer.train(["abcdefghij"], model_type="char")
    model = build_model(config, len(tokenizer), len(tokenizer))
    return Translator(model, TranslationProcessor(tokenizer, tokenizer), config)


def gradient_norms(translator, pair):
    """The norms at the words of a sentence that is alone in its batch."""
    ((batch, _),) = list(iter_eval_batches([pair], translator.source, translator.target))
    embeddings = []
    handle = translator.torch_model.src_embed.register_forward_hook(
        lambda module, inputs, embedding: embeddings.append(embedding) or embedding.retain_grad()
    )
    NextTokenLoss(label_smoothing=0.0).eval()(translator.torch_model, batch).total.backward()
    handle.remove()
    return embeddings[0].grad[0, : len(pair.source)].norm(dim=-1)


def test_gradients_are_those_of_each_sentence_alone(translator):
    """Other sentences of the batch have no influence, and short ones are left out."""
    result = study.gradient_by_position(translator, PAIRS)
    norms = [gradient_norms(translator, pair) for pair in (PAIRS[0], PAIRS[2])]
    first = torch.stack([norm[0] for norm in norms]).mean()
    last = torch.stack([norm[-1] for norm in norms]).mean()
    quarter = torch.stack([norm.tensor_split(4)[1].mean() for norm in norms]).mean()
    actual = torch.tensor([result.norms[0], result.norms[2], result.norms[-1]])
    torch.testing.assert_close(actual, torch.stack([first, quarter, last]), rtol=1e-4, atol=1e-8)
    share = torch.stack([norm[0] / norm.mean() for norm in norms]).mean()
    assert result.shares[0] == pytest.approx(float(share), rel=1e-4)


def test_the_study_reports_shares_and_norms(tmp_path, monkeypatch):
    def run_trial(name, folder, **options):
        return {
            "exact_match": 50.0,
            "parameters": 9,
            "minutes": 0.1,
            "by_length": [{"from": 1, "to": 9, "exact_match": 50.0}],
        }

    gradients = iter([study.PositionGradients([1.0] * 6, [1e-7] * 6), study.PositionGradients([1.0] * 6, [0.25] * 6)])
    monkeypatch.setattr(study, "run_trial", run_trial)
    monkeypatch.setattr(study, "get_recipe", lambda name: _FakeRecipe())
    monkeypatch.setattr(study, "gradient_by_position", lambda translator, pairs: next(gradients))
    monkeypatch.setattr(study, "load", lambda folder: _FakeRecipe())
    result = json.loads(json.dumps(study.bahdanau2015(tmp_path, "reverse", {}, lambda line: None)))
    assert result["gradient_sizes"][0] == {
        "place": "first word", "without attention": 1e-7, "with attention": 0.25,
    }  # fmt: skip
    assert "| first word | 1.00e-07 | 2.50e-01 |" in result["table"]
    assert (tmp_path / "bahdanau2015.png").stat().st_size > 10_000


class _FakeRecipe:
    """The attributes of a recipe and of a translator that the study reads."""

    config = None

    def load_data(self, config):
        return DataSplits((), (), {"test": ()})
