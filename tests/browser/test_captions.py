"""The caption page in a real browser."""

import pytest
import torch

from regard.viewing import pages

LIGHT = """() => {
  const canvas = document.querySelector('.sheet canvas');
  const copy = document.createElement('canvas');
  copy.width = copy.height = 4;
  const paper = copy.getContext('2d', { willReadFrequently: true });
  paper.drawImage(canvas, 0, 0, 4, 4);
  return [paper.getImageData(0, 0, 1, 1).data[0], paper.getImageData(3, 3, 1, 1).data[0]];
}"""


@pytest.fixture
def address(tmp_path):
    weights = torch.zeros(2, 2, 2)
    weights[0, 0, 0] = weights[1, 1, 1] = 1.0
    words = ["dog", "</script><b>"]
    pages.caption_page(torch.ones(20, 20, 3), words, weights, [0.9, 0.5], language="en").save(tmp_path / "x.html")
    return (tmp_path / "x.html").as_uri()


def test_the_light_follows_the_selected_word(page, address):
    page.goto(address)
    page.wait_for_selector(".caption-word")
    first = page.evaluate(LIGHT)
    assert first[0] > 200 > 100 > first[1]
    page.keyboard.press("ArrowRight")
    second = page.evaluate(LIGHT)
    assert second[1] > 200 > 100 > second[0]
    assert "probability 0.50" in page.inner_text(".caption-status")
    page.click(".caption-word >> nth=0")
    assert page.evaluate(LIGHT) == first
    assert page.locator("main b").count() == 0


def test_chinese(page, address):
    page.goto(f"{address}?lang=zh")
    page.wait_for_selector(".caption-word")
    assert "概率" in page.inner_text(".caption-status")
    page.click("text=网格")
    assert page.get_attribute("text=网格", "aria-pressed") == "true"
