"""Files that only code hosts and containers run: what can be checked of them here.

No workflow was run and no image was built by these tests: there is neither a code host nor a Docker engine. They
check that the files can be parsed, and that what they name exists.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from regard import __version__

ROOT = Path(__file__).parents[1]
HIDDEN = ROOT / ".github"
PAGES = ("SECURITY.md", "AGENTS.md", "llms.txt", "CONTRIBUTING.md")
WORKFLOWS = ("ci.yml", "release.yml")

# An sdist has no .github.
pytestmark = pytest.mark.skipif(not HIDDEN.is_dir(), reason="only in the repository")


def load(path: Path):
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def steps_of(name: str) -> list[dict]:
    return [step for job in load(HIDDEN / "workflows" / name)["jobs"].values() for step in job["steps"]]


def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_calls_targets_files_and_actions_that_exist(name):
    used = []
    for step in steps_of(name):
        assert ("run" in step) != ("uses" in step), step
        command = step.get("run", "")
        for line in command.splitlines():
            if line.startswith("make "):
                used += [word for word in line.split()[1:] if "=" not in word]
        for path in re.findall(r"(?:tests|regard)/[\w./-]+", command):
            assert (ROOT / path).exists() or path.startswith("runs/"), path
        if "uses" in step:
            assert re.fullmatch(r"[\w-]+/[\w-]+@(v\d+|release/v\d+)", step["uses"]), step["uses"]
    assert {"check", "test", "dist"} <= set(used) <= targets()


def test_ci_runs_every_supported_python():
    jobs = load(HIDDEN / "workflows/ci.yml")["jobs"]
    classifiers = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert jobs["test"]["strategy"]["matrix"]["python"] == classifiers
    assert set(jobs["other-systems"]["strategy"]["matrix"]["os"]) == {"macos-latest", "windows-latest"}


def test_ci_installs_extras_and_groups_that_exist():
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 cannot read TOML")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    texts = [step.get("run", "") for step in steps_of("ci.yml")] + [
        (ROOT / name).read_text(encoding="utf-8") for name in ("Makefile", "Dockerfile", "CONTRIBUTING.md")
    ]
    extras = {name for text in texts for listed in re.findall(r'"\.\[([\w,]+)\]"', text) for name in listed.split(",")}
    groups = {name for text in texts for name in re.findall(r"--group (\w+)", text)}
    assert extras <= set(project["project"]["optional-dependencies"])
    assert {"dev", "docs", "bench", "release"} == groups == set(project["dependency-groups"])


def test_the_release_is_published_without_a_stored_secret():
    jobs = load(HIDDEN / "workflows/release.yml")["jobs"]
    publish = jobs["publish"]
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["environment"] == "pypi"
    assert publish["steps"][-1]["uses"].startswith("pypa/gh-action-pypi-publish@")
    assert "secrets." not in (HIDDEN / "workflows/release.yml").read_text(encoding="utf-8")
    uses = [step.get("uses", "").partition("@")[0] for step in jobs["build"]["steps"]]
    assert {"actions/attest-build-provenance", "actions/attest-sbom"} <= set(uses)


def test_the_tag_must_be_the_version():
    (command,) = (step["run"] for step in steps_of("release.yml") if step.get("name", "").startswith("The tag"))
    for tag, code in ((f"v{__version__}", 0), ("v9.9.9", 1)):
        environment = {**os.environ, "GITHUB_REF_NAME": tag}
        assert subprocess.run(["bash", "-c", command], cwd=ROOT, env=environment, check=False).returncode == code


def test_every_version_is_the_same():
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", sorted((HIDDEN / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.name)
def test_an_issue_template_has_its_fields(path):
    template = load(path)
    if path.name != "config.yml":
        assert {"name", "description", "body"} <= set(template)
        for field in template["body"]:
            assert field["type"] in ("markdown", "textarea", "input")
            assert field["type"] == "markdown" or (field["id"] and field["attributes"]["label"])


@pytest.mark.parametrize("name", PAGES)
def test_links_of_a_page_lead_to_files(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#]+)\)", text)
    assert [link for link in links if not link.startswith("http") and not (ROOT / link).exists()] == []
    for words in re.findall(r"(?:`|^    )make ((?:[a-z-]+ ?)+)", text, re.MULTILINE):
        assert set(words.split()) <= targets(), words


# ---- Dockerfile: parsed, not built


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile with their arguments."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in lines if line.strip()]


def test_the_dockerfile_copies_what_there_is_and_the_context_has_it():
    context = {
        line[1:] for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line[:1] == "!"
    }
    copied = []
    for name, arguments in instructions():
        if name == "COPY" and "--from" not in arguments:
            copied += [word for word in arguments.split()[:-1] if not word.startswith("--")]
    assert all((ROOT / path).exists() for path in copied)
    assert {path.partition("/")[0] for path in copied} == context


def test_the_image_installs_pytorch_before_the_lock_that_leaves_it_out():
    torch, locked, own = (words for name, words in instructions() if name == "RUN" and "pip install" in words)
    assert "https://download.pytorch.org/whl/cpu" in torch
    assert "-c constraints.txt torch" in torch
    assert "--require-hashes -r requirements.lock" in locked
    assert "--no-deps ." in own


def test_the_image_runs_as_a_user_and_tells_its_health():
    lines = instructions()
    last_stage = lines[max(i for i, (name, _) in enumerate(lines) if name == "FROM") :]
    names = dict(last_stage)
    assert names["USER"] == "regard"
    assert "/v1/health/live" in names["HEALTHCHECK"]
    code = re.search(r'"-c", "(.+)"\]', names["HEALTHCHECK"])
    compile(code[1], "HEALTHCHECK", "exec")
    assert (names["ENTRYPOINT"], names["CMD"]) == ('["entrypoint"]', '["serve"]')


@pytest.mark.skipif(sys.platform == "win32", reason="the script of the image is for its shell")
@pytest.mark.parametrize(
    ("arguments", "token", "expected"),
    [
        (["serve"], "secret", "serve --host 0.0.0.0 --port 8000 --no-open"),
        (
            ["serve", "/runs/a b", "--lang", "zh"],
            "secret",
            "serve --host 0.0.0.0 --port 8000 --no-open /runs/a b --lang zh",
        ),
        (["mechanisms", "dot"], "", "mechanisms dot"),
        (["serve", "/runs/a"], "", None),
        ([], "", ""),
    ],
)
def test_the_server_of_the_image_needs_a_token(tmp_path, arguments, token, expected):
    program = tmp_path / "regard"
    program.write_text('#!/bin/sh\necho "$# $*"\n', encoding="utf-8")
    program.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "REGARD_TOKEN": token}
    script = ROOT / "docker/entrypoint.sh"
    assert os.access(script, os.X_OK)
    done = subprocess.run([script, *arguments], env=environment, capture_output=True, encoding="utf-8", check=False)
    if expected is None:
        assert (done.returncode, done.stdout) == (2, "")
        assert "needs a token" in done.stderr
    else:
        count = len(arguments) + (5 if arguments[:1] == ["serve"] else 0)
        assert done.stdout == f"{count} {expected}\n"


def test_the_options_of_the_image_are_those_of_the_command():
    from regard.cli.main import build_command

    options = {name for parameter in build_command("serve").params for name in parameter.opts}
    assert {"--host", "--port", "--no-open"} <= options
