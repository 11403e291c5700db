"""The texts of each recipe: what to train on, to choose weights by, and to test with."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from regard.data.parallel import ParallelFiles, SentencePair
from regard.decoding import read_gold
from regard.errors import ConfigError
from regard.tasks import datasets as downloads
from regard.tasks.datasets import DOWNLOAD, find_data_folder, find_file
from regard.tasks.task import DataSplits, LazyExamples
from regard.tasks.translation.config import TranslationConfig

__all__ = [
    "TranslationSplits", "concat_pairs", "dates", "g2p", "hansards", "iter_pairs", "make_splits", "multi30k",
    "multi30k_tok", "normalize_english", "normalize_french", "pinyin", "read_gold_pairs", "reverse", "tatoeba",
    "tatoeba_fr_en", "tatoeba_zh_en", "translation",
]  # fmt: skip

SPLIT_NAMES = ("train", "dev", "test")
VOCAB_SAMPLE_SIZE = 50_000  # generated pairs that a vocabulary is learned from
MAX_CONCATENATED = 4  # pairs that become one
PUNCTUATION = re.compile(r"([-,;:!?()\"«»…]|\.+$|\.(?=\s))")
CLITICS = re.compile(r"(?<!\w)(l|d|j|n|s|c|m|t|qu|lorsqu|puisqu|jusqu)['’](?=\w)", re.IGNORECASE)
CONTRACTIONS = {"du": "de le", "des": "de les", "au": "à le", "aux": "à les"}


@dataclass(frozen=True)
class TranslationSplits(DataSplits[SentencePair]):
    """The pairs of a recipe: files to read, pairs in memory, or a function that samples them.

    Args:
        cleaner: name of the function in `CLEANERS` that normalizes a source text
        unaligned_words: target words that have no source word, such as the hyphens of a date
    """

    cleaner: str = ""
    unaligned_words: tuple[str, ...] = ()

    def select(self, name: str | None = None) -> Mapping[str, Iterable[SentencePair]]:
        """The pairs of a split; without a name all tests, or the validation split if there is no test."""
        return {name: LazyExamples(partial(iter_pairs, split)) for name, split in super().select(name).items()}

    def vocabulary_pairs(self) -> Iterable[SentencePair]:
        """The pairs that vocabularies are learned from: generated once, or read from files in every pass."""
        if callable(self.train):
            return self.train(Random("vocabulary"), VOCAB_SAMPLE_SIZE)
        return LazyExamples(partial(iter_pairs, self.train))


def make_splits(train: Any, valid: Any, tests: Mapping[str, Any] | None = None, **values: Any) -> TranslationSplits:
    """The splits, with the files to train on and to validate with.

    Args:
        train, valid: the pairs
        tests: those of each test split
        values: other fields of `TranslationSplits`
    """
    files = [path for split in (train, valid) if isinstance(split, ParallelFiles) for path in split.paths]
    return TranslationSplits(train, valid, tests or {}, tuple(map(Path, files)), **values)


def _open_splits(
    root: Path, pattern: str, languages: Sequence[str] = ("",), names: Sequence[str] = SPLIT_NAMES, **values: Any
) -> TranslationSplits:
    """The splits of a folder: one file each, or one for each language; the last name is that of the test split."""
    files = ([find_file(root, pattern.format(part=name, language=one)) for one in languages] for name in names)
    train, valid, test = (ParallelFiles(paths, **values) for paths in files)
    return make_splits(train, valid, {names[-1]: test})


def iter_pairs(split: ParallelFiles | Iterable[SentencePair]) -> Iterator[SentencePair]:
    """The pairs of files or of a list.

    Args:
        split: the files or the list
    """
    return (pair for pair, _ in split) if isinstance(split, ParallelFiles) else iter(split)


def translation(config: TranslationConfig) -> TranslationSplits:
    """The files that the config names.

    Args:
        config: of the training
    """
    if not config.train_files:
        raise ConfigError("translation needs text to train on: --train a.en a.de, or --train a.tsv")
    if not config.valid_files:
        raise ConfigError("translation needs text to choose the best weights by: --valid b.en b.de, or --valid b.tsv")
    tests = {"test": _open_parallel(config.test_files, config)} if config.test_files else {}
    return make_splits(_open_parallel(config.train_files, config), _open_parallel(config.valid_files, config), tests)


def _open_parallel(files: Sequence[str], config: TranslationConfig) -> ParallelFiles:
    """Files with the columns of the config: numbers for .tsv, names for .jsonl; plain files have none."""
    opened, columns = ParallelFiles(files), config.columns
    if not columns or opened.file_type == "plain":
        return opened
    is_tsv = opened.file_type == ".tsv"
    if is_tsv != all(column.isdecimal() for column in columns):
        form = "numbers, counted from 0, such as 0,1" if is_tsv else "names, such as source,target"
        raise ConfigError(f"columns {','.join(columns)} do not fit {opened}: a {opened.file_type} has {form}")
    return ParallelFiles(files, columns=[*map(int, columns)]) if is_tsv else ParallelFiles(files, keys=columns)


def _parse_language_pair(config: TranslationConfig, allowed: Sequence[str], where: str = "") -> list[str]:
    """The source and the target language."""
    if config.language_pair is None or config.language_pair not in allowed:
        expected = f"{where or 'expected one of'} {', '.join(allowed)}"
        raise config.option("language_pair").error(config.language_pair, expected)
    return config.language_pair.split("-", 1)


def multi30k(config: TranslationConfig, file_pattern: str = "{part}.{language}") -> TranslationSplits:
    """Image captions: Elliott et al. (2016), arXiv 1605.00459.

    Args:
        config: of the training
        file_pattern: path of a file, of its `part` and `language`
    """
    is_tokenized = "tok" in file_pattern
    pairs = ("en-de", "de-en", "en-fr", "fr-en", "de-fr", "fr-de")
    languages = _parse_language_pair(config, pairs[:2] if is_tokenized else pairs)
    fetch = downloads.download_multi30k_tok if is_tokenized else downloads.download_multi30k
    contents = "train, val and test_2016_flickr of Multi30k, a file for each language"
    root = find_data_folder(config.data_dir, contents, fetch)
    return _open_splits(root, file_pattern, languages, ("train", "val", "test_2016_flickr"))


# The same in lower case, tokenized by Moses: the form in which results are published.
multi30k_tok = partial(multi30k, file_pattern="tok/{part}.lc.norm.tok.{language}")


def g2p(config: TranslationConfig) -> TranslationSplits:
    """Spelling to sounds: SIGMORPHON 2021, task 1 (Ashby et al. 2021).

    Args:
        config: of the training
    """
    contents = "eng_us_train.tsv and the like: word, tab, sounds separated by spaces"
    root = find_data_folder(config.data_dir, contents, downloads.download_g2p)
    languages = sorted({path.name.partition("_train.tsv")[0] for path in root.glob("*_train.tsv*")})
    _parse_language_pair(config, languages, f"in {root} there are")
    return _open_splits(root, f"{config.language_pair}_{{part}}.tsv")


def dates(config: TranslationConfig) -> TranslationSplits:
    """Dates as people write them, in many languages, to ISO 8601.

    Args:
        config: of the training
    """
    from regard.data.dates import Dates

    tests = {"test": Dates(split="test").eval_set(2000), "patterns": Dates(split="patterns").eval_set(2000)}
    return make_splits(
        Dates(split="train").sample, Dates(split="valid").eval_set(1000), tests, cleaner="dates", unaligned_words=("-",)
    )


def pinyin(config: TranslationConfig) -> TranslationSplits:
    """Chinese phrases to their syllables.

    Args:
        config: of the training
    """
    from regard.data.strings import Pinyin

    return make_splits(Pinyin("train").pairs(), Pinyin("valid").pairs(), {"test": Pinyin("test").pairs()})


def reverse(config: TranslationConfig) -> TranslationSplits:
    """Strings of letters to the same in reverse order.

    Args:
        config: of the training
    """
    from regard.data.strings import Reverse

    train, valid, test = (Reverse(split=split, max_length=config.max_length) for split in ("train", "valid", "test"))
    return make_splits(train.sample, valid.eval_set(500), {"test": test.eval_set(500)})


def hansards(config: TranslationConfig) -> TranslationSplits:
    """Everyday sentences and captions in English and French, tested with the gold word alignments of the Hansards.

    The gold alignments are those of Och and Ney (2000), whose French is without contractions ("le adoption de le
    projet"); the training text is brought into that form. Its sentences are shorter than those of a parliament, so a
    second copy of each is concatenated with others.

    Args:
        config: of the training
    """
    if config.data_dir == DOWNLOAD:
        raise ConfigError(
            "hansards cannot download its data: the words that people linked (WPT 2003) have no address that stays;"
            " give data_dir=FOLDER with tatoeba-fr-en, multi30k and gold-alignments/en-fr.hansards.test.tsv"
        )
    root = find_data_folder(config.data_dir, "tatoeba-fr-en, multi30k and gold-alignments")
    forward = _parse_language_pair(config, ("en-fr", "fr-en"))[0] == "en"
    sentences = [
        ParallelFiles([find_file(root / "tatoeba-fr-en", "train.tsv")]),
        ParallelFiles([find_file(root / "multi30k", f"train.{language}") for language in ("en", "fr")]),
    ]
    valid = ParallelFiles([find_file(root / "tatoeba-fr-en", "dev.tsv")])

    def normalize(pair: SentencePair) -> SentencePair:
        english, french = normalize_english(pair.source), normalize_french(pair.target)
        return SentencePair(english, french) if forward else SentencePair(french, english)

    train = [normalize(pair) for split in sentences for pair in iter_pairs(split)]
    gold = root / "gold-alignments"
    tests = {part: read_gold_pairs(gold / f"en-fr.hansards.{part}.tsv", forward) for part in ("test", "dev")}
    return make_splits(train + concat_pairs(train), [normalize(pair) for pair in iter_pairs(valid)], tests)


def concat_pairs(pairs: list[SentencePair]) -> list[SentencePair]:
    """All pairs in another order, 2 to `MAX_CONCATENATED` of them concatenated: longer sentences than captions have.

    Args:
        pairs: of short sentences

    Example:
        >>> concat_pairs([SentencePair("a", "b"), SentencePair("c", "d")])
        [SentencePair(source='c a', target='d b', ...)]
    """
    rng, remaining, results = Random(0), list(pairs), []
    rng.shuffle(remaining)
    while remaining:
        group = [remaining.pop() for _ in range(min(rng.randint(2, MAX_CONCATENATED), len(remaining)))]
        results.append(SentencePair(" ".join(pair.source for pair in group), " ".join(pair.target for pair in group)))
    return results


def read_gold_pairs(path: Path, forward: bool = True) -> list[SentencePair]:
    """Sentence pairs with gold alignments.

    Args:
        path: a file as `read_gold` reads it
        forward: False exchanges source and target
    """
    pairs = []
    for gold in read_gold(path):
        source, target = " ".join(gold.source), " ".join(gold.target)
        sure, possible = tuple(sorted(gold.sure)), tuple(sorted(gold.possible))
        if not forward:
            source, target = target, source
            sure, possible = (tuple((j, i) for i, j in links) for links in (sure, possible))
        pairs.append(SentencePair(source, target, sure, possible))
    return pairs


def normalize_english(text: str) -> str:
    """Words and punctuation separated by spaces, as in the Hansards.

    Args:
        text: a sentence

    >>> normalize_english("I don't know Tom's dog, sir.")
    "I do not know Tom 's dog , sir ."
    """
    text = re.sub(r"(?i)\b(can)(?:no|['’])t\b", r"\1 not", text)
    text = re.sub(r"(?i)\bwon['’]t\b", "will not", text)
    text = re.sub(r"(?i)n['’]t\b", " not", text)
    text = re.sub(r"['’](s|m|re|ve|ll|d)\b", r" '\1", text, flags=re.IGNORECASE)
    return " ".join(PUNCTUATION.sub(r" \1 ", text).split())


def normalize_french(text: str) -> str:
    """Words and punctuation separated by spaces, without contractions.

    Args:
        text: a sentence

    >>> normalize_french("L'homme qu'on a vu n'est pas du village.")
    'Le homme que on a vu ne est pas de le village .'
    """
    text = CLITICS.sub(r"\1e ", re.sub(r"(?i)\baujourd['’]hui\b", "aujourd' hui", text))
    words = PUNCTUATION.sub(r" \1 ", text).split()
    return " ".join(CONTRACTIONS.get(word, word) for word in words)


def tatoeba(config: TranslationConfig, language: str) -> TranslationSplits:
    """Everyday sentences of tatoeba.org: files of lines of English, tab, the other language.

    Args:
        config: of the training
        language: the other language, "zh" or "fr"
    """
    forward = _parse_language_pair(config, (f"en-{language}", f"{language}-en"))[0] == "en"
    contents = f"train.tsv, dev.tsv and test.tsv: en, tab, {language}"
    root = find_data_folder(config.data_dir, contents, lambda: downloads.download_tatoeba(language))
    return _open_splits(root, "{part}.tsv", columns=(0, 1) if forward else (1, 0))


tatoeba_zh_en, tatoeba_fr_en = partial(tatoeba, language="zh"), partial(tatoeba, language="fr")
