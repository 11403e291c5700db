"""Other engines compute what PyTorch computes: the same steps, weights and translations."""

import math

import pytest
import torch

from regard.export import to_engine
from regard.tasks.translation.inference import InferenceEngine
from tests.export.fixtures_translators import ARCHITECTURES, TEXTS, TRANSFORMERS, translator

ENGINES = [("onnx", name) for name in ARCHITECTURES] + [("ctranslate2", name) for name in TRANSFORMERS]
FEW_ENGINES = [("onnx", "pre"), ("onnx", "luong"), ("ctranslate2", "post")]
SEARCHES = [
    {"beam_size": 1},
    {"beam_size": 3, "length_penalty": 0.0},
    {"beam_size": 3},
    {"beam_size": 4, "num_best": 2, "length_penalty": 0.6},
    {"beam_size": 4, "length_penalty": 1.5, "length_penalty_type": "power"},
    {"beam_size": 2, "max_length_ratio": 0.5, "max_length_offset": 2},
]
ONNX_SEARCHES = [{"beam_size": 3, "patience": 2.0, "num_best": 3}, {"beam_size": 3, "min_length": 3, "max_length": 6}]


@pytest.fixture(params=ENGINES, ids="-".join)
def translators(request):
    """A translator in PyTorch, and the same one in another engine."""
    engine, architecture = request.param
    return translator(architecture), to_engine(translator(architecture), engine)


def test_searches_return_the_same_hypotheses(translators):
    original, exported = translators
    for options in SEARCHES + (ONNX_SEARCHES if exported.model.name == "onnx" else []):
        expected, actual = (one.search(TEXTS, one.decoding_config(**options)) for one in translators)
        for text, expected_best, best in zip(TEXTS, expected, actual, strict=True):
            assert [one.token_ids for one in best] == [one.token_ids for one in expected_best], (text, options)
            for one, other in zip(best, expected_best, strict=True):
                assert one.finished == other.finished
                assert one.length == other.length
                assert (one.score, one.log_prob) == pytest.approx((other.score, other.log_prob), abs=1e-3)
    assert original.translate(TEXTS) == exported.translate(TEXTS)
    assert isinstance(exported.translate("abc"), str)
    assert exported.translate([]) == []


@pytest.mark.parametrize(("engine", "architecture"), FEW_ENGINES)
def test_a_translation_does_not_depend_on_the_batch(engine, architecture):
    exported = to_engine(translator(architecture), engine)
    assert [exported.translate(text) for text in TEXTS] == exported.translate(TEXTS)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_decoder_steps_return_the_same_logits_and_weights(architecture):
    original = translator(architecture)
    exported = to_engine(original, "onnx")
    source, lengths = (torch.tensor([[4, 5, 6, 7, 3], [6, 3, 0, 0, 0], [5, 4, 3, 0, 0]]), torch.tensor([5, 2, 3]))
    with torch.no_grad():
        expected, actual = (one.model.start_decoding(source, lengths) for one in (original, exported))
        for tokens, rows in (([2] * 3, None), ([4, 5, 6], None), ([7, 8, 4, 4], [0, 1, 2, 1]), ([5, 9], [3, 0])):
            if rows is not None:
                expected.reorder(torch.tensor(rows))
                actual.reorder(torch.tensor(rows))
            torch.testing.assert_close(
                actual.step(torch.tensor(tokens)), expected.step(torch.tensor(tokens)), atol=1e-4, rtol=1e-4
            )
            if original.has_attention:
                torch.testing.assert_close(actual.weights(), expected.weights(), atol=1e-5, rtol=1e-4)
    assert exported.has_attention == original.has_attention


@pytest.mark.parametrize("architecture", ["post", "additive", "local-p"])
def test_onnx_returns_alignments_coverage_and_the_search_trace(architecture):
    original = translator(architecture)
    exported = to_engine(original, "onnx")
    alignments = (one.align(TEXTS[:3], ["cba", "h", "ab"]) for one in (original, exported))
    for one, other in zip(*alignments, strict=True):
        torch.testing.assert_close(one.weights, other.weights, atol=1e-5, rtol=1e-4)
    assert exported.translate(TEXTS, coverage_penalty=0.3) == original.translate(TEXTS, coverage_penalty=0.3)
    traces = [one.search_with_trace("abc", one.decoding_config(beam_size=3))[1] for one in (original, exported)]
    expected, actual = ([[(c.token, c.parent, c.finished) for c in step] for step in trace.steps] for trace in traces)
    assert actual == expected


def test_onnx_draws_the_same_samples():
    original = translator("additive")
    expected, actual = (
        one.search(["abc", "fed"], one.decoding_config(method="sample", num_best=3), torch.Generator().manual_seed(1))
        for one in (original, to_engine(original, "onnx"))
    )
    for best, expected_best in zip(actual, expected, strict=True):
        assert [one.token_ids for one in best] == [one.token_ids for one in expected_best]


def test_ctranslate2_refuses_unsupported_options():
    exported = to_engine(translator("post"), "ctranslate2")
    assert not exported.has_attention
    for options in ({"method": "sample"}, {"coverage_penalty": 0.2}, {"patience": 2.0}, {"min_length": 2}):
        with pytest.raises(ValueError, match=r"^ctranslate2 .*; use the engine onnx or torch for that$"):
            exported.translate("abc", **options)
    with pytest.raises(ValueError, match="returns no attention weights"):
        exported.align("abc", "cba")
    with pytest.raises(ValueError, match="returns complete translations only"):
        exported.search_with_trace("abc")
    with pytest.raises(ValueError, match="needs the PyTorch model"):
        exported.score(["abc"], ["cba"])
    (best,) = exported.search(["abc"])[0]
    assert math.isnan(best.token_log_probs[0])


@pytest.mark.parametrize(("engine", "architecture"), FEW_ENGINES)
def test_every_engine_refuses_too_long_texts(engine, architecture):
    with pytest.raises(ValueError, match="the text has 21 tokens, but this model takes 20"):
        to_engine(translator(architecture), engine).translate(["a", "b" * 21])


@pytest.mark.parametrize("engine", ["onnx", "ctranslate2"])
def test_translations_are_limited_by_the_number_of_positions(engine):
    exported = to_engine(translator("post"), engine)
    options = {"min_length": 50} if engine == "onnx" else {}  # ctranslate2 checks the limit before the search
    with pytest.raises(ValueError, match=r"has 42 positions, too few for a translation of \d+ tokens"):
        exported.translate("abcd", beam_size=2, max_length=60, max_length_ratio=20.0, **options)


def test_an_engine_must_implement_search():
    class IncompleteEngine(InferenceEngine):
        name = "incomplete"

    with pytest.raises(TypeError):
        IncompleteEngine()
