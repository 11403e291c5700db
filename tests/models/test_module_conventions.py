"""PyTorch's conventions: device=, dtype= and reset_parameters() of every module."""

import pytest
import torch
from torch import nn

from regard import attention as a
from regard import models
from regard.attention.module import reset_modules
from regard.models import hybrid_encoder, image_models, layers, ntm_controllers, rnn_seq2seq


def attention(query_dim=16, key_dim=16):
    return a.Attention(a.Additive(query_dim, key_dim, 8))


def pool(dim=8):
    return a.AttentionPool(attention(5, dim), query_dim=5)


def hybrid(**factory):
    return models.HybridEncoder(
        20,
        12,
        [
            hybrid_encoder.ConvLayer(12, **factory),
            hybrid_encoder.SelfAttentionLayer(12, 2, **factory),
            hybrid_encoder.RNNLayer(12, **factory),
        ],
        **factory,
    )


SIZES = {"embed_dim": 16, "num_heads": 2, "num_encoder_layers": 2, "ffn_dim": 24}
BUILD = {
    "RNNCell": lambda **f: layers.GRUCell(3, 4, 5, **f),
    "FeedForward": lambda **f: layers.FeedForward(4, 8, **f),
    "TokenEmbedding": lambda **f: layers.TokenEmbedding(9, 4, **f),
    "RNNEncoder": lambda **f: rnn_seq2seq.RNNEncoder(4, 6, num_layers=2, **f),
    "RNNSeq2Seq": lambda **f: models.RNNSeq2Seq(11, 13, attention(), embed_dim=8, hidden_dim=16, **f),
    "RNNSeq2Seq, tied": lambda **f: models.RNNSeq2Seq(
        11,
        13,
        attention(),
        embed_dim=8,
        hidden_dim=16,
        num_layers=2,
        order="luong",
        input_feeding=True,
        cell_type="lstm",
        tie_embeddings=True,
        **f,
    ),
    "Transformer": lambda **f: models.Transformer(11, 13, norm_first=True, **SIZES, **f),
    "Transformer, tied": lambda **f: models.Transformer(11, 13, tie_embeddings="output", **SIZES, **f),
    "Transformer, all tied": lambda **f: models.Transformer(13, 13, tie_embeddings="all", **SIZES, **f),
    "CausalLM": lambda **f: models.CausalLM(20, embed_dim=8, num_heads=2, num_layers=2, **f),
    "MaskedLM": lambda **f: models.MaskedLM(hybrid(**f), **f),
    "HybridEncoder": hybrid,
    "ConvBlock": lambda **f: hybrid_encoder.ConvBlock(8, **f),
    "RNNBlock": lambda **f: hybrid_encoder.RNNBlock(9, **f),
    "SelfAttentionBlock": lambda **f: hybrid_encoder.SelfAttentionBlock(8, 2, **f),
    "LocalAttentionBlock": lambda **f: hybrid_encoder.LocalAttentionBlock(8, 2, **f),
    "ConvBackbone": lambda **f: models.ConvBackbone(1, 24, width=8, **f),
    "AttentionPoolClassifier": lambda **f: models.AttentionPoolClassifier(
        10, pool(24), backbone=models.ConvBackbone(1, 24, width=8, **f), feature_dim=24, **f
    ),
    "VisualQAModel": lambda **f: models.VisualQAModel(
        image_models.GRUEncoder(20, 6, 16, **f), [attention(16, 8) for _ in range(2)], 5, feature_dim=8, **f
    ),
    "VisualQAModel, bag of words": lambda **f: models.VisualQAModel(
        image_models.BagOfWordsEncoder(20, 16, **f), [attention(16, 8)], 5, feature_dim=8, **f
    ),
    "ShowAttendTell": lambda **f: models.ShowAttendTell(
        11, attention(16, 8), feature_dim=8, embed_dim=8, hidden_dim=16, **f
    ),
    "HierarchicalAttentionNetwork": lambda **f: models.HierarchicalAttentionNetwork(
        20, 3, pool(), pool(), embed_dim=6, hidden_dim=8, **f
    ),
    "FlatDocumentClassifier": lambda **f: models.FlatDocumentClassifier(hybrid(**f), pool(12), 12, 3, **f),
    "NeuralTuringMachine": lambda **f: models.NeuralTuringMachine(4, 3, memory_rows=8, memory_width=5, **f),
    "NeuralTuringMachine, feed-forward": lambda **f: models.NeuralTuringMachine(
        4, 3, memory_rows=8, memory_width=5, controller="feedforward", **f
    ),
    "FeedForwardController": lambda **f: ntm_controllers.FeedForwardController(4, 5, **f),
    "LSTMBaseline": lambda **f: models.LSTMBaseline(4, 3, hidden_dim=6, num_layers=2, **f),
}


@pytest.mark.parametrize("name", BUILD)
def test_reset_parameters_equals_construction(name):
    torch.manual_seed(3)
    expected = BUILD[name]()
    next_number = torch.rand(())
    with torch.device("meta"):
        model = BUILD[name]()
    assert all(parameter.is_meta for parameter in model.parameters())
    model.to_empty(device="cpu")
    for tensor in (*model.parameters(), *model.buffers()):
        nn.init.constant_(tensor, 7) if tensor.is_floating_point() else tensor.detach().fill_(7)
    torch.manual_seed(3)
    reset_modules(model)
    assert torch.rand(()) == next_number
    for (key, ours), (_, theirs) in zip(model.state_dict().items(), expected.state_dict().items(), strict=True):
        assert torch.equal(ours, theirs), key


@pytest.mark.parametrize("name", BUILD)
def test_dtype_and_device(name):
    """Parameters of the model, not those of modules that are passed to it, have the dtype and the device."""
    model = BUILD[name](device="cpu", dtype=torch.float64)
    passed = ("attention", "pool.", "word_level.pool", "sentence_level.pool")
    for key, tensor in model.state_dict().items():
        if tensor.is_floating_point() and not key.startswith(passed):
            assert tensor.dtype == torch.float64, key


def test_attention_of_another_dtype_is_left_alone():
    model = models.RNNSeq2Seq(11, 13, attention(), embed_dim=8, hidden_dim=16, dtype=torch.float64)
    assert model.attention.score.key_proj.weight.dtype == torch.float32
    assert model.bridge.weight.dtype == torch.float64
