"""The explorer in a real browser, before a real `regard serve`."""

import re

import httpx
import pytest

from tests.serving.servers import in_thread, tiny_translator

WIDE, NARROW = {"width": 1280, "height": 800}, {"width": 360, "height": 740}
LIT = "el => getComputedStyle(el).backgroundColor"


def translated(page, address, text="lower hello", more="", query=""):
    """The page with a sentence, its translations, and the look at the best of them."""
    page.goto(f"{address}{query}#translate?text={text}{more}")
    drawn(page)


def drawn(page):
    page.wait_for_selector(".whole-look:not(.stale) .heat-box")
    page.wait_for_selector(".measures dd")
    page.wait_for_selector(".news:empty", state="attached")


def sideways(page):
    """How far the page is wider than its window."""
    return page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


def test_a_sentence_is_translated_and_looked_at(page, address, shot):
    page.goto(address)
    page.get_by_label("A sentence").fill("lower  hello")
    page.wait_for_selector("text=of 40 tokens")
    page.keyboard.press("Enter")
    drawn(page)
    told = httpx.post(f"{address}v1/translate", json={"texts": ["lower hello"], "best": 5}).json()
    best = [one["text"].strip() or "∅" for one in told["translations"][0]["hypotheses"]]
    assert [text.strip() for text in page.locator(".candidate .text").all_inner_texts()] == best
    assert page.locator(".candidate").first.get_attribute("aria-pressed") == "true"
    assert page.locator(".thumb").count() == 4
    assert "bits" in page.locator(".measures").inner_text()
    assert "#translate?text=lower+hello" in page.url
    shot("translated")


def test_a_word_is_lit_while_pointed_at_and_kept_by_a_click(page, address, shot):
    translated(page, address)
    source, target = (
        page.locator(".sentence").nth(0).locator(".lit"),
        page.locator(".sentence").nth(1).locator(".lit"),
    )
    dull = source.first.evaluate(LIT)
    target.first.hover()
    page.wait_for_function(
        "dull => getComputedStyle(document.querySelector('.sentence .lit')).backgroundColor !== dull", arg=dull
    )
    page.mouse.move(5, 5)
    page.wait_for_function(
        "dull => getComputedStyle(document.querySelector('.sentence .lit')).backgroundColor === dull", arg=dull
    )
    target.first.click()
    page.mouse.move(5, 5)
    assert "marked" in target.first.get_attribute("class")
    assert source.first.get_attribute("title") != ""  # its weight
    assert "row=0" in page.url
    shot("pinned")
    page.reload()  # a link leads back to the same
    drawn(page)
    assert "marked" in page.locator(".sentence").nth(1).locator(".lit").first.get_attribute("class")
    page.get_by_role("button", name="Let go").click()
    assert page.locator(".lit.marked").count() == 0
    assert "row=" not in page.url


def test_the_matrix_is_walked_by_keyboard(page, address):
    translated(page, address)
    page.locator(".heat-box").focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    assert re.search("looks at", page.locator(".heat-status").inner_text())
    assert page.locator(".lit.marked").count() == 2  # on both sides
    assert "row=1" in page.url
    assert "column=1" in page.url


def test_every_layer_and_head_is_there(page, address, shot):
    translated(page, address)
    page.get_by_role("button", name="Layer 2, head 1").click()
    page.wait_for_selector("h2:has-text('Layer 2, head 1')")
    assert "layer=1&head=0" in page.url
    page.get_by_role("button", name="Source looks at source").click()
    drawn(page)
    assert page.locator(".sentence").nth(0).inner_text() == page.locator(".sentence").nth(1).inner_text()
    page.get_by_role("button", name="Target looks back").click()
    drawn(page)
    assert page.locator(".sentence .lit").first.inner_text() == "<s>"
    assert "kind=writing" in page.url
    shot("writing")


def test_words_and_tokens(page, address):
    translated(page, address)
    words = page.locator(".sentence").first.locator(".lit").all_inner_texts()
    assert words == ["lower", "hello", "</s>"]
    page.get_by_role("button", name="tokens").click()
    drawn(page)
    tokens = page.locator(".sentence").first.locator(".lit").all_inner_texts()
    assert len(tokens) > len(words)
    assert "".join(tokens[:-1]).replace("▁", " ").split() == ["lower", "hello"]


def test_candidates_can_be_switched_and_one_written_by_hand(page, address, shot):
    translated(page, address)
    second = page.locator(".candidate").nth(1)
    second.click()
    drawn(page)
    assert second.get_attribute("aria-pressed") == "true"
    assert "n=1" in page.url
    page.get_by_label("Another translation").fill("newest abc")
    page.get_by_role("button", name="Look", exact=True).click()
    page.wait_for_selector(".by-hand .note:not(:empty)")
    drawn(page)
    assert page.locator(".sentence").nth(1).locator(".lit").all_inner_texts() == ["newest", "abc", "</s>"]
    assert page.locator(".candidate[aria-pressed=true]").count() == 0
    shot("by-hand")


def test_honesty_can_be_measured(page, address, shot):
    translated(page, address)
    assert page.get_by_text("Weights are not explanations").is_visible()
    page.get_by_role("button", name="Measure it for this translation").click()
    page.wait_for_selector(".verdict")
    assert page.locator(".changes dt").count() == 5
    shot("honesty")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "Type a sentence first."),
        ("   \n ", "Type a sentence first."),
        ("word " * 10_000, "49,999 characters"),
        ("q" * 200, "201 tokens"),
    ],
    ids=["empty", "blank", "ten-thousand-words", "too-many-tokens"],
)
def test_what_cannot_be_translated_is_said_in_words(page, address, text, says):
    page.goto(address)
    page.get_by_label("A sentence").fill(text)
    page.get_by_role("button", name="Translate", exact=True).click()
    page.wait_for_selector(f"[role=alert]:has-text('{says}')")
    assert page.locator(".candidate").count() == 0


@pytest.mark.parametrize(
    "text",
    [
        "🎉 👩‍👩‍👧 ok",
        "שלום עולם",
        "مرحبا بالعالم",
        "<b id=bold>b</b> <img onerror=hacked()>",
        "'></script><script>hacked=1</script>",
    ],
    ids=["emoji", "hebrew", "arabic", "html", "script"],
)
def test_any_writing_is_shown_as_text(page, address, text, shot):
    page.goto(address)
    page.get_by_label("A sentence").fill(text)
    page.keyboard.press("Enter")
    drawn(page)
    assert page.locator(".sentence").first.locator(".lit").all_inner_texts() == [*text.split(), "</s>"]
    page.get_by_label("Another translation").fill(text)
    page.get_by_role("button", name="Look", exact=True).click()
    page.wait_for_selector(".by-hand .note:not(:empty)")
    drawn(page)
    assert page.locator(".sentence").last.locator(".lit").all_inner_texts() == [*text.split(), "</s>"]
    assert page.evaluate("window.hacked") is None
    assert page.locator("#bold, main img").count() == 0
    shot("shown")


def test_the_page_speaks_chinese(page, address, shot):
    translated(page, address, query="?lang=zh")
    assert page.locator("html").get_attribute("lang") == "zh-Hans"
    assert page.get_by_role("link", name="核回归").is_visible()
    assert "比特" in page.locator(".measures").inner_text()
    page.get_by_label("句子").fill("")
    page.get_by_role("button", name="翻译", exact=True).click()
    page.wait_for_selector("[role=alert]:has-text('请先输入一句话')")
    page.goto(f"{address}#equation")  # the choice is remembered
    page.wait_for_selector("text=点积除以维度的平方根")
    page.get_by_role("button", name="English").click()
    page.wait_for_selector("text=The dot product, scaled")
    assert page.locator("html").get_attribute("lang") == "en"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", ["translate?text=lower hello world", "equation", "regression"])
def test_everything_fits_a_telephone(page, address, shot, scheme, view):
    page.emulate_media(color_scheme=scheme)
    for size, language in ((NARROW, "en"), (NARROW, "zh"), (WIDE, "en"), (WIDE, "zh")):
        page.set_viewport_size(size)
        page.goto(f"{address}?lang={language}#{view}")
        page.wait_for_selector(".measures dd, .weights td, .datum", state="attached")
        page.wait_for_timeout(150)
        assert sideways(page) <= 0
        shot(f"{size['width']}-{language}")


def test_everything_is_reached_by_keyboard(page, address):
    translated(page, address)
    page.evaluate("document.activeElement.blur()")
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("(({ className, id }) => className || id)(document.activeElement)"))
    for part in ("skip", "view", "sentence", "candidate", "own", "lit", "heat-box", "quiet thumb"):
        assert any(part in name for name in reached), f"{part} is not reached: {sorted(reached)}"


def test_views_are_links_and_going_back_goes_back(page, address):
    translated(page, address)
    page.get_by_role("link", name="The equation").click()
    page.wait_for_selector(".weights td")
    page.get_by_role("link", name="Kernel regression").click()
    page.wait_for_selector(".datum", state="attached")
    page.go_back()
    page.wait_for_selector(".weights td")
    page.go_back()
    drawn(page)
    assert page.get_by_label("A sentence").input_value() == "lower hello"


def test_without_a_model_there_is_the_playground(page, shot):
    from regard.serving import application

    with in_thread(application()) as address:
        page.goto(address)
        page.wait_for_selector(".weights td")
        assert page.get_by_role("link", name="Translate").count() == 0
        assert page.get_by_text("regard serve RUN").is_visible()
        page.goto(f"{address}/#translate?text=abc")
        page.wait_for_selector(".weights td")
        shot("playground")


def test_a_server_that_is_gone_is_told_in_words(chromium):
    """The browser itself writes refused connections to the console, so this page is not the strict one."""
    from regard.serving import application

    page = chromium.new_page()
    try:
        with in_thread(application()) as address:
            page.goto(f"{address}/#equation")
            page.wait_for_selector(".weights td")
        page.get_by_label("how alike?").select_option("Dot")
        page.wait_for_selector("[role=alert]:has-text('The server does not answer')")
        assert page.get_by_role("button", name="Try again").is_visible()
        page.goto("about:blank")
    finally:
        page.close()


def test_long_sentences_stay_fluid(page, shot):
    """512 tokens on both sides, 8 layers of 8 heads."""
    from regard.decoding import Hypothesis
    from regard.serving import application

    translator = tiny_translator(max_length=512, num_layers=8, num_heads=8)
    ids = translator.target.encode("abcdefg " * 64)[:511]
    translator.search = lambda *given: [[Hypothesis(ids, -1.0, -1.0, [-0.1] * 512)]]
    with in_thread(application(translator)) as address:
        page.goto(f"{address}#translate?text={'hello wor ' * 51}x")
        page.wait_for_selector(".measures dd")
        assert page.locator(".thumb").count() == 64
        assert page.locator(".sentence").first.locator(".lit").count() == 512
        box = page.locator(".heat-box").bounding_box()
        took = page.evaluate(
            """([x, y]) => new Promise((done) => {
                const box = document.querySelector('.heat-box');
                const begun = performance.now();
                box.dispatchEvent(new PointerEvent('pointermove', { clientX: x, clientY: y, bubbles: true }));
                requestAnimationFrame(() => setTimeout(() => done(performance.now() - begun)));
            })""",
            [box["x"] + 300, box["y"] + 300],
        )
        assert "looks at" in page.locator(".heat-status").inner_text()
        assert took < 1_000  # 100 ms where nobody else computes
        shot("long")
