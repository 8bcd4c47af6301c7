"""docs/policies.md, made from the policy pack's own catalogue.

python -m ops.docs_policies          prints it
python -m ops.docs_policies --write  writes the file; a test fails while it is out of date
"""

from __future__ import annotations

import sys

from ops.made_from_data import main
from ops.stacks import ROOT

TARGET = ROOT / "docs" / "policies.md"
HEAD = """# The policy pack

<!-- Made by `python -m ops.docs_policies --write` from policies/rules. -->

The pack in `policies/` judges resources only, so it serves programs in any language. `./holdfast` always passes it. To use it alone, on a
program of your own, copy that folder, give its two packages a Python environment, and name that Python to pulumi:

```sh
python3 -m venv ~/.holdfast-policies
~/.holdfast-policies/bin/pip install -r path/to/policies/requirements.txt
export PULUMI_PYTHON_CMD=~/.holdfast-policies/bin/python      # in a checkout also: .venv/bin/python
pulumi preview --policy-pack path/to/policies
pulumi up --policy-pack path/to/policies
```

Tested with Pulumi v3.274.1. Programs in TypeScript or YAML need Pulumi's own release: the `pulumi` that the rehearsal builds from source
runs Python programs only.

A mandatory rule's violation stops the preview; an advisory rule only tells. What is not known yet at preview is never taken for proof: the rule says
which value it could not read and decides at `pulumi up`. With `--skip-preview`, rules over the whole stack are judged when the
resources exist already; rules over one resource still stop it before it is made.

## Who owns what on which nodes

Node groups and pools of EKS, GKE, AKS and Karpenter show what their nodes bring, and the pack judges the GPU Operator, device plugins and driver installers by it.
On self-managed nodes no resource shows it. There the operator's Namespace tells it by the label `holdfast.dev/node-profile` (a row of
[ownership.json](../policies/ownership.json)), or the pack's configuration does, by `nodeProfile` of the rule `node-profile-agreement`. Where the operator's values differ
from the row on purpose, the annotation `holdfast.dev/ownership-override` on that Namespace says why, and the rule leaves the operator alone.

A provider's kubeconfig or context tells clusters apart. Of several clusters of a cloud in one stack, the one whose name stands in a provider's kubeconfig or context is that
provider's cluster.

## Configuration

Every rule has a level (`advisory`, `mandatory`, `disabled`) and exceptions. `all` is the level of every rule that does not name its own:

```json
{
  "all": "mandatory",
  "spot-without-delay": "disabled",
  "node-profile-agreement": {"nodeProfile": "self-managed-driver-toolkit"},
  "image-by-digest": {
    "enforcementLevel": "mandatory",
    "exceptions": [
      {"resource": "*:Job::legacy-*", "reason": "moves to digests with release 4", "expires": "2027-03-31"}
    ]
  }
}
```

passed as `--policy-pack-config FILE`. An exception names a resource by its name or URN (`*` stands for any text), says why it is one, and the last day on which it holds. One that
has expired, or that has no reason or no date, excuses nothing: it is an error of its own, whatever the level.

## Rules

| rule | judges | severity | level |
|---|---|---|---|
"""


def render() -> str:
    sys.path.insert(
        0, str(ROOT / "policies")
    )  # the pack stands alone: its modules import each other from there
    from rules.catalogue import entries

    rules = entries()
    table = "".join(
        f"| [{rule.name}](#{rule.name}) | {'the stack' if rule.scope == 'stack' else 'one resource'} "
        f"| {rule.severity} | {'advisory' if rule.advisory else 'mandatory'} |\n"
        for rule in rules
    )
    parts = []
    for rule in rules:
        settings = (
            f"\nSettings: {', '.join(f'`{name}`' for name in rule.settings)}\n" if rule.settings else ""
        )
        parts.append(
            f"\n## {rule.name}\n\n{rule.description}\n\n**What to do:** {rule.remediation}\n{settings}"
        )
    return HEAD + table + "".join(parts)


if __name__ == "__main__":
    main(TARGET, render)
