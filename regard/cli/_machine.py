"""`regard evaluate RUN` and `regard show RUN` for a machine with a memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.output import make_table, print_blocks, print_json, print_status
from regard.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

    from regard.tasks import AlgorithmPredictor
    from regard.tasks.algorithms.predictor import MemoryTrace

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
    from regard.tasks import AlgorithmConfig, get_recipe
    from regard.training import RunFolder

    return get_recipe(RunFolder.open(run).read_record()["recipe"]).config_class is AlgorithmConfig


def evaluate_machine(
    run: Path, sizes: dict[str, int | None], rows: int | None, sequences: int, device: str, as_json: bool
) -> None:
    """Print one row a size: those that are given, or the greatest of training and those of the paper."""
    machine, name = _loaded(run, device)
    given = {key: size for key, size in sizes.items() if size is not None}
    series = [machine.max_training_sizes | given] if given else [machine.max_training_sizes, *BEYOND.get(name, ())]
    found = []
    for one in series:
        print_status("  ".join(f"{key} {value}" for key, value in one.items()) + f": {sequences:,} sequences")
        found.append(machine.evaluate(num_sequences=sequences, memory_rows=rows, **one))
    if as_json:
        print_json({"run": str(run), "recipe": name, "results": found})
        return
    _print(found, list(machine.max_training_sizes))


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
    tape = machine.explain(seed, rows, **(machine.max_training_sizes | given))
    reader, writer = tape.select_heads(head)
    shown = _shown(tape, reader, writer)
    title = f"{name}: the {len(shown['row_labels'])} rows in use{_heads(tape, reader, writer)}"
    if as_json:
        found = {"wrong": tape.num_wrong_bits, "of": tape.num_target_bits, "read_head": reader, "write_head": writer}
        print_json({"run": str(run), "recipe": name, **found, **_plain(shown)}, indent=None)
    if out is None and as_json:
        return
    if out is None or out.suffix.lower() == ".txt":
        _write(out, title, shown)
    elif out.suffix.lower() == ".html":
        tape.to_page(title=name, language=language, head=head).save(out)
    else:
        from regard.viewing import figures as pictures

        pictures.memory_timeline(**shown, title=title).save(out)
    print_status(f"{tape.num_wrong_bits} of {tape.num_target_bits} bits wrong")


def _shown(tape: MemoryTrace, reader: int, writer: int) -> dict[str, Any]:
    """What is drawn of a tape: the rows in use, one head that writes and one that reads, and what goes with them."""
    used = tape.used_rows()
    return {
        "write_weights": tape.write_weights[:, writer, used],
        "read_weights": tape.read_weights[:, reader, used],
        "row_labels": used.tolist(),
        "inputs": tape.inputs,
        "outputs": tape.outputs,
        "targets": tape.optimal_outputs,
        "target_mask": tape.target_mask,
        "add_vectors": tape.add_vectors[:, writer],
        "read_vectors": tape.read_vectors[:, reader],
    }


def _plain(shown: dict[str, Any]) -> dict[str, Any]:
    """The same for JSON, with the numbers of the steps that have a target."""
    tensors = {name: value for name, value in shown.items() if name not in ("row_labels", "target_mask")}
    target_steps = shown["target_mask"].nonzero().flatten().tolist()
    plain = {name: tensor.tolist() for name, tensor in tensors.items()}
    return {"rows": shown["row_labels"], **plain, "target_steps": target_steps}


def _heads(tape: MemoryTrace, reader: int, writer: int) -> str:
    """Which heads these are, where there are others."""
    several = {f"write head {writer}": tape.write_weights.shape[1], f"read head {reader}": tape.read_weights.shape[1]}
    return "".join(f", {name}" for name, count in several.items() if count > 1)


def _write(out: Path | None, title: str, shown: dict[str, Any]) -> None:
    """Here, or into a file, which is as wide everywhere and has no colors."""
    from regard.viewing import terminal

    marked = {name: _marked(shown[name]) for name in ("write_weights", "read_weights", "outputs", "targets")}
    how: dict[str, Any] = {} if out is None else {"color": False, "width": 100}
    drawn = f"{title}\n\n{terminal.memory_timeline(**shown | marked, **how)}"
    if out is None:
        typer.echo(drawn)
    else:
        out.write_text(drawn + "\n", encoding="utf-8", newline="\n")


def _marked(weights: Tensor) -> Tensor:
    """Without the traces that are everywhere, so that letters show where something is."""
    return weights.where(weights > min(0.01, float(weights.max()) / 2), 0.0)


def only_for_machines(run: Path, sizes: dict[str, int | None], rows: int | None) -> None:
    """Refuse sizes for a run that is no machine."""
    if given := [f"--{name}" for name, size in {**sizes, "rows": rows}.items() if size is not None]:
        raise UsageError(f"{given[0]} is for a machine with a memory, and {run} is not one.")


def not_for_machines(run: Path, given: dict[str, object]) -> None:
    """Refuse what is only for translations."""
    if names := [name for name, value in given.items() if value is not None]:
        raise UsageError(
            f"{run} is a machine with a memory: it does not take {names[0]}, but --length, --items or --repeats."
        )


def _loaded(run: Path, device: str) -> tuple[AlgorithmPredictor, str]:
    from regard.tasks import load
    from regard.training import RunFolder
    from regard.training.distributed import resolve_device

    return load(run, device=str(resolve_device(device))), RunFolder.open(run).read_record()["recipe"]


def _print(found: list[dict[str, Any]], sizes: list[str]) -> None:
    best = ["best possible"] if "best" in found[0] else []
    sizes = [*sizes, *(["rows"] if "rows" in found[0] else [])]  # of its memory, which grows with the sequences
    names = [*sizes, "sequences", "bits a sequence", *best, "wrong bits", "of", "percent", "whole sequences right"]
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
    print_blocks(make_table(cells, names, numbers=range(len(names))))
