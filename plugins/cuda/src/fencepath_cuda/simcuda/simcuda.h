// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The part of the CUDA driver and runtime API that the simulated libraries have.
 *
 * Names, types and values are those of NVIDIA's cuda.h and cuda_runtime_api.h (CUDA 12.9), so that a program or a probe
 * meets the same ABI. Compiled with SIMCUDA_NVIDIA_HEADERS, NVIDIA's own headers take the place of what is written here,
 * and the compiler compares: tests/simcuda does so where they are installed.
 */
#ifndef SIMCUDA_H
#define SIMCUDA_H

#include <stddef.h>
#include <stdint.h>

#define SIMCUDA_API __attribute__((visibility("default")))

#ifdef SIMCUDA_NVIDIA_HEADERS
#define __CUDA_API_VERSION_INTERNAL /* declares every version of a function under its exported name */
#include <cuda.h>
#else

typedef enum cudaError_enum {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_INVALID_VALUE = 1,
	CUDA_ERROR_OUT_OF_MEMORY = 2,
	CUDA_ERROR_NOT_INITIALIZED = 3,
	CUDA_ERROR_DEINITIALIZED = 4,
	CUDA_ERROR_NO_DEVICE = 100,
	CUDA_ERROR_INVALID_DEVICE = 101,
	CUDA_ERROR_INVALID_CONTEXT = 201,
	CUDA_ERROR_INVALID_HANDLE = 400,
	CUDA_ERROR_NOT_FOUND = 500,
	CUDA_ERROR_NOT_READY = 600,
	CUDA_ERROR_ILLEGAL_ADDRESS = 700,
	CUDA_ERROR_LAUNCH_FAILED = 719,
	CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
	CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
	CUDA_ERROR_ILLEGAL_STATE = 401,
	CUDA_ERROR_UNKNOWN = 999
} CUresult;

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef uint64_t cuuint64_t;
typedef void (*CUhostFn)(void *userData);

#define CU_STREAM_LEGACY ((CUstream)0x1)
#define CU_STREAM_PER_THREAD ((CUstream)0x2)
#define CU_LAUNCH_PARAM_END ((void *)0x00)
#define CU_LAUNCH_PARAM_BUFFER_POINTER ((void *)0x01)
#define CU_LAUNCH_PARAM_BUFFER_SIZE ((void *)0x02)

enum { CU_STREAM_DEFAULT = 0, CU_STREAM_NON_BLOCKING = 1 };
enum { CU_EVENT_DEFAULT = 0, CU_EVENT_BLOCKING_SYNC = 1, CU_EVENT_DISABLE_TIMING = 2 };
enum { CU_CTX_SCHED_AUTO = 0, CU_CTX_SCHED_SPIN = 1, CU_CTX_SCHED_YIELD = 2, CU_CTX_SCHED_BLOCKING_SYNC = 4 };

typedef enum CUstreamCaptureMode_enum {
	CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
	CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
	CU_STREAM_CAPTURE_MODE_RELAXED = 2
} CUstreamCaptureMode;

typedef enum CUstreamCaptureStatus_enum {
	CU_STREAM_CAPTURE_STATUS_NONE = 0,
	CU_STREAM_CAPTURE_STATUS_ACTIVE = 1,
	CU_STREAM_CAPTURE_STATUS_INVALIDATED = 2
} CUstreamCaptureStatus;

typedef enum CUdriverProcAddressQueryResult_enum {
	CU_GET_PROC_ADDRESS_SUCCESS = 0,
	CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND = 1
} CUdriverProcAddressQueryResult;

typedef struct CUlaunchAttribute_st {
	unsigned int id;
	char pad[4];
	char value[64];
} CUlaunchAttribute;

typedef struct CUlaunchConfig_st {
	unsigned int gridDimX, gridDimY, gridDimZ;
	unsigned int blockDimX, blockDimY, blockDimZ;
	unsigned int sharedMemBytes;
	CUstream hStream;
	CUlaunchAttribute *attrs;
	unsigned int numAttrs;
} CUlaunchConfig;

CUresult cuInit(unsigned int flags);
CUresult cuDriverGetVersion(int *version);
CUresult cuDeviceGet(CUdevice *device, int ordinal);
CUresult cuDeviceGetCount(int *count);
CUresult cuDeviceGetName(char *name, int length, CUdevice device);
CUresult cuGetErrorName(CUresult error, const char **name);
CUresult cuGetErrorString(CUresult error, const char **text);
CUresult cuGetProcAddress_v2(const char *symbol, void **function, int cuda_version, cuuint64_t flags,
			     CUdriverProcAddressQueryResult *status);

CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device);
CUresult cuCtxDestroy_v2(CUcontext context);
CUresult cuCtxGetCurrent(CUcontext *context);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuCtxPushCurrent_v2(CUcontext context);
CUresult cuCtxPopCurrent_v2(CUcontext *context);
CUresult cuCtxGetDevice(CUdevice *device);
CUresult cuCtxSynchronize(void);
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);

CUresult cuModuleLoadData(CUmodule *module, const void *image);
CUresult cuModuleUnload(CUmodule module);
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name);
CUresult cuFuncGetName(const char **name, CUfunction function);

CUresult cuStreamCreate(CUstream *stream, unsigned int flags);
CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority);
CUresult cuStreamDestroy_v2(CUstream stream);
CUresult cuStreamSynchronize(CUstream stream);
CUresult cuStreamQuery(CUstream stream);
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags);

CUresult cuEventCreate(CUevent *event, unsigned int flags);
CUresult cuEventDestroy_v2(CUevent event);
CUresult cuEventRecord(CUevent event, CUstream stream);
CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags);
CUresult cuEventSynchronize(CUevent event);
CUresult cuEventQuery(CUevent event);
CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end);

CUresult cuMemAlloc_v2(CUdeviceptr *device, size_t bytes);
CUresult cuMemFree_v2(CUdeviceptr device);
CUresult cuMemAllocHost_v2(void **host, size_t bytes);
CUresult cuMemHostAlloc(void **host, size_t bytes, unsigned int flags);
CUresult cuMemFreeHost(void *host);
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes);
CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes);
CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes);
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream);
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream);
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream);

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
			unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,
			CUstream stream, void **params, void **extra);
CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra);
CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data);

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode);
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph);
CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status);
CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags);
CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream);
CUresult cuGraphExecDestroy(CUgraphExec exec);
CUresult cuGraphDestroy(CUgraph graph);

#endif /* SIMCUDA_NVIDIA_HEADERS */

/* Every driver function, under the name cuGetProcAddress knows it by and the one it is exported by. */
#define SIMCUDA_DRIVER_FUNCTIONS(X)                                                                                      \
	X(cuInit, cuInit)                                                                                                \
	X(cuDriverGetVersion, cuDriverGetVersion)                                                                        \
	X(cuDeviceGet, cuDeviceGet)                                                                                      \
	X(cuDeviceGetCount, cuDeviceGetCount)                                                                            \
	X(cuDeviceGetName, cuDeviceGetName)                                                                              \
	X(cuGetErrorName, cuGetErrorName)                                                                                \
	X(cuGetErrorString, cuGetErrorString)                                                                            \
	X(cuGetProcAddress, cuGetProcAddress_v2)                                                                         \
	X(cuCtxCreate, cuCtxCreate_v2)                                                                                   \
	X(cuCtxDestroy, cuCtxDestroy_v2)                                                                                 \
	X(cuCtxGetCurrent, cuCtxGetCurrent)                                                                              \
	X(cuCtxSetCurrent, cuCtxSetCurrent)                                                                              \
	X(cuCtxPushCurrent, cuCtxPushCurrent_v2)                                                                         \
	X(cuCtxPopCurrent, cuCtxPopCurrent_v2)                                                                           \
	X(cuCtxGetDevice, cuCtxGetDevice)                                                                                \
	X(cuCtxSynchronize, cuCtxSynchronize)                                                                            \
	X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain)                                                            \
	X(cuModuleLoadData, cuModuleLoadData)                                                                            \
	X(cuModuleUnload, cuModuleUnload)                                                                                \
	X(cuModuleGetFunction, cuModuleGetFunction)                                                                      \
	X(cuFuncGetName, cuFuncGetName)                                                                                  \
	X(cuStreamCreate, cuStreamCreate)                                                                                \
	X(cuStreamCreateWithPriority, cuStreamCreateWithPriority)                                                        \
	X(cuStreamDestroy, cuStreamDestroy_v2)                                                                           \
	X(cuStreamSynchronize, cuStreamSynchronize)                                                                      \
	X(cuStreamQuery, cuStreamQuery)                                                                                  \
	X(cuStreamWaitEvent, cuStreamWaitEvent)                                                                          \
	X(cuEventCreate, cuEventCreate)                                                                                  \
	X(cuEventDestroy, cuEventDestroy_v2)                                                                             \
	X(cuEventRecord, cuEventRecord)                                                                                  \
	X(cuEventRecordWithFlags, cuEventRecordWithFlags)                                                                \
	X(cuEventSynchronize, cuEventSynchronize)                                                                        \
	X(cuEventQuery, cuEventQuery)                                                                                    \
	X(cuEventElapsedTime, cuEventElapsedTime)                                                                        \
	X(cuMemAlloc, cuMemAlloc_v2)                                                                                     \
	X(cuMemFree, cuMemFree_v2)                                                                                       \
	X(cuMemAllocHost, cuMemAllocHost_v2)                                                                             \
	X(cuMemHostAlloc, cuMemHostAlloc)                                                                                \
	X(cuMemFreeHost, cuMemFreeHost)                                                                                  \
	X(cuMemcpyHtoD, cuMemcpyHtoD_v2)                                                                                 \
	X(cuMemcpyDtoH, cuMemcpyDtoH_v2)                                                                                 \
	X(cuMemcpyDtoD, cuMemcpyDtoD_v2)                                                                                 \
	X(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2)                                                                       \
	X(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2)                                                                       \
	X(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2)                                                                       \
	X(cuMemcpyAsync, cuMemcpyAsync)                                                                                  \
	X(cuMemsetD8Async, cuMemsetD8Async)                                                                              \
	X(cuLaunchKernel, cuLaunchKernel)                                                                                \
	X(cuLaunchKernelEx, cuLaunchKernelEx)                                                                            \
	X(cuLaunchHostFunc, cuLaunchHostFunc)                                                                            \
	X(cuStreamBeginCapture, cuStreamBeginCapture_v2)                                                                 \
	X(cuStreamEndCapture, cuStreamEndCapture)                                                                        \
	X(cuStreamIsCapturing, cuStreamIsCapturing)                                                                      \
	X(cuGraphInstantiate, cuGraphInstantiateWithFlags)                                                               \
	X(cuGraphLaunch, cuGraphLaunch)                                                                                  \
	X(cuGraphExecDestroy, cuGraphExecDestroy)                                                                        \
	X(cuGraphDestroy, cuGraphDestroy)

#endif
