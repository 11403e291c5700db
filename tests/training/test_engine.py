"""The engine: steps are what the equations say, ends are where they should be."""

import json
import math
import os
import resource
import signal

import pytest
import torch
from torch import nn

from regard.errors import DivergedError, StorageError
from regard.training import Loss, RunFolder, average_weights, checkpoint, fit, load_weights
from tests.training.toy import Counting, Rows, objective, scores, settings, silent, train


def weights(folder, name="best"):
    return load_weights(folder / "weights" / f"{name}.safetensors")


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_a_step_is_adam_on_the_mean_over_all_tokens(tmp_path):
    """Several batches of unequal size make the step of one batch with all their tokens; clipped by length."""
    trained, _ = train(tmp_path, objective(dropout=0.0), steps=3, accumulate=3, clip=0.5, schedule="constant")
    model = objective(dropout=0.0)
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98))
    stream = Counting().batches(None)
    for step in (1, 2, 3):
        losses = [model(next(stream)[0]) for _ in range(3)]
        mean = sum(loss.total for loss in losses) / sum(loss.count for loss in losses)
        optimizer.zero_grad()
        mean.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.param_groups[0]["lr"] = 0.02 * step / 5
        optimizer.step()
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(trained.state_dict()[name], tensor, atol=1e-6, rtol=1e-5)


def test_adamw_pulls_matrices_only(tmp_path):
    class Still(nn.Module):
        def __init__(self):
            super().__init__()
            self.matrix, self.bias = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2))

        def forward(self, rows):
            return Loss(0.0 * (self.matrix.sum() + self.bias.sum()), 1)

    model = Still()
    how = settings(steps=1, optimizer="adamw", weight_decay=0.5, lr=0.1, warmup=0)
    fit(model, Counting(), how, RunFolder(tmp_path), log=silent)
    torch.testing.assert_close(model.matrix.data, torch.full((2, 2), 1 - 0.1 * 0.5))
    assert torch.equal(model.bias.data, torch.ones(2))


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "rmsprop"])
def test_a_step_counts_as_a_change_of_each_parameter(tmp_path, optimizer):
    """Who has looked at weights, or laid them out, can tell that they are others now."""
    model = objective(dropout=0.0)
    before = [parameter._version for parameter in model.parameters()]
    train(tmp_path, model, steps=2, optimizer=optimizer)
    assert all(
        parameter._version > version for parameter, version in zip(model.parameters(), before, strict=True)
    )


def test_it_learns_and_keeps_the_best(tmp_path):
    _, outcome = train(tmp_path, steps=200, validate_every=20, lr=0.05, watch="right")
    assert outcome.scores["right"] > 0.9
    assert outcome.step == 200
    assert outcome.stop_reason == "all 200 steps are done"
    assert not outcome.interrupted
    best = objective()
    best.load_state_dict(weights(tmp_path))
    with torch.no_grad():
        assert scores(best.eval())()["right"] == outcome.best


def test_chance_is_another_in_every_step_and_seed(tmp_path):
    masks = []

    class Noting(nn.Linear):
        def forward(self, rows):
            masks.append(torch.rand(4))
            return Loss(super().forward(torch.ones(1, 1)).sum(), 1)

    for seed in (0, 0, 1):
        fit(
            Noting(1, 1),
            Counting(),
            settings(steps=3, seed=seed),
            RunFolder(tmp_path / f"{len(masks)}"),
            log=silent,
        )
    assert torch.equal(torch.stack(masks[:3]), torch.stack(masks[3:6]))
    assert len({tuple(mask.tolist()) for mask in masks}) == 6


def test_early_stopping_waits_for_patience(tmp_path):
    found = iter([3.0, 2.0, 2.5, math.nan, 2.0, 1.0])
    model = objective()
    how = settings(steps=100, validate_every=2, patience=3)
    outcome = fit(model, Counting(), how, RunFolder(tmp_path), lambda: {"loss": next(found)}, silent)
    assert (outcome.step, outcome.best, outcome.best_step) == (10, 2.0, 4)
    assert outcome.stop_reason == "loss did not get better in 3 validations"
    assert not same(weights(tmp_path), model.state_dict())
    again = fit(objective(), Counting(), how, RunFolder(tmp_path), lambda: {"loss": next(found)}, silent)
    assert again.step == 10, "a run that is over stays so"


def test_the_time_is_limited_and_adds_up(tmp_path):
    _, first = train(tmp_path, steps=100_000, minutes=0.01)
    assert 0 < first.step < 100_000
    assert first.stop_reason == "0.01 minutes are over"
    _, again = train(tmp_path, steps=100_000, minutes=0.01)
    assert again.step == first.step
    _, more = train(tmp_path, steps=first.step + 5, minutes=1)
    assert more.step == first.step + 5
    assert more.seconds > first.seconds


def test_the_average_is_that_of_the_last_validations(tmp_path):
    train(
        tmp_path, steps=29, validate_every=7, average=3, lr=0.002
    )  # validates at 7, 14, 21, 28 and at the end
    paths = [tmp_path / "weights" / "recent" / f"step-{step:08d}.safetensors" for step in (21, 28, 29)]
    assert same(weights(tmp_path, "average"), average_weights(paths))


@pytest.mark.parametrize(
    ("last", "kept", "says"),
    [
        (2.03, True, "has loss 2.03; it is kept for use"),  # not clearly worse
        (2.3, False, "has loss 2.3; the best ones, of step 4 with 2, are kept for use instead"),
        (math.nan, False, "has loss nan; the best ones"),
    ],
)
def test_an_average_that_is_clearly_worse_is_not_for_use(tmp_path, last, kept, says):
    found, said, model = iter([3.0, 2.0, 2.6, 2.5, last]), [], objective()
    how = settings(steps=8, validate_every=2, save_every=8, average=2)
    fit(model, Counting(), how, RunFolder(tmp_path), lambda: {"loss": next(found)}, said.append)
    assert RunFolder(tmp_path).find_weights() == (
        RunFolder(tmp_path).average if kept else RunFolder(tmp_path).best
    )
    assert any(f"the average of the weights of the last 2 validations {says}" in line for line in said)
    newest = checkpoint.load_latest(tmp_path / "checkpoints")
    assert same(newest.model, model.state_dict()), "measuring leaves the weights as they were"


@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_a_number_that_is_not_finite_stops_with_the_step_and_advice(tmp_path, what):
    class Breaking(nn.Linear):
        def forward(self, rows):
            self.calls = getattr(self, "calls", 0) + 1
            value = super().forward(torch.ones(1, 1)).sum()
            if self.calls == 13:
                value = value * math.nan if what == "loss" else (value - value).abs().sqrt() + value
            return Loss(value, 1)

    model = Breaking(1, 1)
    with pytest.raises(DivergedError) as error:
        fit(model, Counting(), settings(clip=None), RunFolder(tmp_path), log=silent)
    assert str(error.value) == (
        f"step 13: the {what} is nan; the checkpoint of step 10 is kept; "
        "try a smaller lr than 0.02, a longer warmup than 5, max_grad_norm=1.0"
    )
    assert checkpoint.load_latest(tmp_path / "checkpoints").step == 10
    assert all(torch.isfinite(p).all() for p in model.parameters())
    assert "failed: step 13" in (tmp_path / "log.txt").read_text()


def test_ctrl_c_finishes_the_step_saves_and_says_how_to_go_on(tmp_path):
    class Pressing(Counting):
        def batches(self, position):
            for index, item in enumerate(super().batches(position)):
                if index == 12:
                    os.kill(os.getpid(), signal.SIGINT)
                yield item

    said, handler = [], signal.getsignal(signal.SIGINT)
    model = objective()
    outcome = fit(model, Pressing(), settings(), RunFolder(tmp_path), scores(model), said.append)
    assert outcome.interrupted
    assert outcome.step == 13
    assert said[-1] == f"stopped at step 13; go on with: regard resume {tmp_path}"
    assert signal.getsignal(signal.SIGINT) is handler
    resumed, after = train(tmp_path)
    assert after.step == 30
    whole, _ = train(tmp_path / "whole")
    assert same(resumed.state_dict(), whole.state_dict())


def test_a_full_disk_stops_with_one_sentence(tmp_path):
    """A real limit on the size of files, met by a checkpoint; then there is room again."""

    class Filling(Counting):
        def batches(self, position):
            for index, item in enumerate(super().batches(position)):
                if index == 12:
                    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
                yield item

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        with pytest.raises(StorageError) as error:
            fit(objective(), Filling(), settings(), RunFolder(tmp_path), log=silent)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert str(error.value) == (
        f"step 15: the checkpoint {tmp_path}/checkpoints/step-00000015 could not be written: file too large; "
        f"the checkpoint of step 10 is intact; free some space, then: regard resume {tmp_path}"
    )
    resumed, _ = train(tmp_path)
    whole, _ = train(tmp_path / "whole")
    assert same(resumed.state_dict(), whole.state_dict())


def test_data_that_ends_is_an_error(tmp_path):
    class Short(Counting):
        def batches(self, position):
            for _, item in zip(range(4), super().batches(position), strict=False):
                yield item

    with pytest.raises(ValueError, match=r"the data ended at step 4; a data source has to begin again"):
        fit(objective(), Short(), settings(), RunFolder(tmp_path), log=silent)


def test_a_score_that_is_not_measured_cannot_be_watched(tmp_path):
    with pytest.raises(
        ValueError, match=r"monitor=bleu: the validation does not measure that, but loss, right"
    ):
        train(tmp_path, watch="bleu")


def test_without_validation_the_newest_checkpoint_is_the_result(tmp_path):
    model = objective()
    outcome = fit(model, Counting(), settings(average=2), RunFolder(tmp_path), log=silent)
    assert outcome.best is None
    found = load_weights(RunFolder.open(tmp_path).find_weights())
    assert same(found, model.state_dict())


def test_bfloat16_computes_in_it_and_keeps_float32(tmp_path):
    kinds = set()

    class Noting(nn.Linear):
        def forward(self, rows):
            scores = super().forward(torch.ones(2, 4))
            kinds.add(scores.dtype)
            return Loss(scores.float().sum(), 2)

    model = Noting(4, 4)
    fit(model, Counting(), settings(steps=2, precision="bfloat16"), RunFolder(tmp_path), log=silent)
    assert kinds == {torch.bfloat16}
    assert model.weight.dtype == torch.float32


def test_frozen_and_unused_parameters_are_left_alone(tmp_path):
    model = objective()
    model.extra = nn.Linear(2, 2)
    model.embedding.weight.requires_grad_(False)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    train(tmp_path, model)
    moved = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert moved.isdisjoint({"embedding.weight", "output.weight", "extra.weight", "extra.bias"})
    assert "output.bias" in moved
    with pytest.raises(ValueError, match=r"there is nothing to train"):
        train(tmp_path / "frozen", objective().requires_grad_(False))


def test_the_metrics_are_json_lines(tmp_path):
    train(tmp_path, steps=14)
    points = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    first, valid, *_ = points
    assert set(first) == {"step", "loss", "wrong", "tokens_per_second", "lr", "grad_norm", "epoch", "time"}
    assert [point["step"] for point in points] == [7, 7, 14, 14]
    assert set(valid["valid"]) == {"loss", "right"}
    batches = [batch for _, (batch, _) in zip(range(7), Counting().batches(None), strict=False)]
    tokens = sum(Rows.num_tokens.fget(batch) for batch in batches)
    assert first["wrong"] * tokens == pytest.approx(round(first["wrong"] * tokens))


@pytest.mark.bare
def test_without_a_compiler_training_goes_on_with_a_line(tmp_path, monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("no compiler")

    monkeypatch.setattr(torch, "compile", broken)
    said = []
    _, outcome = train(tmp_path, say=said.append, compile=True)
    assert outcome.step == 30
    assert "compile=on: there is no working compiler here, so the model runs as it is" in said


def test_what_loops_over_a_text_is_not_compiled(tmp_path):
    said, model = [], objective()
    model.loops = True
    train(tmp_path, model, say=said.append, steps=2, compile=True)
    assert any(line.startswith("compile=on: this model goes through a text step by step") for line in said)


@pytest.mark.bare
@pytest.mark.slow
def test_compiled_training_gives_the_same_to_rounding(tmp_path):
    plain, _ = train(tmp_path / "plain", objective(dropout=0.0), steps=5)
    fused, _ = train(tmp_path / "fused", objective(dropout=0.0), steps=5, compile=True)
    for name, tensor in plain.state_dict().items():
        torch.testing.assert_close(fused.state_dict()[name], tensor, atol=1e-4, rtol=1e-3)
