"""What a run thinks of a tree: one class for each file, whatever line ends a checkout has, and what a selection covers.

B01, B02 and B05 are the cases of the same numbers in the project's list of faults that users of such systems have met.
"""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from regenerate_standin import Description, generated_texts
from regenerate_tree import ADD, COPY, SCALE, snapshot, to_crlf

from kernwright.generator.workflow.diff import unified_diff, wants_colour
from kernwright.generator.workflow.digest import (
    bytes_sha256,
    closure_sha256,
    generator_digest,
    lf_bytes,
    text_sha256,
)
from kernwright.generator.workflow.plan import Entry, FileClass, make_plan
from kernwright.generator.workflow.record import WorkflowError, generated_record
from kernwright.generator.workflow.write import apply_plan
from kernwright.runtime import manifest

ALL = (ADD, COPY, SCALE)
KERNEL = "generated/toy/add.sm_90a.cu"
BOM = b"\xef\xbb\xbf"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tree on which the last run has written ADD, COPY and SCALE."""
    apply_plan(tmp_path, make_plan(tmp_path, generated_texts(ALL)))
    return tmp_path


def classes(root: Path, files: dict[str, str]) -> dict[str, str]:
    """Class by path of everything that a run would change; checks that planning itself changes nothing."""
    before = snapshot(root)
    plan = make_plan(root, files)
    assert snapshot(root) == before
    return {entry.path: str(entry.kind) for entry in plan.changes}


def edit(root: Path, path: str = KERNEL, old: bytes = b"a + b", new: bytes = b"a - b") -> None:
    content = (root / path).read_bytes()
    assert old in content
    (root / path).write_bytes(content.replace(old, new))


# ---- verdicts over a whole tree


def test_a_tree_as_the_last_run_left_it_is_clean(root: Path) -> None:
    assert classes(root, generated_texts(ALL)) == {}


def test_b01_a_crlf_checkout_of_outputs_and_record_is_clean(root: Path) -> None:
    for path in generated_texts(ALL):
        (root / path).write_bytes(to_crlf((root / path).read_bytes()))
    assert classes(root, generated_texts(ALL)) == {}


def test_b01_a_drift_of_one_character_in_a_crlf_tree_is_found_and_named(root: Path) -> None:
    for path in generated_texts(ALL):
        (root / path).write_bytes(to_crlf((root / path).read_bytes()))
    edit(root)
    assert classes(root, generated_texts(ALL)) == {KERNEL: "hand-edited"}


def test_b01_a_crlf_file_that_is_stale_is_not_taken_for_a_hand_edit(root: Path) -> None:
    (root / KERNEL).write_bytes(to_crlf((root / KERNEL).read_bytes()))
    assert classes(root, generated_texts((replace(ADD, doc="new"), COPY, SCALE)))[KERNEL] == "stale"


def test_b01_a_byte_order_mark_is_no_drift(root: Path) -> None:
    for path in (KERNEL, "build.json"):
        (root / path).write_bytes(BOM + (root / path).read_bytes())
    assert classes(root, generated_texts(ALL)) == {}


def test_b02a_the_outputs_of_a_new_program_that_were_never_added_are_missing(root: Path) -> None:
    files = generated_texts((*ALL, Description("extra")))
    assert classes(root, files) == {
        "build.json": "stale",
        "generated/toy/extra.binding.c": "missing",
        "generated/toy/extra.sm_100a.cu": "missing",
        "generated/toy/extra.sm_90a.cu": "missing",
    }


def test_b02b_the_outputs_of_a_deleted_program_are_orphans(root: Path) -> None:
    assert classes(root, generated_texts((ADD, COPY))) == {
        "build.json": "stale",
        "generated/include/common.cuh": "stale",
        "generated/toy/scale.binding.c": "orphan",
        "generated/toy/scale.cu": "orphan",
    }


def test_b02b_an_orphan_that_build_json_forgot_is_known_by_its_header(root: Path) -> None:
    (root / "build.json").write_text(generated_texts((ADD, COPY))["build.json"], encoding="utf-8")
    found = classes(root, generated_texts((ADD, COPY)))
    assert found["generated/toy/scale.cu"] == "orphan"


def test_b02c_a_deleted_output_of_a_program_that_exists_is_missing(root: Path) -> None:
    (root / KERNEL).unlink()
    assert classes(root, generated_texts(ALL)) == {KERNEL: "missing"}
    (entry,) = make_plan(root, generated_texts(ALL)).changes
    assert entry.reason == "recorded in build.json and gone"


def test_b02d_one_changed_character_is_a_hand_edit(root: Path) -> None:
    edit(root)
    assert classes(root, generated_texts(ALL)) == {KERNEL: "hand-edited"}


def test_b02e_fixing_the_hash_in_build_json_does_not_hide_the_edit(root: Path) -> None:
    before = text_sha256((root / KERNEL).read_text())
    edit(root)
    edit(root, "build.json", before.encode(), bytes_sha256((root / KERNEL).read_bytes()).encode())
    assert classes(root, generated_texts(ALL)) == {KERNEL: "hand-edited", "build.json": "stale"}


def test_b02e_fixing_hash_and_closure_does_not_hide_the_edit_either(root: Path) -> None:
    edit(root)
    data = json.loads((root / "build.json").read_text())
    entry = data["programs"]["toy_add"]["architectures"]["sm_90a"]
    entry["files"][KERNEL] = bytes_sha256((root / KERNEL).read_bytes())
    entry["closure"] = closure_sha256(entry["files"])
    (root / "build.json").write_text(json.dumps(data, indent=1, sort_keys=True) + "\n")
    assert classes(root, generated_texts(ALL)) == {KERNEL: "stale", "build.json": "stale"}


def test_a_change_of_the_generator_makes_files_stale_and_edits_stay_edits(root: Path) -> None:
    edit(root)
    files = generated_texts(tuple(replace(each, doc=f"{each.doc}, once more") for each in ALL))
    found = classes(root, files)
    assert found[KERNEL] == "hand-edited"
    assert found["generated/toy/add.sm_100a.cu"] == "stale"


def test_an_edited_orphan_is_a_hand_edit(root: Path) -> None:
    edit(root, "generated/toy/scale.cu", b"2 x", b"3 x")
    assert classes(root, generated_texts((ADD, COPY)))["generated/toy/scale.cu"] == "hand-edited"


@pytest.mark.parametrize("record", [b"", b"{", b"[]", b"<<<<<<< ours\n", b"\xff\xfe", b'{"programs": [1]}', None])
def test_without_a_readable_record_a_differing_file_counts_as_edited(root: Path, record: bytes | None) -> None:
    if record is None:
        (root / "build.json").unlink()
    else:
        (root / "build.json").write_bytes(record)
    found = classes(root, generated_texts((replace(ADD, doc="new"), COPY, SCALE)))
    assert found.pop("build.json") == ("missing" if record is None else "stale")
    assert set(found.values()) == {"hand-edited"}
    assert KERNEL in found


def test_b05_hand_written_and_unknown_files_are_neither_touched_nor_reported(root: Path) -> None:
    (root / "generated" / "helper.cuh").write_text("inline int f();\n")
    (root / "generated" / "toy" / "notes.txt").write_text("notes\n")
    assert classes(root, generated_texts(ALL)) == {}
    apply_plan(root, make_plan(root, generated_texts((ADD, COPY))))
    assert (root / "generated" / "helper.cuh").read_text() == "inline int f();\n"
    assert (root / "generated" / "toy" / "notes.txt").read_text() == "notes\n"


def test_b05_a_renamed_program_leaves_no_file_and_no_entry_behind(root: Path) -> None:
    files = generated_texts((replace(ADD, name="add2"), COPY, SCALE))
    apply_plan(root, make_plan(root, files))
    assert set(snapshot(root)) == set(files)
    assert 'toy_add"' not in (root / "build.json").read_text()


def test_b05_a_dropped_architecture_leaves_no_file_and_no_entry_behind(root: Path) -> None:
    files = generated_texts((replace(ADD, archs=("sm_90a",)), COPY, SCALE))
    assert classes(root, files) == {"build.json": "stale", "generated/toy/add.sm_100a.cu": "orphan"}
    apply_plan(root, make_plan(root, files))
    assert set(snapshot(root)) == set(files)


def test_b05_folders_that_orphans_leave_empty_go_too(root: Path) -> None:
    other = Description("one", family="other")
    apply_plan(root, make_plan(root, generated_texts((*ALL, other))))
    apply_plan(root, make_plan(root, generated_texts(ALL)))
    assert not (root / "generated" / "other").exists()
    apply_plan(root, make_plan(root, {"build.json": "{}\n"}))
    assert (root / "generated").is_dir()
    assert set(snapshot(root)) == {"build.json"}


# ---- paths


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "generated/../x", "x.cu", "generated", "generated//x", "generated/a\\b"]
)
def test_a_path_outside_generated_is_refused(root: Path, path: str) -> None:
    with pytest.raises(WorkflowError, match="not a plain path below generated/"):
        make_plan(root, {path: ""})


def test_paths_that_differ_in_case_only_are_refused(root: Path) -> None:
    with pytest.raises(WorkflowError, match="differ in case only"):
        make_plan(root, {"generated/Add.cu": "", "generated/add.cu": ""})


def test_a_record_cannot_make_a_run_remove_files_elsewhere(root: Path) -> None:
    (root / "precious.txt").write_text("x")
    data = json.loads((root / "build.json").read_text())
    entry = data["programs"]["toy_add"]["architectures"]["sm_90a"]
    entry["files"] = {"generated/../precious.txt": text_sha256("x")}
    del entry["closure"]
    (root / "build.json").write_text(json.dumps(data))
    apply_plan(root, make_plan(root, generated_texts((COPY, SCALE))))
    assert (root / "precious.txt").read_text() == "x"


def test_a_tree_that_cannot_be_read_has_no_verdict(root: Path) -> None:
    (root / KERNEL).unlink()
    (root / KERNEL).mkdir()
    with pytest.raises(OSError, match=r"add\.sm_90a\.cu"):
        make_plan(root, generated_texts(ALL))


def test_a_generated_record_that_is_wrong_about_a_text_is_refused() -> None:
    files = generated_texts(ALL)
    files[KERNEL] += "// more\n"
    with pytest.raises(WorkflowError, match=f"wrong about {KERNEL}"):
        generated_record(files)


def test_a_generated_record_that_the_runtime_would_refuse_is_refused() -> None:
    files = generated_texts(ALL)
    files["build.json"] = files["build.json"].replace('"schema": 1', '"schema": 2')
    with pytest.raises(WorkflowError, match="is schema 2"):
        generated_record(files)


# ---- digests and diffs


def test_hashes_are_over_lf_text() -> None:
    assert lf_bytes(BOM + b"a\r\nb\rc\n") == b"a\nb\rc\n"
    assert text_sha256("a\r\n") == text_sha256("a\n") == manifest.text_digest("a\n") != text_sha256("a")


def test_a_closure_is_the_one_that_the_runtime_checks_and_takes_hashes_only() -> None:
    files = {"b": text_sha256("1"), "a": text_sha256("2")}
    assert closure_sha256(files) == closure_sha256(dict(sorted(files.items()))) == manifest.closure_digest(files)
    assert closure_sha256(files) != closure_sha256({"b": files["a"], "a": files["b"]})
    with pytest.raises(ValueError, match="the value for 'a' is none"):
        closure_sha256({"a": "the text itself"})


def test_the_generator_digest_follows_the_rooms_that_lower_and_nothing_else(tmp_path: Path) -> None:
    for path in ("generator/ir/a.py", "generator/emit/deep/b.py", "generator/kernels/k.py", "templates/t.j2"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(b"one\ntwo\n")
    (tmp_path / "generator/cli.py").write_bytes(b"")
    first = generator_digest(tmp_path)
    for path in ("generator/kernels/k.py", "generator/cli.py", "generator/ir/__pycache__/a.py", "templates/.t.j2.swp"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(b"other\n")
        assert generator_digest(tmp_path) == first, path
    for path in ("generator/ir/a.py", "generator/emit/deep/b.py", "templates/t.j2"):
        (tmp_path / path).write_bytes(BOM + b"one\r\ntwo\r\n")
        assert generator_digest(tmp_path) == first, path
        (tmp_path / path).write_bytes(b"one\nthree\n")
        assert generator_digest(tmp_path) != first, path
        (tmp_path / path).write_bytes(b"one\ntwo\n")
    (tmp_path / "generator/ir/a.py").rename(tmp_path / "generator/ir/z.py")
    assert generator_digest(tmp_path) != first


def entry(current: bytes | None, content: bytes | None) -> Entry:
    return Entry("generated/x.cu", FileClass.STALE, "", current, content)


def test_a_diff_is_the_one_that_git_applies() -> None:
    assert unified_diff(entry(b"a\r\nb\r\n", b"a\nc\n")) == (
        "--- a/generated/x.cu\n+++ b/generated/x.cu\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n"
    )
    assert unified_diff(entry(None, b"a\n")) == "--- /dev/null\n+++ b/generated/x.cu\n@@ -0,0 +1 @@\n+a\n"
    assert unified_diff(entry(b"a\n", None)) == "--- a/generated/x.cu\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n"
    assert unified_diff(entry(b"a", b"a\n")).endswith("-a\n\\ No newline at end of file\n+a\n")
    assert unified_diff(entry(b"a\x0cb\n", b"a\x0cc\n")).endswith("-a\x0cb\n+a\x0cc\n")


def test_colour_is_for_terminals_without_no_color() -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

    assert wants_colour(Terminal(), {})
    assert not wants_colour(io.StringIO(), {})
    assert not wants_colour(Terminal(), {"NO_COLOR": "1"})
    assert not wants_colour(Terminal(), {"TERM": "dumb"})
    assert "\033[31m-b\033[0m\n" in unified_diff(entry(b"b\n", b"c\n"), colour=True)
