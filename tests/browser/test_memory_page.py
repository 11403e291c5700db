"""The memory page in a real browser."""

from dataclasses import replace

import torch

from regard.viewing import pages
from tests.viewing.memory_data import copy_page, copy_with_memory


def test_steps(page, play, shot):
    play(copy_page(), "#step=3")
    assert page.locator(".grid").count() == 11
    shot("third")
    read_weights = page.get_by_role("application", name="Read weights")
    read_weights.focus()
    page.keyboard.press("ArrowRight")
    for _ in range(7):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert page.inner_text(".how") == "step 8, row 2: 1.00"
    page.keyboard.press("Enter")
    assert page.inner_text("output") == "8 of 12"


def many_heads(heads=(0, 0)) -> pages.HtmlPage:
    """Two read heads and three write heads, each on another row."""
    torch.manual_seed(0)
    data, rows = copy_with_memory(torch.eye(4)), torch.eye(12)
    changes = {
        "read_weights": torch.stack([rows[[head] * 8] for head in range(2)], 1),
        "write_weights": torch.stack([rows[[4 + head] * 8] for head in range(3)], 1),
        "read_vectors": data.read_vectors.repeat(1, 2, 1),
        "add_vectors": data.add_vectors.repeat(1, 3, 1),
        "outputs": torch.full((8, 4), 0.5),
    }
    return pages.memory_page(replace(data, **changes), heads=heads)


def read_cell(page, name: str, right: int, down: int = 0) -> str:
    """The text of the page for a cell of a matrix."""
    page.evaluate("document.activeElement.blur()")  # a matrix without focus has no selected cell
    page.get_by_role("application", name=name, exact=True).focus()
    for key, times in (("ArrowRight", right), ("ArrowDown", down)):
        for _ in range(times):
            page.keyboard.press(key)
    return page.inner_text(".how")


def test_outputs_targets_and_vectors(page, play, shot):
    play(many_heads())
    shot("all")
    assert read_cell(page, "Outputs", 1) == "step 1, row 1: no target at this step"
    assert read_cell(page, "Outputs", 5) == "step 5, row 1: 0.50"
    assert read_cell(page, "Targets", 5) == "step 5, row 1: 1.00"
    assert read_cell(page, "Vectors added to the memory", 2, 1) == "step 2, row 2: 1.00"
    assert read_cell(page, "Vectors read from the memory", 5) == "step 5, row 1: 1.00"
    fifth = "grid => [...grid.getContext('2d').getImageData(grid.width * 0.56, 8, 1, 1).data]"
    shades = [page.locator(".memory-outputs .grid").nth(n).evaluate(fifth) for n in range(2)]
    assert shades[0] != shades[1], "0.5 is not as dark as 1"


def test_initial_heads(page, play):
    play(many_heads(heads=(1, 2)))
    choices = page.locator(".bar-top select")
    assert [choices.nth(n).input_value() for n in range(2)] == ["2", "1"]
    assert read_cell(page, "Write weights", 1, 6) == "step 1, row 7: 1.00"
    assert read_cell(page, "Read weights", 1, 1) == "step 1, row 2: 1.00"
    choices.nth(0).select_option("0")
    assert read_cell(page, "Write weights", 1, 4) == "step 1, row 5: 1.00"
    assert read_cell(page, "Read weights", 1, 1) == "step 1, row 2: 1.00", "the read head does not change"
    assert "write=0" in page.url
    assert "read=1" in page.url
    page.locator("body").press("h")
    assert [choices.nth(n).input_value() for n in range(2)] == ["1", "0"]


def test_chinese(page, play):
    play(many_heads())
    page.get_by_role("button", name="中文").click()
    text = page.inner_text("main")
    for words in ("目标输出", "写入存储器的向量", "从存储器读出的向量", "写头", "读头"):
        assert words in text
    assert read_cell(page, "输出", 1).endswith("这一步没有目标输出")
