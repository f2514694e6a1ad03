# SPDX-License-Identifier: Apache-2.0
"""Marks: the bytes the kernel is given, from Python and from C, and that a mark never harms its program."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepath import mark

MARK_FILE = Path(mark.__file__)
INCLUDE = MARK_FILE.parent / "include"
CAPTURE = Path(__file__).with_name("mark_capture.py")
UNPRIVILEGED = ["-S", "-I"]  # no site-packages, no environment, no working directory


class MarkV1(ctypes.Structure):
    """struct fencepath_mark_v1 as the design has it, laid out by ctypes with C's own rules."""

    _fields_ = (
        ("op", ctypes.c_uint16),
        ("flags", ctypes.c_uint16),
        ("value", ctypes.c_uint32),
        ("request", ctypes.c_uint64),
        ("step", ctypes.c_uint64),
        ("trace_id", ctypes.c_uint8 * 16),
        ("span_id", ctypes.c_uint8 * 8),
        ("trace_flags", ctypes.c_uint8),
        ("phase", ctypes.c_uint8),
        ("len", ctypes.c_uint16),
        ("reserved", ctypes.c_uint32),
        ("ptr", ctypes.c_uint64),
    )


OFFSETS = {
    "op": 0, "flags": 2, "value": 4, "request": 8, "step": 16, "trace_id": 24, "span_id": 40,
    "trace_flags": 48, "phase": 49, "len": 50, "reserved": 52, "ptr": 56,
}  # fmt: skip
NOTHING = (0, bytes(16), bytes(8))


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A mark as it was passed to the kernel: its fields that are not 0, and what it points to."""

    fields: dict[str, Any]
    pointed: bytes
    tid: int

    @classmethod
    def of(cls, data: bytes, pointed: bytes, tid: int) -> Seen:
        assert len(data) == ctypes.sizeof(MarkV1) == 64
        raw = MarkV1.from_buffer_copy(data)
        assert (raw.flags, raw.reserved) == (0, 0)
        assert bool(raw.ptr) == bool(pointed)
        values = {name: getattr(raw, name) for name in OFFSETS if name != "ptr"}
        plain = {name: bytes(value) if name in ("trace_id", "span_id") else value for name, value in values.items()}
        return cls(fields={k: v for k, v in plain.items() if v not in NOTHING}, pointed=pointed, tid=tid)


def blake(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def capture(*command: str | Path, env: dict[str, str] | None = None) -> list[Seen]:
    """Run a command under ptrace and return its marks."""
    run = subprocess.run(
        [sys.executable, CAPTURE, *command],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **(env or {})},
    )
    assert run.returncode == 0, run.stderr
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    return [Seen.of(bytes.fromhex(x["mark"]), bytes.fromhex(x["pointed"]), x["tid"]) for x in lines]


def script(tmp_path: Path, body: str) -> list[str | Path]:
    """Return a command that runs Python code with a vendored copy of the module and nothing else."""
    shutil.copy(MARK_FILE, tmp_path / "vendored_marks.py")
    head = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nimport vendored_marks as mark\n"
    file = tmp_path / "script.py"
    file.write_text(head + textwrap.dedent(body))
    return [sys.executable, *UNPRIVILEGED, file]


def fake_kernel(patch: pytest.MonkeyPatch) -> list[Seen]:
    """Put a list in place of the system call, and return it."""
    marks: list[Seen] = []

    def prctl(option: int, version: int, data: bytes, size: int, zero: int) -> int:
        assert (option, version, size, zero) == (0x46504D4B, 1, 64, 0)
        raw = MarkV1.from_buffer_copy(data)
        length = 16 * raw.value if raw.op == 5 else raw.len
        marks.append(Seen.of(data, ctypes.string_at(raw.ptr, length) if length else b"", 0))
        return -1

    patch.setattr(mark, "_prctl", prctl)
    patch.setattr(mark, "_get_errno", lambda: errno.EINVAL)
    patch.setattr(mark, "_active", True)
    return marks


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Seen]:
    """The marks made in this process, in place of the system call."""
    return fake_kernel(monkeypatch)


def only(marks: list[Seen]) -> Seen:
    assert len(marks) == 1
    return marks.pop()


def ops(marks: list[Seen]) -> list[tuple[int, int]]:
    return [(seen.fields["op"], seen.fields.get("request", 0)) for seen in marks]


def members(data: bytes) -> list[tuple[int, int, int]]:
    assert all(data[at + 13 : at + 16] == bytes(3) for at in range(0, len(data), 16))
    chunks = (data[at : at + 16] for at in range(0, len(data), 16))
    return [(int.from_bytes(x[:8], sys.byteorder), int.from_bytes(x[8:12], sys.byteorder), x[12]) for x in chunks]


class TestBytes:
    def test_documented_offsets(self) -> None:
        assert {name: getattr(MarkV1, name).offset for name in OFFSETS} == OFFSETS

    @given(
        request_id=st.text(min_size=1, max_size=300),
        trace_id=st.integers(0, 2**128 - 1),
        span_id=st.integers(0, 2**64 - 1),
        flags=st.integers(0, 255),
    )
    def test_request_begin(self, request_id: str, trace_id: int, span_id: int, flags: int) -> None:
        with pytest.MonkeyPatch.context() as patch:
            marks = fake_kernel(patch)
            value = mark.request_begin(request_id, trace_id=trace_id, span_id=span_id, trace_flags=flags)
            seen = only(marks)
        data = request_id.encode("utf-8", "backslashreplace")
        assert value == blake(data)
        expected: dict[str, Any] = {"op": 1, "request": value, "len": len(seen.pointed), "trace_flags": flags}
        expected |= {"trace_id": trace_id.to_bytes(16, "big"), "span_id": span_id.to_bytes(8, "big")}
        assert seen.fields == {k: v for k, v in expected.items() if v not in NOTHING}
        if len(data) <= 255:
            assert seen.pointed == data
        else:
            prefix, _, digits = seen.pointed.rpartition(b"~")
            assert data.startswith(prefix)
            assert 235 <= len(prefix) <= 238
            assert prefix.decode()  # cut at a character's end
            assert digits == b"%016x" % value

    @given(request=st.integers(0, 2**64 - 1), index=st.integers(1, 2**32 - 1), number=st.integers(0, 2**64 - 1))
    def test_plain_marks(self, request: int, index: int, number: int) -> None:
        with pytest.MonkeyPatch.context() as patch:
            marks = fake_kernel(patch)
            mark.token(index, request=request)
            mark.step_begin(number)
            mark.send(number, request=request)
            mark.receive(number, request=request)
            mark.phase_begin("decode", request=request)
            mark.request_end(request)
        whole = [
            {"op": 8, "request": request, "value": index},
            {"op": 3, "step": number},
            {"op": 11, "request": request, "step": number},
            {"op": 12, "request": request, "step": number},
            {"op": 6, "request": request, "phase": 3},
            {"op": 2, "request": request},
        ]
        assert [seen.fields for seen in marks] == [{k: v for k, v in fields.items() if v} for fields in whole]
        assert all(seen.pointed == b"" for seen in marks)

    @pytest.mark.parametrize("count", [0, 1, 511, 512, 513, 1031])
    def test_members_are_split_at_512(self, sent: list[Seen], count: int) -> None:
        batch: list[mark.Member] = [(f"req-{i}", i, "prefill" if i % 3 else "decode") for i in range(count)]
        with mark.step(19, batch):
            pass
        assert [seen.fields["op"] for seen in sent] == [3, *[5] * -(-count // 512), 4]
        assert all(seen.fields["step"] == 19 for seen in sent)
        assert all(seen.fields["value"] * 16 == len(seen.pointed) <= 8192 for seen in sent[1:-1])
        expected = [(blake(f"req-{i}".encode()), i, 2 if i % 3 else 3) for i in range(count)]
        assert [member for seen in sent[1:-1] for member in members(seen.pointed)] == expected

    def test_attribute(self, sent: list[Seen]) -> None:
        mark.attribute("cached", True, request=7)
        assert only(sent).pointed == b"cached=true"
        mark.attribute("model", "é" * 200, request=7)
        seen = only(sent)
        assert seen.fields == {"op": 13, "request": 7, "len": 254}  # 255 would cut a character in half
        assert seen.pointed == b"model=" + "é".encode() * 124

    @pytest.mark.parametrize(
        "trace_id", [0xABC, "00000000000000000000000000000abc", bytes(14) + b"\x0a\xbc"], ids=["int", "hex", "bytes"]
    )
    def test_trace_id_forms(self, sent: list[Seen], trace_id: int | str | bytes) -> None:
        mark.request_begin("r", trace_id=trace_id)
        assert only(sent).fields["trace_id"] == bytes(14) + b"\x0a\xbc"

    def test_traceparent(self, sent: list[Seen]) -> None:
        mark.request_begin("r", traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
        fields = only(sent).fields
        assert fields["trace_id"].hex() == "4bf92f3577b34da6a3ce929d0e0e4736"
        assert (fields["span_id"].hex(), fields["trace_flags"]) == ("00f067aa0ba902b7", 1)

    @pytest.mark.parametrize(
        "header",
        [
            "", "junk", "00-zz-zz-01", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "00-" + "0" * 32 + "-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
        ],
    )  # fmt: skip
    def test_malformed_traceparent_is_none(self, sent: list[Seen], header: str) -> None:
        mark.request_begin("r", traceparent=header)
        assert only(sent).fields == {"op": 1, "request": blake(b"r"), "len": 1}


class TestCurrentRequest:
    def test_blocks_nest(self, sent: list[Seen]) -> None:
        outer, inner = blake(b"outer"), blake(b"inner")
        with mark.request("outer"):
            with mark.request("inner"), mark.phase("prefill"):
                mark.token(1)
            assert mark.current_request() == outer
            mark.token(2)
        assert mark.current_request() == 0
        mark.token(3)
        expected = [
            (1, outer),
            (1, inner),
            (6, inner),
            (8, inner),
            (7, inner),
            (2, inner),
            (8, outer),
            (2, outer),
            (8, 0),
        ]
        assert ops(sent) == expected

    def test_an_exception_ends_the_request(self, sent: list[Seen]) -> None:
        with pytest.raises(KeyError), mark.request("r", bind_thread=True), mark.step(1), mark.phase("decode"):
            raise KeyError
        request = blake(b"r")
        expected = [(1, request), (9, request), (3, 0), (6, request), (7, request), (4, 0), (10, request), (2, request)]
        assert ops(sent) == expected

    def test_bound_threads_nest(self, sent: list[Seen]) -> None:
        with mark.bound_thread(5):
            with mark.bound_thread(7):
                pass
            assert mark.current_request() == 5
        mark.unbind_thread()
        assert ops(sent) == [(9, 5), (9, 7), (9, 5), (10, 5)]

    def test_new_handovers_differ(self, sent: list[Seen]) -> None:
        ids = {mark.send() for _ in range(101)}
        assert len(ids) == 101
        assert {seen.fields["step"] for seen in sent} == ids
        mark.receive("job-3")
        assert sent[-1].fields == {"op": 12, "step": blake(b"job-3")}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("mark.request_begin('')", "must not be empty"),
        ("mark.request('')", "must not be empty"),
        ("mark.request('r', trace_id='12')", "32 hex digits"),
        ("mark.request('r', trace_id=1 << 128)", "trace_id must be"),
        ("mark.request('r', span_id=1, traceparent='x')", "either traceparent"),
        ("mark.request('r', trace_flags=256)", "trace_flags must be"),
        ("mark.token(0)", "token index"),
        ("mark.token(1 << 32)", "token index"),
        ("mark.token(1, request=-1)", "request must be"),
        ("mark.phase('warmup')", "phase must be one of none, queue, prefill, decode"),
        ("mark.step(-1)", "step must be"),
        ("mark.step(1, [('r', -1, 'decode')])", "tokens must be"),
        ("mark.step_begin(1, [('r', 1, 'x')])", "phase must be"),
        ("mark.send(1 << 64)", "handover must be"),
        ("mark.attribute('a=b', 1)", "an attribute's key"),
        ("mark.attribute('', 1)", "an attribute's key"),
    ],
)
@pytest.mark.parametrize("active", [True, False])
def test_wrong_use_raises(
    monkeypatch: pytest.MonkeyPatch, sent: list[Seen], call: str, message: str, active: bool
) -> None:
    monkeypatch.setattr(mark, "_active", active)
    with pytest.raises(ValueError, match=message):
        eval(call)
    assert sent == []


def test_one_request_as_the_kernel_is_given_it(tmp_path: Path) -> None:
    """The real system call of a vendored copy without site-packages, pointed bytes included."""
    body = """
    import threading

    with mark.request("req-é", trace_id=1, span_id=2, trace_flags=1):
        with mark.phase("prefill"):
            mark.token(1)
        with mark.step(7, [("a", 11, "decode"), ("b", 13, "prefill")]):
            handover = mark.send(17)
        mark.attribute("model", "sim")
    thread = threading.Thread(target=mark.bind_thread, args=("a",))
    thread.start()
    thread.join()
    assert mark.enabled()
    """
    seen = capture(*script(tmp_path, body))
    request = blake("req-é".encode())
    begin = {"op": 1, "request": request, "len": 6, "trace_flags": 1}
    assert [x.fields for x in seen] == [
        begin | {"trace_id": bytes(15) + b"\1", "span_id": bytes(7) + b"\2"},
        {"op": 6, "request": request, "phase": 2},
        {"op": 8, "request": request, "value": 1},
        {"op": 7, "request": request, "phase": 2},
        {"op": 3, "step": 7},
        {"op": 5, "step": 7, "value": 2},
        {"op": 11, "request": request, "step": 17},
        {"op": 4, "step": 7},
        {"op": 13, "request": request, "len": 9},
        {"op": 2, "request": request},
        {"op": 9, "request": blake(b"a")},
    ]
    assert [x.pointed for x in seen if x.pointed][0::2] == ["req-é".encode(), b"model=sim"]
    assert members(seen[5].pointed) == [(blake(b"a"), 11, 3), (blake(b"b"), 13, 2)]
    assert len({x.tid for x in seen[:-1]}) == 1
    assert seen[-1].tid != seen[0].tid


def test_a_forked_child_gives_out_other_handovers(tmp_path: Path) -> None:
    body = """
    import os

    mark.send()
    child = os.fork()
    mark.send()
    if child:
        os.waitpid(child, 0)
    """
    seen = capture(*script(tmp_path, body))
    assert len({x.fields["step"] for x in seen}) == len(seen) == 3


def test_marks_turned_off(tmp_path: Path) -> None:
    body = """
    import sys

    with mark.request("r"), mark.phase("decode"), mark.step(1, [("r", 1, "decode")]):
        mark.token(1)
        mark.attribute("a", 1)
        assert mark.current_request()
    assert not mark.enabled() and "ctypes" not in sys.modules
    """
    command = script(tmp_path, body)
    assert len(command) == 4
    assert capture(command[0], "-S", *command[3:], env={"FENCEPATH_MARKS": "0"}) == []
    with_marks = script(tmp_path, "mark.token(1)")
    assert len(capture(with_marks[0], "-S", *with_marks[3:], env={"FENCEPATH_MARKS": "1"})) == 1


SECCOMP = """
import ctypes, errno, os, struct

def install(answer):
    # if number == prctl and argument 0 == the option: answer, else allow
    number = {"x86_64": 157, "aarch64": 167}[os.uname().machine]
    code = [(0x20, 0, 0, 0), (0x15, 0, 3, number), (0x20, 0, 0, 16), (0x15, 0, 1, 0x46504D4B),
            (0x06, 0, 0, 0x00050000 | answer), (0x06, 0, 0, 0x7FFF0000)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in code))
    filter = struct.pack("@HP", len(code), ctypes.addressof(program))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, ctypes.c_char_p(filter), 0, 0) == 0, ctypes.get_errno()

"""


@pytest.mark.parametrize("answer", ["EPERM", "ENOSYS"])
def test_a_seccomp_filter_is_warned_about_once(tmp_path: Path, answer: str) -> None:
    body = f"""
    import warnings

    install(errno.{answer})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert mark.enabled()
        with mark.request("r"):
            mark.token(1)
        mark.token(2)
    assert [w.category for w in caught] == [mark.MarkWarning], caught
    assert "{answer}" in str(caught[0].message)
    assert not mark.enabled()
    """
    run = subprocess.run(
        script(tmp_path, SECCOMP + textwrap.dedent(body)), capture_output=True, text=True, timeout=60, check=False
    )
    assert (run.returncode, run.stderr) == (0, "")


def test_warnings_as_errors_do_not_end_the_program(tmp_path: Path) -> None:
    command = script(tmp_path, SECCOMP + "install(errno.EPERM)\nmark.token(1)\nmark.token(2)\n")
    run = subprocess.run(
        [command[0], "-W", "error", *command[1:]], capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 0
    assert run.stderr.count("marks are not recorded") == 1


class TestTaskFactory:
    BODY = """
    import asyncio

    async def work(name, seconds):
        with mark.request(name):
            await asyncio.sleep(seconds)
            mark.token(1)

    async def main():
        asyncio.get_running_loop().set_task_factory(mark.task_factory({inner}))
        await asyncio.gather(work("slow", 0.02), work("fast", 0.01), asyncio.sleep(0))

    asyncio.run(main())
    """

    def check(self, seen: list[Seen]) -> None:
        slow, fast = blake(b"slow"), blake(b"fast")
        names = {1: "begin", 2: "end", 8: "token", 9: "bind", 10: "unbind"}
        story = [(names[op], "slow" if request == slow else "fast") for op, request in ops(seen)]
        assert {request for _, request in ops(seen)} == {slow, fast}
        assert story == [
            ("begin", "slow"), ("bind", "slow"), ("unbind", "slow"),
            ("begin", "fast"), ("bind", "fast"), ("unbind", "fast"),
            ("bind", "fast"), ("token", "fast"), ("unbind", "fast"), ("end", "fast"),
            ("bind", "slow"), ("token", "slow"), ("unbind", "slow"), ("end", "slow"),
        ]  # fmt: skip

    def test_the_thread_is_bound_while_a_task_runs(self, tmp_path: Path) -> None:
        self.check(capture(*script(tmp_path, self.BODY.format(inner=""))))

    @pytest.mark.skipif(sys.version_info < (3, 12), reason="asyncio.eager_task_factory came with Python 3.12")
    def test_eager_tasks(self, tmp_path: Path) -> None:
        self.check(capture(*script(tmp_path, self.BODY.format(inner="asyncio.eager_task_factory"))))

    def test_results_errors_and_looks_are_the_coroutines_own(self, tmp_path: Path) -> None:
        body = """
        import asyncio, inspect

        async def fails():
            raise KeyError("x")

        async def main():
            loop = asyncio.get_running_loop()
            loop.set_task_factory(mark.task_factory())
            assert await loop.create_task(asyncio.sleep(0, "result"), name="named") == "result"
            try:
                await loop.create_task(fails())
            except KeyError:
                pass
            task = loop.create_task(asyncio.sleep(60))
            await asyncio.sleep(0)
            assert "sleep" in repr(task) and task.get_stack()
            assert inspect.getcoroutinestate(task.get_coro()) == "CORO_SUSPENDED"
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                pass
            assert task.cancelled()
            try:
                loop.create_task(3)
            except TypeError:
                return "all"

        assert asyncio.run(main(), debug=True) == "all"
        """
        assert capture(*script(tmp_path, body)) == []


C_PROGRAM = """
#include <fencepath_mark.h>

int main(int argc, char **argv)
{
	static const uint8_t trace[16] = {[15] = 1}, span[8] = {[7] = 2};
	static struct fencepath_member members[513];
	uint64_t request = 0;

	errno = 77;
	for (int i = 1; i < argc; i++) {
		request = fencepath_request_begin(argv[i], trace, span, 1);
		if (request != fencepath_mark_id(argv[i]))
			return 1;
		fencepath_request_end(request);
	}
	fencepath_phase_begin(request, FENCEPATH_PHASE_PREFILL);
	fencepath_phase_end(request, FENCEPATH_PHASE_PREFILL);
	fencepath_token(request, 3);
	fencepath_attribute(request, "model", "sim");
	members[512].request = 5, members[512].tokens = 7, members[512].phase = FENCEPATH_PHASE_DECODE;
	fencepath_step_begin(19, members, 513);
	fencepath_step_end(19);
	fencepath_bind_thread(request);
	fencepath_unbind_thread(request);
	fencepath_send(23, request);
	fencepath_receive(23, request);
	return errno == 77 ? 0 : 1;
}
"""


@pytest.fixture(scope="module")
def c_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A C program that makes every kind of mark; its arguments are request ids."""
    compiler = os.environ.get("CC") or shutil.which("cc")
    assert compiler, "this test needs a C compiler: install gcc or clang, or set CC"
    folder = tmp_path_factory.mktemp("marks")
    (folder / "marks.c").write_text(C_PROGRAM)
    strict = ["-std=gnu11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{INCLUDE}"]
    subprocess.run([compiler, *strict, folder / "marks.c", "-o", folder / "marks"], check=True)
    return folder / "marks"


class TestHeader:
    LENGTHS = (1, 7, 127, 128, 129, 237, 239, 254, 255, 256, 257, 511, 512, 997)

    def test_c_and_python_make_the_same_begin_marks(self, c_program: Path, sent: list[Seen]) -> None:
        ids = ["x" * n for n in self.LENGTHS] + ["é" * n for n in self.LENGTHS] + ["a" + "日" * n for n in self.LENGTHS]
        begun = [seen for seen in capture(c_program, *ids) if seen.fields["op"] == 1]
        for request_id in ids:
            mark.request_begin(request_id, trace_id=1, span_id=2, trace_flags=1)
        assert [(seen.fields, seen.pointed) for seen in begun] == [(seen.fields, seen.pointed) for seen in sent]
        assert [seen.fields["request"] for seen in begun] == [blake(x.encode()) for x in ids]

    def test_every_other_mark(self, c_program: Path) -> None:
        seen, request = capture(c_program, "r")[1:], blake(b"r")
        assert [x.fields for x in seen] == [
            {"op": 2, "request": request},
            {"op": 6, "request": request, "phase": 2},
            {"op": 7, "request": request, "phase": 2},
            {"op": 8, "request": request, "value": 3},
            {"op": 13, "request": request, "len": 9},
            {"op": 3, "step": 19},
            {"op": 5, "step": 19, "value": 512},
            {"op": 5, "step": 19, "value": 1},
            {"op": 4, "step": 19},
            {"op": 9, "request": request},
            {"op": 10, "request": request},
            {"op": 11, "request": request, "step": 23},
            {"op": 12, "request": request, "step": 23},
        ]
        assert seen[4].pointed == b"model=sim"
        assert members(seen[7].pointed) == [(5, 7, 3)]

    def test_turned_off(self, c_program: Path) -> None:
        assert capture(c_program, "r", env={"FENCEPATH_MARKS": "0"}) == []


@pytest.mark.bpf
def test_the_tracepoint_sees_marks(tmp_path: Path) -> None:
    """The kernel's own tracepoint has each mark with the arguments the contract names."""
    tracing = Path("/sys/kernel/tracing/instances") / f"fencepath_test_{os.getpid()}"
    tracing.mkdir()
    try:
        event = tracing / "events/syscalls/sys_enter_prctl"
        (event / "filter").write_text(f"option == {0x46504D4B}")
        (event / "enable").write_text("1")
        process = subprocess.Popen(script(tmp_path, "for i in range(1, 102): mark.token(i)"))
        assert process.wait(60) == 0
        lines = [x for x in (tracing / "trace").read_text().splitlines() if f"-{process.pid} " in x]
    finally:
        (tracing / "events/enable").write_text("0")
        tracing.rmdir()
    assert len(lines) == 101
    # Kernels differ in how they print an argument, not in what it is: 6.1 has hexadecimal without 0x.
    base = 0 if "0x" in lines[0] else 16
    calls = [[int(x, base) for x in re.findall(r": ((?:0x)?[0-9a-f]+)(?=[,)])", line)] for line in lines]
    assert all((option, version, size, zero) == (0x46504D4B, 1, 64, 0) for option, version, _, size, zero in calls)
