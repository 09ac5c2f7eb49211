"""rlsift watch: a run as it goes, drawn anew every two seconds, until it ends."""

from __future__ import annotations

import time
from collections.abc import Iterator

from rich.console import Console
from rich.live import Live
from rich.text import Text

from flows.watching.frame import frame, line
from flows.watching.sight import Sight, look
from warehouse import Warehouse, WarehouseError

REFRESH_SECONDS = 2.0
ENDED = {"completed": 0, "failed": 1}
CANCELLED = 130


def watch_run(console: Console, warehouse: Warehouse, run_id: str | None, *, once: bool) -> int:
    """Show the run until it ends; returns 0 if it is completed, 1 if it has failed, 130 after Ctrl-C.

    With `once` one frame, and WarehouseError where the run has not begun. Else it is waited for.
    """
    if once:
        sight = look(warehouse, run_id)
        if sight is None:
            raise WarehouseError(_not_begun(warehouse, run_id))
        console.print(frame(sight))
        return ENDED.get(sight.state, 0)
    on_terminal = console.is_terminal and not console.is_dumb_terminal
    try:
        return (_draw if on_terminal else _tell)(console, warehouse, run_id)
    except KeyboardInterrupt:
        return CANCELLED


def _draw(console: Console, warehouse: Warehouse, run_id: str | None) -> int:
    with Live(console=console, auto_refresh=False) as live:
        for sight in _sights(warehouse, run_id):
            shown = Text(f"{_not_begun(warehouse, run_id)}; waiting.") if sight is None else frame(sight)
            live.update(shown, refresh=True)
    return _exit_code(sight)


def _tell(console: Console, warehouse: Warehouse, run_id: str | None) -> int:
    """A line with the time of day whenever there is something new."""
    told = None
    for sight in _sights(warehouse, run_id):
        news = f"{_not_begun(warehouse, run_id)}; waiting" if sight is None else line(sight)
        if news != told:
            console.print(Text(f"{time.strftime('%H:%M:%S')} {news}."), soft_wrap=True, highlight=False)
            told = news
    return _exit_code(sight)


def _sights(warehouse: Warehouse, run_id: str | None) -> Iterator[Sight | None]:
    """Until the run has ended; without a name, of whichever is found first."""
    while True:
        sight = look(warehouse, run_id)
        yield sight
        if sight is not None:
            if sight.state in ENDED:
                return
            run_id = sight.run_id
        time.sleep(REFRESH_SECONDS)


def _exit_code(sight: Sight | None) -> int:
    assert sight is not None
    return ENDED[sight.state]


def _not_begun(warehouse: Warehouse, run_id: str | None) -> str:
    if run_id is None:
        return f"no run has begun under {warehouse.root} yet"
    return f"the run {run_id} has not begun under {warehouse.root} yet"
