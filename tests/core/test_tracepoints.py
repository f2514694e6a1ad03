# SPDX-License-Identifier: Apache-2.0
"""Format files of several kernels, and records resolved against them. No kernel is asked."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepath.records import HEADER, INTERVAL, Field, RecordLayout
from fencepath.tracepoints import (
    Always,
    CurrentIsTarget,
    FieldIsTarget,
    From,
    Missing,
    Resolved,
    SavedTracepoints,
    Take,
    TracepointFormat,
    TracepointFormatError,
    TracepointRecord,
    accessors,
    accessors_header,
    generate_program,
    parse_format,
    program_name,
)

FORMATS = Path(__file__).parent / "formats"
OLD, NEW = SavedTracepoints(FORMATS / "6.1"), SavedTracepoints(FORMATS / "7.3")

HEAD = "name: made\nID: 7\nformat:\n\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n"


def made(*fields: str) -> TracepointFormat:
    return parse_format(HEAD + "".join(f"\tfield:{field}\n" for field in fields) + '\nprint fmt: "x"\n', "g")


class Kernel:
    """A kernel with one event."""

    def __init__(self, *fields: str) -> None:
        self.only = made(*fields)

    def format(self, group: str, event: str) -> TracepointFormat | None:
        return self.only if (group, event) == ("g", "made") else None

    def groups(self) -> tuple[str, ...]:
        return ("g",)

    def events(self, group: str) -> tuple[str, ...]:
        return ("made",) if group == "g" else ()


def resolved(record: TracepointRecord, kernel: SavedTracepoints | Kernel) -> Resolved:
    result = record.resolve(kernel)
    assert isinstance(result, Resolved), str(result)
    return result


def missing(record: TracepointRecord, kernel: SavedTracepoints | Kernel) -> Missing:
    result = record.resolve(kernel)
    assert isinstance(result, Missing)
    return result


RUN = TracepointRecord(
    "drm.job.run",
    "gpu_scheduler",
    "drm_sched_job_run",
    (
        Take("fence_context", "u64"),
        Take("fence_seqno", "u64"),
        Take("name", "char[16]", as_="ring"),
        Take("client_id", "u64", optional=True),
        Take("hw_job_count", "s32"),
    ),
    alternatives=(
        From(
            "gpu_scheduler",
            "drm_run_job",
            (
                Take("fence", "u64", as_="fence_address"),
                Take("name", "char[16]", as_="ring"),
                Take("id", "u64"),
                Take("hw_job_count", "s32"),
            ),
        ),
    ),
    when=(Always(),),
)


@pytest.mark.parametrize("kernel", [OLD, NEW], ids=["6.1", "7.3"])
def test_every_line_of_every_format_is_a_field(kernel: SavedTracepoints) -> None:
    read = 0
    for group in kernel.groups():
        for event in kernel.events(group):
            form = kernel.format(group, event)
            text = (kernel.root / group / f"{event}.format").read_text()
            assert form is not None
            assert form.event == event
            assert form.id > 0
            assert len(form.fields) == text.count("field:")
            assert len(form.own_fields) == len(form.fields) - 4
            read += 1
    assert read > 3


def test_fields_are_read_with_everything_the_file_says() -> None:
    form = NEW.format("xe", "xe_exec_queue_create")
    assert form is not None
    (kind,), (dev,) = form.named("class"), form.named("dev")
    assert (kind.type, kind.size, kind.dynamic) == ("enum xe_engine_class", 4, "")
    assert (dev.type, dev.array, dev.dynamic, dev.size) == ("char", "[]", "data_loc", 4)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("char comm[16];\toffset:8;\tsize:16;\tsigned:0;", ("char", "comm", "[16]", "", 16, 1, True)),
        (
            "u32 frame[I915_MAX_PIPES];\toffset:8;\tsize:16;\tsigned:0;",
            ("u32", "frame", "[I915_MAX_PIPES]", "", 16, 4, False),
        ),
        (
            "struct dma_fence * fence;\toffset:8;\tsize:8;\tsigned:0;",
            ("struct dma_fence *", "fence", "", "", 8, 8, False),
        ),
        (
            "const char *const * argv;\toffset:8;\tsize:8;\tsigned:0;",
            ("const char *const *", "argv", "", "", 8, 8, False),
        ),
        ("const char * name;\toffset:8;\tsize:8;\tsigned:0;", ("const char *", "name", "", "", 8, 8, True)),
        ("__data_loc u64[] dst;\toffset:8;\tsize:4;\tsigned:0;", ("u64", "dst", "[]", "data_loc", 4, 8, False)),
        ("__rel_loc char[] msg;\toffset:8;\tsize:4;\tsigned:0;", ("char", "msg", "[]", "rel_loc", 4, 1, True)),
        (
            "u8 addr[sizeof(struct in6_addr)];\toffset:8;\tsize:16;\tsigned:0;",
            ("u8", "addr", "[sizeof(struct in6_addr)]", "", 16, 1, False),
        ),
        ("unsigned long args[6];\toffset:8;\tsize:48;", ("unsigned long", "args", "[6]", "", 48, 8, False)),
    ],
)
def test_declarations(line: str, expected: tuple[object, ...]) -> None:
    (field,) = made(line).own_fields
    assert (
        field.type,
        field.name,
        field.array,
        field.dynamic,
        field.size,
        field.element_size,
        field.is_text,
    ) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "name: x\n",
        "name: x\nID: none\n",
        HEAD + "\tfield:u32 x;\toffset:nine;\tsize:4;\tsigned:0;\n",
        HEAD + "\tfield:;\toffset:9;\tsize:4;\tsigned:0;\n",
    ],
)
def test_what_cannot_be_read_is_an_error_and_never_skipped(text: str) -> None:
    with pytest.raises(TracepointFormatError):
        parse_format(text, "g")


@given(st.text())
def test_any_text_parses_or_is_refused(text: str) -> None:
    with contextlib.suppress(TracepointFormatError):
        parse_format(HEAD + "\tfield:" + text, "g")


def test_preferred_event_is_taken_where_it_is() -> None:
    found = resolved(RUN, NEW)
    assert (found.name, found.choice, found.absent) == ("gpu_scheduler:drm_sched_job_run", 0, ("fence_address", "id"))


def test_alternative_is_taken_where_the_event_was_renamed() -> None:
    found = resolved(RUN, OLD)
    assert (found.name, found.choice) == ("gpu_scheduler:drm_run_job", 1)
    assert found.absent == ("fence_context", "fence_seqno", "client_id")
    assert found.why_not == ("gpu_scheduler:drm_sched_job_run: no such event",)


def test_layout_is_the_same_on_every_kernel() -> None:
    names = [field.name for field in RUN.layout.fields[len(HEADER) :]]
    assert names == ["fence_context", "fence_seqno", "ring", "client_id", "hw_job_count", "fence_address", "id"]
    for kernel in (OLD, NEW):
        found = resolved(RUN, kernel)
        assert generate_program(found, RUN.layout).count("FP_FIELD_drm_sched_job_run_") == len(names)
        assert accessors(found).count("FP_HAS_drm_sched_job_run_") == len(names)


def test_offsets_in_the_accessors_are_the_files() -> None:
    text = accessors(resolved(RUN, NEW))
    assert "FP_TP_SCALAR(FP_FIELD_drm_sched_job_run_fence_context, u64, u64, u64, 24)" in text
    assert "FP_TP_SCALAR(FP_FIELD_drm_sched_job_run_hw_job_count, s32, s32, u32, 16)" in text
    assert "FP_TP_TEXT_LOC(FP_FIELD_drm_sched_job_run_ring, 16, 8, 0)" in text
    assert "FP_TP_ABSENT_SCALAR(FP_FIELD_drm_sched_job_run_id, u64)" in text
    assert "#define FP_HAS_drm_sched_job_run_id 0" in text


def test_text_is_taken_however_the_kernel_keeps_it() -> None:
    record = TracepointRecord("virtio.queue", "virtio_gpu", "virtio_gpu_cmd_queue", (Take("name", "char[16]"),))
    assert "FP_TP_TEXT_POINTER(FP_FIELD_virtio_gpu_cmd_queue_name, 16, 16, kernel)" in accessors(resolved(record, OLD))
    assert "FP_TP_TEXT_LOC(FP_FIELD_virtio_gpu_cmd_queue_name, 16, " in accessors(resolved(record, NEW))


def test_name_used_twice_is_told_apart_by_what_fits() -> None:
    record = TracepointRecord(
        "amdgpu.vmid",
        "amdgpu",
        "amdgpu_vm_grab_id",
        (Take("ring", "char[16]", as_="ring_name"), Take("ring", "u32", as_="ring_index")),
    )
    text = accessors(resolved(record, NEW))
    assert "FP_TP_TEXT_LOC(FP_FIELD_amdgpu_vm_grab_id_ring_name, 16, 12, 0)" in text
    assert "FP_TP_SCALAR(FP_FIELD_amdgpu_vm_grab_id_ring_index, u32, u32, u32, 16)" in text


def test_arrays_of_numbers() -> None:
    iv = TracepointRecord("amdgpu.iv", "amdgpu", "amdgpu_iv", (Take("src_data", "u32[4]"),))
    assert "FP_TP_NUMBERS_ARRAY(FP_FIELD_amdgpu_iv_src_data, 16, 16, 0u, 48)" in accessors(resolved(iv, NEW))
    ptes = TracepointRecord("amdgpu.ptes", "amdgpu", "amdgpu_vm_update_ptes", (Take("dst", "u64[3]"),))
    assert "FP_TP_NUMBERS_LOC(FP_FIELD_amdgpu_vm_update_ptes_dst, 24, 64, 0)" in accessors(resolved(ptes, NEW))


@pytest.mark.parametrize(
    ("field", "take", "why"),
    [
        ("u64 x;\toffset:8;\tsize:8;\tsigned:0;", Take("x", "u32"), "has 8 bytes"),
        ("u32 x[3];\toffset:8;\tsize:12;\tsigned:0;", Take("x", "u32"), "is an array"),
        ("u32 x;\toffset:8;\tsize:4;\tsigned:0;", Take("x", "char[8]"), "not text"),
        ("u32 x[4];\toffset:8;\tsize:16;\tsigned:0;", Take("x", "u32[3]"), "12 were asked for"),
        ("u32 x[4];\toffset:8;\tsize:16;\tsigned:0;", Take("x", "u64[4]"), "another size"),
        ("__data_loc u32[] x;\toffset:8;\tsize:4;\tsigned:0;", Take("x", "u64[4]"), "another size"),
        ("struct guid x;\toffset:8;\tsize:16;\tsigned:0;", Take("x", "u64", narrow=True), "is no number"),
        ("u32 y;\toffset:8;\tsize:4;\tsigned:0;", Take("x", "u32"), "no field x"),
    ],
)
def test_field_that_does_not_fit_is_missing(field: str, take: Take, why: str) -> None:
    record = TracepointRecord("a.b", "g", "made", (take,))
    assert why in missing(record, Kernel(field)).why[0]
    optional = Take(take.name, take.type, optional=True, narrow=take.narrow)
    assert resolved(TracepointRecord("a.b", "g", "made", (optional,)), Kernel(field)).absent == ("x",)


def test_narrow_takes_the_low_bytes() -> None:
    record = TracepointRecord("a.b", "g", "made", (Take("x", "u32", narrow=True),))
    assert "(FP_FIELD_made_x, u32, u64, u64, 8)" in accessors(
        resolved(record, Kernel("u64 x;\toffset:8;\tsize:8;\tsigned:0;"))
    )


def test_system_call_argument_has_the_width_and_sign_of_its_type() -> None:
    kernel = Kernel("int dfd;\toffset:16;\tsize:8;\tsigned:0;", "umode_t mode;\toffset:24;\tsize:8;\tsigned:0;")
    record = TracepointRecord("a.b", "g", "made", (Take("dfd", "s64"), Take("mode", "u32")))
    text = accessors(resolved(record, kernel))
    assert "(FP_FIELD_made_dfd, s64, s32, u32, 16)" in text
    assert "(FP_FIELD_made_mode, u32, u16, u16, 24)" in text


def test_unaligned_and_relative_fields() -> None:
    kernel = Kernel("u32 x;\toffset:10;\tsize:4;\tsigned:0;", "__rel_loc char[] m;\toffset:16;\tsize:4;\tsigned:0;")
    text = accessors(resolved(TracepointRecord("a.b", "g", "made", (Take("x", "u32"), Take("m", "char[8]"))), kernel))
    assert "FP_TP_SCALAR_UNALIGNED(FP_FIELD_made_x, u32, u32, 10)" in text
    assert "FP_TP_TEXT_LOC(FP_FIELD_made_m, 8, 16, 20)" in text


def test_renamed_field_is_found_by_its_other_name() -> None:
    record = TracepointRecord("a.b", "g", "made", (Take("pid", "u32", as_="thread", other_names=("next_pid",)),))
    assert "(FP_FIELD_made_thread, u32, s32, u32, 8)" in accessors(
        resolved(record, Kernel("pid_t next_pid;\toffset:8;\tsize:4;\tsigned:1;"))
    )


def test_conditions_are_about_what_else_is_there() -> None:
    def old(**conditions: tuple[str, ...]) -> TracepointRecord:
        return TracepointRecord("drm.job", "gpu_scheduler", "drm_sched_job", (Take("id", "u64"),), **conditions)  # type: ignore[arg-type]

    assert (
        resolved(old(needs=("gpu_scheduler:drm_run_job.fence", "gpu_scheduler:drm_sched_process_job")), OLD).choice == 0
    )
    assert (
        "needs gpu_scheduler:drm_run_job.nothing"
        in missing(old(needs=("gpu_scheduler:drm_run_job.nothing",)), OLD).why[0]
    )
    assert "no group amdgpu (is its module loaded?)" in missing(old(needs=("amdgpu:amdgpu_bo_create",)), OLD).why[0]
    assert (
        "not used where gpu_scheduler:drm_run_job is there"
        in missing(old(without=("gpu_scheduler:drm_run_job",)), OLD).why[0]
    )


def test_missing_names_what_is_closest() -> None:
    event = missing(TracepointRecord("a.b", "gpu_scheduler", "drm_sched_job_runs", (Take("name", "char[8]"),)), NEW)
    assert event.closest[0] == "gpu_scheduler:drm_sched_job_run"
    field = missing(TracepointRecord("a.b", "gpu_scheduler", "drm_sched_job_run", (Take("fence_ctx", "u64"),)), NEW)
    assert field.closest[0] == "gpu_scheduler:drm_sched_job_run.fence_context"
    group = missing(TracepointRecord("a.b", "gpu_sched", "drm_run_job", (Take("name", "char[8]"),)), OLD)
    assert "is its module loaded?" in group.why[0]
    assert group.closest[0] == "gpu_scheduler:drm_run_job"
    assert "a.b cannot be recorded" in str(group)


@pytest.mark.parametrize("type_", ["int", "u24", "char", "u32[0]", "u32[]", "char[-1]", "u32 [3]", ""])
def test_types_that_no_record_has_are_refused(type_: str) -> None:
    with pytest.raises(ValueError, match="is not a record type"):
        Take("x", type_)


def test_contradictions_in_a_declaration_are_refused() -> None:
    with pytest.raises(ValueError, match="fills one field twice"):
        TracepointRecord("a.b", "g", "e", (Take("x", "u32"), Take("y", "u32", as_="x")))
    with pytest.raises(ValueError, match="names a field twice"):
        TracepointRecord("a.b", "g", "e", (Take("flags", "u32"),))
    with pytest.raises(ValueError, match="is both u32 and u64"):
        TracepointRecord("a.b", "g", "e", (Take("x", "u32"),), alternatives=(From("g", "f", (Take("x", "u64"),)),))
    with pytest.raises(ValueError, match="does not always give tid"):
        TracepointRecord("a.b", "g", "e", (Take("tid", "u32", optional=True),), when=(FieldIsTarget("tid"),))


def test_program_filters_as_declared() -> None:
    def program(*when: Always | CurrentIsTarget | FieldIsTarget) -> str:
        record = TracepointRecord("a.b", "g", "made", (Take("x", "u32"),), when=when)
        return generate_program(resolved(record, Kernel("u32 x;\toffset:8;\tsize:4;\tsigned:0;")), record.layout)

    assert "if (!(fp_is_target() || fp_target_tid(FP_FIELD_made_x(ctx))))" in program(
        CurrentIsTarget(), FieldIsTarget("x")
    )
    assert "fp_is_target" not in program(CurrentIsTarget(), Always())


def test_program_is_for_its_own_layout_only() -> None:
    found = resolved(RUN, NEW)
    assert program_name(found) == "fp_tp_drm_job_run"
    for layout in (
        RecordLayout("drm.job.run", (*HEADER, Field("other", "u32"))),
        RecordLayout("drm.other", RUN.layout.fields),
        RecordLayout("drm.job.run", (*INTERVAL, *RUN.layout.fields[len(HEADER) :])),
    ):
        with pytest.raises(ValueError, match="is not the one of the record"):
            generate_program(found, layout)


def test_records_of_one_event_share_accessors_or_are_refused() -> None:
    kernel = Kernel("u64 x;\toffset:8;\tsize:8;\tsigned:0;")
    one, two = (resolved(TracepointRecord(kind, "g", "made", (Take("x", "u64"),)), kernel) for kind in ("a.b", "a.c"))
    other = resolved(TracepointRecord("a.d", "g", "made", (Take("x", "u32", narrow=True),)), kernel)
    assert accessors_header([one, two]).count("FP_TP_SCALAR(") == 1
    with pytest.raises(ValueError, match="read differently"):
        accessors_header([one, other])


def test_every_format_in_a_folder_of_kernels() -> None:
    """Reads FENCEPATH_FORMATS (KERNEL/GROUP/EVENT.format) too, where it is set."""
    folders = [FORMATS, *(Path(text) for text in [os.environ.get("FENCEPATH_FORMATS", "")] if text)]
    for folder in folders:
        for path in folder.glob("*/*/*.format"):
            text = path.read_text()
            assert len(parse_format(text, path.parent.name).fields) == text.count("\tfield:"), path
