"""English and French to be aligned: text to train on, and words that people linked."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

from regard.data.batch import Pair
from regard.data.readers import Parallel
from regard.decoding import read_gold
from regard.errors import ConfigError
from regard.recipes._files import folder, named
from regard.recipes._task import DOWNLOAD
from regard.recipes.translation._material import Material, languages, pairs
from regard.recipes.translation.settings import Translation


def hansards(settings: Translation) -> Material:
    """English and French of daily life and of captions; judged by the words that people linked in the Hansards.

    The gold links are those of Och and Ney (2000), whose French is without contractions ("le adoption de le
    projet"); so the text to train on is brought into that form. Its sentences are short beside those of a parliament,
    so each is there a second time, with others behind or before it.
    """
    if settings.data == DOWNLOAD:
        raise ConfigError(
            "hansards cannot download its data: the words that people linked (WPT 2003) have no address that stays;"
            " give data=FOLDER with tatoeba-fr-en, multi30k and gold-alignments/en-fr.hansards.test.tsv"
        )
    root = folder(settings.data, "tatoeba-fr-en, multi30k and gold-alignments")
    forward = languages(settings, ("en-fr", "fr-en"))[0] == "en"
    sentences = [
        Parallel([named(root / "tatoeba-fr-en", "train.tsv")]),
        Parallel([named(root / "multi30k", f"train.{language}") for language in ("en", "fr")]),
    ]
    valid = Parallel([named(root / "tatoeba-fr-en", "dev.tsv")])

    def turned(pair: Pair) -> Pair:
        english, french = english_words(pair.source), french_words(pair.target)
        return Pair(english, french) if forward else Pair(french, english)

    train = [turned(pair) for part in sentences for pair in pairs(part)]
    tests = {
        part: gold_pairs(root / "gold-alignments" / f"en-fr.hansards.{part}.tsv", forward)
        for part in ("test", "dev")
    }
    return Material(train + joined(train), [turned(pair) for pair in pairs(valid)], tests)


def joined(given: list[Pair]) -> list[Pair]:
    """All pairs in another order, two to `MOST` made one: sentences of the lengths that captions do not have.

    >>> joined([Pair("a", "b"), Pair("c", "d")])
    [Pair(source='c a', target='d b', ...)]
    """
    random, left, found = Random(0), list(given), []
    random.shuffle(left)
    while left:
        some = [left.pop() for _ in range(min(random.randint(2, MOST), len(left)))]
        found.append(Pair(" ".join(one.source for one in some), " ".join(one.target for one in some)))
    return found


def gold_pairs(path: Path, forward: bool = True) -> list[Pair]:
    """Sentences whose words people linked, from `read_gold`'s kind of file, or the other way round."""
    found = []
    for one in read_gold(path):
        source, target = " ".join(one.source), " ".join(one.target)
        sure, possible = tuple(sorted(one.sure)), tuple(sorted(one.possible))
        if forward:
            found.append(Pair(source, target, sure, possible))
        else:
            sure, possible = (tuple((j, i) for i, j in links) for links in (sure, possible))
            found.append(Pair(target, source, sure, possible))
    return found


MOST = 4  # pairs made one
MARKS = re.compile(r"([-,;:!?()\"«»…]|\.+$|\.(?=\s))")
CLITICS = re.compile(r"(?<!\w)(l|d|j|n|s|c|m|t|qu|lorsqu|puisqu|jusqu)['’](?=\w)", re.IGNORECASE)
MERGED = {"du": "de le", "des": "de les", "au": "à le", "aux": "à les"}


def english_words(text: str) -> str:
    """Words and marks with spaces between them, in the way of the Hansards.

    >>> english_words("I don't know Tom's dog, sir.")
    "I do not know Tom 's dog , sir ."
    """
    text = re.sub(r"(?i)\b(can)(?:no|['’])t\b", r"\1 not", text)
    text = re.sub(r"(?i)\bwon['’]t\b", "will not", text)
    text = re.sub(r"(?i)n['’]t\b", " not", text)
    text = re.sub(r"['’](s|m|re|ve|ll|d)\b", r" '\1", text, flags=re.IGNORECASE)
    return " ".join(MARKS.sub(r" \1 ", text).split())


def french_words(text: str) -> str:
    """The same for French, without contractions.

    >>> french_words("L'homme qu'on a vu n'est pas du village.")
    'Le homme que on a vu ne est pas de le village .'
    """
    text = CLITICS.sub(r"\1e ", re.sub(r"(?i)\baujourd['’]hui\b", "aujourd' hui", text))
    words = MARKS.sub(r" \1 ", text).split()
    return " ".join(MERGED.get(word, word) for word in words)
