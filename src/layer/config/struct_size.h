/* SPDX-License-Identifier: Apache-2.0
 *
 * struct_size.h - structs of the public interface across versions.
 *
 * Such a struct begins with its size in the caller's header. An older caller's struct is shorter: the fields it
 * lacks are read as zero, their default. A newer caller's is longer: its unknown tail must be zero, for a field
 * that this library cannot honour must not be ignored.
 *
 *     caller's   | struct_size | known fields ...... | unknown tail, must be 0 |
 *     library's  | struct_size | known fields ...... |
 *
 * A size has to be where a field ends: one that cuts a pointer in half would make a pointer of its lower bytes.
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
/* Fills a checked struct from the library's own; its struct_size stays, and so does a tail unknown here. */
void mox_struct_write(const void *from, void *to, const mox_struct_type *type);

#endif
