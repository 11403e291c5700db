"""Data of a translation page with known numbers."""

import torch

from regard.viewing.pages import BeamNode, NextToken, TokenizedSentence, TranslationPageData

# Texts that a page must show and must not interpret.
HOSTILE = ("</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "\u2028&amp;<!--", "😀👩‍👩‍👧", "שלום")


def example_translation(has_attention: bool = True) -> TranslationPageData:
    """Two words in four tokens, two words in three tokens, two layers of two heads, a beam of two."""
    source = TokenizedSentence(
        "kleine Katzen", ["▁klein", "e", "▁Katz", "en", "</s>"], ["kleine", "Katzen"], [[0, 1], [2, 3]]
    )
    target = TokenizedSentence("small cats", ["▁small", "▁cat", "s", "</s>"], ["small", "cats"], [[0], [1, 2]])
    weights = torch.zeros(2, 2, 4, 5)
    weights[:, :, 0, 0], weights[:, :, 0, 1] = 0.75, 0.25
    weights[:, :, 1, 2] = 1.0
    weights[:, :, 2, 3], weights[:, :, 2, 4] = 0.5, 0.5
    weights[:, :, 3, 4] = 1.0
    weights[1, 1] = weights[1, 1].flip(-1)  # one head differs
    next_tokens = [
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
    faithfulness = {"en": "Half of it depends on the weights.", "zh": "一半取决于权重。"}
    return TranslationPageData(
        source,
        target,
        next_tokens,
        -0.7,
        weights if has_attention else None,
        tree,
        [0, 0, 0, 0],
        2,
        faithfulness=faithfulness if has_attention else None,
    )


def hostile_translation() -> TranslationPageData:
    """The same with hostile text in every field."""
    tokens = [*HOSTILE, "</s>"]
    count = len(tokens)
    next_tokens = [[NextToken(text, 0.5, True), *(NextToken(other, 0.1) for other in HOSTILE)] for text in tokens]
    tree = [[BeamNode(text, 0.5, -1.0, -1 if step == 0 else 0, text == "</s>")] for step, text in enumerate(tokens)]
    side = TokenizedSentence(" ".join(HOSTILE), tokens, HOSTILE, [[i] for i in range(len(HOSTILE))])
    weights = torch.eye(count)[None, None]
    faithfulness = {"en": HOSTILE[0], "zh": HOSTILE[1]}
    return TranslationPageData(side, side, next_tokens, -1.0, weights, tree, [0] * count, faithfulness=faithfulness)
