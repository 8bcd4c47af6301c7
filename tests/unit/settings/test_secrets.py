"""What may be a secret is never printed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Problems = Callable[..., list[str]]


def test_the_value_of_an_environment_variable_is_hidden(sound: dict[str, Any], problems_of: Problems) -> None:
    sound["runs"][0]["env"] = {"WANDB_KEY": 123456}
    assert problems_of(sound) == [
        "holdfast:runs[0].env.WANDB_KEY = (hidden)\n    YAML reads it as a number, and text is needed.\n"
        '    Fix: put it in quotes.'
    ]


def test_the_content_of_a_kubeconfig_is_refused_and_not_repeated(
    sound: dict[str, Any], problems_of: Problems
) -> None:
    sound["cluster"]["kubeconfig"] = "apiVersion: v1\nusers: [{user: {token: s3cr3t}}]\n"
    assert problems_of(sound) == [
        "holdfast:cluster.kubeconfig = (hidden)\n    This is the content of a kubeconfig, not its path: it"
        " would go into the state and change with every certificate.\n    Fix: write the file's path, such as"
        " ${HOME}/.kube/config."
    ]


def test_a_kubeconfig_as_json_on_one_line_is_not_repeated_either(
    sound: dict[str, Any], problems_of: Problems
) -> None:
    sound["cluster"]["kubeconfig"] = '{"apiVersion": "v1", "users": [{"user": {"token": "s3cr3t"}}]}'
    (told,) = problems_of(sound)
    assert "s3cr3t" not in told
    assert told.startswith("holdfast:cluster.kubeconfig = (hidden)\n")


def test_what_stands_under_an_unknown_key_is_not_repeated(
    sound: dict[str, Any], problems_of: Problems
) -> None:
    sound["cluster"]["password"] = "hunter2"
    sound["database"] = {"password": "hunter2"}
    told = "\n".join(problems_of(sound))
    assert "holdfast:cluster.password" in told
    assert "holdfast:database" in told
    assert "hunter2" not in told


def test_a_value_under_a_name_such_as_token_is_hidden(sound: dict[str, Any], problems_of: Problems) -> None:
    sound["runs"][0]["annotations"] = {"acme.com/token": 77123}
    (told,) = problems_of(sound)
    assert told.startswith('holdfast:runs[0].annotations["acme.com/token"] = (hidden)\n')
    assert "77123" not in told


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("runs", 0, "image"), "registry.example.com/hunter2/trainer:hunter3"),
        (("runs", 0, "id"), "Hunter2_Run"),
        (("runs", 0, "requests", "memory"), "hunter2"),
    ],
    ids=["in an image", "in a name", "in an amount"],
)
def test_a_section_that_pulumi_marks_as_secret_shows_no_value_and_no_part_of_it(
    path: tuple[Any, ...],
    value: str,
    sound: dict[str, Any],
    put: Callable[..., None],
    problems_of: Problems,
) -> None:
    put(sound, path, value)
    (told,) = problems_of(sound, secret_keys={"runs"})
    assert "hunter" not in told.lower()
    assert "(hidden)" in told


def test_a_value_with_a_reference_that_leads_nowhere_shows_the_key_only(
    sound: dict[str, Any], problems_of: Problems
) -> None:
    sound["runs"][0]["env"] = {"URL": "postgres://ada:hunter2@${HOST}/runs"}
    assert problems_of(sound) == [
        "holdfast:runs[0].env.URL\n    The environment variable HOST is not set.\n"
        "    Fix: export HOST, or write the value itself."
    ]
