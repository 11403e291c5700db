"""The costs of layers: what is counted is what the formulas say, and the table is written."""

import json

import pytest

from regard.errors import TrainingError
from regard.studies import STUDIES, costs
from regard.studies.costs import count_operations, fit_exponent, graph_depth, path_length, quadratic_share


@pytest.mark.parametrize("kind", costs.LAYER_KINDS)
def test_operations_are_those_of_the_formula(kind):
    made = costs.LAYER_KINDS[kind]
    layer = made.build()
    for length in (256, 512):
        ratio = count_operations(layer, length, costs.DIM) / made.formula(length)
        if kind == "local attention":  # blocks of 64 queries are shown 96 keys, where each sees 33
            assert 1 <= ratio < 1.3
        else:
            assert ratio == 1


def test_only_recurrence_has_to_wait():
    found = {
        kind: [graph_depth(made.build(), length, costs.DIM) for length in (16, 32)]
        for kind, made in costs.LAYER_KINDS.items()
    }
    for kind, (short, long) in found.items():
        if kind == "recurrence":
            assert 1.8 < long / short < 2.1
        else:
            assert short == long < 30


def test_paths_against_counting_by_hand():
    found = {kind: path_length(made.build(), 65, costs.DIM) for kind, made in costs.LAYER_KINDS.items()}
    assert found == {
        "self-attention": 1,
        "its weights read": 1,
        "local attention": 4,  # 16 positions a layer
        "recurrence": 64,
        "convolution": 64,  # a kernel of 3 reaches one neighbor
    }


def test_slopes():
    points = {10: 100.0, 20: 7.0, 40: 28.0, 80: 112.0}
    assert fit_exponent(points, 3) == pytest.approx(2)
    assert quadratic_share({n: 3.0 * n**2 for n in (1, 2, 4)}) == pytest.approx(1)
    assert quadratic_share({n: 3.0 * n for n in (1, 2, 4)}) == pytest.approx(0, abs=1e-9)


def test_all_layers_are_of_one_size():
    sizes = [sum(p.numel() for p in made.build().parameters()) for made in costs.LAYER_KINDS.values()]
    assert max(sizes) < 1.02 * min(sizes)


def test_the_study_writes_its_table_and_picture(tmp_path, monkeypatch):
    """With made-up times: those of a machine that is busy would prove nothing."""

    def made_up(kind, lengths):
        time, memory = costs.LAYER_KINDS[kind].growth_exponents[3:]
        return {
            "time": {length: 1e-6 * length**time for length in lengths},
            "memory": {length: 0.01 * length**memory for length in lengths},
        }

    monkeypatch.setattr(costs, "measure_costs", made_up)
    said = []
    found = STUDIES["costs"].run(tmp_path, quick=True, log=said.append)
    assert len(said) == len(found["rows"]) == 5
    assert found["rows"][0]["found"]["time"] == pytest.approx(2)
    assert "1 / 1.00" in found["table"]
    assert "smaller terms still count" in found["table"]  # 512 positions are few beside 96 features
    assert (tmp_path / "costs.png").stat().st_size > 10_000
    assert json.loads((tmp_path / "numbers.json").read_text())["dim"] == costs.DIM


def test_a_child_measures(monkeypatch):
    found = costs.measure_costs("convolution", [64, 128])
    assert set(found["time"]) == set(found["memory"]) == {64, 128}
    assert all(value > 0 for points in found.values() for value in points.values())
    monkeypatch.setattr(costs.sys, "executable", "false")
    with pytest.raises(TrainingError, match="measuring convolution failed"):
        costs.measure_costs("convolution", [64])
