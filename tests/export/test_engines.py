"""Another engine computes what PyTorch computes: the same steps, the same looks, the same translations."""

import math

import pytest
import torch

from regard.export import to_engine
from regard.tasks.translation.inference import InferenceEngine
from tests.export.fixtures_translators import KINDS, TEXTS, TRANSFORMERS, translator

PLACES = [("onnx", kind) for kind in KINDS] + [("ctranslate2", kind) for kind in TRANSFORMERS]
SOME = [("onnx", "pre"), ("onnx", "luong"), ("ctranslate2", "post")]
SEARCHES = [
    {"beam_size": 1},
    {"beam_size": 3, "length_penalty": 0.0},
    {"beam_size": 3},
    {"beam_size": 4, "num_best": 2, "length_penalty": 0.6},
    {"beam_size": 4, "length_penalty": 1.5, "length_penalty_type": "power"},
    {"beam_size": 2, "max_length_ratio": 0.5, "max_length_offset": 2},
]
OURS = [{"beam_size": 3, "patience": 2.0, "num_best": 3}, {"beam_size": 3, "min_length": 3, "max_length": 6}]


@pytest.fixture(params=PLACES, ids=lambda place: "-".join(place))
def both(request):
    """A translator, and the same one in another engine."""
    engine, kind = request.param
    return translator(kind), to_engine(translator(kind), engine)


def test_every_search_finds_the_same(both):
    ours, theirs = both
    for options in SEARCHES + (OURS if theirs.model.name == "onnx" else []):
        expected, found = (one.search(TEXTS, one.decoding_config(**options)) for one in both)
        for text, wanted, several in zip(TEXTS, expected, found, strict=True):
            assert [one.token_ids for one in several] == [one.token_ids for one in wanted], (text, options)
            for one, other in zip(several, wanted, strict=True):
                assert one.finished == other.finished
                assert one.length == other.length
                assert (one.score, one.log_prob) == pytest.approx((other.score, other.log_prob), abs=1e-3)
    assert ours.translate(TEXTS) == theirs.translate(TEXTS)
    assert isinstance(theirs.translate("abc"), str)
    assert theirs.translate([]) == []


@pytest.mark.parametrize(("engine", "kind"), SOME)
def test_who_stands_beside_a_text_does_not_matter(engine, kind):
    theirs = to_engine(translator(kind), engine)
    assert [theirs.translate(text) for text in TEXTS] == theirs.translate(TEXTS)


@pytest.mark.parametrize("kind", KINDS)
def test_steps_are_the_same(kind):
    ours = translator(kind)
    theirs = to_engine(ours, "onnx")
    source, lengths = (torch.tensor([[4, 5, 6, 7, 3], [6, 3, 0, 0, 0], [5, 4, 3, 0, 0]]), torch.tensor([5, 2, 3]))
    with torch.no_grad():
        wanted, found = (one.model.start_decoding(source, lengths) for one in (ours, theirs))
        for words, rows in (([2] * 3, None), ([4, 5, 6], None), ([7, 8, 4, 4], [0, 1, 2, 1]), ([5, 9], [3, 0])):
            for steps in (wanted, found):
                if rows is not None:
                    steps.reorder(torch.tensor(rows))
            torch.testing.assert_close(
                found.step(torch.tensor(words)), wanted.step(torch.tensor(words)), atol=1e-4, rtol=1e-4
            )
            if ours.has_attention:
                torch.testing.assert_close(found.weights(), wanted.weights(), atol=1e-5, rtol=1e-4)
    assert theirs.has_attention == ours.has_attention


@pytest.mark.parametrize("kind", ["post", "additive", "local-p"])
def test_onnx_shows_alignments_coverage_and_the_search(kind):
    ours = translator(kind)
    theirs = to_engine(ours, "onnx")
    for one, other in zip(*(t.align(TEXTS[:3], ["cba", "h", "ab"]) for t in (ours, theirs)), strict=True):
        torch.testing.assert_close(one.weights, other.weights, atol=1e-5, rtol=1e-4)
    assert theirs.translate(TEXTS, coverage_penalty=0.3) == ours.translate(TEXTS, coverage_penalty=0.3)
    trees = [one.search_with_trace("abc", one.decoding_config(beam_size=3))[1] for one in (ours, theirs)]
    plain = [[[(c.token, c.parent, c.finished) for c in step] for step in tree.steps] for tree in trees]
    assert plain[0] == plain[1]


def test_onnx_draws_as_pytorch_does():
    ours = translator("additive")
    drawn = [
        one.search(["abc", "fed"], one.decoding_config(method="sample", num_best=3), torch.Generator().manual_seed(1))
        for one in (ours, to_engine(ours, "onnx"))
    ]
    assert [[h.token_ids for h in several] for several in drawn[0]] == [
        [h.token_ids for h in several] for several in drawn[1]
    ]


def test_what_ctranslate2_does_not_do_is_said():
    theirs = to_engine(translator("post"), "ctranslate2")
    assert not theirs.has_attention
    for options in ({"method": "sample"}, {"coverage_penalty": 0.2}, {"patience": 2.0}, {"min_length": 2}):
        with pytest.raises(ValueError, match=r"^ctranslate2 .*; take the engine onnx or torch for that$"):
            theirs.translate("abc", **options)
    with pytest.raises(ValueError, match="returns no attention weights"):
        theirs.align("abc", "cba")
    with pytest.raises(ValueError, match="no single steps"):
        theirs.search_with_trace("abc")
    with pytest.raises(ValueError, match="needs the network itself"):
        theirs.score(["abc"], ["cba"])
    (best,) = theirs.search(["abc"])[0]
    assert math.isnan(best.token_log_probs[0])


@pytest.mark.parametrize(("engine", "kind"), SOME)
def test_too_long_is_too_long_everywhere(engine, kind):
    with pytest.raises(ValueError, match="the text has 21 tokens, but this model takes 20"):
        to_engine(translator(kind), engine).translate(["a", "b" * 21])


@pytest.mark.parametrize("engine", ["onnx", "ctranslate2"])
def test_no_translation_is_longer_than_positions_go(engine):
    theirs = to_engine(translator("post"), engine)
    more = {"min_length": 50} if engine == "onnx" else {}  # ctranslate2 says it before it begins
    with pytest.raises(ValueError, match=r"has 42 positions, too few for a translation of \d+ tokens"):
        theirs.translate("abcd", beam_size=2, max_length=60, max_length_ratio=20.0, **more)


def test_an_engine_must_search():
    class Nothing(InferenceEngine):
        name = "nothing"

    with pytest.raises(TypeError):
        Nothing()
