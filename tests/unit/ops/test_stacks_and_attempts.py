"""Which stack and cluster a verb works on, and what `cancel` and `retry` declare."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from ops.errors import OpsError
from ops.exit_codes import ExitCode
from ops.pulumi_cli import Pulumi
from ops.runs import Phase, RunView
from ops.stacks import REHEARSAL_STAND_IN, ROOT, Stack, Target, check, load_stack, run_names, target
from ops.verbs.attempts import find, next_attempt, refuse_needless

REHEARSAL = """\
config:
  holdfast:cluster: {kubeconfig: "${HOLDFAST_KUBECONFIG}", context: holdfast-rehearsal}
  holdfast:runs:
    - {id: run-001, attempt: 2}
    - {id: run-002}
"""
OTHER = "config:\n  holdfast:cluster: {kubeconfig: ~/.kube/config, context: prod}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "Pulumi.yaml").write_text("name: holdfast\nruntime: python\n")
    (tmp_path / "Pulumi.dev.yaml").write_text(REHEARSAL)
    (tmp_path / "Pulumi.prod.yaml").write_text(OTHER)
    return tmp_path


def test_a_stack_is_on_the_rehearsal_by_what_it_says_and_not_by_its_name(folder: Path) -> None:
    assert load_stack("dev", folder).rehearsal
    assert not load_stack("prod", folder).rehearsal
    (folder / "Pulumi.dev.yaml").write_text(OTHER)
    assert not load_stack("dev", folder).rehearsal


def test_a_stack_without_a_file_lists_those_there_are(folder: Path) -> None:
    with pytest.raises(
        OpsError, match="There is no stack file Pulumi.staging.yaml.\nStacks here: dev, prod."
    ) as caught:
        load_stack("staging", folder)
    assert caught.value.code is ExitCode.USAGE


def test_a_fully_qualified_stack_name_finds_its_file(folder: Path) -> None:
    assert load_stack("acme/holdfast/prod", folder).file.name == "Pulumi.prod.yaml"


def test_a_file_that_is_not_yaml_is_told_with_line_and_column(folder: Path) -> None:
    (folder / "Pulumi.dev.yaml").write_text("config:\n  a: [1\n  b: 2\n")
    with pytest.raises(OpsError, match=r"Pulumi.dev.yaml, line 3, column \d+ is not YAML"):
        load_stack("dev", folder)


def test_a_key_that_stands_twice_is_told_with_its_line(folder: Path) -> None:
    (folder / "Pulumi.dev.yaml").write_text("config:\n  holdfast:runs:\n    - attempt: 1\n      attempt: 2\n")
    with pytest.raises(OpsError, match="line 4, column 7 is not YAML: the key attempt stands twice"):
        load_stack("dev", folder)


def test_a_file_in_another_encoding_is_told(folder: Path) -> None:
    (folder / "Pulumi.dev.yaml").write_bytes("config: {}\n".encode("utf-16"))
    with pytest.raises(OpsError, match="Pulumi.dev.yaml is not UTF-8 text"):
        load_stack("dev", folder)


def test_a_number_as_a_key_of_the_block_breaks_nothing(folder: Path) -> None:
    (folder / "Pulumi.dev.yaml").write_text("config:\n  5: x\n  holdfast:runs: []\n")
    assert load_stack("dev", folder).config == {"5": "x", "holdfast:runs": []}


@pytest.mark.parametrize("text", ["", "config: 3\n", "- a\n", "runs: {}\n"])
def test_a_file_without_a_config_block_is_told(folder: Path, text: str) -> None:
    (folder / "Pulumi.dev.yaml").write_text(text)
    with pytest.raises(OpsError, match="has no `config:` block"):
        load_stack("dev", folder)


def test_runs_are_listed_in_the_order_of_the_file(folder: Path) -> None:
    assert run_names(load_stack("dev", folder)) == ["run-001", "run-002"]
    assert run_names(load_stack("prod", folder)) == []


def test_a_run_is_found_by_its_place_in_the_list(folder: Path) -> None:
    index, found = find(load_stack("dev", folder), "run-002")
    assert (index, next_attempt(found)) == (1, 2)
    assert next_attempt(find(load_stack("dev", folder), "run-001")[1]) == 3


def test_a_run_that_is_not_declared_lists_those_that_are(folder: Path) -> None:
    with pytest.raises(OpsError, match="declares no run run-9.\nIts runs: run-001, run-002."):
        find(load_stack("dev", folder), "run-9")


def test_an_attempt_that_is_no_number_is_refused() -> None:
    with pytest.raises(OpsError, match="The attempt of run a is 'two'"):
        next_attempt({"id": "a", "attempt": "two"})


VIEW = RunView("run-001", "ml-batch", "training-run-001", Phase.RUNNING, "step 3")


def test_a_retry_of_a_working_run_is_refused_for_it_would_replace_it() -> None:
    with pytest.raises(OpsError, match="A new attempt would replace it") as caught:
        refuse_needless("run-001", VIEW, cancelled=False)
    assert caught.value.code is ExitCode.USAGE


def test_a_retry_of_a_complete_run_is_refused_for_its_result_stands() -> None:
    with pytest.raises(OpsError, match="is complete; another attempt would find its result"):
        refuse_needless("run-001", replace(VIEW, phase=Phase.COMPLETE), cancelled=False)


@pytest.mark.parametrize("view", [None, replace(VIEW, phase=Phase.FAILED)])
def test_a_failed_or_vanished_run_may_be_retried(view: RunView | None) -> None:
    refuse_needless("run-001", view, cancelled=False)


FAKE = """\
#!/bin/sh
echo "$PWD|$*" >> "$CALLS"
case "$*" in
  "stack select dev"*) [ -e "$MADE" ] || { echo "error: no stack named 'dev' found" >&2; exit 1; } ;;
  "stack init dev"*) touch "$MADE"; echo "encryptionsalt: v1:x" > Pulumi.dev.yaml ;;
  "stack output"*) echo '{"environment": "dev"}' ;;
  "config set"*) echo "error: it is locked" >&2; exit 255 ;;
esac
"""


@pytest.fixture
def pulumi(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Pulumi:
    tools = tmp_path_factory.mktemp("tools")
    program = tools / "pulumi"
    program.write_text(FAKE)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    env = {
        "PATH": f"{tools}:/usr/bin:/bin",
        "CALLS": str(tools / "calls"),
        "MADE": str(tools / "made"),
        "PULUMI_BACKEND_URL": f"file://{tools}/state/backend",
        "PULUMI_HOME": f"{tools}/state/home",
    }
    return Pulumi(load_stack("dev", folder), env, folder)


def calls(pulumi: Pulumi) -> list[str]:
    return Path(pulumi.env["CALLS"]).read_text().splitlines()


def test_a_new_stack_is_made_beside_a_copy_so_that_the_tracked_file_gets_no_salt(
    pulumi: Pulumi, folder: Path
) -> None:
    pulumi.ensure_rehearsal_stack()
    assert (folder / "Pulumi.dev.yaml").read_text() == REHEARSAL
    folders = [Path(call.split("|")[0]) for call in calls(pulumi)]
    assert folders[0] == folders[2] == folder
    assert folders[1] != folder and not folders[1].exists()
    assert Path(pulumi.env["PULUMI_BACKEND_URL"].removeprefix("file://")).is_dir()


def test_an_existing_stack_is_only_selected(pulumi: Pulumi) -> None:
    pulumi.ensure_rehearsal_stack()
    before = len(calls(pulumi))
    pulumi.ensure_rehearsal_stack()
    assert [call.split("|")[1] for call in calls(pulumi)[before:]] == ["stack select dev --non-interactive"]


def test_up_and_preview_name_the_stack_and_the_pack_whatever_is_current(pulumi: Pulumi, folder: Path) -> None:
    assert pulumi.up(["--refresh"]) == 0
    assert pulumi.preview(["--diff"]) == 0
    common = f"--stack dev --policy-pack {folder}/policies"
    assert [call.split("|")[1] for call in calls(pulumi)] == [
        f"up --yes --suppress-outputs {common} --refresh",
        f"preview {common} --diff",
    ]


def test_a_refusal_of_pulumi_is_told_in_its_own_words(pulumi: Pulumi) -> None:
    with pytest.raises(OpsError, match="attempt could not be written to Pulumi.dev.yaml: it is locked"):
        pulumi.set_config("holdfast:runs[0].attempt", "2")


def test_outputs_are_read_as_plain_values(pulumi: Pulumi) -> None:
    assert pulumi.outputs() == {"environment": "dev"}


def test_a_machine_without_pulumi_gets_a_sentence(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "cache"))
    stack: Stack = load_stack("prod", folder)
    with pytest.raises(OpsError, match="There is no pulumi on PATH") as caught:
        Pulumi(stack, {"PATH": str(tmp_path)}, folder)
    assert caught.value.code is ExitCode.UNAVAILABLE


def test_encrypted_values_of_the_file_do_not_stand_in_the_way_of_reading_the_cluster(folder: Path) -> None:
    text = (ROOT / "Pulumi.dev.yaml").read_text().replace("${HOLDFAST_KUBECONFIG}", "/home/me/kubeconfig")
    text = text.replace("env: {", "env: {TOKEN: {secure: v1:abc}, ")
    assert "secure" in text
    (folder / "Pulumi.lab.yaml").write_text(text)
    assert target(load_stack("lab", folder), REHEARSAL_STAND_IN) == Target(
        "/home/me/kubeconfig", "holdfast-rehearsal"
    )


def test_the_tracked_stack_passes_the_check_that_comes_before_a_cluster_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("HOLDFAST_KUBECONFIG", "HOLDFAST_TRAINER_IMAGE", "HOLDFAST_OPERATOR_IMAGE"):
        monkeypatch.delenv(name, raising=False)
    check(load_stack("dev", ROOT))
