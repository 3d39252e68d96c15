/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_form.h - how the activations of a GPU's products lie: in the kind that the kernel reads, in rows or tiled.
 */
#ifndef MOX_BACKEND_CUDA_FORM_H
#define MOX_BACKEND_CUDA_FORM_H

#include "backend/backend.h"

/* The field `form` of mox_backend_cuda. */
mox_activations_form mox_cuda_form(const mox_form_problem *problem);

#endif
