"""Entry point of the command line: the commands, and what their ends mean as exit codes."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from stead.cli import interrupts
from stead.cli.streams import complain, guarded, occupy_standard_files

# BadParameter -> UsageError -> ClickException: older releases of typer take it from click, newer ones have their own.
ClickException: Any = typer.BadParameter.__mro__[2]
OK, INTERNAL, BAD_INPUT, INFEASIBLE, INTERRUPTED = 0, 1, 2, 3, 130


class _Interrupted(Exception):
    """Ctrl-C in a form that typer does not swallow: of the other it makes an exit code without a word."""


def _audible(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same command, whose interrupt arrives here."""

    @wraps(function)
    def command(*given: Any, **named: Any) -> Any:
        try:
            return function(*given, **named)
        except KeyboardInterrupt:
            raise _Interrupted from None

    return command


class _QuickHelp:
    """A command whose `--help` is off where it is not given: what is absent, typer has pydantic look at."""

    def get_help_option(self, ctx: Any) -> Any:
        """The flag that every command has."""
        flag = super().get_help_option(ctx)  # type: ignore[misc]
        if flag is not None:
            flag.default = False
        return flag


class _Command(_QuickHelp, TyperCommand):
    pass


class _Group(_QuickHelp, TyperGroup):
    pass


class _Verb(NamedTuple):
    """A command: its name, its module and function in `stead.cli`, and whether the first help leaves it out."""

    name: str
    at: str
    expert: bool = False


VERBS = (
    _Verb("demo", "demo:demo"),
    _Verb("doctor", "doctor:doctor"),
    _Verb("place", "place:place"),
    _Verb("explain", "explain:explain"),
    _Verb("report", "report:report"),
    _Verb("what-if", "what_if:what_if"),
    _Verb("compare", "compare:compare"),
    _Verb("ui", "ui:ui"),
    _Verb("score", "score:score"),
    _Verb("export", "export:export"),
    _Verb("verify", "export:verify"),
    _Verb("measure", "measure:measure"),
    _Verb("tune", "tune:tune"),
    _Verb("replan", "replan:replan"),
    _Verb("run", "run:run", expert=True),
    _Verb("profile", "profile:profile", expert=True),
    _Verb("simulate", "simulate:simulate", expert=True),
    _Verb("solvers", "solvers:solvers", expert=True),
    _Verb("devices", "devices:devices", expert=True),
    _Verb("formats", "formats:formats", expert=True),
    _Verb("targets", "targets:targets", expert=True),
    _Verb("zoo", "zoo:zoo", expert=True),
    _Verb("bench", "bench:bench", expert=True),
    _Verb("train", "train:train", expert=True),
    _Verb("serve", "ui:serve", expert=True),
)


def app_for(arguments: list[str]) -> typer.Typer:
    """The command line: with the one command that is called, or with all where help or an unknown name needs them."""
    app = typer.Typer(
        name="stead",
        cls=_Group,
        help="Find the best assignment of a neural network's operators to devices.",
        epilog="For experts: stead run | profile | simulate | solvers | devices | formats | targets | zoo | bench | "
        "train | serve, each with --help.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback()(_main)
    for verb in [verb for verb in VERBS if verb.name in arguments[:1]] or VERBS:
        module, _, function = verb.at.partition(":")
        command = getattr(import_module(f"stead.cli.{module}"), function)
        app.command(verb.name, cls=_Command, hidden=verb.expert)(_audible(command))
    return app


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(version("stead"))
        raise typer.Exit()


def _main(
    version: bool = typer.Option(
        False, "--version", help="Print the version.", callback=_version, is_eager=True
    ),
) -> None:
    """Find the best assignment of a neural network's operators to devices."""


def run(arguments: list[str] | None = None) -> None:
    """Run one command and leave with its exit code; errors are one line on stderr."""
    occupy_standard_files()
    sys.exit(exit_code(arguments))


def exit_code(arguments: list[str] | None = None) -> int:
    """The exit code of one command: 0 done, 1 a bug, 2 bad input or output, 3 infeasible, 4 not as planned, 130."""
    with guarded() as out, _renamed_as_notes():
        code = _exit_code(sys.argv[1:] if arguments is None else arguments)
        out.flush()
        if out.failure is not None:
            complain(f"cannot write to stdout: {out.failure.strerror}")
            return code or BAD_INPUT
        return code


@contextmanager
def _renamed_as_notes() -> Iterator[None]:
    """Names that have newer ones are told in one line each."""
    from stead.errors import Renamed

    shown, told = warnings.showwarning, set[str]()

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if not issubclass(category, Renamed):
            shown(message, category, *where, **more)
        elif str(message) not in told:
            told.add(str(message))
            print(f"stead: note: {message}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("always", Renamed)
        warnings.showwarning = show
        yield


def _exit_code(arguments: list[str]) -> int:
    from stead.errors import Infeasible, SteadError

    try:
        with interrupts.heard():
            ended = app_for(arguments)(args=arguments, prog_name="stead", standalone_mode=False)
        return ended if isinstance(ended, int) else OK
    except typer.Exit as ended:
        return ended.exit_code
    except ClickException as error:
        error.show()
        return BAD_INPUT
    except (_Interrupted, KeyboardInterrupt, typer.Abort):
        makes_plans = "place" in arguments[:1]
        complain("interrupted before there was a plan" if makes_plans else "interrupted")
        return INTERRUPTED
    except Infeasible as error:
        complain(str(error))
        return INFEASIBLE
    except SteadError as error:
        complain(str(error))
        return BAD_INPUT
    except Exception as error:
        if os.environ.get("STEAD_DEBUG"):
            raise
        if _out_of_memory(error):
            complain("out of memory: close other programs, or give a smaller model or fewer threads")
            return INTERNAL
        complain(
            f"internal error: {type(error).__name__}: {error}; set STEAD_DEBUG=1 to see where, and report it"
        )
        return INTERNAL


def _out_of_memory(error: Exception) -> bool:
    """Whether there was too little memory; torch and the operating system say so only in words."""
    return isinstance(error, MemoryError) or "allocate memory" in str(error)

