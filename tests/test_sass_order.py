"""The order of the machine code against the lowered program: generated text passes, each move that breaks it is found."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.targets import FOLDER

from kernwright.generator.arch import ARCHITECTURES
from kernwright.generator.emit.headers import print_headers
from kernwright.generator.emit.kernel import print_kernel
from kernwright.generator.ir.program import LoweredProgram
from kernwright.generator.passes.lower import lower
from kernwright.generator.pipeline import discover
from kernwright.generator.sass import Finding, check_program, disassemble, parse
from kernwright.generator.workflow.machine_code import quoted, report, verify_units
from kernwright.generator.workflow.record import Unit, WorkflowError
from kernwright.runtime.toolchain import Toolchain

pytestmark = pytest.mark.nvcc
ROOT = Path(__file__).resolve().parents[1]
TILE = "tiles_mma_tile"


def lowered(symbol: str, arch: str) -> LoweredProgram:
    return lower(discover()[symbol].trace(), ARCHITECTURES[arch]).program


def compile_text(toolchain: Toolchain, path: Path, arch: str) -> str:
    """The disassembly of a kernel file."""
    cubin = path.with_suffix(".cubin")
    code = arch.removeprefix("sm_")
    command = [str(toolchain.tool("nvcc")), "-std=c++17", "-O3", "-cubin", "-o", str(cubin), str(path)]
    subprocess.run([*command, f"-gencode=arch=compute_{code},code=sm_{code}"], check=True, capture_output=True)
    return disassemble(cubin, toolchain)


@pytest.fixture(scope="module")
def cubins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `listings` compiles: a folder an architecture."""
    return tmp_path_factory.mktemp("sass")


@pytest.fixture(scope="module")
def listings(toolchain: Toolchain, cubins: Path) -> dict[str, str]:
    """The disassembly of `tiles_mma_tile` as generated, by architecture."""
    texts = {}
    for arch in ("sm_90a", "sm_100a", "sm_107a"):
        program = lowered(TILE, arch)
        path = cubins / arch / "generated" / program.family / f"{program.name}.cu"
        files = {path: print_kernel(program)}
        files |= {cubins / arch / name: text for name, text in print_headers([program]).items()}
        for target, text in files.items():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        texts[arch] = compile_text(toolchain, path, arch)
    return texts


def findings(symbol: str, arch: str, text: str) -> tuple[Finding, ...]:
    return check_program(lowered(symbol, arch), parse(text)).findings


# ---- edits of a listing: they move text, so an instruction keeps the address that the compiler gave it


def lines_of(text: str, pattern: str) -> list[int]:
    """Numbers of the lines of instructions that hold `pattern`."""
    return [n for n, line in enumerate(text.splitlines()) if re.search(rf"\*/.*\b{pattern}", line)]


def move(text: str, line: int, before: int) -> str:
    lines = text.splitlines()
    moved = lines[line]
    lines.insert(before, moved)
    del lines[line if before > line else line + 1]
    return "\n".join(lines)


def drop(text: str, line: int) -> str:
    lines = text.splitlines()
    del lines[line]
    return "\n".join(lines)


def change(text: str, line: int, old: str, new: str) -> str:
    lines = text.splitlines()
    assert old in lines[line]
    lines[line] = lines[line].replace(old, new)
    return "\n".join(lines)


def swap_fence_and_store(text: str) -> str:
    """The last store of the result goes behind the fence that publishes it."""
    return move(text, lines_of(text, r"STS\.")[-1], lines_of(text, r"FENCE\.VIEW\.ASYNC")[-1] + 1)


def drop_last_group_wait(text: str) -> str:
    return drop(text, lines_of(text, r"WARPGROUP\.DEPBAR")[-1])


def weaken_last_group_wait(text: str) -> str:
    return change(text, lines_of(text, r"WARPGROUP\.DEPBAR")[-1], "gsb0, 0x0", "gsb0, 0x1")


def drop_one_product(text: str) -> str:
    return drop(text, lines_of(text, r"HGMMA\.")[3])


def drop_group_end(text: str) -> str:
    line = next(line for line in lines_of(text, r"HGMMA\.") if "gsb0" in text.splitlines()[line])
    return change(text, line, ", gsb0", "")


def copy_before_announcement(text: str) -> str:
    """A TMA load is issued before the arrival that announces its bytes."""
    loads, arrivals = lines_of(text, r"UTMALDG\."), lines_of(text, r"SYNCS\.ARRIVE\.TRANS64 ")
    return move(text, loads[0], max(line for line in arrivals if line < loads[0]))


def release_before_group_wait(text: str) -> str:
    """The stage is released while the group that reads it may still run."""
    wait = lines_of(text, r"WARPGROUP\.DEPBAR")[0]
    return move(text, min(line for line in lines_of(text, r"SYNCS\.ARRIVE") if line > wait), wait)


def drop_fence(text: str) -> str:
    return drop(text, lines_of(text, r"FENCE\.VIEW\.ASYNC")[-1])


def drop_barrier(text: str) -> str:
    return drop(text, lines_of(text, r"BAR\.SYNC")[-1])


def another_barrier(text: str) -> str:
    return change(text, lines_of(text, r"BAR\.SYNC")[-1], " 0x1,", " 0x2,")


def read_accumulator_early(text: str) -> str:
    """A store of the result stands before the wait for its group."""
    return move(text, lines_of(text, r"STS\.")[0], lines_of(text, r"WARPGROUP\.DEPBAR")[-1])


def drop_bulk_wait(text: str) -> str:
    return drop(text, lines_of(text, r"DEPBAR\.LE SB0")[-1])


Edit = Callable[[str], str]
BROKEN: dict[Edit, tuple[str, str, str]] = {
    swap_fence_and_store: ("order", "role_multiply", "FENCE.VIEW.ASYNC.S for fence_proxy_async"),
    drop_last_group_wait: ("accumulator", "role_multiply", "belongs to a wgmma that may still run"),
    weaken_last_group_wait: ("accumulator", "role_multiply", "belongs to a wgmma that may still run"),
    drop_one_product: ("order", "role_multiply", "does not follow here; the text goes on with HGMMA.64x64x16.F32.BF16"),
    drop_group_end: ("order", "role_multiply", "goes on with gsb0 for wgmma_commit_group"),
    copy_before_announcement: ("order", "role_load", "UTMALDG.2D does not follow here"),
    release_before_group_wait: ("order", "role_multiply", "goes on with WARPGROUP.DEPBAR.LE for wgmma_wait_group"),
    drop_fence: ("order", "role_multiply", "BAR.SYNC.DEFER_BLOCKING does not follow here"),
    drop_barrier: ("order", "role_multiply", "BAR.SYNC.DEFER_BLOCKING for named_barrier_sync"),
    another_barrier: ("order", "role_multiply", "BAR.SYNC.DEFER_BLOCKING does not follow here"),
    read_accumulator_early: ("access", "role_multiply", "a store to shared memory that the text does not allow here"),
    drop_bulk_wait: ("missing", "role_multiply", "no DEPBAR.LE in the machine code stands for bulk_wait_group_read"),
}


@pytest.mark.parametrize(("arch", "product"), [("sm_90a", "HGMMA"), ("sm_100a", "UTCHMMA"), ("sm_107a", "UTCHMMA")])
def test_the_generated_text_keeps_its_order(listings: dict[str, str], arch: str, product: str) -> None:
    verdict = check_program(lowered(TILE, arch), parse(listings[arch]))
    assert verdict.findings == ()
    assert verdict.spills == 0
    assert verdict.opcodes[product] > 0
    assert verdict.events > 10
    (line,) = report(verdict, ROOT)
    assert line.startswith(f"{TILE} ({arch}): machine code in order, {verdict.events} synchronising statements, ")


@pytest.mark.parametrize("edit", BROKEN, ids=lambda edit: edit.__name__)
def test_a_move_that_breaks_the_order_is_found(listings: dict[str, str], edit: Edit) -> None:
    rule, role, words = BROKEN[edit]
    found = findings(TILE, "sm_90a", edit(listings["sm_90a"]))
    hits = [finding for finding in found if finding.rule == rule and role in finding.roles and words in str(finding)]
    assert hits, [str(finding) for finding in found]
    if rule != "missing":
        assert hits[0].address is not None
        assert f"{hits[0].address:#06x} `{hits[0].instruction}`" in str(hits[0])


def test_a_load_over_a_wait_is_found(listings: dict[str, str]) -> None:
    """Tensor memory is loaded before the wait for the products is over: above the poll, and between it and its branch."""
    text = listings["sm_100a"]
    load = lines_of(text, r"LDTM\.")[0]
    poll = max(line for line in lines_of(text, r"SYNCS\.PHASECHK") if line < load)
    for edited in (move(text, load, poll), move(text, load, poll + 1)):
        (first, *_) = findings(TILE, "sm_100a", edited)
        assert (first.rule, "role_multiply" in first.roles) == ("access", True)
        assert "a load of tensor memory that the text does not allow here" in str(first)
        assert "SYNCS.PHASECHK.TRANS64.TRYWAIT for mbarrier_wait of role_multiply" in str(first)


def test_a_commit_before_its_products_is_found(listings: dict[str, str]) -> None:
    text = listings["sm_100a"]
    commit, products = lines_of(text, "UTCBAR")[0], lines_of(text, "UTCHMMA")
    (first, *_) = findings(TILE, "sm_100a", move(text, commit, max(line for line in products if line < commit)))
    assert (first.rule, first.roles) == ("order", ("issue_multiply",))
    assert "UTCBAR does not follow here; the text goes on with UTCHMMA" in str(first)


def test_copies_that_are_gone_are_found_at_what_follows_them(listings: dict[str, str]) -> None:
    gone = "\n".join(line for line in listings["sm_100a"].splitlines() if "UTMASTG" not in line)
    (first, *_) = findings(TILE, "sm_100a", gone)
    assert str(first).startswith("role_multiply at ")
    assert "`UTMACMDFLUSH`: UTMACMDFLUSH does not follow here" in str(first)
    assert "UTMASTG.2D for tma_store_2d of role_multiply" in str(first)


def test_statements_that_no_path_executes_are_missing(listings: dict[str, str]) -> None:
    """Every thread ends before the products: nothing is out of order, and nothing is there."""
    lines = listings["sm_90a"].splitlines()
    for at in reversed(lines_of(listings["sm_90a"], r"WARPGROUP\.ARRIVE")):
        lines[at:at] = ["        /*fff0*/                   KILL ;"]
    found = [finding for finding in findings(TILE, "sm_90a", "\n".join(lines)) if finding.rule == "missing"]
    assert any("no HGMMA.64x64x16.F32.BF16 in the machine code stands for wgmma_" in str(finding) for finding in found)
    assert all(finding.address is None for finding in found)


def test_an_opcode_that_the_table_does_not_know_is_found(listings: dict[str, str]) -> None:
    text = listings["sm_90a"]
    line = lines_of(text, r"HGMMA\.")[0]
    (first, *_) = findings(TILE, "sm_90a", change(text, line, "HGMMA.64x64x16.F32.BF16", "QGMMA.64x64x32.F32.E4M3"))
    assert "QGMMA.64x64x32.F32.E4M3 does not follow here; the text goes on with " in str(first)
    assert "HGMMA.64x64x16.F32.BF16 for wgmma_m64n64k16_bf16_ss of role_multiply" in str(first)


def test_moves_that_the_rules_allow_are_no_faults(listings: dict[str, str]) -> None:
    """A second fence and a stronger wait order no less than the text."""
    text = listings["sm_90a"]
    lines = text.splitlines()
    fence, wait = lines_of(text, r"FENCE\.VIEW\.ASYNC")[-1], lines_of(text, r"WARPGROUP\.DEPBAR")[0]
    assert findings(TILE, "sm_90a", "\n".join([*lines[:fence], lines[fence], *lines[fence:]])) == ()
    assert findings(TILE, "sm_90a", change(text, wait, "gsb0, 0x1", "gsb0, 0x0")) == ()


def test_a_fault_quotes_the_line_of_the_description(listings: dict[str, str]) -> None:
    (first, *_) = findings(TILE, "sm_90a", drop_barrier(listings["sm_90a"]))
    place = next(place for place in first.places if place.entry == "named_barrier_sync")
    line = (ROOT / place.source.file).read_text(encoding="utf-8").splitlines()[place.source.line - 1].strip()
    assert place.source.file == "generator/kernels/tiles/mma_tile.py"
    assert f"{place.source}: {line}" in quoted(first, ROOT)


def test_the_hand_written_target_keeps_the_order_of_the_program_too(toolchain: Toolchain, tmp_path: Path) -> None:
    for source in [*FOLDER.glob("mma_tile.sm_90a.cu"), *FOLDER.glob("include/*")]:
        target = tmp_path / source.relative_to(FOLDER)
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(source.read_bytes())
    text = compile_text(toolchain, tmp_path / "mma_tile.sm_90a.cu", "sm_90a")
    assert findings(TILE, "sm_90a", text) == ()


def test_verify_reports_each_unit_and_what_was_not_built(
    listings: dict[str, str], cubins: Path, tmp_path: Path
) -> None:
    work = tmp_path / "build" / "libraries" / ".work"
    work.mkdir(parents=True)
    (cubin,) = (cubins / "sm_90a").rglob("*.cubin")
    (work / f"{TILE}.sm_90a.cubin").write_bytes(cubin.read_bytes())
    said: list[str] = []
    assert verify_units(tmp_path, [Unit(TILE, "sm_90a"), Unit(TILE, "sm_100a")], said.append)
    assert said[0].startswith(f"{TILE} (sm_100a): no machine code at build/libraries/.work/")
    assert said[1].startswith(f"{TILE} (sm_90a): machine code in order")


def test_verify_has_no_verdict_on_what_it_cannot_read(toolchain: Toolchain, tmp_path: Path) -> None:
    work = tmp_path / "build" / "libraries" / ".work"
    work.mkdir(parents=True)
    (work / f"{TILE}.sm_90a.cubin").write_bytes(b"not a cubin")
    with pytest.raises(WorkflowError, match=rf"{TILE} \(sm_90a\): nvdisasm cannot read"):
        verify_units(tmp_path, [Unit(TILE, "sm_90a")], print)
