"""What a tokenizer has learned, and the model of Hugging Face's `tokenizers` that goes by it.

How a text is cut before a vocabulary is asked: into marked words, or into characters.

Learning a vocabulary from text, the same one each time.

Byte pair encoding of one word, with merges left out by chance.
"""

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

from regard._imports import require_extra
from regard.errors import DataError, UsageError

PAD_ID, UNK_ID, BOS_ID, EOS_ID = 0, 1, 2, 3


SPECIAL_TOKENS = ["<pad>", "<unk>", "<s>", "</s>"]  # numbers 0 to 3: PAD, UNK, BOS, EOS


@dataclass(frozen=True)
class Vocabulary:
    """The tokens by number, special ones first; for bpe its merges, for unigram its scores."""

    tokens: list[str]
    merges: list[tuple[str, str]]
    scores: list[float]

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> Vocabulary:
        if saved["tokens"][: len(SPECIAL_TOKENS)] != SPECIAL_TOKENS:
            raise UsageError(f"the first tokens should be {', '.join(SPECIAL_TOKENS)}")
        merges = [(left, right) for left, right in saved["merges"]]
        return cls(list(saved["tokens"]), merges, [float(score) for score in saved["scores"]])

    def as_dict(self) -> dict[str, Any]:
        return {"tokens": self.tokens, "merges": [list(pair) for pair in self.merges], "scores": self.scores}

    def build_model(self, model_type: str) -> Any:
        """The model that cuts one piece of text into tokens.

        It is built without special tokens of its own: they would be found in the text, too.
        """
        models = require_extra("tokenizers", extra="recipes").models
        numbers = {token: number for number, token in enumerate(self.tokens)}
        if model_type == "bpe":
            return models.BPE(vocab=numbers, merges=self.merges, unk_token=SPECIAL_TOKENS[UNK_ID])
        if model_type == "unigram":
            return models.Unigram(list(zip(self.tokens, self.scores, strict=True)), unk_id=UNK_ID)
        return models.WordLevel(vocab=numbers, unk_token=SPECIAL_TOKENS[UNK_ID])


WORD_MARK = "▁"  # begins each word, so that joining the pieces gives back the spaces


BASIC_PLANE_END = (
    0x10000  # below are the characters of living languages; above, punctuation is ancient, except for
)


EMOJI_RANGE = "\U0001f000-\U0001faff"  # emoji; a few long ranges keep the pattern fast


def make_pre_tokenizer(model_type: str, nfkc: bool, lowercase: bool) -> Callable[[str], list[str]]:
    """The function from a text to the pieces that are encoded one by one.

    >>> make_pre_tokenizer("bpe", nfkc=False, lowercase=True)("Oh no, not again!")
    ['▁oh', '▁no', ',', '▁not', '▁again', '!']
    >>> make_pre_tokenizer("word", nfkc=False, lowercase=False)("Oh no!")
    ['▁Oh', '▁no!']
    """
    cuts: dict[str, Callable[[str], list[str]]] = {
        "char": list,
        "word": _split_marked_words,
        "bpe": _split_subwords,
        "unigram": _split_subwords,
    }
    cut = cuts[model_type]
    if not (nfkc or lowercase):
        return cut

    def normalized(text: str) -> list[str]:
        text = unicodedata.normalize("NFKC", text) if nfkc else text
        return cut(text.lower() if lowercase else text)

    return normalized


def _split_marked_words(text: str) -> list[str]:
    """A mark that stands in the text itself would read as a space, and becomes an underscore."""
    return [WORD_MARK + word for word in text.replace(WORD_MARK, "_").split()]


def _split_subwords(text: str) -> list[str]:
    """Words, and punctuation apart from them: "again" and "again!" should share what is learned."""
    return _compile_subword_pattern().findall("".join(_split_marked_words(text)))


@cache
def _compile_subword_pattern() -> re.Pattern[str]:
    basic = map(chr, range(BASIC_PLANE_END))
    marks = (
        "".join(re.escape(c) for c in basic if unicodedata.category(c)[0] in "PS" and c != WORD_MARK)
        + EMOJI_RANGE
    )
    return re.compile(f"{WORD_MARK}?(?:[{marks}]+|[^{WORD_MARK}{marks}]+)")


MODEL_TYPES = ("bpe", "unigram", "char", "word")


MAX_REPEATS = 10_000  # of one piece in one string given to the trainer


MIN_VOCAB_SIZE = len(SPECIAL_TOKENS) * 2 + 1  # tokens of a vocabulary


UNIGRAM_PENALTY = (
    1e-4  # by which the unigram trainer sets the scores of its rarest characters apart, in hash order
)


def train_vocabulary(
    texts: Iterable[str], model_type: str, vocab_size: int, pre_tokenize: Callable[[str], list[str]]
) -> Vocabulary:
    """Count the pieces of the texts, and learn a vocabulary of at most `size` tokens from the counts."""
    if vocab_size < MIN_VOCAB_SIZE:
        special = f"{len(SPECIAL_TOKENS)} tokens are special"
        raise UsageError(
            f"A vocabulary of {vocab_size} tokens is too small: {special}; take at least {MIN_VOCAB_SIZE}."
        )
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(pre_tokenize(text))
    if not counts:
        raise DataError("There is no text to learn a tokenizer from: every line is empty.")
    if model_type in ("char", "word"):
        return Vocabulary(
            [*SPECIAL_TOKENS, *_most_frequent(counts, vocab_size - len(SPECIAL_TOKENS))], [], []
        )
    alphabet = _choose_alphabet(counts, vocab_size)
    return (_train_bpe if model_type == "bpe" else _train_unigram)(
        _iter_training_strings(counts, set(alphabet)), alphabet, vocab_size
    )


def _most_frequent(counts: Counter[str], limit: int) -> list[str]:
    ranked = sorted(counts, key=lambda piece: (-counts[piece], piece))[:limit]
    return [piece.encode("utf-8", "replace").decode() for piece in ranked]


def _choose_alphabet(counts: Counter[str], vocab_size: int) -> list[str]:
    """The characters that get a token: the most frequent, filling at most half of the vocabulary.

    The trainers could choose them too, but break ties by chance.
    """
    characters: Counter[str] = Counter()
    for piece, number in counts.items():
        for character in piece:
            characters[character] += number
    del characters[WORD_MARK]
    return [WORD_MARK, *_most_frequent(characters, vocab_size // 2 - 1)]


def _iter_training_strings(counts: Counter[str], alphabet: set[str]) -> Iterator[str]:
    """Every piece as often as it was counted; where a character has no token, a piece falls in two."""
    for piece in sorted(counts):
        known = "".join(character if character in alphabet else " " for character in piece)
        for done in range(0, counts[piece], MAX_REPEATS):
            yield " ".join([known] * min(MAX_REPEATS, counts[piece] - done))


def _train_bpe(strings: Iterator[str], alphabet: list[str], vocab_size: int) -> Vocabulary:
    hf = require_extra("tokenizers", extra="recipes")
    trainer = hf.trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=alphabet,
        show_progress=False,
    )
    model = _train_model(hf, hf.models.BPE(unk_token=SPECIAL_TOKENS[1]), strings, trainer)
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    return Vocabulary(tokens, [(left, right) for left, right in model["merges"]], [])


def _train_unigram(strings: Iterator[str], alphabet: list[str], vocab_size: int) -> Vocabulary:
    hf = require_extra("tokenizers", extra="recipes")
    trainer = hf.trainers.UnigramTrainer(
        vocab_size=vocab_size,
        unk_token=SPECIAL_TOKENS[1],
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=alphabet,
        show_progress=False,
    )
    model = _train_model(hf, hf.models.Unigram(), strings, trainer)
    scores = _canonical_scores(dict(model["vocab"][len(SPECIAL_TOKENS) :]))
    tokens = sorted(scores, key=lambda token: (-scores[token], token))
    return Vocabulary(
        [*SPECIAL_TOKENS, *tokens], [], [0.0] * len(SPECIAL_TOKENS) + [scores[token] for token in tokens]
    )


def _canonical_scores(scores: dict[str, float]) -> dict[str, float]:
    """Scores that are the same in every run.

    The trainer adds floats in the order of a hash table, so that their last digits differ; and it gives the
    characters it would have dropped the lowest score plus a small step each, in that same order.
    """
    least = min(scores.values())
    rare = least + UNIGRAM_PENALTY * (1 + sum(len(token) == 1 for token in scores))
    floored = {
        token: least if len(token) == 1 and score <= rare else score for token, score in scores.items()
    }
    return {token: round(score, 3) for token, score in floored.items()}


def _train_model(hf: Any, model: Any, strings: Iterator[str], trainer: Any) -> Any:
    tokenizer = hf.Tokenizer(model)
    tokenizer.pre_tokenizer = hf.pre_tokenizers.WhitespaceSplit()
    tokenizer.train_from_iterator(strings, trainer)
    return json.loads(tokenizer.to_str())["model"]


NUM_VARIANTS = 64  # ways to cut a word under dropout


MAX_CACHED_WORDS = 200_000  # words remembered before beginning anew


MergeRanks = Mapping[tuple[str, str], int]


def apply_merges(word: str, ranks: MergeRanks, dropout: float = 0.0, rng: Random | None = None) -> list[str]:
    """The pieces of a word: its best-ranked pair of neighbors is joined, again and again.

    With dropout, each pair is passed over with that probability each time the best is looked for, so that a word
    is cut in many ways and its rarer pieces are learned too. BPE-dropout: Provilkov, Emelianenko and Voita
    (2020), arXiv 1910.13267. Pairs are drawn for in the order of their rank and only as far as the first that
    stays, which comes to the same and is quicker.

    >>> ranks = {("e", "r"): 0, ("h", "er"): 1}
    >>> apply_merges("here", ranks), apply_merges("here", ranks, dropout=1.0, rng=Random(0))
    (['her', 'e'], ['h', 'e', 'r', 'e'])
    """
    symbols: list[str] = list(word)
    end = len(symbols)
    after, before = list(range(1, end + 1)), list(range(-1, end - 1))
    ready = [(ranks[pair], i) for i, pair in enumerate(pairwise(symbols)) if pair in ranks]
    heapify(ready)
    passed: list[tuple[int, int]] = []
    while ready:
        rank, i = best = heappop(ready)
        j = after[i]
        if j >= end or ranks.get((symbols[i], symbols[j])) != rank:
            continue  # one of the two has been joined with another since
        if rng is not None and rng.random() < dropout:
            passed.append(best)
            continue
        symbols[i] += symbols[j]
        symbols[j] = ""
        after[i] = after[j]
        if after[i] < end:
            before[after[i]] = i
        for left in (before[i], i):
            if left >= 0 and after[left] < end:
                rank_here = ranks.get((symbols[left], symbols[after[left]]))
                if rank_here is not None:
                    heappush(ready, (rank_here, left))
        for item in passed:
            heappush(ready, item)
        passed.clear()
    return [symbol for symbol in symbols if symbol]


class DropoutVariants:
    """The ways to cut a word under one dropout, each settled by the word and an index below VARIANTS.

    So a draw is an index, and a word that comes again costs a look into a table. Forgetting changes nothing.
    """

    def __init__(self, vocabulary: Vocabulary, dropout: float) -> None:
        self.dropout = dropout
        self._ranks = {pair: rank for rank, pair in enumerate(vocabulary.merges)}
        self._ids = {token: number for number, token in enumerate(vocabulary.tokens)}
        self._cache: dict[str, list[tuple[int, ...] | None]] = {}

    def draw(self, pieces: list[str], rng: Random) -> list[int]:
        numbers: list[int] = []
        for piece in pieces:
            index = int(rng.random() * NUM_VARIANTS)
            ways = self._cache.get(piece)
            numbers += (ways and ways[index]) or self._encode_variant(piece, index)
        return numbers

    def _encode_variant(self, piece: str, index: int) -> tuple[int, ...]:
        if len(self._cache) >= MAX_CACHED_WORDS:
            self._cache.clear()
        random = Random(f"{piece} {index} {self.dropout!r}".encode("utf-8", "replace"))
        tokens = apply_merges(piece, self._ranks, self.dropout, random)
        numbers = tuple(self._ids.get(token, UNK_ID) for token in tokens)
        self._cache.setdefault(piece, [None] * NUM_VARIANTS)[index] = numbers
        return numbers
