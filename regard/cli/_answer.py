"""`regard answer RUN IMAGE QUESTION`: an image and a question in, the answer out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.cli._say import AsJson, note, say_json
from regard.cli._sight import is_respondent, sighted, tested
from regard.cli._translate import Device
from regard.errors import UsageError


def answer(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[IMAGE] [QUESTION]", help="An image's file and a question about it."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Without an image: which scene of the test.")] = 0,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Answer a question about an image, and say with which probability.

    Without an image, the question is about a scene of the recipe's test; without a question too, it is one that goes
    with the scene, and the true answer is told.

    Example: regard answer runs/digit-questions scene.png "how many 3s"

    Example: regard answer runs/digit-questions "where is the 7" --seed 12
    """
    if words and len(words) > 2:
        raise UsageError('An image and one question at most: regard answer RUN scene.png "how many 3s"')
    if not is_respondent(run):
        raise UsageError(f"{run} answers no questions about images; `regard info` says what it is.")
    respondent, name = sighted(run, device)
    if words and len(words) == 2:
        image, question, true = words[0], words[1], None
    else:
        test = tested(respondent, name, seed)
        number = seed % len(test.types[0])
        image, question = test.scenes.images[seed], words[0] if words else test.get_question(seed, number)
        true = None if words else test.get_answer(seed, number)
    (found,) = respondent.predict([(image, question)])
    if as_json:
        say_json(
            {"run": str(run), "question": question, **found.to_json()} | ({"true": true} if true else {})
        )
        return
    if true is not None:
        note(f"{question}? (true answer: {true})")
    typer.echo(f"{found.text}\t{found.score:.4f}")
