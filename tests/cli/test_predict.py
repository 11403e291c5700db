"""The commands over the protocol of tasks, with a task that the package does not know."""

import json
from dataclasses import dataclass

import pytest

from regard.config import Config, option
from regard.tasks import TASKS, TaskEntry, train
from tests.cli.calls import assert_refused, call
from tests.tasks import needle


@dataclass(frozen=True, kw_only=True)
class NeedleOptions(Config):
    repeats: int = option(1, "number of passes", ge=1, le=3)
    exact: bool = option(False, "exact arithmetic")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "needle"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TASKS, "needle", TaskEntry("tests.tasks.needle", verb="find"))
        patch.setattr(needle.NeedlePredictor, "predict_options", NeedleOptions)
        train("needle", folder, ["device=cpu"], log=lambda line: None)
        yield folder


def test_help_lists_the_options_of_the_task_with_bounds(run):
    output = call("predict", run, "--help").stdout
    assert "--repeats INTEGER" in output
    assert "number of passes [at least 1; at most 3; default: 1]" in " ".join(output.split())
    assert "--exact / --no-exact" in output
    assert "--repeats" not in call("predict", "--help").stdout
    assert "--repeats" not in call("show", run, "--help").stdout


@pytest.mark.parametrize("command", ["predict", "find"])
def test_one_line_for_each_input(run, command):
    answer = call(command, run, "abcdefgh3jkl", "7bcdefghijkl", "--repeats", "2", "--exact")
    assert answer.returncode == 0, answer.stderr
    assert [line.split("\t")[0] for line in answer.stdout.splitlines()] == ["3", "7"]
    assert all(0.9 < float(line.split("\t")[1]) <= 1 for line in answer.stdout.splitlines())


def test_files_and_standard_input(run, tmp_path):
    (tmp_path / "a.txt").write_text("abc5\n7bcd\n", encoding="utf-8")
    from_file = call("predict", run, "--file", tmp_path / "a.txt", "--out", tmp_path / "out.txt")
    assert (from_file.returncode, from_file.stdout) == (0, "")
    piped = call("predict", run, stdin=b"abc5\n7bcd\n").stdout
    assert piped == (tmp_path / "out.txt").read_text(encoding="utf-8")
    assert [line[0] for line in piped.splitlines()] == ["5", "7"]


def test_json(run):
    (result,) = json.loads(call("predict", run, "abcdefgh3jkl", "--json").stdout)["predictions"]
    assert (result["input"], result["text"]) == ({"text": "abcdefgh3jkl"}, "3")
    assert sum(result["probabilities"].values()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["predict", "{run}", "a1", "--repeats", "4"], "invalid value '4' for repeats: must be at most 3"),
        (["predict", "{run}", "a1", "--repeats", "x"], "invalid value 'x' for repeats: expected an integer"),
        (["predict", "{run}", "a1", "--beam-size", "4"], "No such option: --beam-size"),
        (["predict", "{run}", "a1", "--file", "x"], "--file cannot be combined with INPUT"),
        (["predict", "{run}", "a1", "--device", "moon"], "no device 'moon'"),
        (["translate", "{run}", "a1"], "was trained for needle; use: regard find {run}"),
        (["predict", "{run}x", "a1"], "no run in {run}x"),
        (["show", "{run}", "a1", "--out", "x.pdf"], "its name must end in .html, .png, .svg, .txt, .json"),
        (["show", "{run}", "--example", "200"], "invalid value '200' for --example"),
        (["show", "{run}"], "the text is empty"),
        (["evaluate", "{run}", "--split", "tset"], "no split 'tset'; did you mean test?"),
        (["evaluate", "{run}", "x.tsv"], "cannot be evaluated on files"),
        (["evaluate", "{run}", "x.tsv", "--split", "test"], "FILE cannot be combined with --split"),
    ],
)
def test_invalid_arguments_are_refused_in_a_sentence(run, arguments, words):
    assert_refused(call(*(word.format(run=run) for word in arguments)), words.format(run=run))


def test_evaluate_prints_metrics_and_tables(run):
    answer = call("evaluate", run)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith("test: 200 examples\naccuracy, %")
    assert "confusion" in answer.stdout
    result = json.loads(call("evaluate", run, "--split", "valid", "--limit", "9", "--json").stdout)
    assert result["splits"]["valid"]["num_examples"] == 9
    assert result["splits"]["valid"]["metrics"]["accuracy"] > 80


def test_show_in_every_format(run, tmp_path):
    output = call("show", run, "abcdefgh3jkl").stdout
    assert output.startswith("3\n")
    assert "█" in output
    for suffix in ("html", "png", "svg", "txt", "json"):
        answer = call("show", run, "abcdefgh3jkl", "--out", tmp_path / f"x.{suffix}")
        assert (answer.returncode, answer.stdout) == (0, "3\n"), answer.stderr
        assert (tmp_path / f"x.{suffix}").stat().st_size > 100
    result = json.loads(call("show", run, "--example", "3", "--json").stdout)
    assert result["attention"][0]["name"] == "pooling"


def test_train_prints_the_commands_of_the_run(run):
    answer = call("info", run)
    assert answer.returncode == 0, answer.stderr
    assert "needle" in answer.stdout
