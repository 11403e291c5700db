"""Plain text as passages of tokens, batches of them, and random masking."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, groupby
from random import Random
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Generator, Tensor

from regard.data.parallel import TextReport, describe_unknown, pluralize
from regard.data.sources import IntArray, ResumableBatches, TensorBatch, data_fingerprint, shuffle, split_by_tokens
from regard.data.text_files import Paths, TextFiles, read_lines
from regard.data.tokenizer import RaggedArray, Tokenizer
from regard.data.vocabulary import BOS_ID, EOS_ID, UNK_ID
from regard.errors import DataError, require_choice

__all__ = ["MaskedTokens", "PassageBatches", "PassageReport", "PlainTextFiles", "TextBatch", "mask_tokens"]

SEPARATORS = ("blank", "line")
MASK_RATE, RANDOM_RATE = 0.8, 0.1  # of the chosen tokens; the others stay as they are


class PlainTextFiles(TextFiles):
    """Documents of plain text from files, compressed or not; every iteration reads the files again.

    Args:
        paths: one file or more.
        separator: `blank` (blank lines separate documents) or `line` (each line is a document).

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> path = Path(tempfile.mkdtemp(), "a.txt")
        >>> _ = path.write_text("Once upon\\na time.\\n\\nThe end.\\n")
        >>> list(PlainTextFiles([path])), len(list(PlainTextFiles([path], separator="line")))
        (['Once upon\\na time.', 'The end.'], 3)
    """

    def __init__(self, paths: Paths, separator: str = "blank") -> None:
        super().__init__(paths)
        self.separator = separator
        require_choice("separator", separator, SEPARATORS)

    def __iter__(self) -> Iterator[str]:
        for path in self.paths:
            groups = groupby(read_lines(path), lambda line: bool(line.strip()))
            passages = (lines for is_text, lines in groups if is_text)
            yield from chain.from_iterable(passages) if self.separator == "line" else map("\n".join, passages)


@dataclass(frozen=True)
class TextBatch(TensorBatch):
    """Passages of similar length, padded with `PAD_ID`.

    A passage begins with `BOS_ID` or, in the middle of a document, with the last token of the passage before; so each
    token but the first of a row is predicted, exactly once in an epoch.

    Args:
        token_ids: the passages.
        lengths: their lengths.

    Shape:
        token_ids: (batch, seq_len), lengths: (batch,).

    Example:
        >>> TextBatch(torch.tensor([[2, 7, 8], [2, 9, 0]]), torch.tensor([3, 2])).num_tokens
        3
    """

    token_ids: Int[Tensor, "batch seq_len"]
    lengths: Int[Tensor, " batch"]
    padded: ClassVar[Mapping[str, str]] = {"token_ids": "lengths"}


@dataclass
class PassageReport(TextReport):
    """Counts of the text that was read; nothing is left out.

    Args:
        read: documents that were read.
        passages: passages they were split into.
        tokens: their tokens.
        characters: their characters.
        unknown: tokens that are not in the vocabulary.

    Example:
        >>> print(PassageReport(read=2, passages=3, tokens=40, characters=170, unknown=4))
        2 documents read (170 characters): 40 tokens in 3 passages; 4 of 40 tokens (10 %) are not in the vocabulary.
    """

    read: int = 0
    passages: int = 0
    tokens: int = 0
    characters: int = 0
    unknown: int = 0

    def __str__(self) -> str:
        size = f"{pluralize(self.read, 'document')} read ({pluralize(self.characters, 'character')})"
        parts = [f"{size}: {pluralize(self.tokens, 'token')} in {pluralize(self.passages, 'passage')}"]
        if self.unknown:
            parts.append(describe_unknown(self.unknown, self.tokens, "token"))
        return "; ".join(parts) + "."


class PassageBatches(ResumableBatches[TextBatch]):
    """Documents in memory, split into passages; an epoch is each passage once, in batches of similar length.

    Args:
        texts: the documents.
        tokenizer: the tokenizer.
        length: tokens of a passage, after its first.
        max_tokens: the size of a batch: rows x longest passage.
        max_rows: the number of passages in a batch, in place of `max_tokens`.
        seed: seed of the order.
        preprocess: applied to a text before the tokenizer, for instance to separate punctuation.

    Raises:
        DataError: there is no text, or a passage does not fit into a batch.

    Example:
        >>> tokenizer = Tokenizer.train(["a rose is a rose"], model_type="word", vocab_size=10)
        >>> data = PassageBatches(["a rose is a rose", "is"], tokenizer, length=4, max_tokens=64)
        >>> print(data.report)
        2 documents read (20 characters): 8 tokens in 3 passages.
        >>> batch, position = next(data.batches())
        >>> len(batch), batch.num_tokens, position["epoch"]
        (3, 8, 1)
    """

    def __init__(
        self,
        texts: Iterable[str],
        tokenizer: Tokenizer,
        *,
        length: int = 256,
        max_tokens: int = 4096,
        max_rows: int | None = None,
        seed: int = 0,
        preprocess: Callable[[str], str] = str,
    ) -> None:
        self.report, self._max_tokens, self._max_rows, self._seed = PassageReport(), max_tokens, max_rows, seed
        self.name = str(texts) if isinstance(texts, PlainTextFiles) else "the text"
        if max_rows is None and max_tokens < length + 1:
            problem = f"a passage takes {length + 1:,} tokens, but a batch holds {max_tokens:,}"
            raise DataError(f"{problem}; raise batch_tokens.")
        # all texts in one array; a passage is a range that begins at the last token of the one before
        ids, starts, lengths, total = [], [], [], 0
        for text in texts:
            document = np.array([BOS_ID, *tokenizer.encode(preprocess(text)), EOS_ID], dtype=np.int32)
            self.report.read += 1
            self.report.tokens += len(document) - 1
            self.report.unknown += int((document == UNK_ID).sum())
            # the end of a document counts as a character, as it counts as a token
            self.report.characters += 1 + len(text if tokenizer.model_type == "char" else " ".join(text.split()))
            offsets = np.arange(0, len(document) - 1, length)
            ids.append(document)
            starts.append(total + offsets)
            lengths.append(np.minimum(len(document) - offsets, length + 1))
            total += len(document)
        if not ids:
            raise DataError(f"There is nothing to read: {self.name} is empty.")
        self._passages = RaggedArray(np.concatenate(ids), np.concatenate(starts), np.concatenate(lengths))
        self.report.passages = len(self)
        size = {"max_tokens": max_tokens} if max_rows is None else {"max_rows": max_rows}
        options = {"vocab_size": len(tokenizer), "length": length, **size, "seed": seed}
        self.fingerprint = data_fingerprint(options | {"token_ids": self._passages.values})

    def __len__(self) -> int:
        return len(self._passages.lengths)

    def make_batch(self, indices: IntArray) -> TextBatch:
        """Collate the passages of these indices."""
        return TextBatch(*self._passages.padded(indices))

    def iter_eval_batches(self) -> Iterator[TextBatch]:
        """Iterate over every passage once, shortest first, for evaluation.

        Returns:
            An iterator over batches.
        """
        order = np.argsort(self._passages.lengths, kind="stable")
        return map(self.make_batch, split_by_tokens(order, self._passages.lengths, self._max_tokens))

    def _plan_batches(self, epoch: int) -> list[IntArray]:
        """Plan batches of passages of similar length, in random order."""
        rng = Random(f"{self._seed} {epoch}")
        order = np.argsort([length + rng.random() for length in self._passages.lengths.tolist()], kind="stable")
        return shuffle(split_by_tokens(order, self._passages.lengths, self._max_tokens, max_rows=self._max_rows), rng)


class MaskedTokens(NamedTuple):
    """Token ids with masks, and the positions to predict.

    Args:
        token_ids: the input of the model.
        target_mask: whether a token is predicted.

    Shape:
        Both (batch, seq_len).

    Example:
        >>> MaskedTokens(torch.tensor([[2, 10]]), torch.tensor([[False, True]])).target_mask.sum().item()
        1
    """

    token_ids: Int[Tensor, "batch seq_len"]
    target_mask: Bool[Tensor, "batch seq_len"]


def mask_tokens(batch: TextBatch, mask_prob: float, mask_id: int, generator: Generator | None = None) -> MaskedTokens:
    """Choose tokens to predict, and mask most of them.

    Of the chosen tokens, 80 % become the mask, 10 % a random token and 10 % stay, so that any visible token may be
    wrong. Special and unknown tokens are never chosen; of a passage with others, at least one is.

    Args:
        batch: the passages.
        mask_prob: the probability that a token is chosen.
        mask_id: the id of the mask, the number after the last of the vocabulary.
        generator: the source of randomness.

    Returns:
        The input of the model and the positions to predict.

    Reference:
        Devlin et al. (2019), "BERT", arXiv 1810.04805, section 3.1.

    Example:
        >>> batch = TextBatch(torch.tensor([[2, 7, 8, 9, 3]]), torch.tensor([5]))
        >>> mask_tokens(batch, mask_prob=1.0, mask_id=10).target_mask.int().tolist()
        [[0, 1, 1, 1, 0]]
    """
    ids, device = batch.token_ids, batch.token_ids.device
    draws = torch.rand(ids.shape, generator=generator).to(device)
    inside = torch.arange(ids.shape[1], device=device) < batch.lengths[:, None]
    is_eligible = inside & (ids > EOS_ID)
    is_lowest = draws == draws.masked_fill(~is_eligible, 2.0).amin(1, keepdim=True)
    target_mask = is_eligible & ((draws < mask_prob) | is_lowest)
    choice = torch.rand(ids.shape, generator=generator).to(device)
    random_ids = torch.randint(EOS_ID + 1, mask_id, ids.shape, generator=generator).to(device)
    masked = torch.where(target_mask & (choice < MASK_RATE), mask_id, ids)
    is_random = target_mask & (choice >= MASK_RATE) & (choice < MASK_RATE + RANDOM_RATE)
    return MaskedTokens(torch.where(is_random, random_ids, masked), target_mask)
