"""A translation to play, made by hand, so that a test knows every number in it."""

import torch

from regard.viewing.pages import BeamNode, NextToken, TokenizedText, TranslationPageData

# Words of every kind that a page must show and never obey.
HOSTILE = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\u2028&amp;<!--",
    "😀👩‍👩‍👧",
    "שלום",
)


def translated(weights: bool = True) -> TranslationPageData:
    """Two words in four tokens, two words in three tokens, two layers of two heads, a beam of two."""
    source = TokenizedText(
        "kleine Katzen", ["▁klein", "e", "▁Katz", "en", "</s>"], ["kleine", "Katzen"], [[0, 1], [2, 3]]
    )
    target = TokenizedText("small cats", ["▁small", "▁cat", "s", "</s>"], ["small", "cats"], [[0], [1, 2]])
    looks = torch.zeros(2, 2, 4, 5)
    looks[:, :, 0, 0], looks[:, :, 0, 1] = 0.75, 0.25
    looks[:, :, 1, 2] = 1.0
    looks[:, :, 2, 3], looks[:, :, 2, 4] = 0.5, 0.5
    looks[:, :, 3, 4] = 1.0
    looks[1, 1] = looks[1, 1].flip(-1)  # one head looks elsewhere
    options = [
        [NextToken("▁small", 0.7, True), NextToken("▁little", 0.2)],
        [NextToken("▁cat", 0.9, True), NextToken("▁kitten", 0.05)],
        [NextToken("s", 0.8, True), NextToken("</s>", 0.15)],
        [NextToken("</s>", 0.99, True), NextToken(",", 0.01)],
    ]
    tree = [
        [BeamNode("▁small", 0.7, -0.36), BeamNode("▁little", 0.2, -1.6)],
        [BeamNode("▁cat", 0.9, -0.46, 0), BeamNode("▁cat", 0.8, -1.8, 1)],
        [BeamNode("s", 0.8, -0.7, 0), BeamNode("s", 0.7, -2.2, 1), BeamNode("</s>", 0.15, -2.4, 0, end=True)],
        [BeamNode("</s>", 0.99, -0.7, 0, end=True), BeamNode("</s>", 0.9, -2.3, 1, end=True)],
    ]
    faith = {"en": "Half of it depends on the weights.", "zh": "一半取决于权重。"}
    seen = looks if weights else None
    return TranslationPageData(
        source, target, options, -0.7, seen, tree, [0, 0, 0, 0], 2, faithfulness=faith if weights else None
    )


def hostile() -> TranslationPageData:
    """The same with words that are no words, in every field that holds text."""
    tokens = [*HOSTILE, "</s>"]
    count = len(tokens)
    options = [[NextToken(text, 0.5, True), *(NextToken(other, 0.1) for other in HOSTILE)] for text in tokens]
    tree = [[BeamNode(text, 0.5, -1.0, -1 if t == 0 else 0, text == "</s>")] for t, text in enumerate(tokens)]
    side = TokenizedText(" ".join(HOSTILE), tokens, HOSTILE, [[i] for i in range(len(HOSTILE))])
    weights = torch.eye(count)[None, None]
    return TranslationPageData(
        side,
        side,
        options,
        -1.0,
        weights,
        tree,
        [0] * count,
        faithfulness={"en": HOSTILE[0], "zh": HOSTILE[1]},
    )
