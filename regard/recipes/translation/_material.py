"""The texts of each recipe: what to train on, to choose by, and to judge by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from regard.data.batch import Pair
from regard.data.readers import Parallel
from regard.errors import ConfigError
from regard.recipes._files import folder, named
from regard.recipes.translation import _downloads as downloads
from regard.recipes.translation.settings import Translation

Make = Callable[[Random, int], list[Pair]]
SAMPLE = 50_000  # generated pairs that a vocabulary is learned from


@dataclass(frozen=True)
class Material:
    """Where the pairs come from: files to read, pairs in memory, or a function that makes them."""

    train: Parallel | Sequence[Pair] | Make
    valid: Parallel | Sequence[Pair]
    tests: Mapping[str, Parallel | Sequence[Pair]] = field(default_factory=dict)

    def texts(self) -> Iterator[Pair]:
        """What the vocabulary is learned from."""
        if callable(self.train):
            return iter(self.train(Random("vocabulary"), SAMPLE))
        return pairs(self.train)


def pairs(part: Parallel | Iterable[Pair]) -> Iterator[Pair]:
    """Pairs, wherever they come from."""
    return (pair for pair, _ in part) if isinstance(part, Parallel) else iter(part)


def from_files(settings: Translation) -> Material:
    """Files that somebody names."""
    if not settings.train:
        raise ConfigError("translation needs text to train on: --train a.en a.de, or --train a.tsv")
    if not settings.valid:
        raise ConfigError(
            "translation needs text to choose the best weights by: --valid b.en b.de, or --valid b.tsv"
        )
    tests = {"test": _parallel(settings.test, settings)} if settings.test else {}
    return Material(_parallel(settings.train, settings), _parallel(settings.valid, settings), tests)


def _parallel(files: Sequence[str], settings: Translation) -> Parallel:
    """Files with the columns of the settings, read as their kind has them; plain ones have none."""
    part, columns = Parallel(files), settings.columns
    numbers = [column.isdecimal() for column in columns]
    if not columns or part.kind == "plain":
        return part
    if part.kind == ".tsv" and not all(numbers):
        raise _unfit(part, columns, "has numbers, counted from 0, such as 0,1")
    if part.kind == ".jsonl" and all(numbers):
        raise _unfit(part, columns, "has names, such as source,target")
    if part.kind == ".tsv":
        return Parallel(files, columns=[int(column) for column in columns])
    return Parallel(files, keys=columns)


def _unfit(part: Parallel, columns: Sequence[str], has: str) -> ConfigError:
    return ConfigError(f"columns {','.join(columns)} do not fit {part}: a {part.kind} {has}")


def languages(settings: Translation, known: Sequence[str]) -> tuple[str, str]:
    """The languages read and written."""
    if settings.pair is None or settings.pair not in known:
        raise ConfigError(f"invalid value {settings.pair!r} for pair: expected one of {', '.join(known)}")
    source, _, target = settings.pair.partition("-")
    return source, target


def multi30k(settings: Translation, form: str = "{part}.{language}") -> Material:
    """Image captions: Elliott et al. (2016), arXiv 1605.00459."""
    known = ("en-de", "de-en", "en-fr", "fr-en", "de-fr", "fr-de")
    sides = languages(settings, known if "tok" not in form else known[:2])
    fetch = downloads.multi30k_tok if "tok" in form else downloads.multi30k
    root = folder(
        settings.data, "train, val and test_2016_flickr of Multi30k, a file for each language", fetch
    )

    def part(name: str) -> Parallel:
        return Parallel([named(root, form.format(part=name, language=language)) for language in sides])

    return Material(part("train"), part("val"), {"test_2016_flickr": part("test_2016_flickr")})


def multi30k_tok(settings: Translation) -> Material:
    """The same in small letters, tokenized by Moses: the form in which results are published."""
    return multi30k(settings, "tok/{part}.lc.norm.tok.{language}")


def g2p(settings: Translation) -> Material:
    """Spelling to sounds: SIGMORPHON 2021, task 1 (Ashby et al. 2021)."""
    root = folder(
        settings.data, "eng_us_train.tsv and the like: word, tab, sounds separated by spaces", downloads.g2p
    )
    known = sorted({path.name.partition("_train.tsv")[0] for path in root.glob("*_train.tsv*")})
    if settings.pair not in known:
        raise ConfigError(f"invalid value {settings.pair!r} for pair: in {root} there are {', '.join(known)}")

    def part(name: str) -> Parallel:
        return Parallel([named(root, f"{settings.pair}_{name}.tsv")])

    return Material(part("train"), part("dev"), {"test": part("test")})


def dates(settings: Translation) -> Material:
    """Dates as people write them, in many languages, to ISO 8601."""
    from regard.data.dates import Dates

    tests = {"test": Dates(split="test").fixed(2000), "patterns": Dates(split="patterns").fixed(2000)}
    return Material(Dates(split="train").make, Dates(split="valid").fixed(1000), tests)


def pinyin(settings: Translation) -> Material:
    """Chinese phrases to their syllables."""
    from regard.data.pinyin import Pinyin

    return Material(Pinyin("train").pairs(), Pinyin("valid").pairs(), {"test": Pinyin("test").pairs()})


def reverse(settings: Translation) -> Material:
    """Letters from behind."""
    from regard.data.reverse import Reverse

    made = {split: Reverse(split=split, longest=settings.max_length) for split in ("train", "valid", "test")}
    return Material(made["train"].make, made["valid"].fixed(500), {"test": made["test"].fixed(500)})
