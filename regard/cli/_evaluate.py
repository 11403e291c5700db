"""`regard evaluate RUN`: how good a model is, in numbers that can be compared."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from regard.cli._document import evaluate_documents, is_classifier
from regard.cli._gold import Heads, judged
from regard.cli._limit import Limit, TooLong
from regard.cli._machine import Items, Length, Repeats, Rows, evaluate_machine, is_machine, only_for_machines
from regard.cli._parts import Parts, fitting, from_files, from_recipe
from regard.cli._picture import evaluate_pictures, is_captioner
from regard.cli._plain_text import evaluate_text, is_of_text
from regard.cli._translate import BeamSize, CoveragePenalty, LengthPenalty, OverLimit, decoding, load_translator_on
from regard.cli.arguments import AsJson, Device
from regard.cli.output import make_table, print_blocks, print_json, print_status
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.tasks import Translator


def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE", help="Source and references, or one .tsv or .jsonl; default: the recipe's tests."
        ),
    ] = None,
    split: Annotated[str | None, typer.Option(help="Only this part of the recipe: test, valid, ...")] = None,
    columns: Annotated[str | None, typer.Option(help="Columns of a .tsv (0,1) or keys of a .jsonl.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only so many sentences of each part.")] = None,
    gold_alignments: Annotated[
        Path | None, typer.Option(help="Gold alignments: source, target and links (0-0 1?2), with tabs.")
    ] = None,
    bleu: Annotated[
        str | None, typer.Option(help="A translation: words for BLEU, as the setting bleu has them: auto, zh, 13a, ...")
    ] = None,
    length: Length = None,
    repeats: Repeats = None,
    items: Items = None,
    rows: Rows = None,
    sequences: Annotated[int, typer.Option(min=1, help="A machine: so many of each size.")] = 20,
    beam_size: BeamSize = None,
    length_penalty: LengthPenalty = None,
    coverage_penalty: CoveragePenalty = None,
    too_long: OverLimit = TooLong.stop,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Measure how well a model does what it was trained for.

    A translation: exact match, BLEU, chrF and, where gold links are there, the alignment error rate. A machine
    with a memory: bits a sequence and wrong bits, for the sizes of training and greater ones. A model that reads
    documents: accuracy, precision and recall of each class, and which class is taken for which. A model of plain text:
    perplexity, and bits a character or hidden words guessed. A model of images: right answers by class or kind of
    question, and how often it looked at what was asked for.

    Example: regard evaluate runs/dates

    Example: regard evaluate runs/en-de news.en news.de --beam-size 10

    Example: regard evaluate runs/copy --length 120
    """
    if files and split is not None:
        raise UsageError("Give files or --split, not both.")
    sizes = {"length": length, "repeats": repeats, "items": items}
    if is_machine(run):
        evaluate_machine(run, sizes, rows, sequences, device, as_json)
        return
    only_for_machines(run, sizes, rows)
    if is_classifier(run):
        evaluate_documents(run, files, split, columns, limit, device, as_json)
        return
    if is_captioner(run):
        evaluate_pictures(run, files, split, beam_size, limit, device, as_json)
        return
    if is_of_text(run):
        evaluate_text(run, files, split, limit, device, as_json)
        return
    _check_bleu(bleu)
    translator = load_translator_on(run, device)
    options = decoding(
        translator, beam_size=beam_size, length_penalty=length_penalty, coverage_penalty=coverage_penalty
    )
    found: dict[str, Any] = {}
    if gold_alignments is None or files or split is not None:
        for name, pairs in _parts(run, translator, files, split, columns).items():
            where = f"{files[0] if files else name}, line"  # the sources stand in the first file
            pairs = fitting(Limit(translator, too_long, where), pairs[:limit])
            print_status(f"{name}: translating {len(pairs):,} sentences")
            found[name] = _measured(translator, pairs, options, bleu)
    heads = None if gold_alignments is None else judged(translator, gold_alignments, too_long, limit)
    if as_json:
        links = {} if heads is None else {"gold": heads.as_dict()}
        print_json({"run": str(run), "decoding": asdict(options), "parts": found, **links})
        return
    for name, report in found.items():
        _print(name, report)
    if heads is not None:
        _print_heads(heads)


def _parts(
    run: Path, translator: Translator, files: list[Path] | None, split: str | None, columns: str | None
) -> Parts:
    from regard.training import RunFolder

    if files:
        return {"files": from_files(files, translator.config, columns)}
    return from_recipe(RunFolder.open(run).read_record()["recipe"], translator.config, split)


def _check_bleu(bleu: str | None) -> None:
    from regard.tasks.translation.config import BleuTokenizer

    if bleu is not None and bleu not in (known := get_args(BleuTokenizer)):
        raise UsageError(f"There is no --bleu {bleu}; there are {', '.join(known)}.")


def _measured(translator: Translator, pairs: list[Any], options: Any, bleu: str | None) -> dict[str, Any]:
    from regard.tasks import evaluate

    return evaluate(translator, pairs, options, bleu)


def _print(name: str, report: dict[str, Any]) -> None:
    print_blocks(f"{name}: {report['sentences']:,} sentences")
    rows = [
        ("exact match", f"{report['exact']:.2f} %", ""),
        ("BLEU", f"{report['bleu']:.2f}", report["bleu_signature"]),
        ("chrF", f"{report['chrf']:.2f}", report["chrf_signature"]),
    ]
    if "aer" in report:
        where = f"layer {report['aer_layer']}, head {report['aer_head']}; {report['aer_sentences']:,} sentences"
        rows.append(("alignment error rate", f"{report['aer']:.4f}", where))
    if "aer_hindsight" in report:
        rows.append(("in hindsight", f"{report['aer_hindsight']:.4f}", "weights corrected by the word that came"))
    print_blocks(make_table(rows, numbers=[1]), "")
    if report["nfkc"]:
        print_blocks("references folded by NFKC, as the model reads them", "")
    groups = [
        (_span(group), f"{group['sentences']:,}", f"{group['exact']:.2f}", f"{group['bleu']:.2f}")
        for group in report["by_length"]
    ]
    print_blocks(make_table(groups, ("source length", "sentences", "exact", "BLEU"), numbers=[1, 2, 3]), "")


def _span(group: dict[str, Any]) -> str:
    return f"{group['from']} and more" if group["to"] is None else f"{group['from']} to {group['to']}"


def _print_heads(heads: Heads) -> None:
    print_blocks(f"alignment error rate on {heads.sentences:,} sentence pairs, forced decoding")
    rows = [(str(one.layer), str(one.head), f"{one.aer:.4f}") for one in heads.rated]
    rows.append(("all", "mean", f"{heads.mean:.4f}"))
    if heads.hindsight is not None:
        rows.append(("", "in hindsight", f"{heads.hindsight:.4f}"))
    print_blocks(make_table(rows, ("layer", "head", "error"), numbers=[2]))
