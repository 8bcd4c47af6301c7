"""The entry script with a real environment: made once, repaired when broken, safe when two run at once."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A small checkout: the real entry script, one package pinned by hash, an `ops` that imports it."""
    (tmp_path / "ops").mkdir()
    shutil.copy(ROOT / "holdfast", tmp_path / "holdfast")
    shutil.copy(ROOT / "ops" / "bootstrap.py", tmp_path / "ops" / "bootstrap.py")
    (tmp_path / "ops" / "__main__.py").write_text("import demo_package; print(demo_package.WORD)\n")
    wheel = _wheel(tmp_path / "wheels", "1.0", "installed")
    _require(tmp_path, "1.0", wheel)
    return tmp_path


def _wheel(folder: Path, version: str, word: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"demo_package-{version}-py3-none-any.whl"
    info = f"demo_package-{version}.dist-info"
    files = {
        "demo_package.py": f"WORD = {word!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: demo-package\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = (
        "".join(f"{name},{_hash(text)},{len(text)}\n" for name, text in files.items()) + f"{info}/RECORD,,\n"
    )
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(name, text)
    return path


def _hash(text: str) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
    return f"sha256={digest.decode().rstrip('=')}"


def _require(checkout: Path, version: str, wheel: Path) -> None:
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (checkout / "requirements.txt").write_text(f"demo-package=={version} \\\n    --hash=sha256:{digest}\n")


def start(checkout: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(checkout / "wheels")}
    return subprocess.Popen(
        [str(checkout / "holdfast")],
        cwd="/",
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(checkout: Path) -> tuple[int, str, str]:
    process = start(checkout)
    out, err = process.communicate(timeout=200)
    return process.returncode, out, err


def test_the_environment_is_made_once_and_again_only_when_it_must_be(checkout: Path) -> None:
    code, out, err = run(checkout)
    assert (code, out) == (0, "installed\n"), err
    assert "Installing the Python packages" in err
    assert run(checkout) == (0, "installed\n", "")

    wheel = _wheel(checkout / "wheels", "1.1", "newer")
    _require(checkout, "1.1", wheel)
    code, out, err = run(checkout)
    assert (code, out) == (0, "newer\n"), err

    # As an interruption leaves it: some files, no stamp.
    (checkout / ".venv" / "holdfast-requirements.json").unlink()
    next(checkout.glob(".venv/lib/*/site-packages/demo_package.py")).unlink()
    code, out, err = run(checkout)
    assert (code, out) == (0, "newer\n"), err
    assert "Making .venv anew" in err


def test_two_at_once_make_one_environment(checkout: Path) -> None:
    both = [start(checkout), start(checkout)]
    answers = [process.communicate(timeout=200) for process in both]
    assert [process.returncode for process in both] == [0, 0], answers
    assert [out for out, _ in answers] == ["installed\n", "installed\n"]
    assert sum("Installing the Python packages of requirements.txt (" in err for _, err in answers) == 1


def test_a_package_of_another_content_is_refused_and_not_trusted_later(checkout: Path) -> None:
    text = (checkout / "requirements.txt").read_text()
    (checkout / "requirements.txt").write_text(text[:-65] + "0" * 64 + "\n")
    for _ in range(2):
        code, out, err = run(checkout)
        assert (code, out) == (4, "")
        assert "could not be installed" in err and "Traceback" not in err
