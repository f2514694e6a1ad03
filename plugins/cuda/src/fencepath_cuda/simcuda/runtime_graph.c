// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The simulated libcudart: capture and graphs. */
#include "runtime.h"

RUNTIME_BOTH(cudaStreamBeginCapture, _ptsz, (cudaStream_t stream, enum cudaStreamCaptureMode mode),
	     driver->cuStreamBeginCapture(stream, (CUstreamCaptureMode)mode))
RUNTIME_BOTH(cudaStreamEndCapture, _ptsz, (cudaStream_t stream, cudaGraph_t *graph), driver->cuStreamEndCapture(stream, graph))
RUNTIME_BOTH(cudaStreamIsCapturing, _ptsz, (cudaStream_t stream, enum cudaStreamCaptureStatus *status),
	     driver->cuStreamIsCapturing(stream, (CUstreamCaptureStatus *)status))
RUNTIME(cudaThreadExchangeStreamCaptureMode, (enum cudaStreamCaptureMode * mode),
	driver->cuThreadExchangeStreamCaptureMode((CUstreamCaptureMode *)mode))

RUNTIME(cudaGraphCreate, (cudaGraph_t *graph, unsigned int flags), driver->cuGraphCreate(graph, flags))
RUNTIME(cudaGraphDestroy, (cudaGraph_t graph), driver->cuGraphDestroy(graph))
RUNTIME(cudaGraphClone, (cudaGraph_t *clone, cudaGraph_t graph), driver->cuGraphClone(clone, graph))

/* False: the host function stands for no kernel. */
static bool kernel_params(const struct cudaKernelNodeParams *params, CUDA_KERNEL_NODE_PARAMS *out)
{
	*out = (CUDA_KERNEL_NODE_PARAMS){
		.func = runtime_kernel(params->func),
		.gridDimX = params->gridDim.x, .gridDimY = params->gridDim.y, .gridDimZ = params->gridDim.z,
		.blockDimX = params->blockDim.x, .blockDimY = params->blockDim.y, .blockDimZ = params->blockDim.z,
		.sharedMemBytes = params->sharedMemBytes, .kernelParams = params->kernelParams, .extra = params->extra,
	};
	return out->func;
}

static cudaError_t add_kernel(const struct driver *driver, cudaGraphNode_t *node, cudaGraph_t graph,
			      const cudaGraphNode_t *after, size_t count, const struct cudaKernelNodeParams *params)
{
	CUDA_KERNEL_NODE_PARAMS driver_params;

	if (!kernel_params(params, &driver_params))
		return cudaErrorInvalidDeviceFunction;
	return (cudaError_t)driver->cuGraphAddKernelNode(node, graph, after, count, &driver_params);
}

static cudaError_t set_kernel(const struct driver *driver, cudaGraphExec_t exec, cudaGraphNode_t node,
			      const struct cudaKernelNodeParams *params)
{
	CUDA_KERNEL_NODE_PARAMS driver_params;

	if (!kernel_params(params, &driver_params))
		return cudaErrorInvalidDeviceFunction;
	return (cudaError_t)driver->cuGraphExecKernelNodeSetParams(exec, node, &driver_params);
}

static cudaError_t add_set(const struct driver *driver, cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *after,
			   size_t count, const struct cudaMemsetParams *params)
{
	const CUDA_MEMSET_NODE_PARAMS driver_params = {
		.dst = DEVICE(params->dst), .pitch = params->pitch, .value = params->value,
		.elementSize = params->elementSize, .width = params->width, .height = params->height,
	};
	CUcontext context = NULL;

	driver->cuCtxGetCurrent(&context);
	return (cudaError_t)driver->cuGraphAddMemsetNode(node, graph, after, count, &driver_params, context);
}

static cudaError_t add_host(const struct driver *driver, cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *after,
			    size_t count, const struct cudaHostNodeParams *params)
{
	const CUDA_HOST_NODE_PARAMS driver_params = {.fn = params->fn, .userData = params->userData};

	return (cudaError_t)driver->cuGraphAddHostNode(node, graph, after, count, &driver_params);
}

#define PLACE cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *after, size_t count

RUNTIME(cudaGraphAddKernelNode, (PLACE, const struct cudaKernelNodeParams *params),
	add_kernel(driver, node, graph, after, count, params))
RUNTIME(cudaGraphAddMemsetNode, (PLACE, const struct cudaMemsetParams *params),
	add_set(driver, node, graph, after, count, params))
RUNTIME(cudaGraphAddHostNode, (PLACE, const struct cudaHostNodeParams *params),
	add_host(driver, node, graph, after, count, params))
RUNTIME(cudaGraphAddEmptyNode, (PLACE), driver->cuGraphAddEmptyNode(node, graph, after, count))
RUNTIME(cudaGraphAddEventRecordNode, (PLACE, cudaEvent_t event),
	driver->cuGraphAddEventRecordNode(node, graph, after, count, event))
RUNTIME(cudaGraphAddEventWaitNode, (PLACE, cudaEvent_t event),
	driver->cuGraphAddEventWaitNode(node, graph, after, count, event))
RUNTIME(cudaGraphAddChildGraphNode, (PLACE, cudaGraph_t child),
	driver->cuGraphAddChildGraphNode(node, graph, after, count, child))
RUNTIME(cudaGraphAddDependencies,
	(cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to, const cudaGraphEdgeData *data, size_t count),
	driver->cuGraphAddDependencies(graph, from, to, (const CUgraphEdgeData *)data, count))

RUNTIME(cudaGraphInstantiate, (cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags),
	driver->cuGraphInstantiate(exec, graph, flags))
RUNTIME(cudaGraphInstantiateWithFlags, (cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags),
	driver->cuGraphInstantiate(exec, graph, flags))
RUNTIME_BOTH(cudaGraphInstantiateWithParams, _ptsz,
	     (cudaGraphExec_t *exec, cudaGraph_t graph, cudaGraphInstantiateParams *params),
	     driver->cuGraphInstantiateWithParams(exec, graph, (CUDA_GRAPH_INSTANTIATE_PARAMS *)params))
RUNTIME(cudaGraphExecUpdate, (cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo *info),
	driver->cuGraphExecUpdate(exec, graph, (CUgraphExecUpdateResultInfo *)info))
RUNTIME(cudaGraphExecKernelNodeSetParams,
	(cudaGraphExec_t exec, cudaGraphNode_t node, const struct cudaKernelNodeParams *params),
	set_kernel(driver, exec, node, params))
RUNTIME_BOTH(cudaGraphUpload, _ptsz, (cudaGraphExec_t exec, cudaStream_t stream), driver->cuGraphUpload(exec, stream))
RUNTIME_BOTH(cudaGraphLaunch, _ptsz, (cudaGraphExec_t exec, cudaStream_t stream), driver->cuGraphLaunch(exec, stream))
RUNTIME(cudaGraphExecDestroy, (cudaGraphExec_t exec), driver->cuGraphExecDestroy(exec))
