"""The document of both APIs for programs that read OpenAPI 3.1, made from the descriptors. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor, ServiceDescriptor

from sandfleet._wire import api

_REF = "#/components/schemas/"
# As protobuf's JSON writes them; it reads numbers as text, too.
_PLAIN: dict[int, dict[str, Any]] = {
    FieldDescriptor.CPPTYPE_INT32: {"type": "integer"},
    FieldDescriptor.CPPTYPE_UINT32: {"type": "integer", "minimum": 0},
    FieldDescriptor.CPPTYPE_INT64: {"type": ["string", "integer"], "format": "int64"},
    FieldDescriptor.CPPTYPE_UINT64: {"type": ["string", "integer"], "format": "uint64"},
    FieldDescriptor.CPPTYPE_FLOAT: {"type": ["number", "string"]},
    FieldDescriptor.CPPTYPE_DOUBLE: {"type": ["number", "string"]},
    FieldDescriptor.CPPTYPE_BOOL: {"type": "boolean"},
    FieldDescriptor.CPPTYPE_STRING: {"type": "string"},
}
_KNOWN: dict[str, dict[str, Any]] = {
    "google.protobuf.Timestamp": {"type": "string", "format": "date-time"},
    "google.protobuf.Duration": {"type": "string", "pattern": r"^-?[0-9]+(\.[0-9]{1,9})?s$"},
    "google.protobuf.Any": {"type": "object"},
}
_SANDBOX = {"name": "sandbox_id", "in": "path", "required": True, "schema": {"type": "string"}}


def document(services: Iterable[ServiceDescriptor], version: str, executor: str) -> dict[str, Any]:
    """Return the document; services whose names begin with `executor` are called in a sandbox."""
    schemas: dict[str, Any] = {}
    detail = _of_message(api.common.ErrorDetail.DESCRIPTOR, schemas)
    details = {"type": "object", "properties": {"type": {}, "value": {}, "debug": detail}}
    properties = {"code": {"type": "string"}, "message": {"type": "string"}}
    schemas["Error"] = {"type": "object", "properties": {**properties, "details": {"type": "array", "items": details}}}
    paths = {}
    for method in (method for service in services for method in service.methods):
        if not (method.client_streaming and method.server_streaming):
            where = f"/{method.containing_service.full_name}/{method.name}"
            is_executors = where.startswith(f"/{executor}")
            parameters = {"parameters": [_SANDBOX]} if is_executors else {}
            path = f"/{{sandbox_id}}{where}" if is_executors else where
            paths[path] = {"post": _operation(method, schemas), **parameters}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Sandfleet", "version": version},
        "security": [{"key": []}],
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
    }


def _operation(method: MethodDescriptor, schemas: dict[str, Any]) -> dict[str, Any]:
    request = {"schema": _of_message(method.input_type, schemas)}
    answer = {"schema": _of_message(method.output_type, schemas)}
    kinds = ("application/x-ndjson", "text/event-stream") if method.server_streaming else ("application/json",)
    failure = {"description": "failed", "content": {"application/json": {"schema": {"$ref": f"{_REF}Error"}}}}
    return {
        "operationId": f"{method.containing_service.name}_{method.name}",
        "tags": [method.containing_service.name],
        "requestBody": {"required": True, "content": {"application/json": request}},
        "responses": {
            "200": {"description": "answered", "content": dict.fromkeys(kinds, answer)},
            "default": failure,
        },
    }


def _of_message(message: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    name = message.full_name
    if name in _KNOWN:
        return _KNOWN[name]
    if name not in schemas:
        # The schema stands there first, since a message may have itself as a field.
        properties: dict[str, Any] = {}
        schemas[name] = {"type": "object", "additionalProperties": False, "properties": properties}
        properties |= {field.json_name: _of_field(field, schemas) for field in message.fields}
    return {"$ref": f"{_REF}{name}"}


def _of_field(field: FieldDescriptor, schemas: dict[str, Any]) -> dict[str, Any]:
    message = field.message_type
    if message and message.GetOptions().map_entry:
        return {"type": "object", "additionalProperties": _of_field(message.fields_by_name["value"], schemas)}
    if message:
        schema = _of_message(message, schemas)
    elif field.enum_type:
        schema = {"type": "string", "enum": [value.name for value in field.enum_type.values]}
    elif field.type == FieldDescriptor.TYPE_BYTES:
        schema = {"type": "string", "contentEncoding": "base64"}
    else:
        schema = _PLAIN[field.cpp_type]
    return {"type": "array", "items": schema} if field.is_repeated else schema
