"""What of the machine is seen in the sandbox, and what must not be."""

import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from antwort.errors import ConfigError

_PARTS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32", "libexec", "share", "include")
"""The folders of a system, or of one part of it, that programs live in. What is beside them is somebody's own."""
_LINKS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC = (
    "alternatives",
    "fonts",
    "ld.so.cache",
    "localtime",
    "mime.types",
    "ssl/certs",
    "timezone",
)
"""What programs need of the system's settings; nothing that somebody on this machine would keep to himself."""
_PYTHON = ("bin", "lib", "lib64", "libexec", "share", "include", "etc", "ssl", "pyvenv.cfg")
"""What there is of an interpreter where it is installed; people put their own things beside it."""


@functools.cache  # a system stays as it is, and every command asks
def system_places() -> tuple[Path, ...]:
    """Return the folders and files of the system that every process in the sandbox sees."""
    parts = [Path(root, part) for root in ("/usr", "/usr/local") for part in _PARTS]
    parts += [link for link in map(Path, _LINKS) if not link.is_symlink()]
    etc = [path for path in (Path("/etc", name) for name in _ETC) if path.exists()]
    return (*filter(_is_filled, parts), *etc)


@functools.cache
def system_files() -> frozenset[Path]:
    """Return what is a file among the places of the system, each with less than a hundred or so kilobytes."""
    return frozenset(place for place in system_places() if place.is_file())


def _is_filled(folder: Path) -> bool:
    """Tell whether there is something in a folder, for each that is shown costs a part of a millisecond."""
    try:
        with os.scandir(folder) as entries:
            return any(True for _ in entries)
    except OSError:
        return False


@functools.cache
def system_links() -> tuple[tuple[Path, Path], ...]:
    """Return the links that lead to folders of the system, with where they lead to."""
    return tuple((link, link.readlink()) for link in map(Path, _LINKS) if link.is_symlink())


def python_places(prefixes: Iterable[Path], executables: Iterable[Path] = ()) -> list[Path]:
    """Return what a Python needs to see that is installed at some prefixes, but for what every process sees anyway."""
    own = [prefix for prefix in prefixes if str(prefix) not in {"/usr", "/usr/local"}]
    seen = [*system_places(), *(prefix / part for prefix in own for part in _PYTHON if (prefix / part).exists())]
    seen += [path for path in executables if not any(map(path.is_relative_to, seen))]
    return sorted({path for path in seen if not any(map(path.is_relative_to, system_places()))})


def check_unseen(private: Mapping[str, Path], places: Sequence[Path]) -> None:
    """Refuse to show places that have something private in them; a ConfigError names both, and says what to do.

    The private is given by its name, such as that of the setting it is from.
    """
    if not places:
        return
    shown = [(place, os.path.realpath(place)) for place in places]
    for name, path in private.items():
        real = Path(os.path.realpath(path))
        for place, target in shown:
            if real.is_relative_to(target):
                raise ConfigError(
                    f"{name} is {real}, and code in the sandbox can read {place}: "
                    "move one of them, so that what is the server's own lies elsewhere, such as below /var/lib/antwort"
                )
