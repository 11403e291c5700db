"""Decoding: from anything that can take a step to translations with scores, alignments and the search itself.

    decode          a source, a model and `Decoding` options -> hypotheses: beam search, greedy, sampling
    force           a source and a translation -> its hypothesis
    look            hypotheses -> where the model looked while it wrote them, for `Alignment`
    aer, best_head  links of alignments against those that people made

No model is imported here: `Model` and `Steps` say what a model must promise.
"""

from regard.decoding.alignment import Alignment, WordAlignment, replace_unknown
from regard.decoding.alignment_error import (
    GoldAlignment,
    HeadError,
    alignment_error_rate,
    best_head,
    parse_gold,
    read_gold,
)
from regard.decoding.config import DecodingConfig
from regard.decoding.search import (
    attention_over_hypotheses,
    beam_search,
    decode,
    decode_with_trace,
    greedy,
    sample,
    score_targets,
)
from regard.decoding.types import Candidate, DecoderState, Hypothesis, SearchTrace, StepwiseModel

__all__ = [
    "Alignment",
    "Candidate",
    "DecoderState",
    "DecodingConfig",
    "GoldAlignment",
    "HeadError",
    "Hypothesis",
    "SearchTrace",
    "StepwiseModel",
    "WordAlignment",
    "alignment_error_rate",
    "attention_over_hypotheses",
    "beam_search",
    "best_head",
    "decode",
    "decode_with_trace",
    "greedy",
    "parse_gold",
    "read_gold",
    "replace_unknown",
    "sample",
    "score_targets",
]
