"""The bytes of a data file: plain, compressed, or spooled from standard input."""

from __future__ import annotations

import io
import os
import tempfile
import weakref
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfileobj
from typing import TYPE_CHECKING, BinaryIO

from localjudge.errors import DataError

if TYPE_CHECKING:
    from pyarrow import NativeFile

COMPRESSIONS = {"gz": "gzip", "zst": "zstd"}
_BLOCK = 1 << 18  # bytes that are read at once


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of rows whose bytes can be read as often as asked.

    Attributes:
        path: The file; what errors call it.
        compression: `gzip` or `zstd`; None if its bytes are the rows themselves.
        spool: What holds the bytes, if they came from standard input.
    """

    path: Path
    compression: str | None = None
    spool: Spool | None = None

    def open(self) -> BinaryIO:
        """Open the file for reading from its start, decompressed.

        Raises:
            OSError: it cannot be opened. Reading raises DataError where an archive is damaged.
        """
        raw = self.path.open("rb") if self.spool is None else self.spool.open()
        if self.compression is None:
            return raw
        from pyarrow import CompressedInputStream

        unpacked = CompressedInputStream(raw, self.compression)
        return io.BufferedReader(_Unpacked(unpacked, raw, self.path), _BLOCK)


class _Unpacked(io.RawIOBase):
    """The content of an archive, whose faults become errors of ours."""

    def __init__(self, content: NativeFile, archive: BinaryIO, path: Path) -> None:
        self._content = content
        self._archive = archive
        self._path = path

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            data: bytes = self._content.read(len(buffer))
        except OSError as error:
            raise DataError(
                f"the archive is damaged, cut off or not one: {error}",
                path=self._path,
                hint="make or copy the file again",
            ) from None
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._content.close()
        self._archive.close()
        super().close()


class Spool:
    """A copy of a stream that can be read only once, in a temporary file without a name.

    The file lies where temporary files lie (`TMPDIR`). It is gone with this process, however that
    ends.

    Args:
        stream: The stream; it is read to its end.
        path: What errors call it.

    Raises:
        DataError: the stream cannot be read, or there is no room for the copy.
    """

    def __init__(self, stream: BinaryIO, path: Path) -> None:
        try:
            self._descriptor, name = tempfile.mkstemp(prefix="localjudge-")
            weakref.finalize(self, os.close, self._descriptor)
            os.unlink(name)
            with os.fdopen(os.dup(self._descriptor), "wb") as copy:
                copyfileobj(stream, copy, _BLOCK)
        except OSError as error:
            raise DataError(
                f"cannot be copied to a temporary file: {error.strerror or error}",
                path=path,
                hint="let the variable TMPDIR name a folder with room, or give a file",
            ) from error

    def open(self) -> BinaryIO:
        """Open the copy for reading from its start; each reading keeps its own place."""
        return io.BufferedReader(_Reading(self), _BLOCK)

    def read_at(self, place: int, size: int) -> bytes:
        """Return up to `size` bytes from `place` on."""
        return os.pread(self._descriptor, size, place)

    @property
    def size(self) -> int:
        """Number of bytes."""
        return os.fstat(self._descriptor).st_size


class _Reading(io.RawIOBase):
    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._place = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._spool.size}[whence]
        self._place = start + offset
        return self._place

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._spool.read_at(self._place, len(buffer))
        buffer[: len(data)] = data
        self._place += len(data)
        return len(data)
