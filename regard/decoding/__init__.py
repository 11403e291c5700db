"""Decoding for any model that can take a step: hypotheses with scores, traces and alignments.

    decode, beam_search, greedy, sample    from sources to hypotheses
    score_targets                          scores of given targets
    attention_over_hypotheses              attention weights, for `Alignment`
    alignment_error_rate, best_head        links of alignments against links by people

The package imports no model: `StepwiseModel` and `DecoderState` say what a model must offer.
"""

from regard.decoding.alignment import Alignment, WordAlignment, replace_unknown
from regard.decoding.config import DecodingConfig
from regard.decoding.forced import attention_over_hypotheses, score_targets
from regard.decoding.gold import GoldAlignment, HeadError, alignment_error_rate, best_head, parse_gold, read_gold
from regard.decoding.search import beam_search, decode, decode_with_trace, greedy, sample
from regard.decoding.streaming import ObservedModel, iterate_emitted
from regard.decoding.types import (
    AttendingDecoderState,
    Candidate,
    DecoderState,
    FastDecoderState,
    Hypothesis,
    SearchTrace,
    StepwiseModel,
)

__all__ = [
    "Alignment", "AttendingDecoderState", "Candidate", "DecoderState", "DecodingConfig", "FastDecoderState",
    "GoldAlignment", "HeadError", "Hypothesis", "ObservedModel", "SearchTrace", "StepwiseModel", "WordAlignment",
    "alignment_error_rate", "attention_over_hypotheses", "beam_search", "best_head", "decode", "decode_with_trace",
    "greedy", "iterate_emitted", "parse_gold", "read_gold", "replace_unknown", "sample", "score_targets",
]  # fmt: skip
