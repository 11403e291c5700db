"""Compare the numbers of two checkouts of regard, bit for bit.

    git worktree add ../base 9f4709f
    python -m benchmarks.golden --old ../base [--only reverse copy] [--work DIR] [--long]

Each case trains a small model for a few steps with the code of `--old` (version 0.1) and with the code of `--new` (this
checkout), in separate processes with the same environment, and compares

- all tensors of the checkpoints and weight files: initial weights (step 0), trained, best and averaged weights, the
  state of the optimizer and of the loss;
- the metrics of metrics.jsonl that do not depend on the clock: losses, gradient norms, learning rates, validations;
- up to 20 predictions, the attention weights that `show` prints, and the report of `evaluate`.

Only the command line and the files of a run folder are used, because the names in Python differ between the two sides.
`OPTIONS`, `VERBS` and, in _golden_compare.py, `KEYS` map the names of version 0.1 to the present ones. Where the new
side still has an old name, that one is used, so the comparison works at every stage of a renaming. JSON output is
compared by value: each number and text of the old output must occur in the new one, under whatever field name. Counts,
flags and what only repeats the inputs (`INPUTS`) are not searched for. The cases are in _golden_cases.py.

Prints one line for each case: equal, or the first tensors and values that differ with their largest difference; the
exit code is 1 if a case differs. Results of the old side are kept in `--work` for the next call, those of the new side
only where they differ.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from benchmarks._golden_cases import CASES, LONG, Case, write_data
from benchmarks._golden_compare import Answers, compare_runs

ROOT = Path(__file__).resolve().parents[1]

# Options of version 0.1: the first of these names that the recipe lists, else the old name. In 0.1, `embed_dim` and
# `hidden_dim` have other meanings: `dim` stays while it is listed, and never becomes an option that the case also sets.
OPTIONS: dict[str, tuple[str, ...]] = {
    "average": ("average_last",),
    "batch": ("batch_size",),
    "beam": ("beam_size",),
    "bits": ("num_bits",),
    "cell": ("cell_type",),
    "clutter": ("num_distractors",),
    "dim": ("dim", "embed_dim", "hidden_dim", "query_dim"),
    "grid_dim": ("feature_dim",),
    "heads": ("num_heads",),
    "hidden_dim": ("ffn_dim",),
    "layers": ("num_layers", "layer_types"),
    "length": ("passage_length",),
    "longest": ("max_size",),
    "looks": ("num_hops",),
    "min_count": ("min_word_count",),
    "order": ("decoder_type",),
    "queries": ("learned_queries",),
    "repeats": ("max_repeats",),
    "read_heads": ("num_read_heads",),
    "rows": ("memory_rows",),
    "scope": ("attention_scope",),
    "shortest": ("min_size",),
    "size": ("image_size",),
    "threads": ("num_threads",),
    "vocab": ("vocab_size",),
    "warmup": ("warmup_steps",),
    "width": ("memory_width", "conv_channels"),
    "write_heads": ("num_write_heads",),
    "joint": ("shared_vocab",),
}
VERBS = {"answer": ("ask",), "write": ("generate", "fill")}


class Failure(Exception):
    """A command of one side ended with an error."""


# Runs command lines in one process, so that PyTorch is imported once: for each, the first form without an error.
RUN_COMMANDS = """
import contextlib, io, json, runpy, sys, traceback
results = []
for forms in json.load(sys.stdin):
    errors = []
    for sys.argv[1:] in forms:
        output, code = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), 0
        try:
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()) as messages:
                runpy.run_module("regard", run_name="__main__", alter_sys=True)
        except SystemExit as end:
            code = end.code or 0
        except BaseException:
            code = traceback.format_exc(limit=-2)
        if not code:
            break
        errors.append(f"{' '.join(sys.argv[1:])[:160]}: {code}: {messages.getvalue()[-300:]}")
    output.flush()
    results.append([output.buffer.getvalue().decode(), None if not code else " / ".join(errors)])
print(json.dumps(results))
"""


@dataclass(frozen=True)
class Checkout:
    """A folder with the code of regard, used through its command line."""

    folder: Path
    is_old: bool

    def run(self, code: str, input: str = "") -> str:
        """What Python code prints in a process whose package regard is that of the folder."""
        kept = {name: text for name, text in os.environ.items() if not name.startswith(("REGARD_", "PYTHON"))}
        fixed = {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "PYTHONPATH": str(self.folder), "NO_COLOR": "1"}
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=self.folder,
            env={**kept, **fixed, "COLUMNS": "160", "PYTHONDONTWRITEBYTECODE": "1"},
            input=input,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise Failure(f"exit code {done.returncode}: {done.stderr.strip()[-600:]}")
        return done.stdout

    def check(self) -> None:
        found = self.run("import regard; print(regard.__file__)").strip()
        if not Path(found).is_relative_to(self.folder):
            raise SystemExit(f"golden: no package regard in {self.folder}; Python finds {found}")

    def regard(self, *commands: list[list[str]]) -> list[str]:
        """The output of each command line, given in one or several forms, all in one process."""
        results = json.loads(self.run(RUN_COMMANDS, json.dumps(commands)))
        for _, error in results:
            if error is not None:
                raise Failure(error)
        return [output for output, _ in results]


@functools.cache
def option_names(side: Checkout, recipe: str) -> set[str]:
    """The names of all options of a recipe."""
    (output,) = side.regard([["train", recipe, "--show", "--json"]])
    shown = json.loads(output)
    return {name for value in (shown, *shown.values()) if isinstance(value, dict) for name in value}


def rename_options(side: Checkout, case: Case) -> list[str]:
    """The overrides of a case under the names that this side has for them."""
    overrides = case.overrides()
    names = set() if side.is_old else option_names(side, case.recipe) - (overrides.keys() - {"dim"})
    renamed = {name: next((new for new in OPTIONS.get(name, ()) if new in names), name) for name in overrides}
    return [f"{renamed[name]}={value}" for name, value in overrides.items()]


def train_and_use(side: Checkout, case: Case, folder: Path, data: Path) -> Answers:
    """Train a case into `folder`/run and return the JSON output of its commands."""
    run = folder / "run"
    files = case.files.format(data=data).split()
    side.regard([["train", case.recipe, *rename_options(side, case), *files, "--out", str(run)]])
    commands = []
    for command in case.commands:
        forms = [case.arguments(form, run, data) for form in command.split("||")]
        if not side.is_old:
            forms = [[verb, *rest] for old, *rest in reversed(forms) for verb in (*VERBS.get(old, ()), old)]
        commands.append(forms[:1] if side.is_old else forms)
    outputs = side.regard(*commands)
    return {command: json.loads(output) for command, output in zip(case.commands, outputs, strict=True)}


def compare_case(name: str, old: Checkout, new: Checkout, work: Path) -> bool:
    """Run both sides of a case, print a line, and return whether they are equal."""
    began, case = time.monotonic(), {**CASES, **LONG}[name]
    folder = work / f"new-{name}-{os.getpid()}"
    try:
        golden, answers = old_results(old, name, case, work)
        others = train_and_use(new, case, folder, work / "data")
        compared, lines = compare_runs(golden, folder, (answers, others))
    except Failure as failure:
        compared, lines = "", [str(failure)]
    folder.mkdir(parents=True, exist_ok=True)
    if lines:
        (folder / "differences.txt").write_text("\n".join(lines) + "\n")
        more = f" (and {len(lines) - 3} more)" if len(lines) > 3 else ""
        compared = f"{'; '.join(lines[:3])}{more}; see {folder}"
    else:
        shutil.rmtree(folder)
    print(f"{name:16} {'DIFFERS' if lines else 'equal'}: {compared}  {time.monotonic() - began:.0f} s", flush=True)
    return not lines


def old_results(old: Checkout, name: str, case: Case, work: Path) -> tuple[Path, Answers]:
    """The folder and the answers of the old side, computed unless `work` has those of the same case."""
    folder, data = work / "old" / name, work / "data"
    content = b"".join(path.read_bytes() for path in sorted(data.rglob("*")) if path.is_file())
    key = {"case": repr(case), "torch": version("torch"), "data": [str(data), hashlib.sha256(content).hexdigest()]}
    if (folder / "answers.json").is_file():
        stored = json.loads((folder / "answers.json").read_text())
        if stored["key"] == key:
            return folder, stored["answers"]
    with _new_folder(folder) as temporary:
        answers = train_and_use(old, case, temporary, data)
        (temporary / "answers.json").write_text(json.dumps({"key": key, "answers": answers}))
    return folder, answers


@contextlib.contextmanager
def _new_folder(path: Path) -> Iterator[Path]:
    """A temporary folder that replaces `path` when all of it is written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as temporary:
        folder = Path(temporary, path.name)
        folder.mkdir()
        yield folder
        shutil.rmtree(path, ignore_errors=True)
        os.replace(folder, path)


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the numbers of two checkouts, bit for bit.")
    parser.add_argument("--old", type=Path, required=True, help="a checkout of version 0.1")
    parser.add_argument("--new", type=Path, default=ROOT, help="default: this checkout")
    parser.add_argument("--only", nargs="+", choices=[*CASES, *LONG], metavar="NAME", help=", ".join((*CASES, *LONG)))
    parser.add_argument("--long", action="store_true", help="also 200 steps of reverse, copy and digits")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir(), "regard-golden"))
    options = parser.parse_args()
    work = options.work.resolve()
    if not (work / "data").exists():
        with _new_folder(work / "data") as folder:
            write_data(folder)
    old, new = Checkout(options.old.resolve(), is_old=True), Checkout(options.new.resolve(), is_old=False)
    old.check()
    new.check()
    names = options.only or [*CASES, *(LONG if options.long else {})]
    num_equal = sum(compare_case(name, old, new, work) for name in names)
    print(f"{num_equal} of {len(names)} equal")
    sys.exit(num_equal < len(names))


if __name__ == "__main__":
    main()
