"""Run once while an image is built: makes the installed packages small and quick to import.

    python3 prepare_packages.py FOLDER

Removes tests, packages that are never imported, of scikit-learn all but its data file, and the symbol tables
of JAX's library; compiles byte code that is never checked against its source again, because the image's root
is read-only and its file times are not those of the build.
"""

from __future__ import annotations

import compileall
import py_compile
import shutil
import struct
import sys
from pathlib import Path

DATA = "sklearn/datasets/data/digits.csv.gz"
# Needed by scikit-learn alone, and SciPy by JAX only for jax.scipy and the like. Together 150 MB that the
# reference program never imports; an image of your own that needs them leaves this line empty.
NEVER_IMPORTED = ("joblib", "narwhals", "cloudpickle", "threadpoolctl.py", "scipy", "scipy.libs")
# A third of this file is symbols that only a debugger reads.
WITH_SYMBOLS = ("jaxlib/libjax_common.so",)
ELF64_LITTLE_ENDIAN = b"\x7fELF\x02\x01"


def slim(folder: Path) -> None:
    """Remove what is never read at run time. The packages' metadata stays, as a list of what came in."""
    if (folder / DATA).is_file():
        content = (folder / DATA).read_bytes()
        for name in ("sklearn", "scikit_learn.libs", *NEVER_IMPORTED):
            path = folder / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        (folder / DATA).parent.mkdir(parents=True)
        (folder / DATA).write_bytes(content)
    for path in [*folder.rglob("tests"), *folder.rglob("__pycache__")]:
        if path.is_dir():
            shutil.rmtree(path)
    for name in WITH_SYMBOLS:
        if (folder / name).is_file():
            cut_symbols(folder / name)


def cut_symbols(library: Path) -> int:
    """Cut off what lies behind the last segment, and return how many bytes that was.

    Only segments are mapped when a library is loaded (elf(5), "Program header"); the symbol table and the
    section headers, which say where it is, lie behind them. A file of another kind or order stays as it is.
    """
    with library.open("r+b") as file:
        header = file.read(64)
        if len(header) < 64 or not header.startswith(ELF64_LITTLE_ENDIAN):
            return 0
        segments_at, sections_at = struct.unpack_from("<QQ", header, 32)
        entry_size, entries = struct.unpack_from("<HH", header, 54)
        file.seek(segments_at)
        table = file.read(entry_size * entries)
        end = segments_at + len(table)
        for number in range(entries):
            # p_offset and p_filesz of an Elf64_Phdr.
            offset, size = (struct.unpack_from("<Q", table, number * entry_size + at)[0] for at in (8, 32))
            end = max(end, offset + size)
        whole = library.stat().st_size
        if not end <= sections_at < whole:
            return 0
        # No section headers: where they are, how many, and which of them has their names.
        file.seek(40)
        file.write(struct.pack("<Q", 0))
        file.seek(60)
        file.write(struct.pack("<HH", 0, 0))
        file.truncate(end)
        return whole - end


def main() -> int:
    folder = Path(sys.argv[1])
    slim(folder)
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    # A package may ship a file for another Python version, which does not compile and is not imported either.
    compileall.compile_dir(folder, quiet=2, workers=0, invalidation_mode=mode)
    return 0


if __name__ == "__main__":
    sys.exit(main())
