# SPDX-License-Identifier: Apache-2.0
"""What of the live suite runs in the VM, and what is left out there because an emulated machine takes too long for it.

All kernels have ten minutes together, two of them at a time; the seconds below were measured in the guest. What depends on
the kernel comes first; each kind of program and of attachment is there once at least. ``make test`` runs everything on the
machine's own kernel.
"""

from __future__ import annotations

__all__ = ["FILES", "FILES_OF_THE_NEWEST", "LEFT_OUT", "NVIDIA", "NVIDIA_OF_THE_NEWEST", "ONCE"]

FILES = (
    "tests/kernel",
    "tests/core/test_bpf_attach.py",
    "tests/core/test_bpf_maps.py",
    "tests/core/test_bpf_rings.py",
    "tests/core/test_builtin_bpf.py",
    "tests/core/test_calls_live.py",
    "tests/core/test_libraries_mapped.py",
    "tests/core/test_mark.py",
    "tests/core/test_syscalls_live.py",
    "tests/core/test_tracepoints_live.py",
    "plugins/host/tests/test_host_live.py",
)
"""Files and folders whose tests marked ``bpf`` run.

Left out whole: test_bpf_compiler (compiling does not depend on the running kernel), test_testing_bpf, test_benchmarks and
test_calibration (fencepath's own tools), the live tests of plugins/cuda and tests/faults (a recording each takes a minute;
tests/kernel/test_end_to_end.py makes one).
"""

ONCE = (
    "tests/core/test_builtin_bpf.py",
    "tests/core/test_libraries_mapped.py",
    "tests/core/test_syscalls_live.py",
    "tests/core/test_tracepoints_live.py",
)
"""Of :data:`FILES`, what runs on the oldest kernel alone, 80 s: nothing in it asks for more than that has, and ``make test`` runs it on
the machine's own. The recordings of tests/kernel use the same programs on each kernel."""

FILES_OF_THE_NEWEST = (
    "tests/kernel/test_machine.py",
    "tests/kernel/test_drm.py",
    "tests/kernel/test_joined_path.py",
    "tests/kernel/test_mockgpu.py",
    "tests/kernel/test_doctor.py",
    "tests/core/test_mark.py",
)
"""Of :data:`FILES`, what runs on a kernel that is not required: what has changed since, and it attaches uprobes as 6.12 does."""

_ERRORS = "what is said of an error that the kernel returns: 2 s for programs that are not run"
_VARIANT = "a variant of a test that runs, of the same programs"


def _of(file: str, tests: dict[str, str]) -> dict[str, str]:
    return {f"tests/core/{file}::{name}": why for name, why in tests.items()}


LEFT_OUT: dict[str, str] = {
    **_of(
        "test_bpf_attach.py",
        {
            "test_two_uprobes_with_cookies": "5 s; every call of test_calls_live.py is found by its cookie",
            "test_return_probes_see_the_result": "2 s; test_calls_live.py compares every result",
            "test_a_link_is_closed_once": _VARIANT,
            "test_a_uprobe_that_cannot_be": _ERRORS,
            "test_the_single_calls_work_alone": _VARIANT,
            "test_offsets_and_cookies_go_together": _ERRORS,
            "test_a_missing_tracepoint": _ERRORS,
            "test_no_tracefs": _ERRORS,
        },
    ),
    **_of(
        "test_bpf_maps.py",
        {
            "test_counters_are_read_where_programs_count": "3 s; the tests of rings read the counters too",
            "test_a_kind_out_of_range_stays_in_the_map": "3 s; a comparison of numbers",
            "test_targets[False-nobody-expected0]": _VARIANT,
            "test_targets[True-nobody-expected1]": _VARIANT,
            "test_targets[True-us-expected2]": "3 s; a comparison of numbers",
            "test_without_privileges_the_remedy_is_named": _ERRORS,
        },
    ),
    **_of(
        "test_bpf_rings.py",
        {
            "test_an_overflow_is_counted_exactly": "2 s; what the program does when a ring is full",
            "test_records_survive_the_wrap_at_every_offset": "2 s; what user space does with the ring",
            "test_discarded_records_are_skipped": "2 s; what user space does with the ring",
            "test_only_discarded_records_give_no_batch": _VARIANT,
            "test_the_unused_tail_of_a_slot_is_cleared": "2 s; done by the program's own instructions",
            "test_large_records_are_cleared_too": _VARIANT,
            "test_a_busy_record_holds_back_those_behind_it_and_none_is_lost": "9 s; what user space does with the ring",
            "test_wait_ends_when_a_ring_fills_or_at_the_time_given": _VARIANT,
            "test_many_processes_and_a_reader_lose_nothing_unseen": "4 s each; test_bpf_attach.py has many processes too",
            "test_the_benchmark_agrees_with_its_own_count": "12 s, and a measurement in an emulated machine says nothing",
        },
    ),
    **_of(
        "test_builtin_bpf.py",
        {
            "test_who_ends_leaves_the_sets": "5 s; done by the program that the tree of processes runs too",
            "test_threads_of_a_target_are_targets_and_others_are_not": "5 s; the tree of processes that runs has threads",
            "test_the_recorder_is_never_a_target": "4 s; a comparison of numbers",
            "test_with_all_processes_the_sets_do_not_matter": "5 s; a comparison of numbers",
            "test_a_number_that_is_handed_out_again_is_nobodys": _VARIANT,
            "test_a_full_set_is_counted": "8 s; that a map is full is the same on every kernel",
        },
    ),
    **_of(
        "test_calls_live.py",
        {
            "TestReturningCalls::test_entry_only_calls_say_so": _VARIANT,
            "TestReturningCalls::test_memory_that_cannot_be_read_is_flagged_and_no_memory_is_not": "8 s each way to attach",
            "TestReturningCalls::test_other_processes_leave_nothing": _VARIANT,
            "TestOpenCalls::test_a_call_is_open_until_its_record_replaces_it": "10 s; done by user space",
            "TestOpenCalls::test_what_a_thread_leaves_behind_is_found": "8 s; done by user space",
            "TestOpenCalls::test_a_call_inside_one_that_returned_is_unwound": "8 s; done by user space",
            "TestOpenCalls::test_a_call_that_becomes_another_program_has_ended": "8 s; done by user space",
            "TestLoss::test_a_full_map_is_counted_call_by_call": "8 s; that a map is full is the same on every kernel",
            "TestLoss::test_entries_are_used_again_and_no_more_are_kept_than_allowed": "9 s; done by user space",
            "TestLoss::test_a_return_whose_entry_was_not_seen_is_counted": "9 s",
            "TestPrograms::test_no_program_needs_a_stack_of_its_own": "8 s; looks at the programs, not at the kernel",
        },
    ),
    **_of(
        "test_syscalls_live.py",
        {
            "test_same_command_on_other_files_is_not_recorded": "3 s; done by the same map as in those that run",
            "test_of_copies_of_a_program_one_records_a_call": "3 s each of 7; test_drm.py needs the copies on the newest",
            "test_inherited_descriptor_of_a_child": "4 s",
            "test_call_that_has_not_returned_is_open": "3 s; done by user space",
            "test_reads_and_writes_of_a_device_with_their_arguments": _VARIANT,
            "test_call_in_which_its_process_is_killed_returns": "4 s",
            "test_other_processes_are_not_recorded": _VARIANT,
            "test_process_of_32_bits_is_recognised_and_raises_no_events": "7 s; what the generated program compares",
            "test_polls_of_a_device_and_of_anything_else_are_two_kinds": _VARIANT,
            "test_whole_command_is_preferred_to_type_and_number_and_that_to_the_rest": "3 s; done by the generated table",
            "test_two_plugins_share_one_attachment": "3 s; done by user space",
            "test_unreadable_argument_is_flagged_and_counted": _VARIANT,
            "test_values_of_every_width_and_behind_a_pointer": _VARIANT,
            "test_call_without_a_descriptor_and_with_the_most_arguments": _VARIANT,
            "test_call_that_never_returns_is_found_and_forgotten": "3 s; done by user space",
            "test_full_map_is_counted": "3 s; that a map is full is the same on every kernel",
            "test_device_that_comes_later_is_seen_after_a_refresh": "3 s; done by user space",
        },
    ),
    **_of(
        "test_tracepoints_live.py",
        {
            "test_text_that_does_not_fit_is_cut_and_flagged[64--1-False]": _VARIANT,
            "test_text_that_does_not_fit_is_cut_and_flagged[8-9-True]": _VARIANT,
            "test_text_in_an_array_is_cut_and_flagged_where_the_record_is_shorter": _VARIANT,
            "test_text_that_does_not_fit_is_cut_and_flagged[200--1-False]": _VARIANT,
            "test_text_that_does_not_fit_is_cut_and_flagged[200-0-True]": _VARIANT,
            "test_memory_of_an_older_record_does_not_shine_through": "6 s; it starts processes until the ring wraps",
        },
    ),
    "tests/kernel/test_doctor.py::test_the_command_finds_that_recording_works_here": "18 s; `--all` runs it",
    "tests/kernel/test_drm_modules.py::test_a_driver_that_is_loaded_anew_is_followed": "a recording of its own, 30 s; `--all` runs it",
    "tests/kernel/test_drm_modules.py::test_a_driver_that_is_loaded_later_is_said_to_be_missing": "a recording of its own, 30 s; "
    "`--all` runs it",
    "tests/kernel/test_drivers.py::test_every_program_attaches": "30 s and more a driver; `--all` runs it",
    "tests/kernel/test_end_to_end.py::test_every_request_has_a_path_through_the_device": "70 s; test_joined_path.py follows a request further",
    "tests/kernel/test_joined_path.py::test_with_entries_alone_the_launch_is_bounded": "60 s for a recording of its own; "
    "`python -m tests.kernel.run --kernel 6.12 --all tests/kernel/test_joined_path.py` runs it",
    "tests/kernel/test_kernel_functions.py": "50 s; `make test-nvidia` runs it",
    "tests/kernel/test_nvidia.py": "120 s; `make test-nvidia` runs it",
    "tests/kernel/test_nvidia_gpu_suite.py": "180 s for two recordings of three layers; `make test-nvidia` runs it",
    "plugins/host/tests/test_host_live.py::test_a_thread_of_nobody_is_not_recorded": "7 s; programs of its own",
    "plugins/host/tests/test_host_live.py::test_interrupts_that_touch_a_target": "8 s; programs of its own",
}
"""Tests of :data:`FILES` that do not run, with the reason. A name without parameters means all of them, a file's all in it."""

NVIDIA = (
    "tests/kernel/test_kernel_functions.py",
    "tests/kernel/test_nvidia.py",
    "tests/kernel/test_nvidia_gpu_suite.py",
)
"""What ``make test-nvidia`` runs: functions of the kernel, which no other layer has, the layer against the stand-in's account, and
the suite of the real GPU on the stand-in."""

NVIDIA_OF_THE_NEWEST = NVIDIA[:2]
"""Of these, what runs on a kernel that is not required; the last takes 180 s."""
