/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_scratch.h - a folder in memory for targets whose readers want files.
 */
#ifndef MOX_FUZZ_SCRATCH_H
#define MOX_FUZZ_SCRATCH_H

#include "fuzz_targets.h"

/* Of this process; made when it is first asked for, removed with all that is in it at the end. */
const char *fuzz_scratch(void);
/* "FOLDER/NAME" in one of a few buffers that are used in turn. */
const char *fuzz_path(const char *name);
void fuzz_write(const char *name, const void *data, uint64_t size);
/* A folder in it, with its files. Absent is fine. */
void fuzz_remove(const char *name);

#endif
