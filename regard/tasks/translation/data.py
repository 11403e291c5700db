"""The texts of each recipe: what to train on, to choose by, and to judge by.

English and French to be aligned: text to train on, and words that people linked.

Sentences of daily life from tatoeba.org: from a folder, or from the network, parted by the English sentence.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from regard.data.downloads import cache_dir, download
from regard.data.parallel import ParallelFiles, SentencePair
from regard.decoding import read_gold
from regard.errors import ConfigError, DataError, DownloadError
from regard.files import sha256_of_file
from regard.tasks import datasets as downloads
from regard.tasks.datasets import DOWNLOAD, find_data_folder, find_file
from regard.tasks.task import DataSplits, LazyExamples
from regard.tasks.translation.config import TranslationConfig

PairSampler = Callable[[Random, int], list[SentencePair]]


VOCAB_SAMPLE_SIZE = 50_000  # generated pairs that a vocabulary is learned from


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

    def iter_vocabulary_pairs(self) -> Iterator[SentencePair]:
        """The pairs that a vocabulary is learned from."""
        if callable(self.train):
            return iter(self.train(Random("vocabulary"), VOCAB_SAMPLE_SIZE))
        return iter_pairs(self.train)


def make_splits(train: Any, valid: Any, tests: Mapping[str, Any] | None = None, **values: Any) -> TranslationSplits:
    """The splits, with the files to train on and to validate with."""
    files = [path for split in (train, valid) if isinstance(split, ParallelFiles) for path in split.paths]
    return TranslationSplits(train, valid, tests or {}, tuple(map(Path, files)), **values)


def iter_pairs(split: ParallelFiles | Iterable[SentencePair]) -> Iterator[SentencePair]:
    """The pairs of files or of a list."""
    return (pair for pair, _ in split) if isinstance(split, ParallelFiles) else iter(split)


def from_files(config: TranslationConfig) -> TranslationSplits:
    """Files that somebody names."""
    if not config.train_files:
        raise ConfigError("translation needs text to train on: --train a.en a.de, or --train a.tsv")
    if not config.valid_files:
        raise ConfigError("translation needs text to choose the best weights by: --valid b.en b.de, or --valid b.tsv")
    tests = {"test": _open_parallel(config.test_files, config)} if config.test_files else {}
    return make_splits(_open_parallel(config.train_files, config), _open_parallel(config.valid_files, config), tests)


def _open_parallel(files: Sequence[str], config: TranslationConfig) -> ParallelFiles:
    """Files with the columns of the settings, read as their kind has them; plain ones have none."""
    part, columns = ParallelFiles(files), config.columns
    numbers = [column.isdecimal() for column in columns]
    if not columns or part.file_type == "plain":
        return part
    if part.file_type == ".tsv" and not all(numbers):
        raise _columns_error(part, columns, "has numbers, counted from 0, such as 0,1")
    if part.file_type == ".jsonl" and all(numbers):
        raise _columns_error(part, columns, "has names, such as source,target")
    if part.file_type == ".tsv":
        return ParallelFiles(files, columns=[int(column) for column in columns])
    return ParallelFiles(files, keys=columns)


def _columns_error(files: ParallelFiles, columns: Sequence[str], expected: str) -> ConfigError:
    return ConfigError(f"columns {','.join(columns)} do not fit {files}: a {files.file_type} {expected}")


def parse_language_pair(config: TranslationConfig, known: Sequence[str]) -> tuple[str, str]:
    """The languages read and written."""
    if config.language_pair is None or config.language_pair not in known:
        raise ConfigError(
            f"invalid value {config.language_pair!r} for language_pair: expected one of {', '.join(known)}"
        )
    source, _, target = config.language_pair.partition("-")
    return source, target


def multi30k(config: TranslationConfig, file_pattern: str = "{part}.{language}") -> TranslationSplits:
    """Image captions: Elliott et al. (2016), arXiv 1605.00459."""
    known = ("en-de", "de-en", "en-fr", "fr-en", "de-fr", "fr-de")
    sides = parse_language_pair(config, known if "tok" not in file_pattern else known[:2])
    fetch = downloads.download_multi30k_tok if "tok" in file_pattern else downloads.download_multi30k
    root = find_data_folder(
        config.data_dir, "train, val and test_2016_flickr of Multi30k, a file for each language", fetch
    )

    def part(name: str) -> ParallelFiles:
        return ParallelFiles([find_file(root, file_pattern.format(part=name, language=language)) for language in sides])

    return make_splits(part("train"), part("val"), {"test_2016_flickr": part("test_2016_flickr")})


def multi30k_tok(config: TranslationConfig) -> TranslationSplits:
    """The same in small letters, tokenized by Moses: the form in which results are published."""
    return multi30k(config, "tok/{part}.lc.norm.tok.{language}")


def g2p(config: TranslationConfig) -> TranslationSplits:
    """Spelling to sounds: SIGMORPHON 2021, task 1 (Ashby et al. 2021)."""
    root = find_data_folder(
        config.data_dir, "eng_us_train.tsv and the like: word, tab, sounds separated by spaces", downloads.download_g2p
    )
    known = sorted({path.name.partition("_train.tsv")[0] for path in root.glob("*_train.tsv*")})
    if config.language_pair not in known:
        raise ConfigError(
            f"invalid value {config.language_pair!r} for language_pair: in {root} there are {', '.join(known)}"
        )

    def part(name: str) -> ParallelFiles:
        return ParallelFiles([find_file(root, f"{config.language_pair}_{name}.tsv")])

    return make_splits(part("train"), part("dev"), {"test": part("test")})


def dates(config: TranslationConfig) -> TranslationSplits:
    """Dates as people write them, in many languages, to ISO 8601."""
    from regard.data.dates import Dates

    tests = {"test": Dates(split="test").eval_set(2000), "patterns": Dates(split="patterns").eval_set(2000)}
    return make_splits(
        Dates(split="train").sample, Dates(split="valid").eval_set(1000), tests, cleaner="dates", unaligned_words=("-",)
    )


def pinyin(config: TranslationConfig) -> TranslationSplits:
    """Chinese phrases to their syllables."""
    from regard.data.strings import Pinyin

    return make_splits(Pinyin("train").pairs(), Pinyin("valid").pairs(), {"test": Pinyin("test").pairs()})


def reverse(config: TranslationConfig) -> TranslationSplits:
    """Letters from behind."""
    from regard.data.strings import Reverse

    made = {split: Reverse(split=split, max_length=config.max_length) for split in ("train", "valid", "test")}
    return make_splits(made["train"].sample, made["valid"].eval_set(500), {"test": made["test"].eval_set(500)})


def hansards(config: TranslationConfig) -> TranslationSplits:
    """English and French of daily life and of captions; judged by the words that people linked in the Hansards.

    The gold links are those of Och and Ney (2000), whose French is without contractions ("le adoption de le
    projet"); so the text to train on is brought into that form. Its sentences are short beside those of a parliament,
    so each is there a second time, with others behind or before it.
    """
    if config.data_dir == DOWNLOAD:
        raise ConfigError(
            "hansards cannot download its data: the words that people linked (WPT 2003) have no address that stays;"
            " give data_dir=FOLDER with tatoeba-fr-en, multi30k and gold-alignments/en-fr.hansards.test.tsv"
        )
    root = find_data_folder(config.data_dir, "tatoeba-fr-en, multi30k and gold-alignments")
    forward = parse_language_pair(config, ("en-fr", "fr-en"))[0] == "en"
    sentences = [
        ParallelFiles([find_file(root / "tatoeba-fr-en", "train.tsv")]),
        ParallelFiles([find_file(root / "multi30k", f"train.{language}") for language in ("en", "fr")]),
    ]
    valid = ParallelFiles([find_file(root / "tatoeba-fr-en", "dev.tsv")])

    def turned(pair: SentencePair) -> SentencePair:
        english, french = normalize_english(pair.source), normalize_french(pair.target)
        return SentencePair(english, french) if forward else SentencePair(french, english)

    train = [turned(pair) for part in sentences for pair in iter_pairs(part)]
    tests = {
        part: read_gold_pairs(root / "gold-alignments" / f"en-fr.hansards.{part}.tsv", forward)
        for part in ("test", "dev")
    }
    return make_splits(train + concat_pairs(train), [turned(pair) for pair in iter_pairs(valid)], tests)


def concat_pairs(pairs: list[SentencePair]) -> list[SentencePair]:
    """All pairs in another order, two to `MOST` made one: sentences of the lengths that captions do not have.

    >>> concat_pairs([SentencePair("a", "b"), SentencePair("c", "d")])
    [SentencePair(source='c a', target='d b', ...)]
    """
    random, left, found = Random(0), list(pairs), []
    random.shuffle(left)
    while left:
        some = [left.pop() for _ in range(min(random.randint(2, MAX_CONCATENATED), len(left)))]
        found.append(SentencePair(" ".join(one.source for one in some), " ".join(one.target for one in some)))
    return found


def read_gold_pairs(path: Path, forward: bool = True) -> list[SentencePair]:
    """Sentences whose words people linked, from `read_gold`'s kind of file, or the other way round."""
    found = []
    for one in read_gold(path):
        source, target = " ".join(one.source), " ".join(one.target)
        sure, possible = tuple(sorted(one.sure)), tuple(sorted(one.possible))
        if forward:
            found.append(SentencePair(source, target, sure, possible))
        else:
            sure, possible = (tuple((j, i) for i, j in links) for links in (sure, possible))
            found.append(SentencePair(target, source, sure, possible))
    return found


MAX_CONCATENATED = 4  # pairs made one


PUNCTUATION = re.compile(r"([-,;:!?()\"«»…]|\.+$|\.(?=\s))")


CLITICS = re.compile(r"(?<!\w)(l|d|j|n|s|c|m|t|qu|lorsqu|puisqu|jusqu)['’](?=\w)", re.IGNORECASE)


CONTRACTIONS = {"du": "de le", "des": "de les", "au": "à le", "aux": "à les"}


def normalize_english(text: str) -> str:
    """Words and marks with spaces between them, in the way of the Hansards.

    >>> normalize_english("I don't know Tom's dog, sir.")
    "I do not know Tom 's dog , sir ."
    """
    text = re.sub(r"(?i)\b(can)(?:no|['’])t\b", r"\1 not", text)
    text = re.sub(r"(?i)\bwon['’]t\b", "will not", text)
    text = re.sub(r"(?i)n['’]t\b", " not", text)
    text = re.sub(r"['’](s|m|re|ve|ll|d)\b", r" '\1", text, flags=re.IGNORECASE)
    return " ".join(PUNCTUATION.sub(r" \1 ", text).split())


def normalize_french(text: str) -> str:
    """The same for French, without contractions.

    >>> normalize_french("L'homme qu'on a vu n'est pas du village.")
    'Le homme que on a vu ne est pas de le village .'
    """
    text = CLITICS.sub(r"\1e ", re.sub(r"(?i)\baujourd['’]hui\b", "aujourd' hui", text))
    words = PUNCTUATION.sub(r" \1 ", text).split()
    return " ".join(CONTRACTIONS.get(word, word) for word in words)


TATOEBA_URL = "https://www.manythings.org/anki"  # pairs of tatoeba.org's sentences; the files grow from time to time


TATOEBA_LANGUAGES = {"zh": "cmn", "fr": "fra"}  # of languages, there


CHECKSUM_FILE = "sha256"  # a file beside the parts


TATOEBA_SPLITS = ("dev", "test", "train")


HELD = 50  # one English sentence in so many goes to dev, and one to test


def tatoeba_zh_en(config: TranslationConfig) -> TranslationSplits:
    """Everyday sentences of tatoeba.org, Chinese and English."""
    return _tatoeba(config, "zh")


def tatoeba_fr_en(config: TranslationConfig) -> TranslationSplits:
    """Everyday sentences of tatoeba.org, French and English."""
    return _tatoeba(config, "fr")


def _tatoeba(config: TranslationConfig, language: str) -> TranslationSplits:
    """Files of lines: English, tab, the other language."""
    forward = parse_language_pair(config, (f"en-{language}", f"{language}-en"))[0] == "en"
    contents = f"train.tsv, dev.tsv and test.tsv: en, tab, {language}"
    root = find_data_folder(config.data_dir, contents, lambda: download_tatoeba(language))

    def part(name: str) -> ParallelFiles:
        return ParallelFiles([find_file(root, f"{name}.tsv")], columns=(0, 1) if forward else (1, 0))

    return make_splits(part("train"), part("dev"), {"test": part("test")})


def download_tatoeba(language: str) -> Path:
    """The folder of the three parts, made of the file that the site had when it was first fetched."""
    where, name = cache_dir() / f"tatoeba-{language}-en", TATOEBA_LANGUAGES[language]
    url = f"{TATOEBA_URL}/{name}-eng.zip"
    try:
        packed = download(url, None, where)
    except DownloadError as error:
        raise DownloadError(f"{error} Or get {url} in another way and put it into {where}.") from None
    made, mark = where / "parts", sha256_of_file(packed)
    if _read_checksum(made) != mark:
        rough = where / f".parts.{os.getpid()}.{secrets.token_hex(4)}"
        try:
            rough.mkdir()
            write_splits(packed, f"{name}.txt", rough)
            (rough / CHECKSUM_FILE).write_text(mark, encoding="utf-8")
            shutil.rmtree(made, ignore_errors=True)
            os.replace(rough, made)  # all three parts, or none
        except DataError:  # what came is not what it should be: nothing to hold to
            with suppress(OSError):
                packed.unlink()
                packed.with_name(f"{packed.name}.sha256").unlink()
            raise
        except OSError as error:
            if _read_checksum(made) != mark:  # else another process was faster
                wrong = error.strerror or error
                raise DownloadError(
                    f"{where} cannot be written to ({wrong}); REGARD_CACHE can name another folder."
                ) from None
        finally:
            shutil.rmtree(rough, ignore_errors=True)
    return made


def _read_checksum(folder: Path) -> str:
    """The checksum of the file that these parts were made of."""
    return (folder / CHECKSUM_FILE).read_text(encoding="utf-8") if (folder / CHECKSUM_FILE).is_file() else ""


def write_splits(archive_path: Path, name: str, folder: Path) -> None:
    """Part the lines of a packed file into train.tsv, dev.tsv and test.tsv."""
    counts = dict.fromkeys(TATOEBA_SPLITS, 0)
    with ExitStack() as stack:
        files = {
            part: stack.enter_context(open(folder / f"{part}.tsv", "w", encoding="utf-8", newline="\n"))
            for part in TATOEBA_SPLITS
        }
        for number, line in enumerate(_read_zip_lines(archive_path, name), 1):
            english, tab, _ = line.partition("\t")
            if not line.strip():
                continue
            if not tab:
                raise DataError(f"{archive_path}: line {number:,} of {name} is no sentence, tab, translation.")
            files[assign_split(english)].write(line + "\n")
            counts[assign_split(english)] += 1
    if not all(counts.values()):
        raise DataError(f"{archive_path}: {name} has {sum(counts.values()):,} lines, too few to be parted.")


def assign_split(english: str) -> str:
    """The part of an English sentence: the same for all its translations, whatever else the file holds.

    >>> [assign_split(f"I have {number} dogs.") for number in ("two", 13, 24)]
    ['train', 'dev', 'test']
    """
    bare = "".join(filter(str.isalnum, english.lower()))
    number = int.from_bytes(hashlib.sha256(bare.encode()).digest()[:8], "big") % HELD
    return TATOEBA_SPLITS[min(number, 2)]


def _read_zip_lines(archive_path: Path, name: str) -> Iterator[str]:
    try:
        with zipfile.ZipFile(archive_path) as archive, archive.open(name) as file:
            for number, line in enumerate(file, 1):
                try:
                    yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                except UnicodeDecodeError:
                    raise DataError(f"{archive_path}: line {number:,} of {name} is not UTF-8.") from None
    except KeyError:
        raise DataError(f"{archive_path} holds no {name}; what the site gives has changed.") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise DataError(f"{archive_path} is not a whole zip file ({error}).") from None
