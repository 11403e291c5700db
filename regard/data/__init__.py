"""Text, as batches: readers, tokenizers, and sources that can be taken up again. Knows no model."""

from regard.data.downloads import download
from regard.data.pair_batches import BatchingConfig, PairBatch
from regard.data.pair_sources import GeneratedPairs, InMemoryPairs, StreamedPairs, iter_eval_batches
from regard.data.parallel import DataReport, ParallelFiles, SentencePair
from regard.data.tokenizer import Tokenizer
from regard.data.vocabulary import BOS_ID, EOS_ID, PAD_ID, UNK_ID

__all__ = [
    "BOS_ID",
    "EOS_ID",
    "PAD_ID",
    "UNK_ID",
    "BatchingConfig",
    "DataReport",
    "GeneratedPairs",
    "InMemoryPairs",
    "PairBatch",
    "ParallelFiles",
    "SentencePair",
    "StreamedPairs",
    "Tokenizer",
    "download",
    "iter_eval_batches",
]
