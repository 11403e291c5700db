"""Callbacks: what they receive, that they can stop a training, and that they do not change its numbers."""

import math

import pytest
import torch

from regard.errors import DtypeError, UsageError
from regard.training import Callback, RunFolder, checkpoint, fit
from tests.training.toy import CountingRows, ignore, loss_fn, make_config, make_model, make_validation, train


class Recorder(Callback):
    def __init__(self):
        self.steps, self.validations, self.ends, self.grad_norms = [], [], [], []

    def on_step(self, state):
        self.steps.append((state.step, state.loss, dict(state.metrics)))
        grads = [p.grad for group in state.optimizer.param_groups for p in group["params"]]
        self.grad_norms.append(float(torch.nn.utils.get_total_norm(grads)))
        torch.rand(5)
        state.model.eval()

    def on_validation(self, state):
        self.validations.append((state.step, dict(state.metrics)))

    def on_end(self, state):
        self.ends.append((state.step, state.stop_reason, state.run.folder, dict(state.metrics)))


def run(folder, *callbacks, log=ignore, **options):
    model = make_model()
    arguments = make_config(**options), RunFolder(folder), make_validation(model), log
    return model, fit(model, loss_fn, CountingRows(), *arguments, callbacks=callbacks)


def test_callbacks_receive_steps_validations_and_the_end(tmp_path):
    recorder = Recorder()
    model, result = run(tmp_path / "a", recorder, max_grad_norm=0.5)
    assert [step for step, _, _ in recorder.steps] == list(range(1, 31))
    assert all(0 < loss < 5 and set(metrics) == {"errors"} for _, loss, metrics in recorder.steps)
    assert [step for step, _ in recorder.validations] == [7, 14, 21, 28, 30]
    assert set(recorder.validations[0][1]) == {"loss", "accuracy"}
    assert recorder.ends == [(30, "all 30 steps are done", tmp_path / "a", result.scores)]
    assert 0 < max(recorder.grad_norms) <= 0.5 + 1e-6
    expected, _ = train(tmp_path / "b", max_grad_norm=0.5)
    weights = expected.state_dict()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize(("event", "step"), [("on_step", 3), ("on_validation", 7)])
def test_a_callback_can_end_the_training_which_can_be_resumed(tmp_path, event, step):
    class Stop(Callback):
        pass

    def stop(self, state):
        if state.step >= step:
            state.request_stop("that is enough")

    setattr(Stop, event, stop)
    lines, recorder = [], Recorder()
    _, result = run(tmp_path, Stop(), recorder, log=lines.append)
    assert (result.step, result.stop_reason, result.interrupted) == (step, "that is enough", False)
    assert lines[-1] == "done: that is enough"
    assert recorder.ends[0][:2] == (step, "that is enough")
    assert checkpoint.load_latest(tmp_path / "checkpoints").step == step
    model, result = run(tmp_path)
    assert result.step == 30
    expected, _ = train(tmp_path / "whole")
    assert torch.equal(model.embedding.weight, expected.embedding.weight)


def test_an_exception_in_a_callback_ends_the_training_and_keeps_the_checkpoint(tmp_path):
    class Fails(Recorder):
        def on_step(self, state):
            if state.step == 8:
                raise KeyError("broken")

    callback = Fails()
    with pytest.raises(KeyError, match="broken"):
        run(tmp_path, callback)
    assert callback.ends == []
    assert checkpoint.load_latest(tmp_path / "checkpoints").step == 5
    assert "failed: 'broken'" in (tmp_path / "log.txt").read_text()
    _, result = run(tmp_path)
    assert result.step == 30


def test_the_loss_before_a_first_step_is_not_a_number(tmp_path):
    run(tmp_path, steps=8)
    losses = []

    class End(Callback):
        def on_end(self, state):
            losses.append(state.loss)

    run(tmp_path, End(), steps=8)
    assert len(losses) == 1
    assert math.isnan(losses[0])


def test_a_request_without_a_reason_ends_the_training(tmp_path):
    class Stop(Callback):
        def on_step(self, state):
            state.request_stop("")

    _, result = run(tmp_path, Stop())
    assert (result.step, result.stop_reason) == (1, "a callback requested it")


@pytest.mark.bare
def test_one_callback_and_an_iterator_of_callbacks_are_called(tmp_path):
    for name, make in (("one", lambda one: one), ("iterator", lambda one: iter([one]))):
        recorder, model = Recorder(), make_model()
        fit(model, loss_fn, CountingRows(), make_config(steps=2), tmp_path / name, log=ignore, callbacks=make(recorder))
        assert [step for step, _, _ in recorder.steps] == [1, 2]


@pytest.mark.bare
def test_the_run_may_be_a_path(tmp_path):
    for folder in (tmp_path / "path", str(tmp_path / "text")):
        fit(make_model(), loss_fn, CountingRows(), make_config(steps=1), folder, log=ignore)
        assert checkpoint.load_latest(RunFolder(folder).checkpoints).step == 1
    for wrong in (None, 3):
        with pytest.raises(DtypeError, match=r"run must be a RunFolder or the path of a folder, got a (NoneType|int)"):
            fit(make_model(), loss_fn, CountingRows(), make_config(steps=1), wrong, log=ignore)


@pytest.mark.bare
def test_what_is_no_callback_is_refused(tmp_path):
    for wrong, name in ((None, "a NoneType"), (Recorder, "the class Recorder")):
        with pytest.raises(UsageError, match=f"callbacks has {name}; each must be an object of"):
            fit(make_model(), loss_fn, CountingRows(), make_config(), RunFolder(tmp_path), callbacks=wrong)
    with pytest.raises(UsageError, match="callbacks has a function; each must be an object of a subclass of Callback"):
        run(tmp_path, ignore)
    with pytest.raises(UsageError, match="callbacks has the class Recorder"):
        run(tmp_path, Recorder)
