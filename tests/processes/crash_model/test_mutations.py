"""The harness that makes mistakes on purpose: what it makes, what it says, and a few mistakes for real."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import mutations
from bench.mutation_list import MUTATIONS, PODS, Mutation

BY_NAME = {mutation.name: mutation for mutation in MUTATIONS}
CHECKOUT = Path(__file__).resolve().parents[3]


def test_every_mutation_still_fits_the_code_and_can_be_compiled() -> None:
    for mutation in MUTATIONS:
        text = (CHECKOUT / "trainer" / "recovery" / mutation.file).read_text()
        changed = mutations.mutated(text, mutation.edits, mutation.name)
        compile(changed, mutation.file, "exec")
        assert changed != text, mutation.name


def test_names_are_told_apart_and_every_file_of_tests_is_there() -> None:
    assert len(BY_NAME) == len(MUTATIONS)
    files = {test for mutation in MUTATIONS for test in mutation.tests}
    assert [test for test in sorted(files) if not (CHECKOUT / test).is_file()] == []


@pytest.mark.parametrize("old", ["no such text", "import os\n"])
def test_a_mutation_that_does_not_fit_exactly_once_is_an_error(tmp_path: Path, old: str) -> None:
    path = tmp_path / "trainer" / "recovery" / "files.py"
    path.parent.mkdir(parents=True)
    path.write_text("import os\nimport os\n")
    with pytest.raises(mutations.DoesNotFit, match="times instead of once"):
        mutations.apply(Mutation("of a former code", "files.py", ((old, "new"),)), tmp_path)


# One for each kind, narrowed to what catches it: to try all of them is for bench/mutations.py.
QUICK = {
    "a checkpoint's name is not flushed": "first and save",
    "hashes are not verified on restore": "past and bad",
    "the result is written over": "two_finishers and not no",
    "a failed save ends the training": "once and EIO and single",
    "exit 0 on SIGTERM completes the Job": "sigterm",
}


@pytest.mark.parametrize("name", QUICK)
def test_a_mistake_is_caught_and_named(name: str) -> None:
    judged = mutations.judge(BY_NAME[name], QUICK[name])
    assert judged.caught_by.startswith("test_"), "it survived"
    table = mutations.table([judged])
    assert name in table and judged.caught_by in table


def test_what_changes_nothing_survives_and_is_told_so() -> None:
    same = Mutation(
        "nothing", "exit_codes.py", (("    if child in FINAL:\n", "    if child in (*FINAL,):\n"),), PODS
    )
    judged = mutations.judge(same, "settings")
    assert judged.caught_by == "" and "**SURVIVED**" in mutations.table([judged])


def test_the_document_has_every_mutation_and_names_what_caught_it() -> None:
    _, _, rest = mutations.DOCUMENT.read_text().partition(mutations.BEGIN)
    written, end, _ = rest.partition(mutations.END)
    assert end and "SURVIVED" not in written
    rows = [line.split("|")[1].strip() for line in written.splitlines() if line.startswith("|")][2:]
    assert rows == list(BY_NAME), "write it again: python bench/mutations.py --write"
