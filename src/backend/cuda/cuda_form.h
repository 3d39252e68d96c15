/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_form.h - the form of a product's activations on a GPU: the kind that its kernel reads (F32, NATIVE or CODES), in
 * rows or in tiles (cpu/activations.h).
 */
#ifndef MOX_BACKEND_CUDA_FORM_H
#define MOX_BACKEND_CUDA_FORM_H

#include "backend/backend.h"

/* The function for `form` of mox_backend_cuda. */
mox_activations_form mox_cuda_form(const mox_form_problem *problem);

#endif
