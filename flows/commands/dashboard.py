"""rlsift dashboard: Prefect's server with its pages, workers, deployments and automations, on one machine."""

from __future__ import annotations

import os
import signal
import socket
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from rich.console import Console

from flows.child_process import Child
from flows.prefect_server import OFFLINE, START_SECONDS, Server, answers, free_port
from pipeline_lib.atomic import write_text
from pipeline_lib.config import ConfigError
from tasks.errors import StepFailed
from warehouse import WarehouseError
from warehouse.files import exclusive_lock

WATCH_SECONDS = 2.0
STOP_SECONDS = 15.0


def serve_dashboard(root: Path, port: int | None, console: Console) -> None:
    """Serve until Ctrl-C or SIGTERM; where another process serves this root already, say where and return.

    The kernel drops the lock of a process that is gone, so what a killed one left is never taken for a live one.
    Raises ConfigError for a port that is taken, StepFailed where a server does not start.
    """
    home = root / "dashboard"
    home.mkdir(parents=True, exist_ok=True)
    address = home / "address"
    with ExitStack() as held:
        try:
            held.enter_context(exclusive_lock(home / "lock", timeout_seconds=0))
        except WarehouseError:
            console.print(f"The dashboard of {root} is served already: {_address_of_the_first(home)}", soft_wrap=True)
            return
        if address.exists():
            _outlive(address)
            console.print("The dashboard before this one did not stop by itself; this one takes its place.")
        _serve(root, home, port if port is None else _not_taken(port), console)


def _serve(root: Path, home: Path, port: int | None, console: Console) -> None:
    from flows.dashboard.services import make_server, make_workers

    server = make_server(root, home, port or free_port())
    # For the client in this process, before anything imports Prefect.
    os.environ.update(OFFLINE | server.settings)
    workers = make_workers(home, server.settings)
    started: list[Child] = []
    for number in (signal.SIGINT, signal.SIGTERM):  # also where a shell's `&` had SIGINT ignored
        signal.signal(number, signal.default_int_handler)
    try:
        console.print(f"Starting Prefect; its data and logs are in {home} …", soft_wrap=True)
        server.start()
        started.append(server)
        _register(home, server)
        for worker in workers:
            worker.start()
            started.append(worker)
        write_text(home / "address", server.url)
        console.print(f"Dashboard of {root}: {server.url}\nCtrl-C stops it.", soft_wrap=True)
        _watch(started, console)
    except KeyboardInterrupt:
        for number in (signal.SIGINT, signal.SIGTERM):  # what follows ends by itself
            signal.signal(number, signal.SIG_IGN)
        _stop(server, [child for child in started if child is not server], console)
    finally:
        for child in started:
            child.terminate()
        for child in started:
            child.wait(STOP_SECONDS)
        (home / "address").unlink(missing_ok=True)


def _register(home: Path, server: Server) -> None:
    # Prefect takes a second to import, in which the server starts.
    from prefect.client.orchestration import get_client

    from flows.dashboard.automations import register_automations
    from flows.dashboard.deployments import deploy, find_deployments, register_pools

    deployments = find_deployments()
    server.wait_until_it_answers()
    with get_client(sync_client=True) as client:
        register_pools(client)
        register_automations(client)
    deploy(deployments, home, server.settings)


def _watch(children: list[Child], console: Console) -> None:
    """Start again what ends. Returns only by KeyboardInterrupt."""
    while True:
        time.sleep(WATCH_SECONDS)
        for child in children:
            if not child.is_running:
                console.print(f"{child.name} ended and is started again; its log is {child.log}", soft_wrap=True)
                child.start()


def _stop(server: Server, workers: list[Child], console: Console) -> None:
    """End the workers, then say what they were doing and mark it as stopped while the server still listens."""
    from prefect.client.orchestration import get_client

    from flows.dashboard.unfinished import mark_stopped, runs_at_work

    console.print("Stopping.")
    if not answers(server.url):
        return
    with get_client(sync_client=True) as client:
        runs = runs_at_work(client)
        _end_flow_runs(workers)
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.wait(STOP_SECONDS)
        for run in runs:
            console.print(f"  {run.name} was {run.state_name}; it is stopped, and Retry on its page goes on with it.")
        mark_stopped(client, runs)


def _end_flow_runs(workers: list[Child]) -> None:
    """Before the workers, which would kill them with -9: so each ends its training process and records its step."""
    for worker in workers:
        for pid in worker.children():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while any(worker.children() for worker in workers) and time.monotonic() < deadline:
        time.sleep(0.1)


def _address_of_the_first(home: Path) -> str:
    """Wait until the process that holds the lock has said where it serves."""
    deadline = time.monotonic() + START_SECONDS
    address = home / "address"
    while time.monotonic() < deadline:
        if address.exists() and answers(url := address.read_text()):
            return url
        time.sleep(0.2)
    raise StepFailed(
        f"process {(home / 'lock').read_text()} holds {home / 'lock'} but its dashboard does not answer; end that "
        f"process, or look at {home / 'server.log'}"
    )


def _outlive(address: Path) -> None:
    """The processes of a killed dashboard end with it, but not in the same moment."""
    deadline = time.monotonic() + STOP_SECONDS
    url = address.read_text()
    while answers(url):
        if time.monotonic() > deadline:
            raise StepFailed(f"a server of a dashboard that was killed still answers at {url}; end it first")
        time.sleep(0.2)
    address.unlink()


def _not_taken(port: int) -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise ConfigError(f"--port {port}: another program uses it; give another one, or none") from None
    return port
