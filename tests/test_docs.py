"""The documentation is complete in the repository: generated parts are current, and pages read well on a code host."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))
import generate  # noqa: E402

PAGES = generate.find_pages()

# Signatures are those of the package itself, without the checker of shapes.
pytestmark = pytest.mark.bare


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(generate.DOCS).as_posix())
def test_the_generated_parts_of_a_page_are_current(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert generate.render(text) == text, "run: python docs/generate.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(generate.DOCS).as_posix())
def test_a_page_has_text_and_no_directive_of_sphinx(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert len(text.split()) > 50
    assert not re.search(r"^(```|:::)\{|\{(doc|ref|class|func|meth)\}`|^\.\. ", text, re.MULTILINE)


def test_the_index_links_to_every_page() -> None:
    for folder in (generate.DOCS, generate.DOCS / "zh"):
        links = re.findall(r"^- \[.*\]\((.+)\)$", (folder / "index.md").read_text(encoding="utf-8"), re.MULTILINE)
        assert sorted(links) == sorted(path.name for path in folder.glob("*.md") if path.name != "index.md")


def test_a_part_that_cannot_be_generated_is_kept_and_reported() -> None:
    page = "<!-- generated: options NoConfig en -->\nold\n<!-- end generated -->\n"
    failures: list[str] = []
    assert generate.render(page, failures) == page
    assert len(failures) == 1
    assert failures[0].startswith("options NoConfig en: KeyError")
    with pytest.raises(generate.GenerationError):
        generate.render(page)
