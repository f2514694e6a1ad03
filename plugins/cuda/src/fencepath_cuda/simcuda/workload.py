# SPDX-License-Identifier: Apache-2.0
"""A simulated LLM inference server: real threads and real CUDA calls on a simulated CUDA library.

Each request has a handler thread, which hands the prompt to one tokenizer thread, which hands it to one engine thread.
The engine batches: a step is the prefill of the requests that came in (a copy on its own stream, a CUDA event, some
long kernels) or one token for each running request (many short launches, or one graph), and ends with a copy of the
tokens to the host and a wait. The last token goes back to the handler, which ends the request. Everything is marked.

Runs under any Python 3.10 or newer with the standard library alone::

    python workload.py --libcuda folder/libcuda.so.1 --mark core/src/fencepath/mark.py

With ``--truth`` (default SIMCUDA_TRUTH) it appends what it did itself to the simulated device's truth.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SCHED_SPIN, SCHED_BLOCKING_SYNC = 0x1, 0x4
NON_BLOCKING = 0x1
DISABLE_TIMING = 0x2
KERNELS = ("prefill_attention", "decode_gemm")


def load_mark(path: str | None) -> Any:
    """Return the mark module: the file at a path, else the installed one."""
    if path is None:
        from fencepath import mark

        return mark
    spec = importlib.util.spec_from_file_location("fencepath_mark", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class Notes:
    """What the workload knows about itself, written out at the end: the truth's other half."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    @contextmanager
    def note(self, what: str, request: str = "", **values: Any) -> Generator[dict[str, Any]]:
        """Note the time that a block takes; values may be added inside."""
        line = {"type": "note", "what": what, "request": request, "tid": threading.get_native_id(), **values}
        line["begin_ns"] = time.monotonic_ns()
        try:
            yield line
        finally:
            line["end_ns"] = time.monotonic_ns()
            self.lines.append(line)

    def compute(self, what: str, request: str, cpu_us: int) -> None:
        """Compute for a time, measured as the thread's own CPU time."""
        with self.note(f"host.{what}", request) as line:
            begin_ns = time.thread_time_ns()
            while time.thread_time_ns() - begin_ns < cpu_us * 1000:
                pass
            line["cpu_ns"] = time.thread_time_ns() - begin_ns

    def write(self, path: str) -> None:
        """Append the notes to a file as JSON lines."""
        with Path(path).open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in self.lines)


class Marks:
    """The mark functions by name, each call noted with the time it was made."""

    def __init__(self, module: Any, notes: Notes) -> None:
        self._module = module
        self._notes = notes

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(self._module, name)

        def noted(*args: Any, request: str = "", **kwargs: Any) -> Any:
            about = {"request": request} if request else {}
            with self._notes.note(f"mark.{name}", request, arguments=args) as line:
                line["returned"] = function(*args, **about, **kwargs)
            return line["returned"]

        return noted


class Gpu:
    """The simulated GPU through the CUDA driver API: one context, a compute and a copy stream."""

    def __init__(self, library: str, blocking: bool) -> None:
        self._library = ctypes.CDLL(library)
        self._counts: dict[str, int] = {}
        self._durations: dict[int, Any] = {}
        self.call("cuInit", 0)
        self._context = ctypes.c_void_p()
        self.call("cuCtxCreate_v2", ctypes.byref(self._context), SCHED_BLOCKING_SYNC if blocking else SCHED_SPIN, 0)
        module = self._new("cuModuleLoadData", after=[" ".join(KERNELS).encode()])
        self._functions = {name: self._new("cuModuleGetFunction", after=[module, name.encode()]) for name in KERNELS}
        self.compute = self._new("cuStreamCreate", after=[NON_BLOCKING])
        self.copy = self._new("cuStreamCreate", after=[NON_BLOCKING])
        self.copied = self._new("cuEventCreate", after=[DISABLE_TIMING])

    def use(self) -> None:
        """Make the context the calling thread's."""
        self.call("cuCtxSetCurrent", self._context)

    def call(self, name: str, *args: Any) -> None:
        """Call a driver function; a result other than 0 is an error."""
        self._counts[name] = self._counts.get(name, 0) + 1
        result = getattr(self._library, name)(*args)
        if result:
            raise RuntimeError(f"{name} of the simulated CUDA library failed with {result}")

    def _new(self, name: str, after: list[Any]) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        self.call(name, ctypes.byref(handle), *after)
        return handle

    def allocate(self, size_bytes: int) -> tuple[ctypes.c_uint64, ctypes.c_void_p]:
        """Return device memory and pinned host memory of a size."""
        device = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(device), ctypes.c_size_t(size_bytes))
        return device, self._new("cuMemHostAlloc", after=[ctypes.c_size_t(size_bytes), 0])

    def launch(self, kernel: str, duration_us: int) -> None:
        """Launch a kernel on the compute stream."""
        if duration_us not in self._durations:
            duration = ctypes.c_uint64(duration_us * 1000)
            self._durations[duration_us] = (duration, (ctypes.c_void_p * 1)(ctypes.addressof(duration)))
        params = self._durations[duration_us][1]
        self.call("cuLaunchKernel", self._functions[kernel], 7, 5, 3, 128, 1, 1, 0, self.compute, params, None)

    def upload(self, device: ctypes.c_uint64, host: ctypes.c_void_p, size_bytes: int) -> None:
        """Copy to the device on the copy stream, and let the compute stream wait for it."""
        self.call("cuMemcpyHtoDAsync_v2", device, host, ctypes.c_size_t(size_bytes), self.copy)
        self.call("cuEventRecord", self.copied, self.copy)
        self.call("cuStreamWaitEvent", self.compute, self.copied, 0)

    def download(self, device: ctypes.c_uint64, host: ctypes.c_void_p, size_bytes: int) -> None:
        """Copy to the host on the compute stream, and wait for all that is on it."""
        self.call("cuMemcpyDtoHAsync_v2", host, device, ctypes.c_size_t(size_bytes), self.compute)
        self.call("cuStreamSynchronize", self.compute)

    def capture(self, launches: int, duration_us: int) -> ctypes.c_void_p:
        """Return an executable graph of launches of the decode kernel."""
        self.call("cuStreamBeginCapture_v2", self.compute, 0)
        for _ in range(launches):
            self.launch("decode_gemm", duration_us)
        graph = ctypes.c_void_p()
        self.call("cuStreamEndCapture", self.compute, ctypes.byref(graph))
        return self._new("cuGraphInstantiateWithFlags", after=[graph, ctypes.c_ulonglong(0)])

    def counts(self) -> dict[str, int]:
        """Return how often each function was called."""
        return dict(sorted(self._counts.items()))


@dataclass
class Request:
    """A request on its way through the server."""

    id: str
    number: int
    prompt_tokens: int
    handover: int = 0
    tokens: int = 0
    finished: threading.Event = field(default_factory=threading.Event)


class Server:
    """The threads and queues of the simulated server."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.notes = Notes()
        self.mark = Marks(load_mark(options.mark), self.notes)
        self.gpu = Gpu(options.libcuda, options.wait == "block")
        self.prompts = self.gpu.allocate(options.prompt_bytes)
        self.tokens = self.gpu.allocate(4096)
        self.graph = self.gpu.capture(options.launches, options.decode_us) if options.graph else None
        self.to_tokenizer: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self.to_engine: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self.step = 0

    def run(self) -> None:
        """Serve all requests."""
        services = [threading.Thread(target=self._tokenize_all, name="tokenizer")]
        services.append(threading.Thread(target=self._serve_all, name="engine"))
        requests = [Request(f"req-{i}", i, 101 + 2 * i) for i in range(1, self.options.requests + 1)]
        handlers = [threading.Thread(target=self._handle, args=(request,), name=request.id) for request in requests]
        for service in services:
            service.start()
        for handler in handlers:
            handler.start()
            time.sleep(self.options.gap_ms / 1000)
        for handler in handlers:
            handler.join()
        self.to_tokenizer.put(None)
        for service in services:
            service.join()

    def _handle(self, request: Request) -> None:
        self.mark.request_begin(request.id, trace_id=request.number, span_id=request.number, trace_flags=1)
        self.mark.bind_thread(request.id)
        self.mark.attribute("prompt_tokens", request.prompt_tokens, request=request.id)
        self.notes.compute("parse", request.id, self.options.host_us)
        self.mark.phase_begin("queue", request=request.id)
        request.handover = self.mark.send(request=request.id)
        self.to_tokenizer.put(request)
        with self.notes.note("wait.finished", request.id):
            request.finished.wait()
        self.mark.receive(request.handover, request=request.id)
        self.notes.compute("respond", request.id, self.options.host_us)
        self.mark.unbind_thread()
        self.mark.request_end(request.id)

    def _tokenize_all(self) -> None:
        while request := self._take(self.to_tokenizer):
            self.mark.bind_thread(request.id)
            self.notes.compute("tokenize", request.id, self.options.host_us)
            request.handover = self.mark.send(request=request.id)
            self.to_engine.put(request)
            self.mark.unbind_thread()
        self.to_engine.put(None)

    def _take(self, source: queue.SimpleQueue[Request | None], wait: bool = True) -> Request | None:
        with self.notes.note("wait.queue" if wait else "poll.queue") as line:
            try:
                request = source.get(wait)
            except queue.Empty:
                return None
            line["request"] = request.id if request else ""
        if request:
            self.mark.receive(request.handover, request=request.id)
        return request

    def _serve_all(self) -> None:
        self.gpu.use()
        running: list[Request] = []
        while arrived := self._admit(len(running)) or running:
            if arrived is running:
                self._decode(running)
            else:
                self._prefill(arrived)
                running = running + arrived
            running = [request for request in running if not self._finish(request)]

    def _admit(self, running: int) -> list[Request]:
        # Waits only if there is nothing else to do; then nothing means that there will be no more.
        arrived: list[Request] = []
        while running + len(arrived) < self.options.batch:
            request = self._take(self.to_engine, wait=running + len(arrived) == 0)
            if request is None:
                break
            arrived.append(request)
        return arrived

    def _prefill(self, requests: list[Request]) -> None:
        for request in requests:
            self.mark.phase_end("queue", request=request.id)
            self.mark.phase_begin("prefill", request=request.id)
        with self._in_step([(request.id, request.prompt_tokens, "prefill") for request in requests]):
            self.gpu.upload(*self.prompts, self.options.prompt_bytes)
            for _ in range(self.options.prefill_kernels):
                self.gpu.launch("prefill_attention", self.options.prefill_us)
            self._sample(requests)
        for request in requests:
            self.mark.phase_end("prefill", request=request.id)
            self.mark.phase_begin("decode", request=request.id)

    def _decode(self, requests: list[Request]) -> None:
        with self._in_step([(request.id, 1, "decode") for request in requests]):
            if self.graph:
                self.gpu.call("cuGraphLaunch", self.graph, self.gpu.compute)
            else:
                for _ in range(self.options.launches):
                    self.gpu.launch("decode_gemm", self.options.decode_us)
            self._sample(requests)

    @contextmanager
    def _in_step(self, members: list[tuple[str, int, str]]) -> Generator[None]:
        self.step += 1
        self.mark.step_begin(self.step, members)
        yield
        self.mark.step_end(self.step)

    def _sample(self, requests: list[Request]) -> None:
        self.gpu.download(*self.tokens, 4 * len(requests))
        for request in requests:
            self.notes.compute("sample", request.id, self.options.sample_us)
            request.tokens += 1
            self.mark.token(request.tokens, request=request.id)

    def _finish(self, request: Request) -> bool:
        if request.tokens < self.options.tokens:
            return False
        self.mark.phase_end("decode", request=request.id)
        request.handover = self.mark.send(request=request.id)
        request.finished.set()
        return True


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description="A simulated LLM inference server on the simulated CUDA library.")
    add = parser.add_argument
    add("--libcuda", required=True, help="the simulated libcuda.so.1")
    add("--mark", help="fencepath's mark.py, or a copy of it; default: the installed one")
    add("--truth", default=os.environ.get("SIMCUDA_TRUTH"), help="file to append the server's own notes to")
    add("--wait", choices=["spin", "block"], default="block", help="how the engine waits for the simulated GPU")
    add("--graph", action="store_true", help="decode with a CUDA graph")
    for name, default, text in (
        ("requests", 5, "how many requests"),
        ("gap-ms", 3, "time between their arrivals"),
        ("batch", 3, "how many run at once"),
        ("tokens", 7, "tokens of each answer"),
        ("launches", 23, "launches for each token"),
        ("decode-us", 31, "duration of each"),
        ("prefill-kernels", 3, "launches for a prefill"),
        ("prefill-us", 1103, "duration of each"),
        ("prompt-bytes", 1 << 20, "size of the copy to the simulated GPU"),
        ("host-us", 211, "CPU time of parsing, of tokenizing and of responding"),
        ("sample-us", 53, "CPU time of choosing a token"),
    ):
        add(f"--{name}", type=int, default=default, metavar="N", help=f"{text} ({default})")
    return parser.parse_args(arguments)


def main() -> None:
    """Run the server and print one JSON object."""
    server = Server(parse())
    begin_ns = time.monotonic_ns()
    server.run()
    end_ns = time.monotonic_ns()
    if server.options.truth:
        server.notes.write(server.options.truth)
    done = {"simulated": True, "requests": server.options.requests, "steps": server.step}
    print(json.dumps(done | {"begin_ns": begin_ns, "end_ns": end_ns, "calls": server.gpu.counts()}))


if __name__ == "__main__":
    main()
