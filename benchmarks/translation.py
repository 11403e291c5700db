"""Translation on real text: Multi30k in the published way of scoring, and English-French words linked by people.

    python -m benchmarks.translation DATA --runs RUNS [--only NAME ...] [--out benchmarks/results/translation.md]

DATA holds multi30k, tatoeba-fr-en and gold-alignments. Each row is trained into RUNS/NAME by the command that is
printed with it; what is there already is resumed, or only measured. The weights to measure are chosen on the validation
part, or are the average of the last checkpoints where the recipe averages; the test part is looked at once, here.
Steps and minutes of a row that starts from another row's weights come on top of those of that row.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from regard.recipes.trials import Row, markdown, trial

TINY = {"steps": 7000, "accumulate": 2, "validate_every": 125, "save_every": 125, "average": 10}
GRU = {
    "model": "recurrent",
    "tied": "none",
    "dim": 320,
    "encoder_dim": 320,
    "embed_dim": 256,
    "heads": 1,
    "hidden_dim": None,
    "layers": 1,
    "dropout": 0.4,
    "lr": 1e-3,
    "warmup": 400,
    "schedule": "cosine",
    "batch_tokens": 2048,
    "steps": 5500,
    "validate_every": 220,
    "save_every": 220,
    "average": 0,
}
LINKED = {"steps": 6000, "validate_every": 500, "save_every": 250, "schedule": "cosine"}
LOOKING = {"model": "transformer", "dim": 256, "layers": 3, "heads": 4, "hidden_dim": 512, "tied": "all"}
COOL = {"lr": 2.5e-3, "warmup": 50, "schedule": "cosine", "steps": 2500, "accumulate": 2, "average": 10}
COOL |= {"validate_every": 100, "save_every": 100}


@dataclass(frozen=True)
class Training:
    """One training: a recipe, what differs from it, and the training whose weights it starts from."""

    recipe: str
    settings: dict[str, Any]
    origin: str | None = None


RUNS = {
    "m30k-tiny": Training("multi30k-tok", TINY),
    "m30k-cool": Training("multi30k-tok", COOL, origin="m30k-tiny"),
    "m30k-gru": Training("multi30k-tok", GRU),
    "m30k-none": Training("multi30k-tok", {**GRU, "scope": "none"}),
    "m30k-raw": Training("multi30k", TINY),
    "hansards-gru": Training("hansards", LINKED),
    "hansards-transformer": Training("hansards", {**LINKED, **LOOKING}),
}
FOLDERS = {"multi30k-tok": "multi30k", "multi30k": "multi30k", "hansards": "."}
COLUMNS = {
    "run": "",
    "from": "",
    "bleu": ".2f",
    "chrf": ".2f",
    "brevity_penalty": ".3f",
    "aer": ".3f",
    "looks": "",
}
COLUMNS |= {"parameters": ",", "steps": ",", "minutes": ".0f", "sentences": ","}


def measured(name: str, data: Path, runs: Path) -> Row:
    """Train, or take what is there, and measure it on the test part."""
    known = RUNS[name]
    origin = known.origin and runs / known.origin
    where = str((data / FOLDERS[known.recipe]).resolve())
    row = trial(
        known.recipe, runs / name, init_from=origin, say=print, threads=1, data=where, **known.settings
    )
    looks = f"layer {row['aer_layer']}, head {row['aer_head']}" if "aer_layer" in row else ""
    return {"run": name, "from": known.origin, **row, "looks": looks}


def command(name: str) -> str:
    """What trains the same by hand."""
    known = RUNS[name]
    words = " ".join(f"{key}={'none' if value is None else value}" for key, value in known.settings.items())
    origin = f" --init-from RUNS/{known.origin}" if known.origin else ""
    where = f"data=DATA/{FOLDERS[known.recipe]} threads=1"
    return f"regard train {known.recipe} {where} {words}{origin} --out RUNS/{name}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=RUNS, default=list(RUNS))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = [measured(name, given.data, given.runs) for name in given.only]
    signatures = sorted({f"- {row['run']}: {row['bleu_signature']}" for row in rows})
    commands = "\n".join(f"    {command(name)}" for name in given.only)
    table = "\n\n".join(
        (markdown(rows, COLUMNS), "Signatures of BLEU:\n\n" + "\n".join(signatures), commands)
    )
    print(table)
    if given.out is not None:
        given.out.write_text(f"# Translation\n\n{(__doc__ or '').strip()}\n\n{table}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
