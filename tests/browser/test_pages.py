"""Interactive pages in a real browser: pointer and keyboard, desktop and phone."""

import pytest
import torch

from regard.attention import MultiHead, causal
from regard.viewing import pages
from regard.viewing.pages import NextToken, TokenizedSentence, TranslationPageData
from tests.browser.timing import measure_opening, measure_responses, model_weights
from tests.viewing.memory_data import copy_page, copy_with_memory
from tests.viewing.translation_data import HOSTILE, example_translation, hostile_translation

WORDS = ["the", "black", "cat", "sat", "down"]
SLOWDOWN = 4  # other processes may use the cores; benchmarks/browser.py measures on a quiet machine


def walkthrough() -> pages.HtmlPage:
    torch.manual_seed(0)
    return pages.attention_walkthrough(MultiHead(8, 2), torch.randn(5, 8), WORDS, causal())


def head_page(words=WORDS) -> pages.HtmlPage:
    torch.manual_seed(0)
    weights = (4 * torch.randn(3, 4, len(words), len(words))).softmax(-1)
    return pages.head_grid(weights, words, title="Three layers of four heads")


def word_weights(page) -> list[str]:
    return page.eval_on_selector_all(".lit", "words => words.map(word => word.title)")


def coverage(page) -> list[float]:
    widths = page.eval_on_selector_all(".cover .bar", "bars => bars.map(bar => bar.style.width)")
    return [float(width.rstrip("%")) for width in widths]


def test_a_translation_goes_step_by_step(page, play, shot):
    play(pages.translation_page(example_translation(), merge_tokens=False))
    assert page.inner_text("output") == "1 of 4"
    assert page.locator(".lit").all_inner_texts() == ["klein", "-e", "Katz", "-en", "</s>"]
    page.wait_for_selector(".ribbons path")
    # Three of four heads attend to the first two tokens; the mean over all four is 3/4 of that.
    assert word_weights(page) == ["0.56", "0.19", "0", "0.063", "0.19"]
    assert page.locator(".written.current").inner_text() == "small"
    assert page.locator(".candidates li").first.inner_text().split() == ["small", "0.70", "chosen"]
    page.keyboard.press("ArrowRight")
    assert page.inner_text("output") == "2 of 4"
    assert coverage(page) == pytest.approx([56.25, 18.75, 100, 6.25, 18.75], abs=0.1)
    page.keyboard.press("End")
    assert page.inner_text("output") == "4 of 4"
    assert page.locator(".future").count() == 0
    page.keyboard.press("Home")
    page.keyboard.press("ArrowLeft")
    assert page.inner_text("output") == "1 of 4"
    assert page.inner_text(".faithfulness") == "Half of it depends on the weights."
    page.fill("input[type=range]", "3")
    assert page.evaluate("location.hash") == "#step=3"
    shot("third")


def test_the_address_selects_step_layer_and_head(page, play):
    play(pages.translation_page(example_translation()), "#step=2&layer=1&head=1&view=tokens&tree=0")
    assert page.inner_text("output") == "2 of 4"
    assert page.locator("select").evaluate_all("all => all.map(one => one.value)") == ["1", "1"]
    page.wait_for_selector(".ribbons path")
    assert word_weights(page) == ["0", "0", "1.00", "0", "0"], "the head that differs"
    assert not page.locator(".area-tree").is_visible()
    page.evaluate("location.hash = 'step=4'")
    page.wait_for_selector("output:text('4 of 4')")
    play(pages.translation_page(example_translation()), "#step=99&layer=7&head=x")
    assert page.inner_text("output") == "1 of 4", "invalid values are ignored"


def test_words_and_tokens_layers_and_heads(page, play):
    play(pages.translation_page(example_translation()), "#step=3")
    page.wait_for_selector(".ribbons path")
    assert page.locator(".lit").all_inner_texts() == ["kleine", "Katzen", "</s>"]
    assert page.locator(".written").all_inner_texts() == ["small", "cats", "</s>"]
    page.keyboard.press("w")
    assert page.locator(".lit").count() == 5
    page.get_by_role("button", name="Show words").click()
    assert page.locator(".lit").count() == 3
    page.get_by_label("layer").select_option("0")
    page.wait_for_function("() => location.hash.includes('layer=0')")
    page.wait_for_selector(".lit[title='0.50']")
    assert word_weights(page) == ["0", "0.50", "0.50"]
    page.locator("body").press("h")
    assert "head=0" in page.evaluate("location.hash")
    page.locator("body").press("l")
    assert "layer=1" in page.evaluate("location.hash")


def test_playing_and_pausing(page, play):
    play(pages.translation_page(example_translation()))
    page.locator("body").press("Space")
    assert page.get_by_role("button", name="pause").is_visible()
    page.wait_for_selector("output:text('2 of 4')")
    page.locator("body").press("Space")
    assert page.get_by_role("button", name="play", exact=True).is_visible()
    page.get_by_role("button", name="last step").click()
    assert page.get_by_role("button", name="next step").is_disabled()
    page.get_by_role("button", name="play", exact=True).click()
    assert page.inner_text("output") == "1 of 4", "playback restarts at the end"


def test_the_beam_is_a_tree(page, play):
    play(pages.translation_page(example_translation()), "#step=3")
    tree = page.locator(".area-tree")
    assert tree.locator(".node:not(.future)").count() == 7
    assert tree.locator(".best:not(.future)").count() == 3
    tree.locator(".tree-box").focus()
    page.keyboard.press("ArrowDown")
    assert tree.locator(".heat-status").inner_text().replace("\u2068", "").replace("\u2069", "") == (
        "small cats: probability 0.80, score −0.70, part of the best hypothesis"
    )
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowLeft")
    assert "little cat" in tree.locator(".heat-status").inner_text()
    page.keyboard.press("Escape")
    page.keyboard.press("End")
    assert tree.locator(".pruned:not(.future)").count() == 0
    page.locator("body").press("t")
    assert not tree.is_visible()


def test_the_alignment_map(page, play):
    play(pages.translation_page(example_translation(), merge_tokens=False), "#step=2")
    page.wait_for_selector(".ribbons path")
    box = page.locator(".heat-box")
    box.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    status = page.locator(".heat-status").first.inner_text().replace("\u2068", "").replace("\u2069", "")
    assert status == "cat attends to Katz: 1.00"
    assert page.inner_text("output") == "2 of 4", "arrow keys in the map do not change the step"
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    assert page.inner_text("output") == "1 of 4", "pinning a row selects its step"


def reload_until(page, title):
    """Reload until a page has a title: the browser stores in the background, and may not be done at the first time."""
    for _ in range(20):
        page.reload()
        if page.inner_text("h2 >> nth=0") == title:
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"{title} is not the title after 20 reloads")


def test_the_language_is_changed_and_stored(page, play):
    play(pages.translation_page(example_translation()))
    assert page.evaluate("localStorage.length") == 0, "nothing was chosen yet"
    page.get_by_role("button", name="中文").click()
    assert page.inner_text("h2 >> nth=0") == "当前词的注意力权重"
    assert page.inner_text(".faithfulness") == "一半取决于权重。"
    assert page.evaluate("document.documentElement.lang") == "zh-Hans"
    reload_until(page, "当前词的注意力权重")
    play(pages.translation_page(example_translation()), "?lang=en")
    assert page.inner_text("h2 >> nth=0") == "Attention weights of this word"
    page.evaluate("localStorage.clear()")
    play(pages.translation_page(example_translation(), language="zh"))
    assert page.inner_text("h2 >> nth=0") == "当前词的注意力权重"


def test_a_model_without_attention(page, play, shot):
    play(pages.translation_page(example_translation(has_attention=False)), "#step=2")
    assert "no attention" in page.inner_text(".area-stage .note")
    assert page.locator(".heat-box").count() == 0
    assert page.locator(".ribbons path").count() == 0
    assert page.locator(".node:not(.future)").count() == 4
    shot("blind")


@pytest.mark.parametrize("width", [1280, 360])
def test_text_is_never_markup(page, play, shot, width):
    page.set_viewport_size({"width": width, "height": 800})
    page.on("dialog", lambda dialog: pytest.fail(f"the page opened a dialog: {dialog.message}"))
    html_pages = {
        "translation": pages.translation_page(hostile_translation()),
        "walkthrough": pages.attention_walkthrough(MultiHead(8, 2), torch.randn(5, 8), HOSTILE),
        "memory": pages.memory_page(copy_with_memory(torch.eye(4)), title=HOSTILE[0]),
        "heads": head_page(list(HOSTILE)),
    }
    for name, html_page in html_pages.items():
        play(html_page, "#step=2&row=1&column=1")
        page.wait_for_timeout(100)
        assert page.locator("img, script[src], main script").count() == 0, name
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        shot(name)
    play(html_pages["translation"], "#step=2")
    assert page.locator(".lit").nth(1).inner_text() == HOSTILE[1]
    assert page.locator(".lit").nth(4).evaluate("word => getComputedStyle(word).direction") == "rtl"


def test_five_hundred_words(page, play):
    words = [f"word{i}" for i in range(500)]
    options = [[NextToken(word, 1.0, True)] for word in words]
    side = TokenizedSentence(" ".join(words), words, end=False)
    weights = torch.eye(500)[None, None]
    page.set_viewport_size({"width": 360, "height": 800})
    play(pages.translation_page(TranslationPageData(side, side, options, -1.0, weights)), "#step=400")
    page.wait_for_selector(".ribbons path")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.locator(".written.current").inner_text() == "word399"


def test_a_walkthrough_explains_cells(page, play, shot):
    play(walkthrough(), "#step=3")
    grids = page.locator(".grid")
    assert grids.count() == 3
    grids.nth(2).focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    how = page.inner_text(".how").replace("\u2068", "").replace("\u2069", "").replace("−", "-")
    name, sum_, total = how.split(" = ")
    assert name == "q · k[black, black]"
    products = [eval_product(term) for term in sum_.split(" + ")]
    assert len(products) == 4
    assert sum(products) == pytest.approx(float(total), abs=0.05)
    shot("dots")
    assert page.inner_text("output") == "3 of 8", "arrow keys in a matrix do not change the step"
    page.locator("body").press("End")
    assert page.inner_text(".walkthrough-heading") == "Concatenated heads"
    play(walkthrough(), "#step=4")
    assert page.inner_text(".walkthrough-heading") == "Scaled by 1/√4"
    play(walkthrough(), "#step=6&head=1")
    assert page.locator("select").input_value() == "1"
    page.locator(".grid").nth(1).focus()
    page.keyboard.press("ArrowDown")
    assert page.inner_text(".how").endswith("= 1.00"), "the first token attends to itself"
    shot("weights")


def eval_product(term: str) -> float:
    left, right = term.split(" × ")
    return float(left.strip("()")) * float(right.strip("()"))


def test_a_pointer_in_a_matrix_explains_a_cell(page, play):
    play(walkthrough(), "#step=7")
    box = page.locator(".grid").nth(2).bounding_box()
    page.mouse.move(box["x"] + box["width"] - 10, box["y"] + box["height"] - 10)
    assert page.inner_text(".how").startswith("context[")
    page.mouse.move(2, 2)
    assert page.inner_text(".how").startswith("Point at a cell")


def test_heads_are_selected_by_pointer_and_keys(page, play, shot):
    play(head_page(), "#layer=1&head=2&row=3&column=0")
    page.wait_for_selector("html[data-shown='1 2']", state="attached")
    assert page.inner_text(".heads-map h2") == "Layer 1, head 2"
    assert page.inner_text(".heads-most h2").replace("\u2068", "").replace("\u2069", "") == "Largest weights of sat"
    shot("chosen")
    page.get_by_role("button", name="Layer 2, head 3").click()
    page.wait_for_selector("html[data-shown='2 3']", state="attached")
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector("html[data-shown='2 2']", state="attached")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Layer 2, head 2"
    assert page.evaluate("location.hash") == "#layer=2&head=2&row=3&column=0"
    assert page.locator(".candidates li").count() == 5


def test_512_tokens_open_and_respond_quickly(page, tmp_path, shot):
    torch.manual_seed(0)
    tokens = [f"token{i}" for i in range(512)]
    pages.head_grid(model_weights(512), tokens, title="8 x 8 heads of 512 tokens").save(tmp_path / "large.html")
    opening, hovering = measure_opening(page, (tmp_path / "large.html").as_uri()), measure_responses(page)
    shot("large")
    assert opening < SLOWDOWN * 2000
    assert sorted(hovering)[len(hovering) // 2] < SLOWDOWN * 100
    assert page.locator("*").count() < 500, "cells are not elements"


PAGES = {
    "translation": lambda: pages.translation_page(example_translation()),
    "walkthrough": walkthrough,
    "memory": copy_page,
    "heads": head_page,
}


@pytest.mark.parametrize("name", PAGES)
def test_every_page_on_desktop_and_phone_in_light_and_dark(page, play, shot, name):
    for width in (1280, 360):
        for scheme in ("light", "dark"):
            page.set_viewport_size({"width": width, "height": 800})
            page.emulate_media(color_scheme=scheme)
            play(PAGES[name](), "#step=3&row=2&column=1")
            page.wait_for_timeout(150)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            shot(f"{width}-{scheme}")


@pytest.mark.parametrize("name", PAGES)
def test_all_controls_are_reached_by_tab_with_visible_focus(page, play, name):
    play(PAGES[name](), "#step=3")
    count = page.eval_on_selector_all(
        "button:not([disabled]):not([tabindex='-1']), select, input, [tabindex='0']:not(button)",
        "all => all.filter((one) => one.offsetParent).length",
    )
    reached, tops = set(), []
    for _ in range(count):
        page.keyboard.press("Tab")
        place = page.evaluate(
            """() => { const at = document.activeElement, box = at.getBoundingClientRect();
                return [[...document.querySelectorAll('*')].indexOf(at), box.top + scrollY,
                        getComputedStyle(at).outlineStyle, at.ariaLabel || at.innerText || at.labels?.length]; }"""
        )
        reached.add(place[0])
        tops.append(place[1])
        assert place[2] != "none", "focus must be visible"
        assert place[3], "a control must have a name"
    assert len(reached) == count
    assert tops[0] < 100, "the tab order begins at the top"


def test_a_page_in_a_notebook_is_a_frame(page, tmp_path):
    frame = pages.translation_page(example_translation())._repr_html_()
    (tmp_path / "book.html").write_text(f"<!doctype html><title>book</title>{frame}", encoding="utf-8")
    page.goto((tmp_path / "book.html").as_uri())
    inside = page.frame_locator("iframe")
    inside.get_by_role("button", name="next step").click()
    assert inside.locator("output").inner_text() == "2 of 4"
    assert page.evaluate("location.hash") == "", "the address of the notebook does not change"


def test_reduced_motion(page, play):
    page.emulate_media(reduced_motion="reduce")
    play(pages.translation_page(example_translation()))
    assert page.locator(".lit").first.evaluate("word => getComputedStyle(word).transitionDuration") in ("0s", "")
