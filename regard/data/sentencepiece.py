"""Reads the model file of SentencePiece (.spm, .model) without its package: as a `tokenizers` definition.

The file is a message of Protocol Buffers, of which few fields matter: pieces with scores, the type of the model, and
how text is normalized.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard.data.vocabulary import WORD_MARK
from regard.errors import DataError, UnsupportedError
from regard.files import read_file

__all__ = ["read_sentencepiece"]

MAX_BYTES = 256 << 20  # of a model file; real ones have one megabyte
PIECES, TRAINER, NORMALIZER = 1, 2, 3  # fields of the message
PIECE, SCORE, KIND = 1, 2, 3  # of a piece
UNKNOWN, CONTROL, BYTE = 2, 3, 6  # kinds of pieces
MODEL_TYPE = 3  # of the trainer
CHARS_MAP, DUMMY_PREFIX, REMOVE_SPACES, ESCAPE_SPACES = 2, 3, 4, 5  # of the normalizer
UNIGRAM = 1  # a model type; 2 is BPE


def read_sentencepiece(path: Path) -> str:
    """The definition, for `tokenizers.Tokenizer.from_str`, of a SentencePiece unigram model.

    Args:
        path: the file

    Returns:
        JSON.

    Example:
        tokenizer = tokenizers.Tokenizer.from_str(read_sentencepiece(Path("source.spm")))
    """
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

    try:
        message = list(_read_fields(read_file(path, MAX_BYTES)))
        pieces = [_read_piece(value) for number, value in message if number == PIECES]
        specs = (b"".join(value for number, value in message if number == one) for one in (TRAINER, NORMALIZER))
        trainer, normalizer = (dict(_read_fields(spec)) for spec in specs)
        unknown = next(index for index, (_, _, kind) in enumerate(pieces) if kind == UNKNOWN)
    except FileNotFoundError:
        raise DataError(f"There is no {path}; copy the whole folder of the model.") from None
    except (ValueError, IndexError, KeyError, TypeError, struct.error, StopIteration) as error:
        raise DataError(f"{path} is no model of SentencePiece ({type(error).__name__}); copy it again.") from None
    if trainer.get(MODEL_TYPE, UNIGRAM) != UNIGRAM or any(kind == BYTE for _, _, kind in pieces):
        raise UnsupportedError(
            f"{path} is a SentencePiece model of another kind than unigram, or falls back to bytes; add a"
            " tokenizer.json to the folder, which transformers writes with save_pretrained"
        )
    if not all(normalizer.get(one, 1) for one in (DUMMY_PREFIX, REMOVE_SPACES, ESCAPE_SPACES)):
        raise UnsupportedError(f"{path} keeps spaces as they are, which regard does not; add a tokenizer.json instead")
    # No text is cut into "</s>" and the like: a zero character, which no text has, hides these pieces.
    hidden = [("\0" * (kind in (UNKNOWN, CONTROL)) + text, score) for text, score, kind in pieces]
    tokenizer = Tokenizer(models.Unigram(hidden, unknown, False))
    steps: list[Any] = [normalizers.Precompiled(chars)] if (chars := normalizer.get(CHARS_MAP)) else []
    steps += [normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip()]
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(WORD_MARK, prepend_scheme="always")
    return json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False)


def _read_piece(message: bytes) -> tuple[str, float, int]:
    fields = dict(_read_fields(message))
    return fields[PIECE].decode(), struct.unpack("<f", fields.get(SCORE, bytes(4)))[0], fields.get(KIND, 1)


def _read_fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a message: their numbers, and their values as numbers or bytes."""
    position = 0
    while position < len(message):
        key, position = _read_varint(message, position)
        kind, value = key & 7, b""
        if kind == 0:
            number, position = _read_varint(message, position)
            yield key >> 3, number
            continue
        size = {1: 8, 5: 4}.get(kind, -1)
        if kind == 2:
            size, position = _read_varint(message, position)
        if size < 0 or position + size > len(message):
            raise ValueError("truncated")
        value, position = message[position : position + size], position + size
        yield key >> 3, value


def _read_varint(message: bytes, position: int) -> tuple[int, int]:
    """A number of seven bits a byte, the lowest first, and the position after it."""
    value = shift = 0
    while True:
        byte = message[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if not byte & 0x80:
            return value, position
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
