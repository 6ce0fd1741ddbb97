"""What the types do not say about themselves: schemas that are open on purpose, and the meaning of each field."""

from antwort.types import JSON
from antwort.wire.items import CustomToolCall, FunctionCall, Message, Reasoning

__all__ = ["DESCRIPTIONS", "NAMES", "REFINED", "SCHEMAS", "SPOKEN"]


SPOKEN = (Message, Reasoning, FunctionCall, CustomToolCall)
"""Items the server itself writes. They stand in the description though the wire types keep items open."""
NAMES = {"antwort.wire.items.Reasoning": "Reasoning", "antwort.wire.requests.Reasoning": "ReasoningOptions"}
"""Names in the description for structs of equal names."""


def _ref(name: str) -> JSON:
    return {"$ref": f"#/components/schemas/{name}"}


_TEXT: JSON = {"type": "string"}

SCHEMAS: JSON = {
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
    "Item": {
        "description": "What a response or a conversation is made of.",
        "anyOf": [*(_ref(kind.__name__) for kind in SPOKEN), _ref("OtherItem")],
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

REFINED: dict[tuple[str, str], str] = {
    ("CreateResponse", "input"): "InputItem",
    ("CreateResponse", "tools"): "Tool",
    ("CompactRequest", "input"): "InputItem",
    ("CompactedResponse", "output"): "Item",
    ("ResponseObject", "output"): "Item",
    ("ResponseObject", "tools"): "Tool",
    ("ItemList", "data"): "Item",
    ("CreateConversation", "items"): "InputItem",
    ("CreateItems", "items"): "InputItem",
}
"""Lists of open objects, by component and field, and what they hold."""

_MODEL = "The model to ask; the default model if it is left out."
_INPUT = "A text, or a list of items."
_REFUSED = "Refused: the server has nothing of the kind."
_IGNORED = "Taken and ignored."

DESCRIPTIONS: dict[str, dict[str, str]] = {
    "CreateResponse": {
        "model": _MODEL,
        "input": _INPUT,
        "instructions": "What the model is told before everything else; not kept for the next response.",
        "previous_response_id": "A response to continue.",
        "conversation": "A conversation to continue, by id or as an object with its id.",
        "include": "Further data to include in the output.",
        "tools": "The tools the model may use.",
        "tool_choice": "Which of them it must use: `auto`, `none`, `required`, or an object that names one.",
        "parallel_tool_calls": "Whether the model may call several tools in one turn.",
        "metadata": "Up to 16 pairs of text of your own, returned with the response.",
        "text": "How the text is to be written: plain, or as JSON that fits a schema.",
        "temperature": "How freely the model chooses its words.",
        "top_p": "The share of likely words it chooses from.",
        "presence_penalty": "How much it avoids words that were used.",
        "frequency_penalty": "How much it avoids words the more often they were used.",
        "top_logprobs": "How many alternatives are returned for each token, with their probability.",
        "max_output_tokens": "How many tokens may be generated, thoughts included.",
        "max_tool_calls": "How many tool calls are executed; later ones are not.",
        "reasoning": "How much the model should think, and what it shows of it.",
        "stream": "Whether to answer with server-sent events.",
        "stream_options": "Options of the stream.",
        "background": "Whether to answer at once and work on; needs `store`.",
        "store": "Whether the response is kept, so that it can be fetched and continued.",
        "truncation": "What happens if the window is full: `auto` leaves out the oldest, `disabled` is an error.",
        "service_tier": "Passed on to the model server.",
        "safety_identifier": "A stable name for your end user.",
        "prompt_cache_key": "A name for requests that begin alike.",
        "prompt_cache_retention": _IGNORED,
        "prompt_cache_options": _IGNORED,
        "user": "The older name of `safety_identifier`.",
        "agent": "An agent profile of the configuration; not part of the OpenAI API.",
        "context_management": "When the window is compacted by itself.",
        "prompt": _REFUSED,
        "moderation": _REFUSED,
        "access_programs": _IGNORED,
        "image": _REFUSED,
    },
    "TextConfig": {
        "format": '`{"type": "text"}`, `json_object`, or `json_schema` with `name`, `schema` and `strict`.',
        "verbosity": "How much the model says.",
    },
    "ReasoningOptions": {
        "effort": "How much it thinks, in the model server's own words.",
        "summary": "How its thoughts are summed up, in the model server's own words.",
        "generate_summary": "The older name of `summary`.",
    },
    "StreamOptions": {"include_obfuscation": _IGNORED},
    "ContextManagement": {
        "type": "Always `compaction`.",
        "compact_threshold": "How many tokens in the window are too many.",
    },
    "CompactRequest": {
        "model": _MODEL,
        "input": _INPUT,
        "previous_response_id": "A response whose window is compacted.",
        "instructions": "What the model is told before everything else.",
        "prompt_cache_key": _IGNORED,
        "prompt_cache_retention": _IGNORED,
        "prompt_cache_options": _IGNORED,
        "service_tier": _IGNORED,
    },
    "ChatRequest": {
        "messages": "What was said so far.",
        "model": _MODEL,
        "stream": "Whether to answer with server-sent events.",
    },
    "EmbeddingsRequest": {"input": "A text, or a list of texts or tokens.", "model": _MODEL},
    "ResponseObject": {
        "status": "Where it stands.",
        "error": "Why it failed.",
        "incomplete_details": "Why it ended early.",
        "output": "What the model and the server's tools made of it.",
        "usage": "What it cost in tokens.",
    },
}
"""The meaning of fields, by component."""
