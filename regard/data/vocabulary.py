"""Vocabularies: training on text, splitting words into tokens, and BPE-dropout."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from heapq import heapify, heappop, heappush
from itertools import pairwise
from random import Random
from typing import Any

from regard.errors import DataError, UnknownNameError, UsageError

__all__ = [
    "BOS_ID", "EOS_ID", "MODEL_TYPES", "PAD_ID", "SPECIAL_TOKENS", "UNK_ID", "WORD_MARK", "DropoutVariants",
    "Vocabulary", "apply_merges", "make_pre_tokenizer", "subword_pattern", "train_vocabulary",
]  # fmt: skip

PAD_ID, UNK_ID, BOS_ID, EOS_ID = 0, 1, 2, 3
SPECIAL_TOKENS = ["<pad>", "<unk>", "<s>", "</s>"]  # in the order of their ids
MODEL_TYPES = ("bpe", "unigram", "char", "word")
MIN_VOCAB_SIZE = len(SPECIAL_TOKENS) * 2 + 1
MAX_REPEATS = 10_000  # copies of one piece in one string passed to the trainer
UNIGRAM_PENALTY = 1e-4  # step by which the unigram trainer separates its rarest characters, in hash order
WORD_MARK = "▁"  # begins each word, so that joining the pieces restores the spaces
EMOJI_RANGE = "\U0001f000-\U0001faff"  # a few long ranges keep the pattern fast
MAX_PIECE = 1000  # characters; a longer word is split, since the trainers take minutes or crash
NUM_VARIANTS = 64  # segmentations of a word under dropout
MAX_CACHED_WORDS = 200_000  # a cache is cleared when it is full
PreTokenizer = Callable[[str], list[str]]
MergeRanks = Mapping[tuple[str, str], int]


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a trained tokenizer.

    Args:
        tokens: the tokens by id, special tokens first.
        merges: the merges of a BPE model, best first; empty for other models.
        scores: the log probabilities of a unigram model by id; empty for other models.

    Example:
        >>> Vocabulary([*SPECIAL_TOKENS, "▁a"], [], []).tokens[4]
        '▁a'
    """

    tokens: list[str]
    merges: list[tuple[str, str]]
    scores: list[float]

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> Vocabulary:
        """Build a vocabulary from the dictionary of `as_dict`.

        Args:
            saved: a dictionary with `tokens`, `merges` and `scores`.

        Returns:
            The vocabulary.
        """
        if saved["tokens"][: len(SPECIAL_TOKENS)] != SPECIAL_TOKENS:
            raise UsageError(f"the first tokens must be {', '.join(SPECIAL_TOKENS)}")
        merges = [(left, right) for left, right in saved["merges"]]
        return cls(list(saved["tokens"]), merges, list(map(float, saved["scores"])))

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as plain values, for JSON.

        Returns:
            A dictionary that `from_dict` accepts.
        """
        return {"tokens": self.tokens, "merges": [list(pair) for pair in self.merges], "scores": self.scores}

    def build_model(self, model_type: str) -> Any:
        """Build the model of Hugging Face's `tokenizers` that splits one piece of text into tokens.

        Special tokens are not registered: the model would find them in the text, too.

        Args:
            model_type: one of `MODEL_TYPES`.

        Returns:
            A model of `tokenizers.models`.
        """
        from tokenizers import models

        ids = {token: i for i, token in enumerate(self.tokens)}
        if model_type == "bpe":
            return models.BPE(vocab=ids, merges=self.merges, unk_token=SPECIAL_TOKENS[UNK_ID])
        if model_type == "unigram":
            return models.Unigram(list(zip(self.tokens, self.scores, strict=True)), unk_id=UNK_ID)
        return models.WordLevel(vocab=ids, unk_token=SPECIAL_TOKENS[UNK_ID])


def train_vocabulary(texts: Iterable[str], model_type: str, vocab_size: int, pre_tokenize: PreTokenizer) -> Vocabulary:
    """Train a vocabulary; the same texts give the same vocabulary.

    Args:
        texts: the training text.
        model_type: one of `MODEL_TYPES`.
        vocab_size: the largest number of tokens, special tokens included.
        pre_tokenize: splits a text into pieces, see `make_pre_tokenizer`.

    Returns:
        The vocabulary.

    Example:
        >>> train_vocabulary(["to be"], "word", 10, make_pre_tokenizer("word", False, False)).tokens[4:]
        ['▁be', '▁to']
    """
    if vocab_size < MIN_VOCAB_SIZE:
        reason = f"{len(SPECIAL_TOKENS)} tokens are special; take at least {MIN_VOCAB_SIZE}"
        raise UsageError(f"A vocabulary of {vocab_size} tokens is too small: {reason}.")
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(pre_tokenize(text))
    if not counts:
        raise DataError("There is no text to train a tokenizer on: every line is empty.")
    if model_type in ("char", "word"):
        return Vocabulary(SPECIAL_TOKENS + _most_frequent(counts, vocab_size - len(SPECIAL_TOKENS)), [], [])
    alphabet = _choose_alphabet(counts, vocab_size)
    return _train_subwords(model_type, _iter_training_strings(counts, set(alphabet)), alphabet, vocab_size)


def _most_frequent(counts: Counter[str], limit: int) -> list[str]:
    ranked = sorted(counts, key=lambda piece: (-counts[piece], piece))[:limit]
    return [piece.encode("utf-8", "replace").decode() for piece in ranked]


def _choose_alphabet(counts: Counter[str], vocab_size: int) -> list[str]:
    """Choose the characters that get a token: the most frequent ones, at most half of the vocabulary.

    The trainers can choose them too, but break ties randomly.
    """
    characters: Counter[str] = Counter()
    for piece, count in counts.items():
        for character in piece:
            characters[character] += count
    del characters[WORD_MARK]
    return [WORD_MARK, *_most_frequent(characters, vocab_size // 2 - 1)]


def _iter_training_strings(counts: Counter[str], alphabet: set[str]) -> Iterator[str]:
    """Repeat every piece by its count; a character outside of the alphabet splits a piece."""
    for piece in sorted(counts):
        known = "".join(character if character in alphabet else " " for character in piece)
        for start in range(0, counts[piece], MAX_REPEATS):
            yield " ".join([known] * min(MAX_REPEATS, counts[piece] - start))


def _train_subwords(model_type: str, strings: Iterator[str], alphabet: list[str], vocab_size: int) -> Vocabulary:
    """Train a model of Hugging Face's `tokenizers`, and read its vocabulary from the JSON of it."""
    import tokenizers as hf

    unknown, num_special, is_bpe = SPECIAL_TOKENS[UNK_ID], len(SPECIAL_TOKENS), model_type == "bpe"
    trainer_class = hf.trainers.BpeTrainer if is_bpe else hf.trainers.UnigramTrainer
    options: dict[str, Any] = {"min_frequency": 2} if is_bpe else {"unk_token": unknown}
    options |= {"vocab_size": vocab_size, "special_tokens": SPECIAL_TOKENS, "initial_alphabet": alphabet}
    tokenizer = hf.Tokenizer(hf.models.BPE(unk_token=unknown) if is_bpe else hf.models.Unigram())
    tokenizer.pre_tokenizer = hf.pre_tokenizers.WhitespaceSplit()
    tokenizer.train_from_iterator(strings, trainer_class(**options, show_progress=False))
    model = json.loads(tokenizer.to_str())["model"]
    if is_bpe:
        tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
        return Vocabulary(tokens, [(left, right) for left, right in model["merges"]], [])
    scores = _canonical_scores(dict(model["vocab"][num_special:]))
    tokens = sorted(scores, key=lambda token: (-scores[token], token))
    return Vocabulary([*SPECIAL_TOKENS, *tokens], [], [0.0] * num_special + [scores[token] for token in tokens])


def _canonical_scores(scores: dict[str, float]) -> dict[str, float]:
    """Return scores that are the same in every run.

    The trainer adds floats in the order of a hash table, so that their last digits differ; and it gives the
    characters that it would have dropped the lowest score plus a small step each, in that same order.
    """
    lowest = min(scores.values())
    rare = lowest + UNIGRAM_PENALTY * (1 + sum(len(token) == 1 for token in scores))
    floored = {token: lowest if len(token) == 1 and score <= rare else score for token, score in scores.items()}
    return {token: round(score, 3) for token, score in floored.items()}


def make_pre_tokenizer(model_type: str, nfkc: bool, lowercase: bool) -> PreTokenizer:
    """Return the function that splits a text into the pieces that are encoded one by one.

    Args:
        model_type: one of `MODEL_TYPES`: `bpe` and `unigram` split punctuation from words, `word` splits at spaces,
            `char` returns characters.
        nfkc: whether to apply Unicode's NFKC normalization first.
        lowercase: whether to convert to lower case first.

    Returns:
        A function from a text to its pieces.

    Example:
        >>> make_pre_tokenizer("bpe", nfkc=False, lowercase=True)("Oh no, not again!")
        ['▁oh', '▁no', ',', '▁not', '▁again', '!']
        >>> make_pre_tokenizer("word", nfkc=False, lowercase=False)("Oh no!")
        ['▁Oh', '▁no!']
    """
    if model_type not in MODEL_TYPES:
        UnknownNameError.check("tokenizer model", model_type, MODEL_TYPES)
    splitters: dict[str, PreTokenizer] = {"char": list, "word": _split_marked_words}
    split = splitters.get(model_type, _split_subwords)
    if not (nfkc or lowercase):
        return split

    def normalize_and_split(text: str) -> list[str]:
        text = unicodedata.normalize("NFKC", text) if nfkc else text
        return split(text.lower() if lowercase else text)

    return normalize_and_split


def _split_marked_words(text: str) -> list[str]:
    """Split at spaces; a word mark in the text would decode as a space, and becomes an underscore."""
    return [WORD_MARK + word for word in text.replace(WORD_MARK, "_").split()]


def _split_subwords(text: str) -> list[str]:
    """Split words from punctuation, so that "again" and "again!" share tokens."""
    return subword_pattern().findall("".join(_split_marked_words(text)))


@cache
def subword_pattern() -> re.Pattern[str]:
    """The pieces of marked words: punctuation, and what is between it, each with the ▁ before it.

    Example:
        >>> subword_pattern().findall("▁Oh▁no!")
        ['▁Oh', '▁no', '!']
    """
    basic = map(chr, range(0x10000))  # punctuation above is ancient, except for emoji
    marks = "".join(re.escape(c) for c in basic if unicodedata.category(c)[0] in "PS" and c != WORD_MARK) + EMOJI_RANGE
    return re.compile(f"{WORD_MARK}?(?:[{marks}]{{1,{MAX_PIECE}}}|[^{WORD_MARK}{marks}]{{1,{MAX_PIECE}}})")


def apply_merges(word: str, ranks: MergeRanks, dropout: float = 0.0, rng: Random | None = None) -> list[str]:
    """Split a word by byte pair encoding: merge its best-ranked pair of neighbors until none is left.

    With dropout, each merge is skipped with that probability at each step, so that a word has many segmentations and
    its rarer tokens are trained too. Random numbers are drawn for pairs in the order of their rank and only until the
    first merge that is kept: the same distribution with fewer draws.

    Args:
        word: the word, with its word mark.
        ranks: the rank of each pair of tokens that may be merged.
        dropout: the probability of skipping a merge.
        rng: the source of randomness, required for dropout.

    Returns:
        The tokens.

    Reference:
        Provilkov, Emelianenko and Voita (2020), "BPE-Dropout", arXiv 1910.13267.

    Example:
        >>> ranks = {("e", "r"): 0, ("h", "er"): 1}
        >>> apply_merges("here", ranks), apply_merges("here", ranks, dropout=1.0, rng=Random(0))
        (['her', 'e'], ['h', 'e', 'r', 'e'])
    """
    symbols: list[str] = list(word)
    end = len(symbols)
    after, before = list(range(1, end + 1)), list(range(-1, end - 1))
    candidates = [(ranks[pair], i) for i, pair in enumerate(pairwise(symbols)) if pair in ranks]
    heapify(candidates)
    skipped: list[tuple[int, int]] = []
    while candidates:
        rank, i = best = heappop(candidates)
        j = after[i]
        if j >= end or ranks.get((symbols[i], symbols[j])) != rank:
            continue  # one of the two has been merged with another since
        if rng is not None and rng.random() < dropout:
            skipped.append(best)
            continue
        symbols[i] += symbols[j]
        symbols[j] = ""
        after[i] = after[j]
        if after[i] < end:
            before[after[i]] = i
        for left in (before[i], i):
            if left >= 0 and after[left] < end:
                new_rank = ranks.get((symbols[left], symbols[after[left]]))
                if new_rank is not None:
                    heappush(candidates, (new_rank, left))
        for item in skipped:
            heappush(candidates, item)
        skipped.clear()
    return [symbol for symbol in symbols if symbol]


class DropoutVariants:
    """Cached segmentations of words under BPE-dropout.

    A segmentation is a function of the word, the dropout and an index below `NUM_VARIANTS`. So a draw is an index, a
    repeated word costs one lookup, and clearing the cache changes nothing.

    Args:
        vocabulary: the vocabulary of a BPE model.
        dropout: the probability of skipping a merge.

    Example:
        >>> vocabulary = Vocabulary([*SPECIAL_TOKENS, "a", "b", "ab"], [("a", "b")], [])
        >>> DropoutVariants(vocabulary, dropout=1.0).draw(["ab"], Random(0))
        [4, 5]
    """

    def __init__(self, vocabulary: Vocabulary, dropout: float) -> None:
        self.dropout = dropout
        self._ranks = {pair: rank for rank, pair in enumerate(vocabulary.merges)}
        self._ids = {token: i for i, token in enumerate(vocabulary.tokens)}
        self._cache: dict[str, list[tuple[int, ...] | None]] = {}

    def draw(self, pieces: list[str], rng: Random) -> list[int]:
        """Encode pieces with one random segmentation each.

        Args:
            pieces: the pieces of a text, from `make_pre_tokenizer`.
            rng: the source of randomness; one number is drawn for each piece.

        Returns:
            The token ids of all pieces.
        """
        ids: list[int] = []
        for piece in pieces:
            index = int(rng.random() * NUM_VARIANTS)
            variants = self._cache.get(piece)
            ids += (variants and variants[index]) or self._encode_variant(piece, index)
        return ids

    def _encode_variant(self, piece: str, index: int) -> tuple[int, ...]:
        if len(self._cache) >= MAX_CACHED_WORDS:
            self._cache.clear()
        rng = Random(f"{piece} {index} {self.dropout!r}".encode("utf-8", "replace"))
        ids = tuple(self._ids.get(token, UNK_ID) for token in apply_merges(piece, self._ranks, self.dropout, rng))
        self._cache.setdefault(piece, [None] * NUM_VARIANTS)[index] = ids
        return ids
