"""`regard serve [RUN]`: the explorer in a browser and the HTTP API behind it."""

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

from regard import tasks
from regard._imports import require_extra
from regard.cli.arguments import Device, Engine, Lang, check_device
from regard.cli.output import print_status
from regard.errors import UnsupportedError, UsageError
from regard.serving import Limits, build_app

if TYPE_CHECKING:
    from fastapi import FastAPI

__all__ = ["serve"]


def serve(
    run: Annotated[
        Path | None, typer.Argument(metavar="RUN", help="The folder of a run; without one, the playground.")
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen on; 0 takes a free one.")] = 8000,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open the page in a browser.")] = False,
    lang: Annotated[Lang | None, typer.Option(help="Language of the page; default: the browser's.")] = None,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="REGARD_TOKEN", show_envvar=False, help="Token that requests must send; better set in REGARD_TOKEN."
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A further name of the server, such as that of a proxy; can be repeated."),
    ] = None,
    root_path: Annotated[
        str, typer.Option(metavar="PATH", help="The path under which a proxy serves the page, such as /model.")
    ] = "",
    device: Device = "auto",
    engine: Engine = None,
) -> None:
    """Explore a model, or without one the attention equation, in the browser; serve it over HTTP under /v1.

    Example: regard serve runs/dates

    Example: REGARD_TOKEN=secret regard serve runs/en-de --host 0.0.0.0 --no-open
    """
    require_extra("fastapi", extra="serve")
    require_extra("uvicorn", extra="serve")
    if token is not None and not (token and token.isascii() and token.isprintable() and " " not in token):
        raise UsageError("invalid token: expected ASCII letters, digits and signs without spaces")
    security = {"host": host, "allow_hosts": allow_host or [], "root_path": root_path, "token": token}
    with _listen(host, port) as listener:  # first: a port in use is refused before a model is loaded
        app = _build_app(run, device, engine, security)
        if not _is_loopback(host) and token is None:
            print_status(
                f"regard: everybody who can reach {host} can use this server; --token requires a token, and"
                " 127.0.0.1 is this machine only"
            )
        from regard.serving.server import run_server

        address = _format_address(host, listener.getsockname()[1], lang)
        typer.echo(f"regard: {address} (Ctrl-C stops)")
        sys.stdout.flush()
        if not no_open and _has_display():
            import webbrowser

            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        run_server(app, listener)


def _build_app(run: Path | None, device: str, engine: str | None, security: dict[str, Any]) -> FastAPI:
    if run is None:
        return build_app(**security)

    device = check_device(device) if engine in (None, "torch") else "cpu"
    recipe = tasks.recipe_name(run)
    # Loaded in a thread that ends: a thread that computed keeps threads of OpenMP, and with more of them than cores
    # all sleep between operations, which made small batches of the worker twice as slow.
    with ThreadPoolExecutor(1) as loading:
        model = loading.submit(_load_and_warm_up, run, device, engine).result()
    if not model.inputs:
        raise UnsupportedError(f"{run} takes no input, so it cannot be served; use regard evaluate or regard show")
    return build_app(model, about={"run": run.resolve().name, "recipe": recipe}, **security)


def _load_and_warm_up(run: Path, device: str, engine: str | None) -> Any:

    model = tasks.load(run, device=device, engine=engine)
    model.warm_up(Limits().max_batch_size)
    return model


def _listen(host: str, port: int) -> socket.socket:
    """A socket that listens on this address; UsageError if that is not possible."""
    if not 0 <= port <= 65_535:
        raise UsageError(f"invalid value '{port}' for --port: must be from 0 to 65535")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError:
        raise UsageError(f"no address {host!r}; 127.0.0.1 is this machine") from None
    listener = socket.socket(family, kind, protocol)
    # On Windows, SO_REUSEADDR would give the port to several servers at once.
    listener.setsockopt(socket.SOL_SOCKET, getattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_REUSEADDR), 1)
    try:
        listener.bind(address)
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise UsageError(_describe_socket_error(error, host, port)) from None
    return listener


def _describe_socket_error(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is in use; choose another with --port, or a free one with --port 0"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"no permission for port {port}; choose one from 1024 on"
    return f"cannot listen on {host}: {(error.strerror or str(error)).lower()}"


def _format_address(host: str, port: int, lang: Lang | None) -> str:
    """The address for a browser.

    >>> _format_address("127.0.0.1", 8000, None), _format_address("::", 80, Lang.zh)
    ('http://127.0.0.1:8000/', 'http://[::1]:80/?lang=zh')
    """
    name: Any = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{name}]' if ':' in name else name}:{port}/{f'?lang={lang.value}' if lang else ''}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _has_display() -> bool:
    linux = sys.platform.startswith("linux")
    return not linux or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
