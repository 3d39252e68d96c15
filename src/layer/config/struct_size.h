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
 */
#ifndef MOX_LAYER_STRUCT_SIZE_H
#define MOX_LAYER_STRUCT_SIZE_H

#include "base/status.h"

/* Reads the caller's struct into the library's struct of `size` bytes. `name` is the type's, for the text. */
moxie_status mox_struct_read(const void *from, void *to, uint32_t size, const char *name, moxie_error *error);

/* Checks the size of a struct that the library will fill. */
moxie_status mox_struct_check(const void *of, const char *name, moxie_error *error);
/* Fills a checked struct from the library's own; its struct_size stays, and so does a tail unknown here. */
void mox_struct_write(const void *from, void *to, uint32_t size);

#endif
