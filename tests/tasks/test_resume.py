"""Runs that are trained, interrupted, resumed, loaded, and that others begin with."""

import dataclasses
import json
import os
import shutil
import signal

import pytest
import torch

from regard.data import Tokenizer
from regard.errors import RegardError, RunError, RunFormatError, StorageError
from regard.tasks import load, resume, train
from regard.tasks.translation.task import TranslationTask
from regard.training import RunFolder, checkpoint, load_weights
from tests.tasks.tiny_runs import TINY, final_state, quiet

pytestmark = pytest.mark.usefixtures("small_vocabulary")


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory, small_vocabulary):
    """A run that was not interrupted."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    result = train("reverse", folder, TINY, log=quiet)
    assert (result.step, result.interrupted) == (8, False)
    return folder


def validations(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    points = [{k: v for k, v in line.items() if k in ("step", "valid")} for line in lines if "valid" in line]
    assert points
    return points


def test_contents_of_run_json(finished_run):
    record = json.loads((finished_run / "run.json").read_text())
    assert (record["format"], record["recipe"]) == (2, "reverse")
    assert record["config"]["hidden_dim"] == 16
    assert record["task"] == "translation"
    assert record["processor"] == load(finished_run).processor.describe()
    weights = load_weights(RunFolder.open(finished_run).find_weights())
    assert record["model"]["parameters"] == sum(w.numel() for w in weights.values())
    assert record["data"]["valid"]["used"] == 500
    assert os.fspath(finished_run.parent) not in (finished_run / "run.json").read_text()


def test_the_same_seed_gives_the_same_run(finished_run, tmp_path):
    train("reverse", tmp_path / "again", TINY, log=quiet)
    assert final_state(tmp_path / "again") == final_state(finished_run)
    train("reverse", tmp_path / "other", [*TINY, "seed=1"], log=quiet)
    assert final_state(tmp_path / "other") != final_state(finished_run)


class Crash(Exception):
    pass


@pytest.mark.parametrize("how", ["ctrl-c", "crash in a step", "crash at a validation"])
def test_an_interrupted_run_resumes_bit_for_bit(finished_run, tmp_path, monkeypatch, how):
    from regard.tasks import NextTokenLoss

    folder, steps = tmp_path / "run", []
    forward = NextTokenLoss.forward

    def forward_with_interruption(self, model, batch):
        if self.training:
            steps.append(1)
        if self.training and len(steps) == 5:
            if how == "ctrl-c":
                os.kill(os.getpid(), signal.SIGINT)
            elif how == "crash in a step":
                raise Crash
        if not self.training and how == "crash at a validation":
            raise Crash
        return forward(self, model, batch)

    with monkeypatch.context() as patch:
        patch.setattr(NextTokenLoss, "forward", forward_with_interruption)
        if how == "ctrl-c":
            result = train("reverse", folder, TINY, log=quiet)
            assert result.interrupted
            assert result.step == 5
        else:
            with pytest.raises(Crash):
                train("reverse", folder, TINY, log=quiet)
    torch.manual_seed(99)  # whatever has happened since
    result = resume(folder, log=quiet)
    assert (result.step, result.interrupted) == (8, False)
    assert final_state(folder) == final_state(finished_run)
    assert validations(folder) == validations(finished_run)


def test_resuming_a_finished_run_changes_nothing(finished_run, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(finished_run, folder)
    before = final_state(folder)
    assert resume(folder, log=quiet).step == 8
    assert final_state(folder) == before


def test_resume_with_more_steps(finished_run, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(finished_run, folder)
    assert resume(folder, log=quiet, steps=10).step == 10
    assert json.loads((folder / "run.json").read_text())["config"]["steps"] == 10
    assert resume(folder, log=quiet).step == 10


@pytest.mark.bare
@pytest.mark.parametrize("changes", [{"stepps": 10}, {"steps": "10"}, {"hidden_dim": 32}])
def test_invalid_changes_are_refused(finished_run, tmp_path, changes):
    folder = tmp_path / "copy"
    shutil.copytree(finished_run, folder)
    before = (folder / "run.json").read_bytes()
    with pytest.raises(ValueError, match=next(iter(changes))):
        resume(folder, log=quiet, **changes)
    assert (folder / "run.json").read_bytes() == before


@pytest.mark.bare
def test_a_refused_change_leaves_the_run_usable(finished_run, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(finished_run, folder)
    with pytest.raises(ValueError, match="dim cannot change"):
        resume(folder, log=quiet, hidden_dim=32)
    load(folder)


def test_train_refuses_the_folder_of_a_run(finished_run):
    with pytest.raises(FileExistsError, match="regard resume"):
        train("reverse", finished_run, TINY, log=quiet)


def test_a_run_of_another_format_is_refused(finished_run, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(finished_run, folder)
    run = RunFolder(folder)
    run.write_record({**run.read_record(), "format": 99})
    for use in (load, resume):
        with pytest.raises(RunFormatError, match="format 99"):
            use(folder)


def test_init_from_another_run(finished_run, tmp_path):
    train("reverse", tmp_path / "new", [*TINY, "steps=2"], init_from=finished_run, log=quiet)
    began = load_weights(tmp_path / "new" / "checkpoints" / "step-00000000" / "model.safetensors")
    other = load_weights(RunFolder.open(finished_run).find_weights())
    assert began.keys() == other.keys()
    assert all(torch.equal(began[name], other[name]) for name in began)
    assert load(tmp_path / "new").source == load(finished_run).source
    assert load(tmp_path / "new").translate("abc") is not None


def test_init_from_survives_a_failed_first_checkpoint(finished_run, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(
            checkpoint, "write_and_sync", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device"))
        )
        with pytest.raises(StorageError, match=f"then: regard resume {tmp_path / 'new'}"):
            train("reverse", tmp_path / "new", [*TINY, "steps=2"], init_from=finished_run, log=quiet)
    assert not checkpoint.list_steps(tmp_path / "new" / "checkpoints")
    resume(tmp_path / "new", log=quiet)
    train("reverse", tmp_path / "same", [*TINY, "steps=2"], init_from=finished_run, log=quiet)
    ours, theirs = (
        load_weights(tmp_path / name / "checkpoints" / "step-00000002" / "model.safetensors")
        for name in ("new", "same")
    )
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize(
    "words", [["hidden_dim=24"], ["cell_type=lstm"], ["attention_scope=none"], ["model=transformer", "num_heads=2"]]
)
def test_weights_that_do_not_fit_are_refused(finished_run, tmp_path, words):
    with pytest.raises(ValueError, match="do not fit") as caught:
        train("reverse", tmp_path / "new", [*TINY, *words], init_from=finished_run, log=quiet)
    assert "\n" not in str(caught.value)


def test_init_from_a_missing_run_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no run in"):
        train("reverse", tmp_path / "new", TINY, init_from=tmp_path / "none", log=quiet)


@pytest.mark.parametrize("words", [["monitor=blue"], ["score=dott"], ["streaming=on"]])
def test_invalid_options_are_refused_by_name(tmp_path, words):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - what is said differs
        train("reverse", tmp_path / "run", [*TINY, *words], log=quiet)
    assert words[0].partition("=")[0] in str(caught.value)


def test_unknown_bleu_tokenizer_is_refused(tmp_path):
    with pytest.raises(ValueError, match="foo"):
        train("reverse", tmp_path / "run", [*TINY, "bleu_tokenizer=foo", "monitor=bleu"], log=quiet)


# -- processors that are missing or damaged


@pytest.mark.parametrize("damage", ["empty", "altered", "missing", "a folder"])
def test_a_damaged_processor_is_made_anew_when_a_run_is_resumed(finished_run, tmp_path, damage):
    folder = shutil.copytree(finished_run, tmp_path / "copy")
    path = folder / "processor" / "source.json"
    content = path.read_bytes()
    path.unlink()
    if damage == "a folder":
        path.mkdir()
    elif damage != "missing":
        path.write_bytes(b"" if damage == "empty" else content.replace(b'"a"', b'"b"'))
    with pytest.raises(RegardError, match=r"source\.json"):
        load(folder)
    lines = []
    assert resume(folder, log=lines.append, steps=9).step == 9
    assert path.read_bytes() == content
    assert any("processor is missing or damaged; it is made anew" in line for line in lines)


def test_a_processor_that_would_differ_is_not_made_anew(finished_run, tmp_path, monkeypatch):
    folder = shutil.copytree(finished_run, tmp_path / "copy")
    (folder / "processor" / "source.json").write_bytes(b"")
    build = TranslationTask.build_processor
    monkeypatch.setattr(
        TranslationTask, "build_processor", lambda self, config, data: swap_sides(build(self, config, data))
    )
    with pytest.raises(RunError, match="processor is damaged"):
        resume(folder, log=quiet, steps=9)
    assert not list(folder.glob(".processor*"))


def swap_sides(processor):
    other = Tokenizer.train(["xyz"], "char", 9)
    return dataclasses.replace(processor, source=other)


def test_every_file_of_a_processor_is_on_the_disk_before_the_folder_has_its_name(tmp_path, monkeypatch):
    synced, replace = [], os.replace

    def sync(handle):
        synced.append(os.readlink(f"/proc/self/fd/{handle}"))

    def replace_and_check(source, target):
        if os.fspath(target).endswith("processor"):
            names = [f"{source}/.{name}.json.tmp" for name in ("processor", "source", "target")]
            assert {*names, os.fspath(source)} <= {*synced}
            synced.clear()
        replace(source, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", replace_and_check)
    train("reverse", tmp_path / "run", [*TINY, "steps=1"], log=quiet)
    assert os.fspath(tmp_path / "run") in synced
