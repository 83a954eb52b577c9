"""Each message of the executor's API can be written down, whatever its fields are called."""

import json
from importlib import import_module
from pathlib import Path

import pytest
from google.protobuf.descriptor import FieldDescriptor
from sandfleet_executor.servicers.convert.subjects import plain

ROOT = Path(__file__).parents[4]
MODULES = [
    import_module(f"sandfleet_api.executor.v1.{path.stem}_pb2")
    for path in sorted((ROOT / "proto/sandfleet_api/executor/v1").glob("*.proto"))
]
MESSAGES = {f"{name}": getattr(module, name) for module in MODULES for name in module.DESCRIPTOR.message_types_by_name}
MAX_DEPTH = 3


def scalar(field):
    if field.type in {FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES}:
        return "x" if field.type == FieldDescriptor.TYPE_STRING else b"\xff"
    return True if field.type == FieldDescriptor.TYPE_BOOL else 1


def fill(message, depth=0):
    """Sets each field, of a oneof the last one."""
    for field in message.DESCRIPTOR.fields:
        entry = field.message_type is not None and field.message_type.GetOptions().map_entry
        if entry:
            value = field.message_type.fields_by_name["value"]
            if value.message_type is None:
                getattr(message, field.name)["k"] = scalar(value)
            else:
                fill(getattr(message, field.name)["k"], depth + 1)
        elif field.message_type is not None and depth < MAX_DEPTH:
            one = getattr(message, field.name)
            fill(one.add() if field.is_repeated else one, depth + 1)
            if not field.is_repeated:
                one.SetInParent()
        elif field.message_type is None:
            if field.is_repeated:
                getattr(message, field.name).append(scalar(field))
            else:
                setattr(message, field.name, scalar(field))
    return message


@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_a_full_message_is_written_down_with_all_its_fields(name):
    message = fill(MESSAGES[name]())
    said = plain(message)
    assert set(said) == {field.name for field, _ in message.ListFields()}
    assert json.dumps(said)
