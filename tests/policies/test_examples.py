"""Every rule by example: sound resources pass, mistakes are refused, and what is unknown is said."""

import copy
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rules.catalogue import POLICIES

EXAMPLES = Path(__file__).parent / "data" / "examples"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _cases() -> list[dict[str, Any]]:
    found = []
    for file in sorted(EXAMPLES.glob("*.yaml")):
        text = file.read_text(encoding="utf-8").replace("DIGEST", "sha256:" + "ab" * 32)
        found += yaml.load(text, Loader=LOADER)["examples"]
    return found


CASES = _cases()


def _of(outcome: str) -> list[Any]:
    return [pytest.param(c, id=f"{c['rule']}: {c[outcome]}") for c in CASES if outcome in c]


def _as_sent(judge, value):
    """The text UNKNOWN is a value that a preview does not know yet."""
    if isinstance(value, dict):
        return {key: _as_sent(judge, item) for key, item in value.items()}
    if isinstance(value, list):
        return [_as_sent(judge, item) for item in value]
    return judge.unknown if value == "UNKNOWN" else value


def _judged(judge, example, case):
    """What the case's rule says of every resource by itself and of all of them as one stack."""
    resources = [
        example(
            r["type"],
            _as_sent(judge, r["props"]),
            r.get("name", f"example{n or ''}"),
            provider=r.get("provider", ""),
            depends_on=r.get("dependsOn", ()),
            protect=r.get("protect", False),
        )
        for n, r in enumerate(case["resources"])
    ]
    verdicts = [judge.resource(r.type, r.props, r.name, r.protect) for r in resources]
    verdicts.append(judge.stack(*resources))
    said = [message for verdict in verdicts for message in verdict.of(case["rule"])]
    undecided = [message for verdict in verdicts for message in verdict.undecided(case["rule"])]
    return said, undecided


def _advises(rule: str) -> bool:
    return next(p for p in POLICIES if p.name == rule).enforcement_level is not None


@pytest.mark.parametrize("case", _of("passes"))
def test_what_is_sound_passes(judge, example, case):
    assert _judged(judge, example, case) == ([], [])


@pytest.mark.parametrize("case", _of("fails"))
def test_a_mistake_is_told_with_what_to_write_instead(judge, example, case):
    said, advised = _judged(judge, example, case)
    (message,) = advised if _advises(case["rule"]) else said
    assert all(words in message for words in case["says"]), message


@pytest.mark.parametrize("case", _of("undecided"))
def test_what_is_not_known_yet_is_never_a_silent_pass(judge, example, case):
    said, undecided = _judged(judge, example, case)
    assert said == [] and "not known yet" in undecided[0]
    assert all(words in undecided[0] for words in case["says"]), undecided


def test_every_rule_has_an_example_that_passes_two_that_fail_and_one_that_is_unknown():
    wanted = {"passes": 1, "fails": 2, "undecided": 1}
    counts = Counter((case["rule"], outcome) for case in CASES for outcome in wanted if outcome in case)
    missing = [
        f"{policy.name}: {counts[policy.name, outcome]} of {least} {outcome}"
        for policy in POLICIES
        for outcome, least in wanted.items()
        if counts[policy.name, outcome] < least
    ]
    assert missing == []
    assert sum(counts.values()) >= 4 * len(POLICIES)


def _places(value, path=()):
    """Where in nested properties a value can be replaced by another."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from _places(item, (*path, key))


def test_no_value_of_a_mistake_hides_it_by_being_unknown(judge, example):
    # Every value of every mistake in turn: the rule still refuses it, or says what it could not read.
    hidden = []
    for case in (c for c in CASES if "fails" in c):
        for number, resource in enumerate(case["resources"]):
            for *above, last in _places(resource["props"]):
                changed = copy.deepcopy(case)
                target = changed["resources"][number]["props"]
                for key in above:
                    target = target[key]
                target[last] = "UNKNOWN"
                if _judged(judge, example, changed) == ([], []):
                    hidden.append(f"{case['rule']}: {case['fails']}: {resource['type']} {[*above, last]}")
    assert hidden == []


NONSENSE = [
    None,
    "",
    "UNKNOWN",
    "x",
    -1,
    1.5,
    True,
    [],
    [None],
    ["UNKNOWN"],
    {},
    {"x": "UNKNOWN"},
    [{"x": 1}],
]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_no_wrong_value_in_an_example_raises_out_of_the_pack(judge, example, data):
    case = copy.deepcopy(data.draw(st.sampled_from(CASES)))
    resource = data.draw(st.sampled_from(case["resources"]))
    *above, last = data.draw(st.sampled_from(list(_places(resource["props"])) or [("spec",)]))
    target = resource["props"]
    for key in above:
        target = target[key]
    target[last] = data.draw(st.sampled_from(NONSENSE))
    _judged(judge, example, case)
