"""The messages of the kubelet's device plugin API v1beta1, built here so that no compiler is needed.

Names, numbers and types are those of k8s.io/kubelet v0.37.2, pkg/apis/deviceplugin/v1beta1/api.proto; a test
compares the bytes with those that the Go package of that version writes.
"""

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

VERSION = "v1beta1"
HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"

REGISTER = "/v1beta1.Registration/Register"
DEVICE_PLUGIN_SERVICE = "v1beta1.DevicePlugin"
REGISTRATION_SERVICE = "v1beta1.Registration"

_STRING_MAP = "map<string, string>"
_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "string": _Field.TYPE_STRING,
    "bool": _Field.TYPE_BOOL,
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
}

# message -> (field, number, type); a leading "repeated " as in the .proto file.
_MESSAGES: dict[str, tuple[tuple[str, int, str], ...]] = {
    "Empty": (),
    "DevicePluginOptions": (
        ("pre_start_required", 1, "bool"),
        ("get_preferred_allocation_available", 2, "bool"),
    ),
    "RegisterRequest": (
        ("version", 1, "string"),
        ("endpoint", 2, "string"),
        ("resource_name", 3, "string"),
        ("options", 4, "DevicePluginOptions"),
    ),
    "NUMANode": (("ID", 1, "int64"),),
    "TopologyInfo": (("nodes", 1, "repeated NUMANode"),),
    "Device": (("ID", 1, "string"), ("health", 2, "string"), ("topology", 3, "TopologyInfo")),
    "ListAndWatchResponse": (("devices", 1, "repeated Device"),),
    "PreStartContainerRequest": (("devices_ids", 1, "repeated string"),),
    "PreStartContainerResponse": (),
    "ContainerPreferredAllocationRequest": (
        ("available_deviceIDs", 1, "repeated string"),
        ("must_include_deviceIDs", 2, "repeated string"),
        ("allocation_size", 3, "int32"),
    ),
    "PreferredAllocationRequest": (
        ("container_requests", 1, "repeated ContainerPreferredAllocationRequest"),
    ),
    "ContainerPreferredAllocationResponse": (("deviceIDs", 1, "repeated string"),),
    "PreferredAllocationResponse": (
        ("container_responses", 1, "repeated ContainerPreferredAllocationResponse"),
    ),
    "ContainerAllocateRequest": (("devices_ids", 1, "repeated string"),),
    "AllocateRequest": (("container_requests", 1, "repeated ContainerAllocateRequest"),),
    "Mount": (("container_path", 1, "string"), ("host_path", 2, "string"), ("read_only", 3, "bool")),
    "DeviceSpec": (("container_path", 1, "string"), ("host_path", 2, "string"), ("permissions", 3, "string")),
    "CDIDevice": (("name", 1, "string"),),
    "ContainerAllocateResponse": (
        ("envs", 1, _STRING_MAP),
        ("mounts", 2, "repeated Mount"),
        ("devices", 3, "repeated DeviceSpec"),
        ("annotations", 4, _STRING_MAP),
        ("cdi_devices", 5, "repeated CDIDevice"),
    ),
    "AllocateResponse": (("container_responses", 1, "repeated ContainerAllocateResponse"),),
}


def _add_field(message: descriptor_pb2.DescriptorProto, name: str, number: int, written: str) -> None:
    kind = written.removeprefix("repeated ")
    field = message.field.add(name=name, number=number)
    field.label = _Field.LABEL_OPTIONAL if kind == written else _Field.LABEL_REPEATED
    if kind == _STRING_MAP:
        # A map is a repeated message of key and value, named after the field and marked as such.
        entry = message.nested_type.add(name=name.title().replace("_", "") + "Entry")
        entry.options.map_entry = True
        _add_field(entry, "key", 1, "string")
        _add_field(entry, "value", 2, "string")
        field.label, field.type = _Field.LABEL_REPEATED, _Field.TYPE_MESSAGE
        field.type_name = f".{VERSION}.{message.name}.{entry.name}"
    elif kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".{VERSION}.{kind}"


def _pool() -> descriptor_pool.DescriptorPool:
    file = descriptor_pb2.FileDescriptorProto(
        name="holdfast/deviceplugin_v1beta1.proto", package=VERSION, syntax="proto3"
    )
    for message_name, fields in _MESSAGES.items():
        message = file.message_type.add(name=message_name)
        for name, number, written in fields:
            _add_field(message, name, number, written)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


_POOL = _pool()


def _message(name: str) -> type:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{VERSION}.{name}"))


AllocateRequest = _message("AllocateRequest")
AllocateResponse = _message("AllocateResponse")
ContainerAllocateRequest = _message("ContainerAllocateRequest")
ContainerAllocateResponse = _message("ContainerAllocateResponse")
ContainerPreferredAllocationRequest = _message("ContainerPreferredAllocationRequest")
ContainerPreferredAllocationResponse = _message("ContainerPreferredAllocationResponse")
Device = _message("Device")
DevicePluginOptions = _message("DevicePluginOptions")
Empty = _message("Empty")
ListAndWatchResponse = _message("ListAndWatchResponse")
PreferredAllocationRequest = _message("PreferredAllocationRequest")
PreferredAllocationResponse = _message("PreferredAllocationResponse")
PreStartContainerRequest = _message("PreStartContainerRequest")
PreStartContainerResponse = _message("PreStartContainerResponse")
RegisterRequest = _message("RegisterRequest")
