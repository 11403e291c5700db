"""The command line as a user meets it: in a process of its own."""

import json
import os
import re
import subprocess
import sys

import pytest
from rich.cells import cell_len

from tests.cli.calls import ENVIRONMENT, PYTHON, call, run

VERBS = (
    "train",
    "resume",
    "info",
    "translate",
    "evaluate",
    "score",
    "average-weights",
    "compare",
    "reproduce",
    "mechanisms",
)


def list_imports(*arguments: str) -> set[str]:
    """The top-level modules that a command imports."""
    report = subprocess.run(
        [sys.executable, "-X", "importtime", *PYTHON[1:], *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    ).stderr
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in report.splitlines() if "|" in line}


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["mechanisms", "nonsense"], *([verb, "--help"] for verb in VERBS)]
)
def test_help_imports_neither_torch_nor_rich(arguments):
    modules = list_imports(*arguments)
    assert "typer" in modules, "the report of imports was not understood"
    assert not modules & {"torch", "rich", "numpy", "jaxtyping"}


def test_version_is_that_of_the_package():
    import regard

    answer = run("--version")
    assert answer.returncode == 0
    assert answer.stdout == f"regard {regard.__version__}\n"


def test_help_lists_the_commands():
    answer = run("--help")
    assert answer.returncode == 0
    for verb in VERBS:
        assert f"\n  {verb} " in answer.stdout
    assert "\n  run " not in answer.stdout, "a task without inputs has no command"


def test_the_console_script_is_installed():
    script = os.path.join(os.path.dirname(sys.executable), "regard")
    if not os.path.exists(script):
        pytest.skip("regard is not installed in this environment")
    answer = subprocess.run([script, "--version"], capture_output=True, text=True, timeout=120, check=False)
    assert answer.stdout.startswith("regard ")


def test_each_mechanism_has_a_line():
    answer = run("mechanisms")
    assert answer.returncode == 0, answer.stderr
    assert any(line.startswith("Additive") and " score " in line for line in answer.stdout.splitlines())


def test_list_of_one_kind():
    answer = call("mechanisms", "--kind", "mask", "--json")
    mechanisms = json.loads(answer.stdout)["mechanisms"]
    assert {m["kind"] for m in mechanisms} == {"mask"}
    assert "causal" in {m["name"] for m in mechanisms}


def test_list_in_chinese():
    answer = call("mechanisms", "--lang", "zh")
    assert answer.returncode == 0, answer.stderr
    assert "小网络" in answer.stdout


@pytest.mark.parametrize("words", [["mechanisms"], ["train"], ["reproduce"]])
@pytest.mark.parametrize("width", [60, 61, 80, 120])
def test_chinese_text_wraps_between_characters_and_never_inside_a_latin_word(words, width, monkeypatch):
    monkeypatch.setitem(ENVIRONMENT, "COLUMNS", str(width))
    result = json.loads(call(*words, "--lang", "zh", "--json").stdout)
    lines = call(*words, "--lang", "zh").stdout.splitlines()
    assert all(cell_len(line) <= width for line in lines)
    assert not any(line.lstrip()[:1] in "，。、；：！？）" for line in lines)
    output = "".join("".join(line.split()) for line in lines)
    for one in next(iter(result.values())):
        assert "".join(one["summary"].split()) in output, "nothing is left out"
        for word in re.findall(r"[A-Za-z]+", one["summary"]):
            assert any(word in line for line in lines), word


@pytest.mark.parametrize(
    ("text", "room", "expected"),
    [
        ("混合读取：layers=cnn,gru。", 16, ["混合读取：", "layers=cnn,gru。"]),
        ("以及提问（--data：MNIST）。", 14, ["以及提问", "（--data：", "MNIST）。"]),
        ("一二三四。", 8, ["一二三", "四。"]),
        ("合用就是 softmax", 8, ["合用就是", "softmax"]),
        ("a black cat sleeps", 8, ["a black", "cat", "sleeps"]),
        ("layers=cnn,attention,gru", 12, ["layers=cnn,", "attention,", "gru"]),
        ("translation", 6, ["transl", "ation"]),
    ],
)
def test_line_breaks(text, room, expected):
    from rich.console import Console

    from regard.cli.output import wrap_text

    assert [line.plain for line in wrap_text(text).wrap(Console(), room)] == expected


def test_explain_prints_all_facts():
    answer = run("mechanisms", "bahdanau")
    assert answer.returncode == 0, answer.stderr
    for part in ("Additive", "tanh(", "1409.0473", "cost", "fast path", "█"):
        assert part in answer.stdout
    assert "\x1b" not in answer.stdout, "no color where there is no terminal"


def test_explain_in_chinese():
    answer = call("mechanisms", "additive", "--lang", "zh")
    assert answer.returncode == 0, answer.stderr
    assert "快速路径" in answer.stdout
    assert answer.stdout.splitlines()[-1].startswith("空白为 0，░ 不超过 ")


def test_explain_as_json_is_one_object():
    answer = json.loads(call("mechanisms", "additive", "--json").stdout)
    assert answer["name"] == "Additive"
    assert answer["equation"]
    assert answer["paper"]
    for row in answer["weights"]:
        assert sum(row) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["mechanisms", "nonsense"], "no mechanism 'nonsense'; did you mean "),
        (["mechanisms", "additve"], "Additive"),
        (["mechanisms", ""], "no mechanism ''"),
        (["mechanisms", "--kind", "scores"], "no kind 'scores'; did you mean score or scope?"),
        (["mechanisms", "--lang", "fr"], "'fr'"),
        (["mechanism"], "no command 'mechanism'; did you mean mechanisms?"),
    ],
)
def test_invalid_arguments_are_refused_in_a_sentence(arguments, words):
    answer = run(*arguments)
    assert answer.returncode == 2
    assert answer.stdout == ""
    assert words in answer.stderr
    assert "Traceback" not in answer.stderr


def test_a_terminal_without_unicode():
    answer = run("mechanisms", "--lang", "zh", PYTHONIOENCODING="ascii")
    assert answer.returncode == 0, answer.stderr
    assert "Additive" in answer.stdout
