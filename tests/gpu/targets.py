"""Runs the check programs of the hand-written targets and turns what they print into records for evidence.json."""

from __future__ import annotations

import json
import subprocess
from datetime import date
from pathlib import Path

SOURCES = {"check_mma_tile": "docs/targets/mma_tile.sm_90a.cu", "check_gdn_scan": "docs/targets/gdn_scan.sm_90a.cu"}


def run_targets(folder: Path, arch: str, device: str) -> list[dict[str, str]]:
    """Run every check program in `folder`; raises where one fails. One record a program and kind of statement."""
    records: list[dict[str, str]] = []
    for name, source in SOURCES.items():
        done = subprocess.run([folder / name], capture_output=True, text=True, timeout=300)
        lines = [
            json.loads(line.removeprefix("RESULT ")) for line in done.stdout.splitlines() if line.startswith("RESULT ")
        ]
        if done.returncode:
            raise RuntimeError(f"{name} failed: {done.stdout[-2000:]}{done.stderr[-500:]}")
        (folder / f"{name}.results").write_text("".join(json.dumps(line) + "\n" for line in lines))
        digest = next(line["sources"] for line in lines if "sources" in line)
        common = {"program": source, "arch": arch, "device": device, "date": f"{date.today()}", "text_sha256": digest}
        records += [common | {"check": check, "result": result} for check, result in _statements(lines)]
    return records


def _statements(lines: list[dict[str, object]]) -> list[tuple[str, str]]:
    """(check, result) pairs: correctness of each program, then time a chunk of each."""
    found: list[tuple[str, str]] = []
    for line in lines:
        match line:
            case {
                "check": check,
                "depth": depth,
                "wrong": wrong,
                "of": of,
                "relative_rms": rms,
                "repeats_bitwise_equal": equal,
            }:
                text = f"{wrong} of {of} outside the rounding bound of FP64, relative RMS {rms}, repeats bitwise equal: {equal}"
                found.append((f"{check}, K = {depth}", text))
            case {
                "check": check,
                "tokens": tokens,
                "o_relative_rms": o,
                "state_relative_rms": state,
                "repeats_bitwise_equal": equal,
            }:
                text = f"relative RMS against the FP64 recurrence: o {o}, state {state}; repeats bitwise equal: {equal}"
                found.append((f"{check}, {tokens} tokens, {line['heads_per_key']} heads a key", text))
            case {"time": program, "blocks": blocks, "us_per_chunk": time, "r2": fit}:
                text = f"{time} us a chunk (slope of launch time over 128 to 512 chunks, r2 {fit})"
                found.append((f"{program}, {blocks} blocks", text))
            case _:
                pass
    return found
