"""Data as batches: readers of files, tokenizers, and sources of batches that can be resumed. Independent of models."""

from regard.data.downloads import download
from regard.data.pair_batches import BatchingConfig, PairBatch
from regard.data.pair_sources import GeneratedPairs, InMemoryPairs, StreamedPairs, iter_eval_batches
from regard.data.parallel import DataReport, ParallelFiles, SentencePair
from regard.data.sources import GeneratedBatches, InMemoryBatches
from regard.data.tokenizer import Tokenizer
from regard.data.vocabulary import BOS_ID, EOS_ID, PAD_ID, UNK_ID

__all__ = [
    "BOS_ID", "EOS_ID", "PAD_ID", "UNK_ID", "BatchingConfig", "DataReport", "GeneratedBatches", "GeneratedPairs",
    "InMemoryBatches", "InMemoryPairs", "PairBatch", "ParallelFiles", "SentencePair", "StreamedPairs", "Tokenizer",
    "download", "iter_eval_batches",
]  # fmt: skip
