"""Figures of masks, position encodings, memories and kernel regression."""

import csv
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from regard.attention import Gaussian, Learned, Sinusoidal, causal, padding, window
from regard.attention.equation import attend
from regard.attention.positions import binary_code
from regard.models.kernel_regression import KernelRegression, OutOfReachWarning
from regard.viewing import MemoryData, figures, terminal
from tests.viewing.pixels import brightness, color_at, size

CRASH = Path(__file__).parents[2] / "examples" / "mcycle.csv"


def cells(axes):
    return np.asarray(axes.images[0].get_array())


def test_visible_keys_are_dark_and_the_title_is_the_expression():
    rule = causal() & window(2, 0)
    figure = figures.mask_matrix(rule, 6)
    visible = rule.materialize(6, 6)
    dark = [[brightness(color_at(figure, i, j)) < 0.5 for j in range(6)] for i in range(6)]
    assert dark == visible.tolist()
    assert figure.figure.axes[0].get_title("left") == "causal() & window(left=2,\nright=0)"
    assert figures.mask_matrix(visible).figure.axes[0].get_title("left") == ""
    assert figures.mask_matrix(visible, title="own").figure.axes[0].get_title("left") == "own"


def test_a_mask_with_more_keys_than_queries():
    assert cells(figures.mask_matrix(causal(), 2, 5).figure.axes[0]).shape == (2, 5)


def test_a_batch_of_masks():
    panels = figures.mask_matrix(padding([1, 3]), 3).figure.axes
    assert [panels[i].get_title("center") for i in (0, 1)] == ["0", "1"]
    assert [cells(panels[i]).sum() for i in (0, 1)] == [3, 9]


@pytest.mark.parametrize("count", [5, 30, 500, 3000])
def test_masks_of_all_sizes(count):
    assert max(size(figures.mask_matrix(causal(), count))) < 4000


def test_a_position_encoding_and_the_binary_code():
    code = Sinusoidal(16).encoding(32)
    panels = figures.position_encoding(code, compare_with=binary_code(32)).figure.axes
    assert np.allclose(cells(panels[0]), code)
    assert np.allclose(cells(panels[2]), binary_code(32))
    assert panels[0].images[0].get_clim() == (-1, 1)
    assert panels[2].get_xlabel() == "bit"


@pytest.mark.parametrize("length", [5, 500])
def test_encodings_of_all_lengths(length):
    assert max(size(figures.position_encoding(Sinusoidal(64).encoding(length)))) < 4000


def test_a_shift_is_a_linear_map():
    position = Sinusoidal(8, base=100.0)
    panels = figures.position_shift(position.encoding(50), 3, matrix=position.shift_matrix(3)).figure.axes
    assert np.allclose(cells(panels[0]), position.shift_matrix(3))
    predicted = next(axes for axes in panels if axes.get_ylabel() == "M p[i]").lines[1]
    assert np.allclose(predicted.get_xdata(), predicted.get_ydata(), atol=1e-5)
    similarity = panels[-1].lines[0]
    assert similarity.get_ydata().max() == pytest.approx(4), (
        "the dot product with itself is 4: sin^2 + cos^2, four times"
    )
    fitted = figures.position_shift(position.encoding(50), 3).figure.axes[0]
    assert np.allclose(cells(fitted), position.shift_matrix(3), atol=1e-3), "least squares find the same matrix"


def test_a_learned_encoding_has_a_shift_error():
    panels = figures.position_shift(Learned(64, 8).table, 3).figure.axes
    error = next(axes.get_title("left") for axes in panels if axes.get_ylabel() == "M p[i]")
    assert float(error.removeprefix("largest error ")) > 0.01


def test_memory_over_time():
    writes = torch.eye(8)[:5]
    figure = figures.memory_timeline(
        MemoryData(write_weights=writes, read_weights=writes.flip(0), add_vectors=torch.randn(5, 3)), title="copy"
    )
    named = {axes.get_title("left"): axes for axes in figure.figure.axes}
    assert np.allclose(cells(named["write weights"]), writes.T)
    assert np.allclose(cells(named["read weights"]), writes.flip(0).T)
    assert cells(named["add vectors"]).shape == (3, 5)
    assert "copy" in named


def test_vectors_are_above_the_weights():
    vectors = {name: torch.rand(5, 3) for name in ("add_vectors", "read_vectors")}
    vectors |= {"inputs": torch.rand(5, 4), "outputs": torch.rand(5, 2), "targets": torch.rand(5, 2)}
    figure = figures.memory_timeline(
        MemoryData(write_weights=torch.eye(8)[:5], read_weights=torch.eye(8)[:5], **vectors)
    )
    named = {axes.get_title("left"): axes for axes in figure.figure.axes}
    for name, tensor in vectors.items():
        assert np.allclose(cells(named[name.replace("_", " ")]), tensor.T)
    place = {name: axes.get_position() for name, axes in named.items()}
    columns = (("inputs", "add vectors", "write weights"), ("outputs", "targets", "read vectors", "read weights"))
    for above, below in (pair for column in columns for pair in pairwise(column)):
        assert place[above].y0 > place[below].y1
        assert place[above].x0 == pytest.approx(place[below].x0)
    assert place["inputs"].y1 == pytest.approx(place["outputs"].y1)
    assert place["inputs"].x1 < place["outputs"].x0


def scale_of(axes):
    return axes.images[0].get_clim()


def panels_of(**vectors):
    figure = figures.memory_timeline(
        MemoryData(write_weights=torch.eye(8)[:5], read_weights=torch.eye(8)[:5], **vectors)
    )
    return {axes.get_title("left"): axes for axes in figure.figure.axes}


def test_outputs_and_targets_share_a_scale():
    half, bits = torch.full((5, 2), 0.5), (torch.rand(5, 2) > 0.5).float()
    named = panels_of(outputs=half, targets=bits, inputs=0.3 * bits)
    for name in ("inputs", "outputs", "targets"):
        assert scale_of(named[name]) == (0, 1), "probabilities are not scaled"
        assert named[name].get_title("right") == "0 to 1"


def test_inputs_outputs_and_targets_share_a_scale():
    named = panels_of(inputs=torch.ones(5, 2), outputs=torch.full((5, 2), -3.0), targets=torch.ones(5, 2))
    assert [scale_of(named[name]) for name in ("inputs", "outputs", "targets")] == [(-3, 3)] * 3
    assert named["outputs"].get_title("right") == "±3"


def test_other_inputs_do_not_change_the_scale_of_probabilities():
    named = panels_of(inputs=torch.full((5, 2), -2.0), outputs=torch.rand(5, 2), targets=torch.rand(5, 2))
    assert scale_of(named["inputs"]) == (-2, 2)
    assert scale_of(named["outputs"]) == scale_of(named["targets"]) == (0, 1)


def test_outputs_with_one_channel_are_curves():
    target_mask = torch.tensor([False, False, True, True, True])
    outputs, targets = torch.linspace(0.1, 0.9, 5)[:, None], torch.full((5, 1), 0.5)
    named = panels_of(outputs=outputs, targets=targets, target_mask=target_mask)
    axes = named["outputs and targets"]
    lines = {line.get_label(): line.get_ydata() for line in axes.lines}
    assert np.isnan(lines["output"][:2]).all(), "no targets there"
    assert np.allclose(lines["output"][2:], outputs[2:, 0])
    assert np.allclose(lines["target"][2:], 0.5)
    below = named["read weights"]
    assert axes.get_xlim() == below.get_xlim()
    assert axes.get_position().x0 == pytest.approx(below.get_position().x0)
    assert axes.get_ylim()[0] <= 0 < 1 <= axes.get_ylim()[1]


def test_steps_without_a_target_are_blank():
    target_mask = torch.tensor([False, True, True, True, True])
    named = panels_of(outputs=torch.full((5, 2), 0.7), targets=torch.ones(5, 2), target_mask=target_mask)
    assert cells(named["outputs"])[:, 0].tolist() == [0, 0]
    assert np.allclose(cells(named["outputs"])[:, 1:], 0.7)
    assert cells(named["targets"])[:, 0].tolist() == [0, 0]


def test_row_labels_of_a_memory():
    figure = figures.memory_timeline(MemoryData(write_weights=torch.eye(4), row_labels=[6, 7, 0, 1]))
    axes = next(axes for axes in figure.figure.axes if axes.get_title("left") == "write weights")
    assert [label.get_text() for label in axes.get_yticklabels()] == ["6", "7", "0", "1"]
    with pytest.raises(ValueError, match="3 row labels for 4 rows"):
        figures.memory_timeline(MemoryData(write_weights=torch.eye(4), row_labels=[6, 7, 0]))


def test_large_weights_are_light_on_dark():
    figure = figures.memory_timeline(MemoryData(read_weights=torch.eye(4)), dark=True)
    assert brightness(color_at(figure, 0, 0)) > 0.8 > 0.2 > brightness(color_at(figure, 0, 1))


def motorcycle_data():
    with open(CRASH, encoding="utf-8") as lines:
        rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    x, y = (torch.tensor([[float(row[name])] for row in rows]) for name in ("times", "accel"))
    queries = torch.linspace(2.4, 57.6, 80)[:, None]
    return x, y, queries, attend(queries, x, y, score=Gaussian(1.2))


def test_regression_on_real_measurements():
    x, y, queries, output = motorcycle_data()
    order = torch.randperm(80)
    figure = figures.regression_curve(
        x, y, queries[order], output.context[order], output.weights[order], axis_labels=("time ($ms$)", "g")
    )
    curve, matrix, _ = figure.figure.axes
    points, predicted = curve.lines
    assert len(points.get_xdata()) == 133
    assert np.allclose(predicted.get_ydata(), output.context[:, 0]), "sorted by query"
    assert np.allclose(cells(matrix), output.weights)
    assert curve.get_xlabel() == "time ($ms$)"
    assert matrix.get_xticklabels()[0].get_text() == "2.4"


def test_regression_in_the_terminal():
    x, y, queries, output = motorcycle_data()
    text = terminal.regression_curve(x, y, queries, output.context, output.weights, color=False, width=70)
    lines = text.splitlines()
    assert all(len(line) <= 70 for line in lines)
    curve = [line.partition("┤")[2] for line in lines[:16]]
    curve_lines = [i for i, line in enumerate(curve) if any("\u2800" < c <= "\u28ff" for c in line)]
    assert min(curve_lines) > 0, "the largest value is above the curve"
    assert sum(line.count("∘") for line in curve) > 50
    lowest = next(c for c in range(len(curve[curve_lines[-1]])) if "\u2800" < curve[curve_lines[-1]][c] <= "\u28ff")
    assert 20 < lowest < 30, "the crash is at 21 of 58 milliseconds"


def out_of_reach():
    """Arrays of `KernelRegression`, with a query that no point reaches."""
    x, queries = np.array([0.0, 1.0, 2.0, 8.0, 9.0]), np.array([0.5, 1.5, 5.0, 8.5])[:, None]
    model = KernelRegression("boxcar", width=1.0).fit(x[:, None], x**2)
    with pytest.warns(OutOfReachWarning):
        prediction = model.predict(queries)
    return x, x**2, queries, prediction, model.weights(queries)


def test_regression_of_arrays_with_a_gap():
    data = out_of_reach()
    curve, matrix, _ = figures.regression_curve(*data).figure.axes
    assert np.isnan(curve.lines[1].get_ydata()).tolist() == [False, False, True, False]
    assert np.allclose(cells(matrix), data[-1])
    with pytest.raises(ValueError, match=r"regression_curve \(y\): the tensor has NaN"):
        figures.regression_curve(data[0], data[0] * np.nan, *data[2:])


def test_regression_with_a_gap_in_the_terminal():
    data = out_of_reach()
    lines = terminal.regression_curve(*data, color=False, width=60).splitlines()[:16]
    curve_columns = {
        column
        for line in lines
        for column, character in enumerate(line.partition("┤")[2])
        if "\u2800" < character <= "\u28ff"
    }
    assert curve_columns
    assert max(curve_columns) < 15, "from 0.5 to 1.5 of 9"


@pytest.mark.bare
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: figures.mask_matrix(causal()), "num_queries is required"),
        (lambda: figures.mask_matrix(torch.ones(3).bool()), r"\(queries, keys\), got \(3,\)"),
        (
            lambda: figures.position_encoding(torch.rand(4, 2), compare_with=torch.rand(5, 2)),
            "encoding 4, compare_with 5",
        ),
        (lambda: figures.position_shift(torch.rand(9, 2), 9), r"in 1..8 for 9 positions"),
        (lambda: figures.position_shift(torch.rand(9, 8), 3), "an encoding of at least 11 positions"),
        (lambda: figures.memory_timeline(MemoryData()), "requires write_weights"),
        (
            lambda: figures.memory_timeline(MemoryData(add_vectors=torch.rand(4, 2))),
            "add_vectors requires write_weights",
        ),
        (
            lambda: figures.memory_timeline(MemoryData(write_weights=torch.rand(4, 2), read_weights=torch.rand(4, 3))),
            "rows_of_write_weights 2",
        ),
        (lambda: figures.regression_curve(*[torch.rand(3)] * 4, torch.rand(3, 2)), r"= \(3, 3\), got \(3, 2\)"),
        (lambda: figures.position_shift(torch.full((9, 2), float("nan")), 3), "NaN"),
        (lambda: figures.regression_curve(torch.rand(3), *[torch.rand(4)] * 3), "x 3, y 4"),
    ],
)
def test_invalid_arguments_are_rejected(call, message):
    with pytest.raises(ValueError, match=message):
        call()
