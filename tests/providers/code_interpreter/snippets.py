"""Code as models write it for a code interpreter: calls of one session, and what the last one shows."""

from typing import NamedTuple


class Snippet(NamedTuple):
    """What a model has executed, call by call, and what it reads at the end."""

    name: str
    calls: tuple[str, ...]
    shows: str


def snippet(name: str, *calls: str, shows: str) -> Snippet:
    """Return a snippet whose calls are texts without their first line break."""
    return Snippet(name, tuple(code.removeprefix("\n") for code in calls), shows)


SNIPPETS = [
    snippet("compound interest", "round(1000 * (1 + 0.05) ** 10, 2)", shows="1628.89"),
    snippet(
        "primes",
        """
def is_prime(n):
    if n < 2:
        return False
    return all(n % i for i in range(2, int(n ** 0.5) + 1))

primes = [n for n in range(50) if is_prime(n)]
print(f"{len(primes)} primes, the last is {primes[-1]}")
""",
        shows="15 primes, the last is 47",
    ),
    snippet(
        "exact decimals",
        "from decimal import Decimal, getcontext\ngetcontext().prec = 30\nprint(Decimal(1) / Decimal(7))",
        shows="0.142857142857142857142857142857",
    ),
    snippet(
        "statistics",
        """
import statistics as st
data = [2, 4, 4, 4, 5, 5, 7, 9]
print(f"mean={st.mean(data)} median={st.median(data)} stdev={st.pstdev(data):.1f}")
""",
        shows="mean=5 median=4.5 stdev=2.0",
    ),
    snippet(
        "a csv that is read and summed up by group",
        """
import csv
rows = [("month", "sales"), ("Jan", 120), ("Feb", 95), ("Jan", 30)]
with open("/mnt/data/sales.csv", "w", newline="") as f:
    csv.writer(f).writerows(rows)
""",
        """
import csv
from collections import defaultdict
totals = defaultdict(int)
with open("/mnt/data/sales.csv") as f:
    for row in csv.DictReader(f):
        totals[row["month"]] += int(row["sales"])
for month, total in sorted(totals.items()):
    print(f"{month:>5}: {total:6d}")
""",
        shows="  Feb:     95\n  Jan:    150",
    ),
    snippet(
        "json that is changed",
        """
import json
config = json.loads('{"name": "x", "items": [1, 2, {"deep": null}]}')
config["items"][2]["deep"] = "ü"
print(json.dumps(config, indent=2, ensure_ascii=False, sort_keys=True))
""",
        shows='{\n  "items": [\n    1,\n    2,\n    {\n      "deep": "ü"\n    }\n  ],\n  "name": "x"\n}',
    ),
    snippet(
        "a database in memory",
        """
import sqlite3
con = sqlite3.connect(":memory:")
con.execute("CREATE TABLE sales (city TEXT, amount REAL)")
con.executemany("INSERT INTO sales VALUES (?, ?)", [("Rome", 10), ("Oslo", 5), ("Rome", 7.5)])
for city, total in con.execute("SELECT city, SUM(amount) FROM sales GROUP BY city ORDER BY 2 DESC"):
    print(city, total)
""",
        shows="Rome 17.5\nOslo 5.0",
    ),
    snippet(
        "a database in a file that the next call opens",
        """
import sqlite3
with sqlite3.connect("/mnt/data/notes.db") as con:
    con.execute("CREATE TABLE notes (id INTEGER PRIMARY KEY, body TEXT)")
    con.execute("INSERT INTO notes (body) VALUES ('first')")
con.close()
""",
        "import sqlite3\nsqlite3.connect('notes.db').execute('SELECT * FROM notes').fetchall()",
        shows="[(1, 'first')]",
    ),
    snippet(
        "a program that is started",
        """
import subprocess
result = subprocess.run(["ls", "-1", "/mnt/data"], capture_output=True, text=True)
print("Return code:", result.returncode)
print(repr(result.stdout), repr(result.stderr))
""",
        shows="Return code: 0\n'' ''",
    ),
    snippet(
        "a pipeline of the shell",
        """
import subprocess
out = subprocess.check_output("printf 'b\\na\\nb\\n' | sort | uniq -c | sort -rn | head -1", shell=True, text=True)
print(out.split())
""",
        shows="['2', 'b']",
    ),
    snippet(
        "python that is started",
        """
import subprocess, sys
print(subprocess.run([sys.executable, "-c", "print(6 * 7)"], stdout=subprocess.PIPE).stdout.decode().strip())
""",
        shows="42",
    ),
    snippet(
        "a pool of processes",
        """
from multiprocessing import Pool

def square(x):
    return x * x

with Pool(4) as pool:
    print(sum(pool.map(square, range(100))))
""",
        shows="328350",
    ),
    snippet(
        "an executor of processes behind a guard",
        """
from concurrent.futures import ProcessPoolExecutor

def count(word):
    return word, len(word)

if __name__ == "__main__":
    with ProcessPoolExecutor(max_workers=2) as executor:
        print(dict(executor.map(count, ["one", "three"])))
""",
        shows="{'one': 3, 'three': 5}",
    ),
    snippet(
        "a process with a queue",
        """
import multiprocessing as mp

def worker(queue):
    queue.put("from the child")

queue = mp.Queue()
process = mp.Process(target=worker, args=(queue,))
process.start()
print(queue.get(timeout=30))
process.join()
print(process.exitcode)
""",
        shows="from the child\n0",
    ),
    snippet(
        "threads with a lock",
        """
import threading
counter, lock = 0, threading.Lock()

def work():
    global counter
    for _ in range(1000):
        with lock:
            counter += 1

threads = [threading.Thread(target=work) for _ in range(8)]
for t in threads:
    t.start()
for t in threads:
    t.join()
print(counter)
""",
        shows="8000",
    ),
    snippet(
        "an executor of threads that later calls use again",
        "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(3)\nlist(pool.map(abs, [-1, 2]))",
        "pool.submit(print, 'from the pool').result()\nsum(pool.map(abs, [-3, 4]))",
        shows="from the pool\n7",
    ),
    snippet(
        "asyncio.run",
        """
import asyncio

async def fetch(n):
    await asyncio.sleep(0.01)
    return n * 2

async def main():
    return await asyncio.gather(*(fetch(n) for n in range(4)))

print(asyncio.run(main()))
""",
        shows="[0, 2, 4, 6]",
    ),
    snippet(
        "await at the top",
        """
import asyncio

async def fetch(n):
    await asyncio.sleep(0.01)
    return n + 1

results = await asyncio.gather(*[fetch(n) for n in range(3)])
results
""",
        shows="[1, 2, 3]",
    ),
    snippet(
        "async for and async with at the top",
        """
import asyncio
from contextlib import asynccontextmanager

@asynccontextmanager
async def opened(name):
    yield name.upper()

async def count(most):
    for n in range(most):
        yield n
        await asyncio.sleep(0)

async with opened("x") as name:
    async for n in count(3):
        print(name, n)
""",
        "[n * n async for n in count(4)]",
        shows="[0, 1, 4, 9]",
    ),
    snippet(
        "a task with a time-out",
        """
import asyncio
try:
    await asyncio.wait_for(asyncio.sleep(100), timeout=0.01)
except asyncio.TimeoutError:
    print("timed out")
""",
        shows="timed out",
    ),
    snippet(
        "the loop that is asked for",
        """
import asyncio
loop = asyncio.new_event_loop()
asyncio.set_event_loop(loop)
print(loop.run_until_complete(asyncio.sleep(0, "done")))
loop.close()
""",
        "import asyncio\nawait asyncio.sleep(0, 'again')",
        shows="'again'",
    ),
    snippet(
        "a data class",
        """
from dataclasses import dataclass, field, asdict

@dataclass(order=True)
class Employee:
    name: str
    salary: float = 0.0
    skills: list[str] = field(default_factory=list)

staff = [Employee("Zoe", 10.0, ["sql"]), Employee("Ann")]
print(sorted(staff)[0])
print(asdict(staff[0]))
""",
        shows="Employee(name='Ann', salary=0.0, skills=[])\n{'name': 'Zoe', 'salary': 10.0, 'skills': ['sql']}",
    ),
    snippet(
        "inheritance",
        """
from abc import ABC, abstractmethod
import math

class Shape(ABC):
    @abstractmethod
    def area(self): ...
    def __repr__(self):
        return f"{type(self).__name__}({self.area():.2f})"

class Circle(Shape):
    def __init__(self, r): self.r = r
    def area(self): return math.pi * self.r ** 2

class Square(Shape):
    def __init__(self, side):
        super().__init__()
        self.side = side
    def area(self): return self.side ** 2

[Circle(1), Square(2)]
""",
        shows="[Circle(3.14), Square(4.00)]",
    ),
    snippet(
        "an exception of its own, with its cause",
        """
class ValidationError(ValueError):
    def __init__(self, field, reason):
        super().__init__(f"{field}: {reason}")
        self.field = field

try:
    try:
        int("x")
    except ValueError as e:
        raise ValidationError("age", "not a number") from e
except ValidationError as e:
    print(e, "|", e.field, "|", type(e.__cause__).__name__)
""",
        shows="age: not a number | age | ValueError",
    ),
    snippet(
        "a generator that is sent to",
        """
def averager():
    total, count, average = 0, 0, None
    while True:
        total += yield average
        count += 1
        average = total / count

avg = averager()
next(avg)
[avg.send(n) for n in (10, 20, 60)]
""",
        shows="[10.0, 15.0, 30.0]",
    ),
    snippet(
        "a decorator and a cache",
        """
import functools, time

def timed(f):
    @functools.wraps(f)
    def inner(*args, **kwargs):
        start = time.perf_counter()
        try:
            return f(*args, **kwargs)
        finally:
            inner.seconds = time.perf_counter() - start
    return inner

@timed
@functools.lru_cache(maxsize=None)
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)

print(fib.__name__, fib(80), fib.seconds < 60)
""",
        shows="fib 23416728348467685 True",
    ),
    snippet(
        "a context manager",
        """
from contextlib import contextmanager, redirect_stdout
import io

buffer = io.StringIO()
with redirect_stdout(buffer):
    print("captured")
print("got:", buffer.getvalue().strip())
""",
        shows="got: captured",
    ),
    snippet(
        "pattern matching",
        """
def describe(value):
    match value:
        case {"type": "point", "at": [x, y]}:
            return f"point {x},{y}"
        case [first, *rest] if rest:
            return f"{first} and {len(rest)} more"
        case int() | float():
            return "number"
        case _:
            return "other"

[describe(v) for v in ({"type": "point", "at": [1, 2]}, [1, 2, 3], 4, None)]
""",
        shows="['point 1,2', '1 and 2 more', 'number', 'other']",
    ),
    snippet(
        "regular expressions",
        r"""
import re
text = "Contact: ann@example.org, bob.smith@example.com; 2024-03-01 and 1999-12-31"
emails = re.findall(r"[\w.]+@[\w.]+\w", text)
dates = [m.groupdict() for m in re.finditer(r"(?P<y>\d{4})-(?P<m>\d\d)", text)]
print(emails, [d["y"] for d in dates], re.sub(r"\d", "#", "a1b22"))
""",
        shows="['ann@example.org', 'bob.smith@example.com'] ['2024', '1999'] a#b##",
    ),
    snippet(
        "dates and time zones",
        """
from datetime import date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo
d = date(2024, 2, 28) + timedelta(days=2)
t = datetime(2024, 7, 1, 12, tzinfo=timezone.utc).astimezone(ZoneInfo("Europe/Berlin"))
print(d.isoformat(), d.strftime("%A"), t.isoformat())
""",
        shows="2024-03-01 Friday 2024-07-01T14:00:00+02:00",
    ),
    snippet(
        "counters and orders",
        """
from collections import Counter, OrderedDict, namedtuple, deque
words = "the cat and the hat and the bat".split()
Point = namedtuple("Point", "x y")
print(Counter(words).most_common(2), Point(1, 2)._asdict(), list(deque([1, 2, 3], maxlen=2)))
""",
        shows="[('the', 3), ('and', 2)] {'x': 1, 'y': 2} [2, 3]",
    ),
    snippet(
        "iterators of the library",
        """
from itertools import accumulate, chain, combinations, groupby, islice, product
print(list(accumulate([1, 2, 3])), list(combinations("abc", 2))[-1])
print({k: len(list(g)) for k, g in groupby(sorted("banana"))}, len(list(product(range(3), repeat=2))))
""",
        shows="[1, 3, 6] ('b', 'c')\n{'a': 3, 'b': 1, 'n': 2} 9",
    ),
    snippet(
        "shortest paths with a heap",
        """
import heapq
graph = {"a": {"b": 1, "c": 4}, "b": {"c": 2, "d": 6}, "c": {"d": 3}, "d": {}}
best, heap = {}, [(0, "a")]
while heap:
    cost, node = heapq.heappop(heap)
    if node in best:
        continue
    best[node] = cost
    for neighbour, weight in graph[node].items():
        heapq.heappush(heap, (cost + weight, neighbour))
best
""",
        shows="{'a': 0, 'b': 1, 'c': 3, 'd': 6}",
    ),
    snippet(
        "a zip file",
        """
import zipfile, os
os.makedirs("/mnt/data/out", exist_ok=True)
for name in ("a.txt", "b.txt"):
    with open(f"/mnt/data/out/{name}", "w") as f:
        f.write(name * 100)
with zipfile.ZipFile("/mnt/data/all.zip", "w", zipfile.ZIP_DEFLATED) as archive:
    for name in sorted(os.listdir("/mnt/data/out")):
        archive.write(os.path.join("/mnt/data/out", name), arcname=name)
print(zipfile.ZipFile("/mnt/data/all.zip").namelist())
""",
        shows="['a.txt', 'b.txt']",
    ),
    snippet(
        "other archives and sums",
        """
import gzip, hashlib, shutil, tarfile, base64
with gzip.open("data.gz", "wt") as f:
    f.write("hello")
print(gzip.open("data.gz", "rt").read(), hashlib.sha256(b"hello").hexdigest()[:8], base64.b64encode(b"hi").decode())
shutil.make_archive("backup", "gztar", root_dir=".", base_dir="data.gz")
print(tarfile.open("backup.tar.gz").getnames())
""",
        shows="hello 2cf24dba aGk=\n['data.gz']",
    ),
    snippet(
        "paths",
        """
from pathlib import Path
base = Path("/mnt/data/project")
(base / "src").mkdir(parents=True)
(base / "src" / "main.py").write_text("print('hi')\\n")
(base / "README.md").write_text("# Hi\\n")
for path in sorted(base.rglob("*")):
    print(path.relative_to(base), path.stat().st_size if path.is_file() else "dir")
""",
        shows="README.md 5\nsrc dir\nsrc/main.py 12",
    ),
    snippet(
        "a module that was written before",
        "%%writefile /mnt/data/helper.py\ndef double(x):\n    return 2 * x\n",
        "import sys\nsys.path.append('/mnt/data')\nfrom helper import double\ndouble(21)",
        shows="42",
    ),
    snippet(
        "commands with an exclamation mark",
        """
name = "greeting.txt"
!echo "hello there" > {name}
!wc -w < $name
files = !ls /mnt/data
print(files)
""",
        shows="2\n['greeting.txt']",
    ),
    snippet(
        "lines of notebooks at the top",
        "%matplotlib inline\n%config InlineBackend.figure_format = 'retina'\nprint('ready')",
        shows="ready",
    ),
    snippet(
        "a package that may be missing",
        """
try:
    import nothing_like_it as pd
except ImportError:
    pd = None
print("there" if pd else "not there")
""",
        shows="not there",
    ),
    snippet(
        "a chart that is drawn by hand",
        """
data = {"Jan": 3, "Feb": 5}
bars = ""
for i, (month, value) in enumerate(data.items()):
    bars += f'<rect x="{i * 30}" y="{60 - value * 10}" width="20" height="{value * 10}"/>'
with open("/mnt/data/chart.svg", "w") as f:
    f.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="80" height="60">{bars}</svg>')
import xml.etree.ElementTree as ET
print(len(ET.parse("/mnt/data/chart.svg").getroot()))
""",
        shows="2",
    ),
    snippet(
        "html and xml",
        """
from html.parser import HTMLParser

class Links(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []
    def handle_starttag(self, tag, attrs):
        if tag == "a":
            self.found.append(dict(attrs).get("href"))

parser = Links()
parser.feed('<p><a href="/one">1</a><a href="/two">2</a></p>')
parser.found
""",
        shows="['/one', '/two']",
    ),
    snippet(
        "a matrix by hand",
        """
def matmul(a, b):
    return [[sum(x * y for x, y in zip(row, col)) for col in zip(*b)] for row in a]

m = [[1, 1], [1, 0]]
result = m
for _ in range(9):
    result = matmul(result, m)
print(*result, sep="\\n")
""",
        shows="[89, 55]\n[55, 34]",
    ),
    snippet(
        "chances with a seed",
        """
import random
random.seed(42)
hits = sum(random.random() ** 2 + random.random() ** 2 <= 1 for _ in range(20_000))
print(f"pi is about {4 * hits / 20_000:.1f}")
""",
        shows="pi is about 3.1",
    ),
    snippet(
        "types and enumerations",
        """
from __future__ import annotations
from enum import Enum, auto
from typing import Generic, Protocol, TypedDict, TypeVar

T = TypeVar("T")

class Color(Enum):
    RED = auto()
    BLUE = auto()

class Stack(Generic[T]):
    def __init__(self) -> None:
        self.items: list[T] = []
    def push(self, item: T) -> Stack[T]:
        self.items.append(item)
        return self

Stack[Color]().push(Color.BLUE).items
""",
        shows="[<Color.BLUE: 2>]",
    ),
    snippet(
        "objects that are pickled and found again",
        """
import pickle
class Model:
    def __init__(self, weights): self.weights = weights
    def predict(self, x): return sum(w * v for w, v in zip(self.weights, x))
with open("/mnt/data/model.pkl", "wb") as f:
    pickle.dump(Model([1, 2]), f)
""",
        "model = pickle.load(open('/mnt/data/model.pkl', 'rb'))\nmodel.predict([3, 4])",
        shows="11",
    ),
    snippet(
        "tests that are run",
        """
import io, unittest

class Sums(unittest.TestCase):
    def test_sum(self):
        self.assertEqual(sum([1, 2]), 3)
    def test_wrong(self):
        with self.assertRaises(TypeError):
            sum(["a"])

stream = io.StringIO()
suite = unittest.defaultTestLoader.loadTestsFromTestCase(Sums)
result = unittest.TextTestRunner(stream=stream).run(suite)
print(result.testsRun, result.wasSuccessful())
""",
        shows="2 True",
    ),
    snippet(
        "logging, warnings and a traceback that is shown",
        """
import logging, sys, traceback, warnings
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stdout, force=True)
logging.info("begun")
""",
        """
logging.warning('again')
try:
    {}['x']
except KeyError:
    print(traceback.format_exc().splitlines()[-1])
""",
        shows="WARNING again\nKeyError: 'x'",
    ),
]
