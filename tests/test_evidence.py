"""evidence.json and the command line: fresh, stale, missing and unknown; what --update writes; exit codes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gpu import registry, targets
from support.sample_program import write_package

from kernwright import cli
from kernwright.runtime import evidence, manifest
from kernwright.runtime.build.ptxas import Resources
from kernwright.runtime.build.records import LibraryRecord
from kernwright.runtime.evidence import Check, EvidenceError, Row

SYMBOL = "rmsnorm_silu_gate_forward_w_bf16"
ONE, TWO = "1" * 64, "2" * 64
KEY = (SYMBOL, "sm_90a")
USED = Resources(25, 0, 0, 0, 0, 0)


@pytest.fixture
def programs(tmp_path: Path) -> manifest.Manifest:
    return manifest.load(write_package(tmp_path, architectures=("sm_90a", "sm_107a")))


def library(programs: manifest.Manifest, text: str = ONE) -> LibraryRecord:
    target = programs.target(*KEY)
    return LibraryRecord("0" * 64, target.closure, target.flags, "13.4.92", "0.1.9", {SYMBOL: text}, {SYMBOL: USED})


def recorded(text: str = ONE) -> evidence.Records:
    check = Check("forward values", "NVIDIA H200", "2026-12-01", text, "passed")
    return {KEY: evidence.Evidence(USED.as_json(), text, "13.4.92", (check,))}


@pytest.mark.parametrize(("built", "state"), [(ONE, "fresh"), (TWO, "stale"), (None, "unknown")])
def test_states(built: str | None, state: str, programs: manifest.Manifest) -> None:
    libraries = {KEY: library(programs, built)} if built else {}
    now = "; other machine code now, the same resources" if state == "stale" else ""
    assert evidence.report(programs, recorded(), libraries) == [
        Row(*KEY, "resources", state, f"25 registers, nvcc 13.4.92{now}"),
        Row(*KEY, "forward values", state, "passed on NVIDIA H200, 2026-12-01"),
        Row(SYMBOL, "sm_107a", "resources", "missing", "never compiled for the record"),
        Row(SYMBOL, "sm_107a", "checks", "missing", "nothing was run on a device"),
    ]


def test_another_compiler_is_told(programs: manifest.Manifest) -> None:
    rows = evidence.report(programs, recorded(), {KEY: replace(library(programs), toolchain="13.5.37")})
    assert rows[0].detail == "25 registers, nvcc 13.4.92; the library is by nvcc 13.5.37"


def test_update_writes_resources_and_keeps_checks(programs: manifest.Manifest, tmp_path: Path) -> None:
    found = recorded() | {("gone", "sm_90a"): recorded()[KEY]}
    new = evidence.update(programs, found, {KEY: library(programs, TWO)})
    assert list(new) == [KEY]
    assert (new[KEY].text_sha256, new[KEY].checks) == (TWO, found[KEY].checks)
    file = tmp_path / "evidence.json"
    assert evidence.write(file, new) is True
    assert evidence.write(file, new) is False
    assert evidence.read(file) == new
    entry = json.loads(file.read_text())["records"][SYMBOL]["sm_90a"]
    assert entry["resources"] == USED.as_json() | {"text_sha256": TWO, "toolchain": "13.4.92"}
    assert [row.state for row in evidence.report(programs, new, {KEY: library(programs, TWO)})[:2]] == [
        "fresh",
        "stale",
    ]
    assert evidence.update(programs, new, {}) == new


def test_libraries_of_other_text_do_not_count(programs: manifest.Manifest, tmp_path: Path) -> None:
    from kernwright.runtime.build import records

    name = f"{SYMBOL}.sm_90a"
    records.write(tmp_path, {name: library(programs)})
    assert evidence.built(programs, tmp_path) == {KEY: library(programs)}
    records.write(tmp_path, {name: replace(library(programs), closure=TWO)})
    assert evidence.built(programs, tmp_path) == {}


def test_a_library_without_the_symbol_says_nothing(programs: manifest.Manifest) -> None:
    """A record of libraries.json need not have the kernel: its state is unknown, and nothing is recorded of it."""
    empty = replace(library(programs), text_sha256={"other": ONE}, resources={"other": USED})
    states = [row.state for row in evidence.report(programs, recorded(), {KEY: empty})[:2]]
    assert states == ["unknown", "unknown"]
    assert evidence.update(programs, recorded(), {KEY: empty}) == recorded()
    assert evidence.update(programs, {}, {KEY: empty}) == {}


def test_a_broken_file_names_the_field(tmp_path: Path) -> None:
    file = tmp_path / "evidence.json"
    assert evidence.read(file) == {}
    file.write_text("")
    assert evidence.read(file) == {}
    for document, message in (
        ({"schema": 2, "records": {}}, "#/schema: is schema 2, this version of kernwright reads schema 1"),
        ({"schema": 1, "records": {"a": {"sm_90a": {}}}}, "#/records/a/sm_90a/checks: is missing"),
        (
            {"schema": 1, "records": {"a": {"sm_90a": {"checks": [], "resources": {"registers": 1}}}}},
            "#/records/a/sm_90a/resources/barriers: is missing",
        ),
        (
            {"schema": 1, "records": {"a": {"sm_90a": {"checks": [dict.fromkeys(Check.__dataclass_fields__, "x")]}}}},
            "#/records/a/sm_90a/checks/0/text_sha256: expected a string like [0-9a-f]{64}, got 'x'",
        ),
    ):
        file.write_text(json.dumps(document))
        with pytest.raises(EvidenceError) as caught:
            evidence.read(file)
        assert str(caught.value) == f"{file}{message}"


# ---- the command ----


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli.main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The command line works on this package instead of the installed one."""
    file = write_package(tmp_path, architectures=("sm_90a",))
    monkeypatch.setattr(manifest, "ROOT", tmp_path)
    return file.parent


@pytest.mark.nvcc
def test_build_then_evidence(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "build", "--arch", "sm_90a", SYMBOL)
    path, digest = out.split()
    assert (code, path) == (0, str(package / "build" / "libraries" / f"{SYMBOL}.sm_90a.so"))
    assert len(digest) == 64 and err == f"built {SYMBOL}.sm_90a\n"
    assert run(capsys, "build")[1:] == (out, "")
    assert run(capsys, "evidence", "--check")[0] == 1
    code, out, _ = run(capsys, "evidence", "--update", "--check")
    assert code == 0 and out.startswith(f"{SYMBOL} sm_90a resources: fresh (")
    failed = Check("right", "NVIDIA H200", "2026-12-01", ONE, "FAILED: AssertionError: 3 wrong")
    found = evidence.read(package / "evidence.json")
    checks = (replace(failed, text_sha256=found[KEY].text_sha256),)
    evidence.write(package / "evidence.json", {KEY: replace(found[KEY], checks=checks)})
    code, out, _ = run(capsys, "evidence", "--check")
    assert code == 1 and f"{SYMBOL} sm_90a right: failed (FAILED: AssertionError: 3 wrong on NVIDIA H200" in out
    shutil.rmtree(package / "build")
    code, out, _ = run(capsys, "evidence", "--check")
    assert code == 1 and out.startswith(f"{SYMBOL} sm_90a resources: unknown (")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("build", "norm"), "error: {0}/build.json#/programs: no program 'norm'; known: " + SYMBOL),
        (("build", "--arch", "sm_90a,sm_80"), "error: {0}/build.json#/architectures: no 'sm_80'; known: sm_90a"),
        (("build", "--all", SYMBOL), "error: name programs or give --all, not both"),
    ],
)
def test_wrong_usage_is_told_and_ends_with_2(
    arguments: tuple[str, ...], message: str, package: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, *arguments) == (2, "", message.format(package) + "\n")


def test_explain_asks_the_generator(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[Any] = []

    class Explain:
        @staticmethod
        def main(subjects: list[str], arch: str | None = None) -> int:
            asked.append((subjects, arch))
            return 0

    monkeypatch.setitem(sys.modules, "kernwright.generator.explain", Explain)  # type: ignore[arg-type]
    assert run(capsys, "explain", "KW0404", "--arch", "sm_107a")[0] == 0 and asked == [(["KW0404"], "sm_107a")]
    monkeypatch.setitem(sys.modules, "kernwright.generator.explain", None)  # type: ignore[arg-type]
    code, _, err = run(capsys, "explain", "KW0404")
    assert code == 2 and err.startswith("error: explain needs the generator and its packages: ")


def test_the_command_alone_shows_its_usage() -> None:
    result = subprocess.run([sys.executable, "-m", "kernwright.cli"], capture_output=True, text=True)
    assert result.returncode == 2 and "usage: kernwright" in result.stderr


class TestRecordsOfARun:
    """`kernwright evidence --record FILE`: results of a device, bound to the machine code or to the text that ran."""

    def result(self, **changes: str) -> dict[str, str]:
        base = {"program": SYMBOL, "arch": "sm_90a", "check": "right", "device": "NVIDIA H200", "date": "2026-12-01"}
        return base | {"text_sha256": ONE, "result": "all right"} | changes

    def test_a_result_replaces_the_older_one_of_its_check(self, tmp_path: Path) -> None:
        file = tmp_path / "results.json"
        file.write_text(json.dumps([self.result(check="forward values", result="better"), self.result()]))
        found = evidence.record(recorded(), file)
        assert [(c.check, c.result) for c in found[KEY].checks] == [
            ("forward values", "better"),
            ("right", "all right"),
        ]
        assert found[KEY].resources == USED.as_json()

    def test_results_about_other_machine_code_go(self, tmp_path: Path) -> None:
        file = tmp_path / "results.json"
        file.write_text(json.dumps([self.result(text_sha256=TWO)]))
        assert [c.check for c in evidence.record(recorded(), file)[KEY].checks] == ["right"]

    def test_a_failure_replaces_the_pass_of_its_check(self, programs: manifest.Manifest, tmp_path: Path) -> None:
        file = tmp_path / "results.json"
        file.write_text(json.dumps([self.result(check="forward values", result="FAILED: AssertionError: 3 wrong")]))
        found = evidence.record(recorded(), file)
        assert [(c.check, c.result) for c in found[KEY].checks] == [
            ("forward values", "FAILED: AssertionError: 3 wrong")
        ]
        for text, state in ((ONE, "failed"), (TWO, "stale")):
            rows = evidence.report(programs, found, {KEY: library(programs, text)})
            assert (rows[1].subject, rows[1].state) == ("forward values", state)

    def test_a_failed_source_has_no_older_pass(self, tmp_path: Path) -> None:
        key = ("docs/targets/k.cu", "sm_90a")
        old = tuple(Check(name, "NVIDIA H200", "2026-12-01", ONE, "all right") for name in ("one", "two"))
        file = tmp_path / "results.json"
        failed = self.result(program=key[0], check="check_k", result="FAILED: RuntimeError: exit code 1")
        file.write_text(json.dumps([failed]))
        found = evidence.record({key: evidence.Evidence(None, "", "", old)}, file)
        assert [c.check for c in found[key].checks] == ["check_k"]

    def test_a_file_that_is_no_json_is_named(self, tmp_path: Path) -> None:
        file = tmp_path / "results.json"
        for data, problem in (
            (b"[\n{", "is not JSON: line 2 column 2: Expecting property name enclosed in double quotes"),
            (b'["\xff"]', "is not JSON: byte 2 is not UTF-8"),
            (b"", "expected an array, got None"),
        ):
            file.write_bytes(data)
            with pytest.raises(EvidenceError) as caught:
                evidence.record({}, file)
            assert str(caught.value) == f"{file}: {problem}"

    def test_a_run_tells_of_passes_failures_and_of_a_check_that_never_ends(self) -> None:
        def good() -> str:
            return "all right"

        def bad() -> str:
            raise AssertionError("3 wrong\nmore")

        saved: list[list[dict[str, str]]] = []
        checks = [registry.Check("good", ("a", "b"), good), registry.Check("bad", ("a",), bad)]
        common = {"arch": "sm_90a", "device": "NVIDIA H200", "date": "2026-12-01"}
        results = registry.run_checks(checks, {"a": ONE, "b": TWO}, common, saved.append, lambda: None)
        assert [(r["program"], r["check"], r["text_sha256"], r["result"]) for r in results] == [
            ("a", "good", ONE, "all right"),
            ("b", "good", TWO, "all right"),
            ("a", "bad", ONE, "FAILED: AssertionError: 3 wrong"),
        ]
        assert [r["result"] for r in saved[0]] == ["FAILED: the process ended in this check"] * 2
        assert set(results[0]) == set(self.result())

    def test_a_target_that_fails_is_a_result_too(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "k.cu").write_text("")
        monkeypatch.setattr(targets, "ROOT", tmp_path)
        monkeypatch.setattr(targets, "SOURCES", {"absent": "k.cu", "wrong": "k.cu"})
        (tmp_path / "wrong").write_text("#!/bin/sh\necho broken; exit 3\n")
        (tmp_path / "wrong").chmod(0o755)
        results = targets.run_targets(tmp_path, {"arch": "sm_90a", "device": "d", "date": "2026-12-01"})
        assert [(r["check"], r["result"].split(":")[1]) for r in results] == [
            ("absent", " FileNotFoundError"),
            ("wrong", " RuntimeError"),
        ]
        assert results[1]["result"] == "FAILED: RuntimeError: exit code 3: broken"
        assert {r["text_sha256"] for r in results} == {evidence.sources_digest(tmp_path, "k.cu")}

    def test_a_malformed_result_is_named(self, tmp_path: Path) -> None:
        file = tmp_path / "results.json"
        file.write_text(json.dumps([self.result(text_sha256="no digest")]))
        with pytest.raises(EvidenceError, match="text_sha256"):
            evidence.record(recorded(), file)

    def test_a_hand_written_source_is_bound_to_its_text_and_its_headers(self, programs: manifest.Manifest) -> None:
        root = programs.root
        (root / "hand").mkdir()
        (root / "hand" / "k.cu").write_text('#include "k.cuh"\n')
        (root / "hand" / "k.cuh").write_text("// one\n")
        digest = evidence.sources_digest(root, "hand/k.cu")
        assert digest is not None
        item = evidence.Evidence(None, "", "", (Check("right", "NVIDIA H200", "2026-12-01", digest, "all right"),))
        found = {("hand/k.cu", "sm_90a"): item}

        def state() -> str:
            return next(row.state for row in evidence.report(programs, found, {}) if row.symbol == "hand/k.cu")

        assert state() == "fresh"
        (root / "hand" / "k.cuh").write_text("// two\n")
        assert state() == "stale"
        (root / "hand" / "k.cuh").unlink()
        assert state() == "unknown"
        assert evidence.update(programs, found, {}) == found, "a build says nothing about it"


def test_g02_a_stale_record_says_what_the_resources_became(programs: manifest.Manifest) -> None:
    more = replace(library(programs, TWO), resources={SYMBOL: replace(USED, registers=40)})
    row = evidence.report(programs, recorded(), {KEY: more})[0]
    assert (row.state, row.detail) == (
        "stale",
        "25 registers, nvcc 13.4.92; other machine code now, registers 25 -> 40",
    )
    row = evidence.report(programs, recorded(), {KEY: library(programs, TWO)})[0]
    assert row.detail == "25 registers, nvcc 13.4.92; other machine code now, the same resources"
