"""`python -m tests.gpu [--out FILE] [--only NAME]`: run every check on the current CUDA device and print what each found.

Exit code 0 when all hold, 1 when one fails, 2 without a CUDA device. `--out` writes the results, passes and failures, as JSON for
`kernwright evidence --record`.
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import date
from pathlib import Path


def main() -> int:
    """Run the checks."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    parser.add_argument(
        "--targets", type=Path, metavar="FOLDER", help="also run the checks of docs/targets, built there"
    )
    parser.add_argument("--only", help="run the checks whose name contains this")
    options = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        print("no CUDA device: torch.cuda.is_available() is False", file=sys.stderr)
        return 2
    from kernwright.runtime.build import records
    from kernwright.runtime.loader.load import default_manifest, locate
    from kernwright.runtime.loader.search import architecture_of
    from tests.gpu import gated_delta_rule, rmsnorm_silu_gate, tiles  # noqa: F401  (they register their checks)
    from tests.gpu.registry import CHECKS, Results, run_checks

    device, capability = torch.cuda.get_device_name(), torch.cuda.get_device_capability()
    arch = architecture_of(capability, default_manifest(), device).name
    print(f"{device}, {arch}, torch {torch.__version__}")
    machine_code = {}
    for program in {program for item in CHECKS for program in item.programs}:
        library = locate(program, capability)
        machine_code[program] = records.read(library.parent)[library.stem].text_sha256[program]
    common = {"arch": arch, "device": device, "date": f"{date.today()}"}

    def save(results: Results) -> None:
        if options.out:
            options.out.write_text(json.dumps(results, indent=1) + "\n")

    chosen = [item for item in CHECKS if not options.only or options.only in item.name]
    results = run_checks(chosen, machine_code, common, save, torch.cuda.synchronize)
    if options.targets:
        from tests.gpu.targets import run_targets

        found = run_targets(options.targets, common)
        for r in found:
            print(
                f"{'FAILED' if r['result'].startswith('FAILED') else 'ok    '} {r['program']} {r['check']}: {r['result']}"
            )
        results += found
        save(results)
    failed = {(r["check"]) for r in results if r["result"].startswith("FAILED")}
    print(f"{len({r['check'] for r in results} - failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
