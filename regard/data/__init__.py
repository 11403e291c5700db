"""Text, as batches: readers, tokenizers, and sources that can be taken up again. Knows no model."""

from regard.data._filling import Filling
from regard.data.batch import BOS, EOS, PAD, UNK, Batch, Pair
from regard.data.batches import Corpus, Generated, Stream, in_order
from regard.data.download import fetch
from regard.data.readers import Parallel
from regard.data.report import Report
from regard.data.tokenizer import Tokenizer

__all__ = [
    "BOS",
    "EOS",
    "PAD",
    "UNK",
    "Batch",
    "Corpus",
    "Filling",
    "Generated",
    "Pair",
    "Parallel",
    "Report",
    "Stream",
    "Tokenizer",
    "fetch",
    "in_order",
]
