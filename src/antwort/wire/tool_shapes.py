"""The tools of a request, and what it says of them, as clients may send it. It is only checked, and stays JSON."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Literal

from msgspec import Meta, convert, field, to_builtins

from antwort.types import JSON
from antwort.wire.field_errors import check_shape, read_type, unsupported_value
from antwort.wire.part_shapes import ContainerReference, LocalEnvironment, Shape
from antwort.wire.requests import Effort
from antwort.wire.strict_schemas import check_parameters

LONGEST_NAME = 128
"""Characters of the name of a function that a client defines."""
FunctionName = Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME, pattern="^[a-zA-Z0-9_-]+$")]
Callers = Annotated[list[Literal["direct", "programmatic"]], Meta(min_length=1)]
Memory = Literal["1g", "4g", "16g", "64g"]
ContextSize = Literal["low", "medium", "high"]


class _Part(Shape, forbid_unknown_fields=False):
    """A tool, or a part of one. Fields that nobody knows are ignored, as at OpenAI."""


class _Tool(_Part):
    """What every tool has."""

    type: str


class FunctionTool(_Tool):
    """A function: of the client or, without parameters, one of the server by its name."""

    name: FunctionName
    description: str | None = None
    parameters: JSON | None = None
    strict: bool | None = None
    allowed_callers: Callers | None = None
    defer_loading: bool | None = None
    output_schema: JSON | None = None
    is_async: bool | None = field(default=None, name="async")


class _TextFormat(_Part, tag="text", tag_field="type"):
    pass


class _GrammarFormat(_Part, tag="grammar", tag_field="type"):
    syntax: Literal["lark", "regex"]
    definition: str


class CustomTool(_Tool):
    """A tool of the client that takes text."""

    name: FunctionName
    description: str | None = None
    format: _TextFormat | _GrammarFormat | None = None
    allowed_callers: Callers | None = None
    defer_loading: bool | None = None
    is_async: bool | None = field(default=None, name="async")


class NamespaceTool(_Tool):
    """Functions under a name of their own."""

    name: FunctionName
    tools: Annotated[list[JSON], Meta(min_length=1)]
    description: str | None = None


class _ComputerPreviewTool(_Tool):
    display_height: int
    display_width: int
    environment: Literal["windows", "mac", "linux", "ubuntu", "browser"]


class _NoNetwork(_Part, tag="disabled", tag_field="type"):
    pass


class _DomainSecret(_Part):
    domain: str
    name: str
    value: str


class _SomeNetwork(_Part, tag="allowlist", tag_field="type"):
    allowed_domains: list[str]
    domain_secrets: list[_DomainSecret] | None = None


NetworkPolicy = _NoNetwork | _SomeNetwork


class _SkillReference(_Part, tag="skill_reference", tag_field="type"):
    skill_id: str
    version: str | None = None


class _SkillSource(_Part):
    type: Literal["base64"]
    media_type: Literal["application/zip"]
    data: str


class _InlineSkill(_Part, tag="inline", tag_field="type"):
    name: str
    description: str
    source: _SkillSource


class _NewContainer(_Part, tag="container_auto", tag_field="type"):
    file_ids: list[str] | None = None
    memory_limit: Memory | None = None
    network_policy: NetworkPolicy | None = None
    skills: list[_SkillReference | _InlineSkill] | None = None


class _Computer(LocalEnvironment, forbid_unknown_fields=False, tag="local", tag_field="type"):
    pass


class _Container(ContainerReference, forbid_unknown_fields=False, tag="container_reference", tag_field="type"):
    pass


class _ShellTool(_Tool):
    environment: _NewContainer | _Computer | _Container | None = None
    allowed_callers: Callers | None = None


class _PatchTool(_Tool):
    allowed_callers: Callers | None = None


class _Domains(_Part):
    allowed_domains: list[str] | None = None
    blocked_domains: list[str] | None = None


class _Location(_Part):
    type: Literal["approximate"] | None = None
    city: str | None = None
    country: str | None = None
    region: str | None = None
    timezone: str | None = None


class _WebSearchTool(_Tool):
    external_web_access: bool | None = None
    filters: _Domains | None = None
    search_context_size: ContextSize | None = None
    search_content_types: list[Literal["text", "image"]] | None = None
    user_location: _Location | None = None
    allowed_callers: Callers | None = None


class _HybridSearch(_Part):
    embedding_weight: float
    text_weight: float


class _RankingOptions(_Part):
    ranker: Literal["none", "auto", "default-2024-11-15"] | None = None
    score_threshold: Annotated[float, Meta(ge=0, le=1)] | None = None
    hybrid_search: _HybridSearch | None = None


class _FileSearchTool(_Tool):
    vector_store_ids: list[str] | None = None
    filters: JSON | None = None
    max_num_results: Annotated[int, Meta(ge=1, le=50)] | None = None
    ranking_options: _RankingOptions | None = None
    allowed_callers: Callers | None = None


class _AutoContainer(_Part, tag="auto", tag_field="type"):
    file_ids: list[str] | None = None
    memory_limit: Memory | None = None
    network_policy: NetworkPolicy | None = None


class _CodeTool(_Tool):
    container: str | _AutoContainer | None = None
    allowed_callers: Callers | None = None


class _ToolFilter(_Part):
    read_only: bool | None = None
    tool_names: list[str] | None = None


class _ApprovalFilter(_Part):
    always: _ToolFilter | None = None
    never: _ToolFilter | None = None


class _McpTool(_Tool):
    server_label: str
    server_url: str | None = None
    connector_id: str | None = None  # here it names a server of the operator
    tunnel_id: str | None = None
    server_description: str | None = None
    authorization: str | None = None
    headers: dict[str, str] | None = None
    allowed_tools: list[str] | _ToolFilter | None = None
    require_approval: Literal["always", "never"] | _ApprovalFilter | None = None
    allowed_callers: Callers | None = None
    defer_loading: bool | None = None


class _ImageMask(_Part):
    file_id: str | None = None
    image_url: str | None = None


class _SvgReasoning(_Part):
    effort: Effort | None = None


class _Svg(_Part):
    model: str | None = None
    reasoning: _SvgReasoning | None = None


class _ImageTool(_Tool):
    action: Literal["generate", "edit", "auto"] | None = None
    background: Literal["transparent", "opaque", "auto"] | None = None
    complexity: ContextSize | None = None
    frame_count: int | None = None
    frame_duration_ms: int | None = None
    input_fidelity: Literal["high", "low"] | None = None
    input_image_mask: _ImageMask | None = None
    model: str | None = None
    moderation: Literal["auto", "low"] | None = None
    output_compression: Annotated[int, Meta(ge=0, le=100)] | None = None
    output_format: Literal["png", "webp", "jpeg", "gif", "svg"] | None = None
    partial_images: Annotated[int, Meta(ge=0, le=3)] | None = None
    quality: Literal["low", "medium", "high", "xhigh", "max", "auto"] | None = None
    size: str | None = None
    svg: _Svg | None = None


class _ToolSearchTool(_Tool):
    description: str | None = None
    execution: Literal["server", "client"] | None = None
    parameters: Any = None


TOOL_SHAPES: Mapping[str, type[Shape]] = MappingProxyType(
    {
        "function": FunctionTool,
        "custom": CustomTool,
        "namespace": NamespaceTool,
        "computer": _Tool,
        "computer_use_preview": _ComputerPreviewTool,
        "local_shell": _Tool,
        "shell": _ShellTool,
        "apply_patch": _PatchTool,
        "web_search": _WebSearchTool,
        "web_search_2025_08_26": _WebSearchTool,
        "web_search_preview": _WebSearchTool,
        "web_search_preview_2025_03_11": _WebSearchTool,
        "file_search": _FileSearchTool,
        "code_interpreter": _CodeTool,
        "mcp": _McpTool,
        "image_generation": _ImageTool,
        "tool_search": _ToolSearchTool,
        "programmatic_tool_calling": _Tool,
    }
)
"""What tools must look like, by their type. Types that a plug-in brings are its own to check."""


_PLAIN = frozenset({"function", "namespace"})
"""Types of tools whose parts are schemas, or tools themselves: only their own fields are looked at."""
_FIELDS = {kind: frozenset(shape.__struct_encode_fields__) for kind, shape in TOOL_SHAPES.items()}


def known_fields(tool: JSON, kind: str) -> JSON:
    """Return a tool that was checked without fields that nobody knows, nor its parts have; a plug-in's as it is."""
    known = _FIELDS.get(kind)
    if known is None:
        return tool
    if kind not in _PLAIN and any(isinstance(part, dict | list) for part in tool.values()):
        common: JSON = _common(tool, to_builtins(convert(tool, TOOL_SHAPES[kind])))
        return tool if common == tool else common
    return tool if tool.keys() <= known else {name: tool[name] for name in tool if name in known}


def _common(given: Any, shaped: Any) -> Any:
    """Return what was given as far as its shape has it: the shape has more, for what was left out."""
    if isinstance(given, dict):
        return {name: _common(part, shaped[name]) for name, part in given.items() if name in shaped}
    if isinstance(given, list):
        return [_common(part, like) for part, like in zip(given, shaped, strict=True)]
    return given


def check_tool(tool: JSON, kind: str, param: str) -> None:
    """Raise BadRequestError with the field of a tool that does not fit its type."""
    shape = TOOL_SHAPES.get(kind)
    if shape is None:
        return
    check_shape(tool, shape, param)
    if kind == "namespace":
        _check_namespace(tool["tools"], f"{param}.tools")
    if kind == "function" and tool.get("parameters") is not None:
        check_parameters(tool["parameters"], tool["name"], f"{param}.parameters", strict=bool(tool.get("strict")))


def _check_namespace(tools: Sequence[JSON], param: str) -> None:
    for index, tool in enumerate(tools):
        where = f"{param}[{index}]"
        kind = read_type(tool, where)
        if kind not in ("function", "custom"):
            raise unsupported_value(f"{where}.type", kind, ("function", "custom"))
        check_tool(tool, kind, where)


# --- the choice among them --------------------------------------------------------------------------------------------


class _NamedChoice(Shape):
    type: str
    name: str
    namespace: str | None = None


class _AllowedChoice(Shape):
    type: str
    tools: Annotated[list[JSON], Meta(min_length=1, max_length=128)]
    mode: Literal["auto", "required", "none"] = "auto"


class _McpChoice(Shape):
    type: str
    server_label: str
    name: str | None = None


class _TypeChoice(Shape):
    type: str


CHOICE_SHAPES: Mapping[str, type[Shape]] = MappingProxyType(
    {
        "function": _NamedChoice,
        "custom": _NamedChoice,
        "allowed_tools": _AllowedChoice,
        "mcp": _McpChoice,
        **dict.fromkeys(TOOL_SHAPES.keys() - {"function", "custom", "mcp", "namespace"}, _TypeChoice),
    }
)
"""What a choice of a tool must look like, by its type."""
