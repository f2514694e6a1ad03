// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The simulated libcudart: streams and CUDA events. */
#include "runtime.h"

RUNTIME(cudaStreamCreate, (cudaStream_t *stream), driver->cuStreamCreate(stream, CU_STREAM_DEFAULT))
RUNTIME(cudaStreamCreateWithFlags, (cudaStream_t *stream, unsigned int flags), driver->cuStreamCreate(stream, flags))
RUNTIME(cudaStreamCreateWithPriority, (cudaStream_t *stream, unsigned int flags, int priority),
	driver->cuStreamCreateWithPriority(stream, flags, priority))
RUNTIME(cudaStreamDestroy, (cudaStream_t stream), driver->cuStreamDestroy(stream))
RUNTIME_BOTH(cudaStreamSynchronize, _ptsz, (cudaStream_t stream), driver->cuStreamSynchronize(stream))
RUNTIME_BOTH(cudaStreamQuery, _ptsz, (cudaStream_t stream), driver->cuStreamQuery(stream))
RUNTIME_BOTH(cudaStreamWaitEvent, _ptsz, (cudaStream_t stream, cudaEvent_t event, unsigned int flags),
	     driver->cuStreamWaitEvent(stream, event, flags))
RUNTIME_BOTH(cudaStreamGetPriority, _ptsz, (cudaStream_t stream, int *priority), driver->cuStreamGetPriority(stream, priority))
RUNTIME_BOTH(cudaStreamGetFlags, _ptsz, (cudaStream_t stream, unsigned int *flags), driver->cuStreamGetFlags(stream, flags))

RUNTIME(cudaEventCreate, (cudaEvent_t *event), driver->cuEventCreate(event, CU_EVENT_DEFAULT))
RUNTIME(cudaEventCreateWithFlags, (cudaEvent_t *event, unsigned int flags), driver->cuEventCreate(event, flags))
RUNTIME_BOTH(cudaEventRecord, _ptsz, (cudaEvent_t event, cudaStream_t stream), driver->cuEventRecord(event, stream))
RUNTIME_BOTH(cudaEventRecordWithFlags, _ptsz, (cudaEvent_t event, cudaStream_t stream, unsigned int flags),
	     driver->cuEventRecordWithFlags(event, stream, flags))
RUNTIME(cudaEventQuery, (cudaEvent_t event), driver->cuEventQuery(event))
RUNTIME(cudaEventSynchronize, (cudaEvent_t event), driver->cuEventSynchronize(event))
RUNTIME(cudaEventElapsedTime, (float *milliseconds, cudaEvent_t start, cudaEvent_t end),
	driver->cuEventElapsedTime(milliseconds, start, end))
RUNTIME(cudaEventDestroy, (cudaEvent_t event), driver->cuEventDestroy(event))
