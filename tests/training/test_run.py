"""RunFolder: creation, locking, and which weights are used."""

import os
import signal
import time

import pytest
import torch

import regard
from regard.cli import main
from regard.errors import RunFormatError
from regard.training import RunFolder, save_weights
from tests.training.toy import train


def test_a_new_run_needs_an_empty_folder(tmp_path):
    RunFolder.create(tmp_path / "new" / "run").write_record({"recipe": "toy"})
    with pytest.raises(FileExistsError, match=r"run is not empty; resume with: regard resume .*run"):
        RunFolder.create(tmp_path / "new" / "run")
    with pytest.raises(FileExistsError, match=r"new is not empty; choose an empty or a new folder"):
        RunFolder.create(tmp_path / "new")
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError, match=r"file is a file; choose another name"):
        RunFolder.create(tmp_path / "file")
    (tmp_path / "empty").mkdir()
    RunFolder.create(tmp_path / "empty")


def test_a_restart_by_torchrun_keeps_the_run(tmp_path, monkeypatch):
    RunFolder.create(tmp_path / "run").write_record({"recipe": "toy"})
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert RunFolder.create(tmp_path / "run").read_record() == {"recipe": "toy"}


def test_a_missing_or_damaged_run_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no run in .*nowhere: no such folder"):
        RunFolder.open(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"neither run.json nor checkpoints"):
        RunFolder.open(tmp_path)
    (tmp_path / "run.json").write_text('{"recipe": ')
    with pytest.raises(ValueError, match=r"run\.json is damaged"):
        RunFolder.open(tmp_path).read_record()
    (tmp_path / "run.json").write_text("[]")
    with pytest.raises(ValueError, match=r"run\.json is damaged: it must be a JSON object"):
        RunFolder.open(tmp_path).read_record()


def test_only_one_process_can_train_a_run(tmp_path, start):
    child = start(tmp_path / "run", steps=100_000)
    while not (tmp_path / "run" / "checkpoints" / "step-00000005").exists():
        time.sleep(0.01)
    with pytest.raises(RuntimeError, match=r"another process is training in .*run; wait for it"):
        train(tmp_path / "run")
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    train(tmp_path / "run", steps=5)  # a killed process holds no lock


def test_the_average_is_used_else_the_best_else_the_latest_weights(tmp_path):
    train(tmp_path / "run")
    run = RunFolder.open(tmp_path / "run")
    assert run.find_weights() == run.best
    save_weights({"a": torch.ones(1)}, run.average)
    assert run.find_weights() == run.average
    run.average.unlink()
    run.best.unlink()
    assert run.find_weights() == run.checkpoints / "step-00000030" / "model.safetensors"
    with pytest.raises(FileNotFoundError, match=r"empty has no weights yet"):
        RunFolder(tmp_path / "empty").find_weights()


@pytest.mark.parametrize("command", ["info", "resume", "evaluate", "translate", "show", "export", "serve"])
def test_a_run_of_version_0_1_is_refused_in_one_sentence(tmp_path, capsys, command):
    folder = tmp_path / "old"
    run = RunFolder.create(folder)
    run.write_record({"format": 1, "regard": "0.1.0", "recipe": "reverse", "settings": {"steps": 20}})
    run.checkpoints.mkdir()
    arguments = {
        "translate": ["abc"],
        "show": ["abc"],
        "export": ["--to", "safetensors", "--out", str(tmp_path / "exported")],
    }
    with pytest.raises(SystemExit) as caught:
        main([command, str(folder), *arguments.get(command, [])])
    assert caught.value.code == RunFormatError.exit_code == 2
    sentence = f"{folder} was written by regard 0.1; train it again, or use regard 0.1"
    assert capsys.readouterr().err == f"regard: {sentence}\n"
    with pytest.raises(RunFormatError, match=sentence):
        regard.load(folder)
