"""How good translations are: exact matches, BLEU, chrF, and how well attention aligns words."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from regard.data import SentencePair
from regard.data.segmentation import HAN, KANA, split_words_or_characters
from regard.decoding import Alignment, DecodingConfig, GoldAlignment, alignment_error_rate
from regard.decoding.gold import HeadError, head_errors
from regard.errors import DataError, InputError, MissingDependencyError
from regard.tasks.predictor import Metric, Report
from regard.tasks.translation.config import BleuTokenizer, TranslationConfig

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU

    from regard.tasks.translation.predictor import Translator

__all__ = [
    "METRICS", "choose_bleu_tokenizer", "corpus_metrics", "evaluate", "make_bleu", "make_gold_report",
    "make_report", "metrics_by_length",
]  # fmt: skip

TOKENIZER_BY_LANGUAGE = {"zh": "zh", "ja": "char", "ko": "char", "th": "char"}
SCRIPTS = {"ja": f"[{KANA}]", "zh": f"[{HAN}]", "ko": "[\uac00-\ud7a3]", "th": "[\u0e01-\u0e5b]"}
MIN_KANA_SHARE = 10  # Japanese has at least one kana per this many Han characters; Chinese has a few, in names
LENGTH_BOUNDARIES = (10, 20, 30, 40, 50, 60)  # of the groups by source length, in words

METRICS = (
    Metric("bleu", "BLEU"),
    Metric("chrf", "chrF"),
    Metric("exact_match", "exact match, %"),
    Metric("aer", "alignment error rate", lower_is_better=True, format=".4f"),
    Metric("aer_posterior", "alignment error rate, posterior", lower_is_better=True, format=".4f"),
    Metric("loss", "nats per token", lower_is_better=True, format=".4f"),
    Metric("perplexity", "perplexity", lower_is_better=True),
)


def make_report(values: Mapping[str, Any]) -> Report:
    """The report of an evaluation.

    Args:
        values: what `evaluate` returned
    """
    metrics = {metric.name: values[metric.name] for metric in METRICS if metric.name in values}
    signatures = {"bleu": values["bleu_signature"], "chrf": values["chrf_signature"]}
    if "aer" in values:
        head = f"layer {values['aer_layer']}, head {values['aer_head']}"
        signatures["aer"] = f"{head}; {values['aer_sentences']:,} sentences"
    remarks = ["references are normalized by NFKC"] if values["nfkc"] else []
    return Report(values["sentences"], metrics, signatures, {"by_length": values["by_length"]}, remarks)


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
            if (count := len(alignment.word_groups(side))) != len(words):
                raise InputError(f"the {side} has {len(words)} words, but {count} for the tokenizer", row=row)
    links = [pair.sure for pair in gold], [pair.possible for pair in gold]
    metrics = {"aer": alignment_error_rate([alignment.links() for alignment in alignments], *links)}
    if translator.can_posterior_align:
        posterior = translator.posterior_align(sources, targets, spaced=True)
        metrics["aer_posterior"] = alignment_error_rate([alignment.links() for alignment in posterior], *links)
    heads = [error._asdict() for error in head_errors([alignment.link_matrix() for alignment in alignments], *links)]
    signatures = {"aer": "mean of all layers and heads, forced decoding"}
    return Report(len(gold), metrics, signatures, {"heads": sorted(heads, key=lambda row: row["aer"])})


def evaluate(
    translator: Translator,
    pairs: Sequence[SentencePair],
    options: DecodingConfig | None = None,
    bleu_tokenizer: BleuTokenizer | None = None,
) -> dict[str, Any]:
    """The quality of a translator on pairs as plain values.

    Args:
        translator: the model
        pairs: sources and references
        options: of the search
        bleu_tokenizer: tokenizer of BLEU; None: that of the run

    Example:
        pairs = [SentencePair("A dog runs.", "Ein Hund läuft.")]
        evaluate(regard.load("runs/en-de"), pairs)["bleu"]
    """
    if not pairs:
        raise DataError("there is nothing to evaluate: no pairs were given")
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    translations = [translator.to_text(best[0]) if best else "" for best in translator.search(sources, options)]
    config = translator.config
    if bleu_tokenizer is not None:
        config = config.replace(bleu_tokenizer=bleu_tokenizer)
    values = corpus_metrics(translations, references, config)
    values["by_length"] = metrics_by_length(sources, translations, references, config)
    if translator.has_attention and any(pair.sure_links is not None for pair in pairs):
        values |= _alignment_metrics(translator, pairs)
    return values


def corpus_metrics(translations: Sequence[str], references: Sequence[str], config: TranslationConfig) -> dict[str, Any]:
    """Exact matches, BLEU and chrF, with the signatures that make them comparable (Post 2018, arXiv 1804.08771).

    Args:
        translations, references: texts
        config: of the run
    """
    from sacrebleu.metrics.chrf import CHRF

    references = [_normalize_reference(text, config) for text in references]
    bleu, chrf = make_bleu(config, references), CHRF(lowercase=config.lowercase)
    num_exact = sum(a == r for a, r in zip(translations, references, strict=True))
    bleu_score = bleu.corpus_score(list(translations), [references])
    return {
        "sentences": len(translations),
        "exact_match": 100 * num_exact / max(len(translations), 1),
        "bleu": bleu_score.score,
        "bleu_signature": str(bleu.get_signature()),
        "brevity_penalty": bleu_score.bp,
        "chrf": chrf.corpus_score(list(translations), [references]).score,
        "chrf_signature": str(chrf.get_signature()),
        "nfkc": config.nfkc,  # of the references; signatures do not have it
    }


def choose_bleu_tokenizer(config: TranslationConfig, references: Sequence[str] = ()) -> str:
    """The tokenizer of sacreBLEU for the target language: that of `language_pair`, else of the references' script.

    Args:
        config: of the run
        references: texts
    """
    if config.bleu_tokenizer != "auto":
        return config.bleu_tokenizer
    pair = config.language_pair or _guess_language(references)
    language = re.split("[-_]", pair.partition("-")[2] or pair)[0]  # of en-zh, zh and en-zh_CN it is zh
    return TOKENIZER_BY_LANGUAGE.get(language, "char" if _has_character_target(config) else "13a")


def _has_character_target(config: TranslationConfig) -> bool:
    return (config.target_tokenizer or config.tokenizer) == "char"


def _guess_language(references: Sequence[str]) -> str:
    """The language of a script, if it is one without spaces or Korean; "" for others."""
    text = "\n".join(references)
    counts = {language: len(re.findall(script, text)) for language, script in SCRIPTS.items()}
    others = re.sub("|".join(SCRIPTS.values()), " ", text).split()
    if sum(counts.values()) <= sum(bool(re.search(r"[^\W\d_]", word)) for word in others):
        return ""
    if MIN_KANA_SHARE * counts["ja"] > counts["zh"]:
        counts["ja"] += counts["zh"]
    return max(counts, key=lambda language: counts[language])


def make_bleu(config: TranslationConfig, references: Sequence[str] = ()) -> BLEU:
    """BLEU with the tokenizer of a config; MissingDependencyError if that needs another package.

    Args:
        config: of the run
        references: texts
    """
    from sacrebleu.metrics.bleu import BLEU

    tokenizer = choose_bleu_tokenizer(config, references)
    try:
        return BLEU(lowercase=config.lowercase, tokenize=tokenizer)
    except (ImportError, RuntimeError) as error:  # its own sentence has many lines
        package = str(error).rpartition("pip install ")[2].strip() or "sacrebleu with its extras"
        raise MissingDependencyError(
            f"bleu_tokenizer={tokenizer} needs another package: pip install {package}"
        ) from None


def _normalize_reference(text: str, config: TranslationConfig) -> str:
    """The reference as the model could write it, for example in lower case."""
    text = unicodedata.normalize("NFKC", text) if config.nfkc else text
    text = text.lower() if config.lowercase else text
    return text if _has_character_target(config) else " ".join(text.split())


def metrics_by_length(
    sources: Sequence[str], translations: Sequence[str], references: Sequence[str], config: TranslationConfig
) -> list[dict[str, Any]]:
    """BLEU and exact matches in groups of similar source length.

    Args:
        sources, translations, references: texts
        config: of the run
    """
    config = config.replace(bleu_tokenizer=choose_bleu_tokenizer(config, references))
    split = list if config.tokenizer == "char" else split_words_or_characters
    groups: dict[int, list[int]] = {}
    for row, source in enumerate(sources):
        groups.setdefault(bisect_left(LENGTH_BOUNDARIES, len(split(source))), []).append(row)
    table = []
    for group, rows in sorted(groups.items()):
        values = corpus_metrics([translations[i] for i in rows], [references[i] for i in rows], config)
        low = LENGTH_BOUNDARIES[group - 1] + 1 if group else 1
        high = LENGTH_BOUNDARIES[group] if group < len(LENGTH_BOUNDARIES) else None
        table.append({"from": low, "to": high, **{name: values[name] for name in ("sentences", "exact_match", "bleu")}})
    return table


def _alignment_metrics(translator: Translator, pairs: Sequence[SentencePair]) -> dict[str, Any]:
    """The alignment error rate of the given translations, by the best layer and head; also by the posterior.

    Links of the words that the recipe lists as unaligned, such as the hyphens of a date, do not count.
    """
    linked = [pair for pair in pairs if pair.sure_links is not None]
    texts = [pair.source for pair in linked], [pair.target for pair in linked]
    sure = [set(pair.sure_links or ()) for pair in linked]
    possible = [links | set(pair.possible_links or ()) for links, pair in zip(sure, linked, strict=True)]

    def find_best(alignments: Sequence[Alignment]) -> HeadError:
        matrices = [alignment.link_matrix() for alignment in alignments]
        for matrix, alignment in zip(matrices, alignments, strict=True):
            matrix[:, :, [word in translator.unaligned_words for word in alignment.words_of("target")]] = False
        return min(head_errors(matrices, sure, possible), key=lambda head: head.aer)

    best = find_best(translator.align(*texts, spaced=True))
    report = {"aer": best.aer, "aer_layer": best.layer, "aer_head": best.head, "aer_sentences": len(linked)}
    if translator.can_posterior_align:
        report["aer_posterior"] = find_best(translator.posterior_align(*texts, spaced=True)).aer
    return report
