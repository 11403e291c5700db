"""Every example runs in an empty folder, prints something, and warns of nothing."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.scripts import start_runner

ROOT = Path(__file__).parents[1]
COURSE = sorted((ROOT / "examples").glob("[0-9][0-9]_*.py"))
ONE_SCREEN = 60


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., str]]:
    """Run a script in a folder and return what it prints."""
    with start_runner(tmp_path_factory.mktemp("output"), PYTHONPATH=str(ROOT)) as runner:

        def run(script: Path, cwd: Path, *arguments: str, quiet: bool = True) -> str:
            output = runner.run(script, cwd, *arguments)
            assert output.returncode == 0, output.stderr
            assert output.stderr == "" or not quiet  # progress goes there
            return output.stdout

        yield run


def test_the_course_is_numbered_without_a_gap() -> None:
    assert [path.name[:2] for path in COURSE] == [f"{n:02}" for n in range(1, len(COURSE) + 1)]
    assert len(COURSE) >= 11


@pytest.mark.parametrize("path", COURSE, ids=lambda path: path.stem)
def test_an_example_runs_and_fits_on_a_screen(path: Path, tmp_path: Path, run: Callable[..., str]) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= ONE_SCREEN
    assert run(path, tmp_path).strip()
    assert not list(tmp_path.iterdir())  # leaves nothing behind


@pytest.mark.parametrize("path", COURSE, ids=lambda path: path.stem)
def test_the_readme_of_the_examples_names_each(path: Path) -> None:
    assert f"]({path.name})" in (ROOT / "examples" / "README.md").read_text(encoding="utf-8")


def demo(run: Callable[..., str], out: Path, *arguments: str) -> str:
    pytest.importorskip("matplotlib")
    pytest.importorskip("babel")
    return run(ROOT / "examples" / "demo.py", out, "--out", str(out), *arguments, quiet=False)


def test_the_demo_runs_to_its_end_and_again(tmp_path: Path, run: Callable[..., str]) -> None:
    output = demo(run, tmp_path, "steps=2", "hidden_dim=8", "embed_dim=8", "--limit", "50")
    assert "2 steps" in output
    assert "exactly right" in output
    assert (tmp_path / "demo.png").stat().st_size > 10_000
    assert "exists already" in demo(run, tmp_path, "--limit", "1")


@pytest.mark.slow
def test_the_demo_learns(tmp_path: Path, run: Callable[..., str]) -> None:
    output = demo(run, tmp_path)
    accuracies = [float(line.split("%")[0]) for line in output.splitlines() if "exactly right" in line]
    errors = [float(line.split("error rate ")[1].split(":")[0]) for line in output.splitlines() if "error rate" in line]
    assert accuracies[0] >= 99
    assert errors[0] <= 0.05
    assert "2031-10-17" in output
