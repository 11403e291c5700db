"""Masks, positions, memories and regressions: what stands in their axes."""

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
from regard.viewing import figures as pictures
from regard.viewing import terminal
from tests.viewing.pixels import brightness, color_at, size

CRASH = Path(__file__).parents[2] / "examples" / "mcycle.csv"


def cells(axes):
    return np.asarray(axes.images[0].get_array())


def test_a_mask_is_dark_where_one_may_look_and_bears_its_rule():
    rule = causal() & window(2, 0)
    seen = pictures.mask_matrix(rule, 6)
    visible = rule.materialize(6, 6)
    dark = [[brightness(color_at(seen, i, j)) < 0.5 for j in range(6)] for i in range(6)]
    assert dark == visible.tolist()
    assert seen.figure.axes[0].get_title("left") == "causal() & window(left=2,\nright=0)"
    assert pictures.mask_matrix(visible).figure.axes[0].get_title("left") == ""
    assert pictures.mask_matrix(visible, title="mine").figure.axes[0].get_title("left") == "mine"


def test_a_rule_may_have_more_keys_than_queries():
    assert cells(pictures.mask_matrix(causal(), 2, 5).figure.axes[0]).shape == (2, 5)


def test_each_entry_of_a_batch_of_masks_is_drawn():
    panels = pictures.mask_matrix(padding([1, 3]), 3).figure.axes
    assert [panels[i].get_title("center") for i in (0, 1)] == ["0", "1"]
    assert [cells(panels[i]).sum() for i in (0, 1)] == [3, 9]


@pytest.mark.parametrize("count", [5, 30, 500, 3000])
def test_masks_of_all_sizes(count):
    assert max(size(pictures.mask_matrix(causal(), count))) < 4000


def test_positions_beside_the_binary_code():
    code = Sinusoidal(16).encoding(32)
    panels = pictures.position_encoding(code, compare_with=binary_code(32)).figure.axes
    assert np.allclose(cells(panels[0]), code)
    assert np.allclose(cells(panels[2]), binary_code(32))
    assert panels[0].images[0].get_clim() == (-1, 1)
    assert panels[2].get_xlabel() == "bit"


@pytest.mark.parametrize("length", [5, 500])
def test_encodings_of_all_lengths(length):
    assert max(size(pictures.position_encoding(Sinusoidal(64).encoding(length)))) < 4000


def test_a_step_is_one_linear_map():
    position = Sinusoidal(8, base=100.0)
    panels = pictures.position_shift(position.encoding(50), 3, matrix=position.shift_matrix(3)).figure.axes
    assert np.allclose(cells(panels[0]), position.shift_matrix(3))
    moved = next(axes for axes in panels if axes.get_ylabel() == "M p[i]").lines[1]
    assert np.allclose(moved.get_xdata(), moved.get_ydata(), atol=1e-5)
    likeness = panels[-1].lines[0]
    assert likeness.get_ydata().max() == pytest.approx(4), (
        "a position is most like itself: sin^2 + cos^2, four times"
    )
    found = pictures.position_shift(position.encoding(50), 3).figure.axes[0]
    assert np.allclose(cells(found), position.shift_matrix(3), atol=1e-3), "least squares find the same map"


def test_a_learned_encoding_has_no_such_map_and_it_shows():
    panels = pictures.position_shift(Learned(64, 8).table, 3).figure.axes
    error = next(axes.get_title("left") for axes in panels if axes.get_ylabel() == "M p[i]")
    assert float(error.removeprefix("largest error ")) > 0.01


def test_memory_over_time():
    writes = torch.eye(8)[:5]
    seen = pictures.memory_timeline(
        writes=writes, reads=writes.flip(0), added=torch.randn(5, 3), title="copy"
    )
    named = {axes.get_title("left"): axes for axes in seen.figure.axes}
    assert np.allclose(cells(named["write weights"]), writes.T)
    assert np.allclose(cells(named["read weights"]), writes.flip(0).T)
    assert cells(named["added"]).shape == (3, 5)
    assert "copy" in named


def test_all_that_goes_with_a_memory_stands_above_it():
    told = {name: torch.rand(5, 3) for name in ("added", "returned")}
    told |= {"inputs": torch.rand(5, 4), "outputs": torch.rand(5, 2), "wanted": torch.rand(5, 2)}
    seen = pictures.memory_timeline(writes=torch.eye(8)[:5], reads=torch.eye(8)[:5], **told)
    named = {axes.get_title("left"): axes for axes in seen.figure.axes}
    for name, vectors in told.items():
        assert np.allclose(cells(named[name]), vectors.T)
    place = {name: named[name].get_position() for name in (*told, "write weights", "read weights")}
    columns = (("inputs", "added", "write weights"), ("outputs", "wanted", "returned", "read weights"))
    for above, below in (pair for column in columns for pair in pairwise(column)):
        assert place[above].y0 > place[below].y1
        assert place[above].x0 == pytest.approx(place[below].x0)
    assert place["inputs"].y1 == pytest.approx(place["outputs"].y1)
    assert place["inputs"].x1 < place["outputs"].x0


def scale_of(axes):
    return axes.images[0].get_clim()


def panels_of(**told):
    seen = pictures.memory_timeline(writes=torch.eye(8)[:5], reads=torch.eye(8)[:5], **told)
    return {axes.get_title("left"): axes for axes in seen.figure.axes}


def test_what_goes_out_and_what_was_wanted_can_be_compared():
    half, bits = torch.full((5, 2), 0.5), (torch.rand(5, 2) > 0.5).float()
    named = panels_of(outputs=half, wanted=bits, inputs=0.3 * bits)
    for name in ("inputs", "outputs", "wanted"):
        assert scale_of(named[name]) == (0, 1), "probabilities are never scaled up"
        assert named[name].get_title("right") == "0 to 1"


def test_other_numbers_than_probabilities_share_a_scale_too():
    named = panels_of(inputs=torch.ones(5, 2), outputs=torch.full((5, 2), -3.0), wanted=torch.ones(5, 2))
    assert [scale_of(named[name]) for name in ("inputs", "outputs", "wanted")] == [(-3, 3)] * 3
    assert named["outputs"].get_title("right") == "±3"


def test_inputs_beyond_probabilities_leave_the_outputs_theirs():
    named = panels_of(inputs=torch.full((5, 2), -2.0), outputs=torch.rand(5, 2), wanted=torch.rand(5, 2))
    assert scale_of(named["inputs"]) == (-2, 2)
    assert scale_of(named["outputs"]) == scale_of(named["wanted"]) == (0, 1)


def test_outputs_of_one_channel_are_curves_over_the_same_time():
    asked = torch.tensor([False, False, True, True, True])
    said, wanted = torch.linspace(0.1, 0.9, 5)[:, None], torch.full((5, 1), 0.5)
    named = panels_of(outputs=said, wanted=wanted, asked=asked)
    axes = named["outputs and wanted"]
    lines = {line.get_label(): line.get_ydata() for line in axes.lines}
    assert np.isnan(lines["output"][:2]).all(), "nothing was asked there"
    assert np.allclose(lines["output"][2:], said[2:, 0])
    assert np.allclose(lines["wanted"][2:], 0.5)
    below = named["read weights"]
    assert axes.get_xlim() == below.get_xlim()
    assert axes.get_position().x0 == pytest.approx(below.get_position().x0)
    assert axes.get_ylim()[0] <= 0 < 1 <= axes.get_ylim()[1]


def test_what_was_not_asked_for_is_left_out():
    asked = torch.tensor([False, True, True, True, True])
    named = panels_of(outputs=torch.full((5, 2), 0.7), wanted=torch.ones(5, 2), asked=asked)
    assert cells(named["outputs"])[:, 0].tolist() == [0, 0]
    assert np.allclose(cells(named["outputs"])[:, 1:], 0.7)
    assert cells(named["wanted"])[:, 0].tolist() == [0, 0]


def test_rows_of_a_memory_have_their_own_numbers():
    seen = pictures.memory_timeline(writes=torch.eye(4), rows=[6, 7, 0, 1])
    axes = next(axes for axes in seen.figure.axes if axes.get_title("left") == "write weights")
    assert [label.get_text() for label in axes.get_yticklabels()] == ["6", "7", "0", "1"]
    with pytest.raises(ValueError, match="3 row labels for 4 rows"):
        pictures.memory_timeline(writes=torch.eye(4), rows=[6, 7, 0])


def test_a_dark_memory_is_light_where_it_is_regarded():
    seen = pictures.memory_timeline(reads=torch.eye(4), dark=True)
    assert brightness(color_at(seen, 0, 0)) > 0.8 > 0.2 > brightness(color_at(seen, 0, 1))


def crash():
    with open(CRASH, encoding="utf-8") as lines:
        rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    x, y = (torch.tensor([[float(row[name])] for row in rows]) for name in ("times", "accel"))
    queries = torch.linspace(2.4, 57.6, 80)[:, None]
    return x, y, queries, attend(queries, x, y, score=Gaussian(1.2))


def test_regression_on_real_measurements():
    x, y, queries, seen = crash()
    order = torch.randperm(80)
    picture = pictures.regression_curve(
        x, y, queries[order], seen.context[order], seen.weights[order], axis_labels=("time ($ms$)", "g")
    )
    curve, matrix, _ = picture.figure.axes
    points, predicted = curve.lines
    assert len(points.get_xdata()) == 133
    assert np.allclose(predicted.get_ydata(), seen.context[:, 0]), "in the order of the queries"
    assert np.allclose(cells(matrix), seen.weights)
    assert curve.get_xlabel() == "time ($ms$)"
    assert matrix.get_xticklabels()[0].get_text() == "2.4"


def test_regression_in_the_terminal():
    x, y, queries, seen = crash()
    text = terminal.regression_curve(x, y, queries, seen.context, seen.weights, color=False, width=70)
    lines = text.splitlines()
    assert all(len(line) <= 70 for line in lines)
    curve = [line.partition("┤")[2] for line in lines[:16]]
    drawn = [i for i, line in enumerate(curve) if any("\u2800" < c <= "\u28ff" for c in line)]
    assert min(drawn) > 0, "the highest measurement is above the curve"
    assert sum(line.count("∘") for line in curve) > 50
    lowest = next(c for c in range(len(curve[drawn[-1]])) if "\u2800" < curve[drawn[-1]][c] <= "\u28ff")
    assert 20 < lowest < 30, "the crash is at 21 of 58 milliseconds"


def out_of_reach():
    """What `KernelRegression` gives: arrays, with a query that no point reaches."""
    x, queries = np.array([0.0, 1.0, 2.0, 8.0, 9.0]), np.array([0.5, 1.5, 5.0, 8.5])[:, None]
    model = KernelRegression("boxcar", width=1.0).fit(x[:, None], x**2)
    with pytest.warns(OutOfReachWarning):
        prediction = model.predict(queries)
    return x, x**2, queries, prediction, model.weights(queries)


def test_regression_takes_arrays_and_leaves_a_gap_where_no_point_is_in_reach():
    given = out_of_reach()
    curve, matrix, _ = pictures.regression_curve(*given).figure.axes
    assert np.isnan(curve.lines[1].get_ydata()).tolist() == [False, False, True, False]
    assert np.allclose(cells(matrix), given[-1])
    with pytest.raises(ValueError, match=r"regression \(y\): some numbers are NaN"):
        pictures.regression_curve(given[0], given[0] * np.nan, *given[2:])


def test_regression_in_the_terminal_leaves_the_same_gap():
    given = out_of_reach()
    lines = terminal.regression_curve(*given, color=False, width=60).splitlines()[:16]
    drawn = {
        place
        for line in lines
        for place, sign in enumerate(line.partition("┤")[2])
        if "\u2800" < sign <= "\u28ff"
    }
    assert drawn
    assert max(drawn) < 15, "from 0.5 to 1.5 of 9"


@pytest.mark.bare
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: pictures.mask_matrix(causal()), "how many queries"),
        (lambda: pictures.mask_matrix(torch.ones(3).bool()), r"\(queries, keys\), not \(3,\)"),
        (
            lambda: pictures.position_encoding(torch.rand(4, 2), compare_with=torch.rand(5, 2)),
            "positions 4, beside 5",
        ),
        (lambda: pictures.position_shift(torch.rand(9, 2), 9), r"in 1..8 for 9 positions"),
        (lambda: pictures.position_shift(torch.rand(9, 8), 3), "an encoding of 11 positions"),
        (lambda: pictures.memory_timeline(), "writes="),
        (
            lambda: pictures.memory_timeline(added=torch.rand(4, 2)),
            "added needs the weights of the write head",
        ),
        (
            lambda: pictures.memory_timeline(writes=torch.rand(4, 2), reads=torch.rand(4, 3)),
            "rows_of_write 2",
        ),
        (
            lambda: pictures.regression_curve(*[torch.rand(3)] * 4, torch.rand(3, 2)),
            r"\(3 queries, 3 keys\), not \(3, 2\)",
        ),
        (lambda: pictures.position_shift(torch.full((9, 2), float("nan")), 3), "NaN"),
        (lambda: pictures.regression_curve(torch.rand(3), *[torch.rand(4)] * 3), "x 3, y 4"),
    ],
)
def test_what_does_not_fit_is_refused_in_words(call, words):
    with pytest.raises(ValueError, match=words):
        call()
