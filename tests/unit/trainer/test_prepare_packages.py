"""What the image leaves out of the packages is nothing that a program reads."""

from __future__ import annotations

import ctypes
import shutil
import struct
from pathlib import Path

import grpc._cython.cygrpc
import pytest

from trainer.prepare_packages import cut_symbols

LIBRARY = Path(grpc._cython.cygrpc.__file__)


@pytest.fixture
def library(tmp_path: Path) -> Path:
    return Path(shutil.copy(LIBRARY, tmp_path / "library.so"))


def test_a_library_without_its_symbols_is_smaller_and_is_loaded_as_before(library: Path) -> None:
    before = library.stat().st_size
    cut = cut_symbols(library)
    assert cut > 0
    assert library.stat().st_size == before - cut
    assert ctypes.CDLL(str(library)).PyInit_cygrpc


def test_nothing_is_left_to_cut_the_second_time(library: Path) -> None:
    cut_symbols(library)
    assert cut_symbols(library) == 0
    assert ctypes.CDLL(str(library)).PyInit_cygrpc


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x7fELF",
        b"#!/bin/sh\n" * 20,
        b"\x7fELF\x01\x01" + bytes(200),  # 32 bits
        b"\x7fELF\x02\x02" + bytes(200),  # big-endian
        b"\x7fELF\x02\x01" + bytes(26) + struct.pack("<QQ", 64, 10) + bytes(100),  # section headers in front
    ],
    ids=["empty", "cut off", "a script", "32 bits", "big-endian", "sections in front"],
)
def test_a_file_of_another_kind_stays_as_it_is(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    assert cut_symbols(file) == 0
    assert file.read_bytes() == content
