"""One frame of `rlsift watch`, for 80 columns, and the one line that stands for it where there is no terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from flows.display import progress_bar
from flows.watching.measures import MEASURES, newest, shares_by_step, shares_of_training
from flows.watching.sight import Row, SeenStep, Sight
from flows.watching.sparkline import sparkline
from tasks.progress import format_duration, format_facts

WIDTH = 64
"""Of what stands beside the names: with these, 80 columns."""
SPARKS = 44
MARKS = {
    "completed": ("✓", "green"),
    "running": ("▶", "bold cyan"),
    "failed": ("✗", "bold red"),
    "interrupted": ("■", "yellow"),
    "imported": ("↓", "blue"),
    "removed": ("–", "dim"),
    "not recorded": ("?", "yellow"),
}
NAMED = ("failed", "interrupted", "not recorded")
"""States of steps that are told in words beside the mark."""
STYLES = {"completed": "green", "running": "cyan", "waiting": "cyan", "failed": "bold red", "interrupted": "yellow"}
INTERRUPTED = "Its process is gone; `rlsift run` goes on from there."


def frame(sight: Sight) -> RenderableType:
    """What is not known yet is left out."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column()
    for name, shown in _lines(sight):
        grid.add_row(name, shown)
    return Group(_heading(sight), grid)


def line(sight: Sight) -> str:
    """The run's state in one line; alike as long as nothing has happened."""
    parts = [f"{sight.run_id} is {sight.state}", f"stage {sight.stage} of {sight.stages}"]
    if sight.progress is not None:
        parts.append(" ".join(filter(None, [_doing(sight.progress.label), sight.progress.counted()])))
    if sight.state == "running" and sight.training:
        values = ((measure.name, newest(measure, sight.training)) for measure in MEASURES)
        parts += [f"{name} {value}" for name, value in values if value is not None]
    parts += [f"{_place(step)} failed: {step.error}" for step in sight.steps if step.state == "failed"]
    return ", ".join(parts)


def _heading(sight: Sight) -> Text:
    seconds = sum(step.seconds or 0.0 for step in sight.steps)
    return Text.assemble(
        (sight.run_id, "bold"),
        "  ",
        (sight.state, STYLES[sight.state]),
        f" · stage {sight.stage} of {sight.stages} · {format_duration(seconds)} of work",
    )


def _lines(sight: Sight) -> Iterator[tuple[str, RenderableType]]:
    for stage, steps in groupby(sight.steps, key=lambda step: step.stage):
        yield f"stage {stage}", _steps(list(steps))
    if sight.progress is not None:
        yield _doing(sight.progress.label), progress_bar(sight.progress, now=0.0)
        if sight.progress.facts:
            yield "", Text(format_facts(sight.progress.facts), style="dim")
    for step in sight.steps:
        if step.state == "failed":
            yield "error", Text(f"{_place(step)}: {step.error}", style="red")
    if sight.state == "interrupted":
        yield "", Text(INTERRUPTED, style="yellow")
    yield from _training(sight)
    if sight.selection is not None:
        yield "selected", Text(_selected(sight.selection))
    for name, rows in groupby(sight.evaluations, key=lambda row: str(row["evaluation_set"])):
        yield name, Text(_evaluated(list(rows)))
    if shares := shares_by_step(sight.steps):
        yield "time", Text(_shares(shares))


def _training(sight: Sight) -> Iterator[tuple[str, RenderableType]]:
    rows = sight.training
    if not rows:
        return
    last = rows[-1]
    yield "training", Text(f"stage {sight.training_stage}, step {last['step']}")
    for measure in MEASURES:
        if (value := newest(measure, rows)) is not None:
            sparks = sparkline([measure.of(row) for row in rows], SPARKS)
            yield measure.name, Text.assemble((sparks.ljust(SPARKS), "cyan"), f" {value:>9}")
    size = "" if sight.group_size is None else f" of {sight.group_size}"
    yield (
        "batch",
        Text(
            f"{last['groups_trained']} groups{size}, {last['groups_carried']} carried over; "
            f"{last['prompts_rolled_out']} prompts in {_counted(last['generation_rounds'], 'round')}"
        ),
    )
    yield "its time", Text(_shares(shares_of_training(rows)))


def _steps(steps: Sequence[SeenStep]) -> Text:
    """Each with its mark, and the time of all; no line breaks within one."""
    lines = [Text()]
    for part in [*map(_marked, steps), Text(format_duration(sum(step.seconds or 0.0 for step in steps)), style="dim")]:
        if lines[-1].cell_len + part.cell_len > WIDTH:
            lines.append(Text())
        lines[-1].append_text(part).append("  ")
    for line in lines:
        line.rstrip()
    return Text("\n").join(lines)


def _marked(step: SeenStep) -> Text:
    mark, style = MARKS[step.state]
    text = Text.assemble((f"{mark} ", style), step.name.replace("_", " "))
    return text.append(f" {step.state}", style=style) if step.state in NAMED else text


def _selected(row: Row) -> str:
    share = row["n_selected"] / row["n_pool"]
    return (
        f"{row['n_selected']:,} of {row['n_pool']:,} prompts ({share:.0%}) by {row['strategy']}, stage {row['stage']}"
    )


def _evaluated(rows: Sequence[Row]) -> str:
    """avg@k of the first stage and of the newest."""
    first, last = rows[0], rows[-1]
    shown = [first] if first is last else [first, last]
    return f"avg@{last['k']}  " + " → ".join(f"{_percent(row)} (stage {row['stage']})" for row in shown)


def _percent(row: Row) -> str:
    error = row["standard_error"]
    return f"{100 * row['value']:.1f}{'' if error is None else f' ± {100 * error:.1f}'} %"


def _shares(shares: Sequence[tuple[str, float]]) -> str:
    return ", ".join(f"{name} {share:.0%}" for name, share in shares)


def _place(step: SeenStep) -> str:
    return f"stage {step.stage} · {step.name.replace('_', ' ')}"


def _doing(label: str) -> str:
    """Of "stage 1/2 · train", what is done."""
    return label.rpartition(" · ")[2]


def _counted(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"
