from itertools import pairwise

import numpy as np
import pytest
import torch

from regard.viewing import figures as pictures
from regard.viewing._arrays import max_pool
from tests.viewing.pixels import brightness, color_at, pixels, size

NAN = float("nan")


def labels_of(axes, which="x"):
    return [text.get_text() for text in getattr(axes, f"get_{which}ticklabels")()]


def test_the_darkest_cell_is_the_largest_weight():
    weights = torch.rand(6, 7)
    seen = pictures.heatmap(weights, show_values=False)
    found = {(i, j): brightness(color_at(seen, i, j)) for i in range(6) for j in range(7)}
    by_weight = sorted(found, key=lambda place: weights[place].item())
    assert [found[place] for place in by_weight] == sorted(found.values(), reverse=True)


def test_zero_is_white_and_top_is_shared_between_pictures():
    half = pictures.heatmap(torch.tensor([[0.5, 0.0]]), vmax=1.0, show_values=False)
    whole = pictures.heatmap(torch.tensor([[1.0, 0.5]]), show_values=False)
    assert color_at(half, 0, 1).tolist() == [1, 1, 1]
    assert np.allclose(color_at(half, 0, 0), color_at(whole, 0, 1), atol=0.02)


def test_both_sentences_stand_on_the_axes():
    axes = pictures.heatmap(
        torch.eye(2), row_labels=["the", "cat"], column_labels=["le", "chat"]
    ).figure.axes[0]
    assert labels_of(axes, "y") == ["the", "cat"]
    assert labels_of(axes, "x") == ["le", "chat"]
    assert axes.yaxis_inverted(), "the first word is on top"


def test_numbers_are_written_where_there_is_room_and_can_be_read():
    from matplotlib.colors import to_rgb

    seen = pictures.heatmap(torch.tensor([[0.9, 0.1, 0.001]]))
    written = {text.get_text(): text for text in seen.figure.axes[0].texts}
    assert set(written) == {"0.90", "0.10"}
    for column, text in enumerate(written.values()):
        shades = sorted(
            (brightness(np.array(to_rgb(text.get_color()))), brightness(color_at(seen, 0, column)))
        )
        assert (shades[1] + 0.05) / (shades[0] + 0.05) > 4.5, "the contrast that the web asks for"
    assert not pictures.heatmap(torch.rand(20, 20)).figure.axes[0].texts
    assert pictures.heatmap(torch.rand(20, 20), show_values=True).figure.axes[0].texts


def test_gold_links_are_outlined():
    axes = pictures.heatmap(
        torch.rand(3, 4), sure_links={(3, 0)}, possible_links={(3, 0), (1, 2)}
    ).figure.axes[0]
    frames = {
        tuple(np.round(np.add(patch.get_xy(), 0.42), 6)): patch.get_linestyle() for patch in axes.patches
    }
    assert set(frames) == {(3.0, 0.0), (1.0, 2.0)}
    assert frames[3.0, 0.0] == "-"
    assert frames[1.0, 2.0] != "-"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["sure", "possible"]


def test_what_is_not_a_number_is_gray_hatched_and_counted():
    seen = pictures.heatmap(torch.tensor([[NAN, 1.0], [0.5, NAN]]))
    axes = seen.figure.axes[0]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["NaN: 2"]
    assert len([patch for patch in axes.patches if patch.get_hatch()]) == 2
    gray = pixels(pictures.heatmap(torch.full((1, 1), NAN)))
    assert (np.ptp(gray[len(gray) // 3], axis=-1) == 0).all()


def test_five_hundred_tokens_are_not_too_many():
    words = [f"token{i}" for i in range(500)]
    seen = pictures.heatmap(torch.rand(500, 500), words, words)
    assert max(size(seen)) < 4000
    shown = labels_of(seen.figure.axes[0])
    assert 20 < len(shown) < 100
    boxes = [text.get_window_extent() for text in seen.figure.axes[0].get_xticklabels()]
    assert not any(one.overlaps(other) for one, other in pairwise(boxes))


@pytest.mark.parametrize("count", [2, 5, 30])
def test_labels_do_not_touch_and_are_turned_only_if_they_must(count):
    short = pictures.heatmap(torch.rand(count, count), column_labels=["ab"] * count).figure
    assert {text.get_rotation() for text in short.axes[0].get_xticklabels()} == {0.0}
    long = pictures.heatmap(torch.rand(count, count), column_labels=["internationalizations"] * count).figure
    assert 0.0 not in {text.get_rotation() for text in long.axes[0].get_xticklabels()}
    assert labels_of(long.axes[0])[0] == "internationalizat…"
    left = pictures.heatmap(torch.rand(count, count), rows=["Ägypten"] * count).figure
    boxes = [text.get_window_extent() for text in left.axes[0].get_yticklabels()]
    assert not any(one.overlaps(other) for one, other in pairwise(boxes))


def test_a_thread_of_a_matrix_keeps_some_height():
    height, width = size(pictures.heatmap(torch.rand(1, 500)))
    assert height > 120
    assert width > 1000


def test_where_cells_are_smaller_than_pixels_no_peak_is_lost():
    weights = torch.zeros(5000, 5000)
    weights[1234, 4321] = 1.0
    assert pixels(pictures.heatmap(weights)).min() < 0.2
    assert max_pool(weights.numpy(), 100, 100).max() == 1


def test_the_scale_darkens_step_by_step():
    from regard.viewing.figures.figure import SEQUENTIAL, SEQUENTIAL_ON_DARK, brightness, build_colormap

    steps = [brightness(build_colormap(SEQUENTIAL)(t)) for t in np.linspace(0, 1, 101)]
    assert (np.diff(steps) < 0).all()
    assert (
        np.diff([brightness(build_colormap(SEQUENTIAL_ON_DARK)(t)) for t in np.linspace(0, 1, 101)]) > 0
    ).all()


def test_heads_share_one_scale_and_are_named():
    weights = torch.full((2, 3, 4, 4), 0.25)
    weights[1, 2] = torch.eye(4)
    seen = pictures.head_grid(weights, row_labels=list("abcd"), layer_names=[4, 5], title="all")
    axes = seen.figure.axes[0]
    images = [np.asarray(image.to_rgba(image.get_array()))[..., :3] for image in axes.images]
    assert len(images) == 6
    assert brightness(images[5][0, 0]) < 0.2 < brightness(images[0][0, 0])
    assert (images[0][0, 0] == images[4][3, 3]).all()
    names = [text.get_text() for text in axes.texts]
    assert names == ["head 0", "head 1", "head 2", "layer 4", "layer 5"]
    assert labels_of(axes, "y") == list("abcdabcd"), "once for each layer"
    top, bottom = (axes.images[i].get_extent() for i in (0, 3))
    assert top[2] < bottom[3], "layers go from top to bottom"


def test_the_heads_of_one_layer_are_wrapped():
    axes = pictures.head_grid(torch.rand(1, 8, 3, 3)).figure.axes[0]
    assert len({image.get_extent()[0] for image in axes.images}) == 4
    assert [text.get_text() for text in axes.texts] == [f"head {i}" for i in range(8)]


def test_eight_layers_of_eight_heads_over_512_tokens_are_drawn_in_seconds():
    from time import process_time

    weights = torch.rand(8, 8, 512, 512)
    start = process_time()
    assert max(size(pictures.head_grid(weights))) < 4000
    assert process_time() - start < 20, "about two seconds on a quiet machine"


@pytest.mark.parametrize("shape", [(24, 16, 20, 20), (48, 1, 3, 3), (1, 200, 3, 3), (1, 1, 2, 300)])
def test_many_layers_and_heads_still_fit(shape):
    words = ["word"] * shape[2] if max(shape) < 100 else None  # which need more room than numbers
    assert max(size(pictures.head_grid(torch.rand(shape), row_labels=words))) < 4000


def test_light_falls_where_the_word_looked():
    grid = torch.zeros(2, 4, 4)
    grid[0, 0, 3] = grid[1, 3, 0] = 0.7
    for smooth in (True, False):
        seen = pictures.image_overlay(
            torch.full((40, 40), 200, dtype=torch.uint8), grid, ["a", "dog"], smooth=smooth
        )
        first, second = (np.asarray(axes.images[0].get_array()) for axes in seen.figure.axes[1:])
        edge = len(first) // 8
        assert np.allclose(first[edge, -edge], 200 / 255, atol=0.01)
        assert np.allclose(second[-edge, edge], 200 / 255, atol=0.01)
        assert first[-edge, edge].max() < 0.2
    assert [axes.get_title("center") for axes in seen.figure.axes] == ["", "a", "dog"]
    assert seen.figure.axes[1].get_xlabel() == "up to 0.7"


def test_many_words_over_an_image_still_fit():
    assert max(size(pictures.image_overlay(torch.rand(8, 8), torch.rand(60, 2, 2), ["word"] * 60))) < 4000


def test_an_image_keeps_its_proportions():
    box = pictures.image_overlay(torch.rand(50, 100, 3), torch.rand(2, 2)).figure.axes[0].get_window_extent()
    assert round(box.width / box.height, 1) == 2.0


def test_images_come_as_arrays_too_and_nan_is_gray():
    image = np.full((20, 20, 3), 255, dtype=np.uint8)
    image.flags.writeable = False  # as those of image files are
    seen = pictures.image_overlay(image, torch.full((2, 2), NAN), ["x"]).figure.axes[1]
    assert np.allclose(np.asarray(seen.images[0].get_array()), 0.6)
    assert seen.get_xlabel() == "NaN"


def test_long_titles_do_not_blow_up_the_picture():
    assert max(size(pictures.heatmap(torch.eye(2), title="long " * 1000))) < 2000
    for title in ("a man in a red shirt sees another one " * 2, "注意" * 40, "x" * 80):
        plain, named = (size(pictures.heatmap(torch.rand(6, 6), title=title)) for title in (None, title))
        assert named[1] < 1.1 * plain[1], "a title is broken into lines, and does not make the picture wider"
        assert named[0] < plain[0] + 120
    assert (
        max(
            size(
                pictures.head_grid(
                    torch.rand(2, 2, 3, 3), layer_names=["a.b" * 100, 1], head_names=["x" * 500, 1]
                )
            )
        )
        < 2000
    )


@pytest.mark.bare
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: pictures.heatmap(torch.zeros(2, 3, 4)), r"\(queries, keys\), not \(2, 3, 4\)"),
        (lambda: pictures.heatmap(torch.tensor([[-1.0]])), "never negative"),
        (lambda: pictures.heatmap(torch.tensor([[float("inf")]])), "infinite"),
        (lambda: pictures.heatmap(torch.zeros(0, 3)), "nothing to draw"),
        (lambda: pictures.heatmap(torch.eye(2), row_labels=["a"]), "1 row labels for 2 rows"),
        (lambda: pictures.heatmap(torch.eye(2), row_labels="ab"), "a list of them"),
        (lambda: pictures.heatmap(torch.eye(2), vmax=0.0), "above 0"),
        (
            lambda: pictures.heatmap(torch.eye(2), sure_links=[(2, 0)]),
            r"link \(2, 0\) is outside of 2 columns",
        ),
        (lambda: pictures.head_grid(torch.eye(2)), r"\(layers, heads, queries, keys\), not \(2, 2\)"),
        (lambda: pictures.image_overlay(torch.rand(3, 8, 8), torch.eye(2)), r"image.permute\(1, 2, 0\)"),
        (lambda: pictures.image_overlay(torch.rand(8, 8) * 255, torch.eye(2)), "outside of 0..1"),
        (lambda: pictures.image_overlay(torch.rand(8, 8), torch.rand(99, 2, 2)), "at most 60 words, not 99"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_words(call, words):
    with pytest.raises(ValueError, match=words):
        call()
