"""The command line: what runs, what asks of the warehouse, what looks after a root.

Prefect, torch and the models of the config are imported only by the commands that need them: `status` and `sql` answer
at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from errno import ENOSPC
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from flows.commands.output import OutputFormat, limit_in_words, print_error
from flows.roots import find_root, named_root
from tasks.errors import ServerGone, StepFailed
from warehouse import LimitReached, Limits, Warehouse, WarehouseError

app = typer.Typer(
    name="rlsift",
    help="Choose what a reasoning model practises on.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
# Without markup: names, paths and rows are a user's, and may hold what looks like it.
console = Console(markup=False, emoji=False)
messages = Console(stderr=True, markup=False, emoji=False)

Root = Annotated[
    Path | None,
    typer.Option("--root", help="Directory of the warehouse. Default: $RLSIFT_ROOT, else ./runs."),
]
ConfigFile = Annotated[Path, typer.Argument(help="YAML file of the run.")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key, as key.path=value.")
]
RootInstead = Annotated[Path | None, typer.Option("--root", help="Use this root, not the config's.")]


Format = Annotated[OutputFormat, typer.Option(help="How to write the rows.")]
Out = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write them there; parquet needs it.")]
Timeout = Annotated[float, typer.Option(metavar="SECONDS", min=0, help="End a statement that computes for longer.")]
Memory = Annotated[str, typer.Option(metavar="SIZE", help="End a statement that needs more, as 500MB or 16GB.")]
EXIT_CODES = "Exit codes: 0 done; 2 wrong or refused; 3 ended by --timeout or --memory; 130 cancelled by Ctrl-C."


class DataFormat(StrEnum):
    """Those of the config, whose models `status` and `sql` shall not wait for."""

    auto = "auto"
    verl = "verl"
    trl = "trl"
    openrlhf = "openrlhf"
    open_instruct = "open_instruct"
    math = "math"
    gsm8k = "gsm8k"
    question_answer = "question_answer"
    human_eval = "human_eval"


@app.command(epilog="Example: rlsift run configs/demo.yaml --set train.steps=10 --set selection.alpha=0.5")
def run(
    config: ConfigFile,
    overrides: Overrides = None,
    root: RootInstead = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the config, show what would run.")] = False,
) -> None:
    """Run a curriculum to its end. What is recorded complete is not done again."""
    with _errors_in_words():
        from pipeline_lib.config_file import load_config

        settings = load_config(config, overrides, root)
        if dry_run:
            from flows.commands.dry_run import print_dry_run

            print_dry_run(console, settings)
            return
        from flows.commands.run import run_curriculum
        from flows.stopping import end_soon_after_a_signal

        end_soon_after_a_signal(messages.print)
        run_curriculum(settings, console, messages)


@app.command(epilog="Example: rlsift plan configs/demo.yaml --set train.learning_rate=1e-4")
def plan(
    config: ConfigFile,
    overrides: Overrides = None,
    root: RootInstead = None,
) -> None:
    """Show which steps of a run are recorded complete, which would run, and why. Nothing is written."""
    with _errors_in_words():
        from flows.commands.plan import print_plan
        from pipeline_lib.config_file import load_config

        print_plan(console, load_config(config, overrides, root))


@app.command(epilog="Example: rlsift status demo")
def status(
    run_id: Annotated[str | None, typer.Argument(help="A run's name; all runs when left out.")] = None,
    root: Root = None,
) -> None:
    """Show the runs of a root, and how far each of their steps is."""
    with _errors_in_words():
        from flows.commands.status import print_status

        print_status(console, Warehouse(find_root(root)), run_id)


@app.command(epilog="Example: rlsift watch demo. Exit codes: 0 completed; 1 failed; 130 left by Ctrl-C.")
def watch(
    run_id: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="A run's name; the newest run when left out.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Show what is there now, and leave.")] = False,
    root: Root = None,
) -> None:
    """Watch a run until it ends: its steps, the newest metrics, evaluations, and where the time goes.

    It waits for a run that has not begun. Where there is no terminal it writes a line whenever something has happened.
    """
    with _errors_in_words():
        from flows.commands.watch import watch_run

        code = watch_run(console, Warehouse(named_root(root)), run_id, once=once)
    sys.exit(code)


@app.command(epilog="Example: rlsift ingest train.jsonl --map prompt=conversation,gold=reward.answer")
def ingest(
    data: Annotated[str, typer.Argument(help="A .jsonl, .json, .csv or .parquet file; a directory or a hub id.")],
    format: Annotated[DataFormat, typer.Option(help="auto finds the format by the columns.")] = DataFormat.auto,
    map: Annotated[
        str | None, typer.Option("--map", metavar="prompt=COLUMN,gold=COLUMN", help="For columns of no known format.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Configuration of a directory or hub id.")] = None,
    split: Annotated[str, typer.Option(help="Split of a directory or hub id.")] = "train",
    revision: Annotated[str | None, typer.Option(help="Commit or tag of a hub id, which needs one.")] = None,
    root: Annotated[Path, typer.Option("--root", help="Directory of the warehouse.")] = Path("runs"),
    rejects: Annotated[int, typer.Option(min=0, help="How many left-out rows to list.")] = 10,
) -> None:
    """Read a data set into the warehouse; say what was kept, merged, and left out and why."""
    with _errors_in_words():
        from flows.commands.ingest import ingest_and_account, named_source

        source = named_source(data, format.value, map, name=name, split=split, revision=revision)
        ingest_and_account(console, Warehouse(root.absolute()), source, rejects)


@app.command(epilog='Example: rlsift sql "FROM prompt_difficulty LIMIT 20" --format csv. ' + EXIT_CODES)
def sql(
    statement: Annotated[
        str | None, typer.Argument(help="What to ask of the tables and views. Left out: an interactive shell.")
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", metavar="FILE", help="Statements in a file.")] = None,
    format: Format = OutputFormat.table,
    out: Out = None,
    timeout: Timeout = Limits.seconds,
    memory: Memory = Limits.memory,
    root: Root = None,
) -> None:
    """Ask the published snapshot of the warehouse in SQL, also while a run is on. Nothing is written."""
    with _errors_in_words():
        from flows.commands.sql import run_sql

        warehouse, limits = Warehouse(find_root(root)), Limits(memory, timeout)
        run_sql(console, messages, warehouse, statement=statement, file=file, form=format, out=out, limits=limits)


@app.command(
    epilog="Example: rlsift query prompt_history --prompt 0123456789abcdef. " + EXIT_CODES,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def query(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="Left out: all queries are listed with their parameters.")] = None,
    format: Format = OutputFormat.table,
    out: Out = None,
    timeout: Timeout = Limits.seconds,
    memory: Memory = Limits.memory,
    root: Root = None,
) -> None:
    """Run a named query with its parameters, as --prompt ID --run NAME --stage 1."""
    with _errors_in_words():
        from flows.commands.query import list_queries, run_query

        if name is None:
            list_queries(console)
            return
        warehouse, limits = Warehouse(find_root(root)), Limits(memory, timeout)
        run_query(console, messages, warehouse, name, context.args, form=format, out=out, limits=limits)


@app.command(epilog="Example: rlsift schema rollout_stats")
def schema(
    table: Annotated[str | None, typer.Argument(help="A table or view; all when left out.")] = None,
    root: Root = None,
) -> None:
    """Show what the tables, views and columns of the warehouse are."""
    with _errors_in_words():
        from flows.commands.schema import print_schema

        print_schema(console, Warehouse(find_root(root)), table)


@app.command(epilog='Example: duckdb -readonly "$(rlsift snapshot)"')
def snapshot(root: Root = None) -> None:
    """Print the path of the published snapshot, which any DuckDB client may open read-only."""
    with _errors_in_words():
        warehouse = Warehouse(find_root(root))
        warehouse.bring_up_to_date()
        console.print(str(warehouse.snapshot_path), soft_wrap=True, highlight=False)


@app.command(epilog="Example: rlsift report demo")
def report(
    run_id: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="A run's name; may be left out if there is one.")
    ] = None,
    other: Annotated[
        str | None, typer.Argument(metavar="[RUN2]", help="Another run of the same root: both side by side.")
    ] = None,
    root: Root = None,
) -> None:
    """Write the HTML report of what a run has done so far, or of two runs side by side, and say where it is."""
    with _errors_in_words():
        from flows.commands.status import the_run
        from tasks.report import write_pair_report, write_report

        warehouse = Warehouse(find_root(root))
        run_id = the_run(warehouse, run_id)
        path = write_report(warehouse, run_id) if other is None else write_pair_report(warehouse, run_id, other)
        console.print(str(path), soft_wrap=True, highlight=False)


@app.command(epilog="Example: rlsift dashboard --root runs --port 4200")
def dashboard(
    root: Annotated[
        Path | None, typer.Option("--root", help="Directory of its data. Default: $RLSIFT_ROOT, else ./runs.")
    ] = None,
    port: Annotated[int | None, typer.Option("--port", min=1, max=65535, help="Default: a free one.")] = None,
) -> None:
    """Serve Prefect's dashboard on this machine, with workers: start, schedule and retry runs in the browser."""
    with _errors_in_words():
        from flows.commands.dashboard import serve_dashboard

        serve_dashboard((root or Path(os.environ.get("RLSIFT_ROOT", "runs"))).absolute(), port, console)


@app.command(epilog="Example: rlsift schedule configs/demo.yaml --at 22:00 --timezone Europe/Berlin")
def schedule(
    run: Annotated[str, typer.Argument(metavar="RUN", help="YAML file of the run, or the name of one in the root.")],
    overrides: Overrides = None,
    root: RootInstead = None,
    every: Annotated[str | None, typer.Option(metavar="TIME", help="30m, 12h, 1d: the first stage at once.")] = None,
    at: Annotated[str | None, typer.Option(metavar="HH:MM", help="A time of day.")] = None,
    timezone: Annotated[str, typer.Option(help="Of --at.")] = "UTC",
    off: Annotated[bool, typer.Option("--off", help="Take the schedule of the run away.")] = False,
) -> None:
    """Have the dashboard take the stages of a run one by one, each beginning where the last ended."""
    with _errors_in_words():
        from flows.commands.schedule import schedule_run, unschedule_run
        from flows.commands.status import the_run
        from flows.runs import config_of
        from pipeline_lib.config_file import load_config

        if Path(run).is_file():
            config = load_config(Path(run), overrides, root)
        else:
            warehouse = Warehouse(find_root(root))
            config = config_of(warehouse, the_run(warehouse, run))
        if off:
            unschedule_run(console, config)
        else:
            schedule_run(console, config, every=every, at=at, timezone=timezone)


@app.command(epilog="Example: rlsift gc --apply")
def gc(
    root: Root = None,
    apply: Annotated[bool, typer.Option("--apply", help="Remove what is listed.")] = False,
) -> None:
    """List the files that no run needs, with their sizes: steps that no run takes, checkpoints of trained stages."""
    with _errors_in_words():
        from flows.commands.keeping import collect_garbage

        collect_garbage(console, Warehouse(find_root(root)), apply=apply)


@app.command(epilog="Example: rlsift doctor demo")
def doctor(
    run_id: Annotated[str | None, typer.Argument(metavar="[RUN]", help="Of this run: what ails it, and why.")] = None,
    root: Root = None,
) -> None:
    """Read every file of a root, and say where files and records disagree; or read the symptoms of one run.

    Exit code 1 where anything is found.
    """
    with _errors_in_words():
        from flows.commands.keeping import examine, examine_one
        from flows.commands.status import the_run

        warehouse = Warehouse(find_root(root))
        well = (
            examine(console, warehouse)
            if run_id is None
            else examine_one(console, warehouse, the_run(warehouse, run_id))
        )
    sys.exit(0 if well else 1)


@app.command(epilog="Example: rlsift export demo demo.zip")
def export(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="A run's name.")],
    file: Annotated[Path, typer.Argument(help="The file to write.")],
    root: Root = None,
) -> None:
    """Pack a run's statistics into one file, for somebody else's warehouse; no rollouts and no weights."""
    with _errors_in_words():
        from flows.commands.keeping import pack_run
        from flows.commands.status import the_run

        warehouse = Warehouse(find_root(root))
        pack_run(console, warehouse, the_run(warehouse, run_id), file)


@app.command("import", epilog="Example: rlsift import demo.zip --as demo_of_ada")
def import_(
    file: Annotated[Path, typer.Argument(help="What `rlsift export` wrote.")],
    name: Annotated[str | None, typer.Option("--as", metavar="NAME", help="Under another name.")] = None,
    root: Annotated[
        Path | None, typer.Option("--root", help="Directory of the warehouse; else $RLSIFT_ROOT, else ./runs.")
    ] = None,
) -> None:
    """Add a packed run to a warehouse; a second time changes nothing."""
    with _errors_in_words():
        from flows.commands.keeping import unpack_run

        unpack_run(console, Warehouse(named_root(root)), file, name)


@contextmanager
def _errors_in_words() -> Iterator[None]:
    """What a user can mend is said in words, without a traceback; what he cannot keeps it."""
    try:
        yield
    except LimitReached as error:
        print_error(messages, limit_in_words(error))
        sys.exit(3)
    except (ValueError, WarehouseError) as error:
        print_error(messages, str(error))
        sys.exit(2)
    except OSError as error:
        if error.errno == ENOSPC:
            text = f"{error}; make room on that disk, and the same command goes on from here"
        elif error.filename is not None:
            text = f"{error.filename}: {error.strerror}; check the path and its permissions"
        else:
            raise
        print_error(messages, text)
        sys.exit(2)
    except StepFailed as error:
        print_error(messages, str(error))
        messages.print("Once that is mended, the same command goes on from here.")
        if isinstance(error, ServerGone):
            sys.stdout.flush()
            os._exit(1)
        sys.exit(1)
    except KeyboardInterrupt:
        messages.print("Stopped. The same command goes on from here.")
        sys.exit(130)


def main() -> None:
    app()


if __name__ == "__main__":
    main()
