"""The description of the API, made from the routes themselves."""

import inspect
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import msgspec
from pydantic import TypeAdapter
from starlette.routing import compile_path

import antwort
from antwort.errors import (
    APIError,
    AuthenticationError,
    BadGatewayError,
    BadRequestError,
    GatewayTimeoutError,
    InternalServerError,
    MethodNotAllowedError,
    NotFoundError,
    PayloadTooLargeError,
    PermissionDeniedError,
    RateLimitError,
    ServiceUnavailableError,
    UnsupportedMediaTypeError,
)
from antwort.functions import Route
from antwort.server.raw import RawRoute

__all__ = ["openapi"]

JSON = dict[str, Any]

ENVELOPE = "ErrorEnvelope"
_ERROR_SCHEMA: JSON = {
    "type": "object",
    "description": "The error envelope of the OpenAI API.",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
            "required": ["message", "type", "param", "code"],
        }
    },
    "required": ["error"],
}


def openapi(groups: Iterable[tuple[str, Sequence[Route | RawRoute]]], *, public: Collection[str]) -> JSON:
    """Return an OpenAPI 3.1 document for groups of routes: the API itself and each provider, by tag."""
    tagged = [(tag, route) for tag, routes in groups for route in routes]
    schemas, components = _schemas([route for _, route in tagged if isinstance(route, Route)])
    raw = [kind for _, route in tagged if isinstance(route, RawRoute) for kind in (route.body, route.returns) if kind]
    references, raw_components = msgspec.json.schema_components(raw, ref_template="#/components/schemas/{name}")
    raw_schemas = dict(zip(raw, references, strict=True))
    paths: dict[str, JSON] = {}
    for tag, route in tagged:
        path = compile_path(route.path)[1]
        operations = paths.setdefault(path, {})
        # Of two routes that answer the same requests the first is served, so the first is described.
        if isinstance(route, RawRoute):
            operation = _raw_operation(tag, route, raw_schemas)
        else:
            operation = _operation(tag, route, schemas, secured=route.path not in public)
        operations.setdefault(route.method.lower(), operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "antwort",
            "version": antwort.__version__,
            "description": "A self-hosted server for agents with a function registry at its heart.",
        },
        "paths": paths,
        "components": {
            "schemas": {**raw_components, **components, ENVELOPE: _ERROR_SCHEMA},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _schemas(routes: Sequence[Route]) -> tuple[dict[tuple[Route, str], JSON], JSON]:
    """Return the schema of each body and each answer, and the definitions they share, with names that never clash."""
    inputs: list[tuple[tuple[Route, str], Any, TypeAdapter[Any]]] = []
    for route in routes:
        if route.body is not None:
            inputs.append(((route, "body"), "validation", TypeAdapter(route.body)))
        if route.returns is not None:
            inputs.append(((route, "returns"), "serialization", route.returns))
    found, definitions = TypeAdapter.json_schemas(inputs, ref_template="#/components/schemas/{model}")
    return {key: schema for (key, _), schema in found.items()}, definitions.get("$defs", {})


def _raw_operation(tag: str, route: RawRoute, schemas: dict[type, JSON]) -> JSON:
    answer = {"description": "Success.", "content": _json_content(schemas[route.returns] if route.returns else {})}
    errors = dict(_errors([*_SECURED, *_WITH_BODY, *_ALWAYS, *_UPSTREAM]))
    operation: JSON = {
        "operationId": _operation_id(route.method, route.path),
        "tags": [tag],
        "summary": route.summary,
        "description": inspect.getdoc(route.app) or route.summary,
        "responses": {"200": answer, **{str(status): error for status, error in errors.items()}},
        "security": [{"bearer": []}],
    }
    if route.body is not None:
        operation["requestBody"] = {"required": True, "content": _json_content(schemas[route.body])}
    return operation


def _operation_id(method: str, path: str) -> str:
    return re.sub(r"\W+", "_", f"{method.lower()}{path}").strip("_")


def _operation(tag: str, route: Route, schemas: dict[tuple[Route, str], JSON], *, secured: bool) -> JSON:
    operation: JSON = {
        "operationId": _operation_id(route.method, route.path),
        "tags": [tag],
        "summary": route.summary,
        "description": inspect.getdoc(route.handler) or route.summary,
        "responses": {str(status): answer for status, answer in _responses(route, schemas, secured=secured)},
    }
    if route.path_parameters:
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in route.path_parameters
        ]
    if route.body is not None:
        operation["requestBody"] = {"required": True, "content": _json_content(schemas[route, "body"])}
    if secured:
        operation["security"] = [{"bearer": []}]
    if route.scope is not None:
        operation["description"] += f"\n\nNeeds the scope `{route.scope}`."
    return operation


def _responses(route: Route, schemas: dict[tuple[Route, str], JSON], *, secured: bool) -> Iterator[tuple[int, JSON]]:
    if route.answers_nothing:
        yield 204, {"description": "Done."}
    else:
        content = {route.media_type: {"schema": schemas.get((route, "returns"), {})}}
        yield route.status, {"description": "Success.", "content": content}
    errors = [*_ALWAYS]
    if secured:
        errors += _SECURED
    if route.body is not None:
        errors += _WITH_BODY
    if route.path_parameters:
        errors += [BadRequestError, NotFoundError]
    yield from _errors(errors)


_ALWAYS: list[type[APIError]] = [MethodNotAllowedError, InternalServerError, ServiceUnavailableError]
_SECURED: list[type[APIError]] = [AuthenticationError, PermissionDeniedError, RateLimitError]
_WITH_BODY: list[type[APIError]] = [BadRequestError, PayloadTooLargeError, UnsupportedMediaTypeError]
_UPSTREAM: list[type[APIError]] = [NotFoundError, BadGatewayError, GatewayTimeoutError]


def _errors(kinds: Iterable[type[APIError]]) -> Iterator[tuple[int, JSON]]:
    envelope = {"$ref": f"#/components/schemas/{ENVELOPE}"}
    for status, kind in sorted({kind.status: kind for kind in kinds}.items()):
        summary = (inspect.getdoc(kind) or "").partition(": ")[2].partition("\n")[0]
        yield status, {"description": summary.capitalize(), "content": _json_content(envelope)}


def _json_content(schema: JSON) -> JSON:
    return {"application/json": {"schema": schema}}
