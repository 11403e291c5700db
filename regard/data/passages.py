"""Plain text as passages of tokens, epoch after epoch, that can be taken up again at any position."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from regard.data._lines import lines
from regard.data._rows import Numbers, Rows, filled
from regard.data.batch import BOS, EOS, UNK
from regard.data.report import counted
from regard.data.tokenizer import Tokenizer
from regard.errors import DataError, UsageError

Position = dict[str, Any]


class PlainText:
    """Documents of plain text from files, as often as one asks; also packed, as .gz or .xz.

        apart="blank"    blank lines stand between documents
        apart="line"     each line is one

    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp(), "a.txt")
    >>> _ = file.write_text("Once upon\\na time.\\n\\nThe end.\\n")
    >>> list(PlainText([file])), len(list(PlainText([file], apart="line")))
    (['Once upon\\na time.', 'The end.'], 3)
    """

    def __init__(self, paths: Sequence[str | PathLike[str]], apart: str = "blank") -> None:
        self.paths, self.apart = [Path(path) for path in paths], apart
        if not self.paths:
            raise DataError("Plain text comes from one file or more, and none is named.")
        if apart not in ("blank", "line"):
            raise UsageError(f"apart={apart!r} is not one of blank, line.")

    def __str__(self) -> str:
        return " and ".join(map(str, self.paths))

    def __iter__(self) -> Iterator[str]:
        for path in self.paths:
            if self.apart == "line":
                yield from (line for line in lines(path) if line.strip())
                continue
            kept: list[str] = []
            for line in lines(path):
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

    words: Int[Tensor, "rows length"]
    lengths: Int[Tensor, " rows"]

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def tokens(self) -> int:
        """How many tokens there are to predict."""
        return int(self.lengths.sum()) - len(self)

    def to(self, device: torch.device | str) -> TextBatch:
        return replace(self, words=self.words.to(device), lengths=self.lengths.to(device))

    def part(self, rank: int, world: int) -> TextBatch:
        """The share of one of `world` processes: every world-th row, without the columns it does not need."""
        lengths = self.lengths[rank::world]
        longest = int(lengths.max()) if len(lengths) else 0
        return TextBatch(self.words[rank::world, :longest], lengths)


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
        what = f"{counted(self.read, 'document')} read ({counted(self.characters, 'character')})"
        parts = [f"{what}: {counted(self.tokens, 'token')} in {counted(self.passages, 'passage')}"]
        if self.unknown:
            share = 100 * self.unknown / self.tokens
            are = "is" if self.unknown == 1 else "are"
            parts.append(f"{counted(self.unknown, 'token')} ({share:.1f} %) {are} not in the vocabulary")
        return "; ".join(parts) + "."


class Passages:
    """Documents held in memory as passages of at most `length` tokens after the first; an epoch is each once.

    `spaced` is what a text goes through before the tokenizer. Passages of near lengths come in one batch, whose rows
    times its longest are at most `tokens`.

    >>> tokenizer = Tokenizer.learn(["a rose is a rose"], kind="word", size=10)
    >>> text = Passages(["a rose is a rose", "is"], tokenizer, length=4, tokens=64)
    >>> print(text.report)
    2 documents read (20 characters): 8 tokens in 3 passages.
    >>> batch, position = next(text.batches())
    >>> len(batch), batch.tokens, position["epoch"]
    (3, 8, 1)
    """

    def __init__(
        self,
        texts: Iterable[str],
        tokenizer: Tokenizer,
        *,
        length: int = 256,
        tokens: int = 4096,
        seed: int = 0,
        spaced: Callable[[str], str] = str,
    ) -> None:
        self.report, self._tokens, self._seed = PassageReport(), tokens, seed
        self._name = str(texts) if isinstance(texts, PlainText) else "the text"
        if tokens < length + 1:
            raise DataError(
                f"a passage takes {length + 1:,} tokens, but a batch holds {tokens:,}; raise batch_tokens."
            )
        self._rows = self._cut(texts, tokenizer, length, spaced)
        self._mark = zlib.crc32(repr((len(tokenizer), length, tokens, seed)).encode())
        self._mark = zlib.crc32(self._rows.numbers.tobytes(), self._mark)

    def __len__(self) -> int:
        return len(self._rows.lengths)

    def batches(self, position: Position | None = None) -> Iterator[tuple[TextBatch, Position]]:
        """Batches without end, each with the position after it; from a position, exactly what follows it."""
        epoch, done = self._place(position)
        while True:
            plan = self._plan(epoch)
            for number in range(done, len(plan)):
                last = number + 1 == len(plan)
                place = {"epoch": epoch + 1, "batch": 0} if last else {"epoch": epoch, "batch": number + 1}
                yield TextBatch(*self._rows.matrix(plan[number])), {**place, "data": f"{self._mark:08x}"}
            epoch, done = epoch + 1, 0

    def in_order(self) -> Iterator[TextBatch]:
        """Every passage once, the shortest first: for evaluation."""
        order = np.argsort(self._rows.lengths, kind="stable")
        for which in filled(order, self._rows.lengths, self._tokens):
            yield TextBatch(*self._rows.matrix(which))

    def _cut(
        self, texts: Iterable[str], tokenizer: Tokenizer, length: int, spaced: Callable[[str], str]
    ) -> Rows:
        """All tokens in one array; a passage is a stretch of it that begins on the last token before."""
        numbers, starts, lengths, total = [], [], [], 0
        for text in texts:
            ids = np.array([BOS, *tokenizer.encode(spaced(text)), EOS], dtype=np.int32)
            self._note(text, ids, tokenizer)
            begins = np.arange(0, len(ids) - 1, length)
            numbers.append(ids)
            starts.append(total + begins)
            lengths.append(np.minimum(len(ids) - begins, length + 1))
            total += len(ids)
        if not numbers:
            raise DataError(f"There is nothing to read: {self._name} is empty.")
        rows = Rows(np.concatenate(numbers), np.concatenate(starts), np.concatenate(lengths))
        self.report.passages = len(rows.lengths)
        return rows

    def _note(self, text: str, ids: np.ndarray[Any, np.dtype[np.int32]], tokenizer: Tokenizer) -> None:
        self.report.read += 1
        self.report.tokens += len(ids) - 1
        self.report.unknown += int((ids == UNK).sum())
        # the end of a document counts as a character, as it counts as a token
        self.report.characters += 1 + len(text if tokenizer.kind == "char" else " ".join(text.split()))

    def _plan(self, epoch: int) -> list[Numbers]:
        """Passages of near lengths together, in an order that chance decides."""
        random = Random(f"{self._seed} {epoch}")
        noise = np.array([random.random() for _ in range(len(self))])
        plan = filled(np.argsort(self._rows.lengths + noise, kind="stable"), self._rows.lengths, self._tokens)
        shuffled = sorted(range(len(plan)), key=[random.random() for _ in plan].__getitem__)
        return [plan[place] for place in shuffled]

    def _place(self, position: Position | None) -> tuple[int, int]:
        if position is None:
            return 0, 0
        if position.get("data") != f"{self._mark:08x}":
            raise DataError(
                f"{self._name} or its settings changed since this position was saved; put the old ones back, "
                "or begin a new run."
            )
        return position["epoch"], position["batch"]
