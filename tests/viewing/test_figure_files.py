"""Files of figures: bytes, text and fonts."""

import subprocess
import sys
import warnings
from xml.etree import ElementTree

import matplotlib
import matplotlib.style
import pytest
import torch

from regard.viewing import MemoryData, figures
from regard.viewing.figures import MissingGlyphsWarning, _labeling
from tests.viewing.pixels import pixels

CHINESE = list("注意力就是全部")
HOSTILE = ["$x^2$", "\\frac", "a\nb", "<b>&amp;</b>", "\x1b[2J\x00", "-->", "\ud800", "  x "]


def text_of(svg: str) -> list[str]:
    return [element.text for element in ElementTree.fromstring(svg).iter() if element.tag.endswith("}text")]


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_the_same_input_gives_the_same_bytes(kind):
    def draw():
        return getattr(figures.heatmap(torch.eye(3), CHINESE[:3], ["$a", "b", "c"], title="t"), kind)()

    assert draw() == draw()


@pytest.mark.slow
def test_the_same_bytes_in_another_process():
    script = (
        "import torch; from regard.viewing.figures import heatmap;print(heatmap(torch.eye(3), list('注意力')).svg())"
    )
    first, second = (
        subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout for _ in range(2)
    )
    assert first == second


def test_the_suffix_selects_the_format(tmp_path):
    figure = figures.heatmap(torch.eye(2))
    assert figure.save(tmp_path / "a.PNG").read_bytes()[:4] == b"\x89PNG"
    assert ElementTree.parse(figure.save(str(tmp_path / "a.svg"))).getroot().tag.endswith("}svg")
    assert figure._repr_png_() == figure.png()
    with pytest.raises(ValueError, match=r"invalid file name 'a\.pdf'"):
        figure.save(tmp_path / "a.pdf")
    with pytest.raises(OSError, match="no folder"):
        figure.save(tmp_path / "none" / "a.png")
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(OSError, match=r"cannot write the figure to .*folder\.png"):
        figure.save(tmp_path / "folder.png")


def test_labels_are_drawn_literally():
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        svg = figures.heatmap(torch.eye(8), row_labels=HOSTILE, title="$y_1$ <script>").svg()
    text = text_of(svg)
    for label in ("$x^2$", "\\frac", "a↵b", "<b>&amp;</b>", "\\x1b[2J\\x00", "-->", "\\ud800", "␣␣x␣"):
        assert label in text
    assert "$y_1$ <script>" in text
    assert "<script" not in svg


def test_text_in_svg_is_stored_as_shapes():
    assert text_of(figures.heatmap(torch.eye(2), ["a", "b"]).svg()) == []


def test_settings_of_matplotlib_do_not_change():
    before = dict(matplotlib.rcParams)
    figures.heatmap(torch.eye(2)).svg()
    assert dict(matplotlib.rcParams) == before


@pytest.fixture
def few_fonts(monkeypatch):
    """A system with the fonts of matplotlib only."""
    entries = matplotlib.font_manager.fontManager.ttflist
    known = [[entry for entry in entries if entry.name.startswith("DejaVu")]]
    monkeypatch.setattr(_labeling, "_iter_font_lists", lambda: iter(known))
    monkeypatch.setattr(_labeling, "_warned_fonts", set())
    _labeling._find_family.cache_clear()
    yield
    _labeling._find_family.cache_clear()


@pytest.mark.parametrize("style", ["dark_background", "ggplot"])
def test_styles_of_the_user_have_no_effect(style):
    def draw():
        x = torch.linspace(0, 5, 9)
        weights = torch.eye(9).where(torch.eye(9) > 0, float("nan"))
        return [
            figures.heatmap(weights, list("abcdefghi"), title="t", sure_links=[(0, 0)]).png(),
            figures.head_grid(torch.eye(9).expand(2, 2, 9, 9), title="t").png(),
            figures.regression_curve(x, x.sin(), x, x.cos(), torch.eye(9), title="t").png(),
            figures.memory_timeline(MemoryData(write_weights=torch.eye(3)), dark=True, title="t").png(),
        ]

    plain = draw()
    with matplotlib.style.context(style):
        assert draw() == plain


def has_chinese_font() -> bool:
    return _labeling._find_family("注", "chinese") is not None


@pytest.mark.skipif(not has_chinese_font(), reason="no font with Chinese characters")
def test_chinese_uses_a_font_that_covers_it():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = figures.heatmap(torch.eye(7), row_labels=CHINESE, column_labels=list("abcdefg"), title="注意")
        figure.png()
    axes = figure.figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == CHINESE
    families = axes.get_yticklabels()[0].get_fontfamily()
    assert any(_labeling.covers(family, CHINESE) for family in families)
    boxes = figures.heatmap(torch.eye(7), row_labels=["□"] * 7, column_labels=list("abcdefg"), title="注意")
    assert pixels(figure).shape != pixels(boxes).shape or (pixels(figure) != pixels(boxes)).any()


@pytest.mark.usefixtures("few_fonts")
def test_missing_fonts_give_one_warning_and_boxes():
    with pytest.warns(MissingGlyphsWarning, match="Install Noto Sans CJK") as caught:
        figure = figures.heatmap(
            torch.eye(3), row_labels=["注意", "力", "x"], column_labels=["就", "是", "y"], title="全"
        )
    assert len(caught) == 1
    assert [label.get_text() for label in figure.figure.axes[0].get_yticklabels()] == ["□□", "□", "x"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure.png()
        figures.heatmap(torch.eye(1), row_labels=["意"]).svg()


@pytest.mark.usefixtures("few_fonts")
@pytest.mark.parametrize(
    ("text", "font"), [("नमस्ते", "Noto Sans Devanagari"), ("👩", "Noto Emoji"), ("\U0010fffd", "a font that has")]
)
def test_the_warning_names_a_font_for_the_script(text, font):
    with pytest.warns(MissingGlyphsWarning, match=font):
        figures.heatmap(torch.eye(1), row_labels=[text])


@pytest.mark.usefixtures("few_fonts")
def test_invisible_characters_need_no_font():
    label = figures.heatmap(torch.eye(1), row_labels=["a\u2067b\ufe0f"]).figure.axes[0].get_yticklabels()[0]
    assert label.get_text().replace("\u2067", "").replace("\ufe0f", "") == "ab"


def test_right_to_left_text_with_older_matplotlib(monkeypatch):
    from regard.viewing.figures._labeling import _reorder_right_to_left

    monkeypatch.delattr("matplotlib.ft2font.__libraqm_version__", raising=False)
    assert _reorder_right_to_left("שלום") == "םולש"
    assert _reorder_right_to_left("שלום abc") == "שלום abc", "mixed text is not reordered"
    assert _reorder_right_to_left("e\u0301a") == "e\u0301a"


def test_matplotlib_is_imported_on_first_use():
    script = """
import sys
from regard.viewing import figures
assert "matplotlib" not in sys.modules
sys.modules["matplotlib"] = None  # as if it were not installed
import torch
try:
    figures.heatmap(torch.eye(2))
except ImportError as error:
    print(error)
"""
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == 'matplotlib is not installed; run: pip install "regard[draw]"'
