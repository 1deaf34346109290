"""From a Python file to the energy in it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import click

import optpy
from optpy.errors import OptpyError


def energy_file_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """The ENERGY_FILE argument and the option --energy, which every command on energies takes."""
    file = click.Path(exists=True, dir_okay=False, path_type=Path)
    command = click.option("--energy", "energy_name", metavar="NAME", help="Which, if the file has several.")(command)
    return click.argument("energy_file", type=file)(command)


@contextmanager
def clear_errors() -> Iterator[None]:
    """Errors that optpy raises on purpose, and want of memory, become one message, without a traceback."""
    try:
        yield
    except OptpyError as error:
        raise click.ClickException(str(error)) from error
    except MemoryError as error:
        raise click.ClickException(f"there is not enough memory: {error}") from error


def load_energy(path: Path, name: str | None) -> optpy.Energy:
    """The energy at the top level of a Python file.

    The file is run with its folder importable, as `python FILE` would; a module of a package with the folder
    above the package. Its `__name__` is not "__main__".

    Args:
        path: the file.
        name: which energy; None is enough where there is only one.

    Raises:
        click.ClickException: the file fails, or has no energy, or several, or none of that name.
    """
    if path.suffix != ".py":
        raise click.ClickException(f"{path} is no Python file: an energy is read from a file whose name ends in .py")
    if not path.is_file():
        raise click.ClickException(f"{path} is a device, a pipe or a socket, and no Python file")
    module = _run(path.resolve())
    energies = {key: value for key, value in vars(module).items() if isinstance(value, optpy.Energy)}
    if not energies:
        raise click.ClickException(
            f"{path} has no energy: nothing at its top level is one, as in `energy = optpy.Energy(fit=...)`"
        )
    if name is not None:
        if name not in energies:
            raise click.ClickException(f"{path} has no energy {name!r}; it has {', '.join(energies)}")
        return energies[name]
    # One energy under two names is still one.
    if len({id(energy) for energy in energies.values()}) > 1:
        raise click.ClickException(f"{path} has several energies: choose by --energy, of {', '.join(energies)}")
    return next(iter(energies.values()))


def _run(path: Path) -> ModuleType:
    root, names = path.parent, [path.stem]
    while (root / "__init__.py").is_file():
        root, names = root.parent, [root.name, *names]
    sys.path.insert(0, str(root))
    try:
        return importlib.import_module(".".join(names)) if len(names) > 1 else _run_alone(path)
    except OptpyError:
        raise
    except SystemExit as error:
        raise click.ClickException(
            f"{path} ends the program, by sys.exit or the like, before its energy is there: what is for running it "
            'as a program belongs under `if __name__ == "__main__":`'
        ) from error
    except Exception as error:
        raise click.ClickException(f"{path} fails:\n{_traceback_from(path, error)}") from error


def _run_alone(path: Path) -> ModuleType:
    # Not by import_module: a file called math.py must not become Python's own module of that name.
    spec = importlib.util.spec_from_file_location(f"optpy_energy_file_{path.stem}", path)
    assert spec is not None  # as its name ends in .py
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _traceback_from(path: Path, error: Exception) -> str:
    """The traceback from the file's first own line on: what comes before is optpy and Python's import."""
    frames = traceback.extract_tb(error.__traceback__)
    first = next((k for k, frame in enumerate(frames) if frame.filename == str(path)), len(frames))
    lines = traceback.format_list(frames[first:]) + traceback.format_exception_only(error)
    return "".join(lines).rstrip()
