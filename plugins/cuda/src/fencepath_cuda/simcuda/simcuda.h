// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * What every source of the simulated libraries begins with.
 *
 * <cuda.h> is the generated one in include/, with the names, types and values of NVIDIA's, so that a program or a probe
 * meets the same ABI. NVIDIA's own does as well, and then the compiler compares: tests/simcuda does so where it is there.
 */
#ifndef SIMCUDA_H
#define SIMCUDA_H

#define __CUDA_API_VERSION_INTERNAL /* functions go by the names they are exported by, all versions of them */
#include <cuda.h>

#define SIMCUDA_API __attribute__((visibility("default")))

#endif
