/* SPDX-License-Identifier: Apache-2.0
 *
 * file_dtype.c - the dtype strings of safetensors (version 0.8 of the reference implementation).
 *
 * All sizes are known, so that offsets can be checked. Three dtypes have no meaning here: C64, and the FNUZ variants of
 * float8, whose bias and NaN differ from F8_E4M3 and F8_E5M2. For F4 and F6 a shape counts logical elements, which lie
 * without gaps.
 */
#include "ckpt/safetensors/file_dtype.h"

#include <string.h>

static const mox_file_dtype dtypes[] = {
    { "BOOL", 8, MOXIE_BOOL },
    { "F4", 4, MOXIE_F4_E2M1 },
    { "F6_E2M3", 6, MOXIE_F6_E2M3 },
    { "F6_E3M2", 6, MOXIE_F6_E3M2 },
    { "U8", 8, MOXIE_U8 },
    { "I8", 8, MOXIE_I8 },
    { "F8_E5M2", 8, MOXIE_F8_E5M2 },
    { "F8_E4M3", 8, MOXIE_F8_E4M3 },
    { "F8_E8M0", 8, MOXIE_F8_E8M0 },
    { "F8_E4M3FNUZ", 8, MOXIE_DTYPE_NONE },
    { "F8_E5M2FNUZ", 8, MOXIE_DTYPE_NONE },
    { "I16", 16, MOXIE_I16 },
    { "U16", 16, MOXIE_U16 },
    { "F16", 16, MOXIE_F16 },
    { "BF16", 16, MOXIE_BF16 },
    { "I32", 32, MOXIE_I32 },
    { "U32", 32, MOXIE_U32 },
    { "F32", 32, MOXIE_F32 },
    { "C64", 64, MOXIE_DTYPE_NONE },
    { "F64", 64, MOXIE_F64 },
    { "I64", 64, MOXIE_I64 },
    { "U64", 64, MOXIE_U64 },
};

#define COUNT (sizeof dtypes / sizeof dtypes[0])

const mox_file_dtype *mox_file_dtype_by_name(const char *name)
{
    for (size_t i = 0; i < COUNT; i++)
        if (strcmp(dtypes[i].name, name) == 0)
            return &dtypes[i];
    return NULL;
}

const char *mox_file_dtype_name(moxie_dtype dtype)
{
    for (size_t i = 0; i < COUNT; i++)
        if (dtypes[i].dtype == dtype && dtype != MOXIE_DTYPE_NONE)
            return dtypes[i].name;
    return NULL;
}
