"""One constructor call, or more, for every public module of regard; `factory` is `device=` and `dtype=`."""

import torch
from torch import nn

from regard import attention as a
from regard import models
from regard.attention import projected
from regard.attention.module import ResettableModule
from regard.attention.normalizers.wrappers import NormalizerWrapper
from regard.attention.relative_positions import RelativePositionBias
from regard.attention.scores.base import FunctionScore, ScaledScore, SumScore
from regard.models import captioner, hierarchical, hybrid_encoder, image_models, layers, ntm, rnn_seq2seq
from regard.nn import MultiheadAttention
from regard.studies import costs
from regard.tasks import sequence_loss
from regard.testing import laws
from regard.training.trainer import Objective
from regard.viewing import PermutedWeights, UniformWeights

# Modules without a constructor of their own to test: base classes, and what wraps any model.
BASE_CLASSES = {
    ResettableModule,
    a.Normalizer,
    a.Score,
    NormalizerWrapper,
    RelativePositionBias,
    image_models.GridModel,
    layers.RNNCell,
    Objective,
    captioner.PartialSample,  # takes a tensor of the batch
    projected.KeyProjectedScore,  # created for one call
    laws.AttentionUnderTest,  # copies of a score and a normalizer, for the check of a law
    costs.MaterializedSelfAttention,  # a layer of fixed size, whose costs are measured
}


def attention(query_dim=16, key_dim=16, **factory):
    return a.Attention(a.Additive(query_dim, key_dim, 8, **factory))


def pool(dim=8, **factory):
    return a.AttentionPool(attention(5, dim, **factory), query_dim=5, **factory)


def hybrid(**factory):
    blocks = (
        hybrid_encoder.ConvLayer(12, **factory),
        hybrid_encoder.SelfAttentionLayer(12, 2, **factory),
        hybrid_encoder.RNNLayer(12, **factory),
    )
    return models.HybridEncoder(20, 12, blocks, **factory)


def seq2seq(**options):
    factory = {name: options[name] for name in ("device", "dtype") if name in options}
    return models.RNNSeq2Seq(11, 13, attention(**factory), embed_dim=8, hidden_dim=16, **options)


def plain(build):
    """A module without parameters, which takes neither device nor dtype."""
    return lambda **factory: build()


SIZES = {"embed_dim": 16, "num_heads": 2, "num_encoder_layers": 2, "ffn_dim": 24}
LAYER = {"embed_dim": 16, "num_heads": 2, "ffn_dim": 24}
NTM = {"memory_rows": 8, "memory_width": 5}
LUONG = {"num_layers": 2, "decoder_type": "luong", "input_feeding": True, "cell_type": "lstm", "tie_embeddings": True}
BUILD = {
    "Additive": lambda **f: a.Additive(4, 6, 8, **f),
    "Additive, without a query": lambda **f: a.Additive(None, 6, 8, **f),
    "Alibi": lambda **f: a.Alibi(6, **f),
    "Attention": lambda **f: a.Attention(a.Bilinear(4, 6, **f)),
    "AttentionPool": lambda **f: a.AttentionPool(a.Attention(a.Bilinear(6, 8, **f)), 6, **f),
    "Bias": plain(lambda: a.Bias(torch.zeros(2, 3))),
    "Bilinear": lambda **f: a.Bilinear(4, 6, **f),
    "Boxcar": plain(lambda: a.Boxcar(0.5)),
    "Concat": lambda **f: a.Concat(4, 6, 8, num_layers=3, **f),
    "Constant": plain(a.Constant),
    "Cosine": plain(lambda: a.Cosine(2.0)),
    "Cosine, learned": lambda **f: a.Cosine(2.0, learned=True, **f),
    "Dot": plain(a.Dot),
    "Dropout": plain(lambda: a.Dropout(a.softmax, 0.5)),
    "Energy": lambda **f: a.Energy(4, 6, **f),
    "Entmax": plain(lambda: a.Entmax(1.5)),
    "Epanechnikov": plain(lambda: a.Epanechnikov(0.5)),
    "FunctionScore": plain(lambda: FunctionScore(a.Dot())),
    "Gaussian": plain(lambda: a.Gaussian(0.5)),
    "Gaussian, learned": lambda **f: a.Gaussian(0.5, learned=True, **f),
    "GaussianWindow": plain(lambda: a.GaussianWindow(a.softmax, 3.0, 1.0)),
    "Gumbel": plain(lambda: a.Gumbel(0.5)),
    "Learned": lambda **f: a.Learned(10, 4, **f),
    "LocalM": lambda **f: a.LocalM(a.Bilinear(4, 6, **f), 2),
    "LocalP": lambda **f: a.LocalP(a.Additive(4, 6, 5, **f), 4, 8, 2, **f),
    "Location": lambda **f: a.Location(4, 9, **f),
    "MaxPool": plain(a.MaxPool),
    "MultiheadAttention": lambda **f: MultiheadAttention(16, 4, add_bias_kv=True, **f),
    "MultiheadAttention, other sizes": lambda **f: MultiheadAttention(16, 4, kdim=12, vdim=10, **f),
    "MultiHead": lambda **f: a.MultiHead(12, 6, 2, **f),
    "MultiHead, all options": lambda **f: a.MultiHead(
        12,
        4,
        2,
        head_dim=5,
        value_head_dim=2,
        query_dim=7,
        qk_norm=nn.RMSNorm,
        add_bias_kv=True,
        add_zero_attn=True,
        **f,
    ),
    "MultiHead with a score": lambda **f: a.MultiHead(12, 3, score=a.Additive(4, 4, 5, **f), dropout=0.1, **f),
    "PermutedWeights": plain(lambda: PermutedWeights(a.softmax)),
    "RelativeBias": lambda **f: a.RelativeBias(3, **f),
    "Rotary": lambda **f: a.Rotary(a.Bilinear(4, 4, **f)),
    "Sample": plain(a.Sample),
    "ScaledDot": plain(a.ScaledDot),
    "ScaledScore": lambda **f: ScaledScore(a.Bilinear(4, 6, **f), 0.5),
    "SigmoidSum": plain(a.SigmoidSum),
    "Sinusoidal": plain(lambda: a.Sinusoidal(8)),
    "StraightThrough": plain(lambda: a.StraightThrough(a.Sample())),
    "SoftCap": lambda **f: a.SoftCap(a.Bilinear(4, 6, **f), 2.0),
    "WithSink": lambda **f: a.WithSink(a.softmax, 3, **f),
    "SumScore": lambda **f: SumScore(a.Bilinear(4, 4, **f), a.RelativeBias(3, **f)),
    "Temperature": plain(lambda: a.Temperature(0.5)),
    "TopK": plain(lambda: a.TopK(3)),
    "UniformWeights": plain(UniformWeights),
    "FastDropout": plain(lambda: layers.FastDropout(0.5)),
    "FeedForward": lambda **f: layers.FeedForward(4, 8, **f),
    "GRUCell": lambda **f: layers.GRUCell(3, 4, 5, **f),
    "LSTMCell": lambda **f: layers.LSTMCell(3, 4, 5, **f),
    "TokenEmbedding": lambda **f: layers.TokenEmbedding(9, 4, **f),
    "RNNEncoder": lambda **f: rnn_seq2seq.RNNEncoder(4, 6, num_layers=2, **f),
    "RNNSeq2Seq": seq2seq,
    "RNNSeq2Seq, tied": lambda **f: seq2seq(**LUONG, **f),
    "Transformer": lambda **f: models.Transformer(11, 13, norm_first=True, **SIZES, **f),
    "Transformer, tied": lambda **f: models.Transformer(11, 13, tie_embeddings="output", **SIZES, **f),
    "Transformer, all tied": lambda **f: models.Transformer(13, 13, tie_embeddings="all", **SIZES, **f),
    "Transformer, inputs tied": lambda **f: models.Transformer(13, 13, tie_embeddings="inputs", **SIZES, **f),
    "Transformer, BART": lambda **f: models.Transformer(
        13,
        13,
        tie_embeddings="all",
        make_embed_norm=lambda: torch.nn.LayerNorm(16, **f),
        output_bias=True,
        make_positions=lambda: a.Learned(9, 16, **f),
        embed_scale=1.0,
        **SIZES,
        **f,
    ),
    "ScaledRMSNorm": lambda **f: layers.ScaledRMSNorm(4, scale=0.5, **f),
    "FeedForward, gated": lambda **f: layers.FeedForward(4, 8, activation="silu", gated=True, bias=False, **f),
    "TransformerDecoder": lambda **f: models.TransformerDecoder(**LAYER, num_layers=2, **f),
    "TransformerDecoderLayer": lambda **f: models.TransformerDecoderLayer(**LAYER, **f),
    "TransformerEncoder": lambda **f: models.TransformerEncoder(**LAYER, num_layers=2, **f),
    "TransformerEncoderLayer": lambda **f: models.TransformerEncoderLayer(**LAYER, **f),
    "CausalLM": lambda **f: models.CausalLM(20, embed_dim=8, num_heads=2, num_layers=2, **f),
    "Bert": lambda **f: models.Bert(11, embed_dim=8, num_heads=2, num_layers=1, max_positions=6, dropout=0.0, **f),
    "BertForMaskedLM": lambda **f: models.BertForMaskedLM(BUILD["Bert"](**f), **f),
    "MaskedLM": lambda **f: models.MaskedLM(hybrid(**f), **f),
    "HybridEncoder": hybrid,
    "ConvBlock": lambda **f: hybrid_encoder.ConvBlock(8, **f),
    "ConvLayer": lambda **f: hybrid_encoder.ConvLayer(8, **f),
    "RNNBlock": lambda **f: hybrid_encoder.RNNBlock(9, **f),
    "RNNLayer": lambda **f: hybrid_encoder.RNNLayer(8, **f),
    "SelfAttentionBlock": lambda **f: hybrid_encoder.SelfAttentionBlock(8, 2, **f),
    "SelfAttentionLayer": lambda **f: hybrid_encoder.SelfAttentionLayer(8, 2, **f),
    "LocalAttentionBlock": lambda **f: hybrid_encoder.LocalAttentionBlock(8, 2, **f),
    "ConvBackbone": lambda **f: models.ConvBackbone(1, 24, width=8, **f),
    "AttentionPoolClassifier": lambda **f: models.AttentionPoolClassifier(
        10, pool(24, **f), backbone=models.ConvBackbone(1, 24, width=8, **f), feature_dim=24, **f
    ),
    "GRUEncoder": lambda **f: image_models.GRUEncoder(20, 6, 16, **f),
    "BagOfWordsEncoder": lambda **f: image_models.BagOfWordsEncoder(20, 16, **f),
    "VisualQAModel": lambda **f: models.VisualQAModel(
        image_models.GRUEncoder(20, 6, 16, **f), [attention(16, 8, **f) for _ in range(2)], 5, feature_dim=8, **f
    ),
    "VisualQAModel, bag of words": lambda **f: models.VisualQAModel(
        image_models.BagOfWordsEncoder(20, 16, **f), [attention(16, 8, **f)], 5, feature_dim=8, **f
    ),
    "ShowAttendTell": lambda **f: models.ShowAttendTell(
        11, attention(16, 8, **f), feature_dim=8, embed_dim=8, hidden_dim=16, **f
    ),
    "HANLevel": lambda **f: hierarchical.HANLevel(6, 8, pool(**f), **f),
    "HierarchicalAttentionNetwork": lambda **f: models.HierarchicalAttentionNetwork(
        20, 3, pool(**f), pool(**f), embed_dim=6, hidden_dim=8, **f
    ),
    "FlatDocumentClassifier": lambda **f: models.FlatDocumentClassifier(hybrid(**f), pool(12, **f), 12, 3, **f),
    "NeuralTuringMachine": lambda **f: models.NeuralTuringMachine(4, 3, **NTM, **f),
    "NeuralTuringMachine, feed-forward": lambda **f: models.NeuralTuringMachine(
        4, 3, **NTM, controller="feedforward", **f
    ),
    "FeedForwardController": lambda **f: ntm.FeedForwardController(4, 5, **f),
    "LSTMController": lambda **f: ntm.LSTMController(4, 5, **f),
    "LSTMBaseline": lambda **f: models.LSTMBaseline(4, 3, hidden_dim=6, num_layers=2, **f),
    "NextTokenLoss": plain(sequence_loss.NextTokenLoss),
    "CaptionLoss": plain(sequence_loss.CaptionLoss),
    "ReinforceLoss": plain(sequence_loss.ReinforceLoss),
    "HardCaptionLoss": plain(sequence_loss.HardCaptionLoss),
}
# Modules whose parameters are all those of modules that the caller passes.
WITHOUT_OWN_PARAMETERS = {a.Attention, a.LocalM, a.Rotary, a.SoftCap, ScaledScore, SumScore}
