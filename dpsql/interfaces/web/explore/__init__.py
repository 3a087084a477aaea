"""`dpsql explore`: a local web page that asks open releases.

`answers` makes what the page shows, as JSON. The page itself is index.html, explore.js and explore.css, and what
`dpsql.interfaces.web.page` shares with the report. uvicorn speaks HTTP; it is an extra (`pip install
"dpsql[explore]"`).

| below the token | takes | gives |
|---|---|---|
| (nothing), explore.js, explore.css, chart.js, look.css | GET | the page's own files |
| star, examples | GET | what the releases hold, and what they answer well |
| report, certificate | GET | the pages that `dpsql report` and `dpsql certificate` write |
| offers | POST {before} | completions |
| ask, csv | POST {sql, level} | an answer, or its CSV file |
| explain | POST {sql} | how it is answered |

**Who may ask.** Whoever runs the command: it listens on loopback alone, and every path begins with a random token.
Other pages in her browser may not: a request must name this address as its Host (a name that an attacker points at
127.0.0.1 is refused), must not come from another origin, and a POST must be JSON, which no form can send. The page
itself may load its own files and nothing else, and cannot turn text into markup: its policy asks for trusted types and
allows none. A refused statement is an answer of status 200: it was understood.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import secrets
import socket
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from http import HTTPStatus
from typing import Any

from dpsql.errors import OperationalError, QueryTimeout
from dpsql.extras import extra
from dpsql.federation.session import OpenReleases
from dpsql.interfaces.web.explore.answers import HERE, Explorer, Json
from dpsql.interfaces.web.page import SHARED, STILL, asset
from dpsql.release.request import Request

HOST = "127.0.0.1"
MOST_BODY = 2**20
MOST_AT_ONCE = 4
"""Statements that run at a time; others wait."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'"
)
PAGE_POLICY = f"{STILL}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
"""Of whole pages, which hold their style and no script."""
HEADERS = {
    "content-security-policy": POLICY, "x-content-type-options": "nosniff", "referrer-policy": "no-referrer",
    "cache-control": "no-store", "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin", "x-frame-options": "DENY",
}  # fmt: skip

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


FILES = {
    "": (HERE, "index.html", "text/html"),
    "explore.js": (HERE, "explore.js", "text/javascript"),
    "explore.css": (HERE, "explore.css", "text/css"),
    "chart.js": (SHARED, "chart.js", "text/javascript"),
    "look.css": (SHARED, "look.css", "text/css"),
}
"""The page's own files: package, name and type of each."""
FACTS: Mapping[str, Callable[[Explorer], Json]] = {
    "star": lambda explorer: explorer.star,
    "examples": lambda explorer: explorer.examples,
    "builder": lambda explorer: explorer.builder,
}
PAGES: Mapping[str, Callable[[Explorer], str]] = {
    "report": lambda explorer: explorer.report,
    "certificate": lambda explorer: explorer.certificate,
}
QUESTIONS: Mapping[str, Callable[[Explorer, Json], Json]] = {
    "offers": lambda explorer, asked: explorer.offers(_text(asked, "before")),
    "ask": lambda explorer, asked: explorer.ask(_text(asked, "sql"), _level(asked)),
    "csv": lambda explorer, asked: explorer.csv(_text(asked, "sql"), _level(asked)),
    "explain": lambda explorer, asked: explorer.explain(_text(asked, "sql")),
}


class RequestRefused(Exception):
    """A request that is not served, with its status."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


class ClientDisconnected(Exception):
    """Whoever asked has left."""


class App:
    """The application, at a port of this machine and behind a token that nobody can guess.

    Args:
        explorer: what is asked.
        token, port: its address.
    """

    def __init__(self, explorer: Explorer, token: str, port: int) -> None:
        self.explorer, self.token, self.port = explorer, token, port
        self.address = f"http://{HOST}:{port}/{token}/"
        self._turns = asyncio.Semaphore(MOST_AT_ONCE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = HTTPStatus.OK
        try:
            text, kind, policy = await self._reply_to(scope, receive)
        except RequestRefused as refused:
            status = refused.status
        except asyncio.CancelledError:  # the page ends; uvicorn would print the stack of a cancelled request
            status = HTTPStatus.SERVICE_UNAVAILABLE
        except ClientDisconnected:
            return
        if status is not HTTPStatus.OK:
            text, kind, policy = f"{status.phrase}\n", "text/plain", POLICY
        body = text.encode()
        headers = HEADERS | {"content-security-policy": policy, "content-type": f"{kind}; charset=utf-8"}
        headers["content-length"] = str(len(body))
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": int(status), "headers": pairs})
        await send({"type": "http.response.body", "body": body})

    def enter(self, scope: Scope) -> str:
        """Resource of a request, below the token.

        Raises:
            Refused: it is not addressed to this page, or comes from another one.
        """
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        hosts = {f"{HOST}:{self.port}", f"localhost:{self.port}"}
        host = headers.get(b"host", "")
        if host not in hosts:
            raise RequestRefused(HTTPStatus.MISDIRECTED_REQUEST)
        if headers.get(b"origin", f"http://{host}") != f"http://{host}":
            raise RequestRefused(HTTPStatus.FORBIDDEN)
        if headers.get(b"sec-fetch-site", "none") not in ("none", "same-origin"):
            raise RequestRefused(HTTPStatus.FORBIDDEN)
        _, token, *segments = f"{scope['path']}/".split("/")
        if not hmac.compare_digest(token.encode(), self.token.encode()) or len(segments) != 2:
            raise RequestRefused(HTTPStatus.NOT_FOUND)
        verb, content = scope["method"], headers.get(b"content-type", "")
        if verb == "POST" and content != "application/json":
            raise RequestRefused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
        return str(segments[0])

    async def _reply_to(self, scope: Scope, receive: Receive) -> tuple[str, str, str]:
        """A whole response: its text, type and policy."""
        name, verb = self.enter(scope), scope["method"]
        if verb == "GET" and name in FILES:
            package, file, kind = FILES[name]
            return asset(package, file), kind, POLICY
        if verb == "GET" and name in PAGES:
            page = await self._work(receive, lambda: {"html": PAGES[name](self.explorer)})
            return str(page["html"]), "text/html", PAGE_POLICY
        if verb == "GET" and name in FACTS:
            value = await self._work(receive, lambda: FACTS[name](self.explorer))
        elif verb == "POST" and name in QUESTIONS:
            question = await _body(receive)
            value = await self._work(receive, lambda: QUESTIONS[name](self.explorer, question))
        else:
            exists = name in FILES or name in FACTS or name in PAGES or name in QUESTIONS
            raise RequestRefused(HTTPStatus.METHOD_NOT_ALLOWED if exists else HTTPStatus.NOT_FOUND)
        return json.dumps(value, allow_nan=False), "application/json", POLICY

    async def _work(self, receive: Receive, work: Callable[[], Json]) -> Json:
        """Run something in a thread; it is stopped when whoever asked leaves.

        Raises:
            Gone: she left.
        """
        request = Request()
        async with self._turns:
            working = asyncio.create_task(asyncio.to_thread(request.run, work))
            leaving = asyncio.create_task(_left(receive))
            try:
                await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
                if not working.done():
                    request.stop()
                    with contextlib.suppress(QueryTimeout):
                        await working
                    raise ClientDisconnected
            except asyncio.CancelledError:  # the page ends
                request.stop()
                raise
            finally:
                leaving.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await leaving
        return working.result()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _body(receive: Receive) -> Json:
    """The JSON object of a request.

    Raises:
        Refused: it is none, or too long.
        Gone: whoever asked left before it was whole.
    """
    body, more_body = b"", True
    while more_body:
        try:
            async with asyncio.timeout(SECONDS_TO_ASK):
                message = await receive()
        except TimeoutError:
            raise RequestRefused(HTTPStatus.REQUEST_TIMEOUT) from None
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        body += message.get("body", b"")
        more_body = message.get("more_body", False)
        if len(body) > MOST_BODY:
            raise RequestRefused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    try:
        question = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestRefused(HTTPStatus.BAD_REQUEST) from error
    if not isinstance(question, dict):
        raise RequestRefused(HTTPStatus.BAD_REQUEST)
    return question


def _text(question: Json, name: str) -> str:
    text = question.get(name)
    if not isinstance(text, str):
        raise RequestRefused(HTTPStatus.BAD_REQUEST)
    return text


def _level(question: Json) -> float:
    level = question.get("level")
    if not isinstance(level, float) or not 0.5 <= level <= 0.9999:
        raise RequestRefused(HTTPStatus.BAD_REQUEST)
    return level


MOST_CONNECTIONS = 64
SECONDS_TO_END = 1
SECONDS_TO_ASK = 10.0
"""For the head of a request, and for each piece of its body: who sends half of one takes no connection for long."""


def _impatient_protocol() -> type[asyncio.Protocol]:
    """uvicorn's protocol, but a connection whose request is not whole after `SECONDS_TO_ASK` is closed."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class ImpatientProtocol(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.look = self.loop.call_later(SECONDS_TO_ASK, self.close_unless_asked)

        def connection_lost(self, exc: Exception | None) -> None:
            self.look.cancel()
            super().connection_lost(exc)

        def close_unless_asked(self) -> None:
            if self.cycle is None or (self.cycle.response_complete and self.conn.trailing_data[0]):
                self.transport.close()
            else:
                self.look = self.loop.call_later(SECONDS_TO_ASK, self.close_unless_asked)

    return ImpatientProtocol


def serve(releases: OpenReleases, port: int, on_progress: Callable[[str], None]) -> None:
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
        app = App(Explorer(releases), secrets.token_urlsafe(24), listening.getsockname()[1])
        config = uvicorn.Config(
            app, loop="asyncio", http=_impatient_protocol(), ws="none", lifespan="off",
            interface="asgi3", log_level="warning", access_log=False, server_header=False,
            limit_concurrency=MOST_CONNECTIONS, timeout_graceful_shutdown=SECONDS_TO_END,
        )  # fmt: skip
        on_progress(app.address)
        with contextlib.suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[listening])
