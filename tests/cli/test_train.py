"""`regard train` and `regard resume`."""

import json
import os
import re
import shutil
import signal
import subprocess
import time

import pytest

from tests.cli.calls import ENVIRONMENT, PYTHON, assert_refused, call, run
from tests.cli.conftest import SMALL, TINY


def test_training_reports_its_folder_and_scores(trained):
    folder, answer, log = trained
    assert answer["run"] == str(folder)
    assert (answer["step"], answer["interrupted"], answer["monitor"]) == (150, False, "exact_match")
    assert answer["best"] > 90
    assert "training reverse in " in log
    assert "step 150   validation" in log
    assert (folder / "weights" / "average.safetensors").is_file()


def test_train_without_a_recipe_lists_all():
    answer = call("train")
    assert answer.returncode == 0
    assert any(line.startswith("dates ") and "ISO 8601" in line for line in answer.stdout.splitlines())
    chinese = json.loads(call("train", "--json", "--lang", "zh").stdout)["recipes"]
    assert {"name": "reverse", "summary": "字符串反转：几秒钟就能学会的任务。"} in chinese


def test_show_prints_the_options_without_training(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    answer = call("train", "reverse", "steps=7", "--show")
    assert answer.returncode == 0
    rows = {line.split()[0]: line for line in answer.stdout.splitlines() if line[:1].isalpha()}
    assert rows["steps"].split()[1:3] == ["7", "*"]
    assert "default: 300" in rows["steps"]
    assert rows["lr"].split()[1:3] == ["0.01", "peak"]
    assert "* differs from the recipe" in answer.stdout
    assert {"Training options", "Translation options"} <= set(answer.stdout.splitlines()), "the options are grouped"
    assert not list(tmp_path.iterdir())


def test_show_as_json():
    answer = json.loads(call("train", "reverse", "steps=7", "cell_type=lstm", "--show", "--json").stdout)
    assert answer["config"]["steps"] == 7
    assert answer["config"]["tokenizer"] == "char"
    assert answer["changed_from"] == {"steps": 300, "cell_type": "gru"}
    steps = next(one for one in answer["options"] if one["name"] == "steps")
    assert (steps["group"], steps["default"], steps["bounds"], steps["resumable"]) == (
        "TrainingConfig",
        300,
        {"ge": 1},
        True,
    )


def test_show_in_chinese_lists_bounds_allowed_values_and_conditions():
    output = run("train", "reverse", "--show", "--lang", "zh", COLUMNS="300").stdout
    rows = {line.split()[0]: line for line in output.splitlines() if line[:1].isalpha()}
    assert "峰值学习率 [大于 0；默认：0.01]" in rows["lr"]
    assert "[gru, lstm；默认：gru；仅当 model=" in rows["cell_type"]


def test_show_prints_the_published_sizes_of_the_transformer():
    settings = json.loads(call("train", "translation", "model=transformer", "--show", "--json").stdout)["config"]
    sizes = {name: settings[name] for name in ("num_layers", "embed_dim", "ffn_dim", "num_heads")}
    assert sizes == {"num_layers": 6, "embed_dim": 512, "ffn_dim": 2048, "num_heads": 8}


def test_an_option_takes_several_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.en", "a.de", "b.tsv"):
        (tmp_path / name).touch()
    answer = call("train", "translation", "--train", "a.en", "a.de", "steps=7", "--valid", "b.tsv", "--show", "--json")
    settings = json.loads(answer.stdout)["config"]
    assert (settings["train_files"], settings["valid_files"], settings["steps"]) == (["a.en", "a.de"], ["b.tsv"], 7)
    twice = call("train", "translation", "--train", "a.en", "--train", "a.de", "--valid", "b.tsv", "--show", "--json")
    assert json.loads(twice.stdout)["config"]["train_files"] == ["a.en", "a.de"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["revers"], "no recipe 'revers'; did you mean reverse or movie-reviews?"),
        (["reverse", "stepps=3"], "no option 'stepps'; did you mean steps"),
        (["reverse", "steps=few"], "invalid value 'few' for steps: expected an integer"),
        (["reverse", "cell_type=rnn"], "invalid value 'rnn' for cell_type: expected one of gru, lstm"),
        (["reverse", "streaming=maybe"], "invalid value 'maybe' for streaming: expected on or off"),
        (["reverse", "dropout=2"], "invalid value '2.0' for dropout: must be below 1"),
        (
            ["reverse", "hidden_dim=1"],
            "invalid value '1' for hidden_dim: must be at least 2, a half for each direction",
        ),
        (["reverse", f"seed={1 << 64}"], "for seed: must be below 9,223,372,036,854,775,808"),
        (["reverse", "steps"], "'steps' is not an option"),
        (["steps=3"], "no recipe: write regard train RECIPE"),
        (["--train", "a", "b"], "no recipe: write regard train RECIPE"),
        (["reverse", "--train", "a", "b"], "--train is an option of the recipes "),
        (["translation", "--train", "a", "b"], "translation needs text to choose the best weights by"),
        (["translation", "--train", "no.en", "no.de", "--valid", "no.tsv"], "There is no file"),
    ],
)
def test_invalid_arguments_are_refused_in_a_sentence(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert_refused(call("train", *arguments), words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["reverse", "normalize=spasemax"], "did you mean sparsemax"),
        (["reverse", "score=adative"], "did you mean additive"),
        (["multi30k", "data_dir=.", "language_pair=en-zh"], "invalid value 'en-zh' for language_pair"),
        (["translation", "--train", "a", "b"], "translation needs text to choose the best weights by"),
        (["translation", "--train", "a", "b", "--valid", "c.tsv"], "There is no file"),
        (["reverse", "bleu_tokenizer=ja-mecab"], "bleu_tokenizer=ja-mecab needs another package"),
    ],
)
def test_show_refuses_what_training_refuses(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert_refused(call("train", *arguments, "--show"), words)
    assert_refused(call("train", *arguments), words)
    assert not list(tmp_path.iterdir())


def test_show_reads_the_run_of_init_from(backwards):
    words = ("train", "reverse", "--init-from", backwards)
    assert_refused(call(*words, "tokenizer=word", "--show"), "tokenizer is that of")
    assert call(*words, "--show").returncode == 0


def test_a_folder_that_is_not_empty_is_refused(backwards):
    assert_refused(call("train", "reverse", "--out", backwards), f"resume with: regard resume {backwards}")


def test_the_default_folder_is_the_next_free_one(tmp_path, monkeypatch):
    from regard.cli.train import _next_free_folder

    monkeypatch.chdir(tmp_path)
    assert str(_next_free_folder("dates")) == os.path.join("runs", "dates")
    for name in ("dates", "dates-2"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "run.json").touch()
    assert str(_next_free_folder("dates")) == os.path.join("runs", "dates-3")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert_refused(call("train", "reverse"), "add --out RUN")


def test_train_evaluate_and_bench_on_text_files(texts):
    folder = texts / "run"
    files = ["--train", texts / "a.x.xz", texts / "a.y", "--valid", texts / "b.tsv"]
    answer = call("train", "translation", *files, *TINY, "steps=2", "--out", folder)
    assert answer.returncode == 0, answer.stderr
    assert "2 steps in" in answer.stdout
    assert "20 pairs read, 15 used; 5 with an empty side left out (lines 3, 7, 11, ...)." in answer.stdout
    for words in (f"translate {folder}", f"show {folder}", f"evaluate {folder}", f"info {folder}"):
        assert f"  regard {words}" in answer.stdout
    assert "step 2/2" in answer.stderr, "progress goes to standard error"
    assert "step 2/2" not in answer.stdout

    assert call("translate", folder, "abc").returncode == 0
    assert "valid: 2 examples" in call("evaluate", folder).stdout, "there is no test, so it is the validation split"
    timed = call("bench", "translate", folder, "--batch", 0)
    assert timed.returncode == 0, timed.stderr
    assert "2 inputs" in timed.stderr


def test_missing_test_files_are_refused_before_training(texts):
    files = ["--train", texts / "a.x.xz", texts / "a.y", "--valid", texts / "b.tsv", "--test", texts / "c.tsv"]
    assert_refused(call("train", "translation", *files, *TINY, "--out", texts / "run"), "There is no file")
    assert not (texts / "run").exists()


def test_unused_options_are_reported(texts):
    files = ["--train", texts / "a.x.xz", texts / "a.y", "--valid", texts / "b.tsv"]
    answer = call("train", "translation", *files, *TINY, "steps=1", "norm_first=on", "--out", texts / "run")
    assert "norm_first is for model=transformer, and changes nothing here" in answer.stderr
    assert "cell_type is for" not in answer.stderr


def test_characters_without_a_token_are_counted(texts):
    (texts / "d.tsv").write_text("ab\t龘\nabc\tcba\n", encoding="utf-8")
    files = ["--train", texts / "a.x.xz", texts / "a.y", "--valid", texts / "d.tsv"]
    answer = call("train", "translation", *files, *TINY, "steps=1", "--out", texts / "run")
    assert re.search(r"valid: 2 pairs read, 2 used; 1 of \d+ tokens \(\d+ %\) is not in the vocab", answer.stderr)


def test_init_from_another_run(texts, backwards):
    words = [*SMALL, "steps=1", "lr=1e-9", "--json"]
    answer = call("train", "reverse", *words, "--init-from", backwards, "--out", texts / "more")
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout)["best"] > 90
    other = call("train", "reverse", "hidden_dim=8", "--init-from", backwards, "--out", texts / "other")
    assert_refused(other, "do not fit")


def test_ctrl_c_saves_a_checkpoint_that_resume_continues(tmp_path):
    folder = tmp_path / "long"
    words = ["steps=100000", "save_every=5", "validate_every=100000", *SMALL]
    process = subprocess.Popen(
        [*PYTHON, "train", "reverse", *words, "--out", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **ENVIRONMENT},
    )
    try:
        deadline = time.monotonic() + 100
        while not (folder / "checkpoints" / "step-00000005").exists() and process.poll() is None:
            assert time.monotonic() < deadline, "the training does not begin"
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert f"resume with: regard resume {folder}" in err
    assert out == ""
    stopped = json.loads(call("info", folder, "--json").stdout)["step"]
    assert stopped >= 5

    answer = call("resume", folder, f"steps={stopped + 2}", "--json")
    assert answer.returncode == 0, answer.stderr
    assert f"resumed from step {stopped}" in answer.stderr
    assert json.loads(answer.stdout)["step"] == stopped + 2
    assert json.loads(call("info", folder, "--json").stdout)["config"]["steps"] == stopped + 2


@pytest.mark.usefixtures("small_vocabulary")
def test_ctrl_c_before_the_first_step_prints_how_to_resume(tmp_path, monkeypatch):
    from regard.data import Tokenizer

    def stop(*_, **__):
        raise KeyboardInterrupt

    folder = tmp_path / "early"
    with monkeypatch.context() as while_learning:
        while_learning.setattr(Tokenizer, "train", stop)
        for words in (["train", "reverse", *SMALL, "steps=1", "--out", folder], ["resume", folder]):
            answer = call(*words)
            assert answer.returncode == 130
            assert answer.stderr.endswith(f"stopped; resume with: regard resume {folder}\n")
    assert call("resume", folder).returncode == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["hidden_dim=3"], "hidden_dim cannot change in a resumed run, whose result must be that of one training"),
        (["hiden_dim=3"], "no option 'hiden_dim'; did you mean hidden_dim"),
        (["steps=x"], "invalid value 'x' for steps: expected an integer"),
        (["steps"], "'steps' is not an option"),
    ],
)
def test_resume_refuses_invalid_changes(backwards, words, sentence):
    assert_refused(call("resume", backwards, *words), sentence)


def test_resume_refuses_fewer_steps_than_were_done(backwards):
    before = (backwards / "run.json").read_bytes()
    assert_refused(call("resume", backwards, "steps=5"), f"invalid value '5' for steps: {backwards} has made 150 steps")
    assert (backwards / "run.json").read_bytes() == before


def test_a_run_with_only_damaged_checkpoints(backwards, tmp_path):
    folder = shutil.copytree(backwards, tmp_path / "run")
    for path in folder.glob("checkpoints/*/state.json"):
        path.write_text("{}")
    answer = call("info", folder)
    assert f"all checkpoints are damaged; a new run can take its weights: --init-from {folder}" in " ".join(
        answer.stdout.split()
    )
    assert "regard resume" not in answer.stdout
    assert json.loads(call("info", folder, "--json").stdout)["damaged"] is True
    shutil.rmtree(folder / "weights")
    assert "there are no other weights" in " ".join(call("info", folder).stdout.split())
    before = (folder / "run.json").read_bytes()
    assert_refused(call("resume", folder, "steps=200"), "no checkpoint in")
    assert (folder / "run.json").read_bytes() == before


def test_resume_without_a_run(tmp_path):
    assert_refused(call("resume", tmp_path / "nowhere"), "no such folder")
    assert_refused(call("resume", tmp_path), "it has neither run.json nor checkpoints")


def test_resume_lists_the_options_that_can_change(backwards):
    from regard.training import TrainingConfig

    resumable = [item.name for item in TrainingConfig.options() if item.resumable]
    assert set(resumable) == {
        *(
            "steps",
            "epochs",
            "max_minutes",
            "patience",
            "validate_every",
            "save_every",
            "keep_checkpoints",
            "tensorboard",
        )
    }
    assert_refused(call("resume", backwards, "lr=1"), f"What may change: {', '.join(resumable)}")


def test_show_lists_the_allowed_values():
    output = run("train", "reverse", "--show", COLUMNS="400").stdout
    for values in (
        "[constant, inverse_sqrt, cosine;",
        "[none, output, all;",
        "[global, local-m, local-p, none;",
        "[drop, truncate, error;",
        "[bpe, unigram, char, word;",
        "[bahdanau, luong;",
        "[gru, lstm;",
        "[loss, perplexity, bleu, chrf, exact_match;",
    ):
        assert values in output
