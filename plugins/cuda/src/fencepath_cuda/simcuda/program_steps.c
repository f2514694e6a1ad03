// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The interpreter of programs: its steps. Compiled twice, the second time with CUDA_API_PER_THREAD_DEFAULT_STREAM. */
#include "program.h"

#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
#define STEPS per_thread_steps
#else
#define STEPS steps
#endif

/* Older versions of functions, which a header does not declare unasked. */
CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device);
CUresult cuCtxSynchronize_v2(CUcontext context);

#define H(i) (step->handles[i])
#define OUT(i) ((void *)&step->handles[i])
#define U(i) ((unsigned int)step->numbers[i])
#define BYTES(i) ((size_t)step->numbers[i])
#define D(i) ((CUdeviceptr)(uintptr_t)step->handles[i])
#define AFTER (const CUgraphNode *)step->after, (size_t)step->after_count

#define SHAPE 7, 5, 3, 64, 1, 1, 0
#define PARAMS(i) ((void *[]){&step->numbers[i]})
#define DURATION(i) ((void *)(uintptr_t)step->numbers[i])

static CUresult launch_ex(CUstream stream, uint64_t *ns)
{
	const CUlaunchConfig config = {.gridDimX = 7, .gridDimY = 5, .gridDimZ = 3, .blockDimX = 64, .blockDimY = 1,
				       .blockDimZ = 1, .hStream = stream};

	return cuLaunchKernelEx(&config, spin, (void *[]){ns}, NULL);
}

static CUresult create_pool(CUmemoryPool *pool, int device)
{
	const CUmemPoolProps props = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
	};

	return cuMemPoolCreate(pool, &props);
}

static CUresult exchange_mode(CUstreamCaptureMode mode)
{
	return cuThreadExchangeStreamCaptureMode(&mode);
}

static CUresult get_nodes(CUgraph graph, int slot, size_t count)
{
	CUgraphNode nodes[MAX_AFTER] = {0};
	CUresult error;

	count = count < MAX_AFTER ? count : MAX_AFTER;
	error = cuGraphGetNodes(graph, nodes, &count);
	if (error == CUDA_SUCCESS)
		fill_nodes(slot, nodes, count);
	return error;
}

static CUDA_KERNEL_NODE_PARAMS *kernel_node(CUDA_KERNEL_NODE_PARAMS *params, void **parameters)
{
	*params = (CUDA_KERNEL_NODE_PARAMS){.kern = (CUkernel)spin, .gridDimX = 7, .gridDimY = 5, .gridDimZ = 3, .blockDimX = 64,
					    .blockDimY = 1, .blockDimZ = 1, .kernelParams = parameters};
	return params;
}

static CUcontext current(void)
{
	CUcontext context = NULL;

	cuCtxGetCurrent(&context);
	return context;
}

#define KERNEL(i) kernel_node(&(CUDA_KERNEL_NODE_PARAMS){0}, PARAMS(i))
#define COPY(device, host, bytes)                                                                                        \
	&(CUDA_MEMCPY3D)                                                                                                 \
	{                                                                                                                \
		.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = host, .dstMemoryType = CU_MEMORYTYPE_DEVICE,             \
		.dstDevice = device, .WidthInBytes = bytes, .Height = 1, .Depth = 1,                                     \
	}
#define SET(device, byte, bytes)                                                                                         \
	&(CUDA_MEMSET_NODE_PARAMS)                                                                                       \
	{                                                                                                                \
		.dst = device, .value = byte, .elementSize = 1, .width = bytes, .height = 1,                             \
	}

#define ALL_STEPS(X)                                                                                                     \
	/* contexts: device, flags */                                                                                    \
	X(ctx_create, "Cuu", cuCtxCreate(OUT(0), NULL, U(2), (int)U(1)))                                                 \
	X(ctx_create_v2, "Cuu", cuCtxCreate_v2(OUT(0), U(2), (int)U(1)))                                                 \
	X(ctx_destroy, "c-", cuCtxDestroy(H(0)))                                                                         \
	X(ctx_set, "c", cuCtxSetCurrent(H(0)))                                                                           \
	X(ctx_push, "c", cuCtxPushCurrent(H(0)))                                                                         \
	X(ctx_pop, "", cuCtxPopCurrent(&(CUcontext){0}))                                                                 \
	X(ctx_sync, "", cuCtxSynchronize())                                                                              \
	X(ctx_sync_of, "c", cuCtxSynchronize_v2(H(0)))                                                                   \
	X(primary_retain, "Cu", cuDevicePrimaryCtxRetain(OUT(0), (int)U(1)))                                             \
	X(primary_release, "u", cuDevicePrimaryCtxRelease((int)U(0)))                                                    \
	X(primary_reset, "u", cuDevicePrimaryCtxReset((int)U(0)))                                                        \
	/* streams: flags, priority below 0 as its amount */                                                             \
	X(stream_create, "Suu", cuStreamCreateWithPriority(OUT(0), U(1), -(int)U(2)))                                    \
	X(stream_new, "Su", cuStreamCreate(OUT(0), U(1)))                                                                \
	X(stream_destroy, "s-", cuStreamDestroy(H(0)))                                                                   \
	X(stream_sync, "s", cuStreamSynchronize(H(0)))                                                                   \
	X(stream_query, "s", cuStreamQuery(H(0)))                                                                        \
	X(wait, "seu", cuStreamWaitEvent(H(0), H(1), U(2)))                                                              \
	X(wait_value, "sbu", cuStreamWaitValue32(H(0), D(1), U(2), CU_STREAM_WAIT_VALUE_GEQ))                            \
	X(write_value, "sbu", cuStreamWriteValue32(H(0), D(1), U(2), 0))                                                 \
	/* CUDA events: flags */                                                                                         \
	X(event_create, "Eu", cuEventCreate(OUT(0), U(1)))                                                               \
	X(event_destroy, "e-", cuEventDestroy(H(0)))                                                                     \
	X(record, "es", cuEventRecord(H(0), H(1)))                                                                       \
	X(record_flags, "esu", cuEventRecordWithFlags(H(0), H(1), U(2)))                                                 \
	X(event_sync, "e", cuEventSynchronize(H(0)))                                                                     \
	X(event_query, "e", cuEventQuery(H(0)))                                                                          \
	X(elapsed, "ee", cuEventElapsedTime(&(float){0}, H(0), H(1)))                                                    \
	/* launches: nanoseconds */                                                                                      \
	X(launch, "su", cuLaunchKernel(spin, SHAPE, H(0), PARAMS(1), NULL))                                              \
	X(launch_ex, "su", launch_ex(H(0), &step->numbers[1]))                                                           \
	X(launch_cooperative, "su", cuLaunchCooperativeKernel(spin, SHAPE, H(0), PARAMS(1)))                             \
	X(host, "su", cuLaunchHostFunc(H(0), host_function, DURATION(1)))                                                \
	/* memory: bytes */                                                                                              \
	X(alloc, "Bu", cuMemAlloc(OUT(0), BYTES(1)))                                                                     \
	X(alloc_managed, "Bu", cuMemAllocManaged(OUT(0), BYTES(1), CU_MEM_ATTACH_GLOBAL))                                \
	X(free, "b-", cuMemFree(D(0)))                                                                                   \
	X(alloc_host, "Hu", cuMemHostAlloc(OUT(0), BYTES(1), 0))                                                         \
	X(free_host, "h-", cuMemFreeHost(H(0)))                                                                          \
	X(alloc_async, "Bus", cuMemAllocAsync(OUT(0), BYTES(1), H(2)))                                                   \
	X(alloc_from, "Bups", cuMemAllocFromPoolAsync(OUT(0), BYTES(1), H(2), H(3)))                                     \
	X(free_async, "b-s", cuMemFreeAsync(D(0), H(1)))                                                                 \
	X(pool_create, "Pu", create_pool(OUT(0), (int)U(1)))                                                             \
	X(pool_destroy, "p-", cuMemPoolDestroy(H(0)))                                                                    \
	X(pool_trim, "pu", cuMemPoolTrimTo(H(0), BYTES(1)))                                                              \
	X(prefetch, "bus", cuMemPrefetchAsync(D(0), BYTES(1), (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE}, 0, H(2))) \
	/* copies and sets: to, from, bytes, stream; memory, value, count, stream */                                     \
	X(htod, "bhu", cuMemcpyHtoD(D(0), H(1), BYTES(2)))                                                               \
	X(dtoh, "hbu", cuMemcpyDtoH(H(0), D(1), BYTES(2)))                                                               \
	X(dtod, "bbu", cuMemcpyDtoD(D(0), D(1), BYTES(2)))                                                               \
	X(htod_async, "bhus", cuMemcpyHtoDAsync(D(0), H(1), BYTES(2), H(3)))                                             \
	X(dtoh_async, "hbus", cuMemcpyDtoHAsync(H(0), D(1), BYTES(2), H(3)))                                             \
	X(dtod_async, "bbus", cuMemcpyDtoDAsync(D(0), D(1), BYTES(2), H(3)))                                             \
	X(copy, "bbu", cuMemcpy(D(0), D(1), BYTES(2)))                                                                   \
	X(copy_async, "bbus", cuMemcpyAsync(D(0), D(1), BYTES(2), H(3)))                                                 \
	X(peer_async, "bcbcus", cuMemcpyPeerAsync(D(0), H(1), D(2), H(3), BYTES(4), H(5)))                               \
	X(memset, "buu", cuMemsetD8(D(0), (unsigned char)U(1), BYTES(2)))                                                \
	X(memset_async, "buus", cuMemsetD8Async(D(0), (unsigned char)U(1), BYTES(2), H(3)))                              \
	X(memset32_async, "buus", cuMemsetD32Async(D(0), U(1), BYTES(2), H(3)))                                          \
	/* capture: mode */                                                                                              \
	X(begin, "su", cuStreamBeginCapture(H(0), (CUstreamCaptureMode)U(1)))                                            \
	X(end, "sG", cuStreamEndCapture(H(0), OUT(1)))                                                                   \
	X(capturing, "s", cuStreamIsCapturing(H(0), &(CUstreamCaptureStatus){0}))                                        \
	X(capture_mode, "u", exchange_mode((CUstreamCaptureMode)U(0)))                                                   \
	/* graphs: graph, node, what it does, the nodes it comes after */                                                \
	X(graph_create, "G", cuGraphCreate(OUT(0), 0))                                                                   \
	X(graph_clone, "Gg", cuGraphClone(OUT(0), H(1)))                                                                 \
	X(graph_destroy, "g-", cuGraphDestroy(H(0)))                                                                     \
	X(graph_nodes, "guu", get_nodes(H(0), (int)U(1), BYTES(2)))                                                      \
	X(graph_kernel, "gNu*", cuGraphAddKernelNode(OUT(1), H(0), AFTER, KERNEL(2)))                                    \
	X(graph_copy, "gNbhu*", cuGraphAddMemcpyNode(OUT(1), H(0), AFTER, COPY(D(2), H(3), BYTES(4)), current()))        \
	X(graph_memset, "gNbuu*", cuGraphAddMemsetNode(OUT(1), H(0), AFTER, SET(D(2), U(3), BYTES(4)), current()))       \
	X(graph_host, "gNu*",                                                                                            \
	  cuGraphAddHostNode(OUT(1), H(0), AFTER, &(CUDA_HOST_NODE_PARAMS){host_function, DURATION(2)}))                 \
	X(graph_empty, "gN*", cuGraphAddEmptyNode(OUT(1), H(0), AFTER))                                                  \
	X(graph_record, "gNe*", cuGraphAddEventRecordNode(OUT(1), H(0), AFTER, H(2)))                                    \
	X(graph_wait, "gNe*", cuGraphAddEventWaitNode(OUT(1), H(0), AFTER, H(2)))                                        \
	X(graph_child, "gNg*", cuGraphAddChildGraphNode(OUT(1), H(0), AFTER, H(2)))                                      \
	/* the second node comes after the first */                                                                      \
	X(graph_depend, "gnn",                                                                                           \
	  cuGraphAddDependencies(H(0), (CUgraphNode *)&H(1), (CUgraphNode *)&H(2), NULL, 1))                             \
	X(instantiate, "Xgu", cuGraphInstantiate(OUT(0), H(1), step->numbers[2]))                                        \
	X(instantiate_with, "Xgu",                                                                                       \
	  cuGraphInstantiateWithParams(OUT(0), H(1), &(CUDA_GRAPH_INSTANTIATE_PARAMS){.flags = step->numbers[2]}))       \
	X(update, "xg", cuGraphExecUpdate(H(0), H(1), &(CUgraphExecUpdateResultInfo){0}))                                \
	X(set_kernel, "xnu", cuGraphExecKernelNodeSetParams(H(0), H(1), KERNEL(2)))                                      \
	X(upload, "xs", cuGraphUpload(H(0), H(1)))                                                                       \
	X(graph_launch, "xs", cuGraphLaunch(H(0), H(1)))                                                                 \
	X(exec_destroy, "x-", cuGraphExecDestroy(H(0)))

#define FUNCTION(name, takes, ...)                                                                                       \
	static CUresult run_##name(struct step *step)                                                                    \
	{                                                                                                                \
		(void)step;                                                                                              \
		return __VA_ARGS__;                                                                                      \
	}
ALL_STEPS(FUNCTION)

#define ROW(name, takes, ...) {#name, takes, run_##name},
const struct operation STEPS[] = {ALL_STEPS(ROW){NULL, NULL, NULL}};
