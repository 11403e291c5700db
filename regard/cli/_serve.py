"""`regard serve [RUN]`: the explorer in a browser, and the API behind it."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import socket
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli._say import Language, note, refuse
from regard.cli._translate import Device, loaded

if TYPE_CHECKING:
    from fastapi import FastAPI

PATIENCE = 10  # seconds for what is under way when the server is told to stop


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
    device: Device = "auto",
) -> None:
    """Explore a model in the browser, or, without one, the equation itself.

    Example: regard serve runs/dates
    """
    from regard._extras import need

    need("fastapi", extra="serve")
    need("uvicorn", extra="serve")
    with _listening(host, port) as listener:  # first, as a taken port is known sooner than a model is loaded
        app = _application(run, host, device)
        if not _only_here(host):
            note(
                f"regard: everybody who can reach {host} can use this server; 127.0.0.1 is for this machine only."
            )
        address = _address(host, listener.getsockname()[1], lang)
        typer.echo(f"regard: {address} (Ctrl-C stops)")
        sys.stdout.flush()
        if not no_open and _has_display():
            import webbrowser

            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        _answer(app, listener)


def _application(run: Path | None, host: str, device: str) -> FastAPI:
    from regard.serving import application

    if run is None:
        return application(host=host)
    translator = loaded(run, device)
    from regard.recipes import read
    from regard.training import Run

    about = {"run": run.resolve().name, "recipe": read(Run.open(run))["recipe"]}
    return application(translator, about=about, host=host)


def _answer(app: FastAPI, listener: socket.socket) -> None:
    """Until Ctrl-C or SIGTERM; what was asked before is still answered."""
    import uvicorn

    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=PATIENCE,
    )
    with contextlib.suppress(KeyboardInterrupt):  # uvicorn raises it again after it has stopped
        uvicorn.Server(config).run(sockets=[listener])


def _listening(host: str, port: int) -> socket.socket:
    """A socket that listens there, or one sentence why it cannot."""
    if not 0 <= port <= 65_535:
        refuse(f"A port is a number from 0 to 65535, not {port}.")
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError:
        refuse(f"There is no address {host!r}; 127.0.0.1 is this machine.")
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(place)
        listener.listen(128)
    except OSError as error:
        listener.close()
        refuse(_why(error, host, port))
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
