"""The players in a real browser: what is seen, by pointer and by keyboard, on a desk and on a telephone."""

import pytest
import torch

from regard.attention import MultiHead, causal
from regard.viewing import pages as players
from regard.viewing.pages import NextToken, TokenizedText, TranslationPageData
from tests.browser.timing import answered, looks, opened
from tests.viewing.plays import HOSTILE, hostile, translated
from tests.viewing.tapes import copied, copying

WORDS = ["the", "black", "cat", "sat", "down"]
BUSY = 4  # other processes may have the cores; the numbers for a quiet machine are those of benchmarks/browser.py


def walk() -> players.HtmlPage:
    torch.manual_seed(0)
    return players.attention_walkthrough(MultiHead(8, 2), torch.randn(5, 8), WORDS, causal())


def several(words=WORDS) -> players.HtmlPage:
    torch.manual_seed(0)
    weights = (4 * torch.randn(3, 4, len(words), len(words))).softmax(-1)
    return players.head_grid(weights, words, title="Three layers of four heads")


def lit(page) -> list[str]:
    return page.eval_on_selector_all(".lit", "words => words.map(word => word.title)")


def covered(page) -> list[float]:
    widths = page.eval_on_selector_all(".cover .bar", "bars => bars.map(bar => bar.style.width)")
    return [float(width.rstrip("%")) for width in widths]


def test_a_translation_goes_step_by_step(page, play, shot):
    play(players.translation_page(translated(), merge_tokens=False))
    assert page.inner_text("output") == "1 of 4"
    assert page.locator(".lit").all_inner_texts() == ["klein", "-e", "Katz", "-en", "</s>"]
    page.wait_for_selector(".ribbons path")
    # Three of four heads look at the first two tokens; the mean over all four is 3/4 of that.
    assert lit(page) == ["0.56", "0.19", "0", "0.063", "0.19"]
    assert page.locator(".written.current").inner_text() == "small"
    assert page.locator(".candidates li").first.inner_text().split() == ["small", "0.70", "written"]
    page.keyboard.press("ArrowRight")
    assert page.inner_text("output") == "2 of 4"
    assert covered(page) == pytest.approx([56.25, 18.75, 100, 6.25, 18.75], abs=0.1)
    page.keyboard.press("End")
    assert page.inner_text("output") == "4 of 4"
    assert page.locator(".future").count() == 0
    page.keyboard.press("Home")
    page.keyboard.press("ArrowLeft")
    assert page.inner_text("output") == "1 of 4"
    assert page.inner_text(".faith") == "Half of it depends on the weights."
    page.fill("input[type=range]", "3")
    assert page.evaluate("location.hash") == "#step=3"
    shot("third")


def test_a_place_can_be_linked_to(page, play):
    play(players.translation_page(translated()), "#step=2&layer=1&head=1&view=tokens&tree=0")
    assert page.inner_text("output") == "2 of 4"
    assert page.locator("select").evaluate_all("all => all.map(one => one.value)") == ["1", "1"]
    page.wait_for_selector(".ribbons path")
    assert lit(page) == ["0", "0", "1.00", "0", "0"], "the head that looks elsewhere"
    assert not page.locator(".area-tree").is_visible()
    page.evaluate("location.hash = 'step=4'")
    page.wait_for_selector("output:text('4 of 4')")
    play(players.translation_page(translated()), "#step=99&layer=7&head=x")
    assert page.inner_text("output") == "1 of 4", "what is not there is as if it were not said"


def test_words_and_tokens_layers_and_heads(page, play):
    play(players.translation_page(translated()), "#step=3")
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
    assert lit(page) == ["0", "0.50", "0.50"]
    page.locator("body").press("h")
    assert "head=0" in page.evaluate("location.hash")
    page.locator("body").press("l")
    assert "layer=1" in page.evaluate("location.hash")


def test_playing_and_pausing(page, play):
    play(players.translation_page(translated()))
    page.locator("body").press("Space")
    assert page.get_by_role("button", name="pause").is_visible()
    page.wait_for_selector("output:text('2 of 4')")
    page.locator("body").press("Space")
    assert page.get_by_role("button", name="play", exact=True).is_visible()
    page.get_by_role("button", name="last step").click()
    assert page.get_by_role("button", name="one step on").is_disabled()
    page.get_by_role("button", name="play", exact=True).click()
    assert page.inner_text("output") == "1 of 4", "at the end it begins again"


def test_the_beam_is_a_tree(page, play):
    play(players.translation_page(translated()), "#step=3")
    tree = page.locator(".area-tree")
    assert tree.locator(".node:not(.future)").count() == 7
    assert tree.locator(".won:not(.future)").count() == 3
    tree.locator(".tree-box").focus()
    page.keyboard.press("ArrowDown")
    assert tree.locator(".heat-says").inner_text().replace("\u2068", "").replace("\u2069", "") == (
        "small cats: probability 0.80, score −0.70, part of the translation that won"
    )
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowLeft")
    assert "little cat" in tree.locator(".heat-says").inner_text()
    page.keyboard.press("Escape")
    page.keyboard.press("End")
    assert tree.locator(".dropped:not(.future)").count() == 0
    page.locator("body").press("t")
    assert not tree.is_visible()


def test_the_map_fills_in_and_answers(page, play):
    play(players.translation_page(translated(), merge_tokens=False), "#step=2")
    page.wait_for_selector(".ribbons path")
    box = page.locator(".heat-box")
    box.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    says = page.locator(".heat-says").first.inner_text().replace("\u2068", "").replace("\u2069", "")
    assert says == "cat looks at Katz: 1.00"
    assert page.inner_text("output") == "2 of 4", "arrows in the map are the map's"
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    assert page.inner_text("output") == "1 of 4", "a pinned row is its step"


def test_the_language_changes_and_stays(page, play):
    play(players.translation_page(translated()))
    page.get_by_role("button", name="中文").click()
    assert page.inner_text("h2 >> nth=0") == "这个词在看哪里"
    assert page.inner_text(".faith") == "一半取决于权重。"
    assert page.evaluate("document.documentElement.lang") == "zh-Hans"
    page.reload()
    assert page.inner_text("h2 >> nth=0") == "这个词在看哪里"
    play(players.translation_page(translated()), "?lang=en")
    assert page.inner_text("h2 >> nth=0") == "Where this word looks"
    page.evaluate("localStorage.clear()")
    play(players.translation_page(translated(), language="zh"))
    assert page.inner_text("h2 >> nth=0") == "这个词在看哪里"


def test_a_model_without_attention_is_still_played(page, play, shot):
    play(players.translation_page(translated(weights=False)), "#step=2")
    assert "no attention" in page.inner_text(".area-stage .note")
    assert page.locator(".heat-box").count() == 0
    assert page.locator(".ribbons path").count() == 0
    assert page.locator(".node:not(.future)").count() == 4
    shot("blind")


@pytest.mark.parametrize("width", [1280, 360])
def test_no_text_is_ever_more_than_text(page, play, shot, width):
    page.set_viewport_size({"width": width, "height": 800})
    page.on("dialog", lambda dialog: pytest.fail(f"the page said {dialog.message}"))
    made = {
        "translation": players.translation_page(hostile()),
        "walk": players.attention_walkthrough(MultiHead(8, 2), torch.randn(5, 8), HOSTILE),
        "tape": players.memory_page(copying(torch.eye(4)), title=HOSTILE[0]),
        "heads": several(list(HOSTILE)),
    }
    for name, player in made.items():
        play(player, "#step=2&row=1&column=1")
        page.wait_for_timeout(100)
        assert page.locator("img, script[src], main script").count() == 0, name
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        shot(name)
    play(made["translation"], "#step=2")
    assert page.locator(".lit").nth(1).inner_text() == HOSTILE[1]
    assert page.locator(".lit").nth(4).evaluate("word => getComputedStyle(word).direction") == "rtl"


def test_five_hundred_words_are_shown(page, play):
    words = [f"word{i}" for i in range(500)]
    options = [[NextToken(word, 1.0, True)] for word in words]
    side = TokenizedText(" ".join(words), words, end=False)
    weights = torch.eye(500)[None, None]
    page.set_viewport_size({"width": 360, "height": 800})
    play(players.translation_page(TranslationPageData(side, side, options, -1.0, weights)), "#step=400")
    page.wait_for_selector(".ribbons path")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.locator(".written.current").inner_text() == "word399"


def test_a_walk_tells_how_a_cell_came_about(page, play, shot):
    play(walk(), "#step=3")
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
    assert page.inner_text("output") == "3 of 8", "arrows in a matrix are the matrix's"
    page.locator("body").press("End")
    assert page.inner_text(".walk-heading") == "The heads together"
    play(walk(), "#step=6&head=1")
    assert page.locator("select").input_value() == "1"
    page.locator(".grid").nth(1).focus()
    page.keyboard.press("ArrowDown")
    assert page.inner_text(".how").endswith("= 1.00"), "the first word sees only itself"
    shot("weights")


def eval_product(term: str) -> float:
    left, right = term.split(" × ")
    return float(left.strip("()")) * float(right.strip("()"))


def test_a_pointer_in_a_matrix_marks_where_it_came_from(page, play):
    play(walk(), "#step=7")
    box = page.locator(".grid").nth(2).bounding_box()
    page.mouse.move(box["x"] + box["width"] - 10, box["y"] + box["height"] - 10)
    assert page.inner_text(".how").startswith("context[")
    page.mouse.move(2, 2)
    assert page.inner_text(".how").startswith("Point at a cell")


def test_heads_are_chosen_by_pointer_and_keys(page, play, shot):
    play(several(), "#layer=1&head=2&row=3&column=0")
    page.wait_for_selector("html[data-shown='1 2']", state="attached")
    assert page.inner_text(".heads-map h2") == "Layer 1, head 2"
    assert (
        page.inner_text(".heads-most h2").replace("\u2068", "").replace("\u2069", "") == "sat looks most at"
    )
    shot("chosen")
    page.get_by_role("button", name="Layer 2, head 3").click()
    page.wait_for_selector("html[data-shown='2 3']", state="attached")
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector("html[data-shown='2 2']", state="attached")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Layer 2, head 2"
    assert page.evaluate("location.hash") == "#layer=2&head=2&row=3&column=0"
    assert page.locator(".candidates li").count() == 5


def test_512_tokens_open_and_answer_at_once(page, tmp_path, shot):
    torch.manual_seed(0)
    tokens = [f"token{i}" for i in range(512)]
    players.head_grid(looks(512), tokens, title="8 x 8 heads of 512 tokens").save(tmp_path / "large.html")
    opening, hovering = opened(page, (tmp_path / "large.html").as_uri()), answered(page)
    shot("large")
    assert opening < BUSY * 2000
    assert sorted(hovering)[len(hovering) // 2] < BUSY * 100
    assert page.locator("*").count() < 500, "a cell is no element"


MADE = {
    "translation": lambda: players.translation_page(translated()),
    "walk": walk,
    "tape": copied,
    "heads": several,
}


@pytest.mark.parametrize("name", MADE)
def test_every_player_on_desk_and_telephone_in_light_and_dark(page, play, shot, name):
    for width in (1280, 360):
        for scheme in ("light", "dark"):
            page.set_viewport_size({"width": width, "height": 800})
            page.emulate_media(color_scheme=scheme)
            play(MADE[name](), "#step=3&row=2&column=1")
            page.wait_for_timeout(150)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            shot(f"{width}-{scheme}")


@pytest.mark.parametrize("name", MADE)
def test_everything_can_be_reached_with_tab_and_is_seen_there(page, play, name):
    play(MADE[name](), "#step=3")
    wanted = page.eval_on_selector_all(
        "button:not([disabled]):not([tabindex='-1']), select, input, [tabindex='0']:not(button)",
        "all => all.filter((one) => one.offsetParent).length",
    )
    reached, tops = set(), []
    for _ in range(wanted):
        page.keyboard.press("Tab")
        place = page.evaluate(
            """() => { const at = document.activeElement, box = at.getBoundingClientRect();
                return [[...document.querySelectorAll('*')].indexOf(at), box.top + scrollY,
                        getComputedStyle(at).outlineStyle, at.ariaLabel || at.innerText || at.labels?.length]; }"""
        )
        reached.add(place[0])
        tops.append(place[1])
        assert place[2] != "none", "focus must be seen"
        assert place[3], "what has focus must have a name"
    assert len(reached) == wanted
    assert tops[0] < 100, "the order begins at the top"


def test_a_player_in_a_notebook_is_a_frame_of_its_own(page, tmp_path):
    frame = players.translation_page(translated())._repr_html_()
    (tmp_path / "book.html").write_text(f"<!doctype html><title>book</title>{frame}", encoding="utf-8")
    page.goto((tmp_path / "book.html").as_uri())
    inside = page.frame_locator("iframe")
    inside.get_by_role("button", name="one step on").click()
    assert inside.locator("output").inner_text() == "2 of 4"
    assert page.evaluate("location.hash") == "", "and the notebook's address is its own"


def test_no_motion_where_none_is_wanted(page, play):
    page.emulate_media(reduced_motion="reduce")
    play(players.translation_page(translated()))
    assert page.locator(".lit").first.evaluate("word => getComputedStyle(word).transitionDuration") in (
        "0s",
        "",
    )
