"""The wheel and the sdist: what they contain, and that they work in an empty environment."""

import email
import zipfile
from pathlib import Path

import pytest

import regard
from tests import clean_install

ROOT = Path(__file__).parents[1]
DATA = {".css", ".csv", ".html", ".js", ".json", ".svg", ".txt"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built without an index."""
    builders = pytest.importorskip("hatchling.builders.wheel")
    folder = tmp_path_factory.mktemp("dist")
    (path,) = builders.WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    return Path(path)


@pytest.fixture(scope="module")
def names(wheel):
    """The names of the files in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_has_every_file_of_the_package(names):
    files = {path for path in (ROOT / "regard").rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    expected = {path.relative_to(ROOT).as_posix() for path in files}
    assert {"regard/py.typed", "regard/locale/zh.json", "regard/serving/web/index.html"} <= expected
    assert {path.suffix for path in files} >= DATA
    assert {name for name in names if name.startswith("regard/")} == expected


def test_the_wheel_has_nothing_else(names):
    others = {name.partition("/")[0] for name in names} - {"regard"}
    assert others == {f"regard-{regard.__version__}.dist-info"}
    assert not [name for name in names if "test_" in name or "conftest" in name or name.endswith(".pyc")]


def test_the_metadata_of_the_wheel(wheel, names):
    (name,) = (name for name in names if name.endswith(".dist-info/METADATA"))
    with zipfile.ZipFile(wheel) as archive:
        metadata = email.message_from_bytes(archive.read(name))
        scripts = archive.read(name.replace("METADATA", "entry_points.txt")).decode()
    assert (metadata["Name"], metadata["Version"]) == ("regard", regard.__version__)
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.10"
    assert "# regard" in metadata.get_payload(), "the README is the description"
    assert f"regard-{regard.__version__}.dist-info/licenses/LICENSE" in names
    assert scripts.split() == ["[console_scripts]", "regard", "=", "regard.cli:main"], "`pipx run regard` starts this"


@pytest.mark.slow
def test_the_wheel_works_in_a_clean_environment(wheel, tmp_path):
    clean_install.main(str(wheel), str(tmp_path / "clean"))


@pytest.mark.slow
def test_the_sdist_works_in_a_clean_environment(tmp_path):
    builders = pytest.importorskip("hatchling.builders.sdist")
    (sdist,) = builders.SdistBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    clean_install.main(sdist, str(tmp_path / "clean"))
