"""Print the dependencies of regard and of some extras, one to a line: `python requirements.py serve images`.

pip takes no hashes for a folder, so the image installs these first, with the hashes of requirements.lock.
"""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
extras = [name for extra in sys.argv[1:] for name in project["optional-dependencies"][extra]]
sys.stdout.write("\n".join([*project["dependencies"], *extras]) + "\n")
