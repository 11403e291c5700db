"""Servers for tests: in a thread of this process, or as `regard serve` in a process of its own."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from regard.tasks.translation.processor import TranslationProcessor

REGARD = [sys.executable, "-m", "regard"]
ENVIRONMENT = {
    "PYTHONIOENCODING": "utf-8",
    "COLUMNS": "200",
    "OMP_NUM_THREADS": "1",
    "DISPLAY": "",
    "WAYLAND_DISPLAY": "",
}
# Two layers of two heads that would write letters from behind, had they had the time to learn it.
TINY = {
    "model": "transformer",
    "embed_dim": 16,
    "num_layers": 2,
    "num_heads": 2,
    "ffn_dim": 32,
    "max_length": 40,
    "beam_size": 2,
}
LINES = ["abc def", "hello world", "lower newer", "lowest newest", "ghi jkl mno", "pqr stu vwxyz"]


def tiny_translator(tokenizer: str = "char", **given):
    """A translator that nobody has trained: quick to make, and it looks as well as any."""
    from regard.data import Tokenizer
    from regard.models import Transformer
    from regard.tasks import TranslationConfig, Translator

    settings = TranslationConfig(**{**TINY, "tokenizer": tokenizer, **given})
    cut = Tokenizer.train(LINES * 5, tokenizer, 60)
    shape = {
        "embed_dim": settings.embed_dim,
        "num_heads": settings.num_heads,
        "num_encoder_layers": settings.num_layers,
        "ffn_dim": settings.ffn_dim,
    }
    return Translator(Transformer(len(cut), len(cut), **shape), TranslationProcessor(cut, cut), settings)


def tiny_classifier():
    """A classifier of documents that nobody has trained."""
    from regard.data import Tokenizer
    from regard.tasks import TextClassificationConfig, TextClassifier
    from regard.tasks.text_classification.task import build_model

    settings = TextClassificationConfig(hidden_dim=8, embed_dim=8, max_sentence_words=20, max_sentences=10)
    words = Tokenizer.train(LINES, "word", 40)
    return TextClassifier(build_model(settings, len(words), 2), words, ("neg", "pos"), settings)


def tiny_captioner():
    """A describer of images that nobody has trained."""
    from regard.data import Tokenizer
    from regard.tasks.captioning.config import CaptioningConfig
    from regard.tasks.captioning.predictor import ImageCaptioner
    from regard.tasks.captioning.task import build_model

    settings = CaptioningConfig(image_size=16, conv_channels=4, feature_dim=24, embed_dim=8, hidden_dim=8, max_length=5)
    words = Tokenizer.train(LINES, "word", 40)
    return ImageCaptioner(build_model(settings, len(words), None), words, settings)


def tiny_run(folder, **given):
    """A run that `regard serve` can open: two steps of training on a few lines."""
    from regard.tasks import train

    folder.mkdir()
    files = tuple(str(folder / name) for name in ("lines.a", "lines.b"))
    for name, step in zip(files, (1, -1), strict=True):
        with open(name, "w", encoding="utf-8") as file:
            file.writelines(line[::step] + "\n" for line in LINES * 5)
    short = {"steps": 2, "validate_every": 2, "save_every": 2, "monitor": "loss", "average_last": 0, "vocab_size": 60}
    texts = {"train_files": files, "valid_files": files}
    train("translation", folder / "tiny", log=lambda line: None, **{**TINY, **short, **texts, **given})
    return folder / "tiny"


@contextmanager
def in_thread(app) -> Iterator[str]:
    """Serve an application here, and give its address."""
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical", ws="none"))
    thread = threading.Thread(target=server.run)
    thread.start()
    until(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def in_process(*arguments: str) -> Iterator[tuple[str, subprocess.Popen]]:
    """`regard serve` with these arguments: its address, and the process, which is stopped by Ctrl-C."""
    process = begun(*arguments)
    line = process.stdout.readline()
    assert "http://" in line, line + process.stderr.read()
    try:
        yield line.split()[1], process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait(20)
        process.stdout.close()
        process.stderr.close()


def begun(*arguments: str) -> subprocess.Popen:
    return subprocess.Popen(
        [*REGARD, "serve", "--no-open", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        env={**os.environ, **ENVIRONMENT},
    )


def until(true, seconds: float = 20.0) -> None:
    patience = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < patience, "waited in vain"
        time.sleep(0.02)


def refused(answer: httpx.Response, status: int, code: str, words: str = "") -> None:
    """One sentence in the one form that refusals have, and no traceback."""
    assert answer.status_code == status, answer.text
    told = answer.json()
    assert set(told) == {"error"}
    assert told["error"]["code"] == code
    assert words in told["error"]["message"]
    assert told["error"]["message"].endswith(".")
    assert "Traceback" not in answer.text
