"""Machines with a memory on the command line."""

import json

import pytest

from tests.cli.calls import call, run

TINY = [
    "max_size=2",
    "num_bits=3",
    "hidden_dim=12",
    "memory_rows=6",
    "memory_width=5",
    "batch_size=4",
    "steps=4",
    "num_threads=1",
]


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "copy"
    answer = run("train", "copy", *TINY, "--out", str(folder))
    assert answer.returncode == 0, answer.stderr
    return folder, answer


def test_train_prints_the_commands_of_the_run(machine):
    folder, answer = machine
    assert f"regard evaluate {folder}" in answer.stdout
    assert "translate" not in answer.stdout


def test_evaluate_beyond_training(machine):
    answer = call("evaluate", str(machine[0]), "--length", "5", "--num-sequences", "3", "--json")
    result = json.loads(answer.stdout)
    assert result["recipe"] == "copy"
    (row,) = result["splits"]["test"]["tables"]["sizes"]
    assert (row["length"], row["target_bits"]) == (5, 3 * 5 * 3)


def test_evaluate_prints_the_sizes_of_the_paper(machine):
    answer = call("evaluate", str(machine[0]), "--num-sequences", "1")
    assert [line.split()[0] for line in answer.stdout.rstrip().splitlines()[-4:]] == ["2", "30", "50", "120"]


def test_info(machine):
    answer = call("info", str(machine[0]))
    assert answer.returncode == 0, answer.stderr
    assert "vocabulary" not in answer.stdout
    assert "copy" in answer.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["translate", "{run}", "x"], "was trained for algorithm; use: regard run {run}"),
        (["predict", "{run}", "x"], "{run} takes no input; use regard evaluate {run}"),
        (["evaluate", "{run}", "--items", "3"], "no size 'items'"),
        (["evaluate", "{run}", "--length", "0"], "invalid value '0' for length: must be at least 1"),
        (["show", "{run}", "text"], "{run} takes no input; regard show {run} --help lists its options"),
        (["show", "{run}", "--beam-size", "3"], "No such option: --beam-size"),
        (["show", "{run}", "--target", "x"], "No such option: --target"),
        (["show", "{run}", "--heads"], "No such option: --heads"),
        (["show", "{run}", "--head", "1"], "no head 1: this model has 1 read head and 1 write head"),
    ],
)
def test_invalid_arguments_are_refused_in_a_sentence(machine, words, sentence):
    answer = call(*(word.format(run=machine[0]) for word in words))
    assert answer.returncode != 0
    assert sentence.format(run=machine[0]) in answer.stderr
    assert "Traceback" not in answer.stderr


def test_a_translator_has_no_option_length(backwards):
    answer = call("evaluate", str(backwards), "--length", "5")
    assert answer.returncode != 0
    assert "No such option: --length" in answer.stderr


def test_show_in_every_format(machine, tmp_path):
    folder = str(machine[0])
    answer = call("show", folder, "--length", "3")
    for panel in ("inputs", "add vectors", "write weights", "outputs", "targets", "read vectors", "read weights"):
        assert panel in answer.stdout
    assert "of 9 bits wrong" in answer.stdout.splitlines()[0]
    for name, start in (("x.txt", b"copy: the"), ("x.svg", b"<?xml")):
        answer = call("show", folder, "--length", "3", "--out", str(tmp_path / name))
        assert answer.returncode == 0, answer.stderr
        assert (tmp_path / name).read_bytes().startswith(start)


def test_show_as_json(machine, tmp_path):
    answer = call("show", str(machine[0]), "--length", "3", "--json", "--out", str(tmp_path / "x.html"))
    result = json.loads(answer.stdout)
    assert (result["num_target_bits"], result["read_head"], result["write_head"]) == (9, 0, 0)
    assert [len(result[name]) for name in ("write_weights", "read_weights")] == [7, 7]
    assert len(result["write_weights"][0]) == len(result["rows"])
    sizes = {"inputs": 4, "outputs": 3, "targets": 3, "add_vectors": 5, "read_vectors": 5}
    assert {name: len(result[name][0]) for name in sizes} == sizes
    assert result["target_steps"] == [4, 5, 6]
    assert (tmp_path / "x.html").exists()


@pytest.fixture(scope="module")
def run_with_heads(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "heads"
    heads = ["num_read_heads=2", "num_write_heads=3"]
    answer = call("train", "copy", *TINY, *heads, "--out", str(folder))
    assert answer.returncode == 0, answer.stderr
    return folder


def test_show_of_every_head(run_with_heads, tmp_path):
    both = json.loads(call("show", str(run_with_heads), "--head", "1", "--json").stdout)
    assert (both["read_head"], both["write_head"]) == (1, 1)
    third = json.loads(call("show", str(run_with_heads), "--head", "2", "--json").stdout)
    sharpest = json.loads(call("show", str(run_with_heads), "--json").stdout)
    assert (third["read_head"], third["write_head"]) == (sharpest["read_head"], 2)
    answer = call("show", str(run_with_heads), "--head", "3")
    assert answer.returncode != 0
    assert "no head 3: this model has 2 read heads and 3 write heads, counted from 0" in answer.stderr


def test_show_names_the_heads(run_with_heads, tmp_path):
    answer = call("show", str(run_with_heads), "--head", "1")
    assert "write head 1, read head 1" in answer.stdout.splitlines()[0]


def test_the_page_opens_with_the_requested_head(run_with_heads, tmp_path):
    call("show", str(run_with_heads), "--head", "1", "--out", str(tmp_path / "x.html"))
    page = (tmp_path / "x.html").read_text(encoding="utf-8").replace(" ", "")
    assert '"selected":{"read_weights":1,"write_weights":1}' in page


def test_show_of_nearly_uniform_weights(tmp_path):
    folder = tmp_path / "flat"
    words = [word for word in TINY if not word.startswith(("rows", "steps"))]
    call("train", "copy", *words, "memory_rows=128", "max_shift=40", "steps=2", "--out", str(folder))
    answer = call("show", str(folder))
    assert answer.returncode == 0, answer.stderr
    heatmap = answer.stdout.split("write weights")[1]
    assert any(shade in heatmap for shade in "░▒▓█")


def test_evaluate_reports_the_rows_of_the_memory(machine, tmp_path):
    answer = call("evaluate", str(machine[0]), "--length", "9", "--num-sequences", "1")
    names, numbers = (line.split() for line in answer.stdout.rstrip().splitlines()[-2:])
    assert names[:2] == ["length", "memory"]
    assert numbers[:2] == ["9", "24"]


def test_evaluate_of_a_model_without_a_memory(tmp_path):
    folder = tmp_path / "lstm"
    answer = call("train", "copy", *TINY, "model=lstm", "num_layers=1", "--out", str(folder))
    assert answer.returncode == 0, answer.stderr
    answer = call("evaluate", str(folder), "--length", "3", "--num-sequences", "1")
    assert answer.returncode == 0, answer.stderr
    assert "memory rows" not in answer.stdout
