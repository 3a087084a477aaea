"""TLS of the server: a key that others cannot read, and a certificate that is valid now."""

from __future__ import annotations

import ssl
import time
from pathlib import Path

from dpsql.errors import InterfaceError, OperationalError

SOON = 14 * 86_400.0
"""Seconds before a certificate's end from which it is said."""
NOT_YET, EXPIRED = 9, 10
"""Codes of OpenSSL's verification."""


def read_tls(certificate: Path, key: Path) -> tuple[ssl.SSLContext, str]:
    """The TLS of a certificate and its key, both PEM files, and what to say of it: that it ends soon, or nothing.

    Raises:
        InterfaceError: others can read the key, or the certificate is not valid now.
        OperationalError: a file cannot be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        mode = key.stat().st_mode
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise OperationalError(
            "the TLS certificate or key cannot be read", hint="both are PEM files"
        ) from error
    if mode & 0o077:
        raise InterfaceError(f"others can read {key}", hint=f"chmod 600 {key}")
    seconds = _until_end(context, certificate)
    if seconds < SOON:
        return context, f"the TLS certificate ends in {seconds / 86_400:.0f} days; renew it"
    return context, ""


def _until_end(context: ssl.SSLContext, certificate: Path) -> float:
    """Seconds until a certificate ends, by a handshake in memory with a client that trusts just this certificate.

    Raises:
        InterfaceError: it is not valid now.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(certificate)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server),
        context.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):  # flights of a handshake
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError as error:
                if error.verify_code not in (NOT_YET, EXPIRED):
                    return SOON  # for instance made for another purpose: clients say so, or take it
                raise InterfaceError(
                    f"the TLS certificate {certificate} is not valid now",
                    hint="renew it, or see whether the clock is right",
                ) from error
    shown = ends[0].getpeercert()
    return ssl.cert_time_to_seconds(str(shown["notAfter"])) - time.time() if shown else SOON
