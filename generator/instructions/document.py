"""The instruction table as a page of the documentation. `python -m kernwright.generator.instructions.document` rewrites it."""

from __future__ import annotations

from kernwright.generator.arch import ARCHITECTURES
from kernwright.generator.errors import repository_root
from kernwright.generator.instructions import table
from kernwright.generator.instructions.table import Confirmed, Effects, Instruction

PAGE = repository_root() / "docs" / "instructions.md"

# Every word that Effects may hold, and what a reader of them (a race checker, a reviewer) takes it for.
PLACES = {
    "registers": "the registers of the executing threads",
    "shared": "shared memory of the block, beside barriers",
    "global": "global memory",
    "tensor memory": "tensor memory; only the tcgen05 orders below reach it",
    "tensor memory columns": "the allocation of tensor memory",
    "allocation permit": "the right to allocate tensor memory",
    "mbarrier": "an mbarrier in shared memory",
    "named barrier": "one of the block's barriers 0 to 15",
    "register budget": "the block's pool of registers",
}
PROXIES = {
    "generic": "ordinary accesses",
    "async": "TMA, bulk copies, and the shared-memory operands of wgmma and tcgen05",
}
COMPLETIONS = {
    "mbarrier bytes": "the named mbarrier counts the bytes down; its wait makes them visible without a proxy fence",
    "mbarrier arrival": "the named mbarrier gets one arrival",
    "bulk group": "the issuing thread commits a bulk group and waits for it",
    "wgmma group": "the warpgroup commits a wgmma group and waits for it",
    "tcgen05 commit": "the issuing thread's next commit arrives on an mbarrier",
    "tcgen05 store wait": "the storing threads wait for their stores to tensor memory",
    "nothing to wait for": "a hint: nothing tells that it has landed, and nothing may depend on it",
}
ORDERS = {
    "release": "the thread's earlier accesses, before what follows the wait that sees this arrival (block scope)",
    "acquire": "what the arrivals of the phase released and its copies wrote, before the thread's later accesses (block scope)",
    "release and acquire": "the participants' earlier accesses before each other's later ones; not across proxies",
    "mbarrier initialisation": "the thread's earlier mbarrier initialisations, before their use in the cluster",
    "generic and async proxies": "the thread's own ordinary accesses to shared memory, before later ones of the asynchronous proxy",
    "registers before wgmma": "earlier accesses to accumulators and register operands, before the wgmmas that follow",
    "close wgmma group": "nothing yet: names the wgmmas that a wait can wait for",
    "wgmma group complete": "the accumulators, register reads and shared-memory reads of the older groups, before what follows",
    "close bulk group": "nothing yet: names the stores that the thread can wait for",
    "bulk group reads": "the shared-memory reads of the thread's older groups, before what follows in this thread",
    "tcgen05 before barrier": "the thread's earlier tcgen05 operations, before the barrier or arrival that follows",
    "barrier before tcgen05": "the barrier or wait just passed, before the thread's later tcgen05 operations",
    "tcgen05 commit": "the thread's earlier products, before what follows the wait for the arrival and a fence after it",
    "tensor memory stores complete": "the stored columns, before what follows the fences and the barrier after it",
    "tensor memory loads complete": "the loaded registers, before what follows in this warp",
}
COLLECTIVES = {
    "thread": "any thread, for itself",
    "one thread": "one elected thread acts for its role",
    "warp": "all lanes of a warp together",
    "warpgroup": "all lanes of four consecutive warps together",
    "block": "all threads of the block",
}

HEAD = """\
# Instructions

One row an entry of `generator/instructions/`, which holds the CUDA text, the constraints and the executable meaning. A meaning is
"yes" where the entry's Python body is run by tests against an oracle; what uses an entry without one is reported as unproved.
This page is written by `python -m kernwright.generator.instructions.document`.
"""


def page() -> str:
    """The whole page, ending in a newline."""
    rows = [
        "| name | PTX | architectures | effects | executed by | meaning | confirmed |",
        "|---|---|---|---|---|---|---|",
    ]
    rows += [_row(entry) for entry in table()]
    words = (
        ("reads and writes", PLACES),
        ("proxy", PROXIES),
        ("completes with", COMPLETIONS),
        ("orders", ORDERS),
        ("executed by", COLLECTIVES),
    )
    lists = [
        line for title, known in words for line in (f"**{title}**", "", *(f"- {k}: {v}" for k, v in known.items()), "")
    ]
    return "\n".join([HEAD, *rows, "", "## Words of the effects", "", *lists]).rstrip("\n") + "\n"


def _row(entry: Instruction) -> str:
    archs = [name for name, arch in ARCHITECTURES.items() if entry.exists_on(arch)]
    where = "all" if len(archs) == len(ARCHITECTURES) else ", ".join(archs)
    ptx = ", ".join(f"`{text}`" for text in entry.ptx)
    confirmed = "on hardware" if entry.confirmed is Confirmed.HARDWARE else "documents only"
    meaning = "no" if entry.meaning is None else "yes" + (f", within {entry.bound}" if entry.bound else "")
    cells = (f"`{entry.name}`", ptx, where, _effects(entry.effects), entry.effects.collective, meaning, confirmed)
    return "| " + " | ".join(cells) + " |"


def _effects(effects: Effects) -> str:
    parts = []
    if effects.reads:
        parts.append("reads " + ", ".join(effects.reads))
    if effects.writes:
        parts.append("writes " + ", ".join(effects.writes))
    if effects.proxy != "generic":
        parts.append(f"{effects.proxy} proxy")
    if effects.completion:
        parts.append(f"completes with {effects.completion}")
    if effects.orders:
        parts.append(f"orders: {effects.orders}")
    return "; ".join(parts) or "none"


def main() -> None:
    """Rewrite the page."""
    PAGE.write_text(page(), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
