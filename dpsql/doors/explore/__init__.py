"""`dpsql explore`: a local web page that asks open releases.

| module | is for |
|---|---|
| here | listening on this machine, at an address that nobody else can guess |
| `app` | who may ask, and which path gives what |
| `answers` | what the page shows, as JSON |

The page itself is index.html, explore.js and explore.css, and what `dpsql.doors.page` shares with the report. uvicorn
speaks HTTP; it is an extra (`pip install "dpsql[explore]"`).
"""

from __future__ import annotations

import contextlib
import secrets
import socket
from collections.abc import Callable

from dpsql.answer.session import OpenReleases
from dpsql.doors.explore.answers import Explorer
from dpsql.doors.explore.app import HOST, App, Gate
from dpsql.errors import OperationalError
from dpsql.extras import extra

MOST_CONNECTIONS = 64
SECONDS_TO_END = 1


def serve(releases: OpenReleases, port: int, told: Callable[[str], None]) -> None:
    """Serve the page to this machine until interrupted.

    Args:
        releases: what is asked.
        port: where to listen; 0 takes a free one.
        told: called with the page's address once somebody may open it.

    Raises:
        InterfaceError: uvicorn is not installed.
        OperationalError: the port cannot be used.
    """
    uvicorn = extra("explore")
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((HOST, port))
        except OSError as error:
            raise OperationalError(f"cannot listen on {HOST}:{port}", hint="is the port taken?") from error
        listening.listen()
        gate = Gate(secrets.token_urlsafe(24), listening.getsockname()[1])
        config = uvicorn.Config(
            App(Explorer(releases), gate), loop="asyncio", http="h11", ws="none", lifespan="off", interface="asgi3",
            log_level="warning", access_log=False, server_header=False, limit_concurrency=MOST_CONNECTIONS,
            timeout_graceful_shutdown=SECONDS_TO_END,
        )  # fmt: skip
        told(gate.address)
        with contextlib.suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[listening])
