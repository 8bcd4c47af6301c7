"""Whether a run fits its team's quota, told before a Job waits for ever."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from components.planning.quota import Shortage, quota_fit, run_demand, together
from components.planning.stack import StackPlan
from components.settings.stack import StackSettings
from components.settings.team import DEFAULT_QUOTA

Stack = Callable[..., StackSettings]


def test_the_default_run_takes_what_the_training_contract_says(stack: Stack) -> None:
    demand = run_demand(stack().runs[0])
    assert {key: demand[key] for key in DEFAULT_QUOTA} == {
        "requests.nvidia.com/gpu": 1,
        "requests.cpu": 4,
        "requests.memory": 16 * 1024**3,
        "limits.cpu": 8,
        "limits.memory": 32 * 1024**3,
        "pods": 1,
    }


def test_the_default_run_fits_the_default_quota(stack: Stack) -> None:
    assert quota_fit(run_demand(stack().runs[0]), DEFAULT_QUOTA) == ()


def test_what_does_not_fit_says_which_key_and_by_how_much(stack: Stack) -> None:
    demand = run_demand(stack().runs[0])
    quota = {"requests.nvidia.com/gpu": "0", "requests.memory": "10Gi", "limits.cpu": "7500m", "pods": "1"}
    assert quota_fit(demand, quota) == (
        Shortage("requests.nvidia.com/gpu", "1", "0", "1"),
        Shortage("requests.memory", "16Gi", "10Gi", "6Gi"),
        Shortage("limits.cpu", "8", "7500m", "500m"),
    )


def test_the_short_spellings_of_quota_keys_count_requests(stack: Stack) -> None:
    demand = run_demand(stack().runs[0])
    quota = {"cpu": "3", "memory": "15Gi", "count/jobs.batch": "0", "count/pods": "0"}
    assert [short.key for short in quota_fit(demand, quota)] == list(quota)


def test_a_key_that_the_run_does_not_take_never_stops_it(stack: Stack) -> None:
    assert quota_fit(run_demand(stack().runs[0]), {"services": "0", "requests.example.com/fpga": "0"}) == ()


@given(st.dictionaries(st.sampled_from(["cpu", "pods"]), st.integers(0, 50)), st.integers(0, 50))
def test_a_demand_fits_exactly_when_no_key_is_over_its_limit(needs: dict[str, int], limit: int) -> None:
    demand = {key: Decimal(value) for key, value in needs.items()}
    short = quota_fit(demand, {"cpu": str(limit), "pods": str(limit)})
    assert {item.key for item in short} == {key for key, value in needs.items() if value > limit}
    assert all(Decimal(item.missing) == needs[item.key] - limit for item in short)


def test_demands_add_up_key_by_key() -> None:
    assert together([{"cpu": Decimal("0.25")}, {"cpu": Decimal("0.5"), "pods": Decimal(1)}]) == {
        "cpu": Decimal("0.75"),
        "pods": Decimal(1),
    }


def test_runs_that_fit_one_by_one_but_not_together_are_a_warning(plan: Callable[..., StackPlan]) -> None:
    runs = ({"id": "run-002"}, {"id": "run-003"})
    assert plan(more_runs=runs).warnings == (
        (
            'teams "ml-batch": its 3 runs together need 3 of requests.nvidia.com/gpu, and the quota has 2.'
            " They will run one after another, and Kubernetes retries the waiting ones only every few"
            " minutes."
        ),
    )


def test_a_cancelled_run_takes_nothing(plan: Callable[..., StackPlan]) -> None:
    assert plan(more_runs=({"id": "run-002"}, {"id": "run-003", "cancelled": True})).warnings == ()
