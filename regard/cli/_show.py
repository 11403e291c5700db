"""`regard show RUN TEXT`: one translation to step through, as a picture, or in the terminal."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli._answers import check_choice
from regard.cli._document import is_classifier, show_document
from regard.cli._limit import Limit, TooLong, fitted_stdin
from regard.cli._machine import (
    Items,
    Length,
    Repeats,
    Rows,
    is_machine,
    not_for_machines,
    only_for_machines,
    show_machine,
)
from regard.cli._picture import is_captioner, show_picture
from regard.cli._translate import BeamSize, OverLimit, decoding, load_translator_on
from regard.cli.arguments import AsJson, Device, Lang, read_stdin_lines
from regard.cli.output import print_json, print_status
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.tasks.translation.explanation import TranslationExplanation

ENDINGS = (".html", ".png", ".svg", ".txt")


def show(
    run: Annotated[Path | None, typer.Argument(metavar="RUN", help="The folder of a run.")] = None,
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="The text, or an image's file; without one, standard input.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="x.html to step through it, x.png, x.svg or x.txt; default: here.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="Show this translation instead of searching.")] = None,
    layer: Annotated[int | None, typer.Option(help="This layer, from 0; default: mean.")] = None,
    head: Annotated[
        int | None, typer.Option(help="This head, from 0; default: mean; of a machine, the sharpest.")
    ] = None,
    heads: Annotated[bool, typer.Option("--heads", help="Every layer and head, side by side.")] = False,
    words: Annotated[
        bool, typer.Option("--words/--tokens", help="Whole words, or the tokens that the model sees.")
    ] = True,
    beam_size: BeamSize = None,
    measure: Annotated[
        bool, typer.Option("--measure/--no-measure", help="Say how far the translation depends on the weights.")
    ] = True,
    length: Length = None,
    repeats: Repeats = None,
    items: Items = None,
    rows: Rows = None,
    seed: Annotated[int, typer.Option(help="A machine: which sequence; a captioner: which picture of the test.")] = 0,
    too_long: OverLimit = TooLong.stop,
    lang: Annotated[Lang | None, typer.Option(help="Lang of the page and of the sentence.")] = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Show what a model does: where each word looked, what else could have come; or a machine's memory over time.

    Of a document: its class, and the weights of its sentences and words. Of an image: its caption, and where each
    word looked; or its class, or the answer to the question TEXT, and where the model looked for it.

    Example: regard show runs/dates "3. Mai 2021" --out may.html

    Example: regard show runs/en-de "A dog runs." --target "Ein Hund rennt." --out dog.svg

    Example: regard show runs/copy --length 30 --out copy.html

    Example: regard show runs/captions dog.jpg --out dog.png

    """
    if run is None:
        raise UsageError('Name the folder of a run and a text: regard show RUN "text" --out x.html')
    if out is not None and out.suffix.lower() not in ENDINGS:
        raise UsageError(f"--out {out} is none of what can be made; its name must end in {', '.join(ENDINGS)}.")
    if out is not None and not out.parent.is_dir():
        raise UsageError(f"there is no folder {out.parent} to write {out.name} into")
    if heads and (layer is not None or head is not None):
        raise UsageError("--heads shows all of them, so it goes with neither --layer nor --head.")
    sizes = {"length": length, "repeats": repeats, "items": items}
    if is_machine(run):
        not_for_machines(run, {"a text": text, "--target": target, "--layer": layer, "--beam-size": beam_size})
        if heads:
            raise UsageError(
                f"--heads is for a translation; {run} is a machine with a memory: take --head 0, --head 1, ..."
            )
        shown_in = None if lang is None else lang.value
        show_machine(run, sizes, rows, seed, head, out, shown_in, device, as_json)
        return
    only_for_machines(run, sizes, rows)
    if is_classifier(run):
        if heads or any(option is not None for option in (target, layer, head, beam_size)):
            raise UsageError(
                f"{run} reads documents: --target, --layer, --head, --heads and --beam-size are for translations."
            )
        whole = _standard_input() if text is None else text
        show_document(run, whole, out, None if lang is None else lang.value, device, as_json)
        return
    if is_captioner(run):
        if heads or any(option is not None for option in (target, layer, head)):
            raise UsageError(f"{run} describes pictures: --target, --layer, --head and --heads are for translations.")
        show_picture(run, text, seed, beam_size, out, None if lang is None else lang.value, device, as_json)
        return
    translator = load_translator_on(run, device)
    if text is None:
        text = _from_stdin(Limit(translator, too_long, "standard input, line"))
    else:
        (text,) = Limit(translator, too_long).fitted([text])
    from regard.tasks.translation import explanation as showing

    shown = showing.explain(
        translator, text, target, decoding(translator, beam_size=beam_size), with_faithfulness=measure
    )
    check_choice(layer, head, (0, 0) if shown.alignment is None else shown.alignment.weights.shape[:2])
    view = View(shown, layer, head, heads, words, None if lang is None else lang.value)
    if out is not None:
        view.save(out)
    if as_json:
        print_json(shown.to_json() | ({} if out is None else {"out": str(out)}), indent=None)
    elif out is None:
        typer.echo(view.drawn())
    else:
        typer.echo(view.told())


def _from_stdin(limit: Limit) -> str:
    texts = [line for block in fitted_stdin(limit) for line in block]
    if len(texts) > 1:
        raise UsageError(f"show draws one text, but standard input has {len(texts)} lines; take one of them.")
    return texts[0] if texts else ""


def _standard_input() -> str:
    """All of it, as one document."""
    return "\n".join(line for ready in read_stdin_lines(False) for line in ready)


@dataclass(frozen=True)
class View:
    """What of a translation is shown, and in which words."""

    shown: TranslationExplanation
    layer: int | None
    head: int | None
    heads: bool
    words: bool
    language: str | None

    def save(self, path: Path) -> None:
        ending = path.suffix.lower()
        if ending == ".txt":
            path.write_text(self.drawn(color=False) + "\n", encoding="utf-8", newline="\n")
        elif ending == ".html":
            self._page(path)
        else:
            with warnings.catch_warnings(record=True) as told:  # of letters that no font has
                warnings.simplefilter("always")
                self._picture(path)
            for warning in told:
                print_status(str(warning.message))

    def told(self) -> str:
        """The translation and, if it was measured, how far it depends on the weights."""
        faith = self.shown.faithfulness
        measured = [] if faith is None else [faith.sentence(self.language or "en")]
        return "\n".join([self.shown.translation, *measured])

    def drawn(self, color: bool | None = None) -> str:
        """For the terminal: the translation, the picture, the measure."""
        from regard.viewing import terminal

        if self.shown.alignment is None:
            none = {
                "en": "This model has no attention, so there are no weights to draw.",
                "zh": "这个模型没有注意力，没有权重可画。",
            }
            return f"{self.told()}\n\n{none[self.language or 'en']}"
        how: dict[str, Any] = {"color": color, "language": self.language or "en"}
        how["width"] = None if color is None else 100  # a file is as wide as it is everywhere
        if self.heads:
            seen = self.shown.head_weights(merge_words=self.words)
            picture = terminal.head_grid(seen.weights, **how)
        else:
            seen = self.shown.weights(self.layer, self.head, merge_words=self.words)
            picture = terminal.heatmap(seen.weights[0, 0], seen.target, seen.source, **how)
        translation, *measured = self.told().split("\n")
        return "\n".join([translation, "", picture, *([""] if measured else []), *measured])

    def _page(self, path: Path) -> None:
        if self.heads:
            from regard.viewing import pages as players

            seen = self.shown.head_weights(merge_words=self.words)
            made = players.head_grid(
                seen.weights, seen.target, seen.source, title=self._title(), language=self.language
            )
        else:
            made = self.shown.to_page(self.layer, self.head, merge_words=self.words, language=self.language)
        made.save(path)

    def _picture(self, path: Path) -> None:
        from regard.viewing import figures as pictures

        if self.heads:
            seen = self.shown.head_weights(merge_words=self.words)
            pictures.head_grid(seen.weights, seen.target, seen.source, title=self._title()).save(path)
        else:
            seen = self.shown.weights(self.layer, self.head, merge_words=self.words)
            pictures.heatmap(seen.weights[0, 0], seen.target, seen.source, title=self._title()).save(path)

    def _title(self) -> str:
        # The mark keeps the text left of its translation, also where it is written from right to left.
        title = f"\u200e{self.shown.text} → \u200e{self.shown.translation}"
        return title if len(title) <= 90 else title[:89] + "…"
