"""Lines that notebooks know and Python does not, as models write them."""

from pathlib import Path

from tests.providers.code_interpreter.stage import executed

HELP = "Help on built-in function len in module builtins:"


def test_commands_are_executed_by_a_shell(tmp_path: Path) -> None:
    calls = {
        "print('first')\n!echo one; echo two >&2\nprint('last')": "first\none\ntwo\nlast",
        "!exit 3": "[exit code 3]",
        "for n in 5, 6:\n    !echo {n + 1} $n '{x y}' '{{z}}' $USER": "6 5 {x y} {z} sandbox\n7 6 {x y} {z} sandbox",
        "def f(word):\n    !echo {word}\nf('local')": "local",
        "found = !printf 'a\\nb c\\n'\nfound": "['a', 'b c']",
        "!echo a \\\n  b\nprint('c')": "a b\nc",
        '!echo "it\'s"': "it's",
        "%%bash\nfor n in 1 2; do echo $n; done": "1\n2",
        "%%sh\nfalse": "[exit code 1]",
    }
    assert dict(zip(calls, executed(tmp_path, *calls), strict=True)) == calls


def test_magic_lines_that_mean_something_here_do_it(tmp_path: Path) -> None:
    calls = {
        "%matplotlib inline\n%config InlineBackend.figure_format = 'svg'\n%load_ext autoreload\n%autoreload 2\n1": "1",
        "import os\nos.mkdir('out')\n%cd out\n%pwd": "'/workspace/out'",
        "%ls -a": ".\n..",
        "%cd /mnt/data\nplace = %pwd\nplace": "'/workspace'",
        "len?": f"{HELP}\n\nlen(obj, /)\n    Return the number of items in a container.",
        "x = (7\n% 4)\nx": "3",
        "text = '''\n!not a command\n%not magic\n'''\ntext.split()[0]": "'!not'",
    }
    assert dict(zip(calls, executed(tmp_path, *calls), strict=True)) == calls


def test_a_file_is_written_by_a_cell(tmp_path: Path) -> None:
    first, second, third = executed(
        tmp_path,
        "%%writefile made.py\ndef double(x):\n    return 2 * x\n",
        "%%writefile -a made.py\n\nEND = 1",
        "import made\nmade.double(4) + made.END",
    )
    assert first.startswith("Wrote made.py.")
    assert second.startswith("Wrote made.py.")
    assert third == "9"


def test_packages_cannot_be_installed_and_the_model_is_told_what_there_is(tmp_path: Path) -> None:
    ways = [
        "%pip install -q nothing-like-it",
        "!pip install nothing-like-it==1.0 --quiet && echo done",
        "!pip3 install nothing-like-it 2>&1 | tail -1",
        "import sys\n!{sys.executable} -m pip install nothing-like-it",
        "%conda install -y nothing-like-it",
    ]
    for told in executed(tmp_path, *(f"{way}\nprint('goes on')" for way in ways)):
        assert told.startswith("[nothing-like-it"), told
        assert "cannot be installed: there is no network" in told
        assert "Use its standard library, or what is installed: " in told
        assert told.endswith("]\ngoes on")


def test_packages_that_are_there_need_no_installation(tmp_path: Path) -> None:
    code = "from importlib import metadata\nname = next(iter(metadata.distributions())).metadata['Name']\n"
    told, listed = executed(tmp_path, code + "%pip install {name}\nprint(name)", "!pip list")
    first, name = told.splitlines()
    assert first.startswith(f"{name}: version ")
    assert first.endswith(" is installed.")
    assert any(line.startswith(f"{name} ") for line in listed.splitlines())


def test_what_only_notebooks_have_is_an_error_that_says_what_to_use(tmp_path: Path) -> None:
    calls = {
        "x = 1\n%timeit x + 1": "%timeit here, as this is Python and no notebook: use the module `timeit`.",
        "%%time\n1": "%%time here, as this is Python and no notebook: use `time.perf_counter()`.",
        "%whatever it is": "%whatever here, as this is Python and no notebook: write it in Python, or execute",
        "print(1)\n%%bash\nls": "%%bash here",
    }
    for told, expected in zip(executed(tmp_path, *calls), calls.values(), strict=True):
        assert f"NotebookError: There is no {expected}" in told
        assert 'File "<call ' in told
        assert "helper" not in told
        assert "SyntaxError" not in told


def test_what_is_wrong_besides_is_told_where_it_is(tmp_path: Path) -> None:
    failed, raised = executed(tmp_path, "!echo one\nprint('x'\n", "!echo one\n1 / 0\n!echo two")
    assert "<call 1>\", line 2\n    print('x'\n" in failed
    assert "SyntaxError: '(' was never closed" in failed
    assert 'one\nTraceback (most recent call last):\n  File "<call 2>", line 2, in <module>\n    1 / 0' in raised
