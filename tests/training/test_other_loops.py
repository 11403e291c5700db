"""The models of regard in the training loops of other libraries: the code of the documentation runs as it is."""

import re
from pathlib import Path

import pytest
import torch

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [DOCS / "training.md", DOCS / "zh" / "training.md"]
pytestmark = [
    pytest.mark.bare,
    pytest.mark.parametrize("page", PAGES, ids=["en", "zh"]),
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"),
]


def run_page(page: Path, library: str) -> dict:
    """The names that the code of a page has defined: its first block, the measures, and the block of a library."""
    blocks = re.findall(r"^```(python|py)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    chosen = [
        text for kind, text in blocks if kind == "python" and ("from tempfile" in text or "def entropies" in text)
    ]
    chosen += [text for kind, text in blocks if kind == "py" and text.startswith(f"import {library}\n")]
    assert len(chosen) == 3
    torch.manual_seed(0)
    names: dict = {"__name__": "page"}
    for text in chosen:
        exec(compile(text, str(page), "exec"), names)
    return names


def mean_loss(names, model):
    with torch.no_grad():
        return float(names["next_token_loss"](model.eval(), names["counting"]))


def test_transformers_trainer_trains_a_model_and_logs_its_measures(page):
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    names = run_page(page, "transformers")
    history = names["trainer"].state.log_history
    assert history[0]["step"] == 5
    assert 0 < history[0]["entropy/decoder.layers.0.self_attn/0"] < 2.1
    assert mean_loss(names, names["lm"]) < 0.8 * mean_loss(names, names["make_model"]())


def test_lightning_trains_a_model_and_logs_its_measures(page):
    pytest.importorskip("lightning")
    names = run_page(page, "lightning")
    metrics = names["lightning_trainer"].callback_metrics
    assert 0 < float(metrics["entropy/decoder.layers.0.self_attn/1"]) < 2.1
    assert mean_loss(names, names["language_model"].model) < 0.8 * mean_loss(names, names["make_model"]())
