"""Sessions and their keys: what a cancel request must show.

A client gets a key when it logs in (BackendKeyData): a number and a secret. A cancel request carries both, over a
connection of its own that nobody logs in to; it gets no answer, right or wrong. Of several processes on one port
the kernel may hand the request to another one than the session's. Then it is passed on through Unix sockets in a
folder that only these processes can enter.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import secrets
import socket
import struct
from dataclasses import dataclass
from pathlib import Path

from dpsql import errors
from dpsql.release.request import Request

NUMBER = struct.Struct("!i")
KEY_BYTES = NUMBER.size + 4


@dataclass(eq=False)
class WireSession:
    """A session, and the request that it waits for.

    Args:
        key: what a client shows to have its session's statement stopped: a number and a secret, as they stand in
            messages.
        request: what it waits for.
    """

    key: bytes
    request: Request | None = None

    def stop(self) -> None:
        """Stop what it waits for; nothing if that is nothing."""
        if self.request is not None:
            self.request.stop()


class Sessions:
    """The sessions of this process, by their keys.

    Args:
        folder: where processes on one port hear of each other's requests; None for a single one.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._open: dict[bytes, WireSession] = {}

    def open(self) -> WireSession:
        """A new session."""
        number = NUMBER.pack(secrets.randbits(31))
        while number in self._open:
            number = NUMBER.pack(secrets.randbits(31))
        self._open[number] = session = WireSession(number + secrets.token_bytes(4))
        return session

    def close(self, session: WireSession) -> None:
        self._open.pop(session.key[: NUMBER.size], None)

    @property
    def busy(self) -> bool:
        """True if some session waits for an answer."""
        return any(session.request is not None for session in self._open.values())

    def cancel(self, body: bytes) -> None:
        """Stop what the session of a key is asking, here or in another process; nothing if there is no such key.

        Args:
            body: of a cancel request.
        """
        if len(body) == KEY_BYTES and not self.stop(body) and self.folder is not None:
            _tell(self.folder, body)

    def stop(self, body: bytes) -> bool:
        """True if the key names a session of this process, after stopping what it asks if the secret is right."""
        if len(body) != KEY_BYTES:
            return False
        session = self._open.get(body[: NUMBER.size])
        if session is None:
            return False
        if hmac.compare_digest(session.key, body):
            session.stop()
        return True

    async def hear(self) -> None:
        """Listen for requests that reached other processes on the port.

        Raises:
            OperationalError: their folder cannot be used.
        """
        if self.folder is None:
            return
        place, sessions = self.folder / str(os.getpid()), self

        class CancelListener(asyncio.DatagramProtocol):
            def datagram_received(self, data: bytes, addr: object) -> None:
                sessions.stop(data)

        loop = asyncio.get_running_loop()
        try:
            await loop.create_datagram_endpoint(CancelListener, local_addr=str(place), family=socket.AF_UNIX)
        except OSError as error:
            raise errors.OperationalError(
                f"cannot listen on {place}", hint="set TMPDIR to a shorter path"
            ) from error


def _tell(folder: Path, body: bytes) -> None:
    """Pass a request on to every other process; one that has gone, or is too busy to hear, is left out."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        for place in folder.iterdir():
            if place.name != str(os.getpid()):
                with contextlib.suppress(OSError):
                    sender.sendto(body, str(place))
