"""`regard serve [RUN]`: the explorer in a browser, and the API behind it."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli._say import Language, note
from regard.cli._translate import Device, Engine
from regard.errors import UnknownNameError, UsageError

if TYPE_CHECKING:
    from fastapi import FastAPI


def serve(
    run: Annotated[
        Path | None, typer.Argument(metavar="RUN", help="The folder of a run; without one, the playground.")
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen at; 0 takes any that is free.")] = 8000,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open the page in a browser.")] = False,
    lang: Annotated[
        Language | None, typer.Option(help="Language of the page; default: the browser's.")
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="REGARD_TOKEN", show_envvar=False, help="What requests must send; better in REGARD_TOKEN."
        ),
    ] = None,
    device: Device = "auto",
    engine: Engine = None,
) -> None:
    """Explore a model in the browser, or, without one, the equation itself; and serve it by HTTP under /v1.

    Example: regard serve runs/dates

    Example: REGARD_TOKEN=secret regard serve runs/en-de --host 0.0.0.0 --no-open
    """
    from regard._imports import require_extra

    require_extra("fastapi", extra="serve")
    require_extra("uvicorn", extra="serve")
    secret = _token(token)
    with _listening(host, port) as listener:  # first, as a taken port is known sooner than a model is loaded
        app = _application(run, host, device, engine, secret)
        if not _only_here(host) and secret is None:
            note(
                f"regard: everybody who can reach {host} can use this server; --token asks for a token, and"
                " 127.0.0.1 is for this machine only."
            )
        address = _address(host, listener.getsockname()[1], lang)
        typer.echo(f"regard: {address} (Ctrl-C stops)")
        sys.stdout.flush()
        if not no_open and _has_display():
            import webbrowser

            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        _answer(app, listener)


def _application(run: Path | None, host: str, device: str, engine: str | None, token: str | None) -> FastAPI:
    from regard.serving import application

    if run is None:
        return application(host=host, token=token)
    from regard.tasks import recipe_name
    from regard.training.distributed import resolve_device

    if device not in ("auto", "cpu", "cuda", "mps"):
        raise UnknownNameError.among("device", device, ("auto", "cpu", "cuda", "mps"))
    recipe = recipe_name(run)
    place = str(resolve_device(device)) if engine in (None, "torch") else "cpu"
    # In a thread that ends: one that had computed keeps threads of OpenMP, and with more of them than cores all sleep
    # between operations, which made the worker's small batches twice as slow.
    with ThreadPoolExecutor(1) as loading:
        model = loading.submit(_ready, run, place, engine).result()
    app = application(model, about={"run": run.resolve().name, "recipe": recipe}, host=host, token=token)
    if not app.state.served.does:
        raise UsageError(
            f"{run} was trained for {recipe}, which cannot be served; `regard info` says what it can do."
        )
    return app


def _ready(run: Path, device: str, engine: str | None) -> Any:
    """The model of a run; a translator has worked once already."""
    from regard.serving._limits import Limits
    from regard.serving._warm import warm_up
    from regard.tasks import Translator, load

    model = load(run, device=device, engine=engine)
    if isinstance(model, Translator):
        warm_up(model, Limits().together)
    return model


def _token(given: str | None) -> str | None:
    """The token that requests must have; none is asked for where none, or an empty one, is given."""
    if given and not (given.isascii() and given.isprintable() and " " not in given):
        raise UsageError("A token is of letters, digits and signs of ASCII, without spaces.")
    return given or None


def _answer(app: FastAPI, listener: socket.socket) -> None:
    """Until Ctrl-C or SIGTERM; what was asked before is still answered."""
    from regard.serving._server import serve as answering

    answering(app, listener)


def _listening(host: str, port: int) -> socket.socket:
    """A socket that listens there, or one sentence why it cannot."""
    if not 0 <= port <= 65_535:
        raise UsageError(f"A port is a number from 0 to 65535, not {port}.")
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError:
        raise UsageError(f"There is no address {host!r}; 127.0.0.1 is this machine.") from None
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(place)
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise UsageError(_why(error, host, port)) from None
    return listener


def _why(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"Port {port} is taken; choose another with --port, or let --port 0 find one."
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"Port {port} may not be used; those from 1024 on may."
    return f"{host} cannot be listened at: {(error.strerror or str(error)).lower()}."


def _address(host: str, port: int, lang: Language | None) -> str:
    """What to type into a browser.

    >>> _address("127.0.0.1", 8000, None), _address("::", 80, Language.zh)
    ('http://127.0.0.1:8000/', 'http://[::1]:80/?lang=zh')
    """
    name: Any = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{name}]' if ':' in name else name}:{port}/{f'?lang={lang.value}' if lang else ''}"


def _only_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _has_display() -> bool:
    linux = sys.platform.startswith("linux")
    return not linux or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
