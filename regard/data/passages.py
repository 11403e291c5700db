"""Plain text as passages of tokens, epoch after epoch, that can be taken up again at any position.

Words hidden by chance, for a model that learns to fill them in.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.data.batching import IntArray, RaggedArray, split_by_tokens
from regard.data.parallel import pluralize
from regard.data.text_files import read_lines
from regard.data.tokenizer import Tokenizer
from regard.data.vocabulary import BOS_ID, EOS_ID, UNK_ID
from regard.errors import DataError, UsageError

DataPosition = dict[str, Any]


class PlainTextFiles:
    """Documents of plain text from files, as often as one asks; also packed, as .gz or .xz.

        apart="blank"    blank lines stand between documents
        apart="line"     each line is one

    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp(), "a.txt")
    >>> _ = file.write_text("Once upon\\na time.\\n\\nThe end.\\n")
    >>> list(PlainTextFiles([file])), len(list(PlainTextFiles([file], separator="line")))
    (['Once upon\\na time.', 'The end.'], 3)
    """

    def __init__(self, paths: Sequence[str | PathLike[str]], separator: str = "blank") -> None:
        self.paths, self.separator = [Path(path) for path in paths], separator
        if not self.paths:
            raise DataError("Plain text comes from one file or more, and none is named.")
        if separator not in ("blank", "line"):
            raise UsageError(f"apart={separator!r} is not one of blank, line.")

    def __str__(self) -> str:
        return " and ".join(map(str, self.paths))

    def __iter__(self) -> Iterator[str]:
        for path in self.paths:
            if self.separator == "line":
                yield from (line for line in read_lines(path) if line.strip())
                continue
            kept: list[str] = []
            for line in read_lines(path):
                if line.strip():
                    kept.append(line)
                elif kept:
                    yield "\n".join(kept)
                    kept = []
            if kept:
                yield "\n".join(kept)


@dataclass(frozen=True)
class TextBatch:
    """Passages of similar length, filled up with PAD.

    A passage begins with BOS or, in the middle of a document, with the last token of the passage before; so each
    token but the first of a row is there to be predicted, and once.
    """

    token_ids: Int[Tensor, "rows length"]
    lengths: Int[Tensor, " rows"]

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def num_tokens(self) -> int:
        """How many tokens there are to predict."""
        return int(self.lengths.sum()) - len(self)

    def to(self, device: torch.device | str) -> TextBatch:
        return replace(self, token_ids=self.token_ids.to(device), lengths=self.lengths.to(device))

    def shard(self, rank: int, world_size: int) -> TextBatch:
        """The share of one of `world` processes: every world-th row, without the columns it does not need."""
        lengths = self.lengths[rank::world_size]
        longest = int(lengths.max()) if len(lengths) else 0
        return TextBatch(self.token_ids[rank::world_size, :longest], lengths)


@dataclass
class PassageReport:
    """How much text was read, and what it became; nothing is left out.

    >>> print(PassageReport(read=2, passages=3, tokens=40, characters=170, unknown=4))
    2 documents read (170 characters): 40 tokens in 3 passages; 4 tokens (10.0 %) are not in the vocabulary.
    """

    read: int = 0
    passages: int = 0
    tokens: int = 0
    characters: int = 0
    unknown: int = 0

    def as_dict(self) -> dict[str, object]:
        """The same as plain values, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        what = f"{pluralize(self.read, 'document')} read ({pluralize(self.characters, 'character')})"
        parts = [f"{what}: {pluralize(self.tokens, 'token')} in {pluralize(self.passages, 'passage')}"]
        if self.unknown:
            share = 100 * self.unknown / self.tokens
            are = "is" if self.unknown == 1 else "are"
            parts.append(f"{pluralize(self.unknown, 'token')} ({share:.1f} %) {are} not in the vocabulary")
        return "; ".join(parts) + "."


class PassageBatches:
    """Documents held in memory as passages of at most `length` tokens after the first; an epoch is each once.

    `spaced` is what a text goes through before the tokenizer. Passages of near lengths come in one batch, whose rows
    times its longest are at most `tokens`.

    >>> tokenizer = Tokenizer.train(["a rose is a rose"], model_type="word", vocab_size=10)
    >>> text = PassageBatches(["a rose is a rose", "is"], tokenizer, length=4, max_tokens=64)
    >>> print(text.report)
    2 documents read (20 characters): 8 tokens in 3 passages.
    >>> batch, position = next(text.batches())
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
        seed: int = 0,
        preprocess: Callable[[str], str] = str,
    ) -> None:
        self.report, self._max_tokens, self._seed = PassageReport(), max_tokens, seed
        self._name = str(texts) if isinstance(texts, PlainTextFiles) else "the text"
        if max_tokens < length + 1:
            raise DataError(
                f"a passage takes {length + 1:,} tokens, but a batch holds {max_tokens:,}; raise batch_tokens."
            )
        self._passages = self._split_passages(texts, tokenizer, length, preprocess)
        self._data_fingerprint = zlib.crc32(repr((len(tokenizer), length, max_tokens, seed)).encode())
        self._data_fingerprint = zlib.crc32(self._passages.values.tobytes(), self._data_fingerprint)

    def __len__(self) -> int:
        return len(self._passages.lengths)

    def batches(self, position: DataPosition | None = None) -> Iterator[tuple[TextBatch, DataPosition]]:
        """Batches without end, each with the position after it; from a position, exactly what follows it."""
        epoch, done = self._resume_point(position)
        while True:
            plan = self._plan_batches(epoch)
            for number in range(done, len(plan)):
                last = number + 1 == len(plan)
                place = {"epoch": epoch + 1, "batch": 0} if last else {"epoch": epoch, "batch": number + 1}
                yield (
                    TextBatch(*self._passages.padded(plan[number])),
                    {**place, "data": f"{self._data_fingerprint:08x}"},
                )
            epoch, done = epoch + 1, 0

    def iter_eval_batches(self) -> Iterator[TextBatch]:
        """Every passage once, the shortest first: for evaluation."""
        order = np.argsort(self._passages.lengths, kind="stable")
        for which in split_by_tokens(order, self._passages.lengths, self._max_tokens):
            yield TextBatch(*self._passages.padded(which))

    def _split_passages(
        self, texts: Iterable[str], tokenizer: Tokenizer, length: int, preprocess: Callable[[str], str]
    ) -> RaggedArray:
        """All tokens in one array; a passage is a stretch of it that begins on the last token before."""
        numbers, starts, lengths, total = [], [], [], 0
        for text in texts:
            ids = np.array([BOS_ID, *tokenizer.encode(preprocess(text)), EOS_ID], dtype=np.int32)
            self._count_document(text, ids, tokenizer)
            begins = np.arange(0, len(ids) - 1, length)
            numbers.append(ids)
            starts.append(total + begins)
            lengths.append(np.minimum(len(ids) - begins, length + 1))
            total += len(ids)
        if not numbers:
            raise DataError(f"There is nothing to read: {self._name} is empty.")
        rows = RaggedArray(np.concatenate(numbers), np.concatenate(starts), np.concatenate(lengths))
        self.report.passages = len(rows.lengths)
        return rows

    def _count_document(
        self, text: str, ids: np.ndarray[Any, np.dtype[np.int32]], tokenizer: Tokenizer
    ) -> None:
        self.report.read += 1
        self.report.tokens += len(ids) - 1
        self.report.unknown += int((ids == UNK_ID).sum())
        # the end of a document counts as a character, as it counts as a token
        self.report.characters += 1 + len(text if tokenizer.model_type == "char" else " ".join(text.split()))

    def _plan_batches(self, epoch: int) -> list[IntArray]:
        """Passages of near lengths together, in an order that chance decides."""
        random = Random(f"{self._seed} {epoch}")
        noise = np.array([random.random() for _ in range(len(self))])
        plan = split_by_tokens(
            np.argsort(self._passages.lengths + noise, kind="stable"),
            self._passages.lengths,
            self._max_tokens,
        )
        shuffled = sorted(range(len(plan)), key=[random.random() for _ in plan].__getitem__)
        return [plan[place] for place in shuffled]

    def _resume_point(self, position: DataPosition | None) -> tuple[int, int]:
        if position is None:
            return 0, 0
        if position.get("data") != f"{self._data_fingerprint:08x}":
            raise DataError(
                f"{self._name} or its settings changed since this position was saved; put the old ones back, "
                "or begin a new run."
            )
        return position["epoch"], position["batch"]


MASK_RATE, RANDOM_RATE = 0.8, 0.1  # of the chosen words; the rest stay as they are


class MaskedTokens(NamedTuple):
    """What the model is shown, and which words it is asked for."""

    token_ids: Int[Tensor, "rows length"]
    target_mask: Bool[Tensor, "rows length"]


def mask_tokens(
    batch: TextBatch, mask_prob: float, mask_id: int, generator: torch.Generator | None = None
) -> MaskedTokens:
    """Choose a share of the words; show a mask in place of most of them.

        of the chosen    0.8 become the mask, 0.1 any other word, 0.1 stay: what is seen may always be wrong

    Devlin et al. (2019), arXiv 1810.04805, 3.1. `mask` is the number after the last of the vocabulary. Neither BOS nor
    EOS is chosen, nor a word that has no number of its own; of a passage with others, at least one is.

    >>> batch = TextBatch(torch.tensor([[2, 7, 8, 9, 3]]), torch.tensor([5]))
    >>> hidden = mask_tokens(batch, mask_prob=1.0, mask_id=10)
    >>> hidden.target_mask.int().tolist()
    [[0, 1, 1, 1, 0]]
    """
    device = batch.token_ids.device
    chance = torch.rand(batch.token_ids.shape, generator=generator).to(device)
    inside = torch.arange(batch.token_ids.shape[1], device=device) < batch.lengths[:, None]
    able = inside & (batch.token_ids > EOS_ID)
    first = chance == chance.masked_fill(~able, 2.0).amin(1, keepdim=True)
    asked = able & ((chance < mask_prob) | first)
    what = torch.rand(batch.token_ids.shape, generator=generator).to(device)
    other = torch.randint(EOS_ID + 1, mask_id, batch.token_ids.shape, generator=generator).to(device)
    shown = torch.where(asked & (what < MASK_RATE), mask_id, batch.token_ids)
    shown = torch.where(asked & (what >= MASK_RATE) & (what < MASK_RATE + RANDOM_RATE), other, shown)
    return MaskedTokens(shown, asked)
