"""Whether a Pod asks for nodes that may be taken away at any time: Spot, preemptible, borrowed."""

from __future__ import annotations

from collections.abc import Iterator

from rules.views import View

# Node labels that say so, and taints of the same names. Sources: the clouds' and Karpenter's documentation.
SPOT_LABELS: dict[str, str] = {
    "holdfast.dev/spot": "true",
    "eks.amazonaws.com/capacityType": "SPOT",
    "karpenter.sh/capacity-type": "spot",
    "cloud.google.com/gke-spot": "true",
    "cloud.google.com/gke-preemptible": "true",
    "kubernetes.azure.com/scalesetpriority": "spot",
}


def spot_reason(pod: View) -> str | None:
    """The label or toleration by which the Pod may go to such nodes, as text; None if nothing says so.

    Whoever asks for other nodes by one of these labels is not on Spot, whatever it tolerates. Unknown values
    are no proof.
    """
    selected = {key: pod["nodeSelector"][key].peek_text() for key in pod["nodeSelector"].peek_keys()}
    wanted = [(key, {value}) for key, value in selected.items() if value is not None]
    wanted += list(_affinities(pod))
    asked = [(key, values) for key, values in wanted if key in SPOT_LABELS]
    for key, values in asked:
        if SPOT_LABELS[key] in values:
            return f"{key}={SPOT_LABELS[key]}"
    if asked:
        return None
    return next((found for t in pod["tolerations"].peek_elements() if (found := _tolerated(t))), None)


def note_hidden_reasons(pod: View) -> None:
    """Notes the selectors and tolerations that are not known yet and may say so."""
    selector = pod["nodeSelector"]
    for key in selector.keys():
        if key in SPOT_LABELS:
            selector[key].value()
    for toleration in pod["tolerations"].elements():
        for part in ("key", "operator", "value"):
            toleration[part].value()


def _affinities(pod: View) -> Iterator[tuple[str, set[str | None]]]:
    affinity = pod["affinity"]["nodeAffinity"]
    required = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    preferred = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
    terms = [*required.peek_elements(), *(term["preference"] for term in preferred.peek_elements())]
    for term in terms:
        for expression in term["matchExpressions"].peek_elements():
            key, operator = expression["key"].peek_text(), expression["operator"].peek_text()
            if key is None:
                continue
            if operator == "Exists":
                yield key, {SPOT_LABELS.get(key)}
            elif operator == "In":
                yield key, {value.peek_text() for value in expression["values"].peek_elements()}
            elif operator in ("NotIn", "DoesNotExist"):
                yield key, set()


def _tolerated(toleration: View) -> str | None:
    key = toleration["key"].peek_text()
    if key not in SPOT_LABELS:
        return None
    if toleration["operator"].peek_text() == "Exists":
        return f"it tolerates {key}"
    value = toleration["value"].peek_text()
    return f"it tolerates {key}={value}" if value == SPOT_LABELS[key] else None
