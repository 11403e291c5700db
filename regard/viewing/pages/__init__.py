"""Interactive pages: each is one HTML file that needs no network, no server and no notebook.

    translation_page         a translation step by step: weights, next tokens, alignment, beam search
    attention_walkthrough    one layer of self-attention with its matrices, operation by operation
    memory_page              an external memory with its read and write heads, step by step
    head_grid                a thumbnail of every head of every layer, and a heatmap of one of them
    document_page            a classified document, its sentences and words shaded by their weights
    caption_page             an image and its caption, with the attention weights of each word

Each function takes plain data, tensors and strings, and returns an `HtmlPage`: `.save("x.html")`, `.html`, or the last
line of a notebook cell.
"""

from regard.viewing.pages.content import caption_page, document_page, head_grid
from regard.viewing.pages.page import HtmlPage
from regard.viewing.pages.translation import (
    BeamNode,
    NextToken,
    TokenizedSentence,
    TranslationPageData,
    translation_page,
)
from regard.viewing.pages.walkthroughs import AttentionTrace, MemoryPageData, attention_walkthrough, memory_page

__all__ = [
    "AttentionTrace", "BeamNode", "HtmlPage", "MemoryPageData", "NextToken", "TokenizedSentence",
    "TranslationPageData", "attention_walkthrough", "caption_page", "document_page", "head_grid", "memory_page",
    "translation_page",
]  # fmt: skip
