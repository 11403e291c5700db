"""The files of the explorer, by the addresses they have: a fixed table, so that no other file can be asked for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from fastapi import APIRouter
from fastapi.responses import Response

from regard.errors import RequestError

TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
SHELVES = {"web": "regard.viewing", "explorer": "regard.serving"}  # in each room, the folder web

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True)
class File:
    type: str
    content: bytes


@cache
def table() -> dict[str, File]:
    """Every file that is served, with its type."""
    found: dict[str, File] = {}
    for shelf, room in SHELVES.items():
        for file in files(room).joinpath("web").iterdir():
            ending = "." + file.name.rpartition(".")[2]
            if ending in TYPES:
                found[f"{shelf}/{file.name}"] = File(TYPES[ending], file.read_bytes())
    return found


@router.get("/")
async def explorer() -> Response:
    return _found("explorer/index.html")


@router.get("/web/{name}")
async def shared(name: str) -> Response:
    return _found(f"web/{name}")


@router.get("/explorer/{name}")
async def own(name: str) -> Response:
    return _found(f"explorer/{name}")


def _found(name: str) -> Response:
    file = table().get(name)
    if file is None:
        raise RequestError(404, "not_found", "There is nothing at this address.")
    return Response(file.content, media_type=file.type, headers={"Cache-Control": "no-cache"})
