"""Prefect's server and pages beside the reports of the root that it is served for.

The browser is told that this machine is all it may speak to: the pages ask a service of usage statistics for its
settings as they load, also where analytics are switched off.
"""

from __future__ import annotations

import os
from pathlib import Path

from prefect.server.api.server import create_app as create_prefect_app
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from flows.dashboard.services import DASHBOARD_ROOT

REPORTS = "/reports"
POLICY = b"connect-src 'self' http://127.0.0.1:* ws://127.0.0.1:* data: blob:"


def create_app() -> ASGIApp:
    pages = create_prefect_app()
    # No report is written yet in a new root. What lies outside the directory, also by a link, is not found.
    files = StaticFiles(directory=Path(os.environ[DASHBOARD_ROOT]) / "reports", check_dir=False)
    reports = Starlette(routes=[Mount(REPORTS, files)])

    async def keep_to_this_machine(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", []), (b"content-security-policy", POLICY)]
                message = {**message, "headers": headers}
            await send(message)

        if scope["type"] == "http" and scope["path"].startswith(f"{REPORTS}/"):
            await reports(scope, receive, send_with_policy)
        else:
            await pages(scope, receive, send_with_policy)

    return keep_to_this_machine
