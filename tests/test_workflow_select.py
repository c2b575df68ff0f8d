"""Runs over some programs or architectures: what they cover, and the `build.json` and the evidence that remain."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from regenerate_standin import generated_texts
from regenerate_tree import ADD, COPY, SCALE

from kernwright.generator.workflow.plan import Plan, make_plan
from kernwright.generator.workflow.record import Unit, WorkflowError, generated_record, parse_record
from kernwright.generator.workflow.select import Selection, match_units, select_plan, stale_evidence
from kernwright.generator.workflow.write import apply_plan
from kernwright.runtime import manifest

ALL = (ADD, COPY, SCALE)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tree on which the last run has written ADD, COPY and SCALE."""
    apply_plan(tmp_path, make_plan(tmp_path, generated_texts(ALL)))
    return tmp_path


def classes(root: Path, files: dict[str, str]) -> dict[str, str]:
    """Class by path of everything that a whole run would change."""
    return {entry.path: str(entry.kind) for entry in make_plan(root, files).changes}


def edit(root: Path, path: str, old: str, new: str) -> None:
    text = (root / path).read_text(encoding="utf-8")
    assert old in text
    (root / path).write_text(text.replace(old, new), encoding="utf-8")


def selected(root: Path, files: dict[str, str], *patterns: str, archs: tuple[str, ...] = ()) -> tuple[Plan, Selection]:
    """Plan and selection of a run over `patterns` and `archs`."""
    new = generated_record(files)
    old = parse_record((root / "build.json").read_bytes())
    assert old is not None
    wanted = match_units(old.units | new.units, patterns, archs)
    return select_plan(root, files, new, wanted, whole=not patterns and not archs)


def test_a_selection_writes_its_programs_only_and_drops_no_other(root: Path) -> None:
    files = generated_texts((replace(ADD, doc="new add"), replace(COPY, doc="new copy"), SCALE))
    plan, selection = selected(root, files, "toy_add")
    assert selection.pulled == ()
    apply_plan(root, plan)
    assert classes(root, files) == {
        "build.json": "stale",
        "generated/toy/copy.sm_100a.cu": "stale",
        "generated/toy/copy.sm_90a.cu": "stale",
    }
    manifest.load(root / "build.json")
    documents = {
        name: entry["doc"] for name, entry in json.loads((root / "build.json").read_text())["programs"].items()
    }
    assert documents == {"toy_add": "new add", "toy_copy": COPY.doc, "toy_scale": SCALE.doc}


def test_selecting_the_rest_afterwards_gives_the_same_tree_as_one_whole_run(root: Path) -> None:
    files = generated_texts((replace(ADD, doc="new add"), replace(COPY, doc="new copy"), SCALE), digest="1" * 64)
    apply_plan(root, selected(root, files, "toy_add")[0])
    assert json.loads((root / "build.json").read_text())["generator"]["digest"] == "0" * 64
    apply_plan(root, selected(root, files, "toy_copy")[0])
    assert classes(root, files) == {}
    assert json.loads((root / "build.json").read_text())["generator"]["digest"] == "1" * 64


def test_a_selection_pulls_in_who_shares_a_changing_header(root: Path) -> None:
    files = generated_texts((replace(ADD, helpers=("load", "extra")), replace(COPY, doc="new copy"), SCALE))
    plan, selection = selected(root, files, "toy_add")
    assert {unit.symbol for unit in selection.pulled} == {"toy_copy", "toy_scale"}
    apply_plan(root, plan)
    assert classes(root, files) == {}


def test_a_selected_architecture_leaves_the_texts_of_the_others(root: Path) -> None:
    changed = tuple(replace(each, helpers=("store", *each.helpers)) for each in (COPY, SCALE))
    files = generated_texts((replace(ADD, archs=("sm_90a", "sm_100a", "sm_103a")), *changed))
    plan, selection = selected(root, files, "toy_add", archs=("sm_103a",))
    assert selection.pulled == ()
    assert [entry.path for entry in plan.changes] == ["build.json", "generated/toy/add.sm_103a.cu"]
    apply_plan(root, plan)
    loaded = manifest.load(root / "build.json")
    assert set(loaded.programs["toy_add"].targets) == {"sm_90a", "sm_100a", "sm_103a"}
    assert set(loaded.programs) == {"toy_add", "toy_copy", "toy_scale"}


def test_selecting_one_architecture_of_a_shared_text_pulls_in_the_others(root: Path) -> None:
    files = generated_texts((ADD, COPY, replace(SCALE, doc="y = 3 x")))
    _, selection = selected(root, files, "toy_scale", archs=("sm_90a",))
    assert selection.pulled == (Unit("toy_scale", "sm_100a"),)


def test_a_deleted_program_can_be_selected_to_remove_its_outputs(root: Path) -> None:
    files = generated_texts((replace(ADD, doc="new"), SCALE))
    plan, _ = selected(root, files, "toy_copy")
    apply_plan(root, plan)
    assert not (root / "generated/toy/copy.sm_90a.cu").exists()
    assert set(manifest.load(root / "build.json").programs) == {"toy_add", "toy_scale"}
    assert "generated/toy/add.sm_90a.cu" in classes(root, files)


def test_a_selection_does_not_remove_the_orphans_of_others(root: Path) -> None:
    plan, _ = selected(root, generated_texts((ADD, SCALE)), "toy_add")
    assert plan.changes == ()


def test_a_hand_edit_elsewhere_does_not_stop_a_selection(root: Path) -> None:
    edit(root, "generated/toy/add.sm_90a.cu", "a + b", "a - b")
    plan, _ = selected(root, generated_texts((ADD, replace(COPY, doc="new"), SCALE)), "toy_copy")
    assert plan.hand_edited == ()
    assert "generated/toy/copy.sm_90a.cu" in {entry.path for entry in plan.changes}


def test_a_part_is_not_merged_into_a_record_of_another_schema(root: Path) -> None:
    edit(root, "build.json", '"schema": 1', '"schema": 0')
    with pytest.raises(WorkflowError, match="another schema"):
        selected(root, generated_texts((replace(ADD, doc="new"), COPY, SCALE)), "toy_add")


def test_names_are_globs_and_unknown_ones_are_answered_with_close_ones() -> None:
    units = [Unit("toy_add", "sm_90a"), Unit("toy_scale", "sm_90a"), Unit("toy_scale", "sm_100a")]
    assert match_units(units, ["toy_s*"], []) == frozenset(units[1:])
    assert match_units(units, [], ["sm_100a"]) == frozenset(units[2:])
    with pytest.raises(WorkflowError, match=r"no program matches 'toy_scael'; did you mean toy_scale,"):
        match_units(units, ["toy_scael"], [])
    with pytest.raises(WorkflowError, match=r"no program is generated for 'sm_80'; architectures: sm_100a, sm_90a"):
        match_units(units, [], ["sm_80"])
    with pytest.raises(WorkflowError, match=r"'toy_add' is not generated for sm_100a, only for sm_90a"):
        match_units(units, ["toy_add"], ["sm_100a"])


def test_b05_evidence_that_names_a_dropped_pair_is_reported(root: Path) -> None:
    table = {"schema": 1, "records": {"toy_add": {"sm_100a": {"checks": []}, "sm_90a": {"checks": []}}}}
    (root / "evidence.json").write_text(json.dumps(table))
    files = generated_texts((replace(ADD, archs=("sm_90a",)), COPY, SCALE))
    _, selection = selected(root, files)
    assert stale_evidence(root, selection) == [Unit("toy_add", "sm_100a")]
    _, selection = selected(root, generated_texts(ALL))
    assert stale_evidence(root, selection) == []


@pytest.mark.parametrize("content", [None, "", "{}", "[]"])
def test_evidence_may_be_absent_or_empty(root: Path, content: str | None) -> None:
    if content is not None:
        (root / "evidence.json").write_text(content)
    assert stale_evidence(root, selected(root, generated_texts(ALL))[1]) == []


def test_evidence_about_a_hand_written_source_is_no_dropped_pair(root: Path) -> None:
    (root / "evidence.json").write_text(
        json.dumps({"schema": 1, "records": {"docs/targets/tile.cu": {"sm_90a": {"checks": []}}}})
    )
    assert stale_evidence(root, selected(root, generated_texts(ALL))[1]) == []


def test_evidence_that_is_no_json_is_an_error_and_not_silence(root: Path) -> None:
    (root / "evidence.json").write_text("{")
    with pytest.raises(WorkflowError, match=r"evidence\.json is no JSON"):
        stale_evidence(root, selected(root, generated_texts(ALL))[1])
