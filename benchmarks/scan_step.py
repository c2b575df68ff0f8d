"""Time a chunk of the scan-step programs: `python benchmarks/scan_step.py [--check FOLDER]`, one JSON object a line.

The time is the least-squares slope of the launch time over 128, 256, 384 and 512 chunks (CUDA events, 3 warm-ups, median of 15):
what does not grow with the sequence, a launch's own cost, drops out. With `--check`, the check program of the hand-written target
in FOLDER is timed before and after, by the same method.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
from pathlib import Path

import torch

from kernwright.runtime.loader.load import load

CHUNK, HEAD, CHUNKS, BLOCKS = 64, 128, (128, 256, 384, 512), (8, 32, 64, 132)
PROGRAMS = {  # name: (blocks a value head, P is loaded)
    "gated_delta_rule_scan_step": (2, False),
    "gated_delta_rule_scan_step_load_p": (2, True),
    "gated_delta_rule_scan_step_wide": (1, False),
    "gated_delta_rule_scan_step_wide_load_p": (1, True),
}


def arguments(program: str, blocks: int, chunks: int) -> tuple[object, ...]:
    """Arguments of a launch of `blocks` blocks, two value heads a key head, no states."""
    each, loads = PROGRAMS[program]
    heads, tokens = blocks // each, chunks * CHUNK
    bf16 = {"device": "cuda", "dtype": torch.bfloat16}
    q, k = (torch.nn.functional.normalize(torch.randn(tokens, heads // 2, HEAD, **bf16), dim=-1) for _ in range(2))
    v = torch.randn(tokens, heads, HEAD, **bf16)
    inverse, prepared = (0.1 * torch.randn(heads * tokens, CHUNK, **bf16) for _ in range(2))
    gates = (-0.05 * torch.rand(heads, chunks, CHUNK, device="cuda")).cumsum(-1).view(heads, tokens)
    return q, k, v, inverse, *((prepared,) if loads else ()), gates, None, None, torch.empty_like(v), HEAD**-0.5


def launch_time(program: str, blocks: int, chunks: int) -> float:
    """Median microseconds of a launch."""
    run, values, times = load(program, torch.cuda.current_device()).run, arguments(program, blocks, chunks), []
    for repeat in range(-3, 15):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run(*values)
        stop.record()
        stop.synchronize()
        if repeat >= 0:
            times.append(1000 * start.elapsed_time(stop))
    return statistics.median(times)


def by_hand(folder: Path) -> None:
    """Print the times of the hand-written kernels."""
    done = subprocess.run([folder / "check_gdn_scan", "time"], capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
        found = json.loads(line.removeprefix("RESULT ")) if line.startswith("RESULT ") else {}
        if "us_per_chunk" in found:
            row = {"by_hand": found["time"], "blocks": found["blocks"], "us_per_chunk": found["us_per_chunk"]}
            print(json.dumps(row), flush=True)


def main() -> None:
    """Time everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    print(json.dumps({"device": torch.cuda.get_device_name(), "torch": torch.__version__}))
    if options.check:
        by_hand(options.check)
    for program in PROGRAMS:
        for blocks in BLOCKS:
            times = [launch_time(program, blocks, chunks) for chunks in CHUNKS]
            print(
                json.dumps(
                    {
                        "program": program,
                        "blocks": blocks,
                        "us_per_chunk": round(statistics.linear_regression(CHUNKS, times).slope, 4),
                    }
                ),
                flush=True,
            )
    if options.check:
        by_hand(options.check)


if __name__ == "__main__":
    main()
