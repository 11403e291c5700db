"""A memory in the player: what went in and out, where each head was."""

from dataclasses import replace

import torch

from regard.viewing import pages as players
from tests.viewing.tapes import copied, copying


def test_a_memory_moment_by_moment(page, play, shot):
    play(copied(), "#step=3")
    assert page.locator(".grid").count() == 11
    shot("third")
    reads = page.get_by_role("application", name="Where it is read")
    reads.focus()
    page.keyboard.press("ArrowRight")
    for _ in range(7):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert page.inner_text(".how") == "step 8, row 2: 1.00"
    page.keyboard.press("Enter")
    assert page.inner_text("output") == "8 of 12"


def tried(heads=(0, 0)) -> players.HtmlPage:
    """Two heads that read and three that write, each on a row of its own."""
    torch.manual_seed(0)
    told, rows = copying(torch.eye(4)), torch.eye(12)
    several = {
        "reads": torch.stack([rows[[head] * 8] for head in range(2)], 1),
        "writes": torch.stack([rows[[4 + head] * 8] for head in range(3)], 1),
        "returned": told.returned.repeat(1, 2, 1),
        "adds": told.adds.repeat(1, 3, 1),
        "outputs": torch.full((8, 4), 0.5),
    }
    return players.memory_page(replace(told, **several), heads=heads)


def pointed(page, name: str, right: int, down: int = 0) -> str:
    """What a page says of a cell of a picture."""
    page.evaluate("document.activeElement.blur()")  # a picture that is left forgets where one was
    page.get_by_role("application", name=name, exact=True).focus()
    for key, times in (("ArrowRight", right), ("ArrowDown", down)):
        for _ in range(times):
            page.keyboard.press(key)
    return page.inner_text(".how")


def test_a_memory_shows_what_was_asked_wanted_added_and_returned(page, play, shot):
    play(tried())
    shot("all")
    assert pointed(page, "What goes out", 1) == "step 1, row 1: not asked for"
    assert pointed(page, "What goes out", 5) == "step 5, row 1: 0.50"
    assert pointed(page, "What was wanted", 5) == "step 5, row 1: 1.00"
    assert pointed(page, "What is added to the memory", 2, 1) == "step 2, row 2: 1.00"
    assert pointed(page, "What the memory returns", 5) == "step 5, row 1: 1.00"
    fifth = "grid => [...grid.getContext('2d').getImageData(grid.width * 0.56, 8, 1, 1).data]"
    shades = [page.locator(".tape-outputs .grid").nth(n).evaluate(fifth) for n in range(2)]
    assert shades[0] != shades[1], "0.5 is not as dark as 1"


def test_a_memory_opens_on_the_heads_that_were_chosen(page, play):
    play(tried(heads=(1, 2)))
    choices = page.locator(".bar-top select")
    assert [choices.nth(n).input_value() for n in range(2)] == ["2", "1"]
    assert pointed(page, "Where it is written", 1, 6) == "step 1, row 7: 1.00"
    assert pointed(page, "Where it is read", 1, 1) == "step 1, row 2: 1.00"
    choices.nth(0).select_option("0")
    assert pointed(page, "Where it is written", 1, 4) == "step 1, row 5: 1.00"
    assert pointed(page, "Where it is read", 1, 1) == "step 1, row 2: 1.00", "the other side stays"
    assert "write=0" in page.url
    assert "read=1" in page.url
    page.locator("body").press("h")
    assert [choices.nth(n).input_value() for n in range(2)] == ["1", "0"]


def test_a_memory_speaks_chinese_throughout(page, play):
    play(tried())
    page.get_by_role("button", name="中文").click()
    shown = page.inner_text("main")
    for words in ("应有的输出", "加进存储器的内容", "从存储器读出的内容", "写头", "读头"):
        assert words in shown
    assert pointed(page, "输出", 1).endswith("这一步不要求输出")
