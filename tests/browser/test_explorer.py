"""The explorer in a real browser, before a real `regard serve`."""

import re

import httpx
import pytest

from tests.serving.servers import in_thread, tiny_translator

DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 360, "height": 740}
BACKGROUND = "element => getComputedStyle(element).backgroundColor"


def open_translation(page, address, text="lower hello", query=""):
    """Open the page with a text, its translations, and the attention weights of the best one."""
    page.goto(f"{address}{query}#predict?text={text}")
    wait_for_explanation(page)


def wait_for_explanation(page):
    page.wait_for_selector(".explanation:not(.stale) .heat-box")
    page.wait_for_selector(".measures dd")
    page.wait_for_selector(".status:empty", state="attached")


def horizontal_overflow(page):
    """The number of pixels by which the page is wider than its window."""
    return page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


def sentence(page, index):
    """The words of the source (0) or of the translation (1)."""
    return page.locator(".sentence").nth(index).locator(".lit")


def explain_own_answer(page, text):
    page.get_by_label("Your own answer").fill(text)
    page.get_by_role("button", name="Explain", exact=True).click()
    page.wait_for_selector(".own-answer .note:not(:empty)")
    wait_for_explanation(page)


def test_a_text_is_translated_and_explained(page, address, shot):
    page.goto(address)
    page.get_by_label("Text").fill("lower  hello")
    page.wait_for_selector("text=of 40 tokens")
    page.keyboard.press("Enter")
    wait_for_explanation(page)
    request = {"inputs": ["lower hello"], "options": {"num_best": 5}}
    best = httpx.post(f"{address}v1/translate", json=request).json()["predictions"][0]
    texts = [one["text"].strip() or "∅" for one in (best, *best["alternatives"])]
    assert [text.strip() for text in page.locator(".candidate .text").all_inner_texts()] == texts
    assert page.locator(".candidate").first.get_attribute("aria-pressed") == "true"
    assert page.locator(".thumbnail").count() == 4
    assert "bits" in page.locator(".measures").inner_text()
    assert "#predict?text=lower+hello" in page.url
    shot("translation")


def test_a_word_is_highlighted_by_the_pointer_and_pinned_by_a_click(page, address, shot):
    open_translation(page, address)
    source, target = sentence(page, 0), sentence(page, 1)
    before = source.first.evaluate(BACKGROUND)
    color = "getComputedStyle(document.querySelector('.sentence .lit')).backgroundColor"
    target.first.hover()
    page.wait_for_function(f"before => {color} !== before", arg=before)
    page.mouse.move(5, 5)
    page.wait_for_function(f"before => {color} === before", arg=before)
    target.first.click()
    page.mouse.move(5, 5)
    assert "marked" in target.first.get_attribute("class")
    assert source.first.get_attribute("title") != "", "the title is the weight"
    assert "row=0" in page.url
    shot("pinned")
    page.reload()  # the address restores the selection
    wait_for_explanation(page)
    assert "marked" in sentence(page, 1).first.get_attribute("class")
    page.get_by_role("button", name="Clear selection").click()
    assert page.locator(".lit.marked").count() == 0
    assert "row=" not in page.url


def test_the_matrix_by_keyboard(page, address):
    open_translation(page, address)
    page.locator(".heat-box").focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    assert re.search("attends to", page.locator(".heat-status").inner_text())
    assert page.locator(".lit.marked").count() == 2, "a query and a key"
    assert "row=1" in page.url
    assert "column=1" in page.url


def test_every_layer_and_head_can_be_selected(page, address, shot):
    open_translation(page, address)
    page.get_by_role("button", name="Layer 2, head 1").click()
    page.wait_for_selector("h2:has-text('Layer 2, head 1')")
    assert "layer=1&head=0" in page.url
    page.get_by_role("button", name="Encoder self-attention").click()
    page.wait_for_selector("h2:has-text('Source (keys)')")
    wait_for_explanation(page)
    assert sentence(page, 0).all_inner_texts() == sentence(page, 1).all_inner_texts()
    page.get_by_role("button", name="Decoder self-attention").click()
    page.wait_for_selector("h2:has-text('Target (keys)')")
    wait_for_explanation(page)
    assert sentence(page, 0).first.inner_text() == "<s>"
    assert "group=decoder_self" in page.url
    shot("decoder")


def test_words_and_tokens(page, address):
    open_translation(page, address)
    assert sentence(page, 0).all_inner_texts() == ["lower", "hello", "</s>"]
    page.get_by_role("button", name="tokens").click()
    wait_for_explanation(page)
    tokens = sentence(page, 0).all_inner_texts()
    assert len(tokens) > 3
    assert "".join(tokens[:-1]).replace("▁", " ").split() == ["lower", "hello"]


def test_another_candidate_and_an_answer_of_the_user(page, address, shot):
    open_translation(page, address)
    second = page.locator(".candidate").nth(1)
    second.click()
    wait_for_explanation(page)
    assert second.get_attribute("aria-pressed") == "true"
    assert "n=1" in page.url
    explain_own_answer(page, "newest abc")
    assert sentence(page, 1).all_inner_texts() == ["newest", "abc", "</s>"]
    assert page.locator(".candidate[aria-pressed=true]").count() == 0
    shot("own-answer")


def test_faithfulness_is_measured(page, address, shot):
    open_translation(page, address)
    assert page.get_by_text("Attention weights are not explanations").is_visible()
    page.get_by_role("button", name="Measure it for this prediction").click()
    page.wait_for_selector(".verdict")
    assert page.locator(".changes dt").count() == 5
    shot("faithfulness")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Type a text first."),
        ("   \n ", "Type a text first."),
        ("word " * 10_000, "49,999 characters"),
        ("q" * 200, "201 tokens"),
    ],
    ids=["empty", "blank", "too-many-characters", "too-many-tokens"],
)
def test_invalid_texts_are_refused_with_a_message(page, address, text, message):
    page.goto(address)
    page.get_by_label("Text").fill(text)
    page.get_by_role("button", name="Translate", exact=True).click()
    page.wait_for_selector(f"[role=alert]:has-text('{message}')")
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
def test_text_is_never_markup(page, address, text, shot):
    page.goto(address)
    page.get_by_label("Text").fill(text)
    page.keyboard.press("Enter")
    wait_for_explanation(page)
    assert sentence(page, 0).all_inner_texts() == [*text.split(), "</s>"]
    explain_own_answer(page, text)
    assert sentence(page, 1).all_inner_texts() == [*text.split(), "</s>"]
    assert page.evaluate("window.hacked") is None
    assert page.locator("#bold, main img").count() == 0
    shot("text")


def test_the_page_in_chinese(page, address, shot):
    open_translation(page, address, query="?lang=zh")
    assert page.locator("html").get_attribute("lang") == "zh-Hans"
    assert page.get_by_role("link", name="核回归").is_visible()
    assert "比特" in page.locator(".measures").inner_text()
    shot("translation")
    page.get_by_label("文本").fill("")
    page.get_by_role("button", name="翻译", exact=True).click()
    page.wait_for_selector("[role=alert]:has-text('请先输入文本')")
    page.goto(f"{address}#equation")  # the choice is stored
    page.wait_for_selector("text=点积除以维度的平方根")
    shot("equation")
    page.get_by_role("button", name="English").click()
    page.wait_for_selector("text=The dot product divided")
    assert page.locator("html").get_attribute("lang") == "en"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", ["predict?text=lower hello world", "equation", "regression"])
def test_every_view_on_desktop_and_phone(page, address, shot, scheme, view):
    page.emulate_media(color_scheme=scheme)
    for size, language in ((PHONE, "en"), (PHONE, "zh"), (DESKTOP, "en"), (DESKTOP, "zh")):
        page.set_viewport_size(size)
        page.goto(f"{address}?lang={language}#{view}")
        page.wait_for_selector(".measures dd, .weights td, .datum", state="attached")
        page.wait_for_timeout(150)
        assert horizontal_overflow(page) <= 0
        shot(f"{size['width']}-{language}")


def test_all_controls_are_reached_by_tab(page, address):
    open_translation(page, address)
    page.evaluate("document.activeElement.blur()")
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("(({ className, id }) => className || id)(document.activeElement)"))
    for part in ("skip", "view", "input", "candidate", "own", "lit", "heat-box", "quiet thumbnail"):
        assert any(part in name for name in reached), f"{part} is not reached: {sorted(reached)}"


def test_views_have_addresses_and_a_history(page, address):
    open_translation(page, address)
    page.get_by_role("link", name="The equation").click()
    page.wait_for_selector(".weights td")
    page.get_by_role("link", name="Kernel regression").click()
    page.wait_for_selector(".datum", state="attached")
    page.go_back()
    page.wait_for_selector(".weights td")
    page.go_back()
    wait_for_explanation(page)
    assert page.get_by_label("Text").input_value() == "lower hello"


def test_a_server_without_a_model_has_the_playground(page, shot):
    from regard.serving import build_app

    with in_thread(build_app()) as address:
        page.goto(address)
        page.wait_for_selector(".weights td")
        assert page.get_by_role("link", name="Predict").count() == 0
        assert page.get_by_text("regard serve RUN").is_visible()
        page.goto(f"{address}/#predict?text=abc")
        page.wait_for_selector(".weights td")
        shot("playground")


def test_a_server_that_stopped_is_reported(chromium):
    """The browser itself logs refused connections, so the `page` fixture, which fails on them, is not used."""
    from regard.serving import build_app

    page = chromium.new_page()
    try:
        with in_thread(build_app()) as address:
            page.goto(f"{address}/#equation")
            page.wait_for_selector(".weights td")
        page.get_by_label("score").select_option("Dot")
        page.wait_for_selector("[role=alert]:has-text('The server does not answer')")
        assert page.get_by_role("button", name="Try again").is_visible()
        page.goto("about:blank")
    finally:
        page.close()


def test_long_sequences_respond_quickly(page, shot):
    """512 tokens on both sides, 8 layers of 8 heads."""
    from regard.serving import build_app
    from regard.tasks.translation.predictor import Translation

    translator = tiny_translator(max_length=512, num_layers=8, num_heads=8)
    ids = tuple(translator.processor.target.encode("abcdefg " * 64)[:511])
    translation = Translation("abcdefg", -1.0, log_prob=-1.0, token_ids=ids, token_log_probs=(-0.1,) * 512)
    translator.predict = lambda inputs, options=None: [translation]
    with in_thread(build_app(translator)) as address:
        page.goto(f"{address}#predict?text={'hello wor ' * 51}x")
        page.wait_for_selector(".measures dd")
        assert page.locator(".thumbnail").count() == 64
        assert sentence(page, 0).count() == 512
        box = page.locator(".heat-box").bounding_box()
        duration = page.evaluate(
            """([x, y]) => new Promise((done) => {
                const box = document.querySelector('.heat-box');
                const start = performance.now();
                box.dispatchEvent(new PointerEvent('pointermove', { clientX: x, clientY: y, bubbles: true }));
                requestAnimationFrame(() => setTimeout(() => done(performance.now() - start)));
            })""",
            [box["x"] + 300, box["y"] + 300],
        )
        assert "attends to" in page.locator(".heat-status").inner_text()
        assert duration < 1_000  # 100 ms on a quiet machine
        shot("long")
