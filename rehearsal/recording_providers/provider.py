"""One recording provider, as the engine starts it: `provider.py --package=aws`.

It accepts every input, calls two inputs different when they are, and answers what only a real run would know from `ANSWERS`. It never
answers a function that it does not know: a program must not build on an invented value.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import empty_pb2, json_format, struct_pb2

if __name__ == "__main__":
    # The engine starts this file, not a module: the checkout is not on its path.
    sys.path.append(str(Path(__file__).resolve().parents[2]))
    from rehearsal.plugin_process import import_stubs, wait_for_end

    import_stubs()
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc  # noqa: E402, after import_stubs

# The engine's mark of a value that is not known yet (pulumi, sdk/go/common/resource/plugin/rpc.go, UnknownStringValue).
UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
NO_LIMIT = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
PACKAGE_FLAG = "--package="
ACCOUNT, REGION = "123456789012", "eu-central-1"

# Type -> outputs that only a real run knows, where the inputs do not say them. {name} is the resource's logical name.
ANSWERS: Mapping[str, Mapping[str, Any]] = {
    "aws:eks/nodeGroup:NodeGroup": {
        "arn": f"arn:aws:eks:{REGION}:{ACCOUNT}:nodegroup/recording/{{name}}/0",
        "status": "ACTIVE",
        "releaseVersion": "1.34.2-20261120",
        "resources": [{"autoscalingGroups": [{"name": "eks-{name}"}]}],
    },
    "aws:ec2/launchTemplate:LaunchTemplate": {
        "arn": f"arn:aws:ec2:{REGION}:{ACCOUNT}:launch-template/lt-{{name}}",
        "latestVersion": 1,
        "defaultVersion": 1,
    },
    "aws:ec2/placementGroup:PlacementGroup": {"placementGroupId": "pg-{name}"},
    "gcp:container/nodePool:NodePool": {
        "instanceGroupUrls": [
            "https://www.googleapis.com/compute/v1/projects/recording/zones/a/instanceGroups/{name}"
        ],
        "managedInstanceGroupUrls": [],
        "operation": "",
        "version": "1.34.1-gke.1201000",
    },
    "kubernetes:helm.sh/v3:Release": {"status": {"revision": 1, "status": "deployed"}},
    "pulumi-python:dynamic/holdfast:NodePoolMembership": {"nodes": ["{name}-0", "{name}-1"]},
    "pulumi-python:dynamic/holdfast:GpuReadiness": {"ready": True},
    "pulumi-python:dynamic/holdfast:JobSetReadiness": {"ready": True},
}
# Inputs whose change the real provider answers with a replacement, as its documentation says.
REPLACES: Mapping[str, frozenset[str]] = {
    "aws:eks/nodeGroup:NodeGroup": frozenset(
        {
            "amiType",
            "capacityType",
            "clusterName",
            "diskSize",
            "instanceTypes",
            "nodeGroupName",
            "nodeRoleArn",
            "subnetIds",
        }
    ),
    "aws:ec2/placementGroup:PlacementGroup": frozenset({"name", "strategy"}),
    "gcp:container/nodePool:NodePool": frozenset(
        {"cluster", "location", "name", "project", "placementPolicy"}
    ),
}
# The pickled code of a dynamic resource is an input too; a new one alone changes nothing of what it stands for.
CODE = "__provider"


class Recorder:
    """Appends whole lines to one file that several providers share."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()

    def write(self, operation: str, kind: str, name: str, inputs: struct_pb2.Struct, preview: bool) -> None:
        if not self._path:
            return
        line = {
            "operation": operation,
            "type": kind,
            "name": name,
            "inputs": {key: value for key, value in plain(inputs).items() if key != CODE},
            "preview": preview,
        }
        with self._lock, open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


class RecordingProvider(provider_pb2_grpc.ResourceProviderServicer):
    """Serves one package to one engine."""

    def __init__(self, package: str, recorder: Recorder) -> None:
        self.package = package
        self.recorder = recorder

    def CheckConfig(self, request: Any, context: Any) -> Any:
        return provider_pb2.CheckResponse(inputs=request.news)

    def DiffConfig(self, request: Any, context: Any) -> Any:
        return provider_pb2.DiffResponse(changes=provider_pb2.DiffResponse.DIFF_NONE)

    def Configure(self, request: Any, context: Any) -> Any:
        return provider_pb2.ConfigureResponse(supportsPreview=True)

    def Check(self, request: Any, context: Any) -> Any:
        self._record("check", request, request.news, False)
        return provider_pb2.CheckResponse(inputs=request.news)

    def Diff(self, request: Any, context: Any) -> Any:
        before, after = (
            plain(request.old_inputs if request.HasField("old_inputs") else request.olds),
            plain(request.news),
        )
        changed = sorted(key for key in {*before, *after} - {CODE} if before.get(key) != after.get(key))
        self._record("diff", request, request.news, False)
        replaces = REPLACES.get(request.type, frozenset())
        some, none = provider_pb2.DiffResponse.DIFF_SOME, provider_pb2.DiffResponse.DIFF_NONE
        return provider_pb2.DiffResponse(
            changes=some if changed else none,
            diffs=changed,
            replaces=[key for key in changed if key in replaces],
        )

    def Create(self, request: Any, context: Any) -> Any:
        self._record("create", request, request.properties, request.preview)
        identity = "" if request.preview else f"{request.name}-recorded"
        return provider_pb2.CreateResponse(id=identity, properties=self._outputs(request, request.properties))

    def Update(self, request: Any, context: Any) -> Any:
        self._record("update", request, request.news, request.preview)
        outputs = self._outputs(request, request.news)
        if (
            "latestVersion" in request.olds and not request.preview
        ):  # each change of a launch template is a version
            outputs["latestVersion"] = request.olds["latestVersion"] + 1
        return provider_pb2.UpdateResponse(properties=outputs)

    def Read(self, request: Any, context: Any) -> Any:
        self._record("read", request, request.inputs, False)
        return provider_pb2.ReadResponse(id=request.id, properties=request.properties, inputs=request.inputs)

    def Delete(self, request: Any, context: Any) -> Any:
        self._record("delete", request, request.properties, False)
        return empty_pb2.Empty()

    def Invoke(self, request: Any, context: Any) -> Any:
        self.recorder.write("invoke", request.tok, "", request.args, False)
        context.abort(
            grpc.StatusCode.UNIMPLEMENTED,
            f"the recording provider of {self.package} has no answer for {request.tok}",
        )

    def GetSchema(self, request: Any, context: Any) -> Any:
        return provider_pb2.GetSchemaResponse(schema=json.dumps({"name": self.package}))

    def GetPluginInfo(self, request: Any, context: Any) -> Any:
        return plugin_pb2.PluginInfo(version="")

    def Cancel(self, request: Any, context: Any) -> Any:
        return empty_pb2.Empty()

    def _record(self, operation: str, request: Any, inputs: struct_pb2.Struct, preview: bool) -> None:
        self.recorder.write(operation, request.type, request.name, inputs, preview)

    def _outputs(self, request: Any, inputs: struct_pb2.Struct) -> struct_pb2.Struct:
        outputs = struct_pb2.Struct()
        outputs.CopyFrom(inputs)
        for key, value in ANSWERS.get(request.type, {}).items():
            if key not in inputs:
                outputs[key] = UNKNOWN if request.preview else _named(value, request.name)
        if "metadata" in inputs and not request.preview:  # a Kubernetes object
            outputs["metadata"]["uid"] = f"uid-of-{request.name}"
        return outputs


def plain(struct: struct_pb2.Struct) -> dict[str, Any]:
    """The values of a message; whole numbers as such."""
    return _whole(json_format.MessageToDict(struct))


def _whole(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _named(value: Any, name: str) -> Any:
    if isinstance(value, str):
        return value.replace("{name}", name)
    if isinstance(value, Mapping):
        return {key: _named(item, name) for key, item in value.items()}
    return [_named(item, name) for item in value] if isinstance(value, list) else value


def main() -> None:
    package = next(word.removeprefix(PACKAGE_FLAG) for word in sys.argv if word.startswith(PACKAGE_FLAG))
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=16), options=NO_LIMIT)
    provider = RecordingProvider(package, Recorder(os.environ.get("HOLDFAST_RECORDING", "")))
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(provider, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    wait_for_end()
    server.stop(grace=0.2).wait()


if __name__ == "__main__":
    main()
