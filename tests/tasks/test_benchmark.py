"""The throughput of a translator, on a simulated clock."""

import itertools

import pytest
import torch

from regard.data import Tokenizer
from regard.models import Transformer
from regard.tasks import Translator, make_config
from regard.tasks import benchmark as benching
from regard.tasks.benchmark import measure_throughput
from regard.tasks.translation.task import TranslationProcessor

TEXTS = ["ab", "abc", "", "a", "cab"]


@pytest.fixture
def translator():
    torch.manual_seed(0)
    letters = Tokenizer.train(["abc"], model_type="char", vocab_size=50)
    model = Transformer(len(letters), len(letters), embed_dim=16, num_heads=2, num_encoder_layers=1, ffn_dim=16)
    settings = make_config(
        "reverse", model="transformer", embed_dim=16, num_heads=2, num_layers=1, max_length=6, beam_size=2
    )
    return Translator(model, TranslationProcessor(letters, letters), settings)


@pytest.fixture
def clock(monkeypatch):
    """Every call takes two seconds more than the one before."""
    ticks = itertools.accumulate(itertools.count(), lambda now, call: now + (call + 1) // 2 * 2 * (call % 2))
    monkeypatch.setattr(benching.time, "perf_counter", lambda: float(next(ticks)))


def test_rates_are_counts_over_seconds(translator, clock):
    speed = measure_throughput(translator, TEXTS, batch_size=1)
    assert (speed.engine, speed.batch_size, speed.num_inputs) == ("torch", 1, 4)
    assert speed.seconds == 2 + 4 + 6 + 8
    assert speed.latency == (5.0, 7.7, 7.94)
    assert speed.inputs_per_second == 4 / 20
    assert speed.tokens_per_second == speed.num_tokens / 20
    hypotheses = translator.search([text for text in TEXTS if text])
    assert speed.num_tokens == sum(len(best[0].token_ids) + best[0].finished for best in hypotheses)


@pytest.mark.parametrize(("batch", "calls"), [(0, 1), (2, 2), (3, 2), (10, 1)])
def test_each_batch_is_one_call(translator, monkeypatch, batch, calls):
    sizes = []
    predict = translator.predict
    monkeypatch.setattr(
        translator, "predict", lambda texts, options: sizes.append(len(texts)) or predict(texts, options)
    )
    speed = measure_throughput(translator, TEXTS, batch)
    assert len(sizes) == 1 + calls  # the first is for warming up
    assert sum(sizes[1:]) == speed.num_inputs == 4
    assert speed.peak_memory_mb is None or speed.peak_memory_mb > 10


def test_refusals(translator):
    with pytest.raises(ValueError, match="nothing to measure"):
        measure_throughput(translator, ["", " "])
    with pytest.raises(ValueError, match="invalid batch size -1"):
        measure_throughput(translator, ["a"], batch_size=-1)
