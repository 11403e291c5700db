"""Beams of a sentence that look together are the same rows, each alone; and the Transformer's shortcut is its steps."""

import math
from itertools import chain

import pytest
import torch
from torch import nn

from regard.attention import Dropout, MultiHead, softmax
from regard.attention.observers import register_watcher
from regard.decoding import DecodingConfig, beam_search, decode
from regard.models.fast_decoding.transformer import FusedDecoderState
from regard.models.transformer import TransformerDecoderState
from tests.models import laws, test_recurrent, test_transformer
from tests.models.laws import BOS, EOS, PAD, TARGET_WORDS, close, logits, some_pairs


def plain(model, source, lengths):
    """The definition, whatever `begin` takes."""
    return TransformerDecoderState(model, model.encode(source, lengths), lengths)


def scored(steps, words, as_bits):
    """A step's scores, said as they are or as powers of two; those may be overwritten."""
    if not as_bits:
        return steps.step(words)
    bits = steps.bits(words, block=8)
    assert bits.shape == (len(words), 8 * math.ceil(TARGET_WORDS / 8))
    assert (bits[:, TARGET_WORDS:] == -math.inf).all()
    scores = bits[:, :TARGET_WORDS] * math.log(2)
    bits[:, :TARGET_WORDS] = math.nan
    return scores


def beams_are_rows(fast, slow, weights=True, steps=11, width=4):
    """Two ways to take steps give the same while sentences leave and beams move."""
    count, wide = 7, 1
    for step in range(steps):
        words = torch.randint(4, TARGET_WORDS, (count * wide,))
        close(scored(fast, words, as_bits=step % 3 != 0), slow.step(words))
        if weights:
            close(fast.weights(), slow.weights())
        staying = torch.arange(count)[torch.rand(count) < 0.85]
        if not len(staying):
            return
        rows = torch.randint(0, wide, (len(staying), width)) + staying[:, None] * wide
        fast.reorder_beams(rows)
        slow.select(rows.flatten())
        count, wide = len(staying), width
    rows = torch.randint(0, count * wide, (5,))  # any rows in any order, after beams
    fast.select(rows)
    slow.select(rows)
    words = torch.randint(4, TARGET_WORDS, (5,))
    close(fast.step(words), slow.step(words))


@pytest.mark.parametrize("attention", [name for name in test_recurrent.ATTENTIONS if name != "sample"])
@pytest.mark.parametrize("order", list(test_recurrent.ORDERS))
def test_beams_of_recurrent_models(order, attention):
    model = test_recurrent.small(order, attention=attention)
    source, lengths, _ = some_pairs((6, 3, 1, 5, 4, 6, 2))
    with torch.no_grad():
        beams_are_rows(
            model.start_decoding(source, lengths), model.start_decoding(source, lengths), attention != "none"
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bits_of_an_output_that_must_be_called(dtype):
    model, calls = test_recurrent.small("bahdanau").to(dtype), []
    source, lengths, _ = some_pairs((6, 3, 1))
    model.output.register_forward_hook(lambda *_: calls.append(1))
    with torch.no_grad():
        words = torch.randint(4, TARGET_WORDS, (3,))
        bits = scored(model.begin(source, lengths), words, as_bits=True)
        close(bits, model.begin(source, lengths).step(words).float())
    assert len(calls) == 2


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_the_shortcut_is_the_steps(norm, seed):
    model = test_transformer.small(seed, norm=norm, decoder_layers=3)
    source, lengths, _ = some_pairs((6, 3, 1, 5, 4, 6, 2))
    with torch.no_grad():
        fast = model.start_decoding(source, lengths)
        assert isinstance(fast, FusedDecoderState)
        beams_are_rows(fast, plain(model, source, lengths), steps=20)  # longer than the first room


@pytest.mark.parametrize("method", ["beam", "greedy"])
def test_searches_by_the_shortcut_are_searches_by_the_steps(method):
    model = test_transformer.small(3, dropout=0.1)
    with torch.no_grad():
        model.lm_head.weight.mul_(3)  # far enough from uniform that no two words tie
    source, lengths, _ = some_pairs((6, 3, 1, 5, 4, 6, 2))
    coverage = 0.2 if method == "beam" else 0.0
    options = DecodingConfig(
        method=method, num_best=3 if method == "beam" else 1, coverage_penalty=coverage, max_length=14
    )
    ours = decode(model, source, lengths, options)
    theirs = decode(Definition(model), source, lengths, options)
    assert [[one.token_ids for one in several] for several in ours] == [
        [one.token_ids for one in s] for s in theirs
    ]
    for a, b in zip(chain(*ours), chain(*theirs), strict=True):
        assert a.score == pytest.approx(b.score, abs=1e-4)


class Definition:
    """A model whose steps are the definition."""

    def __init__(self, model):
        self.model = model

    def start_decoding(self, source, lengths):
        return plain(self.model, source, lengths)


def test_a_search_finds_what_loops_without_a_cache_find():
    model = test_transformer.small(5)
    with torch.no_grad():
        model.lm_head.weight.mul_(3)
    source, lengths, _ = some_pairs((6, 3, 5))
    options = DecodingConfig(beam_size=3, num_best=1, max_length=9, max_length_ratio=0, max_length_offset=100)
    found = beam_search(model, source, lengths, options)
    for row, length in enumerate(lengths.tolist()):
        ids, score = searched(model, source[row : row + 1, :length], options)
        assert found[row][0].token_ids == ids
        assert found[row][0].score == pytest.approx(score, abs=1e-4)


@torch.no_grad()
def searched(model, source, options):
    """Beam search in loops: every beginning is written anew for each word."""
    beams, ended = [([], 0.0)], []
    for length in range(1, options.max_length + 1):
        grown = []
        for ids, total in beams:
            written = logits(model, source, torch.tensor([source.shape[1]]), torch.tensor([[BOS, *ids]]))
            for token, own in enumerate(written[0, -1].log_softmax(-1).tolist()):
                if token not in (BOS, PAD):
                    grown.append(([*ids, token], total + own))
        grown.sort(key=lambda one: -one[1])
        ended += [(ids[:-1], total / options.penalty(length)) for ids, total in grown[:3] if ids[-1] == EOS]
        beams = [(ids, total) for ids, total in grown if ids[-1] != EOS][:3]
        if len(ended) >= 3:
            break
    rest = [(ids, total / options.penalty(options.max_length)) for ids, total in beams]
    return max(ended or rest, key=lambda one: one[1])


def test_changed_weights_are_laid_out_anew():
    model = test_transformer.small()
    source, lengths, target = some_pairs()
    for change in (
        lambda: model.lm_head.weight.mul_(2),
        lambda: model.decoder.layers[1].look.key.weight.add_(0.3),
        lambda: model.load_state_dict({name: p + 0.1 for name, p in model.state_dict().items()}),
        lambda: setattr(model.decoder.layers[0].add_look.norm, "weight", nn.Parameter(torch.rand(16))),
    ):
        with torch.no_grad():
            change()
            steps = model.start_decoding(source, lengths)
            assert isinstance(steps, FusedDecoderState)
            close(steps.step(target[:, 0]), plain(model, source, lengths).step(target[:, 0]))


@pytest.mark.parametrize("kind", ["transformer", "recurrent"])
def test_steps_of_a_fused_optimizer_are_noticed(kind):
    model = test_transformer.small() if kind == "transformer" else test_recurrent.small()
    model.output = nn.Linear(model.output.in_features, 2**18 // model.output.in_features + 1, bias=False)
    model.eval()
    source, lengths, target = some_pairs()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, fused=True)
    for _ in range(2):
        with torch.no_grad():
            steps = model.begin(source, lengths)
            assert isinstance(steps, FusedDecoderState) == (kind == "transformer")
            close(steps.step(target[:, 0]), logits(model, source, lengths, target[:, :1])[:, 0], atol=1e-3)
        for parameter in model.parameters():
            parameter.grad = torch.randn_like(parameter)
        optimizer.step()


def test_where_parts_must_be_called_they_are():
    source, lengths, _ = some_pairs()

    def kind(model):
        return type(model.begin(source, lengths))

    model = test_transformer.small()
    assert kind(model) is TransformerDecoderState  # gradients are wanted
    with torch.no_grad():
        assert kind(model) is FusedDecoderState
        with register_watcher(lambda who, weights: None):
            assert kind(model) is TransformerDecoderState
        handle = model.decoder.layers[0].think.register_forward_hook(lambda *_: None)
        assert kind(model) is TransformerDecoderState
        handle.remove()
        assert kind(model) is FusedDecoderState
        model.decoder.layers[0].think[1] = nn.GELU()
        assert kind(model) is TransformerDecoderState
        assert kind(test_transformer.small().train()) is TransformerDecoderState
        for heads in (
            lambda: MultiHead(16, 4, num_kv_heads=2),
            lambda: MultiHead(16, 4, normalize=lambda scores: softmax(scores)),
        ):
            assert kind(test_transformer.small(attention=heads)) is TransformerDecoderState
        assert (
            kind(test_transformer.small(attention=lambda: MultiHead(16, 4, dropout=0.2))) is FusedDecoderState
        )
        assert (
            kind(test_transformer.small(attention=lambda: MultiHead(16, 4, bias=False))) is FusedDecoderState
        )
        dropping = test_transformer.small(attention=lambda: MultiHead(16, 4, normalize=Dropout(softmax, 0.1)))
        laws.steps_are_forward(dropping)


def test_a_long_translation_outgrows_its_first_clock():
    model = test_transformer.small()
    source, lengths, _ = some_pairs()
    words = torch.randint(4, TARGET_WORDS, (len(source), 40))
    with torch.no_grad():
        steps = model.start_decoding(source, lengths)
        each = torch.stack([steps.step(words[:, t]) for t in range(40)], 1)
        close(each, logits(model, source, lengths, words), atol=1e-4)
    assert math.isfinite(float(each.sum()))
