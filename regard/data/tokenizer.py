"""Tokenizers, from text to token ids and back, and rows of token ids as one matrix."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from os import PathLike
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from regard.data import vocabulary as vocab
from regard.data.segmentation import UNKNOWN_CHARACTER, is_space_delimited, split_token_group
from regard.data.sources import IntArray
from regard.data.vocabulary import BOS_ID, EOS_ID, MAX_CACHED_WORDS, PAD_ID, UNK_ID, WORD_MARK, Vocabulary
from regard.errors import DataError, UsageError
from regard.files import read_json, write_atomic

__all__ = ["RaggedArray", "Tokenizer", "pad_rows"]

FORMAT_VERSION = 2
MAX_CACHED_LENGTH = 64  # characters of a word that is cached: many long ones would fill the memory


class Tokenizer:
    """A tokenizer with a vocabulary trained on text; ids 0 to 3 are padding, unknown, begin and end of sequence.

        bpe        splits words into frequent pieces (Sennrich et al. 2016, arXiv 1508.07909)
        unigram    splits words into their most probable pieces (Kudo 2018, arXiv 1804.10959)
        char       one token per character, spaces included
        word       the most frequent words, split at spaces

    A token that begins a word starts with ▁. Decoding restores the text with single spaces; for char, any text. A
    character (for word: a word) without a token becomes `UNK_ID`, and `surface_forms` returns its text. Text that
    looks like a special token is encoded as text. The same texts give the same vocabulary. For bpe and unigram, a
    word of more than 1,000 characters is encoded in parts.

    Args:
        model_type: `bpe`, `unigram`, `char` or `word`.
        vocabulary: the trained vocabulary; see `train` and `load`.
        nfkc: whether to apply Unicode's NFKC normalization.
        lowercase: whether to convert to lower case.

    Example:
        >>> tokenizer = Tokenizer.train(["low lower lowest", "new newer newest"], model_type="bpe", vocab_size=30)
        >>> tokenizer.convert_ids_to_tokens(tokenizer.encode("newest low"))
        ['▁ne', 'west', '▁lo', 'w']
        >>> tokenizer.decode(tokenizer.encode("newest low"))
        'newest low'
    """

    def __init__(self, model_type: str, vocabulary: Vocabulary, nfkc: bool = False, lowercase: bool = False) -> None:
        self.model_type, self.vocabulary, self.nfkc, self.lowercase = model_type, vocabulary, nfkc, lowercase
        self._pre_tokenize = vocab.make_pre_tokenizer(model_type, nfkc, lowercase)
        self._model = vocabulary.build_model(model_type)
        self._cache: dict[str, tuple[int, ...]] = {}
        self._variants: vocab.DropoutVariants | None = None

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        model_type: str = "bpe",
        vocab_size: int = 8000,
        *,
        nfkc: bool = False,
        lowercase: bool = False,
    ) -> Tokenizer:
        """Train a tokenizer.

        Args:
            texts: the training text, such as the lines of a file.
            model_type: `bpe`, `unigram`, `char` or `word`.
            vocab_size: the largest number of tokens, special tokens included.
            nfkc: whether to apply Unicode's NFKC normalization, which unifies compatible characters.
            lowercase: whether to convert to lower case.

        Returns:
            The tokenizer.
        """
        pre_tokenize = vocab.make_pre_tokenizer(model_type, nfkc, lowercase)
        if isinstance(texts, str):
            raise TypeError("Tokenizer.train takes many texts, such as the lines of a file, not one string.")
        return cls(model_type, vocab.train_vocabulary(texts, model_type, vocab_size, pre_tokenize), nfkc, lowercase)

    def __len__(self) -> int:
        return len(self.vocabulary.tokens)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tokenizer) and self._as_dict() == other._as_dict()

    __hash__ = None  # type: ignore[assignment]

    def encode(self, text: str) -> list[int]:
        """Encode a text.

        Args:
            text: the text.

        Returns:
            The token ids, without special tokens.
        """
        cached = self._cache
        ids: list[int] = []
        for piece in self._pre_tokenize(text):
            ids += cached.get(piece) or self._encode_piece(piece)
        return ids

    def encode_all(self, texts: Iterable[str]) -> list[list[int]]:
        """Encode many texts.

        Args:
            texts: the texts.

        Returns:
            The token ids of each text, without special tokens.
        """
        return [self.encode(text) for text in texts]

    def encode_with_dropout(self, text: str, dropout: float, rng: Random) -> list[int]:
        """Encode a text with a random segmentation (BPE-dropout).

        Each word has 64 segmentations that are functions of the word, an index and the dropout; only the indices are
        drawn. So a data source that is restarted from the same seed returns the same ids.

        Args:
            text: the text.
            dropout: the probability of skipping a merge; 0 gives the result of `encode`.
            rng: the source of randomness.

        Returns:
            The token ids, without special tokens.
        """
        if dropout == 0:
            return self.encode(text)
        if self.model_type != "bpe":
            remedy = f"set dropout to 0 for model type {self.model_type!r}"
            raise UsageError(f"Only a bpe tokenizer supports dropout; {remedy}.")
        if not 0 <= dropout <= 1:
            raise UsageError(f"invalid value {dropout} for dropout: must be a probability, from 0 to 1.")
        if self._variants is None or self._variants.dropout != dropout:
            self._variants = vocab.DropoutVariants(self.vocabulary, dropout)
        return self._variants.draw(self._pre_tokenize(text), rng)

    def decode(self, ids: Sequence[int], replacements: Mapping[int, str] | None = None) -> str:
        """Decode token ids to text, without padding and begin and end of sequence.

        Args:
            ids: the token ids.
            replacements: text for some positions of `ids`, used in place of the token, for instance of unknown words.

        Returns:
            The text; an unknown token without a replacement reads `<unk>`.
        """
        is_word = self.model_type == "word"
        unknown = WORD_MARK + vocab.SPECIAL_TOKENS[UNK_ID] if is_word else vocab.SPECIAL_TOKENS[UNK_ID]
        parts = []
        for position, token in enumerate(self.convert_ids_to_tokens(ids)):
            if replacements and position in replacements:
                begins_word = token.startswith(WORD_MARK) or is_word
                parts.append(WORD_MARK * (begins_word and self.model_type != "char") + replacements[position])
            elif ids[position] not in (PAD_ID, BOS_ID, EOS_ID):
                parts.append(unknown if ids[position] == UNK_ID else token)
        text = "".join(parts)
        return text if self.model_type == "char" else " ".join(text.replace(WORD_MARK, " ").split())

    def convert_ids_to_tokens(self, ids: Sequence[int]) -> list[str]:
        """Look up the tokens of ids, special tokens included: <pad>, <unk>, <s>, </s>.

        Args:
            ids: the token ids.

        Returns:
            The tokens.
        """
        if any(not 0 <= i < len(self) for i in ids):
            raise UsageError(f"token ids must be from 0 to {len(self) - 1}; these ids are from another tokenizer.")
        return [self.vocabulary.tokens[i] for i in ids]

    def group_words(
        self, ids: Sequence[int], surface_forms: Sequence[str] | None = None, *, spaces_only: bool | None = None
    ) -> list[list[int]]:
        """Group the positions of tokens by word (for char: by character), special tokens left out.

        Word i of an encoded text is `text.split()[i]`. Chinese and Japanese have no spaces between words, so each of
        their tokens is a word, unless spaces come every few characters.

        Args:
            ids: the token ids.
            surface_forms: the text of each token, from `surface_forms`; without them, unknown tokens count as one
                character.
            spaces_only: split at spaces only, also Chinese and Japanese; `None` decides by the text.

        Returns:
            For each word, the positions of its tokens.
        """
        words: list[list[int]] = []
        tokens = self.convert_ids_to_tokens(ids)
        for position, token in enumerate(tokens):
            if ids[position] in (PAD_ID, BOS_ID, EOS_ID):
                continue
            if self.model_type in ("char", "word") or token.startswith(WORD_MARK) or not words:
                words.append([])
            words[-1].append(position)
        if spaces_only or self.model_type in ("char", "word"):
            return words
        if surface_forms is None:
            visible = (token.removeprefix(WORD_MARK) for token in tokens)
            surface_forms = [UNKNOWN_CHARACTER if i == UNK_ID else text for i, text in zip(ids, visible, strict=True)]
        if spaces_only is None and is_space_delimited(["".join(surface_forms[i] for i in word) for word in words]):
            return words
        return [part for word in words for part in split_token_group(word, surface_forms)]

    def surface_forms(self, text: str) -> list[str]:
        """Return the text of each token of `encode(text)`, also where the token is unknown.

        Args:
            text: the text.

        Returns:
            The text of each token, without word marks.
        """
        if self.model_type == "char":
            return self._pre_tokenize(text)
        if self.model_type == "word":
            return [piece.removeprefix(WORD_MARK) for piece in self._pre_tokenize(text)]
        forms = []
        for piece in self._pre_tokenize(text):
            raw = piece.encode("utf-8", "replace")
            spans = [token.offsets for token in self._model.tokenize(raw.decode())]
            forms += [raw[start:end].decode().removeprefix(WORD_MARK) for start, end in spans]
        return forms

    def truncate(self, text: str, max_tokens: int) -> str:
        """Return the longest beginning of a text that has at most `max_tokens` tokens.

        Args:
            text: the text.
            max_tokens: the limit.

        Returns:
            The beginning of the text.

        Example:
            >>> tokenizer = Tokenizer.train(["a b c"], model_type="word", vocab_size=10)
            >>> tokenizer.truncate("a b c", max_tokens=2).split()
            ['a', 'b']
        """
        if len(self.encode(text)) <= max_tokens:
            return text
        low, high = 0, len(text)  # `low` characters fit, `high` do not
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if len(self.encode(text[:middle])) <= max_tokens else (low, middle)
        return text[:low]

    def save(self, path: str | PathLike[str]) -> None:
        """Save the tokenizer as JSON; the file appears only when it is complete.

        Args:
            path: the file to write.
        """
        write_atomic(Path(path), (json.dumps(self._as_dict(), ensure_ascii=False) + "\n").encode())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Tokenizer:
        """Load a tokenizer that `save` wrote.

        Args:
            path: the file.

        Returns:
            The tokenizer.

        Raises:
            DataError: the file is missing, damaged or of another format version.
        """
        try:
            saved = read_json(Path(path))
            if saved["format"] != FORMAT_VERSION:
                problem = f"{path} has format {saved['format']!r}, but this version of regard reads {FORMAT_VERSION}"
                raise DataError(f"{problem}; load it with the version that saved it.")
            if saved["model_type"] == "pretrained":
                from regard.data.pretrained_tokenizer import PretrainedTokenizer  # a subclass

                return PretrainedTokenizer.from_dict(saved)
            return cls(saved["model_type"], Vocabulary.from_dict(saved), bool(saved["nfkc"]), bool(saved["lowercase"]))
        except FileNotFoundError:
            raise DataError(f"There is no tokenizer {path}; training saves one in the run folder.") from None
        except DataError:
            raise
        except Exception as error:  # any error that a damaged file causes, in JSON or in the model built from it
            problem = f"{type(error).__name__}: {error}"
            raise DataError(f"{path} is not a tokenizer that regard saved ({problem}); copy it again.") from None

    def _as_dict(self) -> dict[str, Any]:
        options = {"model_type": self.model_type, "nfkc": self.nfkc, "lowercase": self.lowercase}
        return {"format": FORMAT_VERSION} | options | self.vocabulary.as_dict()

    def _encode_piece(self, piece: str) -> tuple[int, ...]:
        if len(self._cache) >= MAX_CACHED_WORDS:
            self._cache.clear()
        # half a surrogate pair is not a character; it can come from an argument of the command line
        ids = tuple(token.id for token in self._model.tokenize(piece.encode("utf-8", "replace").decode()))
        if len(piece) <= MAX_CACHED_LENGTH:
            self._cache[piece] = ids
        return ids


@dataclass(frozen=True)
class RaggedArray:
    """Rows of different lengths in one array; row i is `values[starts[i] : starts[i] + lengths[i]]`.

    Args:
        values: the numbers of all rows.
        starts: where each row begins.
        lengths: the length of each row.

    Example:
        >>> rows = RaggedArray.from_rows([[7, 8], [9]])
        >>> rows.padded(np.array([1, 0]))[0].tolist()
        [[9, 0], [7, 8]]
    """

    values: npt.NDArray[np.int32]
    starts: IntArray
    lengths: IntArray

    @classmethod
    def from_rows(cls, rows: Iterable[Sequence[int]]) -> RaggedArray:
        """Concatenate rows.

        Args:
            rows: the rows.

        Returns:
            The array.
        """
        rows = list(rows)
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        values = np.fromiter(chain.from_iterable(rows), np.int32, int(lengths.sum()))
        return cls(values, np.cumsum(lengths) - lengths, lengths)

    def padded(self, indices: IntArray) -> tuple[Tensor, Tensor]:
        """Gather rows as one matrix, padded with `PAD_ID`, in one indexing operation.

        Args:
            indices: the rows to gather.

        Returns:
            The matrix (rows, longest row) and the lengths of its rows.
        """
        lengths = self.lengths[indices]
        columns = np.arange(lengths.max(initial=0))
        inside = columns < lengths[:, None]
        positions = np.where(inside, self.starts[indices][:, None] + columns, 0)
        matrix = np.where(inside, self.values[positions], PAD_ID).astype(np.int64)
        return torch.from_numpy(matrix), torch.from_numpy(lengths)


def pad_rows(rows: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Pad lists of ids to one matrix.

    Args:
        rows: lists of ids.

    Returns:
        The matrix (rows, longest row), padded with `PAD_ID`, and the lengths of its rows.

    Example:
        >>> pad_rows([[7, 8], [9]])[0].tolist()
        [[7, 8], [9, 0]]
    """
    return RaggedArray.from_rows(rows).padded(np.arange(len(rows)))
