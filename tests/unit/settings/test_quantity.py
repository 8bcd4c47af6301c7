"""Kubernetes quantities: the grammar, the number and the canonical spelling."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.utils.quantity import parse_quantity

from components.settings.quantity import canonical, is_quantity, parse, spell

SUFFIXES = ["m", "", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti"]
quantities = st.builds(
    lambda number, suffix: f"{number}{suffix}",
    st.one_of(
        st.integers(0, 10**6).map(str),
        st.decimals(0, 1000, places=3).map(lambda number: format(number, "f")),
    ),
    st.sampled_from(SUFFIXES),
)


@given(quantities)
def test_the_number_is_the_one_of_the_kubernetes_client(text: str) -> None:
    assert parse(text) == parse_quantity(text)


@given(quantities)
def test_the_canonical_spelling_has_the_same_number(text: str) -> None:
    assert parse(canonical(text)) == parse(text)


@given(quantities)
def test_the_canonical_spelling_is_its_own_canonical_spelling(text: str) -> None:
    assert canonical(canonical(text)) == canonical(text)


@given(st.text(max_size=12))
def test_any_text_is_a_quantity_or_a_value_error(text: str) -> None:
    if is_quantity(text):
        assert isinstance(parse(text), Decimal)
    else:
        with pytest.raises(ValueError, match="is not a Kubernetes quantity"):
            parse(text)


# What a Kubernetes API server returns for each, by k8s.io/apimachinery's own examples of canonical form.
@pytest.mark.parametrize(
    ("given_text", "returned"),
    [
        ("2048Mi", "2Gi"),
        ("1.5Gi", "1536Mi"),
        ("1000m", "1"),
        ("0.5", "500m"),
        ("1024", "1024"),
        ("1e3", "1k"),
        ("0Gi", "0"),
        ("0.5Ki", "512"),
        ("100G", "100G"),
        ("1000Ki", "1000Ki"),
        ("1.5", "1500m"),
        ("+4", "4"),
        ("-1500m", "-1500m"),
    ],
)
def test_the_canonical_spelling_is_the_one_of_the_api_server(given_text: str, returned: str) -> None:
    assert canonical(given_text) == returned


@pytest.mark.parametrize(
    "text", ["", "16GB", "16 Gi", "Gi", "1.2.3", "0x10", "1,5", "16gi", "--1", "1e", "٣"]
)
def test_what_is_outside_of_the_grammar_is_no_quantity(text: str) -> None:
    assert not is_quantity(text)


def test_a_sum_is_spelled_in_the_largest_unit_without_a_fraction() -> None:
    assert spell(parse("96Gi") - parse("64Gi"), binary=True) == "32Gi"
    assert spell(parse("250m") * 3, binary=False) == "750m"
