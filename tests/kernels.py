"""The tests that are marked `kernel`, once more under other kernels of OpenBLAS: `python -m tests.kernels [all]`.

numpy's OpenBLAS has kernels for each family of processors, which round differently: a choice that hangs on the last
bits of a sum comes out otherwise on another machine. `OPENBLAS_CORETYPE` makes a processor run those of an older one.
Without a word the marked tests run under one kernel that differs from the machine's own; with `all` under every one
that the processor can run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
NEEDS = {
    "Haswell": {"avx2", "fma"},
    "Prescott": {"pni"},
    "Nehalem": {"sse4_2"},
    "SkylakeX": {"avx512f", "avx512dq", "avx512bw", "avx512vl"},
    "Zen": {"avx2", "fma"},
}
"""Kernels, and the flags of a processor that can run them; the first ones differ most from what machines have."""
VARIABLE = "OPENBLAS_CORETYPE"
_OWN = "import numpy, threadpoolctl as t; print([i.get('architecture') for i in t.threadpool_info()])"


def runnable() -> list[str]:
    """The kernels that this processor can run; none where it is no x86-64 or nobody can tell."""
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text("utf-8").splitlines() if cpu.exists() else []
    flags = next((set(line.split()) for line in lines if line.startswith("flags")), set[str]())
    return [name for name, needed in NEEDS.items() if needed <= flags]


@lru_cache
def architecture(kernel: str | None) -> str:
    """What OpenBLAS says that it runs under a kernel; None for the machine's own."""
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    environment |= {VARIABLE: kernel} if kernel else {}
    run = subprocess.run(
        [sys.executable, "-c", _OWN], env=environment, capture_output=True, text=True, check=True
    )
    return run.stdout.strip()


def another() -> str | None:
    """A kernel that differs from the one of this process; None where there is none."""
    own = architecture(os.environ.get(VARIABLE))
    return next((kernel for kernel in runnable() if architecture(kernel) != own), None)


def files() -> Iterator[Path]:
    """Test files with marked cases: collecting all others would cost more than running these."""
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        if "mark.kernel" in file.read_text("utf-8"):
            yield file


def main(words: list[str]) -> int:
    """Run the marked tests; the exit code of the first kernel under which one fails."""
    kernels = runnable() if words == ["all"] else [kernel for kernel in [another()] if kernel is not None]
    if not kernels:
        print("kernels: this processor has one kernel, nothing runs again")
    for kernel in kernels:
        print(f"kernels: the marked tests under {kernel}", flush=True)
        marked = ["-m", "kernel and not slow"]
        command = [sys.executable, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider", *marked]
        run = subprocess.run([*command, *map(str, files())], cwd=ROOT, env={**os.environ, VARIABLE: kernel})
        if run.returncode:
            return run.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
