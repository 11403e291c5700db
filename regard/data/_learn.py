"""Learning a vocabulary from text, the same one each time."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from regard._imports import require_extra
from regard.data._pieces import MARK
from regard.data._vocabulary import SPECIALS, Vocabulary
from regard.errors import DataError, UsageError

KINDS = ("bpe", "unigram", "char", "word")
REPEATS = 10_000  # of one piece in one string given to the trainer
LEAST = len(SPECIALS) * 2 + 1  # tokens of a vocabulary
PENALTY = 1e-4  # by which the unigram trainer sets the scores of its rarest characters apart, in hash order


def learn(texts: Iterable[str], kind: str, size: int, cut: Callable[[str], list[str]]) -> Vocabulary:
    """Count the pieces of the texts, and learn a vocabulary of at most `size` tokens from the counts."""
    if size < LEAST:
        special = f"{len(SPECIALS)} tokens are special"
        raise UsageError(f"A vocabulary of {size} tokens is too small: {special}; take at least {LEAST}.")
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(cut(text))
    if not counts:
        raise DataError("There is no text to learn a tokenizer from: every line is empty.")
    if kind in ("char", "word"):
        return Vocabulary([*SPECIALS, *_frequent(counts, size - len(SPECIALS))], [], [])
    alphabet = _alphabet(counts, size)
    return (_bpe if kind == "bpe" else _unigram)(_strings(counts, set(alphabet)), alphabet, size)


def _frequent(counts: Counter[str], most: int) -> list[str]:
    ranked = sorted(counts, key=lambda piece: (-counts[piece], piece))[:most]
    return [piece.encode("utf-8", "replace").decode() for piece in ranked]


def _alphabet(counts: Counter[str], size: int) -> list[str]:
    """The characters that get a token: the most frequent, filling at most half of the vocabulary.

    The trainers could choose them too, but break ties by chance.
    """
    characters: Counter[str] = Counter()
    for piece, number in counts.items():
        for character in piece:
            characters[character] += number
    del characters[MARK]
    return [MARK, *_frequent(characters, size // 2 - 1)]


def _strings(counts: Counter[str], alphabet: set[str]) -> Iterator[str]:
    """Every piece as often as it was counted; where a character has no token, a piece falls in two."""
    for piece in sorted(counts):
        known = "".join(character if character in alphabet else " " for character in piece)
        for done in range(0, counts[piece], REPEATS):
            yield " ".join([known] * min(REPEATS, counts[piece] - done))


def _bpe(strings: Iterator[str], alphabet: list[str], size: int) -> Vocabulary:
    hf = require_extra("tokenizers", extra="recipes")
    trainer = hf.trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        special_tokens=SPECIALS,
        initial_alphabet=alphabet,
        show_progress=False,
    )
    model = _trained(hf, hf.models.BPE(unk_token=SPECIALS[1]), strings, trainer)
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    return Vocabulary(tokens, [(left, right) for left, right in model["merges"]], [])


def _unigram(strings: Iterator[str], alphabet: list[str], size: int) -> Vocabulary:
    hf = require_extra("tokenizers", extra="recipes")
    trainer = hf.trainers.UnigramTrainer(
        vocab_size=size,
        unk_token=SPECIALS[1],
        special_tokens=SPECIALS,
        initial_alphabet=alphabet,
        show_progress=False,
    )
    model = _trained(hf, hf.models.Unigram(), strings, trainer)
    scores = _settled(dict(model["vocab"][len(SPECIALS) :]))
    tokens = sorted(scores, key=lambda token: (-scores[token], token))
    return Vocabulary([*SPECIALS, *tokens], [], [0.0] * len(SPECIALS) + [scores[token] for token in tokens])


def _settled(scores: dict[str, float]) -> dict[str, float]:
    """Scores that are the same in every run.

    The trainer adds floats in the order of a hash table, so that their last digits differ; and it gives the
    characters it would have dropped the lowest score plus a small step each, in that same order.
    """
    least = min(scores.values())
    rare = least + PENALTY * (1 + sum(len(token) == 1 for token in scores))
    floored = {
        token: least if len(token) == 1 and score <= rare else score for token, score in scores.items()
    }
    return {token: round(score, 3) for token, score in floored.items()}


def _trained(hf: Any, model: Any, strings: Iterator[str], trainer: Any) -> Any:
    tokenizer = hf.Tokenizer(model)
    tokenizer.pre_tokenizer = hf.pre_tokenizers.WhitespaceSplit()
    tokenizer.train_from_iterator(strings, trainer)
    return json.loads(tokenizer.to_str())["model"]
