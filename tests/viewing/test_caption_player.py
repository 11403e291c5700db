"""The page of a caption: what it takes, and what it refuses."""

import pytest
import torch

from regard.viewing import pages as players


def test_a_page_in_one_file():
    made = players.caption_page(
        torch.rand(900, 1000), ["a", "<b>dog"], torch.rand(2, 3, 4), [0.5, 1.0], title="A <i>title"
    )
    assert "http" not in made.html.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
    assert "<b>dog" not in made.html
    assert "<i>title" not in made.html
    assert '"height":720' in made.html  # a large image is made smaller


def test_without_attention_there_is_still_a_caption():
    assert '"attends":false' in players.caption_page(torch.rand(8, 8, 3), ["a"], None, [0.5]).html


@pytest.mark.bare
def test_what_does_not_fit_is_said():
    image = torch.rand(8, 8)
    with pytest.raises(ValueError, match="at least one word"):
        players.caption_page(image, [], None, [])
    with pytest.raises(ValueError, match="a grid for each of 1 words, not"):
        players.caption_page(image, ["a"], torch.rand(2, 3, 3), [1.0])
    with pytest.raises(ValueError, match="speaks 'en' or 'zh'"):
        players.caption_page(image, ["a"], None, [1.0], language="fr")
    with pytest.raises(ValueError, match="an image is"):
        players.caption_page(torch.rand(8), ["a"], None, [1.0])
