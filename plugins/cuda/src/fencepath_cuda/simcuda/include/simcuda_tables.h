// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// Made by tests/simcuda/headers.py from functions.txt and the headers of CUDA 13.0; not to be edited.

/* Each driver function by the name cuGetProcAddress knows, as it is exported, and for per-thread default streams. */
#define SIMCUDA_DRIVER_FUNCTIONS(X) \
	X(cuInit, cuInit, cuInit) \
	X(cuDriverGetVersion, cuDriverGetVersion, cuDriverGetVersion) \
	X(cuDeviceGet, cuDeviceGet, cuDeviceGet) \
	X(cuDeviceGetCount, cuDeviceGetCount, cuDeviceGetCount) \
	X(cuDeviceGetName, cuDeviceGetName, cuDeviceGetName) \
	X(cuDeviceGetAttribute, cuDeviceGetAttribute, cuDeviceGetAttribute) \
	X(cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool) \
	X(cuDeviceCanAccessPeer, cuDeviceCanAccessPeer, cuDeviceCanAccessPeer) \
	X(cuGetErrorName, cuGetErrorName, cuGetErrorName) \
	X(cuGetErrorString, cuGetErrorString, cuGetErrorString) \
	X(cuGetProcAddress, cuGetProcAddress_v2, cuGetProcAddress_v2) \
	X(cuCtxCreate, cuCtxCreate_v4, cuCtxCreate_v4) \
	X(cuCtxDestroy, cuCtxDestroy_v2, cuCtxDestroy_v2) \
	X(cuCtxGetCurrent, cuCtxGetCurrent, cuCtxGetCurrent) \
	X(cuCtxSetCurrent, cuCtxSetCurrent, cuCtxSetCurrent) \
	X(cuCtxPushCurrent, cuCtxPushCurrent_v2, cuCtxPushCurrent_v2) \
	X(cuCtxPopCurrent, cuCtxPopCurrent_v2, cuCtxPopCurrent_v2) \
	X(cuCtxGetDevice, cuCtxGetDevice, cuCtxGetDevice) \
	X(cuCtxGetFlags, cuCtxGetFlags, cuCtxGetFlags) \
	X(cuCtxSynchronize, cuCtxSynchronize, cuCtxSynchronize) \
	X(cuCtxEnablePeerAccess, cuCtxEnablePeerAccess, cuCtxEnablePeerAccess) \
	X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain) \
	X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease_v2) \
	X(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset_v2) \
	X(cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState) \
	X(cuModuleLoadData, cuModuleLoadData, cuModuleLoadData) \
	X(cuModuleUnload, cuModuleUnload, cuModuleUnload) \
	X(cuModuleGetFunction, cuModuleGetFunction, cuModuleGetFunction) \
	X(cuFuncGetName, cuFuncGetName, cuFuncGetName) \
	X(cuLibraryLoadData, cuLibraryLoadData, cuLibraryLoadData) \
	X(cuLibraryUnload, cuLibraryUnload, cuLibraryUnload) \
	X(cuLibraryGetKernel, cuLibraryGetKernel, cuLibraryGetKernel) \
	X(cuKernelGetFunction, cuKernelGetFunction, cuKernelGetFunction) \
	X(cuKernelGetName, cuKernelGetName, cuKernelGetName) \
	X(cuStreamCreate, cuStreamCreate, cuStreamCreate) \
	X(cuStreamCreateWithPriority, cuStreamCreateWithPriority, cuStreamCreateWithPriority) \
	X(cuStreamDestroy, cuStreamDestroy_v2, cuStreamDestroy_v2) \
	X(cuStreamSynchronize, cuStreamSynchronize, cuStreamSynchronize_ptsz) \
	X(cuStreamQuery, cuStreamQuery, cuStreamQuery_ptsz) \
	X(cuStreamWaitEvent, cuStreamWaitEvent, cuStreamWaitEvent_ptsz) \
	X(cuStreamGetPriority, cuStreamGetPriority, cuStreamGetPriority_ptsz) \
	X(cuStreamGetFlags, cuStreamGetFlags, cuStreamGetFlags_ptsz) \
	X(cuStreamGetCtx, cuStreamGetCtx, cuStreamGetCtx_ptsz) \
	X(cuStreamWaitValue32, cuStreamWaitValue32_v2, cuStreamWaitValue32_v2_ptsz) \
	X(cuStreamWriteValue32, cuStreamWriteValue32_v2, cuStreamWriteValue32_v2_ptsz) \
	X(cuEventCreate, cuEventCreate, cuEventCreate) \
	X(cuEventDestroy, cuEventDestroy_v2, cuEventDestroy_v2) \
	X(cuEventRecord, cuEventRecord, cuEventRecord_ptsz) \
	X(cuEventRecordWithFlags, cuEventRecordWithFlags, cuEventRecordWithFlags_ptsz) \
	X(cuEventSynchronize, cuEventSynchronize, cuEventSynchronize) \
	X(cuEventQuery, cuEventQuery, cuEventQuery) \
	X(cuEventElapsedTime, cuEventElapsedTime_v2, cuEventElapsedTime_v2) \
	X(cuMemAlloc, cuMemAlloc_v2, cuMemAlloc_v2) \
	X(cuMemAllocManaged, cuMemAllocManaged, cuMemAllocManaged) \
	X(cuMemFree, cuMemFree_v2, cuMemFree_v2) \
	X(cuMemAllocHost, cuMemAllocHost_v2, cuMemAllocHost_v2) \
	X(cuMemHostAlloc, cuMemHostAlloc, cuMemHostAlloc) \
	X(cuMemFreeHost, cuMemFreeHost, cuMemFreeHost) \
	X(cuMemPrefetchAsync, cuMemPrefetchAsync_v2, cuMemPrefetchAsync_v2_ptsz) \
	X(cuMemAllocAsync, cuMemAllocAsync, cuMemAllocAsync_ptsz) \
	X(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync_ptsz) \
	X(cuMemFreeAsync, cuMemFreeAsync, cuMemFreeAsync_ptsz) \
	X(cuMemPoolCreate, cuMemPoolCreate, cuMemPoolCreate) \
	X(cuMemPoolDestroy, cuMemPoolDestroy, cuMemPoolDestroy) \
	X(cuMemPoolTrimTo, cuMemPoolTrimTo, cuMemPoolTrimTo) \
	X(cuMemcpy, cuMemcpy, cuMemcpy_ptds) \
	X(cuMemcpyAsync, cuMemcpyAsync, cuMemcpyAsync_ptsz) \
	X(cuMemcpyHtoD, cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds) \
	X(cuMemcpyDtoH, cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds) \
	X(cuMemcpyDtoD, cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds) \
	X(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2_ptsz) \
	X(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2_ptsz) \
	X(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2_ptsz) \
	X(cuMemcpyPeer, cuMemcpyPeer, cuMemcpyPeer_ptds) \
	X(cuMemcpyPeerAsync, cuMemcpyPeerAsync, cuMemcpyPeerAsync_ptsz) \
	X(cuMemsetD8, cuMemsetD8_v2, cuMemsetD8_v2_ptds) \
	X(cuMemsetD8Async, cuMemsetD8Async, cuMemsetD8Async_ptsz) \
	X(cuMemsetD32, cuMemsetD32_v2, cuMemsetD32_v2_ptds) \
	X(cuMemsetD32Async, cuMemsetD32Async, cuMemsetD32Async_ptsz) \
	X(cuLaunchKernel, cuLaunchKernel, cuLaunchKernel_ptsz) \
	X(cuLaunchKernelEx, cuLaunchKernelEx, cuLaunchKernelEx_ptsz) \
	X(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel, cuLaunchCooperativeKernel_ptsz) \
	X(cuLaunchHostFunc, cuLaunchHostFunc, cuLaunchHostFunc_ptsz) \
	X(cuStreamBeginCapture, cuStreamBeginCapture_v2, cuStreamBeginCapture_v2_ptsz) \
	X(cuStreamEndCapture, cuStreamEndCapture, cuStreamEndCapture_ptsz) \
	X(cuStreamIsCapturing, cuStreamIsCapturing, cuStreamIsCapturing_ptsz) \
	X(cuStreamGetCaptureInfo, cuStreamGetCaptureInfo_v3, cuStreamGetCaptureInfo_v3_ptsz) \
	X(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode) \
	X(cuGraphCreate, cuGraphCreate, cuGraphCreate) \
	X(cuGraphDestroy, cuGraphDestroy, cuGraphDestroy) \
	X(cuGraphClone, cuGraphClone, cuGraphClone) \
	X(cuGraphNodeFindInClone, cuGraphNodeFindInClone, cuGraphNodeFindInClone) \
	X(cuGraphGetNodes, cuGraphGetNodes, cuGraphGetNodes) \
	X(cuGraphAddKernelNode, cuGraphAddKernelNode_v2, cuGraphAddKernelNode_v2) \
	X(cuGraphAddMemcpyNode, cuGraphAddMemcpyNode, cuGraphAddMemcpyNode) \
	X(cuGraphAddMemsetNode, cuGraphAddMemsetNode, cuGraphAddMemsetNode) \
	X(cuGraphAddHostNode, cuGraphAddHostNode, cuGraphAddHostNode) \
	X(cuGraphAddEmptyNode, cuGraphAddEmptyNode, cuGraphAddEmptyNode) \
	X(cuGraphAddEventRecordNode, cuGraphAddEventRecordNode, cuGraphAddEventRecordNode) \
	X(cuGraphAddEventWaitNode, cuGraphAddEventWaitNode, cuGraphAddEventWaitNode) \
	X(cuGraphAddChildGraphNode, cuGraphAddChildGraphNode, cuGraphAddChildGraphNode) \
	X(cuGraphAddDependencies, cuGraphAddDependencies_v2, cuGraphAddDependencies_v2) \
	X(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags) \
	X(cuGraphInstantiate, cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags) \
	X(cuGraphInstantiateWithParams, cuGraphInstantiateWithParams, cuGraphInstantiateWithParams_ptsz) \
	X(cuGraphExecUpdate, cuGraphExecUpdate_v2, cuGraphExecUpdate_v2) \
	X(cuGraphExecKernelNodeSetParams, cuGraphExecKernelNodeSetParams_v2, cuGraphExecKernelNodeSetParams_v2) \
	X(cuGraphUpload, cuGraphUpload, cuGraphUpload_ptsz) \
	X(cuGraphLaunch, cuGraphLaunch, cuGraphLaunch_ptsz) \
	X(cuGraphExecDestroy, cuGraphExecDestroy, cuGraphExecDestroy)

/* Every CUresult. */
#define SIMCUDA_RESULTS(X) \
	X(CUDA_SUCCESS, 0) \
	X(CUDA_ERROR_INVALID_VALUE, 1) \
	X(CUDA_ERROR_OUT_OF_MEMORY, 2) \
	X(CUDA_ERROR_NOT_INITIALIZED, 3) \
	X(CUDA_ERROR_DEINITIALIZED, 4) \
	X(CUDA_ERROR_PROFILER_DISABLED, 5) \
	X(CUDA_ERROR_PROFILER_NOT_INITIALIZED, 6) \
	X(CUDA_ERROR_PROFILER_ALREADY_STARTED, 7) \
	X(CUDA_ERROR_PROFILER_ALREADY_STOPPED, 8) \
	X(CUDA_ERROR_STUB_LIBRARY, 34) \
	X(CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER, 36) \
	X(CUDA_ERROR_DEVICE_UNAVAILABLE, 46) \
	X(CUDA_ERROR_NO_DEVICE, 100) \
	X(CUDA_ERROR_INVALID_DEVICE, 101) \
	X(CUDA_ERROR_DEVICE_NOT_LICENSED, 102) \
	X(CUDA_ERROR_INVALID_IMAGE, 200) \
	X(CUDA_ERROR_INVALID_CONTEXT, 201) \
	X(CUDA_ERROR_CONTEXT_ALREADY_CURRENT, 202) \
	X(CUDA_ERROR_MAP_FAILED, 205) \
	X(CUDA_ERROR_UNMAP_FAILED, 206) \
	X(CUDA_ERROR_ARRAY_IS_MAPPED, 207) \
	X(CUDA_ERROR_ALREADY_MAPPED, 208) \
	X(CUDA_ERROR_NO_BINARY_FOR_GPU, 209) \
	X(CUDA_ERROR_ALREADY_ACQUIRED, 210) \
	X(CUDA_ERROR_NOT_MAPPED, 211) \
	X(CUDA_ERROR_NOT_MAPPED_AS_ARRAY, 212) \
	X(CUDA_ERROR_NOT_MAPPED_AS_POINTER, 213) \
	X(CUDA_ERROR_ECC_UNCORRECTABLE, 214) \
	X(CUDA_ERROR_UNSUPPORTED_LIMIT, 215) \
	X(CUDA_ERROR_CONTEXT_ALREADY_IN_USE, 216) \
	X(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, 217) \
	X(CUDA_ERROR_INVALID_PTX, 218) \
	X(CUDA_ERROR_INVALID_GRAPHICS_CONTEXT, 219) \
	X(CUDA_ERROR_NVLINK_UNCORRECTABLE, 220) \
	X(CUDA_ERROR_JIT_COMPILER_NOT_FOUND, 221) \
	X(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, 222) \
	X(CUDA_ERROR_JIT_COMPILATION_DISABLED, 223) \
	X(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY, 224) \
	X(CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC, 225) \
	X(CUDA_ERROR_CONTAINED, 226) \
	X(CUDA_ERROR_INVALID_SOURCE, 300) \
	X(CUDA_ERROR_FILE_NOT_FOUND, 301) \
	X(CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND, 302) \
	X(CUDA_ERROR_SHARED_OBJECT_INIT_FAILED, 303) \
	X(CUDA_ERROR_OPERATING_SYSTEM, 304) \
	X(CUDA_ERROR_INVALID_HANDLE, 400) \
	X(CUDA_ERROR_ILLEGAL_STATE, 401) \
	X(CUDA_ERROR_LOSSY_QUERY, 402) \
	X(CUDA_ERROR_NOT_FOUND, 500) \
	X(CUDA_ERROR_NOT_READY, 600) \
	X(CUDA_ERROR_ILLEGAL_ADDRESS, 700) \
	X(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, 701) \
	X(CUDA_ERROR_LAUNCH_TIMEOUT, 702) \
	X(CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING, 703) \
	X(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, 704) \
	X(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, 705) \
	X(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, 708) \
	X(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709) \
	X(CUDA_ERROR_ASSERT, 710) \
	X(CUDA_ERROR_TOO_MANY_PEERS, 711) \
	X(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, 712) \
	X(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, 713) \
	X(CUDA_ERROR_HARDWARE_STACK_ERROR, 714) \
	X(CUDA_ERROR_ILLEGAL_INSTRUCTION, 715) \
	X(CUDA_ERROR_MISALIGNED_ADDRESS, 716) \
	X(CUDA_ERROR_INVALID_ADDRESS_SPACE, 717) \
	X(CUDA_ERROR_INVALID_PC, 718) \
	X(CUDA_ERROR_LAUNCH_FAILED, 719) \
	X(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, 720) \
	X(CUDA_ERROR_TENSOR_MEMORY_LEAK, 721) \
	X(CUDA_ERROR_NOT_PERMITTED, 800) \
	X(CUDA_ERROR_NOT_SUPPORTED, 801) \
	X(CUDA_ERROR_SYSTEM_NOT_READY, 802) \
	X(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, 803) \
	X(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, 804) \
	X(CUDA_ERROR_MPS_CONNECTION_FAILED, 805) \
	X(CUDA_ERROR_MPS_RPC_FAILURE, 806) \
	X(CUDA_ERROR_MPS_SERVER_NOT_READY, 807) \
	X(CUDA_ERROR_MPS_MAX_CLIENTS_REACHED, 808) \
	X(CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED, 809) \
	X(CUDA_ERROR_MPS_CLIENT_TERMINATED, 810) \
	X(CUDA_ERROR_CDP_NOT_SUPPORTED, 811) \
	X(CUDA_ERROR_CDP_VERSION_MISMATCH, 812) \
	X(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 900) \
	X(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, 901) \
	X(CUDA_ERROR_STREAM_CAPTURE_MERGE, 902) \
	X(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, 903) \
	X(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, 904) \
	X(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, 905) \
	X(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, 906) \
	X(CUDA_ERROR_CAPTURED_EVENT, 907) \
	X(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, 908) \
	X(CUDA_ERROR_TIMEOUT, 909) \
	X(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, 910) \
	X(CUDA_ERROR_EXTERNAL_DEVICE, 911) \
	X(CUDA_ERROR_INVALID_CLUSTER_SIZE, 912) \
	X(CUDA_ERROR_FUNCTION_NOT_LOADED, 913) \
	X(CUDA_ERROR_INVALID_RESOURCE_TYPE, 914) \
	X(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, 915) \
	X(CUDA_ERROR_KEY_ROTATION, 916) \
	X(CUDA_ERROR_UNKNOWN, 999)
