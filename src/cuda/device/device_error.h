/* SPDX-License-Identifier: Apache-2.0
 *
 * device_error.h - turns errors of the CUDA runtime into moxie_error, for all of libmoxie_cuda.
 *
 *     kernel<<<grid, block, shared, (cudaStream_t)stream>>>(*args);
 *     return mox_cuda_launched("topk", error);
 */
#ifndef MOX_CUDA_DEVICE_DEVICE_ERROR_H
#define MOX_CUDA_DEVICE_DEVICE_ERROR_H

#include <stdbool.h>

#include <cuda_runtime_api.h>

#include "cuda/cuda_table.h"

#ifdef __cplusplus
extern "C" {
#endif

/* MOXIE_OK for cudaSuccess; else the error says that `what` failed, and the runtime's text. Clears its last error. */
moxie_status mox_cuda_status(cudaError_t code, const char *what, moxie_error *error);
/* The outcome of the launch just made. */
moxie_status mox_cuda_launched(const char *kernel, moxie_error *error);

/* The table; libmoxie finds it by its name, MOX_CUDA_TABLE_SYMBOL. */
const mox_cuda_table *mox_cuda_table_get(void);

#ifdef __cplusplus
}
#endif

#endif
