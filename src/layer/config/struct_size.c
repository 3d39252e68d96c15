/* SPDX-License-Identifier: Apache-2.0
 *
 * struct_size.c - reads and fills versioned structs. The size is the first field of each, a uint32_t.
 */
#include "layer/config/struct_size.h"

#include <string.h>

/* Far above any struct here: a larger size is an uninitialised field, and its tail must not be read. */
#define LARGEST_SIZE 65536u

static uint32_t size_of(const void *s)
{
    uint32_t size;
    memcpy(&size, s, sizeof size);
    return size;
}

moxie_status mox_struct_check(const void *of, const char *name, moxie_error *error)
{
    const uint32_t size = size_of(of);
    MOX_FAIL_IF(size < sizeof size || size > LARGEST_SIZE, MOXIE_ERR_ARGUMENT, error,
                "%s.struct_size is %u: initialise the struct with its ..._INIT macro", name, (unsigned)size);
    return MOXIE_OK;
}

moxie_status mox_struct_read(const void *from, void *to, uint32_t size, const char *name, moxie_error *error)
{
    MOX_TRY(mox_struct_check(from, name, error));
    const uint32_t given = size_of(from);
    const unsigned char *bytes = from;
    for (uint32_t i = size; i < given; i++)
        MOX_FAIL_IF(bytes[i] != 0, MOXIE_ERR_ARGUMENT, error,
                    "%s has %u bytes where this library (%s) knows %u, and byte %u behind them is not zero: a field "
                    "of a newer header is set; leave it zero or use the library of that header",
                    name, (unsigned)given, MOXIE_VERSION_STRING, (unsigned)size, (unsigned)i);
    const uint32_t common = given < size ? given : size;
    memset(to, 0, size);
    memcpy(to, from, common);
    memcpy(to, &size, sizeof size);
    return MOXIE_OK;
}

void mox_struct_write(const void *from, void *to, uint32_t size)
{
    const uint32_t given = size_of(to), common = given < size ? given : size;
    memcpy((unsigned char *)to + sizeof given, (const unsigned char *)from + sizeof given, common - sizeof given);
}
