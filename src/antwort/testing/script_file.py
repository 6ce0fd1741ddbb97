r"""Scripts in YAML.

The file is a list of steps, or a mapping with `steps` and `models` (the models to list; by default `scripted`):

    models: [scripted]
    steps:
      - text: Hello                      # or a list of deltas: [Hel, lo]
        reasoning: Greet back.           # text or deltas, like `summary` and `refusal`; `opaque` is a text
      - calls:
          - name: add
            arguments: {a: 1, b: 2}      # or raw text, or a list of raw texts that are streamed one by one
            id: call_1                   # made up if left out
        usage: {input: 12, output: 3}    # also cached, reasoning; `usage: null` reports none
        finish: tool_calls
        expect:                          # the request must have these properties, see `matching`
          tools: [add]
          last: one and two
      - text: ["The answer ", "is 3."]
        by: {last: "3"}                  # answers the first request that fits, whatever the order
        dialect: ollama                  # or {like: ollama, done: false}; see `Dialect`
        burst: 2                         # also: delay, pace, logprobs, hang_after, close_after
      - error: {status: 429, message: Slow down., headers: {retry-after: "2"}, after: 0}
      - raw: ["data: {broken\n\n"]       # the bytes of the answer, only over HTTP; with `status` and `headers`
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from antwort.errors import ConfigError, DefinitionError, did_you_mean
from antwort.testing.script import Call, Dialect, Expectation, Failure, Turn, call, fail, matching, raw, turn
from antwort.wire.responses import InputTokensDetails, OutputTokensDetails, Usage


@dataclass(frozen=True, slots=True)
class ScriptFile:
    """What a file contains."""

    steps: tuple[Turn, ...]
    models: tuple[str, ...] = ("scripted",)


class _YamlPart(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _YamlCall(_YamlPart):
    name: str
    arguments: dict[str, Any] | str | list[str] = Field(default_factory=dict)
    id: str | None = None

    def value(self) -> Call:
        return call(self.name, self.arguments, call_id=self.id)


class _YamlUsage(_YamlPart):
    input: int = Field(default=10, ge=0)
    output: int = Field(default=5, ge=0)
    cached: int = Field(default=0, ge=0)
    reasoning: int = Field(default=0, ge=0)

    def value(self) -> Usage:
        return Usage(
            input_tokens=self.input,
            input_tokens_details=InputTokensDetails(cached_tokens=self.cached),
            output_tokens=self.output,
            output_tokens_details=OutputTokensDetails(reasoning_tokens=self.reasoning),
            total_tokens=self.input + self.output,
        )


class _YamlFailure(_YamlPart):
    status: int = Field(ge=400, le=599)
    message: str = ""
    type: str | None = None
    code: str | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    body: str | None = None
    after: int = Field(default=0, ge=0)

    def value(self) -> Failure:
        return fail(**dict(self))


class _YamlStep(_YamlPart):
    text: str | list[str] = ""
    reasoning: str | list[str] = ""
    summary: str | list[str] = ""
    opaque: str = ""
    refusal: str | list[str] = ""
    calls: list[_YamlCall] = Field(default_factory=list)
    usage: _YamlUsage | None = Field(default_factory=_YamlUsage)
    finish: str | None = None
    logprobs: bool = False
    error: _YamlFailure | None = None
    delay: float = Field(default=0, ge=0)
    pace: float = Field(default=0, ge=0)
    burst: int = Field(default=1, ge=1)
    hang_after: int | None = Field(default=None, ge=0)
    close_after: int | None = Field(default=None, ge=0)
    expect: dict[str, Any] | None = None
    by: dict[str, Any] | None = None
    dialect: str | dict[str, Any] = "openai"
    raw: str | list[str] | None = None
    status: int = Field(default=200, ge=200, le=599)
    headers: dict[str, str] = Field(default_factory=dict)

    def value(self) -> Turn:
        expect, by = _expectation("expect", self.expect), _expectation("by", self.by)
        if self.raw is not None:
            chunks = [self.raw] if isinstance(self.raw, str) else self.raw
            return raw(*(c.encode() for c in chunks), status=self.status, headers=self.headers, expect=expect, by=by)
        for name in ("status", "headers"):
            if name in self.model_fields_set:
                raise DefinitionError(f"{name}: belongs to a step with 'raw'; for an error write 'error'")
        return turn(
            self.text,
            reasoning=self.reasoning,
            summary=self.summary,
            opaque=self.opaque,
            refusal=self.refusal,
            calls=[one.value() for one in self.calls],
            usage=self.usage.value() if self.usage else None,
            finish=self.finish,
            logprobs=self.logprobs,
            error=self.error.value() if self.error else None,
            delay=self.delay,
            pace=self.pace,
            burst=self.burst,
            hang_after=self.hang_after,
            close_after=self.close_after,
            expect=expect,
            by=by,
            dialect=_dialect(self.dialect),
        )


class _YamlFile(_YamlPart):
    steps: list[_YamlStep]
    models: list[str] = Field(default_factory=lambda: ["scripted"])


def read_script(path: str | Path) -> ScriptFile:
    """Read a script from a YAML file. Raise ConfigError that names the file, the step, the key and the cure."""
    path = Path(path)
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"the script cannot be read: {reason}", where=str(path)) from error
    except yaml.YAMLError as error:
        raise ConfigError(f"the script is not YAML: {error}", where=str(path)) from error
    if isinstance(content, list):
        content = {"steps": content}
    if not isinstance(content, Mapping):
        raise ConfigError("a script is a list of steps, or a mapping with 'steps'", where=str(path))
    try:
        file = _YamlFile.model_validate(content)
    except ValidationError as error:
        # A mistyped key explains why another one is missing.
        problem, *more = sorted(error.errors(include_url=False), key=lambda one: one["type"] != "extra_forbidden")
        rest = f" (and {len(more)} more)" if more else ""
        raise ConfigError(f"{_in_words(problem)}{rest}", where=str(path)) from error
    return ScriptFile(tuple(_values(file, path)), tuple(file.models))


def _values(file: _YamlFile, path: Path) -> list[Turn]:
    turns = []
    for number, step in enumerate(file.steps, 1):
        try:
            turns.append(step.value())
        except ConfigError as error:
            raise ConfigError(f"step {number}: {error.message}", where=str(path)) from error
    return turns


def _expectation(key: Literal["expect", "by"], given: Mapping[str, Any] | None) -> Expectation | None:
    if given is None:
        return None
    try:
        return matching(**given)
    except DefinitionError as error:
        raise DefinitionError(f"{key}: {error.message}") from error


def _dialect(given: str | Mapping[str, Any]) -> Dialect:
    switches = {"like": given} if isinstance(given, str) else dict(given)
    base = dataclasses.asdict(Dialect.like(str(switches.pop("like", "openai"))))
    for name in switches:
        if name not in base:
            raise DefinitionError(f"dialect.{name}: unknown key{did_you_mean(name, base)}")
    try:
        return TypeAdapter(Dialect).validate_python(base | switches)
    except ValidationError as error:
        problem = error.errors()[0]
        raise DefinitionError(f"dialect.{problem['loc'][0]}: {problem['msg'].lower()}") from error


_KEYS: dict[int | str, type[_YamlPart]] = {
    "steps": _YamlStep,
    "calls": _YamlCall,
    "usage": _YamlUsage,
    "error": _YamlFailure,
}


def _unknown_key(keys: Sequence[int | str], top: type[_YamlPart]) -> str:
    """Say which keys there are instead of the last of these, which lead to it from the top."""
    *above, name = keys
    model = next((_KEYS[part] for part in reversed(above) if part in _KEYS), top)
    hint = did_you_mean(str(name), model.model_fields)
    return f"unknown key{hint or ' (known: ' + ', '.join(model.model_fields) + ')'}"


def _in_words(problem: Mapping[str, Any]) -> str:
    """Say what pydantic found in the words of the file: the step by its number, then the key."""
    location = [part for part in problem["loc"] if isinstance(part, int) or part.isidentifier()]
    step = f"step {location[1] + 1}: " if len(location) > 1 and location[0] == "steps" else ""
    keys = location[2:] if step else location
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in keys).lstrip(".")
    if problem["type"] == "extra_forbidden":
        return f"{step}{key}: {_unknown_key(keys, _YamlStep if step else _YamlFile)}"
    if problem["type"] == "model_type" and keys and keys[-1] in _KEYS:
        return f"{step}{key}: should be a mapping of {', '.join(_KEYS[keys[-1]].model_fields)}"
    return f"{step}{key}: {problem['msg'][:1].lower()}{problem['msg'][1:]}".replace(": : ", ": ")
