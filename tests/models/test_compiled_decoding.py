"""torch.compile of decoding: at most 2 recompilations, whatever the lengths of sources and targets."""

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from regard.attention import Additive, Alibi, Attention, KVCache, MultiHead, Rotary, ScaledDot, causal
from regard.models import CausalLM, RNNSeq2Seq, Transformer
from regard.models.language_models import CausalDecoderState
from regard.models.rnn_decoding import RNNDecoderState
from regard.models.transformer import TransformerDecoderState

pytestmark = pytest.mark.bare
NUM_STEPS = 20  # a cache of keys grows once


@pytest.fixture(autouse=True)
def _fresh():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


ATTENTIONS = {
    "default": lambda: MultiHead(16, 4),
    "grouped, rotary": lambda: MultiHead(16, 4, 2, score=Rotary()),
    "alibi": lambda: MultiHead(16, 4, score=ScaledDot() + Alibi(4)),
    "additive": lambda: MultiHead(16, 4, score=Additive(4, 4, 5)),
}


@pytest.mark.parametrize("name", ATTENTIONS)
@torch.no_grad()
def test_a_cache_of_any_length(name):
    attention, counter = ATTENTIONS[name]().eval(), CompileCounter()
    compiled = torch.compile(
        lambda x, cache: attention(x, mask=causal(), cache=cache).context, backend=counter, fullgraph=True
    )
    for _ in range(2):
        x, cache = torch.randn(2, NUM_STEPS, 16), KVCache()
        steps = [compiled(x[:, i : i + 1], cache) for i in range(NUM_STEPS)]
        torch.testing.assert_close(torch.cat(steps, 1), attention(x, mask=causal()).context)
    assert counter.frame_count <= 3  # the first compilation and 2 more


@torch.no_grad()
def test_a_cache_that_is_filled_without_a_compiler():
    attention = MultiHead(16, 4).eval()
    x, cache = torch.randn(2, 9, 16), KVCache()
    compiled = torch.compile(lambda x: attention(x, mask=causal(), cache=cache).context, backend="eager")
    steps = [attention(x[:, :4], mask=causal(), cache=cache).context, compiled(x[:, 4:5]), compiled(x[:, 5:6])]
    steps += [attention(x[:, 6:], mask=causal(), cache=cache).context]
    torch.testing.assert_close(torch.cat(steps, 1), attention(x, mask=causal()).context)


def make_source(length):
    return torch.randint(4, 11, (2, length)), torch.tensor([length, 3])


def transformer():
    model = Transformer(11, 13, embed_dim=16, num_heads=2, num_encoder_layers=2, ffn_dim=32).eval()
    return lambda source, lengths: TransformerDecoderState(model, model.encode(source, lengths), lengths)


def rnn():
    model = RNNSeq2Seq(11, 13, Attention(Additive(16, 16, 8)), embed_dim=8, hidden_dim=16).eval()
    return lambda source, lengths: RNNDecoderState(model, *model.encode(source, lengths))


def language_model():
    model = CausalLM(13, embed_dim=16, num_heads=2, num_layers=2, ffn_dim=32).eval()
    return lambda prefix, _: CausalDecoderState(model, prefix)


# An RNN has graph breaks, at a lock around the cached weights of its output.
MODELS = {"Transformer": (transformer, True), "RNNSeq2Seq": (rnn, False), "CausalLM": (language_model, True)}


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_sources_and_targets_of_any_length(name):
    build, fullgraph = MODELS[name]
    start, counter = build(), CompileCounter()
    compiled = torch.compile(
        lambda state, tokens: state.step(tokens), backend=counter, fullgraph=fullgraph, dynamic=True
    )
    for length in (5, 9, 4):
        source = make_source(length)
        actual, expected = start(*source), start(*source)
        for tokens in torch.randint(4, 11, (NUM_STEPS, 2)):
            torch.testing.assert_close(compiled(actual, tokens), expected.step(tokens))
    assert counter.frame_count <= 3
