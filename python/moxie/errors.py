# SPDX-License-Identifier: Apache-2.0
"""Exceptions: one class for each status of the C library, all of them moxie.Error."""


class Error(Exception):
    """What the library or the binding refused, in words: what was asked, what was found, which limit failed, what to try.

    status  the C status as one word: "argument", "unsupported", "memory", "io", "format", "mismatch", "timeout"
    text    the message without the file
    file    the file that it is about, or ""
    offset  the byte in that file, or -1
    """

    status = ""
    text = ""
    file = ""
    offset = -1


class ArgumentError(Error, ValueError):
    """The caller broke a rule: a wrong shape, dtype, stride or device, a name that does not exist."""

    status = "argument"


class Unsupported(Error):
    """Well formed, but nothing here can run it; the text says what would."""

    status = "unsupported"


class OutOfMemory(Error, MemoryError):
    """An allocation failed."""

    status = "memory"


class FileError(Error, OSError):
    """The system refused to open, read, write or rename a file."""

    status = "io"


class FormatError(Error, ValueError):
    """A file's content is malformed or contradicts itself."""

    status = "format"


class Mismatch(Error, ValueError):
    """Two things that must agree do not: shapes, dtypes, a checksum."""

    status = "mismatch"


class TimedOut(Error, TimeoutError):
    """A callback ended the call, or another rank is late or dead."""

    status = "timeout"


_classes = {c.status: c for c in (ArgumentError, Unsupported, OutOfMemory, FileError, FormatError, Mismatch, TimedOut)}


def _make(status, text, file, offset):
    """Called by the C part."""
    error = _classes.get(status, Error)(f"{file}: {text}" if file else text)
    error.status, error.text, error.file, error.offset = status, text, file, offset
    return error
