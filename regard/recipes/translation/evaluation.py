"""How good translations are: exact matches, BLEU, chrF, and how well attention aligns words."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import Tensor

from regard.data import Pair
from regard.data.unspaced import HAN, KANA
from regard.data.unspaced import words as words_of
from regard.decoding import Alignment, Decoding, aer
from regard.errors import DataError, MissingDependencyError
from regard.recipes.translation.settings import Translation
from regard.recipes.translation.translator import Translator

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU

BY_LANGUAGE = {"zh": "zh", "ja": "char", "ko": "char", "th": "char"}
BY_SCRIPT = {"ja": f"[{KANA}]", "zh": f"[{HAN}]", "ko": "[\uac00-\ud7a3]", "th": "[\u0e01-\u0e5b]"}
KANA_SHARE = 10  # Japanese has more kana than one to so many Han characters; Chinese has a little, in names
LENGTHS = (10, 20, 30, 40, 50, 60)  # borders of the groups by source length, in words


def evaluate(
    translator: Translator, pairs: Sequence[Pair], options: Decoding | None = None, bleu: str | None = None
) -> dict[str, Any]:
    """All that can be said of a model on these pairs, as plain numbers; `bleu` is its setting, if another is wanted."""
    if not pairs:
        raise DataError("there is nothing to evaluate: no pairs were given")
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    answers = [translator.text(best[0]) if best else "" for best in translator.search(sources, options)]
    settings = translator.settings if bleu is None else replace(translator.settings, bleu=bleu)  # type: ignore[arg-type]
    report = measures(answers, references, settings)
    report["by_length"] = by_length(sources, answers, references, settings)
    if translator.attends and any(pair.links is not None for pair in pairs):
        report |= alignment_error(translator, pairs)
    return report


def measures(answers: Sequence[str], references: Sequence[str], settings: Translation) -> dict[str, Any]:
    """Exact matches, BLEU and chrF, with the signatures that make them comparable (Post 2018, arXiv 1804.08771)."""
    from sacrebleu.metrics.chrf import CHRF

    references = [_known(text, settings) for text in references]
    found, other = metric(settings, references), CHRF(lowercase=settings.lowercase)
    exact = sum(a == r for a, r in zip(answers, references, strict=True))
    bleu = found.corpus_score(list(answers), [list(references)])
    return {
        "sentences": len(answers),
        "exact": 100 * exact / max(len(answers), 1),
        "bleu": bleu.score,
        "bleu_signature": str(found.get_signature()),
        "brevity_penalty": bleu.bp,
        "chrf": other.corpus_score(list(answers), [list(references)]).score,
        "chrf_signature": str(other.get_signature()),
        "nfkc": settings.nfkc,  # of the references, which signatures do not tell
    }


def tokenization(settings: Translation, references: Sequence[str] = ()) -> str:
    """How sacrebleu cuts the target language into words: by its name in `pair`, else by the references' script."""
    if settings.bleu != "auto":
        return settings.bleu
    pair = settings.pair or _written(references)
    language = re.split("[-_]", pair.partition("-")[2] or pair)[0]  # of en-zh, zh and en-zh_CN it is zh
    letters = (settings.target_tokenizer or settings.tokenizer) == "char"
    return BY_LANGUAGE.get(language, "char" if letters else "13a")


def _written(references: Sequence[str]) -> str:
    """The language that a script tells: of those without spaces, and Korean; of others nothing."""
    text = "\n".join(references)
    found = {language: len(re.findall(script, text)) for language, script in BY_SCRIPT.items()}
    others = re.sub("|".join(BY_SCRIPT.values()), " ", text).split()
    if sum(found.values()) <= sum(bool(re.search(r"[^\W\d_]", word)) for word in others):
        return ""
    if KANA_SHARE * found["ja"] > found["zh"]:
        found["ja"] += found["zh"]
    return max(found, key=lambda language: found[language])


def metric(settings: Translation, references: Sequence[str] = ()) -> BLEU:
    """BLEU as the settings want it; refused in one sentence if sacrebleu needs more than is installed for it."""
    from sacrebleu.metrics.bleu import BLEU

    words = tokenization(settings, references)
    try:
        return BLEU(lowercase=settings.lowercase, tokenize=words)
    except (ImportError, RuntimeError) as error:  # its own sentence has many lines
        wanted = str(error).rpartition("pip install ")[2].strip() or "sacrebleu with its extras"
        raise MissingDependencyError(f"bleu={words} needs another package: pip install {wanted}") from None


def _known(text: str, settings: Translation) -> str:
    """The reference as the model could write it: where it was trained on small letters, in small letters."""
    import unicodedata

    text = unicodedata.normalize("NFKC", text) if settings.nfkc else text
    text = text.lower() if settings.lowercase else text
    return text if (settings.target_tokenizer or settings.tokenizer) == "char" else " ".join(text.split())


def by_length(
    sources: Sequence[str], answers: Sequence[str], references: Sequence[str], settings: Translation
) -> list[dict[str, Any]]:
    """BLEU in groups of similar source length: does it fall for long sentences?"""
    settings = replace(settings, bleu=tokenization(settings, references))  # type: ignore[arg-type]
    split = list if settings.tokenizer == "char" else words_of
    groups: dict[int, list[int]] = {}
    for row, source in enumerate(sources):
        words = len(split(source))
        groups.setdefault(sum(words > border for border in LENGTHS), []).append(row)
    table = []
    for group in sorted(groups):
        rows = groups[group]
        found = measures([answers[i] for i in rows], [references[i] for i in rows], settings)
        low = LENGTHS[group - 1] + 1 if group else 1
        high = LENGTHS[group] if group < len(LENGTHS) else None
        kept = {name: found[name] for name in ("sentences", "exact", "bleu")}
        table.append({"from": low, "to": high, **kept})
    return table


def alignment_error(translator: Translator, pairs: Sequence[Pair]) -> dict[str, Any]:
    """The alignment error rate of the given translations, by the best layer and head; in hindsight, too.

    Words that the recipe says are linked to nothing by nature, such as the hyphens of a date, are not asked.
    """
    linked = [pair for pair in pairs if pair.links is not None]
    texts = [pair.source for pair in linked], [pair.target for pair in linked]
    best, layer, head = _best_head(translator, linked, translator.align(*texts, spaced=True))
    report = {"aer": best, "aer_layer": layer, "aer_head": head, "aer_sentences": len(linked)}
    if translator.has_hindsight:
        later = translator.hindsight(*texts, spaced=True)
        report["aer_hindsight"] = _best_head(translator, linked, later)[0]
    return report


def _best_head(
    translator: Translator, linked: Sequence[Pair], alignments: Sequence[Alignment]
) -> tuple[float, int, int]:
    """The least error, and the layer and head that have it."""
    sure = [set(pair.links or ()) for pair in linked]
    possible = [known | set(pair.possible or ()) for known, pair in zip(sure, linked, strict=True)]
    layers, heads = alignments[0].weights.shape[:2]
    linked_by = [seen.linked() for seen in alignments]
    errors = {}
    for layer, head in itertools.product(range(layers), range(heads)):
        found = [
            _asked(links[layer, head], seen, translator)
            for links, seen in zip(linked_by, alignments, strict=True)
        ]
        errors[layer, head] = aer(found, sure, possible)
    layer, head = min(errors, key=lambda place: errors[place])
    return errors[layer, head], layer, head


def _asked(links: Tensor, seen: Alignment, translator: Translator) -> set[tuple[int, int]]:
    names = seen.names("target")
    return {(i, j) for j, i in links.nonzero().tolist() if names[j] not in translator.unlinked}
