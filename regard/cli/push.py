"""`regard push RUN user/name`."""

from __future__ import annotations

from typing import Annotated

import typer

from regard.cli.arguments import AsJson, Run
from regard.cli.output import print_json

__all__ = ["push"]


def push(
    run: Run,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The model on the hub: user/model.")],
    private: Annotated[bool, typer.Option("--private", help="Create a private repository.")] = False,
    license: Annotated[
        str | None, typer.Option(metavar="TEXT", help="License of the weights, such as apache-2.0.")
    ] = None,
    data: Annotated[str | None, typer.Option(metavar="TEXT", help="What the model was trained on.")] = None,
    limits: Annotated[str | None, typer.Option(metavar="TEXT", help="What the model is not for.")] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Evaluate the run on the tests of its recipe, for the card.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Publish a model on the hub of Hugging Face, with a model card.

    A run is uploaded in the layout of transformers if it has one, else as safetensors; an exported folder as it is.
    The token is that of `hf auth login`, or HF_TOKEN.

    Example: regard push runs/en-de me/en-de --private --license mit --data "Multi30k" --measure
    """
    from regard.export import hub

    address = hub.push(run, name, hub.CardFacts(license, data, limits), private=private, measure=measure)
    if as_json:
        print_json({"run": str(run), "name": name, "address": address})
        return
    typer.echo(f"pushed to {address}")
