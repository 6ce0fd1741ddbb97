"""Forty-eight ordinary programs as models write them, and what comes of each in Python itself."""

import asyncio
from typing import Any

from antwort.functions import FunctionSpec

ORDERS = {
    1: {"id": 1, "customer": "Ada", "total": 120.5, "items": ["lamp", "desk"], "status": "paid"},
    2: {"id": 2, "customer": "Ben", "total": 80.0, "items": ["chair"], "status": "open"},
    3: {"id": 3, "customer": "Ada", "total": 42.25, "items": ["pen", "ink", "paper"], "status": "paid"},
    4: {"id": 4, "customer": "Cleo", "total": 310.0, "items": ["sofa"], "status": "returned"},
}


async def list_orders() -> list[int]:
    """List the numbers of all orders."""
    return [*ORDERS]


async def get_order(order_id: int) -> dict[str, Any]:
    """Return an order; one that is not there is an error."""
    await asyncio.sleep(0)
    if order_id not in ORDERS:
        raise ValueError(f"no order {order_id}")
    return ORDERS[order_id]


async def report_text(lines: int) -> str:
    """Return a long report."""
    return "\n".join(f"{number}: {'ERROR disk' if number % 1000 == 0 else 'ok'}" for number in range(1, lines + 1))


FUNCTIONS = [FunctionSpec.of(function) for function in (list_orders, get_order, report_text)]

SNIPPETS: dict[str, tuple[str, str]] = {
    "calls in a loop": (
        """
total = 0.0
for order_id in await list_orders():
    order = await get_order(order_id=order_id)
    if order["status"] == "paid":
        total += order["total"]
print(f"Paid: {total:.2f}")
""",
        "Paid: 162.75",
    ),
    "calls at once": (
        """
import asyncio

ids = await list_orders()
orders = await asyncio.gather(*[get_order(order_id=i) for i in ids])
print(sorted(o["customer"] for o in orders))
""",
        "['Ada', 'Ada', 'Ben', 'Cleo']",
    ),
    "gather that returns exceptions": (
        """
import asyncio

results = await asyncio.gather(*(get_order(order_id=i) for i in [1, 99, 3]), return_exceptions=True)
for r in results:
    if isinstance(r, Exception):
        print("failed:", type(r).__name__)
    else:
        print("ok:", r["id"])
""",
        "ok: 1\nfailed: RuntimeError\nok: 3",
    ),
    "a main function that is run": (
        """
import asyncio

async def main():
    orders = await asyncio.gather(get_order(order_id=2), get_order(order_id=4))
    for order in orders:
        print(order["customer"], order["total"])

asyncio.run(main())
""",
        "Ben 80.0\nCleo 310.0",
    ),
    "tasks": (
        """
import asyncio

async def fetch(i):
    order = await get_order(order_id=i)
    return order["total"]

tasks = [asyncio.create_task(fetch(i)) for i in (1, 2, 3)]
print(sum([await t for t in tasks]))
""",
        "242.75",
    ),
    "a limit on calls at once": (
        """
import asyncio

semaphore = asyncio.Semaphore(2)

async def fetch(i):
    async with semaphore:
        return (await get_order(order_id=i))["customer"]

names = await asyncio.gather(*[fetch(i) for i in await list_orders()])
print(", ".join(names))
""",
        "Ada, Ben, Ada, Cleo",
    ),
    "a time-out": (
        """
import asyncio

async def slow():
    await asyncio.sleep(30)

try:
    await asyncio.wait_for(slow(), timeout=0.01)
except asyncio.TimeoutError:
    print("too slow")
""",
        "too slow",
    ),
    "an error that is caught": (
        """
for i in (1, 99):
    try:
        order = await get_order(order_id=i)
        print(order["id"], "found")
    except Exception as e:
        print(i, "failed", "no order 99" in str(e))
    finally:
        print("done", i)
""",
        "1 found\ndone 1\n99 failed True\ndone 99",
    ),
    "retries": (
        """
import asyncio

async def with_retry(func, attempts=3):
    for attempt in range(1, attempts + 1):
        try:
            return await func()
        except RuntimeError:
            if attempt == attempts:
                return f"gave up after {attempt}"
            await asyncio.sleep(0.001 * 2 ** attempt)

print(await with_retry(lambda: get_order(order_id=99)))
""",
        "gave up after 3",
    ),
    "a variable by reference": (
        """
ref = await report_text(lines=20000)
report = await variable(ref)
errors = await report.grep("ERROR")
print(report.kind, len(errors))
print(errors[0])
print(await report.lines(2, 2))
""",
        "text 20\n1000: 1000: ERROR disk\n['2: ok', '3: ok']",
    ),
    "variables that are set": (
        """
await set_variable("numbers", [1, 2, 3])
v = await variable("numbers")
values = await v.load()
print(sum(values), v.key, sorted(x.key for x in await variables()))
""",
        "6 numbers ['numbers']",
    ),
    "inheritance": (
        """
class Shape:
    def __init__(self, name):
        self.name = name

    def area(self):
        raise NotImplementedError

    def describe(self):
        return f"{self.name}: {self.area():.1f}"

class Circle(Shape):
    def __init__(self, radius):
        super().__init__("circle")
        self.radius = radius

    def area(self):
        return 3.14159 * self.radius ** 2

class Square(Shape):
    def __init__(self, side):
        super().__init__("square")
        self.side = side

    def area(self):
        return self.side ** 2

for shape in [Circle(1), Square(2)]:
    print(shape.describe())
print(isinstance(Circle(2), Shape))
""",
        "circle: 3.1\nsquare: 4.0\nTrue",
    ),
    "an exception of one's own": (
        """
class OrderError(Exception):
    def __init__(self, order_id, message):
        super().__init__(message)
        self.order_id = order_id

def check(order):
    if order["status"] != "paid":
        raise OrderError(order["id"], "not paid")

for i in (1, 2):
    try:
        check(await get_order(order_id=i))
        print(i, "fine")
    except OrderError as e:
        print(e.order_id, e)
""",
        "1 fine\n2 not paid",
    ),
    "an abstract class": (
        """
from abc import ABC, abstractmethod

class Rule(ABC):
    @abstractmethod
    def applies(self, order): ...

class Large(Rule):
    def applies(self, order):
        return order["total"] > 100

rules = [Large()]
orders = [await get_order(order_id=i) for i in await list_orders()]
found = [o["id"] for o in orders if all(rule.applies(o) for rule in rules)]
print(found)
""",
        "[1, 4]",
    ),
    "arithmetic of a class": (
        """
class Vector:
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __add__(self, other):
        return Vector(self.x + other.x, self.y + other.y)

    def __mul__(self, k):
        return Vector(self.x * k, self.y * k)

    def __eq__(self, other):
        return (self.x, self.y) == (other.x, other.y)

    def __repr__(self):
        return f"Vector({self.x}, {self.y})"

print(Vector(1, 2) + Vector(3, 4) * 2)
print(Vector(1, 2) == Vector(1, 2), Vector(1, 2) != Vector(2, 1))
""",
        "Vector(7, 10)\nTrue True",
    ),
    "an order of a class": (
        """
class Version:
    def __init__(self, text):
        self.parts = tuple(int(p) for p in text.split("."))

    def __lt__(self, other):
        return self.parts < other.parts

    def __str__(self):
        return ".".join(map(str, self.parts))

versions = sorted(Version(v) for v in ["1.10.0", "1.2.3", "0.9"])
print([str(v) for v in versions], max(versions))
""",
        "['0.9', '1.2.3', '1.10.0'] 1.10.0",
    ),
    "a container": (
        """
class Basket:
    def __init__(self):
        self._items = {}

    def __setitem__(self, name, count):
        self._items[name] = count

    def __getitem__(self, name):
        return self._items[name]

    def __contains__(self, name):
        return name in self._items

    def __len__(self):
        return sum(self._items.values())

    def __iter__(self):
        return iter(sorted(self._items))

basket = Basket()
basket["pen"] = 3
basket["ink"] = 1
print(len(basket), "pen" in basket, basket["ink"], list(basket))
""",
        "4 True 1 ['ink', 'pen']",
    ),
    "a context manager": (
        """
class Section:
    def __init__(self, title):
        self.title = title

    def __enter__(self):
        print(f"<{self.title}>")
        return self

    def __exit__(self, *args):
        print(f"</{self.title}>")

with Section("orders") as s:
    print((await get_order(order_id=1))["customer"])
""",
        "<orders>\nAda\n</orders>",
    ),
    "properties and class methods": (
        """
class Temperature:
    def __init__(self, celsius):
        self._celsius = celsius

    @property
    def fahrenheit(self):
        return self._celsius * 9 / 5 + 32

    @classmethod
    def from_fahrenheit(cls, value):
        return cls((value - 32) * 5 / 9)

    @staticmethod
    def is_valid(value):
        return value >= -273.15

print(Temperature(100).fahrenheit, round(Temperature.from_fahrenheit(50)._celsius, 1), Temperature.is_valid(-300))
""",
        "212.0 10.0 False",
    ),
    "a dataclass": (
        """
from dataclasses import dataclass, field

@dataclass
class Customer:
    name: str
    orders: list = field(default_factory=list)

    @property
    def total(self):
        return sum(o["total"] for o in self.orders)

customers = {}
for i in await list_orders():
    order = await get_order(order_id=i)
    customers.setdefault(order["customer"], Customer(order["customer"])).orders.append(order)
for c in sorted(customers.values(), key=lambda c: -c.total):
    print(f"{c.name:<6}{c.total:>8.2f}")
""",
        "Cleo    310.00\nAda     162.75\nBen      80.00",
    ),
    "a frozen dataclass in order": (
        """
from dataclasses import asdict, dataclass, replace

@dataclass(frozen=True, order=True)
class Point:
    x: int
    y: int = 0

points = sorted([Point(2, 1), Point(1, 5), Point(1)])
print(points[0], asdict(points[-1]), replace(points[0], y=9), len({Point(1), Point(1)}))
""",
        "Point(x=1, y=0) {'x': 2, 'y': 1} Point(x=1, y=9) 1",
    ),
    "an enumeration": (
        """
from enum import Enum

class Status(Enum):
    OPEN = "open"
    PAID = "paid"
    RETURNED = "returned"

counts = {s: 0 for s in Status}
for i in await list_orders():
    counts[Status((await get_order(order_id=i))["status"])] += 1
print({s.name: n for s, n in counts.items()})
""",
        "{'OPEN': 1, 'PAID': 2, 'RETURNED': 1}",
    ),
    "a named tuple": (
        """
from typing import NamedTuple

class Row(NamedTuple):
    name: str
    total: float

rows = []
for i in (1, 2):
    o = await get_order(order_id=i)
    rows.append(Row(o["customer"], o["total"]))
name, total = rows[0]
print(rows[1], name, total, rows[0]._asdict())
""",
        "Row(name='Ben', total=80.0) Ada 120.5 {'name': 'Ada', 'total': 120.5}",
    ),
    "reduce and partial": (
        """
from functools import partial, reduce
import operator

product = reduce(operator.mul, [1, 2, 3, 4], 1)
add_tax = partial(lambda rate, amount: round(amount * (1 + rate), 2), 0.2)
print(product, [add_tax(x) for x in (10, 19.99)])
""",
        "24 [12.0, 23.99]",
    ),
    "a cache": (
        """
from functools import lru_cache

@lru_cache(maxsize=None)
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)

print(fib(80), fib.cache_info().misses)
""",
        "23416728348467685 81",
    ),
    "a decorator": (
        """
from functools import wraps

def logged(func):
    @wraps(func)
    async def wrapper(*args, **kwargs):
        result = await func(*args, **kwargs)
        print(f"{func.__name__}{args} -> {result}")
        return result
    return wrapper

@logged
async def customer_of(order_id):
    return (await get_order(order_id=order_id))["customer"]

await customer_of(1)
await customer_of(2)
print(customer_of.__name__)
""",
        "customer_of(1,) -> Ada\ncustomer_of(2,) -> Ben\ncustomer_of",
    ),
    "statistics": (
        """
import statistics

totals = [(await get_order(order_id=i))["total"] for i in await list_orders()]
print(statistics.mean(totals), statistics.median(totals), round(statistics.stdev(totals), 3))
""",
        "138.1875 100.25 118.915",
    ),
    "a heap": (
        """
import heapq

heap = []
for i in await list_orders():
    o = await get_order(order_id=i)
    heapq.heappush(heap, (o["total"], o["customer"]))
print(heapq.heappop(heap), heapq.nlargest(2, heap))
""",
        "(42.25, 'Ada') [(310.0, 'Cleo'), (120.5, 'Ada')]",
    ),
    "shortest paths": (
        """
import heapq

graph = {"a": {"b": 4, "c": 1}, "b": {"d": 1}, "c": {"b": 2, "d": 5}, "d": {}}

def dijkstra(start):
    dist = {node: float("inf") for node in graph}
    dist[start] = 0
    queue = [(0, start)]
    while queue:
        d, node = heapq.heappop(queue)
        if d > dist[node]:
            continue
        for other, weight in graph[node].items():
            if d + weight < dist[other]:
                dist[other] = d + weight
                heapq.heappush(queue, (dist[other], other))
    return dist

print(dijkstra("a"))
""",
        "{'a': 0, 'b': 3, 'c': 1, 'd': 4}",
    ),
    "counters and groups": (
        """
from collections import Counter, defaultdict

words = "the cat and the dog and the bird".split()
print(Counter(words).most_common(2))
by_length = defaultdict(list)
for w in sorted(set(words)):
    by_length[len(w)].append(w)
print(dict(by_length))
""",
        "[('the', 3), ('and', 2)]\n{3: ['and', 'cat', 'dog', 'the'], 4: ['bird']}",
    ),
    "a queue": (
        """
from collections import deque

queue = deque([1, 2, 3], maxlen=3)
queue.append(4)
queue.appendleft(0)
queue.rotate(1)
print(list(queue), queue.pop(), len(queue))
""",
        "[3, 0, 2] 2 2",
    ),
    "itertools": (
        """
from itertools import accumulate, chain, combinations, groupby, islice, product

print(list(combinations("abc", 2)))
print(list(accumulate([1, 2, 3, 4])), list(chain([1], [2, 3])), list(islice(range(10), 2, 8, 3)))
orders = [await get_order(order_id=i) for i in await list_orders()]
orders.sort(key=lambda o: o["customer"])
print({k: len(list(g)) for k, g in groupby(orders, key=lambda o: o["customer"])}, len(list(product([0, 1], repeat=3))))
""",
        "[('a', 'b'), ('a', 'c'), ('b', 'c')]\n[1, 3, 6, 10] [1, 2, 3] [2, 5]\n{'Ada': 2, 'Ben': 1, 'Cleo': 1} 8",
    ),
    "generators": (
        """
def chunks(items, size):
    for i in range(0, len(items), size):
        yield items[i:i + size]

def countdown(n):
    while n > 0:
        yield n
        n -= 1

print(list(chunks(list(range(7)), 3)), sum(countdown(4)), next(x for x in countdown(9) if x % 4 == 0))
""",
        "[[0, 1, 2], [3, 4, 5], [6]] 10 8",
    ),
    "an asynchronous generator": (
        """
async def orders():
    for i in await list_orders():
        yield await get_order(order_id=i)

print([o["id"] async for o in orders() if o["total"] > 100])
async for o in orders():
    if o["status"] == "returned":
        print(o["customer"])
""",
        "[1, 4]\nCleo",
    ),
    "patterns": (
        r"""
import re

log = "2024-01-05 ERROR disk full\n2024-01-06 INFO ok\n2024-02-01 ERROR net down"
pattern = re.compile(r"^(?P<date>\d{4}-\d{2}-\d{2}) ERROR (?P<what>.+)$", re.MULTILINE)
for m in pattern.finditer(log):
    print(m.group("date"), m["what"])
print(re.sub(r"\d+", lambda m: str(int(m.group()) + 1), "a1 b22"), re.split(r"[,;]\s*", "x, y;z"))
""",
        "2024-01-05 disk full\n2024-02-01 net down\na2 b23 ['x', 'y', 'z']",
    ),
    "JSON": (
        """
import json

orders = [await get_order(order_id=i) for i in (1, 2)]
text = json.dumps({o["customer"]: o["items"] for o in orders}, sort_keys=True)
print(text)
print(json.dumps(json.loads(text)["Ben"], indent=2))
try:
    json.loads("{bad")
except json.JSONDecodeError as e:
    print("no JSON at", e.pos)
""",
        '{"Ada": ["lamp", "desk"], "Ben": ["chair"]}\n[\n  "chair"\n]\nno JSON at 1',
    ),
    "dates": (
        """
from datetime import date, datetime, timedelta

start = date(2024, 2, 27)
days = [start + timedelta(days=i) for i in range(4)]
print([d.strftime("%a %d.%m.") for d in days])
moment = datetime.strptime("2024-03-01 12:30", "%Y-%m-%d %H:%M")
print((moment - datetime(2024, 2, 28)).days, moment.isoformat(), moment.weekday())
""",
        "['Tue 27.02.', 'Wed 28.02.', 'Thu 29.02.', 'Fri 01.03.']\n2 2024-03-01T12:30:00 4",
    ),
    "mathematics": (
        """
import math

print(math.sqrt(2), math.factorial(10), math.gcd(84, 36), math.comb(5, 2), round(math.log(100, 10), 6))
print(math.isclose(0.1 + 0.2, 0.3), math.floor(-1.5), math.ceil(1.2), math.hypot(3, 4), f"{math.pi:.4f}")
""",
        "1.4142135623730951 3628800 12 10 2.0\nTrue -2 2 5.0 3.1416",
    ),
    "a table": (
        """
rows = [("Ada", 162.75, 0.318), ("Ben", 80.0, 0.156)]
print(f"{'name':<8}|{'total':>10}|{'share':^9}")
print("-" * 29)
for name, total, share in rows:
    print(f"{name:<8}|{total:>10,.2f}|{share:^9.1%}")
print("{0} of {1:03d}, {2!r:>6}, {3:#x}, {4:e}".format(1, 7, "a", 255, 12345.678))
""",
        "name    |     total|  share  \n" + "-" * 29 + "\nAda     |    162.75|  31.8%  \n"
        "Ben     |     80.00|  15.6%  \n1 of 007,    'a', 0xff, 1.234568e+04",
    ),
    "comprehensions": (
        """
matrix = [[1, 2, 3], [4, 5, 6]]
print([list(row) for row in zip(*matrix)], {x: x ** 2 for row in matrix for x in row if x % 2})
print({len(w) for w in ["a", "bb", "cc"]}, any(x > 5 for row in matrix for x in row), dict(enumerate("ab", 1)))
first, *middle, last = range(5)
print(first, middle, last, [y := 1, y + 1], (n := len(matrix)) * 10 + n)
""",
        "[[1, 4], [2, 5], [3, 6]] {1: 1, 3: 9, 5: 25}\n{1, 2} True {1: 'a', 2: 'b'}\n0 [1, 2, 3] 4 [1, 2] 22",
    ),
    "matching": (
        """
def handle(event):
    match event:
        case {"type": "order", "items": [first, *rest]}:
            return f"order of {first} and {len(rest)} more"
        case {"type": "refund", "amount": amount} if amount > 100:
            return "large refund"
        case ("ping", _) | "ping":
            return "pong"
        case _:
            return "unknown"

order = await get_order(order_id=3)
print(handle({"type": "order", **order}))
print(handle({"type": "refund", "amount": 500}), handle(("ping", 1)), handle(7), sep=" | ")
""",
        "order of pen and 2 more\nlarge refund | pong | unknown",
    ),
    "sorting by several keys": (
        """
from operator import attrgetter, itemgetter

orders = [await get_order(order_id=i) for i in await list_orders()]
orders.sort(key=lambda o: (o["customer"], -o["total"]))
print([(o["customer"], o["total"]) for o in orders])
print([o["id"] for o in sorted(orders, key=itemgetter("total"), reverse=True)])
print(min(orders, key=lambda o: len(o["items"]))["id"])
""",
        "[('Ada', 120.5), ('Ada', 42.25), ('Ben', 80.0), ('Cleo', 310.0)]\n[4, 1, 2, 3]\n2",
    ),
    "types": (
        """
from __future__ import annotations

from typing import Any, Callable, Optional, TypedDict

class Order(TypedDict):
    id: int
    total: float

Check = Callable[[Order], bool]

def first(orders: list[Order], check: Check, default: Optional[Order] = None) -> Order | None:
    for o in orders:
        if check(o):
            return o
    return default

found: dict[str, Any] = {"order": first([{"id": 1, "total": 5.0}, {"id": 2, "total": 50.0}], lambda o: o["total"] > 10)}
print(found["order"]["id"], first([], bool))
""",
        "2 None",
    ),
    "wrapped text": (
        """
import textwrap

text = "The quick brown fox jumps over the lazy dog."
print(textwrap.fill(text, width=20))
print(textwrap.shorten(text, width=20, placeholder="…"), textwrap.dedent("  a\\n  b") == "a\\nb")
""",
        "The quick brown fox\njumps over the lazy\ndog.\nThe quick brown fox… True",
    ),
    "random numbers with a seed": (
        """
import random

random.seed(42)
print(random.randint(1, 100), random.choice("abc"), random.sample(range(10), 3))
numbers = [1, 2, 3, 4, 5]
random.Random(7).shuffle(numbers)
print(numbers, round(random.random(), 4))
""",
        "82 a [0, 4, 3]\n[5, 1, 4, 2, 3] 0.2232",
    ),
    "exact numbers": (
        """
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction

price = Decimal("19.99") * 3
print(price, (price * Decimal("1.19")).quantize(Decimal("0.01"), rounding=ROUND_HALF_UP))
print(Fraction(1, 3) + Fraction(1, 6), float(Fraction(3, 4)))
""",
        "59.97 71.36\n1/2 0.75",
    ),
    "encodings": (
        """
import base64
import hashlib

encoded = base64.b64encode("grüße".encode()).decode()
print(encoded, base64.b64decode(encoded).decode())
print(hashlib.sha256(b"antwort").hexdigest()[:16], hashlib.md5("x".encode()).hexdigest())
""",
        "Z3LDvMOfZQ== grüße\n20dbd33519c9a2a3 9dd4e461268c8034f5c8564e155c67a6",
    ),
    "CSV": (
        """
import csv
import io

data = "name,total\\nAda,120.5\\nBen,80\\n"
rows = list(csv.DictReader(io.StringIO(data)))
print(rows[0], sum(float(r["total"]) for r in rows))
out = io.StringIO()
writer = csv.writer(out, lineterminator="\\n")
writer.writerow(["name", "note"])
writer.writerow(["Cleo", "a, b"])
print(out.getvalue().strip())
""",
        "{'name': 'Ada', 'total': '120.5'} 200.5\nname,note\nCleo,\"a, b\"",
    ),
}
