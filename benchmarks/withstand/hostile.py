"""Hostile releases: does a reader hang, see a traceback, or get an answer of a changed file although it must be signed?

Every file of `tests.release.hostile` is read as readers do, in a process of its own: as it is, and as the holder of the
signing key would have made it.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from nacl.signing import SigningKey

from benchmarks.figures import Figures, main
from dpsql.errors import ReleaseError
from dpsql.release import open_release
from dpsql.release.signature import sign
from tests.release.hostile import asked, make, names
from tests.release_fixture import make_rows, write_fixture

SEED = bytes(range(32))


def measure(folder: Path) -> int:
    """Print the figures; the exit code."""
    figures, found, opened = Figures(), Counter[str](), 0
    good = write_fixture(folder / "good.dpsql", make_rows())
    signed = folder / "signed.dpsql"
    signed.write_bytes(good.read_bytes())
    sign(signed, SEED)
    for number, name in enumerate(names()):
        own = folder / str(number)
        own.mkdir()
        outcome = asked(make(name, good, own / "hostile.dpsql"))
        found[outcome.how] += 1
        if outcome.how not in ("answered", "refused"):
            print(f"{name}: {outcome.how} after {outcome.seconds:.1f} s\n{outcome.told}")
        path = make(name, signed, own / "signed.dpsql")
        try:
            open_release(path, insecure=True, signers=[bytes(SigningKey(SEED).verify_key).hex()]).close()
            opened += 1
            print(f"{name}: opened, although its signer's signature was required")
        except ReleaseError:
            pass
    figures.table("hostile releases", len(names()))
    figures.table("hostile releases that hang a reader", found["hung"])
    figures.at_most("hostile releases that end in a traceback", found["traceback"] + found["died"], 0)
    figures.at_most("changed releases that answer where a signature is required", opened, 0)
    print(f"refused {found['refused']}, read {found['answered']} (nothing in them is of another form)")
    return figures.finish()


if __name__ == "__main__":
    main(measure)
