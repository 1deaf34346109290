"""`optpy example` and `optpy demo`: the applications of optpy, run by name."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import click


class Programs(click.Group):
    """The programs of a package, a command each: modules with a `main`.

    A module is imported when its command is asked for; the list is read from the files, so that it needs no libraries
    that optpy itself does without.

    Args:
        package: its name.
        extra: of optpy, with the libraries that its programs need.
        help: of the group.
    """

    def __init__(self, name: str, *, package: str, extra: str, help: str) -> None:
        super().__init__(name, help=help)
        self._package = package
        self._extra = extra

    @cached_property
    def _summaries(self) -> dict[str, str]:
        return dict(_programs(self._package))

    def list_commands(self, context: click.Context) -> list[str]:
        """The programs' names."""
        return [*self._summaries]

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """The program of a module; None: there is none of that name."""
        if name not in self._summaries:
            return None
        try:
            main = importlib.import_module(f"{self._package}.{name}").main
        except ModuleNotFoundError as error:
            raise click.ClickException(
                f"{name} needs the package {error.name!r}: python -m pip install 'optpy[{self._extra}]'"
            ) from error
        assert isinstance(main, click.Command)
        return main

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in the help: names, and the first sentence of each module."""
        with formatter.section("Programs"):
            formatter.write_dl([*self._summaries.items()])


def _programs(package: str) -> Iterator[tuple[str, str]]:
    """Names and first sentences of a package's modules that have a `main`."""
    for folder in map(Path, importlib.import_module(package).__path__):
        for module in pkgutil.iter_modules([str(folder)]):
            tree = ast.parse((folder / f"{module.name}.py").read_text(encoding="utf-8")) if not module.ispkg else None
            if tree is not None and any(isinstance(n, ast.FunctionDef) and n.name == "main" for n in tree.body):
                text = " ".join((ast.get_docstring(tree) or "").split("\n\n")[0].split())
                yield module.name, text.split(": `")[0]


example = Programs(
    "example",
    package="optpy.examples",
    extra="problems",
    help="Run an application of optpy, from image warping to bundle adjustment; its --help tells its options.",
)
demo = Programs(
    "demo",
    package="optpy.examples.demos",
    extra="demo",
    help="Touch a solve in the browser: a page on this machine only, unless --host says otherwise.",
)
