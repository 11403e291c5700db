"""Servers for tests: in a thread of this process, or as `regard serve` in a process of its own."""

import base64
import io
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import httpx

REGARD = [sys.executable, "-m", "regard"]
ENVIRONMENT = {
    "PYTHONIOENCODING": "utf-8",
    "COLUMNS": "200",
    "OMP_NUM_THREADS": "1",
    "DISPLAY": "",
    "WAYLAND_DISPLAY": "",
}
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


def tiny_translator(tokenizer: str = "char", **options):
    """An untrained translator with two layers of two heads."""
    from regard.data import Tokenizer
    from regard.models import Transformer
    from regard.tasks import TranslationConfig, Translator
    from regard.tasks.translation.task import TranslationProcessor

    settings = TranslationConfig(**{**TINY, "tokenizer": tokenizer, **options})
    cut = Tokenizer.train(LINES * 5, tokenizer, 60)
    shape = {
        "embed_dim": settings.embed_dim,
        "num_heads": settings.num_heads,
        "num_encoder_layers": settings.num_layers,
        "ffn_dim": settings.ffn_dim,
    }
    return Translator(Transformer(len(cut), len(cut), **shape), TranslationProcessor(cut, cut), settings)


def make_predictor(name, processor, **options):
    """A predictor of a task that nobody has trained."""
    from regard.tasks import get_task

    task = get_task(name)
    config = task.config_class(**options)
    return task.predictor_class(task.build_model(config, processor), processor, config)


def tiny_classifier():
    """A classifier of documents."""
    from regard.data import Tokenizer
    from regard.tasks.text_classification.task import TextClassificationProcessor

    processor = TextClassificationProcessor(
        Tokenizer.train(LINES, "word", 40), ("neg", "pos"), max_sentence_words=20, max_sentences=10
    )
    return make_predictor("text-classification", processor, hidden_dim=8, embed_dim=8)


TINY_IMAGES = {"conv_channels": 4, "feature_dim": 24, "hidden_dim": 8, "image_size": 32}


def tiny_image_classifier():
    """A classifier of images of digits."""
    from regard.tasks.vision.task import ImageClassificationProcessor

    return make_predictor("image-classification", ImageClassificationProcessor(image_size=32), **TINY_IMAGES)


def tiny_visual_qa():
    """A model that answers questions about images of digits."""
    from regard.tasks.vision.task import VisualQAProcessor

    return make_predictor("visual-question-answering", VisualQAProcessor(image_size=32), **TINY_IMAGES)


def tiny_generator():
    """A text generator."""
    from regard.data import Tokenizer
    from regard.tasks.language_modeling.task import TextGenerationProcessor

    sizes = {"embed_dim": 16, "num_heads": 2, "num_layers": 1, "passage_length": 20}
    return make_predictor("text-generation", TextGenerationProcessor(Tokenizer.train(LINES * 5, "bpe", 60)), **sizes)


def encode_image(side=8, kind="PNG"):
    """A gray image as base64."""
    import numpy
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(numpy.arange(side * side, dtype=numpy.uint8).reshape(side, side)).save(file, kind)
    return base64.b64encode(file.getvalue()).decode()


def decode_image(text):
    """The pixels of an image in base64."""
    import numpy
    from PIL import Image

    return numpy.asarray(Image.open(io.BytesIO(base64.b64decode(text))).convert("RGB"))


def tiny_run(folder, **options):
    """A run that `regard serve` can open: two steps of training on a few lines."""
    from regard.tasks import train

    folder.mkdir()
    files = tuple(str(folder / name) for name in ("lines.a", "lines.b"))
    for name, step in zip(files, (1, -1), strict=True):
        with open(name, "w", encoding="utf-8") as file:
            file.writelines(line[::step] + "\n" for line in LINES * 5)
    short = {"steps": 2, "validate_every": 2, "save_every": 2, "monitor": "loss", "average_last": 0, "vocab_size": 60}
    texts = {"train_files": files, "valid_files": files}
    train("translation", folder / "tiny", log=lambda line: None, **{**TINY, **short, **texts, **options})
    return folder / "tiny"


@contextmanager
def in_thread(app) -> Iterator[str]:
    """Serve an application here, and give its address."""
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical", ws="none"))
    thread = threading.Thread(target=server.run)
    thread.start()
    wait_until(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def in_guarded_thread(app) -> Iterator[str]:
    """Serve an application here as `regard serve` does, and give its address."""
    from regard.serving.server import GracefulServer

    server = GracefulServer(app)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # unread responses soon wait in the server
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def open_sockets(address: str, count: int, content: bytes = b"", **options) -> Iterator[list[socket.socket]]:
    """Connections that have sent the same content; they are closed at the end."""
    place = urlsplit(address)
    with ExitStack() as stack:
        sockets = []
        for _ in range(count):
            sockets.append(stack.enter_context(socket.socket()))
            for name, value in options.items():
                sockets[-1].setsockopt(socket.SOL_SOCKET, getattr(socket, name), value)
            sockets[-1].settimeout(20)
            sockets[-1].connect((place.hostname, place.port))
            sockets[-1].sendall(content)
        yield sockets


@contextmanager
def in_process(*arguments: str, **options) -> Iterator[tuple[str, subprocess.Popen]]:
    """`regard serve` with these arguments: its address, and the process, which is stopped by Ctrl-C."""
    process = start(*arguments, **options)
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


def start(*arguments: str, **options) -> subprocess.Popen:
    return subprocess.Popen(
        [*REGARD, "serve", "--no-open", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        env={**os.environ, **ENVIRONMENT},
        **options,
    )


def wait_until(condition, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition was not met in time"
        time.sleep(0.02)


def assert_refused(answer: httpx.Response, status: int, code: str, words: str = "") -> None:
    """The one form of errors, with one sentence and no traceback."""
    assert answer.status_code == status, answer.text
    assert set(answer.json()) == {"error"}
    error = answer.json()["error"]
    assert error["code"] == code
    assert words in error["message"]
    assert error["message"].endswith((".", "?"))
    assert "Traceback" not in answer.text
