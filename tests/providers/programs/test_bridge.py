"""What programs in the sandbox say over the bridge is not believed: a lie ends the program, and nothing else."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.providers.programs.stage import TOOL, Shop, program, result, served_programs

from antwort.functions import FunctionSpec

# The pipe of the frames, found as any program could find it.
PIPE = """
import json, os, struct
pipes = []
for name in os.listdir('/proc/self/fd'):
    try:
        if int(name) > 2 and os.readlink('/proc/self/fd/' + name).startswith('pipe:'):
            flags = open('/proc/self/fdinfo/' + name).read().split('flags:')[1].split()[0]
            if int(flags, 8) & 3 == 1:
                pipes.append(int(name))
    except OSError:
        pass
[pipe] = pipes

def send(frame):
    data = frame if isinstance(frame, bytes) else json.dumps(frame).encode()
    write(struct.pack('>I', len(data)) + data)

def write(data):
    while data:
        data = data[os.write(pipe, data):]

print('sent')
"""
CALL = "{'type': 'call', 'key': 'k', 'name': 'add', 'args': [], 'kwargs': {'a': 1}}"

# What is sent, and what the model reads of it.
LIES = {
    "garbage": ("write(b'x' * 100_000)", "The program was ended: it has sent a frame of "),
    "a frame that is too long": ("write(struct.pack('>I', 2**31))\nwhile True:\n    write(b'x' * 65536)", "was ended"),
    "no JSON": ("send(b'\\xff{')\nwhile True:\n    pass", "it has sent what is no frame"),
    "deep JSON": ("send(b'[' * 100_000)\nwhile True:\n    pass", "it has sent what is no frame"),
    "an unknown frame": ("send({'type': 'root'})\nwhile True:\n    pass", "it has sent what is no frame"),
    "a frame with more": ("send({'type': 'ready', 'x': 1})\nwhile True:\n    pass", "it has sent what is no frame"),
    "numbers that are none": ("send({'type': 'idle', 'seen': 0, 'seconds': -1})\nwhile True:\n    pass", "no frame"),
    "a second beginning": ("send({'type': 'ready'})\nwhile True:\n    pass", "two beginnings"),
    "the same call twice at once": (
        f"call = {CALL}\ncall['name'] = 'wait'\ncall['kwargs'] = {{}}\nsend(call)\nsend(call)\nwhile True:\n    pass",
        "a call that is under way",
    ),
    "a call that is too long": (
        'send(b\'{"type":"call","key":"k","name":"add","kwargs":{},"args":[\' + b\'[],\' * 2_000_000 + b\'1]}\')',
        "a call of 6,000,0",
    ),
    "arguments that are none": (
        f"call = {CALL}\ncall['args'] = 7\nsend(call)\nwhile True:\n    pass",
        "without arguments",
    ),
    "an end of its own": ("send({'type': 'end', 'failed': False, 'text': 'fine', 'names': ''})", "fine"),
    "an end and then more": (
        "send({'type': 'end', 'failed': False, 'text': 'fine', 'names': '%%%'})\nwhile True:\n    send({'type': 'x'})",
        "fine",
    ),
    "waiting, without doing so": (
        "while True:\n    send({'type': 'idle', 'seen': 0, 'seconds': None})",
        "TimeoutError",
    ),
    "sleeping, without doing so": (
        "while True:\n    send({'type': 'idle', 'seen': 0, 'seconds': 100.0})",
        "may sleep for 300 seconds",
    ),
    "half a frame": ("write(struct.pack('>I', 100) + b'{')\nos._exit(0)", "The interpreter has ended."),
    "calls without end": (
        f"call = {CALL}\nn = 0\nwhile True:\n    n += 1\n    call['key'] = str(n)\n    send(call)",
        "call after call",
    ),
    "nothing, at once": ("os._exit(3)", "The interpreter has ended."),
    "the end of all pipes": ("os.closerange(0, 100)\nwhile True:\n    pass", "TimeoutError"),
}


async def wait() -> None:
    """Wait for ever."""
    await asyncio.Event().wait()


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_ends_the_program_and_the_server_lives(lie: str, tmp_path: Path) -> None:
    code, expected = LIES[lie]
    steps: list[Any] = [program(PIPE + code), program("1 + 1"), "Done."]
    settings = {"interpreter": "sandbox", "seconds": 3 if expected == "TimeoutError" else 60, "max_calls": 20}
    with served_programs(tmp_path, steps, settings=settings, more=[FunctionSpec.of(wait)]) as stage:
        stage.client().responses.create(model="scripted", input="Go!", tools=[TOOL])
        assert expected in result(stage, 1)
        assert result(stage, 1).startswith("sent\n")
        assert result(stage, 2) == "2"


def test_functions_that_the_agent_does_not_have_cannot_be_called_over_the_bridge(tmp_path: Path) -> None:
    """Names, arguments and rights are checked outside, whatever is sent."""
    code = """
async def call(name, kwargs):
    stub = type(add)(add.__code__, add.__globals__, name, None, add.__closure__)
    return await stub.__closure__[0].cell_contents.call(name, (), kwargs)

for name, kwargs in [('run_program', {'code': '1'}), ('text', {'length': 1}), ('final_answer', {'result': 1}),
                     ('../add', {}), ('add', {'a': 'no number'}), ('add', {'a': 1, 'tenant': 'other'}),
                     ('_variable_load', {'name': 'var_of_another'})]:
    try:
        print(name, await call(name, kwargs))
    except RuntimeError as error:
        print(name, 'refused')
"""
    shop = Shop()
    tools: Any = [TOOL, {"type": "function", "name": "add"}]
    tools.append({"type": "function", "name": "text", "allowed_callers": ["direct"]})
    with served_programs(tmp_path, [program(code), "Done."], shop, settings={"interpreter": "sandbox"}) as stage:
        stage.client().responses.create(model="scripted", input="Go!", tools=tools)
        lines = result(stage).splitlines()
    assert len(lines) == 7
    assert all(line.endswith("refused") for line in lines), lines
    assert shop.counted == []


def test_files_the_network_and_the_environment_of_the_server_are_out_of_reach(tmp_path: Path) -> None:
    code = f"""
import os, socket
for path in ({str(tmp_path)!r}, '/root', '/home', '/etc/shadow'):
    try:
        found = os.listdir(path) if os.path.isdir(path) else open(path).read()
    except OSError as error:
        found = ''
    print(path[:6], bool(found))
try:
    socket.create_connection(('127.0.0.1', 1), timeout=1)
except OSError as error:
    print('no network')
print(sorted(name for name in os.environ if 'ANTWORT' in name or 'KEY' in name))
"""
    with served_programs(tmp_path, [program(code), "Done."], settings={"interpreter": "sandbox"}) as stage:
        stage.client().responses.create(model="scripted", input="Go!", tools=[TOOL])
        found = result(stage)
    assert "True" not in found
    assert found.endswith("no network\n[]")
