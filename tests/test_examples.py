"""Every example runs in an empty folder, prints something, and warns of nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
COURSE = sorted((ROOT / "examples").glob("[0-9][0-9]_*.py"))
ONE_SCREEN = 60


def run(script: Path, cwd: Path, *arguments: str, quiet: bool = True) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"}
    process = subprocess.run(
        [sys.executable, str(script), *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        timeout=600,
    )
    assert process.returncode == 0, process.stderr
    assert process.stderr == "" or not quiet  # progress goes there
    return process.stdout


def test_the_course_is_numbered_without_a_gap() -> None:
    assert [path.name[:2] for path in COURSE] == [f"{n:02}" for n in range(1, len(COURSE) + 1)]
    assert len(COURSE) >= 11


@pytest.mark.parametrize("path", COURSE, ids=lambda path: path.stem)
def test_an_example_runs_and_fits_on_a_screen(path: Path, tmp_path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= ONE_SCREEN
    assert run(path, tmp_path).strip()
    assert not list(tmp_path.iterdir())  # leaves nothing behind


@pytest.mark.parametrize("path", COURSE, ids=lambda path: path.stem)
def test_the_readme_of_the_examples_names_each(path: Path) -> None:
    assert f"]({path.name})" in (ROOT / "examples" / "README.md").read_text(encoding="utf-8")


def demo(out: Path, *arguments: str) -> str:
    pytest.importorskip("matplotlib")
    pytest.importorskip("babel")
    return run(ROOT / "examples" / "demo.py", out, "--out", str(out), *arguments, quiet=False)


def test_the_demo_runs_to_its_end_and_again(tmp_path: Path) -> None:
    output = demo(tmp_path, "steps=2", "hidden_dim=8", "embed_dim=8", "--limit", "50")
    assert "2 steps" in output
    assert "exactly right" in output
    assert (tmp_path / "demo.png").stat().st_size > 10_000
    assert "exists already" in demo(tmp_path, "--limit", "1")


@pytest.mark.slow
def test_the_demo_learns(tmp_path: Path) -> None:
    output = demo(tmp_path)
    accuracies = [float(line.split("%")[0]) for line in output.splitlines() if "exactly right" in line]
    errors = [float(line.split("error rate ")[1].split(":")[0]) for line in output.splitlines() if "error rate" in line]
    assert accuracies[0] >= 99
    assert errors[0] <= 0.05
    assert "2031-10-17" in output
