/* SPDX-License-Identifier: Apache-2.0
 *
 * file_dtype.h - dtypes as safetensors files spell them: "F8_E4M3" <-> MOXIE_F8_E4M3, and the bits of an element.
 */
#ifndef MOX_CKPT_FILE_DTYPE_H
#define MOX_CKPT_FILE_DTYPE_H

#include <moxie/moxie_ckpt.h>

typedef struct mox_file_dtype {
    const char *name;  /* "F8_E4M3" */
    int32_t bits;      /* of one element; 4 and 6 pack without gaps */
    moxie_dtype dtype; /* NONE: the size is known, the meaning is not supported */
} mox_file_dtype;

/* NULL for unknown names. */
const mox_file_dtype *mox_file_dtype_by_name(const char *name);
/* NULL when files have no word for it (i4, u4b8, u8b128: stored in wider containers). */
const char *mox_file_dtype_name(moxie_dtype dtype);

#endif
