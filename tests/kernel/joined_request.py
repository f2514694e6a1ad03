# SPDX-License-Identifier: Apache-2.0
"""One marked request on the simulated CUDA library: ``python -m tests.kernel.joined_request LIBCUDA``.

Two kernels on one stream, a copy on another that waits for them by a CUDA event, and a wait for the copy.
"""

from __future__ import annotations

import ctypes
import sys
import time

from fencepath import mark
from fencepath_cuda.simcuda.workload import Gpu

__all__ = ["COPY_BYTES", "KERNELS_US", "REQUEST"]

REQUEST = "joined"
KERNELS_US = (130_000, 70_000)
"""Long for the device, so that what an emulated machine takes for the rest does not hide it."""
COPY_BYTES = 1 << 20


def serve(gpu: Gpu, device: ctypes.c_uint64, host: ctypes.c_void_p) -> None:
    """Do what the request asks for."""
    for duration_us in KERNELS_US:
        gpu.launch("prefill_attention", duration_us)
    gpu.call("cuEventRecord", gpu.copied, gpu.compute)
    gpu.call("cuStreamWaitEvent", gpu.copy, gpu.copied, 0)
    gpu.call("cuMemcpyDtoHAsync_v2", host, device, ctypes.c_size_t(COPY_BYTES), gpu.copy)
    gpu.call("cuStreamSynchronize", gpu.copy)


def main() -> None:
    gpu = Gpu(sys.argv[1], blocking=True)
    device, host = gpu.allocate(COPY_BYTES)
    serve(gpu, device, host)  # the first calls of a process are slow in an emulated machine
    time.sleep(0.1)
    with mark.request(REQUEST):
        serve(gpu, device, host)


if __name__ == "__main__":
    main()
