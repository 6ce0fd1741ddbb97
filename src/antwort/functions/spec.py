"""What a function is: a name, a description, typed parameters, a handler, and how it may be used."""

import copy
import functools
import inspect
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, TypedDict, TypeVar, cast, get_args, overload

import msgspec

from antwort.callables import HandlerKind, handler_kind
from antwort.config import Approval
from antwort.context import Context
from antwort.errors import DefinitionError, did_you_mean
from antwort.functions.arguments import Arguments, SchemaArguments, SignatureArguments
from antwort.functions.hosted_tool import HostedTool, OpenedFunction, check_hosted
from antwort.functions.signature import Signature, context_parameter, object_schema, strict_schema
from antwort.types import JSON

Handler = Callable[..., Any]
Offer = Literal["always", "deferred", "on_request"]
E = TypeVar("E", bound=StrEnum)
OFFERS, _APPROVALS = get_args(Offer), get_args(Approval)
"""How functions are offered, from always to least often."""
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Scope(StrEnum):
    """Which agents may call a function; checked when it is executed, not only when it is listed."""

    CORE = "core"
    """Every agent."""
    AGENT = "agent"
    """Agents that may spawn others."""
    USER = "user"
    """Root agents only: they talk to the human."""
    CUSTOM = "custom"
    """Every agent, or the ones named in `agents`."""


class Effect(StrEnum):
    """What a call does to the run beyond giving a result."""

    NONE = "none"
    SUSPEND = "suspend"
    """The run waits for somebody; such a function has no timeout."""
    END_AGENT = "end_agent"
    END_RUN = "end_run"


# To look up a member of an enum takes some hundred nanoseconds in Python 3.11.
_SUSPEND = Effect.SUSPEND
_ENDS = (Effect.END_AGENT, Effect.END_RUN)


class Limits(msgspec.Struct, frozen=True):
    """Bounds of one function; None takes the registry's default."""

    timeout: float | None = None
    """Seconds, waiting for a free slot included; `math.inf` for no limit."""
    max_output: int | None = None
    """Characters of output that reach the model."""
    concurrency: int | None = None
    """Calls that may run at the same time; further ones wait. A function that calls itself needs more than one."""

    def __post_init__(self) -> None:
        for name in ("timeout", "max_output", "concurrency"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise DefinitionError(
                    f"limit '{name}' must be greater than 0, not {value}; leave it out for the default"
                )


class FunctionOptions(TypedDict, total=False):
    """What `@function` and `register` take besides the function itself; anything else is refused."""

    name: str
    description: str
    scope: Scope | str
    timeout: float
    max_output: int
    concurrency: int
    idempotent: bool
    attach: bool
    in_order: bool
    inline: bool
    effect: Effect | str
    hosted: HostedTool
    agents: Iterable[str]
    strict: bool
    offer: Offer
    approval: Approval
    references: bool | Collection[str]
    reads_references: bool
    spill: bool
    calls_functions: bool
    needs: str


def check_options(options: Iterable[str], known: Iterable[str], what: str) -> None:
    """Raise DefinitionError for an option that there is not: a slip of the pen could take a limit away."""
    known = sorted(known)
    for name in options:
        if name not in known:
            hint = did_you_mean(name, known)
            raise DefinitionError(f"{what} has no option '{name}'{hint or ';'} there are {', '.join(known)}")


def check_offer(offer: str, name: str) -> None:
    """Raise DefinitionError unless something can be offered so."""
    if offer not in OFFERS:
        raise DefinitionError(f"'{name}': offer '{offer}' is not one of {', '.join(OFFERS)}")


_UNREAD = cast("Arguments", object())
"""Stands for arguments that are to be made from `parameters`."""


class _Parameters:
    """The parameters of a spec: whatever was given, they read as what its arguments say once somebody asks."""

    @overload
    def __get__(self, spec: None, kind: type["FunctionSpec"]) -> None: ...
    @overload
    def __get__(self, spec: "FunctionSpec", kind: type["FunctionSpec"]) -> Mapping[str, Any]: ...
    def __get__(self, spec: "FunctionSpec | None", kind: type["FunctionSpec"]) -> Mapping[str, Any] | None:
        return None if spec is None else spec.arguments.schema  # None is the default

    def __set__(self, spec: "FunctionSpec", given: Mapping[str, Any] | None) -> None:
        vars(spec)["parameters"] = given


@dataclass(frozen=True, eq=False)
class FunctionSpec:
    """A function that a model can call.

    `parameters` is either a JSON Schema of an object or a mapping from name to schema; it is stored as a JSON Schema.
    A handler given with `parameters` is called with keyword arguments if its parameters have those names, else with
    one mapping of them all. A spec without a handler belongs to a provider that executes it itself.
    """

    name: str
    description: str
    parameters: _Parameters = _Parameters()
    handler: Handler | None = field(default=None, repr=False)
    scope: Scope = Scope.CUSTOM
    limits: Limits = field(default_factory=Limits)
    idempotent: bool = False
    """It may be executed again after a crash, or once for several equal calls."""
    attach: bool = False
    """It is executed again after a crash, with `ctx.attached`: it finds what it has begun, and goes on with it."""
    resumes: bool = False
    """Its calls are not to be made twice, and yet it is called again after a crash, with `ctx.attached`."""
    in_order: bool = False
    """Calls of one turn that say so are executed one after the other, as the model has made them, for each provider.

    It is for functions that work on the same things, of which the model expects to find what it has just done.
    """
    inline: bool = False
    """It only computes, for microseconds: it is called on the event loop, without a thread or a task of its own.

    Nobody else gets to run until it returns, and nobody can stop it.
    """
    effect: Effect = Effect.NONE
    hosted: HostedTool | None = None
    """How it looks on the wire as a tool of the OpenAI API, if it does."""
    agents: frozenset[str] | None = None
    """The agents that may call it; None means all that the scope allows."""
    strict: bool = False
    """Offer the parameters in strict mode, where the schema allows it."""
    approval: Approval = "never"
    """Whether a call is made only after somebody has said yes; the configuration may say otherwise."""
    offer: Offer = "always"
    """Whether models see it in every request, or once they have found it, or only in a request that names it.

    All functions of a provider may be offered so.
    """
    references: bool | Collection[str] = False
    """Whether it follows references itself, or in which of its arguments; else it gets the values they stand for.

    Those that it follows itself it gets as `Reference`: whatever else looks like one is data. The names are those of
    arguments, or of members of them, however deep.
    """
    reads_references: bool = False
    """Whether a model can read with it what a reference stands for, part by part.

    Where such a function is offered, long results of others are kept and replaced by references.
    """
    spill: bool = True
    """Whether a long result may be kept as a variable, of which the model reads the reference, head and tail."""
    calls_functions: bool = False
    """Whether it calls other functions of the agent, as the model says in its arguments.

    Its description is followed by the functions that only such a one may call, and it cannot be called by one itself.
    """
    needs: str = ""
    """Scopes that credentials must carry, parted by blanks, for a model to be offered it: those of what it reads or
    writes beyond what belongs to the response itself."""
    arguments: Arguments = field(default=_UNREAD, repr=False, compare=False)
    """How arguments are checked; made from `parameters` unless the signature was read."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(str(self.name)):
            raise DefinitionError(f"'{self.name}' is not a function name; use 1 to 64 letters, digits, '_' or '-'")
        if not self.description or not self.description.strip():
            raise DefinitionError(f"function '{self.name}' has no description; say what it does, for the model")
        if self.handler is not None and not callable(self.handler):
            raise DefinitionError(f"function '{self.name}': the handler is not callable")
        self._set("scope", _member(Scope, self.scope, self.name))
        self._set("effect", _member(Effect, self.effect, self.name))
        check_offer(self.offer, self.name)
        if self.approval not in _APPROVALS:
            raise DefinitionError(f"'{self.name}': approval '{self.approval}' is not one of {', '.join(_APPROVALS)}")
        if self.agents is not None:
            self._set("agents", frozenset(self.agents))
        if isinstance(self.references, str):
            raise DefinitionError(
                f"function '{self.name}': `references` takes names as a tuple: ('{self.references}',)"
            )
        if self.inline:
            self._check_inline()
        if self.hosted is not None:
            check_hosted(self.hosted)
        if self.arguments is _UNREAD:
            schema, closed = object_schema(vars(self)["parameters"] or {})
            self._set("arguments", SchemaArguments(schema, closed=closed, strict=self.strict, name=self.name))

    def _check_inline(self) -> None:
        """Raise DefinitionError unless the handler can be called on the event loop as it is."""
        if self.handler is None or self.kind is not HandlerKind.SYNC or inspect.isgeneratorfunction(self.handler):
            raise DefinitionError(
                f"function '{self.name}' cannot be inline: only a plain `def` that returns its result can; leave out "
                "`inline`"
            )
        for limit in ("timeout", "concurrency"):
            if getattr(self.limits, limit) is not None:
                raise DefinitionError(
                    f"function '{self.name}': nobody can stop an inline function, or call it twice at a time; leave "
                    f"out `{limit}`, or `inline` if it takes longer than some microseconds"
                )

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    @classmethod
    def of(cls, handler: Handler, options: FunctionOptions | None = None, *, trusted: bool = False) -> "FunctionSpec":
        """Read a plain Python function: its name, docstring and type hints.

        Of one that is trusted to be right the hints are read when somebody needs them.
        """
        options = options or {}
        check_options(options, FunctionOptions.__annotations__, "a function")
        name = options.get("name") or str(getattr(handler, "__name__", type(handler).__name__))
        signature = Signature(handler, name=name, description=options.get("description"))
        if not trusted:
            signature.check()
        strict = options.get("strict", False)
        return cls(
            name=name,
            description=signature.description,
            handler=handler,
            limits=Limits(options.get("timeout"), options.get("max_output"), options.get("concurrency")),
            scope=_member(Scope, options.get("scope", Scope.CUSTOM), name),
            idempotent=options.get("idempotent", False),
            attach=options.get("attach", False),
            in_order=options.get("in_order", False),
            inline=options.get("inline", False),
            effect=_member(Effect, options.get("effect", Effect.NONE), name),
            hosted=options.get("hosted"),
            agents=frozenset(options["agents"]) if "agents" in options else None,
            strict=strict,
            offer=options.get("offer", "always"),
            approval=options.get("approval", "never"),
            references=options.get("references", False),
            reads_references=options.get("reads_references", False),
            spill=options.get("spill", True),
            calls_functions=options.get("calls_functions", False),
            needs=options.get("needs", ""),
            arguments=SignatureArguments(signature, strict=strict),
        )

    @classmethod
    def from_mapping(cls, described: Mapping[str, Any]) -> "FunctionSpec":
        """Read the mapping form: `{"name": …, "description": …, "parameters": {…}, "handler": …, "scope": …}`."""
        known = ("name", "description", "parameters", "handler", "scope")
        for key in described:
            if key not in known:
                raise DefinitionError(f"unknown key '{key}' in a function{did_you_mean(key, known)}")
        for key in ("name", "description", "handler"):
            if described.get(key) is None:
                raise DefinitionError(f"a function needs '{key}'; got the keys {', '.join(described) or '(none)'}")
        return cls(**described)

    def used_otherwise(self, *, offer: Offer | None = None, approval: Approval | None = None) -> "FunctionSpec":
        """Return the same function, offered or approved otherwise. `dataclasses.replace` would read its parameters."""
        spec = copy.copy(self)
        spec._set("offer", offer or self.offer)
        spec._set("approval", approval or self.approval)
        return spec

    def opened(self, function: OpenedFunction) -> "FunctionSpec":
        """Return the same function as it makes the calls of one that a tool of a request stands for."""
        spec = self.used_otherwise(approval=function.approval)
        spec._set("hosted", function.tool)
        spec._set("attach", function.repeatable)
        spec._set("resumes", function.resumes)
        return spec

    @functools.cached_property
    def kind(self) -> HandlerKind:
        """How the handler runs; a spec without one is executed by its provider, on the event loop."""
        return HandlerKind.ASYNC if self.handler is None else handler_kind(self.handler)

    @functools.cached_property
    def strict_parameters(self) -> JSON | None:
        """The parameters in strict mode; None if not asked for or not possible."""
        return strict_schema(self.parameters) if self.strict else None

    @functools.cached_property
    def suspends(self) -> bool:
        """Tell whether a call waits for somebody."""
        return self.effect is _SUSPEND

    @functools.cached_property
    def ends_agent(self) -> bool:
        """Tell whether the agent is done with a call that succeeds."""
        return self.effect in _ENDS

    @functools.cached_property
    def _calling(self) -> tuple[str | None, str | None]:
        """The names of the handler's context parameter, and of the one that takes all arguments as a mapping.

        Without the latter arguments go by keyword; an empty name stands for one that can only be given by position.
        """
        if self.handler is None:
            raise DefinitionError(f"function '{self.name}' has no handler; its provider executes it")
        context = context_parameter(self.handler, name=self.name)
        given = [p for p in inspect.signature(self.handler).parameters.values() if p.name != context]
        by_name = {p.name for p in given if p.kind in {p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY}}
        known = self.parameters.get("properties", {})
        if isinstance(self.arguments, SignatureArguments) or not given or by_name & known.keys():
            return context, None
        first = given[0]
        if first.kind is first.VAR_KEYWORD:
            return context, None
        return context, first.name if first.name in by_name else ""

    def check(self) -> None:
        """Raise DefinitionError unless the handler can be called with what the parameters say."""
        if inspect.isgeneratorfunction(self.handler):
            raise DefinitionError(f"function '{self.name}' is a plain generator; make it `async def`, or return a list")
        handler: Any = self.handler
        if handler is not None and isinstance(self.arguments, SignatureArguments):
            return  # its parameters are those of the handler
        positional, keywords = self._arguments(None, dict.fromkeys(self.parameters.get("properties", {})))
        try:
            inspect.signature(handler).bind(*positional, **keywords)
        except TypeError as error:
            raise DefinitionError(f"function '{self.name}': the handler does not fit the parameters: {error}") from None

    def call(self, ctx: Context, arguments: Mapping[str, Any]) -> Any:
        """Call the handler with checked arguments; the result is a value, an awaitable or an async generator."""
        handler: Any = self.handler
        context, whole = self._calling
        if whole is None:
            return handler(**arguments) if context is None else handler(**{**arguments, context: ctx})
        positional, keywords = self._arguments(ctx, arguments)
        return handler(*positional, **keywords)

    def _arguments(self, ctx: Context | None, arguments: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        context, whole = self._calling
        keywords: dict[str, Any] = dict(arguments) if whole is None else {whole: arguments} if whole else {}
        if context is not None:
            keywords[context] = ctx
        return ((arguments,) if whole == "" else ()), keywords

    def effective_timeout(self, default: float | None) -> float | None:
        """Return the seconds a call may take, None for no limit."""
        if self.suspends:
            return None
        timeout = self.limits.timeout if self.limits.timeout is not None else default
        return None if timeout is None or math.isinf(timeout) else timeout


def _member(kind: type[E], value: E | str, name: str) -> E:
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(kind)
        raise DefinitionError(f"function '{name}': {kind.__name__.lower()} '{value}' is not one of {known}") from None


Shape = Literal["responses", "chat", "anthropic"]


def tool_definition(spec: FunctionSpec, shape: Shape = "responses") -> dict[str, Any]:
    """Return the definition of a function for the Responses API, Chat Completions, or Anthropic's Messages API."""
    strict = spec.strict_parameters
    parameters = copy.deepcopy(dict(spec.parameters) if strict is None else strict)
    if shape == "anthropic":
        return {"name": spec.name, "description": spec.description, "input_schema": parameters}
    function = {
        "name": spec.name,
        "description": spec.description,
        "parameters": parameters,
        "strict": strict is not None,
    }
    if shape == "chat":
        return {"type": "function", "function": function}
    if shape == "responses":
        return {"type": "function", **function}
    raise ValueError(f"'{shape}' is not a shape of tool definitions; use 'responses', 'chat' or 'anthropic'")
