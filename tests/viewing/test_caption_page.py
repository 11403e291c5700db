"""The page of an image caption."""

import pytest
import torch

from regard.viewing import pages


def test_the_page_is_one_file():
    page = pages.caption_page(
        torch.rand(900, 1000), ["a", "<b>dog"], torch.rand(2, 3, 4), [0.5, 1.0], title="A <i>title"
    )
    assert "http" not in page.html.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
    assert "<b>dog" not in page.html
    assert "<i>title" not in page.html
    assert '"height":720' in page.html  # large images are reduced


def test_a_caption_without_attention():
    assert '"hasAttention":false' in pages.caption_page(torch.rand(8, 8, 3), ["a"], None, [0.5]).html


@pytest.mark.bare
def test_invalid_arguments_are_rejected():
    image = torch.rand(8, 8)
    with pytest.raises(ValueError, match="at least one word"):
        pages.caption_page(image, [], None, [])
    with pytest.raises(ValueError, match="words 1, probabilities 1, weights 2"):
        pages.caption_page(image, ["a"], torch.rand(2, 3, 3), [1.0])
    with pytest.raises(ValueError, match="must be 'en' or 'zh'"):
        pages.caption_page(image, ["a"], None, [1.0], language="fr")
    with pytest.raises(ValueError, match="an image is"):
        pages.caption_page(torch.rand(8), ["a"], None, [1.0])
