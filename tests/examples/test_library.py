import json
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "library.py"

PARAMETERS = {
    "type": "object",
    "properties": {"number": {"type": "string", "description": "The order's number, such as A17"}},
    "required": ["number"],
}
DESCRIBED = {"name": "find_order", "description": "Look up an order by its number."}
FUNCTION = {**DESCRIBED, "parameters": PARAMETERS, "strict": False}


def test_the_library_example_prints_what_it_shows() -> None:
    done = subprocess.run([sys.executable, str(EXAMPLE)], check=True, capture_output=True, text=True)
    assert done.stderr == ""
    functions, responses, chat, anthropic, *results = done.stdout.splitlines()
    assert functions == "functions: convert, whoami, find_order"
    assert json.loads(responses.removeprefix("responses: ")) == {"type": "function", **FUNCTION}
    assert json.loads(chat.removeprefix("chat: ")) == {"type": "function", "function": FUNCTION}
    assert json.loads(anthropic.removeprefix("anthropic: ")) == {**DESCRIBED, "input_schema": PARAMETERS}
    assert results == [
        "convert: [success] 13.75",
        "whoami: [success] You are ada of acme.",
        'find_order: [success] {"number":"A17","state":"on its way"}',
        "find_order: [error] There is no order B2; numbers start with A.",
        (
            "convert: [invalid_arguments] Invalid arguments: rate: Input should be greater than 0 (got -1). "
            "Expected: amount (number, required), rate (number, required)."
        ),
        (
            "fnd_order: [unknown] There is no function 'fnd_order'; did you mean 'find_order'? "
            "Available: convert, whoami, find_order."
        ),
    ]
