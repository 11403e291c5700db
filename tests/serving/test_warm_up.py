"""A server computes full batches before the first request."""

import pytest

from tests.serving.servers import tiny_run, tiny_translator


def test_full_batches_are_translated_first_of_the_longest_texts(monkeypatch):
    translator, given = tiny_translator(max_length=30), []
    search = translator.search
    monkeypatch.setattr(translator, "search", lambda texts, how: given.append((texts, how)) or search(texts, how))
    translator.warm_up(5)
    assert len(given) == 6
    for number, (texts, how) in enumerate(given):
        lengths = [len(translator.source.encode(text)) for text in texts]
        assert lengths == [30] * 5 if number == 0 else max(lengths) <= 30
        assert len(set(texts)) == 5
        assert (how.beam_size, how.max_length) == (2, 30)  # the beam of the run
    assert len({len(text) for texts, _ in given[1:] for text in texts}) > 5


@pytest.mark.parametrize("tokenizer", ["char", "bpe", "word", "unigram"])
def test_it_fits_every_tokenizer(tokenizer, monkeypatch):
    translator, given = tiny_translator(tokenizer, max_length=3), []
    search = translator.search
    monkeypatch.setattr(translator, "search", lambda texts, how: given.append(texts) or search(texts, how))
    translator.warm_up(4)
    lengths = [len(translator.source.encode(text)) for texts in given for text in texts]
    assert len(given) == 6
    assert 1 <= max(lengths) <= 3


def test_regard_serve_does_it_before_it_listens(tmp_path, monkeypatch):
    from regard.cli import serve as serve_module
    from regard.tasks import Translator

    warmed = []
    monkeypatch.setattr(Translator, "warm_up", lambda predictor, size: warmed.append((predictor, size)))
    app = serve_module._build_app(tiny_run(tmp_path / "run"), "127.0.0.1", "cpu", None, None)
    app.state.server.worker.close()
    assert warmed == [(app.state.server.predictor, app.state.server.limits.max_batch_size)]
