/* SPDX-License-Identifier: Apache-2.0
 *
 * host_backend.h - what the two back ends in host memory, host and ref, have in common.
 */
#ifndef MOX_BACKEND_HOST_BACKEND_H
#define MOX_BACKEND_HOST_BACKEND_H

#include "backend/backend.h"

#define MOX_HOST_ALIGN 64

/* Tokens that one worker routes at a time. */
#define MOX_ROUTE_TOKENS 32

/* Functions for the fields of mox_backend with these names. */
const char *mox_host_needs(const mox_kernel *kernel);
uint32_t mox_host_fuses(const mox_kernel *product);
mox_activations_form mox_host_form(const mox_form_problem *problem);
uint64_t mox_host_permute_scratch(int64_t pairs, int64_t slots);
uint64_t mox_host_lora_scratch(int64_t pairs, int64_t max_cols, int32_t workers);
#define MOX_HOST_SCRATCH .permute_scratch = mox_host_permute_scratch, .lora_scratch = mox_host_lora_scratch
moxie_status mox_host_copy(const mox_queue *q, void *to, const void *from, uint64_t bytes, moxie_error *error);
/* The span route (host_route.c). Scratch of the dense products has room for MOX_ROUTE_TOKENS tokens a worker. */
moxie_status mox_host_route(const mox_queue *q, const mox_route_span *span, moxie_error *error);

#endif
