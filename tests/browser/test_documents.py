"""The document page in a real browser: shades, bars, keys, both languages, desktop and phone."""

import pytest

from regard.viewing import pages

WORDS = [["A", "superb", "film", "."], ["We", "saw", "it", "."], ["好", "的", "。"]]
WEIGHTS = [[0.05, 0.8, 0.1, 0.05], [0.25, 0.25, 0.25, 0.25], [0.5, 0.3, 0.2]]
SPACES = [[False, True, True, False], [True, True, True, False], [True, False, False]]


@pytest.fixture
def open_(page, tmp_path):
    def opened(html_page, query=""):
        html_page.save(tmp_path / "document.html")
        page.goto(f"{(tmp_path / 'document.html').as_uri()}{query}")
        page.wait_for_selector(".document-word")

    return opened


def example_page(**options):
    arguments = {"probabilities": {"pos": 0.9, "neg": 0.1}, "space_before": SPACES, "title": "imdb: pos", **options}
    return pages.document_page(WORDS, WEIGHTS, [0.7, 0.2, 0.1], **arguments)


def colors(page):
    return page.eval_on_selector_all(".document-word", "words => words.map(w => w.style.backgroundColor)")


def test_words_are_shaded_by_their_share(page, open_, shot):
    open_(example_page(), "?lang=en")
    assert page.inner_text("h1") == "imdb: pos"
    assert page.locator(".document-sentence p").all_inner_texts() == ["A superb film.", "We saw it.", "好的。"]
    by_share = colors(page)
    assert len(set(by_share)) > 3
    assert by_share[4] == by_share[5]
    widths = page.eval_on_selector_all(".document-bar .bar", "bars => bars.map(bar => bar.style.width)")
    assert widths[0] == "100%"
    assert page.locator(".document-most li").first.inner_text().startswith("superb")
    page.get_by_role("button", name="weight in its sentence").click()
    assert colors(page) != by_share
    shot("desk")


def test_by_keyboard(page, open_):
    open_(example_page(), "?lang=en")
    page.locator(".document-word[tabindex='0']").focus()
    assert "superb" in page.inner_text(".document-status")
    assert "= 0.56 of the document" in page.inner_text(".document-status")
    page.keyboard.press("ArrowRight")
    assert "film" in page.inner_text(".document-status")
    page.keyboard.press("ArrowDown")
    assert "it" in page.inner_text(".document-status")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert "。" in page.inner_text(".document-status")


def test_chinese_on_a_phone(page, open_, shot):
    page.set_viewport_size({"width": 360, "height": 740})
    open_(example_page(truncation={"long": 1, "words": 0, "sentences": 12}, language="zh"))
    assert "略去了 12 个句子" in page.inner_text(".document-text")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.get_by_role("button", name="English").click()
    assert "12 sentences left out" in page.inner_text(".document-text")
    shot("telephone")


def test_a_model_without_weights(page, open_):
    page_without_weights = pages.document_page(
        WORDS, None, None, probabilities={"pos": 0.9, "neg": 0.1}, space_before=SPACES
    )
    open_(page_without_weights, "?lang=en")
    assert "no weights to show" in page.inner_text(".document-status")
    assert page.locator(".document-bar").count() == 0


def test_text_is_never_markup(page, open_):
    hostile = [["<img", "src=x", "onerror=alert(1)>", "</script>", "\u202eevil", ""]]
    open_(pages.document_page(hostile, [[0.2] * 5 + [0.0]], [1.0], probabilities={"<b>": 1.0}), "?lang=en")
    assert page.locator("img, b").count() == 0
    assert "onerror" in page.inner_text(".document-sentences")


@pytest.mark.parametrize(
    ("words", "weights", "sentences"),
    [([], [], []), ([["a"], []], [[1.0], []], [0.5, 0.5]), ([["a"]], [[0.5, 0.5]], [1.0]), ([["a"]], [[1.0]], [])],
)
def test_invalid_arguments_are_rejected(words, weights, sentences):
    with pytest.raises(ValueError, match="document"):
        pages.document_page(words, weights, sentences, probabilities={"x": 1.0})
    with pytest.raises(ValueError, match="for language"):
        example_page(language="fr")
