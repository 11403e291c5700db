"""The lock files: every dependency of the project, at one version for each system, each with a hash."""

import re
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

tomllib = pytest.importorskip("tomllib", reason="Python 3.10 cannot read TOML")

ROOT = Path(__file__).parents[1]
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


LOCKS = ("requirements.lock", "docker/requirements.lock")
IMAGE_EXTRAS = ("export", "images", "serve")


def locked(name: str = "requirements.lock") -> list[tuple[Requirement, list[str]]]:
    """The entries of a lock file, each with its hashes."""
    text = (ROOT / name).read_text(encoding="utf-8").replace("\\\n", " ")
    entries = []
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            requirement, *hashes = re.split(r"\s+(?=--hash)", line.strip())
            entries.append((Requirement(requirement), hashes))
    return entries


def declared() -> list[Requirement]:
    """The dependencies in pyproject.toml: of the project, of its extras and of the groups."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    lists = [
        project["project"]["dependencies"],
        *project["project"]["optional-dependencies"].values(),
        *project["dependency-groups"].values(),
    ]
    return [Requirement(text) for one in lists for text in one]


def environments():
    """The marker environments of the supported versions of Python on each system."""
    systems = [("linux", "Linux", "x86_64"), ("darwin", "Darwin", "arm64"), ("win32", "Windows", "AMD64")]
    for minor in (10, 11, 12, 13):
        for platform, system, machine in systems:
            yield {
                **default_environment(),
                "python_version": f"3.{minor}",
                "python_full_version": f"3.{minor}.0",
                "sys_platform": platform,
                "platform_system": system,
                "platform_machine": machine,
                "os_name": "nt" if platform == "win32" else "posix",
            }


@pytest.mark.parametrize(
    "environment", list(environments()), ids=lambda one: f"{one['python_version']}-{one['sys_platform']}"
)
def test_every_dependency_is_locked_at_one_version(environment):
    versions: dict[str, list[str]] = {}
    for one, _ in locked():
        if one.marker is None or one.marker.evaluate(environment):
            (specifier,) = one.specifier
            assert specifier.operator == "=="
            versions.setdefault(canonicalize_name(one.name), []).append(specifier.version)
    assert {name: entries for name, entries in versions.items() if len(entries) > 1} == {}
    for one in declared():
        if one.marker is None or one.marker.evaluate(environment):
            assert versions.get(canonicalize_name(one.name)), f"{one} is not locked; run: make lock"
            (version,) = versions[canonicalize_name(one.name)]
            assert one.specifier.contains(version), f"{one} is locked at {version}; run: make lock"


def test_the_image_has_the_same_versions_without_pytorch():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = [
        *project["dependencies"],
        *(one for extra in IMAGE_EXTRAS for one in project["optional-dependencies"][extra]),
    ]
    image = {str(one).partition(";")[0] for one, _ in locked("docker/requirements.lock")}
    assert image <= {str(one).partition(";")[0] for one, _ in locked()}
    declared_names = {canonicalize_name(Requirement(name).name) for name in names}
    assert declared_names - {canonicalize_name(one.partition("==")[0]) for one in image} == {"torch"}


@pytest.mark.parametrize("name", LOCKS)
def test_every_entry_has_hashes(name):
    entries = locked(name)
    assert len(entries) > 40
    assert [str(one) for one, hashes in entries if not hashes or not all(map(HASH.fullmatch, hashes))] == []


def test_the_version_of_torch_is_that_of_the_constraints():
    (constraint,) = re.findall(r"^torch==.+$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert constraint in {str(one) for one, _ in locked()}


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_names_no_address_and_no_path(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert not re.search(r"https?:|file:|@ |index-url|find-links|trusted-host|^ *#.*/", text, re.MULTILINE)
