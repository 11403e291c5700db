"""The costs of layers: counts equal the formulas, and the table is written."""

import json

import pytest

from regard.errors import TrainingError
from regard.studies import STUDIES, costs
from regard.studies.costs import count_operations, fit_exponent, graph_depth, path_length, quadratic_share


@pytest.mark.parametrize("kind", costs.LAYER_KINDS)
def test_operations_equal_the_formula(kind):
    layer_kind = costs.LAYER_KINDS[kind]
    layer = layer_kind.build()
    for length in (256, 512):
        ratio = count_operations(layer, length, costs.DIM) / layer_kind.formula(length)
        if kind == "local attention":  # blocks of 64 queries compute 96 keys, of which each query attends to 33
            assert 1 <= ratio < 1.3
        else:
            assert ratio == 1


def test_only_the_depth_of_recurrence_grows_with_the_length():
    depths = {
        kind: [graph_depth(layer_kind.build(), length, costs.DIM) for length in (16, 32)]
        for kind, layer_kind in costs.LAYER_KINDS.items()
    }
    for kind, (short, long) in depths.items():
        if kind == "recurrence":
            assert 1.8 < long / short < 2.1
        else:
            assert short == long < 30


def test_path_lengths():
    lengths = {kind: path_length(layer_kind.build(), 65, costs.DIM) for kind, layer_kind in costs.LAYER_KINDS.items()}
    assert lengths == {
        "self-attention": 1,
        "self-attention, weights read": 1,
        "local attention": 4,  # 16 positions per layer
        "recurrence": 64,
        "convolution": 64,  # a kernel of size 3 reaches one neighbor
    }


def test_fitted_exponents():
    points = {10: 100.0, 20: 7.0, 40: 28.0, 80: 112.0}
    assert fit_exponent(points, 3) == pytest.approx(2)
    assert quadratic_share({n: 3.0 * n**2 for n in (1, 2, 4)}) == pytest.approx(1)
    assert quadratic_share({n: 3.0 * n for n in (1, 2, 4)}) == pytest.approx(0, abs=1e-9)


def test_all_layers_have_about_the_same_size():
    sizes = [sum(p.numel() for p in layer_kind.build().parameters()) for layer_kind in costs.LAYER_KINDS.values()]
    assert max(sizes) < 1.02 * min(sizes)


def test_the_study_writes_its_table_and_figure(tmp_path, monkeypatch):
    """With synthetic times, because those of a busy machine would prove nothing."""

    def measure_costs(kind, lengths):
        time, memory = costs.LAYER_KINDS[kind].growth_exponents[3:]
        return {
            "time": {length: 1e-6 * length**time for length in lengths},
            "memory": {length: 0.01 * length**memory for length in lengths},
        }

    monkeypatch.setattr(costs, "measure_costs", measure_costs)
    lines = []
    result = STUDIES["costs"].run(tmp_path, quick=True, log=lines.append)
    assert len(lines) == len(result["rows"]) == 5
    assert result["rows"][0]["found"]["time"] == pytest.approx(2)
    assert "1 / 1.00" in result["table"]
    assert "smaller terms still count" in result["table"]  # 512 positions are few for 96 features
    assert (tmp_path / "costs.png").stat().st_size > 10_000
    assert json.loads((tmp_path / "numbers.json").read_text())["dim"] == costs.DIM


def test_time_and_memory_are_measured_in_a_child_process(monkeypatch):
    result = costs.measure_costs("convolution", [64, 128])
    assert set(result["time"]) == set(result["memory"]) == {64, 128}
    assert all(value > 0 for points in result.values() for value in points.values())
    monkeypatch.setattr(costs.sys, "executable", "false")
    with pytest.raises(TrainingError, match="measuring convolution failed"):
        costs.measure_costs("convolution", [64])
