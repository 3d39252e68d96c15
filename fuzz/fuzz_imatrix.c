/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_imatrix.c - an importance matrix of llama.cpp, old or GGUF.
 *
 * Promises: importances are positive and finite; there are those of experts alone that the file has; errors name the
 * file.
 */
#include "fuzz_scratch.h"

#include <math.h>

#include "ckpt/gguf/imatrix.h"

enum { EXPERTS = 3, COLS = 4 };

static void use(const mox_imatrix *matrix)
{
    static const char name[] = "blk.0.ffn_up_exps.weight";
    moxie_error error = { 0 };
    for (int64_t e = 0; e < EXPERTS; e++) {
        float columns[COLS];
        bool found = false;
        const moxie_status status = mox_imatrix_columns(matrix, name, e, EXPERTS, COLS, columns, &found, &error);
        FUZZ_CHECK(status == MOXIE_OK || (status == MOXIE_ERR_MISMATCH && error.text[0] && !found));
        FUZZ_CHECK(!found || mox_imatrix_has(matrix, name));
        for (int64_t i = 0; i < COLS && found; i++)
            FUZZ_CHECK(columns[i] > 0 && isfinite(columns[i]));
    }
    (void)mox_imatrix_sum(matrix);
}

void mox_fuzz_imatrix(const uint8_t *data, uint64_t size)
{
    mox_imatrix *matrix = NULL;
    moxie_error error = { 0 };
    fuzz_write("imatrix.dat", data, size);
    const moxie_status status = mox_imatrix_open(fuzz_path("imatrix.dat"), &matrix, &error);
    FUZZ_CHECK(status == MOXIE_OK ? matrix != NULL : error.text[0] && error.file[0] && !matrix);
    if (matrix)
        use(matrix);
    mox_imatrix_close(matrix);
}
