"""Weight files: tied weights, averages in float64, and errors for weights that do not fit."""

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from regard.training import RunFolder, average_weights, load_into, load_weights, save_weights
from tests.training.toy import make_model, train


def test_tied_weights_are_stored_once_and_loaded_under_both_names(tmp_path):
    model = make_model()
    save_weights(model.state_dict(), tmp_path / "w.safetensors")
    assert "output.weight" not in load_file(tmp_path / "w.safetensors")
    loaded = load_weights(tmp_path / "w.safetensors")
    assert loaded.keys() == model.state_dict().keys()
    assert loaded["output.weight"] is loaded["embedding.weight"]
    assert all(torch.equal(loaded[name], tensor) for name, tensor in model.state_dict().items())


def test_views_empty_tensors_and_scalars_are_stored(tmp_path):
    matrix = torch.arange(12.0).view(3, 4)
    tensors = {
        "matrix": matrix,
        "row": matrix[1],
        "transposed": matrix.T,
        "no_rows": torch.zeros(0, 3),
        "empty": torch.zeros(0),
        "scalar": torch.tensor(7),
    }
    save_weights(tensors, tmp_path / "w.safetensors")
    loaded = load_weights(tmp_path / "w.safetensors")
    assert loaded.keys() == tensors.keys()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in tensors.items())


def test_a_prefix_selects_names(tmp_path):
    save_weights({"model.a": torch.ones(2), "model.b.c": torch.ones(1), "other": torch.ones(3)}, tmp_path / "w")
    assert set(load_weights(tmp_path / "w", prefix="model")) == {"a", "b.c"}


def test_the_average_is_the_mean_in_float64(tmp_path):
    values = [1e8, 1.0, -1e8, 3.0]  # in float32 the 1 would be lost
    for index, value in enumerate(values):
        tied = torch.full((2, 2), value)
        save_weights({"a": tied, "b": tied, "num_rows": torch.tensor(index)}, tmp_path / f"{index}")
    mean = average_weights([tmp_path / f"{index}" for index in range(4)])
    assert torch.equal(mean["a"], torch.ones(2, 2))
    assert mean["a"].dtype == torch.float32
    assert mean["b"] is mean["a"], "tied weights stay tied"
    assert mean["num_rows"] == 3


def test_weights_of_different_models_are_not_averaged(tmp_path):
    save_weights({"a": torch.ones(2)}, tmp_path / "1")
    save_weights({"a": torch.ones(3)}, tmp_path / "2")
    with pytest.raises(ValueError, match=r"cannot be averaged: their names or shapes differ"):
        average_weights([tmp_path / "1", tmp_path / "2"])
    with pytest.raises(ValueError, match=r"average_weights: no files"):
        average_weights([])


def test_mismatches_are_listed():
    model = nn.Linear(3, 2)
    with pytest.raises(
        ValueError,
        match=r"of old do not fit: bias is missing there; extra is not in this model; "
        "weight is 4x2 there and 2x3 here$",
    ):
        load_into(model, {"weight": torch.ones(4, 2), "extra": torch.ones(1)}, "old")
    with pytest.raises(ValueError, match=r"and 95 more$"):
        load_into(model, {**model.state_dict(), **{str(n): torch.ones(1) for n in range(100)}}, "old")


def test_a_damaged_weight_file_is_named(tmp_path):
    path = tmp_path / "w.safetensors"
    with pytest.raises(FileNotFoundError, match=r"no weights in .*w.safetensors"):
        load_weights(path)
    for content in (b"", b"not safetensors", b"\xff" * 100):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"w\.safetensors is damaged or not a safetensors file"):
            load_weights(path)


def test_training_can_start_from_the_weights_of_another_run(tmp_path):
    """The weights of a run are loaded exactly into another model."""
    train(tmp_path / "first")
    model = make_model(seed=5)
    RunFolder.open(tmp_path / "first").load_into(model)
    best = load_weights(tmp_path / "first" / "weights" / "best.safetensors")
    assert all(torch.equal(best[name], tensor) for name, tensor in model.state_dict().items())
    with pytest.raises(ValueError, match=r"first do not fit: embedding.weight is 11x8 there and 11x4 here"):
        RunFolder.open(tmp_path / "first").load_into(make_model(dim=4))
