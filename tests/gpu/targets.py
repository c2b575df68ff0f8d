"""Runs the check programs of the hand-written targets and turns what they print into records for evidence.json."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from kernwright.runtime.evidence import sources_digest

from .registry import failure

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {"check_mma_tile": "docs/targets/mma_tile.sm_90a.cu", "check_gdn_scan": "docs/targets/gdn_scan.sm_90a.cu"}


def run_targets(folder: Path, common: dict[str, str]) -> list[dict[str, str]]:
    """Run every check program in `folder`. One result a program and kind of statement, or one that says how it failed."""
    records: list[dict[str, str]] = []
    for name, source in SOURCES.items():
        digest = sources_digest(ROOT, source)
        try:
            done = subprocess.run([folder / name], capture_output=True, text=True, timeout=300)
            output = done.stdout.splitlines()
            lines = [json.loads(line.removeprefix("RESULT ")) for line in output if line.startswith("RESULT ")]
            (folder / f"{name}.results").write_text("".join(json.dumps(line) + "\n" for line in lines))
            digest = next((line["sources"] for line in lines if "sources" in line), digest)
            if done.returncode:
                raise RuntimeError(
                    f"exit code {done.returncode}: {' '.join((done.stdout[-200:] + done.stderr[-200:]).split())}"
                )
            statements = _statements(lines)
        except Exception as error:
            statements = [(name, failure(error))]
        if digest is None:
            raise RuntimeError(f"{name} names no sources, and {source} or a header of it is missing")
        same = common | {"program": source, "text_sha256": digest}
        records += [same | {"check": check, "result": result} for check, result in statements]
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
