"""A server of its own process, and a client that speaks the PostgreSQL protocol by hand."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return int(place.getsockname()[1])


def password_file(folder: Path, role: str, password: str = "correct horse", mode: int = 0o600) -> Path:
    """A role's password, which others cannot read unless the mode lets them."""
    file = folder / f"{role}.pw"
    file.write_text(f"{role}:{password}\n")
    file.chmod(mode)
    return file


def certificate(folder: Path, days: str) -> tuple[Path, Path]:
    """A self-signed certificate that ends after some days, and its key."""
    files = folder / "c.pem", folder / "k.pem"
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=localhost"]
    request = [
        "openssl",
        "req",
        "-x509",
        *curve,
        "-days",
        days,
        "-keyout",
        str(files[1]),
        "-out",
        str(files[0]),
    ]
    subprocess.run(request, check=True, capture_output=True)
    return files


class Server(NamedTuple):
    """A server that runs, and where it listens."""

    process: subprocess.Popen[str]
    port: int


@contextlib.contextmanager
def running(*arguments: str | Path) -> Iterator[Server]:
    """A server of its own process; checks that it ends cleanly."""
    command = [sys.executable, "-m", "dpsql", "serve", "--json", "--port", "0", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        try:
            yield Server(process, json.loads(line)["port"])
            assert process.poll() is None, "the server ended"
        finally:
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=120)
        assert process.returncode == 0
        assert "Traceback" not in errors, errors


@contextlib.contextmanager
def serving(*arguments: str | Path) -> Iterator[int]:
    """The port of a server."""
    with running(*arguments) as server:
        yield server.port


class Wire:
    """A client that speaks the protocol by hand."""

    greeting, last = "", b""

    def __init__(self, port: int, user: str = "me", startup: bytes | None = None) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=120)
        if startup is None:
            self.start(user)
        else:
            self.socket.sendall(startup)

    def start(self, user: str) -> None:
        body = struct.pack("!i", 196608) + b"user\0" + user.encode() + b"\0database\0shop\0\0"
        self.socket.sendall(struct.pack("!i", len(body) + 4) + body)

    def log_in(self, password: str) -> Wire:
        """This client after a SCRAM login, right or wrong, with the kinds of what came back and the last body."""
        kind, body = self.receive()
        if kind == "E":
            self.greeting, self.last = "E", body
            return self
        assert body[:4] == struct.pack("!i", 10)
        first = b"n,,n=,r=abc"
        self.send("p", b"SCRAM-SHA-256\0" + struct.pack("!i", len(first)) + first)
        kind, body = self.receive()
        assert kind == "R"
        challenge = body[4:].decode()
        nonce, salt, rounds = (part[2:] for part in challenge.split(","))
        salted = stretched(password.encode(), base64.b64decode(salt), int(rounds))
        key = hmac.digest(salted, b"Client Key", "sha256")
        without = f"c=biws,r={nonce}"
        signed = f"n=,r=abc,{challenge},{without}".encode()
        proof = bytes(
            a ^ b
            for a, b in zip(key, hmac.digest(hashlib.sha256(key).digest(), signed, "sha256"), strict=True)
        )
        self.send("p", f"{without},p={base64.b64encode(proof).decode()}".encode())
        messages = self.until_ready()
        self.greeting = kinds(messages)
        self.last = next(body for kind, body in reversed(messages) if kind)
        return self

    def send(self, kind: str, body: bytes) -> None:
        self.socket.sendall(kind.encode() + struct.pack("!i", len(body) + 4) + body)

    def receive(self) -> tuple[str, bytes]:
        """The next message; an empty kind at the end of the stream."""
        head = self._exactly(5)
        if len(head) < 5:
            return "", b""
        return chr(head[0]), self._exactly(struct.unpack("!i", head[1:])[0] - 4)

    def _exactly(self, count: int) -> bytes:
        data = b""
        with contextlib.suppress(ConnectionError):
            while len(data) < count and (piece := self.socket.recv(count - len(data))):
                data += piece
        return data

    def until_ready(self) -> list[tuple[str, bytes]]:
        found = []
        while True:
            kind, body = self.receive()
            found.append((kind, body))
            if kind in ("Z", ""):
                return found

    def ask(self, sql: str) -> list[tuple[str, bytes]]:
        self.send("Q", sql.encode() + b"\0")
        return self.until_ready()


def kinds(messages: list[tuple[str, bytes]]) -> str:
    return "".join(kind for kind, _ in messages)


def values(body: bytes) -> list[bytes | None]:
    """The fields of a DataRow."""
    count, at, found = struct.unpack("!h", body[:2])[0], 2, []
    for _ in range(count):
        length = struct.unpack("!i", body[at : at + 4])[0]
        found.append(None if length < 0 else body[at + 4 : at + 4 + length])
        at += 4 + max(length, 0)
    return found


def state(body: bytes) -> str:
    return next(part[1:] for part in body.split(b"\0") if part.startswith(b"C")).decode()


@cache
def stretched(password: bytes, salt: bytes, rounds: int) -> bytes:
    """SCRAM's salted password, once for all clients of a role."""
    return hashlib.pbkdf2_hmac("sha256", password, salt, rounds)


def log_in(port: int, user: str, password: str) -> Wire:
    """A client after a SCRAM login, right or wrong."""
    return Wire(port, user).log_in(password)
