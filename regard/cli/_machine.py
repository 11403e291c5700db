"""`regard evaluate RUN` and `regard show RUN` for a machine with a memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli._say import note, refuse, say, say_json, table

if TYPE_CHECKING:
    from torch import Tensor

    from regard.recipes import Machine

Length = Annotated[int | None, typer.Option(help="A machine: sequences of this length.")]
Repeats = Annotated[int | None, typer.Option(help="A machine: said so often (repeat-copy).")]
Items = Annotated[int | None, typer.Option(help="A machine: so many items (recall).")]
Rows = Annotated[int | None, typer.Option(min=1, help="A machine: rows of its memory.")]
BEYOND = {  # what the paper tries beside the sizes of training: its figures 4, 5, 8, 11 and 14
    "copy": ({"length": 30}, {"length": 50}, {"length": 120}),
    "repeat-copy": ({"length": 10, "repeats": 20}, {"length": 20, "repeats": 10}),
    "recall": tuple({"items": items} for items in (8, 10, 12, 15, 20)),
}


def is_machine(run: Path) -> bool:
    """Whether a run is one of those."""
    from regard.recipes import Remembering, recipe
    from regard.training import Run

    return recipe(Run.open(run).read()["recipe"]).kind is Remembering


def evaluate_machine(
    run: Path, sizes: dict[str, int | None], rows: int | None, sequences: int, device: str, as_json: bool
) -> None:
    """Print one row a size: those that are given, or the greatest of training and those of the paper."""
    machine, name = _loaded(run, device)
    given = {key: size for key, size in sizes.items() if size is not None}
    series = [machine.greatest | given] if given else [machine.greatest, *BEYOND.get(name, ())]
    found = []
    for one in series:
        note("  ".join(f"{key} {value}" for key, value in one.items()) + f": {sequences:,} sequences")
        found.append(machine.evaluate(sequences=sequences, rows=rows, **one))
    if as_json:
        say_json({"run": str(run), "recipe": name, "results": found})
        return
    _print(found, list(machine.greatest))


def show_machine(
    run: Path,
    sizes: dict[str, int | None],
    rows: int | None,
    seed: int,
    head: int | None,
    out: Path | None,
    language: str | None,
    device: str,
    as_json: bool,
) -> None:
    """One sequence with its memory over time: a page, a picture, or here; of one head, or of the sharpest."""
    machine, name = _loaded(run, device)
    given = {key: size for key, size in sizes.items() if size is not None}
    tape = machine.tape(seed, rows, **(machine.greatest | given))
    heads = min(tape.reads.shape[1], tape.writes.shape[1])
    if head is not None and not 0 <= head < heads:
        refuse(f"There is no head {head}; this machine has {heads}, counted from 0.")
    reader, writer = tape.sharpest if head is None else (head, head)
    used = tape.used()
    writes, reads = tape.writes[:, writer, used], tape.reads[:, reader, used]
    title = f"{name}: the {len(used)} rows in use" + (
        f", write head {writer}, read head {reader}" if heads > 1 else ""
    )
    if as_json:
        found = {"wrong": tape.wrong, "of": tape.asked, "rows": used.tolist()}
        found |= {"read_head": reader, "write_head": writer}
        say_json(
            {"run": str(run), "recipe": name, **found, "writes": writes.tolist(), "reads": reads.tolist()},
            indent=None,
        )
    if out is None and as_json:
        return
    if out is None or out.suffix.lower() == ".txt":
        from regard.viewing import terminal

        color = None if out is None else False
        drawn = terminal.memory(writes=_marked(writes), reads=_marked(reads), color=color)
        if out is None:
            typer.echo(drawn)
        else:
            out.write_text(drawn + "\n", encoding="utf-8", newline="\n")
    elif out.suffix.lower() == ".html":
        tape.player(title=name, language=language).save(out)
    else:
        from regard.viewing import pictures

        pictures.memory(
            writes=writes,
            reads=reads,
            inputs=tape.inputs,
            outputs=tape.said,
            wanted=tape.wanted,
            added=tape.adds[:, writer],
            returned=tape.read[:, reader],
            title=title,
        ).save(out)
    note(f"{tape.wrong} of {tape.asked} bits wrong")


def _marked(weights: Tensor) -> Tensor:
    """Without the traces that are on every row, so that letters show where a head is."""
    return weights.where(weights > 0.01, 0.0)


def only_for_machines(run: Path, sizes: dict[str, int | None], rows: int | None) -> None:
    """Refuse sizes for a run that is no machine."""
    if given := [f"--{name}" for name, size in {**sizes, "rows": rows}.items() if size is not None]:
        refuse(f"{given[0]} is for a machine with a memory, and {run} is not one.")


def not_for_machines(run: Path, given: dict[str, object]) -> None:
    """Refuse what is only for translations."""
    if names := [name for name, value in given.items() if value is not None]:
        refuse(
            f"{run} is a machine with a memory: it does not take {names[0]}, but --length, --items or --repeats."
        )


def _loaded(run: Path, device: str) -> tuple[Machine, str]:
    from regard.recipes import load
    from regard.training import Run
    from regard.training.distributed import choose_device

    return load(run, device=str(choose_device(device))), Run.open(run).read()["recipe"]


def _print(found: list[dict[str, Any]], sizes: list[str]) -> None:
    best = ["best possible"] if "best" in found[0] else []
    names = [
        *sizes,
        "sequences",
        "bits a sequence",
        *best,
        "wrong bits",
        "of",
        "percent",
        "whole sequences right",
    ]
    cells = [
        [
            *(f"{row[size]:,}" for size in sizes),
            f"{row['sequences']:,}",
            f"{row['bits']:.4f}",
            *(f"{row['best']:.4f}" for _ in best),
            f"{row['wrong']:,}",
            f"{row['of']:,}",
            f"{row['errors']:.3f}",
            f"{row['exact']:.1f} %",
        ]
        for row in found
    ]
    say(table(cells, names, numbers=range(len(names))))
