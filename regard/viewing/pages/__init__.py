"""Players: attention to step through, each one HTML file that needs no network, no server and no notebook.

    translation    a translation as it was searched and written, word by word
    walk           one layer of self-attention with its matrices, operation by operation
    tape           a memory with its read and write heads, moment by moment
    heads          every head of every layer as a thumbnail, and one of them large
    document       a document that was read, its sentences and words lit by their weights
    caption        an image and what was said of it, lit where each word looked

Each takes plain data, tensors and strings, and returns a `Player`: `.save("x.html")`, `.html`, or as the last
line of a notebook's cell.
"""

from regard.viewing.pages.content import caption_page, document_page, head_grid
from regard.viewing.pages.page import HtmlPage
from regard.viewing.pages.translation import (
    BeamNode,
    NextToken,
    TokenizedText,
    TranslationPageData,
    translation_page,
)
from regard.viewing.pages.walkthroughs import (
    AttentionTrace,
    MemoryPageData,
    attention_walkthrough,
    memory_page,
)

__all__ = [
    "AttentionTrace",
    "BeamNode",
    "HtmlPage",
    "MemoryPageData",
    "NextToken",
    "TokenizedText",
    "TranslationPageData",
    "attention_walkthrough",
    "caption_page",
    "document_page",
    "head_grid",
    "memory_page",
    "translation_page",
]
