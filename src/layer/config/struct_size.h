/* SPDX-License-Identifier: Apache-2.0
 *
 * struct_size.h - structs of the public interface across versions of the headers.
 *
 * Such a struct begins with its size in the caller's header. A struct of an older header is shorter: fields that it
 * lacks are read as zero, their default. A struct of a newer header is longer: its unknown tail must be zero, because
 * this library would ignore a field that the caller set.
 *
 *     caller's   | struct_size | known fields ...... | unknown tail, must be 0 |
 *     library's  | struct_size | known fields ...... |
 *
 * A size must be where a field ends. A size that cuts a pointer in half would yield a pointer of its lower bytes.
 */
#ifndef MOX_LAYER_STRUCT_SIZE_H
#define MOX_LAYER_STRUCT_SIZE_H

#include "base/status.h"

/* One field: bytes [begin, end) of its struct. */
typedef struct mox_struct_field {
    const char *name;
    uint32_t begin, end, align;
} mox_struct_field;

/* One public struct as this library knows it (public_structs.def). */
typedef struct mox_struct_type {
    const char *name;
    uint32_t size, count;
    const mox_struct_field *fields; /* [count] */
} mox_struct_type;

enum {
#define MOX_STRUCT_BEGIN(type) MOX_STRUCT_##type,
#define MOX_STRUCT_FIELD(type, field)
#define MOX_STRUCT_END(type)
#include "layer/config/public_structs.def"
#undef MOX_STRUCT_BEGIN
#undef MOX_STRUCT_FIELD
#undef MOX_STRUCT_END
    MOX_STRUCT_COUNT
};
extern const mox_struct_type mox_struct_types[MOX_STRUCT_COUNT];
/* The type by its public name: MOX_STRUCT(moxie_options). */
#define MOX_STRUCT(type) (&mox_struct_types[MOX_STRUCT_##type])

/* Reads the caller's struct into the library's. */
moxie_status mox_struct_read(const void *from, void *to, const mox_struct_type *type, moxie_error *error);

/* Checks the size of a struct that the library will fill. */
moxie_status mox_struct_check(const void *of, const mox_struct_type *type, moxie_error *error);
/* Fills a checked struct from the library's own. Its struct_size and an unknown tail stay as they are. */
void mox_struct_write(const void *from, void *to, const mox_struct_type *type);

#endif
