"""The description of the API, made from the routes themselves."""

import inspect
import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import product
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec import UNSET, Meta, Struct
from msgspec.inspect import ListType, Metadata, StructType, UnionType, multi_type_info
from pydantic import PydanticUserError, TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError
from starlette.routing import compile_path

import antwort
from antwort.callables import read_docstring
from antwort.context.context import EITHER
from antwort.errors import (
    APIError,
    AuthenticationError,
    BadGatewayError,
    BadRequestError,
    ConflictError,
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
from antwort.types import JSON
from antwort.web.routes import AsgiRoute, Example, Route
from antwort.wire.items import COMPONENT, ClientCall, Message, Reasoning
from antwort.wire.messages.answers import MESSAGES, error_status

# --- schemas: those of msgspec and those pydantic can read, in one set of components ---------------------------------


Use = tuple[Any, Literal["validation", "serialization"]]
"""A type, or a schema as it is, and whether it is read or written."""

_TEMPLATE = "#/components/schemas/{name}"


def reference(name: str) -> JSON:
    """Return a reference to a component."""
    return {"$ref": _TEMPLATE.format(name=name)}


_SPOKEN = (Message, Reasoning, *get_args(ClientCall))
"""Items the server itself writes. They stand in the description though the wire types keep items open."""

_TEXT: JSON = {"type": "string"}

_OPEN: JSON = {
    "ErrorEnvelope": {
        "type": "object",
        "description": "The error envelope of the OpenAI API.",
        "properties": {
            "error": {
                "type": "object",
                "properties": {
                    "message": {"type": "string", "description": "What is wrong, and what would be right."},
                    "type": {"type": "string", "description": "Whose error it is."},
                    "param": {"type": ["string", "null"], "description": "The parameter it is about."},
                    "code": {"type": ["string", "null"], "description": "A name for programs."},
                },
                "required": ["message", "type", "param", "code"],
            }
        },
        "required": ["error"],
    },
    "MessageError": {
        "type": "object",
        "description": "The error envelope of Anthropic's Messages.",
        "properties": {
            "type": {"const": "error"},
            "error": {
                "type": "object",
                "properties": {
                    "type": {"type": "string", "description": "What kind of error it is."},
                    "message": {"type": "string", "description": "What is wrong, with the field it is about."},
                },
                "required": ["type", "message"],
            },
            "request_id": {"type": "string", "description": "The request, as in the header `request-id`."},
        },
        "required": ["type", "error"],
    },
    "Item": {
        "description": "What a response or a conversation is made of.",
        "anyOf": [*(reference(kind.__name__) for kind in _SPOKEN), reference("OtherItem")],
    },
    "OtherItem": {
        "type": "object",
        "description": "An item of another type: input that was sent, the output of a function, the receipt of a tool.",
        "properties": {"type": _TEXT, "id": _TEXT},
        "required": ["type"],
    },
    "InputItem": {
        "type": "object",
        "description": "An item to send: a message (`role` and `content`), the output of a function call, an item of an"
        " earlier response, or a reference to one.",
        "properties": {
            "type": {"type": "string", "minLength": 1, "description": "What it is; a message if it is left out."},
            "role": {"description": "Who speaks in a message: user, assistant, system or developer."},
            "content": {"description": "What is said in a message: a text, or a list of parts."},
        },
    },
    "Tool": {
        "type": "object",
        "description": "A tool: a function of the client (`type: function`), or a type that the server itself answers.",
        "properties": {"type": _TEXT, "name": _TEXT, "description": {"type": ["string", "null"]}},
        "required": ["type"],
    },
}
"""Components that are open on purpose, and what they are."""


def build_schemas(uses: Iterable[Use]) -> tuple[list[JSON], JSON]:
    """Return the schema of each use, in order, and the components they refer to.

    What has no JSON Schema gets the one that allows everything.
    """
    uses = [(_open_type(kind) or kind, mode) for kind, mode in uses]
    own, components = _from_structs([use for use in uses if _is_struct(use[0])])
    components |= _OPEN
    rest = [use for use in uses if not _is_struct(use[0]) and not isinstance(use[0], dict)]
    others, definitions = _from_pydantic(rest, taken=components)
    components |= definitions
    queue = iter(others)
    schemas = [kind if isinstance(kind, dict) else own[kind] if _is_struct(kind) else next(queue) for kind, _ in uses]
    return _referring(schemas), _referring(components)


def _from_structs(uses: Sequence[Use]) -> tuple[dict[Any, JSON], JSON]:
    """Return the schema of each structure that is read or written, and the components they refer to."""
    read = [kind for kind, mode in uses if mode == "validation"]
    written = dict(_written([*(kind for kind, mode in uses if mode == "serialization"), *_SPOKEN]))
    structs = list(dict.fromkeys([*read, *written]))
    found, components = msgspec.json.schema_components(structs, ref_template=_TEMPLATE)
    for kind, schema in zip(structs, found, strict=True):
        if kind in written:
            components[schema["$ref"].rpartition("/")[2]]["required"] = written[kind]
    return dict(zip(structs, found, strict=True)), components


def _open_type(kind: Any) -> JSON | None:
    """Return the reference of a type that names the component it is, None of any other."""
    for meta in get_args(kind)[1:] if get_origin(kind) is Annotated else ():
        if isinstance(meta, Meta) and COMPONENT in (meta.extra_json_schema or {}):
            return {COMPONENT: (meta.extra_json_schema or {})[COMPONENT]}
    return None


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _written(kinds: Iterable[type[Struct]]) -> Iterator[tuple[type[Struct], list[str]]]:
    """Yield every struct that answers are made of, with the fields that are always there, though they have defaults."""
    seen: set[type[Struct]] = set()
    queue: list[Any] = list(multi_type_info(kinds))
    while queue:
        info = queue.pop()
        if isinstance(info, StructType) and info.cls not in seen:
            seen.add(info.cls)
            tag = [info.tag_field] if info.tag_field else []
            always = [field.encode_name for field in msgspec.structs.fields(info.cls) if field.default is not UNSET]
            yield info.cls, [*tag, *always]
            queue += [field.type for field in info.fields]
        elif isinstance(info, UnionType):
            queue += info.types
        elif isinstance(info, ListType):
            queue.append(info.item_type)
        elif isinstance(info, Metadata):
            queue.append(info.type)


def _referring(schema: Any) -> Any:
    """Return a schema in which open types are references to the components that they name."""
    if isinstance(schema, list):
        return [_referring(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return reference(schema[COMPONENT]) if COMPONENT in schema else {k: _referring(v) for k, v in schema.items()}


def _from_pydantic(uses: list[Use], *, taken: JSON) -> tuple[list[JSON], JSON]:
    inputs: list[tuple[int, Any, TypeAdapter[Any]]] = []
    for number, (kind, mode) in enumerate(uses):
        try:
            adapter = kind if isinstance(kind, TypeAdapter) else TypeAdapter(kind)
            adapter.json_schema(mode=mode)
        except (PydanticSchemaGenerationError, PydanticUserError):
            continue
        inputs.append((number, mode, adapter))
    found, document = TypeAdapter.json_schemas(inputs, ref_template=_TEMPLATE.replace("{name}", "{model}"))
    by_number = {number: schema for (number, _), schema in found.items()}
    definitions = document.get("$defs", {})
    schemas = [by_number.get(number, {}) for number in range(len(uses))]
    for clash in sorted(definitions.keys() & taken.keys()):
        new = next(f"{clash}{n}" for n in range(2, 1000) if f"{clash}{n}" not in taken | definitions)
        definitions[new] = definitions.pop(clash)
        schemas, definitions = _renamed([schemas, definitions], clash, new)
    return schemas, definitions


def _renamed(document: Any, old: str, new: str) -> Any:
    """Point every reference to another name."""
    before, after = (json.dumps(reference(name)["$ref"]) for name in (old, new))
    return json.loads(json.dumps(document).replace(before, after))


# --- the description -------------------------------------------------------------------------------------------------


OWN = ""
"""The group of the server's own routes. Their tags come from their paths."""

_DESCRIPTION = """\
A self-hosted server for agents: the Responses API in front, any model server behind, a function registry at its heart.

Every error is the envelope of the OpenAI API. A path that exists answers other methods with 405, and HEAD like GET.
"""
_TAGS = {
    "responses": "Create responses, and work with those that are stored.",
    "runs": "Background responses as work: how far they are, their agents and calls, second tries.",
    "traces": "What agents that run elsewhere have done, as they tell it.",
    "batches": "Many requests in a file, and their answers in another.",
    "prompts": "Texts with places for variables, in versions, that requests name.",
    "decisions": "Questions about an input, answered with probabilities.",
    "messages": "Anthropic's Messages: responses, asked for and told in its words.",
    "conversations": "Items that responses continue, under one id.",
    "models": "The models that can be asked.",
    "chat": "Chat Completions, passed through.",
    "completions": "Completions of texts, passed through.",
    "embeddings": "Embeddings, passed through.",
    "moderations": "Judgements of texts and images, passed through.",
    "images": "Images, passed through.",
    "functions": "What models can call.",
    "providers": "What brings the functions.",
    "server": "Probes, metrics and this description.",
}
_SCHEMES: JSON = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "An API key or a token, with the scopes an operation names.",
    },
    "api_key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}

_PLAIN: JSON = {"type": "string", "minLength": 1}
"""A parameter of a path of which nothing more is said."""
_ALWAYS: list[type[APIError]] = [MethodNotAllowedError, InternalServerError, ServiceUnavailableError]
_SECURED: list[type[APIError]] = [AuthenticationError, PermissionDeniedError, RateLimitError]
_WITH_BODY: list[type[APIError]] = [BadRequestError, PayloadTooLargeError, UnsupportedMediaTypeError]
_UPSTREAM: list[type[APIError]] = [NotFoundError, BadGatewayError, GatewayTimeoutError]
_DESCRIBED: list[type[APIError]] = [*_ALWAYS, *_SECURED, *_WITH_BODY, *_UPSTREAM, ConflictError]

_OTHER_ERROR = "ProtocolError"
_OF_MESSAGES = "Messages"
"""What the names of errors begin with that are in Anthropic's envelope."""
_AS_SPOKEN: JSON = {
    "description": "What was sent cannot be read, or asks for what is not there, as the endpoint's protocol has it.",
    "content": {"application/json": {"schema": {"type": "object"}}},
}


def openapi(groups: Iterable[tuple[str, Sequence[Route | AsgiRoute]]], *, public: Collection[str]) -> JSON:
    """Return an OpenAPI 3.1 document for groups of routes: `OWN` for the API itself, and each provider by its name."""
    # Of two routes that answer the same requests the first is served, so the first is described.
    served: dict[tuple[str, str], _Operation] = {}
    for group, routes in groups:
        for route in routes:
            path = compile_path(route.path)[1]
            served.setdefault((path, route.method), _Operation(group, path, route, secured=route.path not in public))
    uses = [use for operation in served.values() for use in operation.uses]
    schemas, components = build_schemas(uses)
    queue = iter(schemas)
    paths: dict[str, JSON] = {}
    names: set[str] = set()
    for (path, method), operation in served.items():
        found = operation.describe([next(queue) for _ in operation.uses])
        if found["operationId"] in names:
            found["operationId"] = re.sub(r"\W+", "_", f"{method.lower()}{path.replace('/v1', '/api')}").strip("_")
        names.add(found["operationId"])
        paths.setdefault(path, {})[method.lower()] = found
    found_tags = dict.fromkeys(operation.tag for operation in served.values())
    tags = [*(tag for tag in _TAGS if tag in found_tags), *(tag for tag in found_tags if tag not in _TAGS)]
    return {
        "openapi": "3.1.0",
        "info": {"title": "antwort", "version": antwort.__version__, "description": _DESCRIPTION.strip()},
        "tags": [{"name": tag, "description": _TAGS.get(tag, f"The routes of the provider `{tag}`.")} for tag in tags],
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": _described_errors(),
            "securitySchemes": _SCHEMES,
        },
    }


def _own_tag(path: str) -> str:
    """Return the resource a path of the API is about: `/v1/<resource>/…`; the server itself for all others."""
    _, version, resource, *_ = [*path.split("/"), "", ""]
    return resource if version == "v1" and resource else "server"


class _Operation(Struct, frozen=True):
    """A route, and what is to be said about it."""

    group: str
    path: str
    route: Route | AsgiRoute
    secured: bool

    @property
    def tag(self) -> str:
        """What it is listed under."""
        return self.group or _own_tag(self.path)

    @property
    def uses(self) -> list[Use]:
        """The types it needs schemas of: the body, the answer, each parameter of the query, those of the path."""
        route = self.route
        if isinstance(route, AsgiRoute):
            return [(route.body or Any, "validation"), (route.returns or Any, "serialization")]
        answer = route.answer_type if route.answer_type is not None else Any
        query: list[Use] = [(parameter.adapter, "validation") for parameter in route.query]
        path: list[Use] = [(hint, "validation") for hint in route.path_types.values()]
        return [(route.body_type or Any, "validation"), (answer, "serialization"), *query, *path]

    @property
    def _scopes(self) -> list[list[str]]:
        """What the credentials must carry, of each list one; a provider's routes that declare none need its name."""
        return [needed.split(EITHER) for needed in (self.route.scope or self.group).split()]

    @property
    def _has_body(self) -> bool:
        route = self.route
        return route.body is not None if isinstance(route, AsgiRoute) else route.body_type is not None

    def describe(self, schemas: Sequence[JSON]) -> JSON:
        """Return the operation, with the schemas of its uses in their order."""
        route, (body, answer, *given) = self.route, schemas
        handler = route.app if isinstance(route, AsgiRoute) else route.handler
        description = inspect.getdoc(route.app) if isinstance(route, AsgiRoute) else route.description
        operation: JSON = {
            "operationId": self._name(getattr(handler, "__name__", route.method.lower())),
            "tags": [self.tag],
            "summary": route.summary,
            "description": description or route.summary,
        }
        parameters = list(self._parameters(given))
        if parameters:
            operation["parameters"] = parameters
        if self._has_body:
            bodies = [(example, example.body) for example in route.examples if example.body is not None]
            takes = "application/json" if isinstance(route, AsgiRoute) else route.takes
            content = {takes: {"schema": body, **_examples(bodies)}}
            operation["requestBody"] = {"required": True, "content": content}
        operation["responses"] = {**dict([self._success(answer)]), **dict(self._errors()), **dict(self._own_answers())}
        if self.secured:
            scopes = self._scopes
            operation["security"] = [{name: [*enough]} for name in _SCHEMES for enough in product(*scopes)]
            if scopes:
                named = " and ".join(" or ".join(f"`{scope}`" for scope in needed) for needed in scopes)
                operation["description"] += f"\n\nNeeds the scope{'s' * (len(scopes) > 1)} {named}."
        return operation

    def _name(self, handler: str) -> str:
        """Name the operation after its subject and its handler, such as `responses_create`."""
        return handler if handler.startswith(self.tag) else f"{self.tag}_{handler.removesuffix(f'_{self.tag}')}"

    def _parameters(self, given: Sequence[JSON]) -> Iterator[JSON]:
        route = self.route
        if isinstance(route, AsgiRoute):
            return
        shown = next((example.parameters for example in route.examples if example.parameters), {})
        documented = read_docstring(route.handler)[1]
        query = given[: len(route.query)]
        typed = dict(zip(route.path_types, given[len(query) :], strict=True))
        for name in route.path_parameters:
            schema = dict(typed.get(name, _PLAIN))
            if schema.get("type") == "string" and not schema.keys() & {"enum", "const", "pattern", "format"}:
                schema = {**_PLAIN, **schema}  # what is empty is no part of a path
            declared = schema.pop("description", None)
            by_name = f"The id of the {name.removesuffix('_id').replace('_', ' ')}." if name.endswith("_id") else ""
            yield {
                "name": name,
                "in": "path",
                "required": True,
                **_described(documented.get(name) or declared or by_name),
                "schema": schema,
                **_example(shown, name),
            }
        for parameter, found in zip(route.query, query, strict=True):
            schema = dict(found)
            description = schema.pop("description", None)
            if parameter.default is not None:
                schema["default"] = parameter.default
            required = {"required": True} if parameter.required else {}
            yield {
                "name": parameter.name,
                "in": "query",
                **({"style": "deepObject", "explode": True} if parameter.pairs else {}),
                **_described(description),
                **required,
                "schema": _without_null(schema),
                **_example(shown, parameter.name),
            }

    def _success(self, schema: JSON) -> tuple[str, JSON]:
        route = self.route
        if isinstance(route, Route) and route.answers_nothing:
            return "204", {"description": "Done."}
        media_type = route.media_type if isinstance(route, Route) else "application/json"
        if media_type.startswith("text/"):
            schema = {"type": "string"}
        answers = [(example, example.answer) for example in route.examples if example.answer is not None]
        content: JSON = {media_type: {"schema": schema, **_examples(answers)}}
        if route.streams:
            content["text/event-stream"] = {"schema": {"description": "Server-sent events, the last of them `[DONE]`."}}
        status = route.status if isinstance(route, Route) else 200
        return str(status), {"description": "Success.", "content": content}

    def _own_answers(self) -> Iterator[tuple[str, JSON]]:
        """Yield the answers of another protocol that is spoken there."""
        for status, meaning in self.route.own_answers.items() if isinstance(self.route, AsgiRoute) else ():
            refused = {"$ref": f"#/components/responses/{_OTHER_ERROR}"}
            yield str(status), {"description": meaning} if status < 300 else refused

    def _errors(self) -> Iterator[tuple[str, JSON]]:
        route = self.route
        kinds = [*_ALWAYS, *route.errors]
        if self.secured:
            kinds += _SECURED
        if self._has_body:
            kinds += _WITH_BODY
        if route.upstream:
            kinds += _UPSTREAM
        if isinstance(route, Route):
            kinds += [BadRequestError] if route.query else []
            kinds += [BadRequestError, NotFoundError] if route.path_parameters else []
        if route.path.startswith(MESSAGES):
            for status, kind in sorted({error_status(kind): kind for kind in kinds}.items()):
                yield str(status), {"$ref": f"#/components/responses/{_OF_MESSAGES}{kind.__name__}"}
            return
        for status, kind in sorted({kind.status: kind for kind in kinds}.items()):
            known = kind in _DESCRIBED
            yield str(status), {"$ref": f"#/components/responses/{kind.__name__}"} if known else _error(kind)


def _described(text: str | None) -> JSON:
    return {"description": text} if text else {}


def _example(values: Any, name: str) -> JSON:
    return {"example": values[name]} if name in values else {}


def _examples(values: Iterable[tuple[Example, Any]]) -> JSON:
    """Return examples under readable keys, for a body or an answer."""
    found: JSON = {}
    for example, value in values:
        summary = example.summary or "Example"
        found[re.sub(r"\W+", "_", summary.lower()).strip("_")] = {"summary": summary, "value": value}
    return {"examples": found} if found else {}


def _without_null(schema: JSON) -> JSON:
    """Return what a parameter of the query may be if it is there: a query has no null."""
    choices = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
    if len(choices) != 1:
        return schema
    return {**{key: value for key, value in schema.items() if key not in {"anyOf", "default"}}, **choices[0]}


def _described_errors() -> JSON:
    """Return all errors that operations refer to, in both envelopes."""
    ours = {kind.__name__: _error(kind) for kind in _DESCRIBED}
    of_messages = {f"{_OF_MESSAGES}{kind.__name__}": _error(kind, "MessageError") for kind in _DESCRIBED}
    return {**ours, **of_messages, _OTHER_ERROR: _AS_SPOKEN}


def _error(kind: type[APIError], envelope: str = "ErrorEnvelope") -> JSON:
    summary = (inspect.getdoc(kind) or "").partition(": ")[2].partition("\n")[0]
    content = {"application/json": {"schema": reference(envelope)}}
    return {"description": summary.capitalize() or kind.__name__, "content": content}
