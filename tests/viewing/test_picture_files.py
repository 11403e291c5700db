"""What leaves the program: files, text in them, and the fonts it is drawn with."""

import subprocess
import sys
import warnings
from xml.etree import ElementTree

import matplotlib
import matplotlib.style
import pytest
import torch

from regard.viewing import figures as pictures
from regard.viewing.figures import MissingGlyphsWarning
from regard.viewing.figures import labels as _fonts
from tests.viewing.pixels import pixels

CHINESE = list("注意力就是全部")
HOSTILE = ["$x^2$", "\\frac", "a\nb", "<b>&amp;</b>", "\x1b[2J\x00", "-->", "\ud800", "  x "]


def text_of(svg: str) -> list[str]:
    return [element.text for element in ElementTree.fromstring(svg).iter() if element.tag.endswith("}text")]


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_the_same_input_gives_the_same_bytes(kind):
    def draw():
        return getattr(pictures.heatmap(torch.eye(3), CHINESE[:3], ["$a", "b", "c"], title="t"), kind)()

    assert draw() == draw()


@pytest.mark.slow
def test_the_same_bytes_in_another_process():
    script = "import torch; from regard.viewing.figures import heat; print(heat(torch.eye(3), list('注意力')).svg())"
    one, other = (
        subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout
        for _ in range(2)
    )
    assert one == other


def test_saved_by_ending(tmp_path):
    picture = pictures.heatmap(torch.eye(2))
    assert picture.save(tmp_path / "a.PNG").read_bytes()[:4] == b"\x89PNG"
    assert ElementTree.parse(picture.save(str(tmp_path / "a.svg"))).getroot().tag.endswith("}svg")
    assert picture._repr_png_() == picture.png()
    with pytest.raises(ValueError, match=r"as \.png or \.svg, not as 'a\.pdf'"):
        picture.save(tmp_path / "a.pdf")
    with pytest.raises(OSError, match="there is no folder"):
        picture.save(tmp_path / "none" / "a.png")
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(OSError, match=r"cannot be written to .*folder\.png"):
        picture.save(tmp_path / "folder.png")


def test_labels_are_drawn_literally():
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        svg = pictures.heatmap(torch.eye(8), row_labels=HOSTILE, title="$y_1$ <script>").svg()
    written = text_of(svg)
    for label in ("$x^2$", "\\frac", "a↵b", "<b>&amp;</b>", "\\x1b[2J\\x00", "-->", "\\ud800", "␣␣x␣"):
        assert label in written
    assert "$y_1$ <script>" in written
    assert "<script" not in svg


def test_letters_in_svg_are_shapes_unless_asked_otherwise():
    assert text_of(pictures.heatmap(torch.eye(2), ["a", "b"]).svg()) == []


def test_settings_of_matplotlib_stay_as_they_were():
    before = dict(matplotlib.rcParams)
    pictures.heatmap(torch.eye(2)).svg()
    assert dict(matplotlib.rcParams) == before


@pytest.fixture
def poor(monkeypatch):
    """A system without any font but matplotlib's own."""
    entries = matplotlib.font_manager.fontManager.ttflist
    known = [[entry for entry in entries if entry.name.startswith("DejaVu")]]
    monkeypatch.setattr(_fonts, "_sources", lambda: iter(known))
    monkeypatch.setattr(_fonts, "_said", set())
    _fonts._find_family.cache_clear()
    yield
    _fonts._find_family.cache_clear()


@pytest.mark.parametrize("style", ["dark_background", "ggplot"])
def test_the_style_of_the_user_spoils_nothing(style):
    def draw():
        x = torch.linspace(0, 5, 9)
        weights = torch.eye(9).where(torch.eye(9) > 0, float("nan"))
        return [
            pictures.heatmap(weights, list("abcdefghi"), title="t", sure_links=[(0, 0)]).png(),
            pictures.head_grid(torch.eye(9).expand(2, 2, 9, 9), title="t").png(),
            pictures.regression_curve(x, x.sin(), x, x.cos(), torch.eye(9), title="t").png(),
            pictures.memory_timeline(writes=torch.eye(3), dark=True, title="t").png(),
        ]

    plain = draw()
    with matplotlib.style.context(style):
        assert draw() == plain


def has_chinese_font() -> bool:
    return _fonts._find_family("注", "chinese") is not None


@pytest.mark.skipif(not has_chinese_font(), reason="no font with Chinese characters here")
def test_chinese_is_drawn_with_a_font_that_has_it():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        picture = pictures.heatmap(torch.eye(7), rows=CHINESE, columns=list("abcdefg"), title="注意")
        picture.png()
    axes = picture.figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == CHINESE
    families = axes.get_yticklabels()[0].get_fontfamily()
    assert any(_fonts.covers(family, CHINESE) for family in families)
    boxes = pictures.heatmap(torch.eye(7), rows=["□"] * 7, columns=list("abcdefg"), title="注意")
    assert pixels(picture).shape != pixels(boxes).shape or (pixels(picture) != pixels(boxes)).any()


@pytest.mark.usefixtures("poor")
def test_without_a_font_there_is_one_hint_and_a_box():
    with pytest.warns(MissingGlyphsWarning, match="Install Noto Sans CJK") as said:
        picture = pictures.heatmap(
            torch.eye(3), rows=["注意", "力", "x"], columns=["就", "是", "y"], title="全"
        )
    assert len(said) == 1
    assert [label.get_text() for label in picture.figure.axes[0].get_yticklabels()] == ["□□", "□", "x"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        picture.png()
        pictures.heatmap(torch.eye(1), rows=["意"]).svg()


@pytest.mark.usefixtures("poor")
@pytest.mark.parametrize(
    ("text", "font"),
    [("नमस्ते", "Noto Sans Devanagari"), ("👩", "Noto Emoji"), ("\U0010fffd", "a font that has")],
)
def test_the_hint_names_a_font_for_the_script(text, font):
    with pytest.warns(MissingGlyphsWarning, match=font):
        pictures.heatmap(torch.eye(1), row_labels=[text])


@pytest.mark.usefixtures("poor")
def test_what_cannot_be_seen_needs_no_font():
    label = pictures.heatmap(torch.eye(1), row_labels=["a\u2067b\ufe0f"]).figure.axes[0].get_yticklabels()[0]
    assert label.get_text().replace("\u2067", "").replace("\ufe0f", "") == "ab"


def test_right_to_left_where_matplotlib_does_not_know_how(monkeypatch):
    from regard.viewing.figures.labels import _reorder_right_to_left

    monkeypatch.delattr("matplotlib.ft2font.__libraqm_version__", raising=False)
    assert _reorder_right_to_left("שלום") == "םולש"
    assert _reorder_right_to_left("שלום abc") == "שלום abc", "mixed text stays as it is stored"
    assert _reorder_right_to_left("e\u0301a") == "e\u0301a"


def test_matplotlib_is_imported_when_the_first_picture_is_drawn():
    script = """
import sys
from regard.viewing import pictures
assert "matplotlib" not in sys.modules
sys.modules["matplotlib"] = None  # as if it were not installed
import torch
try:
    pictures.heat(torch.eye(2))
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == 'matplotlib is not installed; run: pip install "regard[draw]"'
