"""Install a wheel or an sdist into an empty environment, and try what a new user tries first.

    python tests/clean_install.py dist/regard-0.2.0-py3-none-any.whl FOLDER

creates the environment in FOLDER. `make dist` and tests/test_dist.py (slow) call it.
"""

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]


def first_example(readme: Path) -> str:
    """The first block of Python on the page."""
    match = re.search(r"^```python\n(.*?)^```$", readme.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert match is not None, f"{readme} has no example"
    return match[1]


def run(*command: str | Path) -> str:
    """The output of a command that sees nothing of this repository; its warnings are errors."""
    hidden = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    folder = Path(command[0]).parent
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, encoding="utf-8", timeout=1200)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def main(package: str, folder: str) -> None:
    """Install the package and try it.

    Args:
        package: path of the wheel or the sdist
        folder: of the environment; it must not exist
    """
    environment = Path(folder).resolve()
    venv.create(environment, with_pip=True)
    scripts = environment / ("Scripts" if os.name == "nt" else "bin")
    python = scripts / "python"
    index = os.environ.get("TORCH_INDEX")
    options = ["--extra-index-url", index] if index else []
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", ROOT / "constraints.txt"]
    run(*pip, *options, Path(package).resolve())
    version = run(scripts / "regard", "--version")
    assert re.fullmatch(r"regard \d+\.\d+\.\d+\S*\n", version), version
    assert "Commands:" in run(scripts / "regard", "--help")
    assert "regard train" in run(python, "-W", "error", "-m", "regard", "train", "--help")
    imported = Path(run(python, "-W", "error", "-c", "import regard; print(regard.__file__)").strip())
    assert environment in imported.resolve().parents, f"{imported} is not in the new environment"
    run(python, "-W", "error", "-c", first_example(ROOT / "README.md"))
    run(scripts / "regard", "train", "reverse", "steps=2", "max_length=4", "--out", environment / "run")
    run(python, "-m", "pip", "check")
    print(f"{version.strip()}: {Path(package).name} works in a new environment")  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
