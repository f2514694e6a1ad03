// SPDX-License-Identifier: Apache-2.0
/*
 * A program that calls functions with the structs of NVIDIA's own headers, and, with -DLIBRARY, a library of those
 * functions that does nothing but hand out what the pointers ask for. test_headers_live.py says what a recording must have.
 */
#ifdef LIBRARY

typedef unsigned long word;

/* Reads a text, as the real one does. */
static void touch(const char *text)
{
    while (*(volatile const char *)text)
        text++;
}

#define DOES_NOTHING(name) int name(void) { return 0; }
#define GIVES(name, handle) int name(word *out) { *out = handle; return 0; }

#ifdef RUNTIME
DOES_NOTHING(cudaLaunchKernel)
DOES_NOTHING(cudaLaunchKernelExC)
DOES_NOTHING(cudaMemcpy3D)
DOES_NOTHING(cudaMemcpy3DPeerAsync)
DOES_NOTHING(cudaGraphAddKernelNode)
DOES_NOTHING(cudaGraphExecKernelNodeSetParams)
DOES_NOTHING(cudaSetDevice)
void __cudaRegisterFunction(void **handle, const char *host, char *device) { touch(device); }
#else
DOES_NOTHING(cuLaunchKernelEx)
DOES_NOTHING(cuLaunchCooperativeKernelMultiDevice)
DOES_NOTHING(cuMemcpy2D_v2)
DOES_NOTHING(cuMemcpy3D_v2)
DOES_NOTHING(cuMemPrefetchAsync_v2)
DOES_NOTHING(cuStreamWaitValue64_v2)
DOES_NOTHING(cuWaitExternalSemaphoresAsync)
DOES_NOTHING(cuThreadExchangeStreamCaptureMode)
DOES_NOTHING(cuGraphAddDependencies_v2)
GIVES(cuGraphAddKernelNode, 0x7001)
GIVES(cuGraphAddKernelNode_v2, 0x7002)
GIVES(cuGraphAddNode_v2, 0x7003)
GIVES(cuGraphAddEmptyNode, 0x7004)
GIVES(cuIpcOpenMemHandle_v2, 0xd000)
GIVES(cuCtxCreate_v4, 0xc000)
GIVES(cuKernelGetFunction, 0xf002)

int cuModuleGetFunction(word *out, word module, const char *name)
{
    touch(name);
    *out = 0xf001;
    return 0;
}

int cuLibraryGetKernel(word *out, word library, const char *name)
{
    touch(name);
    *out = 0xe001;
    return 500;
}

int cuGetProcAddress_v2(const char *name, word *out, int version, word flags, int *status)
{
    touch(name);
    *out = 0xadd0;
    *status = 2;
    return 0;
}

int cuEventElapsedTime_v2(float *milliseconds, word start, word end)
{
    *milliseconds = 1.5f;
    return 0;
}
#endif

#else

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <string.h>

/* Of crt/host_runtime.h, which is for C++. */
extern void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int limit, void *tid, void *bid,
                                   dim3 *block, dim3 *grid, int *size);

static const dim3 grid = {7, 65535, 3}, block = {128, 2, 64};

static void launches(void)
{
    CUlaunchConfig config = {7, 65535, 3, 128, 2, 64, 4096, (CUstream)0xabc0, 0, 5};
    CUDA_LAUNCH_PARAMS each[2] = {{(CUfunction)0xf, 7, 65535, 3, 128, 2, 64, 4096, (CUstream)0xabc0, 0}, {(CUfunction)0xe}};
    cudaLaunchConfig_t other = {grid, block, 49152, (cudaStream_t)0xabc0, 0, 0};

    cuLaunchKernelEx(&config, (CUfunction)0xf, 0, 0);
    cuLaunchCooperativeKernelMultiDevice(each, 2, 0);
    cudaLaunchKernel((void *)0xf00, grid, block, 0, 49152, (cudaStream_t)0xabc0);
    cudaLaunchKernelExC(&other, (void *)0xf00, 0);
}

static void copies(void)
{
    CUDA_MEMCPY2D flat;
    CUDA_MEMCPY3D box;
    struct cudaMemcpy3DParms parms;
    struct cudaMemcpy3DPeerParms peer;
    CUmemLocation location;

    memset(&flat, 0x5a, sizeof flat);
    flat.srcMemoryType = CU_MEMORYTYPE_HOST, flat.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    flat.WidthInBytes = 100, flat.Height = 7;
    cuMemcpy2D_v2(&flat);
    memset(&box, 0x5a, sizeof box);
    box.srcMemoryType = CU_MEMORYTYPE_DEVICE, box.dstMemoryType = CU_MEMORYTYPE_HOST;
    box.WidthInBytes = 100, box.Height = 7, box.Depth = 3;
    cuMemcpy3D_v2(&box);
    memset(&parms, 0x5a, sizeof parms);
    parms.extent.width = 100, parms.extent.height = 7, parms.extent.depth = 3, parms.kind = cudaMemcpyHostToDevice;
    cudaMemcpy3D(&parms);
    memset(&peer, 0x5a, sizeof peer);
    peer.extent.width = 100, peer.extent.height = 7, peer.extent.depth = 2;
    cudaMemcpy3DPeerAsync(&peer, (cudaStream_t)0xabc0);
    memset(&location, 0, sizeof location);
    location.type = CU_MEM_LOCATION_TYPE_DEVICE, location.id = 3;
    cuMemPrefetchAsync_v2(0xd000, 512, location, 0, (CUstream)0xabc0);
}

static void graphs(void)
{
    CUgraphNode node, nodes[6] = {(CUgraphNode)1, (CUgraphNode)2, (CUgraphNode)3, (CUgraphNode)4, (CUgraphNode)5, (CUgraphNode)6};
    CUDA_KERNEL_NODE_PARAMS_v1 first = {(CUfunction)0xf, 7, 65535, 3, 128, 2, 64, 4096, 0, 0};
    CUDA_KERNEL_NODE_PARAMS second = {0, 7, 65535, 3, 128, 2, 64, 4096, 0, 0, (CUkernel)0xe, 0};
    CUgraphNodeParams any;
    struct cudaKernelNodeParams runtime = {(void *)0xf00, grid, block, 4096, 0, 0};

    cuGraphAddKernelNode(&node, (CUgraph)0x6a, nodes, 1, &first);
    cuGraphAddKernelNode_v2(&node, (CUgraph)0x6a, nodes, 6, &second);
    cuGraphAddEmptyNode(&node, (CUgraph)0x6a, 0, 0);
    memset(&any, 0, sizeof any);
    any.type = CU_GRAPH_NODE_TYPE_KERNEL, any.kernel.kern = (CUkernel)0xe;
    cuGraphAddNode_v2(&node, (CUgraph)0x6a, nodes, 0, 2, &any);
    memset(&any, 0, sizeof any);
    any.type = CU_GRAPH_NODE_TYPE_GRAPH, any.graph.graph = (CUgraph)0x6b;
    cuGraphAddNode_v2(&node, (CUgraph)0x6a, nodes, 0, 3, &any);
    memset(&any, 0, sizeof any);
    any.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT, any.eventWait.event = (CUevent)0xe0;
    cuGraphAddNode_v2(&node, (CUgraph)0x6a, nodes, 0, 4, &any);
    cuGraphAddDependencies_v2((CUgraph)0x6a, nodes, nodes + 1, 0, 5);
    cudaGraphAddKernelNode((cudaGraphNode_t *)&node, (cudaGraph_t)0x6a, 0, 0, &runtime);
    cudaGraphExecKernelNodeSetParams((cudaGraphExec_t)0xec, (cudaGraphNode_t)0x70, &runtime);
}

static void names(void)
{
    CUfunction function;
    CUkernel kernel;
    CUdriverProcAddressQueryResult status;
    void *address;

    cuModuleGetFunction(&function, (CUmodule)0x30, "_Z4axpyPfS_f");
    cuLibraryGetKernel(&kernel, (CUlibrary)0x40, "caf\xc3\xa9 \xff");
    cuKernelGetFunction(&function, (CUkernel)0xe001);
    cuGetProcAddress_v2("cuLaunchKernel", &address, 12040, 2, &status);
    __cudaRegisterFunction(0, (const char *)0xf00, "_Z4axpyPfS_f", "axpy", -1, 0, 0, 0, 0, 0);
}

static void others(void)
{
    CUdeviceptr pointer;
    CUipcMemHandle handle;
    CUcontext context;
    CUctxCreateParams params;
    CUexternalSemaphore semaphores[2] = {(CUexternalSemaphore)0x5e, (CUexternalSemaphore)0x5f};
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    float milliseconds;

    memset(&handle, 0x5a, sizeof handle);
    cuIpcOpenMemHandle_v2(&pointer, handle, 1);
    cuCtxCreate_v4(&context, &params, 8, 1);
    cuStreamWaitValue64_v2((CUstream)0xabc0, 0xd000, 1ull << 40, 1);
    cuWaitExternalSemaphoresAsync(semaphores, 0, 2, (CUstream)0xabc0);
    cuThreadExchangeStreamCaptureMode(&mode);
    cuEventElapsedTime_v2(&milliseconds, (CUevent)0xe1, (CUevent)0xe2);
    cudaSetDevice(1);
}

int main(void)
{
    launches();
    copies();
    graphs();
    names();
    others();
    return 0;
}
#endif
