"""Downloads with checksums, in a cache folder."""

from __future__ import annotations

import http.client
import os
import secrets
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit
from urllib.request import Request, urlopen

from regard._version import __version__
from regard.data.text_files import DECOMPRESSION_ERRORS, OPENERS
from regard.errors import DataError, DownloadError
from regard.files import replace_path, sha256_of_file

__all__ = ["cache_dir", "download"]

BLOCK_SIZE = 1 << 20
TIMEOUT_SECONDS = 30  # without a byte


def cache_dir() -> Path:
    """Return the folder of downloads: the environment variable REGARD_CACHE, or ~/.cache/regard.

    Returns:
        The folder.

    Example:
        >>> cache_dir().name in ("regard", Path(os.environ.get("REGARD_CACHE", "regard")).name)
        True
    """
    return Path(os.environ.get("REGARD_CACHE") or Path.home() / ".cache" / "regard")


def download(
    url: str, sha256: str | None, cache_folder: str | PathLike[str] | None = None, *, checksum_unpacked: bool = False
) -> Path:
    """Download a file and verify its checksum, unless it is in the cache already.

    The file gets its name only when it is complete and verified, so that an interrupted download leaves nothing behind
    and two processes may download the same file.

    Args:
        url: an http address.
        sha256: the checksum. `None`, for files that change now and then, records the checksum of the first download (or
            of a file that is there already) next to it (NAME.sha256), and verifies it from then on.
        cache_folder: the folder of the file, `cache_dir()` by default.
        checksum_unpacked: whether the checksum is that of the content of a .gz or .xz file: compressed files differ
            between compressors.

    Returns:
        The path of the file.

    Raises:
        DataError: the address is not one of a file.
        DownloadError: the download failed, or its checksum differs.

    Example:
        >>> download("https://example.org/a.gz", sha256="0" * 64)  # doctest: +SKIP
    """
    parts = urlsplit(url)
    name = Path(unquote(parts.path)).name
    if parts.scheme not in ("http", "https") or name in ("", ".."):
        raise DataError(f"{url} is not the http address of a file.")
    folder = cache_dir() if cache_folder is None else Path(cache_folder)
    path, checksum_file = folder / name, folder / f"{name}.sha256"
    expected = _read_checksum(checksum_file) if sha256 is None else sha256.lower()
    if path.is_file():
        checksum = _compute_checksum(path, checksum_unpacked)
        if checksum == expected:
            return path
        if expected is None:
            return _write_checksum(checksum_file, path, checksum)
    temporary = folder / f".{name}.{os.getpid()}.{secrets.token_hex(4)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with open(temporary, "xb") as file:
            file.writelines(_iter_blocks(url))
        checksum = _compute_checksum(temporary, checksum_unpacked, path.suffix)
        if expected not in (None, checksum):
            reason = "the file changed, or was damaged on the way; nothing was kept"
            remedy = f"; remove {checksum_file} to accept the new file" if sha256 is None else ""
            raise DownloadError(f"{url} has SHA-256 {checksum[:12]}..., not {expected[:12]}...: {reason}{remedy}.")
        replace_path(temporary, path)
        if sha256 is None:
            _write_checksum(checksum_file, path, checksum)
    except DataError:
        raise
    except OSError as error:  # of the disk: errors of the network are a DownloadError
        problem = f"{folder} cannot be written to ({error.strerror or error})"
        raise DownloadError(f"{problem}; REGARD_CACHE can name another folder.") from None
    finally:
        if temporary.exists():
            temporary.unlink()
    return path


def _read_checksum(checksum_file: Path) -> str | None:
    """Read the checksum of the first download, if there was one."""
    text = checksum_file.read_text(encoding="utf-8", errors="replace") if checksum_file.is_file() else ""
    return text.split()[0].lower() if text.strip() else None


def _write_checksum(checksum_file: Path, path: Path, checksum: str) -> Path:
    """Write the checksum of a file in the format of sha256sum."""
    checksum_file.write_text(f"{checksum}  {path.name}\n", encoding="utf-8")
    return path


def _iter_blocks(url: str) -> Iterator[bytes]:
    """Download a file in blocks; every error of the network is a DownloadError."""
    # some servers answer only clients that name themselves Mozilla, as all browsers do
    request = Request(url, headers={"User-Agent": f"Mozilla/5.0 (compatible; regard/{__version__})"})
    response, size = None, 0
    try:
        with urlopen(request, timeout=TIMEOUT_SECONDS) as response:
            while block := response.read(BLOCK_SIZE):
                size += len(block)
                yield block
    except HTTPError as error:
        error.close()
        raise DownloadError(f"{url} was refused by its server: {error.code} {error.reason}.") from None
    except (OSError, http.client.HTTPException) as error:  # URLError is an OSError
        if response is not None:
            raise DownloadError(f"{url} broke off ({error}); try again.") from None
        reason = getattr(error, "reason", None) or error
        raise DownloadError(f"{url} cannot be reached ({reason}); is there a network?") from None
    if (length := response.headers.get("Content-Length")) is not None and size != int(length):
        raise DownloadError(f"{url} broke off after {size:,} of {int(length):,} bytes; try again.")


def _compute_checksum(path: Path, unpacked: bool = False, suffix: str | None = None) -> str:
    """Compute the checksum of a file, or of the content of a compressed one; "" if it cannot be decompressed."""
    opener = OPENERS.get(path.suffix if suffix is None else suffix, open) if unpacked else open
    try:
        return sha256_of_file(path, opener)
    except DECOMPRESSION_ERRORS:
        return ""
