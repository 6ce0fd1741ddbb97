"""What people and models run every day works in the sandbox, for whoever the server is."""

import shutil
from collections.abc import Iterator

import pytest
from tests.sandbox.stage import KINDS, Machine, machine


@pytest.fixture(scope="module", params=[*KINDS, "plain"] if "root" in KINDS else KINDS)
def outside(request: pytest.FixtureRequest) -> Iterator[Machine]:
    with machine(request.param) as one:
        yield one


PYTHON = {
    "threads": """
import threading
done = []
threads = [threading.Thread(target=done.append, args=(n,)) for n in range(16)]
[t.start() for t in threads]
[t.join() for t in threads]
print(sum(done))  # 120
""",
    "subprocess": """
import subprocess
print(subprocess.run("tr a-z A-Z | rev", shell=True, input="olleh", text=True, capture_output=True).stdout)  # HELLO
""",
    "processes": """
import multiprocessing as m
def square(n):
    return n * n
if __name__ == "__main__":
    for way in ("fork", "spawn", "forkserver"):
        with m.get_context(way).Pool(2) as pool:
            assert pool.map(square, range(5)) == [0, 1, 4, 9, 16]
    queue, lock, shared = m.Queue(), m.Lock(), m.Value("i", 7)
    queue.put(35)
    with m.Manager() as manager, lock:
        print(manager.list([queue.get() + shared.value])[0])  # 42
""",
    "shared memory": """
from multiprocessing.shared_memory import SharedMemory
memory = SharedMemory(create=True, size=1 << 20)
memory.buf[:5] = b"hello"
again = SharedMemory(memory.name)
print(bytes(again.buf[:5]))  # b'hello'
memory.unlink()
""",
    "asyncio": """
import asyncio
async def main():
    process = await asyncio.create_subprocess_exec("echo", "there", stdout=-1)
    server = await asyncio.start_unix_server(lambda r, w: (w.write(b"here"), w.close()), "s")
    reader, writer = await asyncio.open_unix_connection("s")
    told = (await process.communicate())[0].decode().strip(), (await reader.read()).decode()
    writer.close()
    await asyncio.sleep(0.01)
    return told
print(asyncio.run(main()))  # ('there', 'here')
""",
    "sqlite": """
import sqlite3
with sqlite3.connect("own.db") as db:
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("CREATE TABLE t (n)")
    db.executemany("INSERT INTO t VALUES (?)", [(n,) for n in range(10)])
print(db.execute("SELECT sum(n) FROM t").fetchone()[0])  # 45
""",
    "mapped memory": """
import mmap, os
with mmap.mmap(-1, 1 << 20) as own:
    own[:3] = b"abc"
    if os.fork() == 0:
        own[3:6] = b"def"
        os._exit(0)
    os.wait()
    print(own[:6])  # b'abcdef'
""",
    "signals": """
import signal, time
signal.signal(signal.SIGALRM, lambda *_: print("rang"))  # rang
signal.setitimer(signal.ITIMER_REAL, 0.01)
signal.pause()
""",
    "a terminal": """
import os, pty
pid, terminal = pty.fork()
if pid == 0:
    os.execvp("tty", ["tty"])
print(os.read(terminal, 100).decode().strip()[:9])  # /dev/pts/
""",
    "packages": """
import ctypes, hashlib, json, locale, lzma, ssl, tempfile, urllib.request, uuid, venv, zoneinfo
locale.setlocale(locale.LC_ALL, "")
with tempfile.TemporaryDirectory() as folder:
    venv.create(folder, with_pip=False, symlinks=True)
print(ssl.create_default_context().cert_store_stats()["x509"] >= 0)  # True
""",
}


@pytest.mark.parametrize("what", PYTHON)
def test_python_has(outside: Machine, what: str) -> None:
    code = PYTHON[what]
    expected = code.split("  # ")[-1].split("\n")[0]
    command = ["bash", "-c", 'cat > program.py <<"END"\n' + code + "\nEND\npython3 program.py"]
    done = outside.run(command, seconds=60.0)
    assert (done.ending, done.stdout.decode().strip()) == ("exit", expected), done.stderr[-800:]


SHELL = {
    "bash": "a=(1 2 3); echo $(( ${#a[@]} + $(echo 4) )) <(true) | cut -c1; coproc cat; echo x >&${COPROC[1]}; : # 7",
    "perl": """perl -MPOSIX -MList::Util=sum -e '
        my $p = fork; exit 3 unless $p; waitpid $p, 0; print sum(1..9), $? >> 8' # 453""",
    "gcc": """cat > a.c <<END
#include <math.h>
#include <stdlib.h>
int main(int count, char **all) { return sqrt(atoi(all[1])); }
END
        gcc -O2 -pipe a.c -o a -lm; ./a 49; echo $? # 7""",
    "make": """printf 'all: a b\\n\\t@cat a b\\n%%:\\n\\t@echo $@ > $@\\n' > Makefile; make -j4 | tr -d '\\n' # ab""",
    "git": """git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m first && git gc -q \
        && git log --format=%s # first""",
    "tar": "mkdir d; seq 1000 > d/f; tar czf d.tgz d; rm -r d; tar xzf d.tgz; tar cJf d.txz d; wc -l < d/f # 1000",
    "node": """node -e '
const {Worker} = require("worker_threads"), {execSync} = require("child_process"), fs = require("fs");
fs.writeFileSync("f", execSync("echo 20"));
new Worker("require(`worker_threads`).parentPort.postMessage(22)", {eval: true})
  .on("message", n => fs.promises.readFile("f", "utf8").then(t => console.log(n + Number(t))));' # 42""",
    "sort": "seq 20000 > n; sort -R n | sort -n -S 64K --parallel=2 -T /tmp | cmp - n && echo same # same",
    "find": "mkdir -p a/b; touch a/b/c; find . -name c -newermt 2000-01-01 -exec stat -c %n {} + # ./a/b/c",
    "copies": "seq 9 > a; cp --reflink=auto --sparse=always -a a b; mv b c; ln c d; install -m 600 d e; tail -1 e # 9",
    "timeout": "timeout 0.1 sleep 9; echo $? # 124",
    "flock": "flock lock echo held # held",
    "xargs": "seq 8 | xargs -P 4 -n 1 echo | sort | tr -d '\\n' # 12345678",
    "awk and sed": "echo a b | awk '{print $2, $1}' | sed 's/b/c/' # c a",
    "names": "whoami; # sandbox",
    "zip": "python3 -m zipfile -c a.zip /etc/hosts && python3 -m zipfile -l a.zip | grep -c hosts # 1",
    "pipes": "mkfifo p; (echo through > p &); cat p # through",
    "limits": "ulimit -n 64 && ulimit -n # 64",
}
if shutil.which("curl"):  # the others are there wherever tests run
    SHELL["curl"] = "curl --version | grep -o ^curl # curl"


@pytest.mark.parametrize("program", SHELL)
def test_a_program_runs(outside: Machine, program: str) -> None:
    script, _, expected = SHELL[program].rpartition(" # ")
    done = outside.run(["bash", "-c", script], seconds=60.0)
    assert (done.ending, done.stdout.decode().strip()) == ("exit", expected), done.stderr[-800:]
