"""Machines with a memory on the command line."""

import json

import pytest

from tests.cli.calls import call, run

TINY = ["longest=2", "bits=3", "hidden_dim=12", "rows=6", "width=5", "batch=4", "steps=4", "threads=1"]


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "copy"
    answer = run("train", "copy", *TINY, "--out", str(folder))
    assert answer.returncode == 0, answer.stderr
    return folder, answer


def test_train_says_what_can_be_done_with_it(machine):
    folder, answer = machine
    assert f"regard evaluate {folder}" in answer.stdout
    assert "translate" not in answer.stdout


def test_evaluate_beyond_training(machine):
    answer = call("evaluate", str(machine[0]), "--length", "5", "--sequences", "3", "--json")
    found = json.loads(answer.stdout)
    assert found["recipe"] == "copy"
    assert found["results"][0]["length"] == 5
    assert found["results"][0]["of"] == 3 * 5 * 3


def test_evaluate_prints_the_sizes_of_the_paper(machine):
    answer = call("evaluate", str(machine[0]), "--sequences", "1")
    assert [line.split()[0] for line in answer.stdout.splitlines()[-4:]] == ["2", "30", "50", "120"]


def test_info(machine):
    answer = call("info", str(machine[0]))
    assert answer.returncode == 0, answer.stderr
    assert "vocabulary" not in answer.stdout
    assert "copy" in answer.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["translate", "{run}", "x"], "cannot translate"),
        (["evaluate", "{run}", "--items", "3"], "no size 'items'"),
        (["evaluate", "{run}", "--length", "0"], "length=0 is too small"),
        (["show", "{run}", "text"], "does not take a text, but --length"),
        (["show", "{run}", "--beam", "3"], "does not take --beam"),
        (["show", "{run}", "--target", "x"], "does not take --target"),
        (["show", "{run}", "--heads"], "--heads is for a translation"),
        (["show", "{run}", "--head", "1"], "There is no head 1; this machine has 1"),
    ],
)
def test_what_a_machine_cannot_do_is_said(machine, words, sentence):
    answer = call(*(word.format(run=machine[0]) for word in words))
    assert answer.returncode != 0
    assert sentence in answer.stderr
    assert "Traceback" not in answer.stderr


def test_sizes_are_for_machines(backwards):
    answer = call("evaluate", str(backwards), "--length", "5")
    assert answer.returncode != 0
    assert "--length is for a machine with a memory" in answer.stderr


def test_show_in_every_way(machine, tmp_path):
    folder = str(machine[0])
    here = call("show", folder, "--length", "3")
    assert "write weights, 7 steps" in here.stdout
    assert "of 9 bits wrong" in here.stderr
    for name, start in (("x.txt", b"write weights"), ("x.svg", b"<?xml")):
        answer = call("show", folder, "--length", "3", "--out", str(tmp_path / name))
        assert answer.returncode == 0, answer.stderr
        assert (tmp_path / name).read_bytes().startswith(start)


def test_show_as_json(machine, tmp_path):
    answer = call("show", str(machine[0]), "--length", "3", "--json", "--out", str(tmp_path / "x.html"))
    found = json.loads(answer.stdout)
    assert (found["recipe"], found["of"], found["read_head"], found["write_head"]) == ("copy", 9, 0, 0)
    assert [len(found[name]) for name in ("writes", "reads")] == [7, 7]
    assert len(found["writes"][0]) == len(found["rows"])
    assert (tmp_path / "x.html").exists()
