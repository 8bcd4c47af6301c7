"""Where programs come from, and what is refused."""

import functools
import hashlib
import http.server
import io
import json
import tarfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rehearsal import cluster, toolchain
from rehearsal.errors import RehearsalError
from rehearsal.progress import Progress
from rehearsal.toolchain import build, find, release
from rehearsal.toolchain.programs import PROGRAMS


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ("Kubernetes v1.37.2", (1, 37, 2)),
        ("etcd Version: 3.7.3\nGit SHA: abc", (3, 7, 3)),
        ("containerd github.com/containerd/containerd/v2 v2.4.2 abcdef", (2, 4, 2)),
        ("CoreDNS-1.15.0", (1, 15, 0)),
        ("v3.274.1", (3, 274, 1)),
        ("go1.26", None),
        ("", None),
    ],
)
def test_versions_are_read_as_the_programs_print_them(said, version):
    assert find.parse_version(said) == version


@pytest.mark.parametrize(
    ("version", "rule", "accepted"),
    [
        ((1, 37, 0), "minor", True),
        ((1, 36, 9), "minor", False),
        ((1, 38, 0), "minor", False),
        ((2, 4, 2), "major", True),
        ((2, 9, 0), "major", True),
        ((2, 4, 1), "major", False),
        ((3, 0, 0), "major", False),
    ],
)
def test_a_program_on_path_is_taken_only_in_a_version_that_fits(version, rule, accepted):
    wanted = (1, 37, 2) if rule == "minor" else (2, 4, 2)
    assert find.fits(version, wanted, rule) is accepted


def executable(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_path_is_asked_before_anything_is_downloaded_or_built(monkeypatch, tmp_path):
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "cache"))
    mine = executable(tmp_path / "bin" / "etcd", "echo etcd Version: 3.7.9")
    monkeypatch.setenv("PATH", str(mine.parent), prepend=":")
    monkeypatch.setattr(build, "build", lambda *_: pytest.fail("it was built though PATH has it"))
    assert toolchain.ensure(["etcd"], Progress()) == {"etcd": mine}


def test_a_finished_program_in_the_cache_is_used_as_it_is(monkeypatch, tmp_path):
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path))
    cached = executable(toolchain.cached(PROGRAMS["etcd"]), "exit 0")
    assert toolchain.ensure(["etcd"], Progress()) == {"etcd": cached}


@pytest.fixture
def archive_server(tmp_path):
    folder = tmp_path / "served"
    folder.mkdir()
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    handler.log_message = lambda *_: None
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield folder, f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()


def pin(monkeypatch, tmp_path, url, sha256):
    pins = tmp_path / "releases.json"
    key = f"etcd {PROGRAMS['etcd'].version} linux-{release.architecture()}"
    entry = {"url": url, "sha256": sha256, "members": {"etcd-linux/etcd": "etcd"}}
    pins.write_text(json.dumps({"programs": {key: entry}, "go": {}}))
    monkeypatch.setattr(release, "PINS", pins)


def make_archive(path):
    content = b"#!/bin/sh\necho official\n"
    with tarfile.open(path, "w:gz") as archive:
        info = tarfile.TarInfo("etcd-linux/etcd")
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_an_official_release_with_its_pinned_checksum_enters_the_cache(monkeypatch, tmp_path, archive_server):
    folder, url = archive_server
    pin(monkeypatch, tmp_path, f"{url}/etcd.tar.gz", make_archive(folder / "etcd.tar.gz"))
    target = tmp_path / "cache" / "etcd"
    assert release.fetch(PROGRAMS["etcd"], target, Progress())
    assert target.stat().st_mode & 0o111
    assert "official" in target.read_text()


def test_a_release_with_another_checksum_is_refused_and_nothing_is_kept(monkeypatch, tmp_path, archive_server):
    folder, url = archive_server
    make_archive(folder / "etcd.tar.gz")
    pin(monkeypatch, tmp_path, f"{url}/etcd.tar.gz", "0" * 64)
    target = tmp_path / "cache" / "etcd"
    with pytest.raises(RehearsalError, match=f"but {'0' * 64} is pinned"):
        release.fetch(PROGRAMS["etcd"], target, Progress())
    assert not target.exists()


@pytest.mark.parametrize("place", ["/absent.tar.gz", None])
def test_a_release_that_can_not_be_had_is_built_instead(monkeypatch, tmp_path, archive_server, place):
    url = archive_server[1] + place if place else "http://127.0.0.1:9/etcd.tar.gz"
    pin(monkeypatch, tmp_path, url, "0" * 64)
    assert not release.fetch(PROGRAMS["etcd"], tmp_path / "etcd", Progress())


def test_a_failed_build_says_the_three_places_and_the_compiler_s_words(monkeypatch, tmp_path):
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path))
    go = executable(tmp_path / "bin" / "go", 'case "$1" in env) echo go1.26.8;; *) echo "no route to proxy" >&2; exit 1;; esac')
    monkeypatch.setenv("PATH", f"{go.parent}:/usr/bin:/bin")
    with pytest.raises(RehearsalError) as error:
        build.build(PROGRAMS["etcd"], tmp_path / "out" / "etcd", Progress())
    assert "not on PATH" in str(error.value)
    assert "no official release" in str(error.value)
    assert "no route to proxy" in str(error.value)
    assert not (tmp_path / "out" / "etcd").exists()


def test_a_failed_program_stops_the_build_beside_it_and_is_the_one_that_is_told(monkeypatch, tmp_path):
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path))
    slow = 'case "$1" in env) echo go1.26.8;; *) touch "$BEGAN"; exec sleep 120;; esac'
    go = executable(tmp_path / "bin" / "go", slow)
    monkeypatch.setenv("BEGAN", str(tmp_path / "began"))
    monkeypatch.setenv("PATH", f"{go.parent}:/usr/bin:/bin")

    def ensure(names, progress):
        if names == ["pulumi"]:
            build.build(PROGRAMS["pulumi"], tmp_path / "out" / "pulumi", progress)
        while not (tmp_path / "began").exists():
            time.sleep(0.01)
        raise RehearsalError(f"{names[0]} can not be had", "Mend it.")

    monkeypatch.setattr(toolchain, "ensure", ensure)
    with ThreadPoolExecutor() as pool, pytest.raises(RehearsalError, match=f"{cluster.CLUSTER_PROGRAMS[0]} can not be had"):
        cluster._programs(Progress(), [], pool)


def test_whoever_has_built_pulumi_takes_what_the_cluster_still_needs(monkeypatch):
    taken, both = [], threading.Barrier(2, timeout=30)

    def ensure(names, progress):
        taken.append(names[0])
        if names[0] in (cluster.CLUSTER_PROGRAMS[-1], "jobset"):
            both.wait()  # the last two: neither goes on without the other
        return {names[0]: Path(names[0])}

    monkeypatch.setattr(toolchain, "ensure", ensure)
    with ThreadPoolExecutor() as pool:
        found = cluster._programs(Progress(), [], pool)
    assert sorted(taken) == sorted({*cluster.CLUSTER_PROGRAMS, *toolchain.PULUMI_PROGRAMS, "jobset"}) == sorted(found)


FAKE_GO = """
case "$1" in
  env) echo go1.26.8 ;;
  mod) mkdir -p "$SDK/python/cmd" "$SDK/cmd/pulumi-resource-kubernetes"
       touch "$SDK/python/cmd/pulumi-language-python-exec"
       touch "$SDK/cmd/pulumi-resource-kubernetes/schema.json"
       touch "$SDK/cmd/pulumi-resource-kubernetes/terraform-mapping.json"
       mkdir -p "$SDK/charts/jobset/templates"
       echo "name: jobset" > "$SDK/charts/jobset/Chart.yaml"
       chmod -R a-w "$SDK/charts"  # as the module cache is
       echo "{\\"Dir\\": \\"$SDK\\"}" ;;
  build) test -f go.mod || exit 1
         while [ "$1" != -o ]; do shift; done
         test -d "$2" && exit 1
         echo built > "$2" ;;
esac
"""


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_a_built_program_enters_the_cache_as_one_executable_file(monkeypatch, tmp_path, name):
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SDK", str(tmp_path / "sdk"))
    go = executable(tmp_path / "bin" / "go", FAKE_GO)
    monkeypatch.setenv("PATH", f"{go.parent}:/usr/bin:/bin")
    target = toolchain.cached(PROGRAMS[name])
    build.build(PROGRAMS[name], target, Progress())
    assert target.read_text() == "built\n"
    assert target.stat().st_mode & 0o111
    assert not list(target.parent.glob(".*"))


def test_a_program_s_chart_stays_beside_it_as_files_that_can_be_removed(monkeypatch, tmp_path):
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SDK", str(tmp_path / "sdk"))
    go = executable(tmp_path / "bin" / "go", FAKE_GO)
    monkeypatch.setenv("PATH", f"{go.parent}:/usr/bin:/bin")
    program = PROGRAMS["jobset"]
    for _ in range(2):  # a build that is repeated replaces it
        toolchain.cached(program).unlink(missing_ok=True)
        build.build(program, toolchain.cached(program), Progress())
    chart = toolchain.chart("jobset")
    assert (chart / "Chart.yaml").read_text() == "name: jobset\n"
    for path in (chart, *chart.rglob("*")):
        assert path.stat().st_mode & 0o200


def test_a_language_host_stands_beside_pulumi_and_not_on_path(monkeypatch, tmp_path):
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "cache"))
    made = {
        name: executable(toolchain.cached(PROGRAMS[name]), "exit 0")
        for name in toolchain.CLI_TEST_PROGRAMS
    }
    folder = toolchain.link(made, tmp_path / "bin")
    assert {path.name for path in folder.iterdir()} == {"pulumi", "bundle"}
    assert (folder / "bundle" / "pulumi").samefile(made["pulumi"])
    assert (folder / "bundle" / "pulumi-language-yaml").samefile(made["pulumi-language-yaml"])


def test_an_old_go_is_not_used(monkeypatch, tmp_path):
    go = executable(tmp_path / "bin" / "go", "echo go1.19.8")
    monkeypatch.setenv("PATH", f"{go.parent}:/usr/bin:/bin")
    fetched = tmp_path / "fetched-go"
    monkeypatch.setattr(release, "fetch_go", lambda progress: fetched)
    assert build.go_command(Progress()) == fetched


def test_every_program_s_module_pins_its_version():
    for program in PROGRAMS.values():
        text = (build.MODULES / program.module / "go.mod").read_text()
        assert program.version in text or program.name == "pulumi-resource-kubernetes", program.name
        assert (build.MODULES / program.module / "go.sum").exists()


def test_the_provider_has_the_version_of_the_python_sdk():
    wanted = f"pulumi-kubernetes=={PROGRAMS['pulumi-resource-kubernetes'].version.lstrip('v')}"
    assert wanted in (toolchain.SHIMS.parents[2] / "requirements.in").read_text().splitlines()


def test_a_shell_that_takes_the_environment_twice_has_our_programs_on_its_path_once() -> None:
    ours, path = Path("/cache/bin"), "/usr/bin:/bin"
    once = toolchain.with_front(ours, path)
    assert once == "/cache/bin:/usr/bin:/bin"
    assert toolchain.with_front(ours, once) == once
    assert toolchain.with_front(ours, f"/venv/bin:{once}") == "/cache/bin:/venv/bin:/usr/bin:/bin"
