"""fit: optimizer steps, validations, stopping, averages and failures."""

import json
import math
import os
import resource
import signal
from importlib import import_module

import pytest
import torch
from torch import nn

from regard.errors import ConfigError, DataError, DivergedError, StorageError, UsageError
from regard.training import Loss, RunFolder, average_weights, checkpoint, fit, load_weights
from tests.training.toy import CountingRows, ignore, loss_fn, make_config, make_model, make_validation, train


def weights(folder, name="best"):
    return load_weights(folder / "weights" / f"{name}.safetensors")


def equal(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_a_step_is_adam_on_the_mean_over_all_tokens(tmp_path):
    """Batches of unequal size make the step of one batch with all their tokens; clipped by norm."""
    trained, _ = train(
        tmp_path, make_model(dropout=0.0), steps=3, grad_accumulation=3, max_grad_norm=0.5, schedule="constant"
    )
    model = make_model(dropout=0.0)
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98))
    stream = CountingRows().batches(None)
    for step in (1, 2, 3):
        losses = [loss_fn(model, next(stream)[0]) for _ in range(3)]
        mean = sum(loss.total for loss in losses) / sum(loss.count for loss in losses)
        optimizer.zero_grad()
        mean.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.param_groups[0]["lr"] = 0.02 * step / 5
        optimizer.step()
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(trained.state_dict()[name], tensor, atol=1e-6, rtol=1e-5)


def test_weight_decay_applies_to_matrices_only(tmp_path):
    class ZeroGradient(nn.Module):
        def __init__(self):
            super().__init__()
            self.matrix, self.bias = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2))

    def zero_loss(model, rows):
        return Loss(0.0 * (model.matrix.sum() + model.bias.sum()), 1)

    model = ZeroGradient()
    config = make_config(steps=1, optimizer="adamw", weight_decay=0.5, lr=0.1, warmup_steps=0)
    fit(model, zero_loss, CountingRows(), config, RunFolder(tmp_path), log=ignore)
    torch.testing.assert_close(model.matrix.data, torch.full((2, 2), 1 - 0.1 * 0.5))
    assert torch.equal(model.bias.data, torch.ones(2))


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "rmsprop"])
def test_a_step_increments_the_version_of_each_parameter(tmp_path, optimizer):
    """So caches of weights notice that they are stale."""
    import_module("regard.attention")  # registers the hook that counts the steps of fused optimizers
    model = make_model(dropout=0.0)
    before = [parameter._version for parameter in model.parameters()]
    train(tmp_path, model, steps=2, optimizer=optimizer)
    assert all(parameter._version > version for parameter, version in zip(model.parameters(), before, strict=True))


def test_the_model_learns_and_the_best_weights_are_saved(tmp_path):
    _, result = train(tmp_path, steps=200, validate_every=20, lr=0.05, monitor="accuracy")
    assert result.scores["accuracy"] > 0.9
    assert result.step == 200
    assert result.stop_reason == "all 200 steps are done"
    assert not result.interrupted
    best = make_model()
    best.load_state_dict(weights(tmp_path))
    with torch.no_grad():
        assert make_validation(best.eval())()["accuracy"] == result.best


def test_every_step_and_seed_has_its_own_random_numbers(tmp_path):
    masks = []

    def record(model, rows):
        masks.append(torch.rand(4))
        return Loss(model(torch.ones(1, 1)).sum(), 1)

    for seed in (0, 0, 1):
        config, run = make_config(steps=3, seed=seed), RunFolder(tmp_path / f"{len(masks)}")
        fit(nn.Linear(1, 1), record, CountingRows(), config, run, log=ignore)
    assert torch.equal(torch.stack(masks[:3]), torch.stack(masks[3:6]))
    assert len({tuple(mask.tolist()) for mask in masks}) == 6


def test_early_stopping_after_patience(tmp_path):
    losses = iter([3.0, 2.0, 2.5, math.nan, 2.0, 1.0])
    config = make_config(steps=100, validate_every=2, patience=3)

    def run(model):
        return fit(model, loss_fn, CountingRows(), config, RunFolder(tmp_path), lambda: {"loss": next(losses)}, ignore)

    model = make_model()
    result = run(model)
    assert (result.step, result.best, result.best_step) == (10, 2.0, 4)
    assert result.stop_reason == "loss did not improve in 3 validations"
    assert not equal(weights(tmp_path), model.state_dict())
    assert run(make_model()).step == 10, "a finished run stays finished"


def test_max_minutes_limits_the_sum_over_resumed_runs(tmp_path):
    _, first = train(tmp_path, steps=100_000, max_minutes=0.01)
    assert 0 < first.step < 100_000
    assert first.stop_reason == "max_minutes=0.01 is reached"
    _, again = train(tmp_path, steps=100_000, max_minutes=0.01)
    assert again.step == first.step
    _, more = train(tmp_path, steps=first.step + 5, max_minutes=1)
    assert more.step == first.step + 5
    assert more.seconds > first.seconds


def test_the_average_is_that_of_the_last_validations(tmp_path):
    # validates at 7, 14, 21, 28 and at the end
    train(tmp_path, steps=29, validate_every=7, average_last=3, lr=0.002)
    paths = [tmp_path / "weights" / "recent" / f"step-{step:08d}.safetensors" for step in (21, 28, 29)]
    assert equal(weights(tmp_path, "average"), average_weights(paths))


@pytest.mark.parametrize(
    ("last", "is_used", "message"),
    [
        (2.03, True, "has loss 2.03; it is used"),  # not clearly worse
        (2.3, False, "has loss 2.3; the best weights, of step 4 with 2, are used instead"),
        (math.nan, False, "has loss nan; the best weights"),
    ],
)
def test_an_average_that_is_clearly_worse_is_not_used(tmp_path, last, is_used, message):
    losses, lines, model, run = iter([3.0, 2.0, 2.6, 2.5, last]), [], make_model(), RunFolder(tmp_path)
    config = make_config(steps=8, validate_every=2, save_every=8, average_last=2)
    fit(model, loss_fn, CountingRows(), config, run, lambda: {"loss": next(losses)}, lines.append)
    assert run.find_weights() == (run.average if is_used else run.best)
    assert any(f"the average of the weights of the last 2 validations {message}" in line for line in lines)
    latest = checkpoint.load_latest(tmp_path / "checkpoints")
    assert equal(latest.model, model.state_dict()), "evaluating the average leaves the weights unchanged"


@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_a_number_that_is_not_finite_stops_with_the_step_and_advice(tmp_path, what):
    calls = 0

    def diverging_loss(model, rows):
        nonlocal calls
        calls += 1
        value = model(torch.ones(1, 1)).sum()
        if calls == 13:
            value = value * math.nan if what == "loss" else (value - value).abs().sqrt() + value
        return Loss(value, 1)

    model = nn.Linear(1, 1)
    with pytest.raises(DivergedError) as error:
        fit(model, diverging_loss, CountingRows(), make_config(max_grad_norm=None), RunFolder(tmp_path), log=ignore)
    assert str(error.value) == (
        f"step 13: the {what} is nan; the checkpoint of step 10 is kept; "
        "try lr below 0.02, warmup_steps above 5, max_grad_norm=1.0"
    )
    assert checkpoint.load_latest(tmp_path / "checkpoints").step == 10
    assert all(torch.isfinite(p).all() for p in model.parameters())
    assert "failed: step 13" in (tmp_path / "log.txt").read_text()


def test_weights_that_are_not_finite_are_not_saved(tmp_path):
    """The loss and the gradient of a step are finite, and the weights after it are not."""
    with pytest.raises(DivergedError, match="is not finite; the checkpoint of step 0 is kept; try lr below 1e"):
        train(tmp_path, lr=1e38, steps=20, save_every=1, validate_every=1, warmup_steps=1)
    for path in (*tmp_path.glob("checkpoints/*/model.safetensors"), *tmp_path.glob("weights/**/*.safetensors")):
        assert all(tensor.isfinite().all() for tensor in load_weights(path).values()), path


def test_ctrl_c_finishes_the_step_saves_and_says_how_to_resume(tmp_path):
    class Interrupting(CountingRows):
        def batches(self, position):
            for index, item in enumerate(super().batches(position)):
                if index == 12:
                    os.kill(os.getpid(), signal.SIGINT)
                yield item

    lines, handler = [], signal.getsignal(signal.SIGINT)
    model = make_model()
    result = fit(
        model, loss_fn, Interrupting(), make_config(), RunFolder(tmp_path), make_validation(model), lines.append
    )
    assert result.interrupted
    assert result.step == 13
    assert lines[-1] == f"stopped at step 13; resume with: regard resume {tmp_path}"
    assert signal.getsignal(signal.SIGINT) is handler
    resumed, after = train(tmp_path)
    assert after.step == 30
    uninterrupted, _ = train(tmp_path / "uninterrupted")
    assert equal(resumed.state_dict(), uninterrupted.state_dict())


def test_a_full_disk_stops_with_one_sentence(tmp_path):
    """A real limit on the size of files, reached by a checkpoint; then there is space again."""

    class LimitingFiles(CountingRows):
        def batches(self, position):
            for index, item in enumerate(super().batches(position)):
                if index == 12:
                    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
                yield item

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        with pytest.raises(StorageError) as error:
            fit(make_model(), loss_fn, LimitingFiles(), make_config(), RunFolder(tmp_path), log=ignore)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert str(error.value) == (
        f"step 15: the checkpoint {tmp_path}/checkpoints/step-00000015 could not be written: file too large; "
        f"the checkpoint of step 10 is intact; free some space, then: regard resume {tmp_path}"
    )
    resumed, _ = train(tmp_path)
    uninterrupted, _ = train(tmp_path / "uninterrupted")
    assert equal(resumed.state_dict(), uninterrupted.state_dict())


def test_batches_that_end_are_an_error(tmp_path):
    class Short(CountingRows):
        def batches(self, position):
            for _, item in zip(range(4), super().batches(position), strict=False):
                yield item

    with pytest.raises(DataError, match=r"the batches ended at step 4; a batch source must start again"):
        fit(make_model(), loss_fn, Short(), make_config(), RunFolder(tmp_path), log=ignore)


def test_a_metric_that_is_not_measured_cannot_be_monitored(tmp_path):
    with pytest.raises(
        ConfigError, match=r"invalid value 'bleu' for monitor: the metrics of the validation are loss, accuracy"
    ):
        train(tmp_path, monitor="bleu")


def test_the_direction_of_a_metric_other_than_the_loss_must_be_given(tmp_path):
    with pytest.raises(ConfigError, match=r"monitor=accuracy: fit needs lower_is_better"):
        fit(
            make_model(),
            loss_fn,
            CountingRows(),
            make_config(monitor="accuracy"),
            RunFolder(tmp_path),
            lambda: {"accuracy": 1.0},
            ignore,
        )


def test_without_validation_the_latest_checkpoint_is_the_result(tmp_path):
    model = make_model()
    config = make_config(average_last=2)
    result = fit(model, loss_fn, CountingRows(), config, RunFolder(tmp_path), log=ignore)
    assert result.best is None
    assert equal(load_weights(RunFolder.open(tmp_path).find_weights()), model.state_dict())


def test_bfloat16_is_for_computation_and_weights_stay_float32(tmp_path):
    dtypes = set()

    def record(model, rows):
        output = model(torch.ones(2, 4))
        dtypes.add(output.dtype)
        return Loss(output.float().sum(), 2)

    model = nn.Linear(4, 4)
    config = make_config(steps=2, precision="bfloat16")
    fit(model, record, CountingRows(), config, RunFolder(tmp_path), log=ignore)
    assert dtypes == {torch.bfloat16}
    assert model.weight.dtype == torch.float32


def test_frozen_and_unused_parameters_do_not_change(tmp_path):
    model = make_model()
    model.unused = nn.Linear(2, 2)
    model.embedding.weight.requires_grad_(False)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    train(tmp_path, model)
    changed = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed.isdisjoint({"embedding.weight", "output.weight", "unused.weight", "unused.bias"})
    assert "output.bias" in changed
    with pytest.raises(UsageError, match=r"there is nothing to train"):
        train(tmp_path / "frozen", make_model().requires_grad_(False))


class RewardLoss(nn.Module):
    """A loss with state: a moving average, and a parameter of its own."""

    def __init__(self):
        super().__init__()
        self.register_buffer("baseline", torch.zeros(()))
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, model, rows):
        loss = loss_fn(model, rows)
        if self.training:
            self.baseline = 0.9 * self.baseline + 0.1 * loss.total.detach()
        return Loss(loss.total * self.scale + 0.01 * self.baseline * self.scale, loss.count)


def test_the_state_of_a_loss_is_in_checkpoints_and_not_in_weights(tmp_path):
    def run(folder, steps):
        model, reward = make_model(), RewardLoss()
        config = make_config(steps=steps)
        fit(model, reward, CountingRows(), config, RunFolder(folder), make_validation(model), ignore)
        return model, reward

    run(tmp_path / "run", 13)
    latest = checkpoint.load_latest(tmp_path / "run" / "checkpoints")
    assert latest.model.keys() == weights(tmp_path / "run").keys() == make_model().state_dict().keys()
    assert {"loss/baseline", "loss/scale", "optimizer/exp_avg/loss/scale"} <= latest.training.keys()
    assert "optimizer/exp_avg/embedding.weight" in latest.training
    resumed, resumed_loss = run(tmp_path / "run", 30)
    model, reward = run(tmp_path / "uninterrupted", 30)
    assert equal(resumed.state_dict(), model.state_dict())
    assert equal(resumed_loss.state_dict(), reward.state_dict())
    assert float(reward.baseline) > 0


def test_the_metrics_are_json_lines(tmp_path):
    train(tmp_path, steps=14)
    points = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    first, valid, *_ = points
    names = ("step", "loss", "errors", "tokens_per_second", "lr", "grad_norm", "epoch", "train_seconds")
    assert set(first) == set(names)
    assert [point["step"] for point in points] == [7, 7, 14, 14]
    assert set(valid["valid"]) == {"loss", "accuracy"}
    batches = [batch for _, (batch, _) in zip(range(7), CountingRows().batches(None), strict=False)]
    tokens = sum(batch.num_tokens for batch in batches)
    assert first["errors"] * tokens == pytest.approx(round(first["errors"] * tokens))


@pytest.mark.bare
def test_without_a_compiler_training_continues_with_a_line(tmp_path, monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("no compiler")

    monkeypatch.setattr(torch, "compile", broken)
    lines = []
    _, result = train(tmp_path, log=lines.append, compile=True)
    assert result.step == 30
    assert "compile=on: there is no working compiler, so the model is not compiled" in lines


def test_compile_mode_off_is_not_compiled(tmp_path):
    lines = []
    train(tmp_path, log=lines.append, compile_mode="off", steps=2, compile=True)
    assert any(line.startswith("compile=on: this model runs step by step") for line in lines)


@pytest.mark.bare
def test_compile_mode_step_is_left_to_the_model(tmp_path, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, **kwargs: function)
    model, calls = make_model(), []
    model.compile_step = lambda: calls.append("compiled")
    train(tmp_path, model, compile_mode="step", steps=2, compile=True)
    assert calls == ["compiled"]


@pytest.mark.bare
@pytest.mark.slow
def test_compiled_training_is_equal_up_to_rounding(tmp_path):
    plain, _ = train(tmp_path / "plain", make_model(dropout=0.0), steps=5)
    compiled, _ = train(tmp_path / "compiled", make_model(dropout=0.0), steps=5, compile=True)
    for name, tensor in plain.state_dict().items():
        torch.testing.assert_close(compiled.state_dict()[name], tensor, atol=1e-4, rtol=1e-3)
