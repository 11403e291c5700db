"""`regard generate RUN`: a text goes on, or its gaps are filled in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli._plain_text import model_of_text
from regard.cli.arguments import AsJson, Device
from regard.cli.output import make_table, print_blocks, print_json, print_status
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.tasks import FillMask, TextGenerator


def generate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    beginning: Annotated[
        str, typer.Argument(metavar="TEXT", help="How the text begins; or a text with gaps: ___.")
    ] = "",
    number: Annotated[int, typer.Option("--number", "-n", min=1, help="So many texts, or guesses.")] = 1,
    length: Annotated[int | None, typer.Option(min=1, help="At most so many tokens more.")] = None,
    temperature: Annotated[float, typer.Option(help="Below 1 safer, above 1 wilder; 0: the likeliest.")] = 1.0,
    top_k: Annotated[int, typer.Option(help="Only the likeliest so many tokens; 0: all.")] = 0,
    top_p: Annotated[float, typer.Option(help="Only tokens that make up this share.")] = 1.0,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same text.")] = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Go on writing where a text breaks off; a model that fills in words says what stands in the gaps.

    Example: regard generate runs/language "Once upon a time" --temperature 0.8 --top-p 0.95

    Example: regard generate runs/masked-language "The film was ___ and far too ___." -n 5
    """
    model, _ = model_of_text(run, device)
    from regard.tasks import FillMask

    if isinstance(model, FillMask):
        if temperature != 1 or top_k or top_p != 1 or seed is not None or length is not None:
            raise UsageError(f"{run} fills in words and draws nothing: of the options it takes --number alone.")
        _fill(model, beginning, number, as_json)
        return
    how: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    if temperature == 0:
        if top_k or top_p != 1 or seed is not None or number > 1:
            raise UsageError(
                "--temperature 0 draws nothing: it goes with neither --top-k, --top-p, --seed nor --number."
            )
        how = {"method": "greedy"}
    _go_on(model, beginning, number, length, seed, how, as_json)


def _go_on(
    model: TextGenerator,
    beginning: str,
    number: int,
    length: int | None,
    seed: int | None,
    how: dict[str, Any],
    as_json: bool,
) -> None:
    import torch

    generator = torch.Generator(model.device)
    drawn = generator.seed() if seed is None else generator.manual_seed(seed).initial_seed()
    found = model.generate(beginning, number, max_tokens=length, generator=generator, **how)
    if as_json:
        print_json({"beginning": beginning, "seed": drawn, "texts": [one.to_json() for one in found]})
        return
    typer.echo("\n\n".join(one.text + ("" if one.finished else " ...") for one in found))
    if seed is None and "method" not in how:
        print_status(f"--seed {drawn} gives the same again")


def _fill(model: FillMask, text: str, number: int, as_json: bool) -> None:
    if as_json:
        print_json(model.to_json(text, number))
        return
    typer.echo(model.fill(text))
    if number > 1:
        gaps = enumerate(model.predict(text, number), 1)
        rows = [
            (f"gap {place}", "  ".join(f"{guess.word} {guess.probability:.3f}" for guess in several))
            for place, several in gaps
        ]
        print_blocks("", make_table(rows))
