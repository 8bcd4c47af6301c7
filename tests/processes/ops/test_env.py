"""What `./holdfast env` prints, read by a real shell."""

from __future__ import annotations

import subprocess

from hypothesis import given, settings
from hypothesis import strategies as st

from ops.verbs.env import render

NAME = st.from_regex(r"HF_[A-Z]{1,8}", fullmatch=True)
VALUE = st.text(st.characters(exclude_characters="\0", codec="utf-8", exclude_categories=["Cs"]), max_size=40)


@settings(max_examples=8, deadline=None)
@given(st.dictionaries(NAME, VALUE, min_size=1, max_size=3))
def test_a_shell_that_evaluates_env_has_the_very_values(values: dict[str, str]) -> None:
    script = render(values, "bash") + "\n" + "".join(f'printf "%s\\0" "${name}"\n' for name in sorted(values))
    shown = subprocess.run(["/bin/sh"], input=script.encode(), capture_output=True, check=True).stdout
    assert shown.split(b"\0")[:-1] == [values[name].encode() for name in sorted(values)]
