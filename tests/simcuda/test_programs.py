# SPDX-License-Identifier: Apache-2.0
"""The interpreter of programs, and its helper."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from tests.simcuda.truths import Interpret, check_truth, results

from fencepath_cuda.simcuda import SimCuda
from fencepath_cuda.simcuda.programs import PASSED_OVER, Program, as_text, read_runs, run_programs, step_names

EVERY_STEP = """
primary_retain c1 1
primary_release 1
primary_reset 1
ctx_create c0 0 4
ctx_create_v2 c2 1 0
ctx_push c0
ctx_pop
ctx_set c0
ctx_sync_of c2
stream_create s0 1 2
stream_new s1 0
event_create e0 0
event_create e1 1
event_create e2 0
alloc b0 4096
alloc_managed b1 4096
alloc_host h0 4096
pool_create p0 0
memset b0 1 64
memset_async b0 1 64 s0
memset32_async b0 1 16 s0
htod b0 h0 64
dtoh pageable b0 64
dtod b0 b1 64
htod_async b0 h0 64 s0
dtoh_async h0 b0 64 s0
dtod_async b0 b1 64 s0
copy b0 b1 64
copy_async b0 b1 64 s0
peer_async b0 c0 b1 c0 64 s0
prefetch b1 4096 s0
record e0 s0
launch s0 1000
launch_ex s0 1000
launch_cooperative s1 1000
host s0 1000
record_flags e2 s0 0
wait s1 e0 0
write_value s0 b0 1
wait_value s1 b0 1
alloc_async b2 64 s0
alloc_from b3 64 p0 s0
free_async b2 s0
pool_trim p0 0
pool_destroy p0
event_sync e2
event_query e0
elapsed e0 e2
stream_query s1
capturing s0
capture_mode 2
begin s0 1
launch s0 1000
end s0 g0
graph_nodes g0 9 1
graph_create g1
graph_kernel g1 n0 1000
graph_copy g1 n1 b0 h0 64 n0
graph_memset g1 n2 b0 1 64 n0
graph_host g1 n3 1000 n1 n2
graph_empty g1 n4
graph_record g1 n5 e0 n4
graph_wait g1 n6 e1 n4
graph_child g1 n7 g0
graph_depend g1 n4 n7
graph_clone g2 g1
instantiate x0 g1 0
instantiate_with x1 g2 0
update x0 g2
set_kernel x0 n0 2000
upload x0 s0
graph_launch x0 s0
graph_destroy g2
exec_destroy x1
stream_sync s0
ctx_sync
free b0
free_host h0
event_destroy e0
stream_destroy s0
ctx_destroy c2
"""


def test_every_step_works(interpret: Interpret) -> None:
    lines = EVERY_STEP.strip().splitlines()
    assert {line.split()[0] for line in lines} == set(step_names())
    run = interpret(["\n".join(lines)])[0]
    failed = {line: result for line, result in zip(lines, results(run), strict=True) if result}
    assert set(failed) <= {"event_query e0", "stream_query s1"}  # these may come too early
    assert run.truth is not None
    assert len({call.name for call in run.truth.calls}) > 75


def test_per_thread_variants(interpret: Interpret) -> None:
    lines = [
        f"ptsz {line}" if not line.startswith(("ctx", "primary")) else line for line in EVERY_STEP.strip().splitlines()
    ]
    run = interpret(["\n".join(lines)])[0]
    assert run.truth is not None
    variants = {call.name for call in run.truth.calls if call.name.endswith(("_ptsz", "_ptds"))}
    assert len(variants) > 30
    assert not [line for line, result in zip(lines, results(run), strict=True) if result and "query" not in line]


def test_many_programs_a_process_each(library: SimCuda, tmp_path: Path) -> None:
    programs: list[Program | str] = []
    for i in range(20):
        program = Program()
        program.add("ctx_create", "c0", 0, 0).add("stream_create", "s0", 1, 0)
        for _ in range(i):
            program.add("launch", "s0", 1000)
        programs.append(program)
    runs = run_programs(library, programs, tmp_path)
    assert [run.program for run in runs] == list(range(20))
    assert len({run.pid for run in runs}) == 20
    for i, run in enumerate(runs):
        assert run.truth is not None
        assert run.truth.pid == run.pid
        assert len(run.truth.named("cuLaunchKernel")) == len(run.truth.ops) == i
        assert run.steps == ()
    assert len(list(tmp_path.glob("truth-*"))) == 20  # the parent has none


def test_several_at_a_time_and_from_a_pipe(library: SimCuda, tmp_path: Path) -> None:
    text = as_text(["ctx_create c0 0 0\nlaunch null 1000"] * 7)
    command = [str(library.program), "--jobs", "3", "--results", "-"]
    truth = tmp_path / "t-%p"
    done = subprocess.run(
        command, input=text, env=library.environment(truth=truth), capture_output=True, text=True, check=True
    )
    runs = read_runs(done.stdout, truth)
    assert [run.program for run in runs] == list(range(7))
    assert [results(run) for run in runs] == [[0, 0]] * 7
    for run in runs:
        assert run.truth is not None
        check_truth(run.truth)


def test_threads_share_slots_and_barriers(interpret: Interpret) -> None:
    program = Program()
    program.add("ctx_create", "c0", 0, 0).add("stream_create", "s0", 1, 0).add("barrier", 0).add("barrier", 1)
    for thread in range(1, 5):
        program.on(thread).add("barrier", 0).add("ctx_set", "c0").add("launch", "s0", 1000).add("barrier", 1)
    program.add("stream_sync", "s0")
    run = interpret([program])[0]
    assert run.truth is not None
    launches = run.truth.named("cuLaunchKernel")
    assert len({call.tid for call in launches}) == 4
    assert run.truth.named("cuStreamSynchronize")[0].begin_ns > max(call.end_ns for call in launches)
    assert {step.thread for step in run.steps} == set(range(5))


def test_empty_slots_are_passed_over(interpret: Interpret) -> None:
    run = interpret(["ctx_create c0 0 0\nlaunch s0 1000\nstream_create s0 7 0\nlaunch s0 1000\nstream_sync null"])[0]
    assert results(run) == [0, PASSED_OVER, 1, PASSED_OVER, 0]


def test_leaving_without_waiting(library: SimCuda, tmp_path: Path) -> None:
    run = run_programs(library, ["leave\nctx_create c0 0 0\nlaunch null 50000000000"], tmp_path)[0]
    assert run.status == 0
    assert run.truth is not None
    assert run.truth.ops == {}


def test_a_program_that_hangs_is_ended(library: SimCuda, tmp_path: Path) -> None:
    hangs = "ctx_create c0 0 0\nalloc b0 64\nmemset b0 0 64\nwait_value null b0 1\nctx_sync"
    first, second = run_programs(library, [hangs, "ctx_create c0 0 0"], tmp_path, timeout_s=1)
    assert (first.status, second.status) == (-14, 0)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("no_such_step 1", "no such step: no_such_step"),
        ("launch s0", "not a number: nothing"),
        ("launch e0 1", "not a slot of this kind: e0"),
        ("launch s999 1", "not a slot of this kind: s999"),
        ("launch s0 1 2", "more than it takes: launch"),
        ("barrier 99", "too high a barrier"),
        ("thread 99", "too many threads"),
        ("ptsz", "no such step: nothing"),
    ],
)
def test_what_is_not_understood(library: SimCuda, tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"line 3 of the program: {why}")):
        run_programs(library, [f"# a comment\n{text}"], tmp_path)


GROUPS = {
    "cuCtxCreate_v4": ("ctx_create c0 0 0", 2), "cuDevicePrimaryCtxRetain": ("primary_retain c0 0", 2),
    "cuCtxSynchronize": ("ctx_sync", 700), "cuStreamCreateWithPriority": ("stream_create s9 1 0", 2),
    "cuStreamSynchronize": ("stream_sync s0", 719), "cuStreamQuery": ("stream_query s0", 700),
    "cuStreamWaitEvent": ("wait s0 e0 0", 400), "cuEventCreate": ("event_create e9 0", 2),
    "cuEventRecord": ("record e0 s0", 400), "cuEventSynchronize": ("event_sync e0", 700),
    "cuEventQuery": ("event_query e0", 700), "cuMemAlloc_v2": ("alloc b9 64", 2), "cuMemFree_v2": ("free b0", 700),
    "cuMemAllocAsync": ("alloc_async b9 64 s0", 2), "cuMemFreeAsync": ("free_async b0 s0", 1),
    "cuMemPoolCreate": ("pool_create p0 0", 2), "cuMemcpyHtoD_v2": ("htod b0 pageable 64", 700),
    "cuMemcpyHtoDAsync_v2": ("htod_async b0 pageable 64 s0", 700), "cuMemsetD8Async": ("memset_async b0 1 64 s0", 700),
    "cuLaunchKernel": ("launch s0 1000", 719), "cuLaunchHostFunc": ("host s0 1000", 900),
    "cuStreamBeginCapture_v2": ("begin s0 0", 900), "cuStreamEndCapture": ("end s0 g0", 901),
    "cuGraphCreate": ("graph_create g0", 2), "cuGraphAddKernelNode_v2": ("graph_kernel g5 n9 1000", 1),
    "cuGraphInstantiateWithFlags": ("instantiate x0 g5 0", 2), "cuGraphExecUpdate_v2": ("update x5 g5", 910),
    "cuGraphLaunch": ("graph_launch x5 s0", 719), "cuStreamWaitValue32_v2": ("wait_value s0 b0 0", 801),
}  # fmt: skip
"""A function of each group, a step that calls it, and an error that it may end with."""

SETTING = """ctx_create_v2 c5 0 0
stream_new s0 1
event_create e0 0
alloc_managed b0 4096
graph_clone g5 g4
"""


def test_errors_on_demand_for_every_group(library: SimCuda, tmp_path: Path) -> None:
    setting = SETTING.replace(
        "event_create e0 0", "event_create e0 0\nbegin s0 0\nlaunch s0 1000\nend s0 g4\ninstantiate x5 g4 0"
    )
    for function, (step, error) in GROUPS.items():
        counts = setting.count("event_create") if function == "cuEventCreate" else 0
        counts += function in (
            "cuLaunchKernel",
            "cuStreamBeginCapture_v2",
            "cuStreamEndCapture",
            "cuGraphInstantiateWithFlags",
        )
        fail = f"{function}:{error}:{counts + 1}"
        run = run_programs(library, [f"{setting}{step}\nctx_sync_of c5"], tmp_path, results=True, fail=fail)[0]
        assert results(run)[-2:] == [error, 0], (function, results(run))
        assert not any(results(run)[:-2])
        assert run.truth is not None
        call = [call for call in run.truth.named(function) if call.result][-1]
        assert (call.result, call.op) == (error, None)
