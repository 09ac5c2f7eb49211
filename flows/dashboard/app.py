"""Prefect's server and pages, with word to the browser that this machine is all it may speak to.

The pages ask a service of usage statistics for its settings as they load, also where analytics are switched off.
"""

from __future__ import annotations

from prefect.server.api.server import create_app as create_prefect_app
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = b"connect-src 'self' http://127.0.0.1:* ws://127.0.0.1:* data: blob:"


def create_app() -> ASGIApp:
    app = create_prefect_app()

    async def keep_to_this_machine(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", []), (b"content-security-policy", POLICY)]
                message = {**message, "headers": headers}
            await send(message)

        await app(scope, receive, send_with_policy)

    return keep_to_this_machine
