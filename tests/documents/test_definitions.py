"""Source code is cut at its definitions, and what is cut off from them says where it is."""

import sys

import pytest

from antwort.documents.child import parsed
from antwort.documents.chunking import DocumentChunk, chunked
from antwort.documents.definitions import definition_name
from antwort.documents.document import DocumentBuilder

DEFINITIONS = {
    "def steep(leaf):": "steep",
    "    async def steep(self) -> None:": "steep",
    "class Tea(Leaf):": "Tea",
    "export default class Tea {": "Tea",
    "export const steep = async (leaf, water) => {": "steep",
    "  render() {": "render",
    "export function* leaves() {": "leaves",
    "func (t *Tea) Steep(minutes int) error {": "Steep",
    "type Tea struct {": "Tea",
    "pub(crate) fn steep<T>(leaf: T) -> Tea {": "steep",
    "impl<T> Steep for Tea<T> {": "Steep",
    "    public static List<Tea> steep(Leaf leaf) throws Cold {": "steep",
    "static int steep(struct leaf *leaf) {": "steep",
}
NONE = [
    "if (cold) {",
    "} else if (cold) {",
    "for (int i = 0; i < 3; i++) {",
    "return steep(leaf) {",
    "steep(leaf)",
    "tea = steep(",
    "let tea = steep(leaf);",
    "print(leaf,",
    "kinds = [",
    "app.get('/', (request) => {",
]


@pytest.mark.parametrize("line", DEFINITIONS)
def test_a_definition_is_known_by_its_line(line: str) -> None:
    assert definition_name(line) == DEFINITIONS[line]


@pytest.mark.parametrize("line", NONE)
def test_what_defines_nothing_is_none(line: str) -> None:
    assert definition_name(line) == ""


def test_a_function_of_c_is_known_by_the_brace_below_it() -> None:
    assert definition_name("static int steep(struct leaf *leaf)", "{") == "steep"
    assert definition_name("static int steep(struct leaf *leaf,", "                 int minutes)") == "steep"


@pytest.mark.parametrize("line", ["a" * 400, "a " * 200, "a(" * 200, "public " * 57, "(" * 400, "x<" * 200])
def test_lines_that_could_be_read_in_many_ways_are_read_at_once(line: str) -> None:
    for _ in range(200):
        definition_name(line, "{")


def body(name: str, indent: str, end: str = "") -> list[str]:
    return [f"{indent}{name}_{number} = water + {number}{end}" for number in range(40)]


def cut(lines: list[str], filename: str) -> list[DocumentChunk]:
    chunks = chunked(parsed("\n".join(lines).encode(), filename), size=150)
    assert max(chunk.tokens for chunk in chunks) <= 150
    return chunks


def beginning(chunks: list[DocumentChunk], text: str) -> list[str]:
    """Return with what the chunk begins that has a text."""
    [found] = [chunk for chunk in chunks if text in chunk.text]
    return found.text.splitlines()


def test_a_part_of_a_function_begins_with_the_definitions_around_it() -> None:
    lines = ["import tea", "", "", "class Tea:", '    """Tea."""', "", "    def first(self):", *body("a", " " * 8)]
    lines += [
        "",
        "    @steeped",
        "    def second(self):",
        *body("b", " " * 8),
        "",
        "",
        "def third():",
        *body("c", " " * 4),
    ]
    chunks = cut(lines, "tea.py")
    assert beginning(chunks, "a_30 =")[:2] == ["class Tea:", "    def first(self):"]
    assert beginning(chunks, "b_0 =")[:3] == ["class Tea:", "    @steeped", "    def second(self):"]
    assert beginning(chunks, "b_30 =")[:2] == ["class Tea:", "    def second(self):"]
    assert beginning(chunks, "c_30 =")[0] == "def third():"


BRACED = {
    "tea.js": ["class Tea {", "  first(water) {", "  // The second.", "  second(water) {"],
    "Tea.java": ["public class Tea {", "  int first(int water) {", "  @Override", "  int second(int water) {"],
    "tea.rs": ["impl Tea {", "  fn first(water: i32) {", "  #[inline]", "  pub fn second(water: i32) {"],
}


@pytest.mark.parametrize("name", BRACED)
def test_so_does_one_of_a_method_in_braces(name: str) -> None:
    outer, first, above, second = BRACED[name]
    lines = [outer, first, *body("a", "    ", ";"), "  }", "", above, second, *body("b", "    ", ";"), "  }", "}"]
    chunks = cut(lines, name)
    assert beginning(chunks, "a_30 =")[:2] == [outer, first]
    assert beginning(chunks, "b_0 =")[:3] == [outer, above, second]
    assert beginning(chunks, "b_30 =")[:2] == [outer, second]


def test_functions_of_go_and_c_begin_chunks_with_what_is_said_above_them() -> None:
    go = ["package tea", "", "func First() {", *body("a", "\t"), "}", "", "// Second is next.", "func Second() {"]
    chunks = cut([*go, *body("b", "\t"), "}"], "tea.go")
    assert "// Second is next." in beginning(chunks, "b_0 ="), "a chunk that is not half full goes on"
    assert beginning(chunks, "b_39 =")[0] == "func Second() {"
    c = ["#include <tea.h>", "", "int first(int water)", "{", *body("a", "\t", ";"), "}", "", "/* Second is next. */"]
    c += ["static int second(int water)", "{", *body("b", "\t", ";"), "#ifdef COLD", "\tb = 1;", "#endif", "\tc = 1;"]
    chunks = cut([*c, "}"], "tea.c")
    assert "/* Second is next. */" in beginning(chunks, "b_0 =")
    assert beginning(chunks, "\tc = 1")[0] == "static int second(int water)"


def calls_of(lines: list[str]) -> int:
    """Count the calls, of Python and of C, that cutting source code makes."""
    builder = DocumentBuilder()
    builder.add("\n".join(lines), "code")
    document, count = builder.document(), 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        chunked(document)
    finally:
        sys.setprofile(before)
    return count


def test_lines_that_define_something_and_belong_to_the_next_definition_are_looked_at_once() -> None:
    line = " @Leaf steep() {"
    assert calls_of([line] * 2000) < 4.5 * calls_of([line] * 500)


def test_definitions_within_very_many_long_ones_take_no_more_work_than_what_they_show() -> None:
    around = [" " * depth + f"def a{depth}(" + "." * 300 for depth in range(60)]
    inner = [line for number in range(100) for line in (" " * 60 + f"def b{number}():", " " * 61 + "x")]
    assert calls_of([*around, *inner]) - calls_of(around) < 1000 * 100
