"""Every example runs as a newcomer would run it, says something, and warns of nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
COURSE = sorted((ROOT / "examples").glob("[0-9][0-9]_*.py"))
ONE_SCREEN = 60


def run(script: Path, cwd: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=cwd,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


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


@pytest.mark.slow
def test_the_demo_learns_and_draws(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = ROOT / "out" / "demo.png"
    picture.unlink(missing_ok=True)
    said = run(ROOT / "examples" / "demo.py", tmp_path)
    assert "24.41" in said  # the best there is, by leave-one-out error
    right = [float(line.split("%")[0].split()[-1]) for line in said.splitlines() if "written right" in line]
    assert right[0] < 50 < 95 < min(right[1:])  # an average tells little; who may look learns it
    assert picture.stat().st_size > 10_000
