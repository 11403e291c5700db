"""A server computes full batches before the first request."""

import pytest

from tests.serving.servers import tiny_run, tiny_translator


def record_searches(translator, monkeypatch):
    """The arguments of each call of `search` from now on."""
    calls, search = [], translator.search

    def record(texts, config):
        calls.append((texts, config))
        return search(texts, config)

    monkeypatch.setattr(translator, "search", record)
    return calls


def test_warm_up_translates_full_batches_the_longest_first(monkeypatch):
    translator = tiny_translator(max_length=30)
    calls = record_searches(translator, monkeypatch)
    translator.warm_up(5)
    assert len(calls) == 6
    for number, (texts, config) in enumerate(calls):
        lengths = [len(translator.source.encode(text)) for text in texts]
        assert lengths == [30] * 5 if number == 0 else max(lengths) <= 30
        assert len(set(texts)) == 5
        assert (config.beam_size, config.max_length) == (2, 30)  # the beam of the run
    assert len({len(text) for texts, _ in calls[1:] for text in texts}) > 5


@pytest.mark.parametrize("tokenizer", ["char", "bpe", "word", "unigram"])
def test_warm_up_with_every_tokenizer(tokenizer, monkeypatch):
    translator = tiny_translator(tokenizer, max_length=3)
    calls = record_searches(translator, monkeypatch)
    translator.warm_up(4)
    lengths = [len(translator.source.encode(text)) for texts, _ in calls for text in texts]
    assert len(calls) == 6
    assert 1 <= max(lengths) <= 3


def test_serve_warms_up_before_it_listens(tmp_path, monkeypatch):
    from regard.cli import serve as serve_module
    from regard.tasks import Translator

    calls = []
    monkeypatch.setattr(Translator, "warm_up", lambda predictor, size: calls.append((predictor, size)))
    app = serve_module._build_app(tiny_run(tmp_path / "run"), "cpu", None, {})
    app.state.server.worker.close()
    assert calls == [(app.state.server.predictor, app.state.server.limits.max_batch_size)]
