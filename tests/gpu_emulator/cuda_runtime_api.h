/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_runtime_api.h - see cuda_runtime.h. In C: events, which the test that includes this defines.
 */
#ifdef __cplusplus
#include <cuda_runtime.h>
#else
#ifndef MOX_TEST_EMULATED_CUDA_EVENTS_H
#define MOX_TEST_EMULATED_CUDA_EVENTS_H

typedef int cudaError_t;
typedef void *cudaStream_t;
typedef struct emulated_event *cudaEvent_t;

cudaError_t cudaEventCreate(cudaEvent_t *out);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t stop);

#endif
#endif
