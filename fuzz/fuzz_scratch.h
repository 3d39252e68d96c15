/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_scratch.h - a folder in memory for targets whose readers need files.
 */
#ifndef MOX_FUZZ_SCRATCH_H
#define MOX_FUZZ_SCRATCH_H

#include "fuzz_targets.h"

/* The folder of this process. The first call makes it; it is removed with its content when the process ends. */
const char *fuzz_scratch(void);
/* Returns "FOLDER/NAME" in one of a few static buffers, used in turn. */
const char *fuzz_path(const char *name);
void fuzz_write(const char *name, const void *data, uint64_t size);
/* Removes a folder inside it with its files; it need not exist. */
void fuzz_remove(const char *name);

#endif
