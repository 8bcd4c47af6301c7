"""What a preemption costs a run: no counted failure, one writer, and on Spot no growing delay."""

import pytest

JOB = "kubernetes:batch/v1:Job"
JOBSET = "kubernetes:jobset.x-k8s.io/v1alpha2:JobSet"
COUNTED, WRITER, SPOT = "preemption-not-counted", "one-writer", "spot-without-delay"
OURS = {"app.kubernetes.io/part-of": "holdfast"}
ARGS = ("--checkpoint-dir=/data",)
UNCOUNTED = "RestartJobSetAndIgnoreMaxRestarts"
DISRUPTED = [{"type": "DisruptionTarget", "status": "True"}]


def by_condition(action):
    return {"action": action, "onPodConditions": DISRUPTED}


def by_codes(action, *codes, operator="In"):
    return {"action": action, "onExitCodes": {"operator": operator, "values": list(codes)}}


def restart(action="RestartJobSetAndIgnoreMaxRestarts", *reasons):
    return {"name": "r", "action": action, **({"onJobFailureReasons": list(reasons)} if reasons else {})}


@pytest.fixture
def job(build):
    """A training Job: `rules` of its podFailurePolicy (None: it has none), more of its spec and Pod."""

    def make(rules=(by_condition("Ignore"),), labels=None, pod=None, args=ARGS, **spec):
        container = build.gpu(args=list(args), volumeMounts=[{"name": "c", "mountPath": "/data"}])
        volumes = [{"name": "c", "persistentVolumeClaim": {"claimName": "c"}}]
        made = build.job(container, **{"restartPolicy": "Never", "volumes": volumes, **(pod or {})})
        made["metadata"]["labels"] = labels or {}
        if rules is not None:
            made["spec"]["podFailurePolicy"] = {"rules": list(rules)}
        made["spec"].update(spec)
        return made

    return make


@pytest.fixture
def job_set(job):
    """A JobSet of that Job: `restarts` are its failure rules (None: it has no failurePolicy)."""

    def make(restarts=(), rules=(by_condition("FailJob"),), labels=None, **more):
        child = job(rules, backoffLimit=0, **more)
        spec = {"replicatedJobs": [{"name": "trainer", "template": {"spec": child["spec"]}}]}
        if restarts is not None:
            spec["failurePolicy"] = {"maxRestarts": 3, "rules": list(restarts)}
        return {"metadata": {"name": "run", "labels": labels or {}}, "spec": spec}

    return make


def test_a_job_that_ignores_what_kubernetes_takes_away_is_sound(judge, job):
    verdict = judge.resource(JOB, job())
    assert verdict.of(COUNTED) == [] and verdict.of(WRITER) == []


@pytest.mark.parametrize(
    "rules",
    [None, (), (by_condition("Count"),), (by_condition("FailJob"),), (by_codes("Ignore", 137),)],
    ids=["no policy", "no rule", "counted", "failed", "another rule"],
)
def test_a_job_that_counts_preemptions_is_refused_with_the_rule_to_add(judge, job, rules):
    (message,) = judge.resource(JOB, job(rules)).of(COUNTED)
    assert "counts against backoffLimit" in message and "type: DisruptionTarget" in message


def test_our_own_job_ignores_the_supervisors_code_too(judge, job):
    (message,) = judge.resource(JOB, job(labels=OURS)).of(COUNTED)
    assert "exit code 75" in message and "values: [75]" in message
    both = (by_condition("Ignore"), by_codes("Ignore", 75))
    assert judge.resource(JOB, job(both, labels=OURS)).of(COUNTED) == []
    rest = (by_condition("Ignore"), by_codes("Ignore", 1, 2, operator="NotIn"))
    assert judge.resource(JOB, job(rest, labels=OURS)).of(COUNTED) == []


def test_a_job_that_is_not_to_be_retried_has_said_so_unless_it_is_ours(judge, job):
    assert judge.resource(JOB, job(None, backoffLimit=0)).of(COUNTED) == []
    assert len(judge.resource(JOB, job(None, labels=OURS, backoffLimit=0)).of(COUNTED)) == 1


def test_a_container_that_restarts_in_place_hides_how_it_ended(judge, job, job_set):
    (message,) = judge.resource(JOB, job(pod={"restartPolicy": "OnFailure"})).of(COUNTED)
    assert "has restartPolicy OnFailure" in message and "Set restartPolicy: Never." in message
    unset = job_set((restart(),))
    del unset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["restartPolicy"]
    (message,) = judge.resource(JOBSET, unset).of(COUNTED)
    assert "OnFailure (JobSet's default)" in message


@pytest.mark.parametrize(
    "restarts",
    [
        (restart("RestartJobSetAndIgnoreMaxRestarts"),),
        (restart("RestartJobSetAndIgnoreMaxRestarts", "PodFailurePolicy"), restart("FailJobSet")),
        (restart("RestartJobAndIgnoreMaxRestarts", "DeadlineExceeded", "PodFailurePolicy"),),
    ],
)
def test_a_job_set_that_restarts_uncounted_after_a_preemption_is_sound(judge, job_set, restarts):
    assert judge.resource(JOBSET, job_set(restarts)).violations == []


@pytest.mark.parametrize(
    ("restarts", "rules", "words"),
    [
        (None, (by_condition("FailJob"),), "fails the whole JobSet"),
        ((), (by_condition("FailJob"),), "counts against maxRestarts"),
        ((restart("RestartJobSet"),), (by_condition("FailJob"),), "counts against maxRestarts"),
        ((restart(UNCOUNTED, "PodFailurePolicy"),), (), "counts against maxRestarts"),
    ],
    ids=["no failure policy", "no rule", "a counted restart", "a rule that no child reaches"],
)
def test_a_job_set_that_counts_preemptions_is_refused(judge, job_set, restarts, rules, words):
    (message,) = judge.resource(JOBSET, job_set(restarts, rules)).of(COUNTED)
    assert words in message and "JobSet 'example', job 'trainer':" in message


def test_a_child_job_that_goes_on_by_itself_needs_no_rule_of_its_job_set(judge, job_set):
    assert judge.resource(JOBSET, job_set(None, (by_condition("Ignore"),))).of(COUNTED) == []


def test_our_own_job_set_sees_the_supervisors_code_too(judge, job_set):
    (message,) = judge.resource(JOBSET, job_set((restart(),), labels=OURS)).of(COUNTED)
    assert "{action: FailJob, onExitCodes: {operator: In, values: [75]}}" in message
    both = (by_condition("FailJob"), by_codes("FailJob", 75))
    assert judge.resource(JOBSET, job_set((restart(),), both, labels=OURS)).of(COUNTED) == []


def test_work_that_writes_no_checkpoints_is_left_alone(judge, job, job_set):
    assert judge.resource(JOB, job(None, args=("--epochs=3",))).violations == []
    assert judge.resource(JOBSET, job_set(None, None, args=("--epochs=3",))).violations == []


@pytest.mark.parametrize(
    ("rules", "spec", "refused"),
    [
        (None, {}, True),
        (None, {"podReplacementPolicy": "TerminatingOrFailed"}, True),
        (None, {"podReplacementPolicy": "Failed"}, False),
        (None, {"backoffLimit": 0}, False),
        ((by_condition("Ignore"),), {}, False),
    ],
)
def test_a_second_pod_beside_a_terminating_one_is_refused(judge, job, rules, spec, refused):
    messages = judge.resource(JOB, job(rules, **spec)).of(WRITER)
    assert len(messages) == refused
    assert all("Set podReplacementPolicy: Failed." in message for message in messages)


def required(key, operator, *values):
    terms = [{"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def preferred(key, *values):
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}
    weighted = [{"weight": 1, "preference": term}]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": weighted}}


KARPENTER = "karpenter.sh/capacity-type"


@pytest.mark.parametrize(
    "pod",
    [
        {"nodeSelector": {"holdfast.dev/spot": "true"}},
        {"nodeSelector": {"eks.amazonaws.com/capacityType": "SPOT"}},
        {"nodeSelector": {KARPENTER: "spot"}},
        {"nodeSelector": {"cloud.google.com/gke-spot": "true"}},
        {"nodeSelector": {"kubernetes.azure.com/scalesetpriority": "spot"}},
        {"affinity": required(KARPENTER, "In", "spot", "on-demand")},
        {"affinity": required("cloud.google.com/gke-spot", "Exists")},
        {"affinity": preferred(KARPENTER, "spot")},
        {"tolerations": [{"key": "kubernetes.azure.com/scalesetpriority", "value": "spot"}]},
        {"tolerations": [{"key": "cloud.google.com/gke-spot", "operator": "Exists"}]},
    ],
    ids=str,
)
def test_a_plain_job_on_spot_nodes_is_advised_with_the_delay_and_the_way_out(judge, job, job_set, pod):
    verdict = judge.resource(JOB, job(pod=pod))
    (message,) = verdict.undecided(SPOT)
    assert "10 s, 20 s, 40 s … 600 s" in message and "controller: jobset" in message
    assert verdict.violations == [], "an advice stops nothing"
    assert judge.resource(JOBSET, job_set((restart(),), pod=pod)).undecided(SPOT) == []


@pytest.mark.parametrize(
    "pod",
    [
        {},
        {"nodeSelector": {KARPENTER: "on-demand"}},
        {"affinity": required(KARPENTER, "NotIn", "spot")},
        {"tolerations": [{"operator": "Exists"}]},
        {
            "nodeSelector": {KARPENTER: "on-demand"},
            "tolerations": [{"key": KARPENTER, "operator": "Exists"}],
        },
    ],
    ids=str,
)
def test_a_job_that_asks_for_lasting_nodes_gets_no_advice(judge, job, pod):
    assert judge.resource(JOB, job(pod=pod)).undecided(SPOT) == []


def test_what_is_not_known_yet_is_no_proof_of_a_policy(judge, job, job_set):
    verdict = judge.resource(JOB, {**job(), "spec": {**job()["spec"], "podFailurePolicy": judge.unknown}})
    assert verdict.of(COUNTED) == [] and "podFailurePolicy" in verdict.undecided(COUNTED)[0]
    hidden = job_set()
    hidden["spec"]["failurePolicy"] = judge.unknown
    verdict = judge.resource(JOBSET, hidden)
    assert verdict.of(COUNTED) == [] and "failurePolicy" in verdict.undecided(COUNTED)[0]
    verdict = judge.resource(JOB, job(None, podReplacementPolicy=judge.unknown))
    assert verdict.of(WRITER) == [] and "podReplacementPolicy" in verdict.undecided(WRITER)[0]
