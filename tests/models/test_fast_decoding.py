"""Fast decoding equals its definition: beams equal single rows, fused Transformer steps equal plain ones."""

import math

import pytest
import torch
from torch import nn

from regard.attention import Dropout, MultiHead, softmax
from regard.attention.observers import register_watcher
from regard.decoding import DecodingConfig, beam_search, decode
from regard.models.transformer import TransformerDecoderState
from regard.models.transformer_fast import FusedDecoderState
from tests.models import laws, test_rnn_seq2seq, test_transformer
from tests.models.laws import BOS, EOS, PAD, TGT_VOCAB_SIZE, assert_equal_hypotheses, close, sample_pairs


def reference_state(model, source, lengths):
    """The definition, whatever `start_decoding` chooses."""
    return TransformerDecoderState(model, model.encode(source, lengths), lengths)


def step_logits(state, tokens, base2):
    """Logits of a step, by `step` or by `base2_logits`, whose result may be overwritten."""
    if not base2:
        return state.step(tokens)
    padded = state.base2_logits(tokens, block_size=8)
    assert padded.shape == (len(tokens), 8 * math.ceil(TGT_VOCAB_SIZE / 8))
    assert (padded[:, TGT_VOCAB_SIZE:] == -math.inf).all()
    logits = padded[:, :TGT_VOCAB_SIZE] * math.log(2)
    padded[:, :TGT_VOCAB_SIZE] = math.nan
    return logits


def beams_equal_rows(fast, slow, weights=True, steps=11, width=4):
    """Two states give the same logits while sentences are removed and beams reordered."""
    count, beam_width = 7, 1
    for step in range(steps):
        tokens = torch.randint(4, TGT_VOCAB_SIZE, (count * beam_width,))
        close(step_logits(fast, tokens, base2=step % 3 != 0), slow.step(tokens))
        if weights:
            close(fast.weights(), slow.weights())
        remaining = torch.arange(count)[torch.rand(count) < 0.85]
        if not len(remaining):
            return
        rows = torch.randint(0, beam_width, (len(remaining), width)) + remaining[:, None] * beam_width
        fast.reorder_beams(rows)
        slow.reorder(rows.flatten())
        count, beam_width = len(remaining), width
    rows = torch.randint(0, count * beam_width, (5,))  # any rows in any order, after beams
    fast.reorder(rows)
    slow.reorder(rows)
    tokens = torch.randint(4, TGT_VOCAB_SIZE, (5,))
    close(fast.step(tokens), slow.step(tokens))


@pytest.mark.parametrize("attention", [name for name in test_rnn_seq2seq.ATTENTIONS if name != "sample"])
@pytest.mark.parametrize("decoder", list(test_rnn_seq2seq.DECODERS))
def test_beams_of_rnn_models(decoder, attention):
    model = test_rnn_seq2seq.small(decoder, attention=attention)
    source, lengths, _ = sample_pairs((6, 3, 1, 5, 4, 6, 2))
    with torch.no_grad():
        beams_equal_rows(
            model.start_decoding(source, lengths), model.start_decoding(source, lengths), attention != "none"
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_base2_logits_with_a_hook_on_lm_head(dtype):
    model, calls = test_rnn_seq2seq.small("bahdanau").to(dtype), []
    source, lengths, _ = sample_pairs((6, 3, 1))
    model.lm_head.register_forward_hook(lambda *_: calls.append(1))
    with torch.no_grad():
        tokens = torch.randint(4, TGT_VOCAB_SIZE, (3,))
        logits = step_logits(model.start_decoding(source, lengths), tokens, base2=True)
        close(logits, model.start_decoding(source, lengths).step(tokens).float())
    assert len(calls) == 2


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("norm_first", [False, True])
def test_fused_steps_equal_reference(norm_first, seed):
    model = test_transformer.small(seed, norm_first=norm_first, num_decoder_layers=3)
    source, lengths, _ = sample_pairs((6, 3, 1, 5, 4, 6, 2))
    with torch.no_grad():
        fast = model.start_decoding(source, lengths)
        assert isinstance(fast, FusedDecoderState)
        beams_equal_rows(fast, reference_state(model, source, lengths), steps=20)  # longer than the initial buffer


@pytest.mark.parametrize("method", ["beam", "greedy"])
def test_searches_equal_reference(method):
    model = test_transformer.small(3, dropout=0.1)
    with torch.no_grad():
        model.lm_head.weight.mul_(3)  # far from uniform, so that no two tokens tie
    source, lengths, _ = sample_pairs((6, 3, 1, 5, 4, 6, 2))
    coverage = 0.2 if method == "beam" else 0.0
    options = DecodingConfig(
        method=method, num_best=3 if method == "beam" else 1, coverage_penalty=coverage, max_length=14
    )
    ours = decode(model, source, lengths, options)
    theirs = decode(ReferenceModel(model), source, lengths, options)
    assert_equal_hypotheses(ours, theirs)


class ReferenceModel:
    """A model that always uses the definition."""

    def __init__(self, model):
        self.model = model

    def start_decoding(self, source, lengths):
        return reference_state(self.model, source, lengths)


def test_beam_search_equals_loops_without_cache():
    model = test_transformer.small(5)
    with torch.no_grad():
        model.lm_head.weight.mul_(3)
    source, lengths, _ = sample_pairs((6, 3, 5))
    options = DecodingConfig(beam_size=3, num_best=1, max_length=9, max_length_ratio=0, max_length_offset=100)
    results = beam_search(model, source, lengths, options)
    for row, length in enumerate(lengths.tolist()):
        ids, score = search_in_loops(model, source[row : row + 1, :length], options)
        assert results[row][0].token_ids == ids
        assert results[row][0].score == pytest.approx(score, abs=1e-4)


@torch.no_grad()
def search_in_loops(model, source, options):
    """Beam search in loops: every prefix is decoded again for each token."""
    beams, finished = [([], 0.0)], []
    for length in range(1, options.max_length + 1):
        candidates = []
        for ids, total in beams:
            logits = model(source, torch.tensor([source.shape[1]]), torch.tensor([[BOS, *ids]]))
            for token, log_prob in enumerate(logits[0, -1].log_softmax(-1).tolist()):
                if token not in (BOS, PAD):
                    candidates.append(([*ids, token], total + log_prob))
        candidates.sort(key=lambda pair: -pair[1])
        finished += [(ids[:-1], total / options.length_norm(length)) for ids, total in candidates[:3] if ids[-1] == EOS]
        beams = [(ids, total) for ids, total in candidates if ids[-1] != EOS][:3]
        if len(finished) >= 3:
            break
    remaining = [(ids, total / options.length_norm(options.max_length)) for ids, total in beams]
    return max(finished or remaining, key=lambda pair: pair[1])


def test_changed_weights_are_noticed():
    model = test_transformer.small()
    source, lengths, target = sample_pairs()
    for change in (
        lambda: model.lm_head.weight.mul_(2),
        lambda: model.decoder.layers[1].self_attn.k_proj.weight.add_(0.3),
        lambda: model.load_state_dict({name: p + 0.1 for name, p in model.state_dict().items()}),
        lambda: setattr(model.decoder.layers[0].norm1, "weight", nn.Parameter(torch.rand(16))),
    ):
        with torch.no_grad():
            change()
            state = model.start_decoding(source, lengths)
            assert isinstance(state, FusedDecoderState)
            close(state.step(target[:, 0]), reference_state(model, source, lengths).step(target[:, 0]))


@pytest.mark.parametrize("kind", ["transformer", "rnn"])
def test_fused_optimizer_steps_are_noticed(kind):
    model = test_transformer.small() if kind == "transformer" else test_rnn_seq2seq.small()
    model.lm_head = nn.Linear(model.lm_head.in_features, 2**18 // model.lm_head.in_features + 1, bias=False)
    model.eval()
    source, lengths, target = sample_pairs()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, fused=True)
    for _ in range(2):
        with torch.no_grad():
            state = model.start_decoding(source, lengths)
            assert isinstance(state, FusedDecoderState) == (kind == "transformer")
            close(state.step(target[:, 0]), model(source, lengths, target[:, :1])[:, 0], atol=1e-3)
        for parameter in model.parameters():
            parameter.grad = torch.randn_like(parameter)
        optimizer.step()


def test_when_fusing_is_possible():
    source, lengths, _ = sample_pairs()

    def state_type(model):
        return type(model.start_decoding(source, lengths))

    model = test_transformer.small()
    assert state_type(model) is TransformerDecoderState  # gradients are enabled
    with torch.no_grad():
        assert state_type(model) is FusedDecoderState
        with register_watcher(lambda who, weights: None):
            assert state_type(model) is TransformerDecoderState
        handle = model.decoder.layers[0].feed_forward.register_forward_hook(lambda *_: None)
        assert state_type(model) is TransformerDecoderState
        handle.remove()
        assert state_type(model) is FusedDecoderState
        model.decoder.layers[0].feed_forward = nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.Linear(24, 16))
        assert state_type(model) is TransformerDecoderState
        assert state_type(test_transformer.small().train()) is TransformerDecoderState
        for make_self_attn in (
            lambda: MultiHead(16, 4, num_kv_heads=2),
            lambda: MultiHead(16, 4, normalize=lambda scores: softmax(scores)),
            lambda: MultiHead(16, 4, head_dim=6),
            lambda: MultiHead(16, 4, value_head_dim=2),
            lambda: MultiHead(16, 4, qk_norm=nn.RMSNorm),
            lambda: MultiHead(16, 4, add_bias_kv=True),
            lambda: MultiHead(16, 4, add_zero_attn=True),
            lambda: MultiHead(16, 4, out_bias=False),
        ):
            other = test_transformer.small(make_self_attn=make_self_attn)
            assert state_type(other) is TransformerDecoderState
            laws.steps_equal_forward(other)
        assert (
            state_type(test_transformer.small(make_self_attn=lambda: MultiHead(16, 4, dropout=0.2)))
            is FusedDecoderState
        )
        assert (
            state_type(test_transformer.small(make_self_attn=lambda: MultiHead(16, 4, bias=False))) is FusedDecoderState
        )
        dropping = test_transformer.small(make_self_attn=lambda: MultiHead(16, 4, normalize=Dropout(softmax, 0.1)))
        laws.steps_equal_forward(dropping)


def test_long_targets_extend_the_position_encodings():
    model = test_transformer.small()
    source, lengths, _ = sample_pairs()
    tokens = torch.randint(4, TGT_VOCAB_SIZE, (len(source), 40))
    with torch.no_grad():
        state = model.start_decoding(source, lengths)
        steps = torch.stack([state.step(tokens[:, t]) for t in range(40)], 1)
        close(steps, model(source, lengths, tokens), atol=1e-4)
    assert math.isfinite(float(steps.sum()))
