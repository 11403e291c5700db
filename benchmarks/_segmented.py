"""Parallel text segmented by one BPE for both languages, so that every program trains on the same tokens."""

from __future__ import annotations

import lzma
from collections.abc import Sequence
from pathlib import Path

SIZE = 10_000  # pieces, the special ones not counted
LANGUAGES = ("en", "de")  # source, target


def find(folder: Path, language: str) -> Path:
    """The training file of a language, plain or .xz."""
    paths = sorted(path for end in ("", ".xz") for path in folder.glob(f"train*.{language}{end}"))
    if len(paths) != 1:
        names = ", ".join(path.name for path in paths) or "nothing"
        raise SystemExit(f"{folder} must hold one train*.{language} or train*.{language}.xz; found {names}")
    return paths[0]


def lines(path: Path) -> list[str]:
    data = path.read_bytes()
    text = (lzma.decompress(data) if path.suffix == ".xz" else data).decode()
    return text.removesuffix("\n").split("\n")


def segment(texts: Sequence[Sequence[str]], size: int = SIZE) -> tuple[list[list[str]], list[str]]:
    """The sentences of each text as pieces with spaces between them, and the vocabulary.

    >>> texts, pieces = segment([["so so"], ["so la"]], size=7)
    >>> texts
    [['so</w> so</w>'], ['so</w> l a</w>']]
    """
    from tokenizers import Tokenizer
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from tokenizers.trainers import BpeTrainer

    learner = Tokenizer(BPE(end_of_word_suffix="</w>"))
    learner.pre_tokenizer = WhitespaceSplit()
    trainer = BpeTrainer(vocab_size=size, end_of_word_suffix="</w>", show_progress=False)
    learner.train_from_iterator((line for text in texts for line in text), trainer)
    segmented = [[" ".join(encoding.tokens) for encoding in learner.encode_batch(list(text))] for text in texts]
    vocabulary = learner.get_vocab()
    return segmented, sorted(vocabulary, key=vocabulary.__getitem__)


def prepare(folder: Path, out: Path) -> Path:
    """Write train.en, train.de and vocabulary.txt into ``out``, one sentence or one piece a line."""
    texts, pieces = segment([lines(find(folder, language)) for language in LANGUAGES])
    if len({len(text) for text in texts}) != 1:
        raise SystemExit(f"the training files in {folder} have {len(texts[0])} and {len(texts[1])} lines")
    out.mkdir(parents=True, exist_ok=True)
    for language, text in zip(LANGUAGES, texts, strict=True):
        (out / f"train.{language}").write_text("\n".join(text) + "\n")
    (out / "vocabulary.txt").write_text("\n".join(pieces) + "\n")
    return out
