"""A crowd at `dpsql serve`: is everybody who has logged in served, and does the server's memory stay as it is?

500 clients wait, 64 ask 50,000 statements, others connect without end and never log in, and some leave in the middle
of a statement. Memory is compared with that after a warm-up, in which caches fill. Some minutes of two cores; Linux
alone tells memory as it is read here.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.figures import Figures, main
from tests.interfaces.crowd import crowd
from tests.interfaces.wire_client import running
from tests.interfaces_release import build

IDLE, BUSY, STATEMENTS, WARM = 500, 64, 50_000, 10_000
PASSWORD = "correct horse"


def measure(figures: Figures, folder: Path) -> None:
    """Serve the crowd."""
    shop, secret = build(folder), folder / "ana.pw"
    secret.write_text(f"ana:{PASSWORD}\n")
    secret.chmod(0o600)
    log = folder / "logins.jsonl"
    with running(shop, "--password-file", secret, "--log", log) as server:
        seen = crowd(server, PASSWORD, IDLE, BUSY, WARM + STATEMENTS, every=2.0)
    asked = sorted(seen.seconds[WARM:])
    before = [size for count, size in seen.bytes if count <= WARM][-1]
    after = [size for count, size in seen.bytes if count > WARM]
    print(f"strangers {seen.strangers}, clients that left in the middle of a statement {seen.left}")
    megabytes = [size / 2**20 for size in (before, max(after), after[-1])]
    print("memory after the warm-up {:.1f} MB, most {:.1f}, last {:.1f}".format(*megabytes))
    p50, p99 = (1000 * asked[int(share * len(asked))] for share in (0.5, 0.99))
    print(f"{BUSY} clients at once: p50 {p50:.1f} ms, p99 {p99:.1f} ms")
    figures.table(f"soak: statements asked after the warm-up, of {STATEMENTS}", len(asked))
    figures.at_most("soak: statements of clients who had logged in that were not served", seen.unserved, 0)
    figures.table(f"soak: clients served after they waited, of {IDLE}", seen.idle)
    figures.at_most("soak: most resident memory over that after the warm-up", max(after) / before, 1.1)


if __name__ == "__main__":
    main(measure)
