"""`regard info`, `regard average-weights`, `regard compare` and `regard reproduce`."""

import json
import shutil

import pytest

from tests.cli.calls import assert_refused, call
from tests.cli.conftest import TINY


def test_info(backwards):
    answer = call("info", backwards)
    assert answer.returncode == 0, answer.stderr
    rows = {line.split("  ")[0]: line for line in answer.stdout.splitlines()}
    assert rows["recipe"].endswith("reverse")
    assert "hidden_dim=48" in answer.stdout
    assert "cell_type=" not in answer.stdout, "only settings that are not the recipe's"
    assert rows["step"].endswith("150 of 150")
    assert "exact_match" in rows["best"]
    assert "tokens/s" in rows["speed"]
    assert "weights/average.safetensors" in rows["weights"]
    assert "bytes" in rows["run.json"]


def test_info_as_json(trained):
    folder, result, _ = trained
    answer = json.loads(call("info", folder, "--json").stdout)
    assert answer["changed"]["steps"] == 150
    assert "lr" in answer["changed"]
    assert "cell_type" not in answer["changed"]
    assert answer["best"] == result["best"]
    assert answer["processor"] == {"vocab_size": {"source": 30, "target": 30}}
    assert answer["parameters"] > 1000
    assert answer["files"]["processor/source.json"] == (folder / "processor" / "source.json").stat().st_size
    assert answer["tokens_per_second"] > 0


def test_a_damaged_checkpoint_is_named(backwards, tmp_path):
    copy = shutil.copytree(backwards, tmp_path / "copy")
    (copy / "checkpoints" / "step-00000150" / "model.safetensors").write_bytes(b"short")
    answer = call("info", copy, "--json")
    assert "step-00000150 is skipped" in answer.stderr
    assert json.loads(answer.stdout)["step"] == 100


def test_a_run_of_a_later_regard_is_refused(backwards, tmp_path):
    (tmp_path / "run.json").write_text(json.dumps({"format": 99}), encoding="utf-8")
    for command in ("info", "translate"):
        assert_refused(call(command, tmp_path), "has format 99")
    (tmp_path / "run.json").write_text("{", encoding="utf-8")
    assert_refused(call("info", tmp_path), "is damaged")


def test_average_of_the_last_weights(backwards, tmp_path):
    copy = shutil.copytree(backwards, tmp_path / "copy")
    (copy / "weights" / "average.safetensors").unlink()
    answer = call("average-weights", copy, "--last", 2, "--evaluate")
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith("averaged the weights of steps 100, 150 into ")
    assert [line.split()[0] for line in answer.stdout.splitlines()[-2:]] == ["before", "after"]
    same = (copy / "weights" / "average.safetensors").read_bytes()
    assert same == (backwards / "weights" / "average.safetensors").read_bytes()


def test_average_of_checkpoints(backwards, tmp_path):
    copy = shutil.copytree(backwards, tmp_path / "copy")
    shutil.rmtree(copy / "weights" / "recent")
    answer = call("average-weights", copy, "--last", 9, "--out", tmp_path / "mean.safetensors", "--json")
    assert json.loads(answer.stdout)["steps"] == [50, 100, 150]
    assert "there are 3 weights, not 9" in answer.stderr
    assert (tmp_path / "mean.safetensors").is_file()
    shutil.rmtree(copy / "checkpoints")
    assert_refused(call("average-weights", copy), "has fewer than two weights to average")


def test_compare_writes_a_table_and_resumes(texts, monkeypatch):
    monkeypatch.chdir(texts)
    files = ["train_files=a.x.xz,a.y", "valid_files=b.tsv", "test_files=b.tsv"]
    words = ["translation", *files, *TINY, "score=dot,qqq", "--out", "table"]
    answer = call("compare", *words, "steps=2")
    assert answer.returncode == 0, answer.stderr
    lines = answer.stdout.splitlines()
    assert lines[0].split() == ["score", "BLEU", "chrF", "exact", "match,", "%", "tokens/s", "parameters", "minutes"]
    assert lines[1].startswith("dot")
    assert lines[2].split() == ["qqq", "refused"]
    assert "- score=qqq: invalid value 'qqq' for score: expected one of Constant, Dot," in answer.stdout
    assert "| score | BLEU | chrF | exact match, % |" in (texts / "table" / "table.md").read_text(encoding="utf-8")
    saved = json.loads((texts / "table" / "table.json").read_text(encoding="utf-8"))

    again = call("compare", *words, "steps=2", "--json")
    assert "resumed from step 2" in again.stderr, "what was trained is not trained again"
    result = json.loads(again.stdout)
    assert result["rows"][0]["chrf"] == saved["rows"][0]["chrf"]
    assert result["rows"][0]["config"] == {"score": "dot"}
    assert "expected one of Constant" in result["rows"][1]["refused"]

    assert_refused(call("compare", *words, "steps=3"), "holds a run with another steps (2, not 3)")


def test_compare_on_files_measures_on_the_validation_split(texts):
    files = ["--train", texts / "a.x.xz", texts / "a.y", "--valid", texts / "b.tsv"]
    words = ["translation", *files, *TINY, "steps=1", "score=dot,additive", "--out", texts / "compared"]
    answer = call("compare", *words)
    assert answer.returncode == 0, answer.stderr
    assert "Measured on the validation split, as there is no other; --test names one." in answer.stdout
    rows = json.loads(call("compare", *words, "--json").stdout)["rows"]
    assert [(row["config"]["score"], row["split"]) for row in rows] == [("dot", "valid"), ("additive", "valid")]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["reverse", "score=dot"], "nothing to compare"),
        (["reverse", "scor=dot,additive"], "no option 'scor'; did you mean score"),
        (["reverse", "score=dot,additive", "steps=x"], "invalid value 'x' for steps: expected an integer"),
        (["revers", "score=dot,additive"], "did you mean reverse"),
    ],
)
def test_compare_refuses_invalid_arguments(arguments, words, tmp_path):
    assert_refused(call("compare", *arguments, "--out", tmp_path / "t"), words)
    assert not (tmp_path / "t").exists()


def test_studies_are_listed_and_unknown_ones_refused():
    assert "bahdanau2015" in call("reproduce").stdout
    assert {one["name"] for one in json.loads(call("reproduce", "--json").stdout)["studies"]} >= {"luong2015"}
    assert_refused(call("reproduce", "bahdanau"), "no study 'bahdanau'; did you mean bahdanau2015")


def test_reproduce_prints_the_table_of_a_study(monkeypatch, tmp_path):
    from regard.studies import registry as studies

    def study(out, name, options, say):
        say(f"{name} {options['steps']}")
        return {"rows": [], "table": "| a |\n|---|"}

    monkeypatch.setitem(studies.STUDIES, "small", studies.Study("A small one.", study))
    answer = call("reproduce", "small", "--quick", "--out", tmp_path / "small")
    assert answer.stdout == f"| a |\n|---|\n\nThe results are in {tmp_path / 'small'}.\n"
    assert answer.stderr == "reverse 30\n"
    result = json.loads(call("reproduce", "small", "--quick", "--out", tmp_path / "small", "--json").stdout)
    assert result["table"].startswith("| a |")
