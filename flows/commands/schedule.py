"""rlsift schedule: the stages of a run one by one, at a time of day or after an interval."""

from __future__ import annotations

import os
import re
from datetime import time, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from rich.console import Console

from flows.prefect_server import OFFLINE, answers
from pipeline_lib.config import ConfigError, RunConfig

UNITS = {"m": "minutes", "h": "hours", "d": "days"}


def schedule_run(console: Console, config: RunConfig, *, every: str | None, at: str | None, timezone: str) -> None:
    """Have a deployed run take the next stage, then the one after it, until nothing is left.

    Raises ConfigError for a time that cannot be read, and where no dashboard serves the root.
    """
    if (every is None) == (at is None):
        raise ConfigError("give --every or --at, one of them: --every 1d (30m, 12h), or --at 22:00")
    interval = None if every is None else _interval(every)
    clock = None if at is None else _time(at)
    _known(timezone)
    _find_server(Path(config.root))
    from prefect.client.orchestration import get_client

    from flows.chain import first_pending
    from flows.dashboard import schedules

    pending = first_pending(config)
    if pending is None:
        console.print(f"Run {config.name} is complete: nothing is left to schedule.")
        return
    with get_client(sync_client=True) as client:
        if interval is not None:
            schedules.schedule_stages(client, config, schedules.every(interval))
            when = f"begins now, then one stage every {every}"
        else:
            assert clock is not None
            schedules.schedule_stages(client, config, schedules.daily(clock, timezone))
            when = f"begins at {clock:%H:%M} {timezone}, then one stage a day"
    console.print(
        f"Stage {max(1, pending.stage)}/{config.stages} of {config.name} {when}. The schedule pauses itself when "
        f"nothing is left; `rlsift schedule {config.name} --off` takes it away.",
        soft_wrap=True,
    )


def unschedule_run(console: Console, config: RunConfig) -> None:
    _find_server(Path(config.root))
    from prefect.client.orchestration import get_client

    from flows.dashboard.schedules import unschedule

    with get_client(sync_client=True) as client:
        there = unschedule(client, config.name)
    console.print(f"Run {config.name} is no longer scheduled." if there else f"Run {config.name} was not scheduled.")


def _find_server(root: Path) -> None:
    """Point Prefect, before anything imports it, at the server of the root's dashboard, unless one is set."""
    os.environ.update(OFFLINE)
    if "PREFECT_API_URL" in os.environ:
        return
    address = root / "dashboard" / "address"
    url = address.read_text() if address.exists() else None
    if url is None or not answers(url):
        raise ConfigError(
            f"no dashboard serves {root}: start `rlsift dashboard --root {root}`, or set PREFECT_API_URL to a server "
            "of your own that has the deployments of prefect.yaml"
        )
    os.environ["PREFECT_API_URL"] = f"{url}/api"


def _interval(given: str) -> timedelta:
    found = re.fullmatch(r"([1-9]\d{0,4})([mhd])", given)
    if found is None:
        raise ConfigError(f"--every {given}: must be a whole number and m, h or d, as 30m, 12h or 1d")
    return timedelta(**{UNITS[found[2]]: int(found[1])})


def _time(given: str) -> time:
    try:
        return time.fromisoformat(given)
    except ValueError:
        raise ConfigError(f"--at {given}: must be a time of day, as 22:00") from None


def _known(timezone: str) -> None:
    try:
        ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError):
        raise ConfigError(f"--timezone {timezone}: not known; name it as Europe/Berlin, or leave UTC") from None
