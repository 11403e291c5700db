"""How good translations are: exact matches, BLEU, chrF, and how well attention aligns words."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import Tensor

from regard.data import SentencePair
from regard.data.segmentation import HAN, KANA
from regard.data.segmentation import split_words_or_characters as words_of
from regard.decoding import Alignment, DecodingConfig, GoldAlignment, alignment_error_rate
from regard.errors import DataError, InputError, MissingDependencyError
from regard.tasks.predictor import Metric, Report
from regard.tasks.translation.config import BleuTokenizer, TranslationConfig

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU

    from regard.tasks.translation.predictor import Translator

BY_LANGUAGE = {"zh": "zh", "ja": "char", "ko": "char", "th": "char"}


BY_SCRIPT = {"ja": f"[{KANA}]", "zh": f"[{HAN}]", "ko": "[\uac00-\ud7a3]", "th": "[\u0e01-\u0e5b]"}


KANA_SHARE = 10  # Japanese has more kana than one to so many Han characters; Chinese has a little, in names


LENGTH_BOUNDARIES = (10, 20, 30, 40, 50, 60)  # borders of the groups by source length, in words


METRICS = (
    Metric("bleu", "BLEU"),
    Metric("chrf", "chrF"),
    Metric("exact", "exact match, %"),
    Metric("aer", "alignment error rate", lower_is_better=True, format=".4f"),
    Metric("aer_posterior", "alignment error rate, posterior", lower_is_better=True, format=".4f"),
    Metric("loss", "nats per token", lower_is_better=True, format=".4f"),
    Metric("perplexity", "perplexity", lower_is_better=True),
)


def make_report(
    translator: Translator,
    pairs: Sequence[SentencePair],
    options: DecodingConfig | None = None,
    bleu_tokenizer: BleuTokenizer | None = None,
) -> Report:
    """The quality of a translator on pairs, see `evaluate`."""
    found = evaluate(translator, pairs, options, bleu_tokenizer)
    names = [metric.name for metric in METRICS if metric.name in found]
    signatures = {"bleu": found["bleu_signature"], "chrf": found["chrf_signature"]}
    if "aer" in found:
        head = f"layer {found['aer_layer']}, head {found['aer_head']}; {found['aer_sentences']:,} sentences"
        signatures["aer"] = head
    remarks = ["references are normalized by NFKC"] if found["nfkc"] else []
    return Report(
        found["sentences"],
        {name: found[name] for name in names},
        signatures,
        {"by_length": found["by_length"]},
        remarks,
    )


def make_gold_report(translator: Translator, gold: Sequence[GoldAlignment]) -> Report:
    """The alignment error rate of the mean weights and of every head, for given translations (forced decoding).

    Args:
        translator: the model
        gold: sentence pairs with links by people
    """
    sources, targets = (list(side) for side in zip(*map(translator.join_words, gold), strict=True))
    alignments = translator.align(sources, targets, spaced=True)
    for row, (pair, alignment) in enumerate(zip(gold, alignments, strict=True)):
        for side, words in (("source", pair.source), ("target", pair.target)):
            if (count := len(alignment.groups(side))) != len(words):
                raise InputError(f"the {side} has {len(words)} words, but {count} for the tokenizer", row=row)
    sure, possible = [pair.sure for pair in gold], [pair.possible for pair in gold]

    def error_rate(found: Sequence[Alignment] = alignments, layer: int | None = None, head: int | None = None) -> float:
        return alignment_error_rate([one.links(layer, head) for one in found], sure, possible)

    metrics = {"aer": error_rate()}
    if translator.can_posterior_align:
        metrics["aer_posterior"] = error_rate(translator.posterior_align(sources, targets, spaced=True))
    num_layers, num_heads = alignments[0].weights.shape[:2]
    rows = [
        {"layer": layer, "head": head, "aer": error_rate(alignments, layer, head)}
        for layer, head in itertools.product(range(num_layers), range(num_heads))
    ]
    signatures = {"aer": "mean of all layers and heads, forced decoding"}
    return Report(len(gold), metrics, signatures, {"heads": sorted(rows, key=lambda row: row["aer"])})


def evaluate(
    translator: Translator,
    pairs: Sequence[SentencePair],
    options: DecodingConfig | None = None,
    bleu_tokenizer: BleuTokenizer | None = None,
) -> dict[str, Any]:
    """All that can be said of a model on these pairs, as plain numbers; `bleu` is its setting, if another is wanted."""
    if not pairs:
        raise DataError("there is nothing to evaluate: no pairs were given")
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    answers = [translator.to_text(best[0]) if best else "" for best in translator.search(sources, options)]
    settings = (
        translator.config if bleu_tokenizer is None else replace(translator.config, bleu_tokenizer=bleu_tokenizer)  # type: ignore[arg-type]
    )
    report = corpus_metrics(answers, references, settings)
    report["by_length"] = metrics_by_length(sources, answers, references, settings)
    if translator.has_attention and any(pair.sure_links is not None for pair in pairs):
        report |= alignment_metrics(translator, pairs)
    return report


def corpus_metrics(translations: Sequence[str], references: Sequence[str], config: TranslationConfig) -> dict[str, Any]:
    """Exact matches, BLEU and chrF, with the signatures that make them comparable (Post 2018, arXiv 1804.08771)."""
    from sacrebleu.metrics.chrf import CHRF

    references = [_normalize_reference(text, config) for text in references]
    found, other = make_bleu(config, references), CHRF(lowercase=config.lowercase)
    exact = sum(a == r for a, r in zip(translations, references, strict=True))
    bleu = found.corpus_score(list(translations), [list(references)])
    return {
        "sentences": len(translations),
        "exact": 100 * exact / max(len(translations), 1),
        "bleu": bleu.score,
        "bleu_signature": str(found.get_signature()),
        "brevity_penalty": bleu.bp,
        "chrf": other.corpus_score(list(translations), [list(references)]).score,
        "chrf_signature": str(other.get_signature()),
        "nfkc": config.nfkc,  # of the references, which signatures do not tell
    }


def choose_bleu_tokenizer(config: TranslationConfig, references: Sequence[str] = ()) -> str:
    """How sacrebleu cuts the target language into words: by its name in `pair`, else by the references' script."""
    if config.bleu_tokenizer != "auto":
        return config.bleu_tokenizer
    pair = config.language_pair or _guess_language(references)
    language = re.split("[-_]", pair.partition("-")[2] or pair)[0]  # of en-zh, zh and en-zh_CN it is zh
    letters = (config.target_tokenizer or config.tokenizer) == "char"
    return BY_LANGUAGE.get(language, "char" if letters else "13a")


def _guess_language(references: Sequence[str]) -> str:
    """The language that a script tells: of those without spaces, and Korean; of others nothing."""
    text = "\n".join(references)
    found = {language: len(re.findall(script, text)) for language, script in BY_SCRIPT.items()}
    others = re.sub("|".join(BY_SCRIPT.values()), " ", text).split()
    if sum(found.values()) <= sum(bool(re.search(r"[^\W\d_]", word)) for word in others):
        return ""
    if KANA_SHARE * found["ja"] > found["zh"]:
        found["ja"] += found["zh"]
    return max(found, key=lambda language: found[language])


def make_bleu(config: TranslationConfig, references: Sequence[str] = ()) -> BLEU:
    """BLEU as the settings want it; refused in one sentence if sacrebleu needs more than is installed for it."""
    from sacrebleu.metrics.bleu import BLEU

    words = choose_bleu_tokenizer(config, references)
    try:
        return BLEU(lowercase=config.lowercase, tokenize=words)
    except (ImportError, RuntimeError) as error:  # its own sentence has many lines
        wanted = str(error).rpartition("pip install ")[2].strip() or "sacrebleu with its extras"
        raise MissingDependencyError(f"bleu_tokenizer={words} needs another package: pip install {wanted}") from None


def _normalize_reference(text: str, config: TranslationConfig) -> str:
    """The reference as the model could write it: where it was trained on small letters, in small letters."""
    import unicodedata

    text = unicodedata.normalize("NFKC", text) if config.nfkc else text
    text = text.lower() if config.lowercase else text
    return text if (config.target_tokenizer or config.tokenizer) == "char" else " ".join(text.split())


def metrics_by_length(
    sources: Sequence[str], translations: Sequence[str], references: Sequence[str], config: TranslationConfig
) -> list[dict[str, Any]]:
    """BLEU in groups of similar source length: does it fall for long sentences?"""
    config = replace(config, bleu_tokenizer=choose_bleu_tokenizer(config, references))  # type: ignore[arg-type]
    split = list if config.tokenizer == "char" else words_of
    groups: dict[int, list[int]] = {}
    for row, source in enumerate(sources):
        words = len(split(source))
        groups.setdefault(sum(words > border for border in LENGTH_BOUNDARIES), []).append(row)
    table = []
    for group in sorted(groups):
        rows = groups[group]
        found = corpus_metrics([translations[i] for i in rows], [references[i] for i in rows], config)
        low = LENGTH_BOUNDARIES[group - 1] + 1 if group else 1
        high = LENGTH_BOUNDARIES[group] if group < len(LENGTH_BOUNDARIES) else None
        kept = {name: found[name] for name in ("sentences", "exact", "bleu")}
        table.append({"from": low, "to": high, **kept})
    return table


def alignment_metrics(translator: Translator, pairs: Sequence[SentencePair]) -> dict[str, Any]:
    """The alignment error rate of the given translations, by the best layer and head; in hindsight, too.

    Words that the recipe says are linked to nothing by nature, such as the hyphens of a date, are not asked.
    """
    linked = [pair for pair in pairs if pair.sure_links is not None]
    texts = [pair.source for pair in linked], [pair.target for pair in linked]
    best, layer, head = _find_best_head(translator, linked, translator.align(*texts, spaced=True))
    report = {"aer": best, "aer_layer": layer, "aer_head": head, "aer_sentences": len(linked)}
    if translator.can_posterior_align:
        later = translator.posterior_align(*texts, spaced=True)
        report["aer_posterior"] = _find_best_head(translator, linked, later)[0]
    return report


def _find_best_head(
    translator: Translator, pairs: Sequence[SentencePair], alignments: Sequence[Alignment]
) -> tuple[float, int, int]:
    """The least error, and the layer and head that have it."""
    sure = [set(pair.sure_links or ()) for pair in pairs]
    possible = [known | set(pair.possible_links or ()) for known, pair in zip(sure, pairs, strict=True)]
    layers, heads = alignments[0].weights.shape[:2]
    linked_by = [seen.link_matrix() for seen in alignments]
    errors = {}
    for layer, head in itertools.product(range(layers), range(heads)):
        found = [
            _linkable(links[layer, head], seen, translator) for links, seen in zip(linked_by, alignments, strict=True)
        ]
        errors[layer, head] = alignment_error_rate(found, sure, possible)
    layer, head = min(errors, key=lambda place: errors[place])
    return errors[layer, head], layer, head


def _linkable(links: Tensor, alignment: Alignment, translator: Translator) -> set[tuple[int, int]]:
    names = alignment.words_of("target")
    return {(i, j) for j, i in links.nonzero().tolist() if names[j] not in translator.unaligned_words}
