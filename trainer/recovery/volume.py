"""Whether the volume is to blame when a program's own writing fails: frameworks hide the system's error."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

from trainer.recovery.files import write_new

# What a volume says that is full, broken, gone, or read-only by now.
VOLUME = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.EROFS, errno.EFBIG)
_BY_TEXT = {os.strerror(number).casefold(): number for number in VOLUME}
PROBE_BYTES = 64 * 1024


def call_writer(write: Callable[[Path], None], folder: Path) -> None:
    """Call `write(folder)`; an exception of any type that the volume caused is raised as an OSError.

    safetensors raises its own type with the system's words in the text, PyTorch's zip writer a RuntimeError
    without them.
    """
    try:
        write(folder)
    except OSError:
        raise
    except Exception as error:
        number = _number_in(error) or _probe(folder)
        if number is None:
            raise
        raise OSError(number, os.strerror(number)) from error


def reason_of(error: OSError) -> str:
    """The system's words and the error's name."""
    name = errno.errorcode.get(error.errno or 0, "error")
    return f"{error.strerror or error} ({name})"


def _number_in(error: BaseException | None) -> int | None:
    """The volume's error that an exception was raised from, or that its text tells."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, OSError) and error.errno in VOLUME:
            return error.errno
        text = str(error).casefold()
        for words, number in _BY_TEXT.items():
            if words in text:
                return number
        error = error.__cause__ or error.__context__
    return None


def _probe(folder: Path) -> int | None:
    """The error of writing a little beside what was written so far, as on a volume that is full."""
    try:
        write_new(folder / "probe", bytes(PROBE_BYTES))
        os.unlink(folder / "probe")
    except FileExistsError:
        return None
    except OSError as error:
        return error.errno
    return None
