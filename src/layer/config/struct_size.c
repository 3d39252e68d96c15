/* SPDX-License-Identifier: Apache-2.0
 *
 * struct_size.c - reads and fills structs of the public headers across versions (struct_size.h). The first field of
 * each is its size, a uint32_t.
 */
#include "layer/config/struct_size.h"

#include <stdbool.h>
#include <string.h>

/* Far above any struct here. A larger size means an uninitialised field, so the bytes behind must not be read. */
#define MAX_STRUCT_SIZE 65536u

static uint32_t size_of(const void *s)
{
    uint32_t size;
    memcpy(&size, s, sizeof size);
    return size;
}

/* Whether some header, this one or an older one, has the struct with this size: the size is where a field ends, with or
 * without the padding that aligns a struct of the fields so far. Padding that the next field uses does not count. */
static bool is_end(const mox_struct_type *type, uint32_t size)
{
    uint32_t align = 1;
    for (uint32_t i = 0; i < type->count; i++) {
        const mox_struct_field *f = &type->fields[i];
        const uint32_t next = i + 1 < type->count ? f[1].begin : type->size;
        align = f->align > align ? f->align : align;
        if (size == f->end || (size == (f->end + align - 1) / align * align && size <= next))
            return true;
    }
    return false;
}

static moxie_status reject_cut(const mox_struct_type *type, uint32_t size, moxie_error *error)
{
    uint32_t next = 1;
    while (next + 1 < type->count && type->fields[next].end < size)
        next++;
    const mox_struct_field *below = &type->fields[next - 1], *above = &type->fields[next]; /* of the cut */
    return mox_fail(MOXIE_ERR_ARGUMENT, error,
                    "%s.struct_size is %u, where no field ends: the nearest sizes are %u (up to %s) and %u (up to %s); "
                    "initialise the struct with its ..._INIT macro",
                    type->name, (unsigned)size, (unsigned)below->end, below->name, (unsigned)above->end, above->name);
}

moxie_status mox_struct_check(const void *of, const mox_struct_type *type, moxie_error *error)
{
    const uint32_t size = size_of(of);
    MOX_FAIL_IF(size < sizeof size || size > MAX_STRUCT_SIZE, MOXIE_ERR_ARGUMENT, error,
                "%s.struct_size is %u: initialise the struct with its ..._INIT macro", type->name, (unsigned)size);
    return size > type->size || is_end(type, size) ? MOXIE_OK : reject_cut(type, size, error);
}

moxie_status mox_struct_read(const void *from, void *to, const mox_struct_type *type, moxie_error *error)
{
    MOX_TRY(mox_struct_check(from, type, error));
    const uint32_t caller_size = size_of(from), size = type->size;
    const unsigned char *bytes = from;
    for (uint32_t i = size; i < caller_size; i++)
        MOX_FAIL_IF(bytes[i] != 0, MOXIE_ERR_ARGUMENT, error,
                    "%s has %u bytes where this library (%s) knows %u, and byte %u behind them is not zero: a field "
                    "of a newer header is set; leave it zero or use the library of that header",
                    type->name, (unsigned)caller_size, MOXIE_VERSION_STRING, (unsigned)size, (unsigned)i);
    memset(to, 0, size);
    memcpy(to, from, caller_size < size ? caller_size : size);
    memcpy(to, &size, sizeof size);
    return MOXIE_OK;
}

void mox_struct_write(const void *from, void *to, const mox_struct_type *type)
{
    const uint32_t caller_size = size_of(to), common = caller_size < type->size ? caller_size : type->size;
    memcpy((unsigned char *)to + sizeof caller_size, (const unsigned char *)from + sizeof caller_size,
           common - sizeof caller_size);
}
