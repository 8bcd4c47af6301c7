"""The command line: verbs, exit codes, quoting, and errors as sentences."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from ops import cli
from ops.errors import OpsError, describe
from ops.exit_codes import MEANING, ExitCode
from ops.runs import Phase, RunView
from ops.verbs import down as down_verb
from ops.verbs.env import render
from ops.verbs.logs import choose
from ops.verbs.status import QuotaView, node_view, quota_views
from ops.verbs.test import MOST_PROCESSES, Tier, counts, side_by_side, state_dir_of_tests
from ops.verbs.up import already_over
from rehearsal.errors import RehearsalError

VERBS = (
    "up", "status", "logs", "preview", "env", "cancel", "retry", "accept", "recover", "test", "down", "version",
)  # fmt: skip


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = cli.main(words)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_help_names_every_verb_and_every_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = told(capsys, "--help")
    assert code == 0
    assert all(f"\n  {verb} " in out for verb in VERBS)
    flat = " ".join(out.split())
    assert all(f"{int(one)} {text}" in flat for one, text in MEANING.items())


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_its_own_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = told(capsys, verb, "--help")
    assert (code, out.splitlines()[0].startswith(f"Usage: holdfast {verb}")) == (0, True)


@pytest.mark.parametrize(
    "words",
    [
        ["upp"],
        ["logs"],
        ["status", "--bogus"],
        ["test", "--tier", "all-of-it"],
        ["env", "--shell", "tcsh"],
        ["accept", "--clean", "--verify", "x.json"],
    ],
)
def test_a_wrong_command_line_is_told_without_a_traceback(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = told(capsys, *words)
    assert code == ExitCode.USAGE
    assert "Error:" in err and "Traceback" not in err


def test_a_stack_that_does_not_exist_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = told(capsys, "status", "--stack", "nowhere")
    assert (code, err.splitlines()[0]) == (ExitCode.USAGE, "There is no stack file Pulumi.nowhere.yaml.")


def test_the_environment_names_the_stack_as_it_does_for_pulumi(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULUMI_STACK", "from-the-shell")
    assert "Pulumi.from-the-shell.yaml" in told(capsys, "status")[2]
    assert "Pulumi.named.yaml" in told(capsys, "status", "--stack", "named")[2]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OpsError("It failed.", "Mend it.", ExitCode.NOT_READY), ExitCode.NOT_READY),
        (RehearsalError("No cluster.", "Run up."), ExitCode.UNAVAILABLE),
        (KeyboardInterrupt(), ExitCode.INTERRUPTED),
        (ZeroDivisionError("by zero"), ExitCode.INTERNAL),
        (PermissionError(13, "Permission denied", "/var/lib/holdfast/x"), ExitCode.UNAVAILABLE),
        (OSError(errno.EROFS, "Read-only file system", "/var/lib/holdfast/x"), ExitCode.UNAVAILABLE),
        (OSError(errno.ENOSPC, "No space left on device"), ExitCode.UNAVAILABLE),
        (OSError(errno.ENOTDIR, "Not a directory", "/dev/null/x"), ExitCode.UNAVAILABLE),
        (OSError(errno.EBADF, "Bad file descriptor"), ExitCode.INTERNAL),
    ],
)
def test_whatever_fails_ends_in_a_sentence_and_its_code(
    error: BaseException, code: ExitCode, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_name: str) -> None:
        raise error

    monkeypatch.setattr(cli, "load_stack", broken)
    monkeypatch.delenv("HOLDFAST_DEBUG", raising=False)
    ended, _, err = told(capsys, "status")
    assert ended == code
    assert err.strip() == describe(error)[0] and "Traceback" not in err


def test_the_traceback_of_a_fault_of_ours_is_shown_on_demand(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_name: str) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(cli, "load_stack", broken)
    monkeypatch.setenv("HOLDFAST_DEBUG", "1")
    assert "Traceback" in told(capsys, "status")[2]


def test_every_exit_code_has_a_meaning() -> None:
    assert set(MEANING) == set(ExitCode)


def test_down_refuses_a_stack_that_is_not_on_the_rehearsal(tmp_path: Path) -> None:
    from ops.stacks import Stack

    prod = Stack(
        "prod",
        tmp_path / "Pulumi.prod.yaml",
        {"holdfast:cluster": {"kubeconfig": "~/.kube/config", "context": "p"}},
    )
    with pytest.raises(OpsError, match="pulumi destroy --stack prod") as caught:
        down_verb.down(prod, yes=True, tests=False)
    assert caught.value.code is ExitCode.USAGE


def test_fish_gets_its_own_quoting_and_path_as_a_list() -> None:
    assert render({"A": "it's a \\ b", "PATH": "/x y:/z"}, "fish") == (
        "set -gx A 'it\\'s a \\\\ b';\nset -gx PATH '/x y' '/z';"
    )


PODS = [{"metadata": {"name": name}} for name in ("p-1", "p-2", "p-3")]


def test_logs_are_of_the_newest_pod_the_one_before_or_all() -> None:
    assert choose(PODS, "r", previous=False, every=False) == PODS[2:]
    assert choose(PODS, "r", previous=True, every=False) == PODS[1:2]
    assert choose(PODS, "r", previous=False, every=True) == PODS


def test_logs_of_a_run_without_the_pod_asked_for_say_so() -> None:
    with pytest.raises(OpsError, match="has no Pod now"):
        choose([], "r", previous=False, every=False)
    with pytest.raises(OpsError, match="one Pod of run r only; there is no previous one"):
        choose(PODS[:1], "r", previous=True, every=False)


def test_a_node_is_shown_with_usable_and_found_gpus_and_its_taints() -> None:
    view = node_view(
        {
            "metadata": {"name": "gpu-0"},
            "spec": {
                "unschedulable": True,
                "taints": [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}],
            },
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "capacity": {"nvidia.com/gpu": "2"},
                "allocatable": {"nvidia.com/gpu": "1"},
            },
        }
    )
    assert (view.ready, view.schedulable, view.gpus_allocatable, view.gpus_capacity) == (True, False, 1, 2)
    assert view.taints == ["dedicated=gpu:NoSchedule"]


def test_a_quota_that_is_not_counted_yet_shows_zero_used() -> None:
    quota = {"metadata": {"namespace": "a", "name": "gpu-budget"}, "status": {"hard": {"pods": "10"}}}
    assert quota_views([quota, {"metadata": {"namespace": "b", "name": "new"}}]) == [
        QuotaView("a", "gpu-budget", "pods", "0", "10")
    ]


def test_a_run_that_ended_before_this_up_was_not_repeated() -> None:
    from datetime import UTC, datetime

    view = RunView("r", "n", "j", Phase.COMPLETE, "", ended="2026-01-02T03:04:05Z")
    assert already_over(view, datetime(2026, 1, 2, 4, tzinfo=UTC))
    assert not already_over(view, datetime(2026, 1, 2, 3, tzinfo=UTC))
    assert not already_over(RunView("r", "n", "j", Phase.RUNNING, ""), datetime(2026, 1, 2, 4, tzinfo=UTC))


def test_tests_are_counted_from_the_junit_file(tmp_path: Path) -> None:
    report = tmp_path / "unit.xml"
    report.write_text('<testsuites><testsuite tests="7" failures="1" errors="1" skipped="1"/></testsuites>')
    assert counts(report) == (4, 2, 1)
    assert counts(tmp_path / "none.xml") == (0, 0, 0)


def test_the_test_cluster_never_shares_a_state_folder_with_a_persons(monkeypatch: pytest.MonkeyPatch) -> None:
    from rehearsal import state

    monkeypatch.delenv("HOLDFAST_STATE", raising=False)
    assert state_dir_of_tests() != state.state_dir()
    assert state_dir_of_tests(Path("/a")) != state_dir_of_tests(Path("/b"))


def test_tests_run_in_a_process_per_core_unless_they_share_a_cluster_or_somebody_debugs_one() -> None:
    assert side_by_side(Tier.UNIT, [], cores=2) == ["-n", "2", "--dist", "worksteal"]
    assert side_by_side(Tier.CLI, ["-k", "name"], cores=64)[1] == str(MOST_PROCESSES)
    for tier, extra, cores in (
        (Tier.REHEARSAL, [], 8),
        (Tier.UNIT, [], 1),
        (Tier.UNIT, ["--pdb"], 8),
    ):
        assert side_by_side(tier, extra, cores) == []
