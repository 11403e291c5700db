"""Fast decoding: exact shortcuts for the decoder states of the models.

The definitions are `RNNDecoderState` and `TransformerDecoderState`; `start_decoding` of the models chooses.
"""

from regard.models.fast_decoding.rnn import FusedRNNDecoder, FusedRNNDecoderState, fuse_rnn_decoder
from regard.models.fast_decoding.transformer import FusedDecoder, fuse_decoder
from regard.models.fast_decoding.transformer_state import FusedDecoderState

__all__ = [
    "FusedDecoder", "FusedDecoderState", "FusedRNNDecoder", "FusedRNNDecoderState", "fuse_decoder",
    "fuse_rnn_decoder",
]  # fmt: skip
