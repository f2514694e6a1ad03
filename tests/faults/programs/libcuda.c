// SPDX-License-Identifier: Apache-2.0
/* A libcuda that has three functions only, each beginning with a push as NVIDIA's do. It does nothing. */

#define KEEP __attribute__((visibility("default"), noinline))

KEEP int cuInit(unsigned flags)
{
	return (int)flags;
}

KEEP int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
			unsigned shared, void *stream, void **params, void **extra)
{
	(void)function, (void)stream, (void)params, (void)extra;
	return gx + gy + gz + bx + by + bz + shared ? 0 : 1;
}

KEEP int cuStreamSynchronize(void *stream)
{
	__asm__ volatile("" : : "r"(stream));
	return 0;
}
