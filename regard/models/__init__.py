"""Models of published papers, each in one file that follows the paper."""

from importlib import import_module

from regard._imports import require_extra
from regard.models.bert import Bert, BertForMaskedLM
from regard.models.captioner import ShowAttendTell
from regard.models.hierarchical import FlatDocumentClassifier, HierarchicalAttentionNetwork
from regard.models.hybrid_encoder import HybridEncoder
from regard.models.image_models import AttentionPoolClassifier, ConvBackbone, VisualQAModel
from regard.models.language_models import CausalLM, MaskedLM
from regard.models.ntm import LSTMBaseline, NeuralTuringMachine
from regard.models.rnn_seq2seq import RNNSeq2Seq
from regard.models.transformer import Transformer
from regard.models.transformer_layers import (
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)

__all__ = [
    "AttentionPoolClassifier", "Bert", "BertForMaskedLM", "CausalLM", "ConvBackbone", "FlatDocumentClassifier",
    "HierarchicalAttentionNetwork", "HybridEncoder", "LSTMBaseline", "MaskedLM", "NeuralTuringMachine", "RNNSeq2Seq",
    "ShowAttendTell", "Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder",
    "TransformerEncoderLayer", "VisualQAModel",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name in ("KernelRegression", "OutOfReachWarning"):  # they need scikit-learn, the other models do not
        require_extra("sklearn", extra="sklearn")
        return getattr(import_module("regard.models.kernel_regression"), name)
    raise AttributeError(f"module 'regard.models' has no attribute {name!r}")
