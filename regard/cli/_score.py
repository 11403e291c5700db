"""`regard score RUN SOURCE TARGET`: how probable given translations are."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli._limit import Limit, TooLong
from regard.cli._parts import fitting, from_files
from regard.cli._translate import OverLimit, load_translator_on
from regard.cli.arguments import AsJson, Device
from regard.cli.output import make_table, print_blocks, print_json, print_status
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.decoding import Hypothesis
    from regard.tasks import Translator


def score(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE", help="Two files side by side, or one .tsv or .jsonl.")
    ] = None,
    text: Annotated[
        tuple[str, str] | None, typer.Option(metavar="SOURCE TARGET", help="One text and its translation.")
    ] = None,
    columns: Annotated[str | None, typer.Option(help="Columns of a .tsv (0,1) or keys of a .jsonl.")] = None,
    too_long: OverLimit = TooLong.stop,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Say how probable given translations are.

    For each pair a line: log-probability, the same per token, and perplexity, with tabs between them.

    Example: regard score runs/en-de news.en news.de

    Example: regard score runs/dates --text "3. Mai 2021" 2021-05-03
    """
    from regard.data import SentencePair

    if bool(files) == (text is not None):
        raise UsageError("Give two files, or --text with a text and its translation.")
    translator = load_translator_on(run, device)
    pairs = [SentencePair(*text)] if text is not None else from_files(files or [], translator.config, columns)
    pairs = fitting(Limit(translator, too_long, f"{files[0]}, line" if files else "text"), pairs)
    found = translator.score([pair.source for pair in pairs], [pair.target for pair in pairs])
    total = _numbers(sum(one.log_prob for one in found), sum(one.length for one in found))
    if as_json:
        print_json({"run": str(run), **total, "sentences": [_as_dict(translator, one) for one in found]})
    elif text is not None:
        _print(translator, found[0])
    else:
        for one in found:
            typer.echo(_line(_numbers(one.log_prob, one.length)))
        print_status(f"{len(found):,} sentences, {total['tokens']:,} tokens: perplexity {total['perplexity']:.4g}")


def _numbers(log_prob: float, tokens: int) -> dict[str, Any]:
    """Logarithms are natural; tokens count the end of the sentence."""
    mean = log_prob / max(tokens, 1)
    return {"log_prob": log_prob, "tokens": tokens, "per_token": mean, "perplexity": math.exp(min(-mean, 700.0))}


def _line(numbers: dict[str, Any]) -> str:
    return "\t".join(f"{numbers[name]:.4f}" for name in ("log_prob", "per_token", "perplexity"))


def _names(translator: Translator, one: Hypothesis) -> list[str]:
    return [*translator.target.convert_ids_to_tokens(one.token_ids), "</s>"][: one.length]


def _as_dict(translator: Translator, one: Hypothesis) -> dict[str, Any]:
    tokens = {"names": _names(translator, one), "token_log_probs": one.token_log_probs}
    return {**_numbers(one.log_prob, one.length), **tokens}


def _print(translator: Translator, one: Hypothesis) -> None:
    numbers = _numbers(one.log_prob, one.length)
    rows = [
        ("log-probability", f"{numbers['log_prob']:.4f}"),
        ("per token", f"{numbers['per_token']:.4f}"),
        ("perplexity", f"{numbers['perplexity']:.4f}"),
    ]
    print_blocks(make_table(rows, numbers=[1]), "")
    tokens = zip(_names(translator, one), one.token_log_probs, strict=True)
    print_blocks(
        make_table(((name, f"{value:.4f}") for name, value in tokens), ("token", "log-probability"), numbers=[1])
    )
