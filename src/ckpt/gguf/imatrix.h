/* SPDX-License-Identifier: Apache-2.0
 *
 * imatrix.h - importance matrices of llama.cpp: for each matrix and column, the sum of squares of its input.
 *
 *     old     entries i32 | name length i32, name, calls i32, values i32, f32 [values] | ... | more, not read
 *     GGUF    tensors NAME.in_sum2 f32 [matrices, columns], NAME.counts f32 [matrices]
 *
 * Stacks of experts have one row of sums an expert. Source: llama.cpp's tools/imatrix.
 */
#ifndef MOX_CKPT_IMATRIX_H
#define MOX_CKPT_IMATRIX_H

#include <stdbool.h>

#include "base/status.h"

typedef struct mox_imatrix mox_imatrix;

/* Reads and checks a whole file: sums are finite and not negative. */
moxie_status mox_imatrix_open(const char *path, mox_imatrix **out, moxie_error *error);
void mox_imatrix_close(mox_imatrix *imatrix); /* NULL is fine */
/* Importances of the `cols` columns of expert `expert` of `experts`, all positive, for the weighting of squared errors.
 * *found false: the file has no numbers for it, or the expert was never chosen. MOXIE_ERR_MISMATCH when it has another
 * number of columns or experts. Thread-safe. */
moxie_status mox_imatrix_columns(const mox_imatrix *imatrix, const char *name, int64_t expert, int64_t experts,
                                 int64_t cols, float *out, bool *found, moxie_error *error);
/* Whether there is an entry of this name. */
bool mox_imatrix_has(const mox_imatrix *imatrix, const char *name);
/* A sum of the file's bytes. */
uint64_t mox_imatrix_sum(const mox_imatrix *imatrix);

#endif
