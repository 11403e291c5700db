"""Files from the network, kept once they are whole."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import lzma
import os
import secrets
import zlib
from os import PathLike
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit
from urllib.request import Request, urlopen

from regard._version import __version__
from regard.errors import DataError, DownloadError
from regard.files import sha256_of_file

BLOCK_SIZE = 1 << 20


OPENERS: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open}


TIMEOUT_SECONDS = 30  # without a byte, before giving up


def cache_dir() -> Path:
    """Where downloads are kept: the folder named by REGARD_CACHE, or ~/.cache/regard."""
    return Path(os.environ.get("REGARD_CACHE") or Path.home() / ".cache" / "regard")


def download(
    url: str,
    sha256: str | None,
    cache_folder: str | PathLike[str] | None = None,
    *,
    checksum_unpacked: bool = False,
) -> Path:
    """The file at an address, downloaded unless it is there already, and never without its checksum.

    It gets its name only when it is whole and right, so that a download that was broken off leaves nothing
    behind, and two processes may fetch the same file. With `of_text` the checksum is that of what a .gz or .xz
    file holds, as packed files differ from packer to packer. Where a file changes now and then, and None is given,
    the checksum of the first download, or of a file that somebody put there, is written beside it (NAME.sha256), and
    holds from then on.
    """
    parts = urlsplit(url)
    name = Path(unquote(parts.path)).name
    if parts.scheme not in ("http", "https") or name in ("", ".."):
        raise DataError(f"{url} is not the http address of a file.")
    folder = cache_dir() if cache_folder is None else Path(cache_folder)
    path, note = folder / name, folder / f"{name}.sha256"
    wanted = _read_checksum(note) if sha256 is None else sha256.lower()
    if path.is_file():
        found = _compute_checksum(path, checksum_unpacked)
        if found == wanted:
            return path
        if wanted is None:
            return _write_checksum(note, path, found)
    part = folder / f".{name}.{os.getpid()}.{secrets.token_hex(4)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        found = _download_to(url, part)
        if checksum_unpacked:
            found = _compute_checksum(part, checksum_unpacked, path.suffix)
        if wanted not in (None, found):
            why = "it was changed there, or on the way; nothing was kept"
            other = f"; remove {note} to take it as it is now" if sha256 is None else ""
            raise DownloadError(f"{url} has SHA-256 {found[:12]}..., not {wanted[:12]}...: {why}{other}.")
        os.replace(part, path)
        if sha256 is None:
            _write_checksum(note, path, found)
    except DataError:
        raise
    except OSError as error:  # of the disk: those of the network are a DownloadError
        wrong = error.strerror or error
        raise DownloadError(
            f"{folder} cannot be written to ({wrong}); REGARD_CACHE can name another folder."
        ) from None
    finally:
        if part.exists():
            part.unlink()
    return path


def _read_checksum(checksum_file: Path) -> str | None:
    """The checksum that was written down at the first download, if there was one."""
    words = (
        checksum_file.read_text(encoding="utf-8", errors="replace").split() if checksum_file.is_file() else []
    )
    return words[0].lower() if words else None


def _write_checksum(checksum_file: Path, path: Path, checksum: str) -> Path:
    """Write the checksum of a file down, as sha256sum -c reads it."""
    checksum_file.write_text(f"{checksum}  {path.name}\n", encoding="utf-8")
    return path


def _download_to(url: str, path: Path) -> str:
    """Write what is at the address to a file; the SHA-256 of it."""
    digest, size = hashlib.sha256(), 0
    with open(path, "xb") as file, _open_url(url) as answer:
        while block := _read_block(answer, url):
            file.write(block)
            digest.update(block)
            size += len(block)
        length = answer.headers.get("Content-Length")
    if length is not None and size != int(length):
        raise DownloadError(f"{url} broke off after {size:,} of {int(length):,} bytes; try again.")
    return digest.hexdigest()


def _open_url(url: str) -> http.client.HTTPResponse:
    try:
        # some servers answer only those that call themselves so, as all browsers do
        agent = f"Mozilla/5.0 (compatible; regard/{__version__})"
        return urlopen(Request(url, headers={"User-Agent": agent}), timeout=TIMEOUT_SECONDS)
    except HTTPError as error:
        error.close()
        raise DownloadError(f"{url} was refused by its server: {error.code} {error.reason}.") from None
    except (OSError, http.client.HTTPException) as error:  # URLError is an OSError
        reason = getattr(error, "reason", None) or error
        raise DownloadError(f"{url} cannot be reached ({reason}); is there a network?") from None


def _read_block(response: http.client.HTTPResponse, url: str) -> bytes:
    try:
        return response.read(BLOCK_SIZE)
    except (OSError, http.client.HTTPException) as error:
        raise DownloadError(f"{url} broke off ({error}); try again.") from None


def _compute_checksum(path: Path, unpacked: bool = False, suffix: str | None = None) -> str:
    """The checksum of a file, or of the text packed in it; "" where it cannot be unpacked."""
    opener = OPENERS.get(path.suffix if suffix is None else suffix, open) if unpacked else open
    try:
        return sha256_of_file(path, opener)
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile):
        return ""
