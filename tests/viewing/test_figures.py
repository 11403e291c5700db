"""Heatmaps, grids of heads and image overlays."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from regard.viewing import figures
from regard.viewing._arrays import max_pool
from tests.viewing.pixels import brightness, color_at, pixels, size

NAN = float("nan")


def labels_of(axes, which="x"):
    return [text.get_text() for text in getattr(axes, f"get_{which}ticklabels")()]


def test_the_darkest_cell_is_the_largest_weight():
    weights = torch.rand(6, 7)
    figure = figures.heatmap(weights, show_values=False)
    shades = {(i, j): brightness(color_at(figure, i, j)) for i in range(6) for j in range(7)}
    by_weight = sorted(shades, key=lambda cell: weights[cell].item())
    assert [shades[cell] for cell in by_weight] == sorted(shades.values(), reverse=True)


def test_zero_is_white_and_vmax_makes_figures_comparable():
    half = figures.heatmap(torch.tensor([[0.5, 0.0]]), vmax=1.0, show_values=False)
    full = figures.heatmap(torch.tensor([[1.0, 0.5]]), show_values=False)
    assert color_at(half, 0, 1).tolist() == [1, 1, 1]
    assert np.allclose(color_at(half, 0, 0), color_at(full, 0, 1), atol=0.02)


def test_row_and_column_labels():
    axes = figures.heatmap(torch.eye(2), row_labels=["the", "cat"], column_labels=["le", "chat"]).figure.axes[0]
    assert labels_of(axes, "y") == ["the", "cat"]
    assert labels_of(axes, "x") == ["le", "chat"]
    assert axes.yaxis_inverted(), "the first query is on top"


def test_values_are_written_with_contrast():
    from matplotlib.colors import to_rgb

    figure = figures.heatmap(torch.tensor([[0.9, 0.1, 0.001]]))
    values = {text.get_text(): text for text in figure.figure.axes[0].texts}
    assert set(values) == {"0.90", "0.10"}
    for column, text in enumerate(values.values()):
        shades = sorted((brightness(np.array(to_rgb(text.get_color()))), brightness(color_at(figure, 0, column))))
        assert (shades[1] + 0.05) / (shades[0] + 0.05) > 4.5, "the contrast of WCAG"
    assert not figures.heatmap(torch.rand(20, 20)).figure.axes[0].texts
    assert figures.heatmap(torch.rand(20, 20), show_values=True).figure.axes[0].texts


def test_gold_links_are_outlined():
    axes = figures.heatmap(torch.rand(3, 4), sure_links={(3, 0)}, possible_links={(3, 0), (1, 2)}).figure.axes[0]
    frames = {tuple(np.round(np.add(patch.get_xy(), 0.42), 6)): patch.get_linestyle() for patch in axes.patches}
    assert set(frames) == {(3.0, 0.0), (1.0, 2.0)}
    assert frames[3.0, 0.0] == "-"
    assert frames[1.0, 2.0] != "-"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["sure", "possible"]


def test_nan_is_gray_hatched_and_counted():
    figure = figures.heatmap(torch.tensor([[NAN, 1.0], [0.5, NAN]]))
    axes = figure.figure.axes[0]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["NaN: 2"]
    assert len([patch for patch in axes.patches if patch.get_hatch()]) == 2
    gray = pixels(figures.heatmap(torch.full((1, 1), NAN)))
    assert (np.ptp(gray[len(gray) // 3], axis=-1) == 0).all()


def test_five_hundred_tokens():
    words = [f"token{i}" for i in range(500)]
    figure = figures.heatmap(torch.rand(500, 500), words, words)
    assert max(size(figure)) < 4000
    labels = labels_of(figure.figure.axes[0])
    assert 20 < len(labels) < 100
    boxes = [text.get_window_extent() for text in figure.figure.axes[0].get_xticklabels()]
    assert not any(a.overlaps(b) for a, b in pairwise(boxes))


@pytest.mark.parametrize("count", [2, 5, 30])
def test_labels_do_not_overlap_and_are_rotated_only_if_necessary(count):
    short = figures.heatmap(torch.rand(count, count), column_labels=["ab"] * count).figure
    assert {text.get_rotation() for text in short.axes[0].get_xticklabels()} == {0.0}
    long = figures.heatmap(torch.rand(count, count), column_labels=["internationalizations"] * count).figure
    assert 0.0 not in {text.get_rotation() for text in long.axes[0].get_xticklabels()}
    assert labels_of(long.axes[0])[0] == "internationalizat…"
    left = figures.heatmap(torch.rand(count, count), row_labels=["Ägypten"] * count).figure
    boxes = [text.get_window_extent() for text in left.axes[0].get_yticklabels()]
    assert not any(a.overlaps(b) for a, b in pairwise(boxes))


def test_a_matrix_with_one_row_has_a_minimum_height():
    height, width = size(figures.heatmap(torch.rand(1, 500)))
    assert height > 120
    assert width > 1000


def test_peaks_smaller_than_a_pixel_are_visible():
    weights = torch.zeros(5000, 5000)
    weights[1234, 4321] = 1.0
    assert pixels(figures.heatmap(weights)).min() < 0.2
    assert max_pool(weights.numpy(), 100, 100).max() == 1


def test_color_scales_are_monotonic():
    from regard.viewing.figures._colors import SEQUENTIAL, SEQUENTIAL_ON_DARK, brightness, build_colormap

    steps = [brightness(build_colormap(SEQUENTIAL)(t)) for t in np.linspace(0, 1, 101)]
    assert (np.diff(steps) < 0).all()
    assert (np.diff([brightness(build_colormap(SEQUENTIAL_ON_DARK)(t)) for t in np.linspace(0, 1, 101)]) > 0).all()


def test_heads_share_one_scale_and_have_names():
    weights = torch.full((2, 3, 4, 4), 0.25)
    weights[1, 2] = torch.eye(4)
    figure = figures.head_grid(weights, row_labels=list("abcd"), layer_names=[4, 5], title="all")
    axes = figure.figure.axes[0]
    images = [np.asarray(image.to_rgba(image.get_array()))[..., :3] for image in axes.images]
    assert len(images) == 6
    assert brightness(images[5][0, 0]) < 0.2 < brightness(images[0][0, 0])
    assert (images[0][0, 0] == images[4][3, 3]).all()
    names = [text.get_text() for text in axes.texts]
    assert names == ["head 0", "head 1", "head 2", "layer 4", "layer 5"]
    assert labels_of(axes, "y") == list("abcdabcd"), "once for each layer"
    top, bottom = (axes.images[i].get_extent() for i in (0, 3))
    assert top[2] < bottom[3], "layers go from top to bottom"


def test_heads_of_one_layer_have_several_rows():
    axes = figures.head_grid(torch.rand(1, 8, 3, 3)).figure.axes[0]
    assert len({image.get_extent()[0] for image in axes.images}) == 4
    assert [text.get_text() for text in axes.texts] == [f"head {i}" for i in range(8)]


def test_eight_layers_of_eight_heads_over_512_tokens_take_seconds():
    from time import process_time

    weights = torch.rand(8, 8, 512, 512)
    start = process_time()
    assert max(size(figures.head_grid(weights))) < 4000
    assert process_time() - start < 20, "about two seconds on a quiet machine"


@pytest.mark.parametrize("shape", [(24, 16, 20, 20), (48, 1, 3, 3), (1, 200, 3, 3), (1, 1, 2, 300)])
def test_many_layers_and_heads(shape):
    words = ["word"] * shape[2] if max(shape) < 100 else None  # they need more space than numbers
    assert max(size(figures.head_grid(torch.rand(shape), row_labels=words))) < 4000


def test_light_is_at_the_largest_weight():
    grid = torch.zeros(2, 4, 4)
    grid[0, 0, 3] = grid[1, 3, 0] = 0.7
    for smooth in (True, False):
        figure = figures.image_overlay(torch.full((40, 40), 200, dtype=torch.uint8), grid, ["a", "dog"], smooth=smooth)
        first, second = (np.asarray(axes.images[0].get_array()) for axes in figure.figure.axes[1:])
        edge = len(first) // 8
        assert np.allclose(first[edge, -edge], 200 / 255, atol=0.01)
        assert np.allclose(second[-edge, edge], 200 / 255, atol=0.01)
        assert first[-edge, edge].max() < 0.2
    assert [axes.get_title("center") for axes in figure.figure.axes] == ["", "a", "dog"]
    assert figure.figure.axes[1].get_xlabel() == "up to 0.7"


def test_many_image_overlays():
    assert max(size(figures.image_overlay(torch.rand(8, 8), torch.rand(60, 2, 2), ["word"] * 60))) < 4000


def test_an_image_keeps_its_proportions():
    box = figures.image_overlay(torch.rand(50, 100, 3), torch.rand(2, 2)).figure.axes[0].get_window_extent()
    assert round(box.width / box.height, 1) == 2.0


def test_images_may_be_arrays_and_nan_is_gray():
    image = np.full((20, 20, 3), 255, dtype=np.uint8)
    image.flags.writeable = False  # like arrays of image files
    figure = figures.image_overlay(image, torch.full((2, 2), NAN), ["x"]).figure.axes[1]
    assert np.allclose(np.asarray(figure.images[0].get_array()), 0.6)
    assert figure.get_xlabel() == "NaN"


def test_long_titles_are_wrapped():
    assert max(size(figures.heatmap(torch.eye(2), title="long " * 1000))) < 2000
    for title in ("a man in a red shirt sees another one " * 2, "注意" * 40, "x" * 80):
        plain, named = (size(figures.heatmap(torch.rand(6, 6), title=title)) for title in (None, title))
        assert named[1] < 1.1 * plain[1], "a title is wrapped to the width of the figure"
        assert named[0] < plain[0] + 120
    assert (
        max(size(figures.head_grid(torch.rand(2, 2, 3, 3), layer_names=["a.b" * 100, 1], head_names=["x" * 500, 1])))
        < 2000
    )


@pytest.mark.bare
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: figures.heatmap(torch.zeros(2, 3, 4)), r"\(queries, keys\), got \(2, 3, 4\)"),
        (lambda: figures.heatmap(torch.tensor([[-1.0]])), "must not be negative"),
        (lambda: figures.heatmap(torch.tensor([[float("inf")]])), "infinite"),
        (lambda: figures.heatmap(torch.zeros(0, 3)), "the tensor is empty"),
        (lambda: figures.heatmap(torch.eye(2), row_labels=["a"]), "1 row labels for 2 rows"),
        (lambda: figures.heatmap(torch.eye(2), row_labels="ab"), "a list of strings"),
        (lambda: figures.heatmap(torch.eye(2), vmax=0.0), "must be above 0"),
        (lambda: figures.heatmap(torch.eye(2), sure_links=[(2, 0)]), r"link \(2, 0\) is outside of 2 columns"),
        (lambda: figures.head_grid(torch.eye(2)), r"\(layers, heads, queries, keys\), got \(2, 2\)"),
        (lambda: figures.image_overlay(torch.rand(3, 8, 8), torch.eye(2)), r"image.permute\(1, 2, 0\)"),
        (lambda: figures.image_overlay(torch.rand(8, 8) * 255, torch.eye(2)), "outside of 0..1"),
        (lambda: figures.image_overlay(torch.rand(8, 8), torch.rand(99, 2, 2)), "at most 60 tokens, got 99"),
    ],
)
def test_invalid_arguments_are_rejected(call, message):
    with pytest.raises(ValueError, match=message):
        call()
