"""Compiling the mock backend and the load generator, which must cost less than what they measure."""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.measure import BenchmarkError

SOURCES = Path(__file__).parent / "native"
BUILD = Path(__file__).parents[1] / ".venv" / "native"
FLAGS = ("-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror")


def build(name: str) -> Path:
    """Compile `native/<name>.c`, which may include `<name>_*.h`, unless it was before, and return the program."""
    if sys.platform != "linux":
        raise BenchmarkError(f"the gateway benchmark needs Linux (epoll, /proc); this is {sys.platform}")
    source = SOURCES / f"{name}.c"
    parts = [source, *sorted(SOURCES.glob(f"{name}_*.h"))]
    code = b"".join(part.read_bytes() for part in parts)
    digest = hashlib.sha256(code + " ".join(FLAGS).encode()).hexdigest()[:16]
    program = BUILD / f"{name}-{digest}"
    if program.exists():
        return program
    compiler = shutil.which("cc")
    if compiler is None:
        raise BenchmarkError("no C compiler on PATH; run: apt-get install gcc libc6-dev")
    BUILD.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=BUILD) as folder:
        made = Path(folder) / name
        result = subprocess.run(
            [compiler, *FLAGS, "-o", str(made), str(source)], capture_output=True, text=True, check=False, timeout=120
        )
        if result.returncode:
            raise BenchmarkError(f"{source.name} does not compile:\n{result.stderr}")
        made.replace(program)  # in one step, for tests that build at the same time
    return program
