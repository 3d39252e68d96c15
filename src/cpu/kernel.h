/* SPDX-License-Identifier: Apache-2.0
 *
 * kernel.h - what every row of every kernel list begins with, and the vocabulary of refusals.
 *
 * A family is a folder: <family>.h states the mathematics and the function type, <family>.def lists the
 * rows, best first, <family>.c walks them. A row's admit() says in one sentence why it cannot take a
 * problem and what smallest change would let it; `moxie explain` prints both.
 */
#ifndef MOX_CPU_KERNEL_H
#define MOX_CPU_KERNEL_H

#include "base/cpu_features.h"
#include "base/executor.h"
#include "pack/layout.h"

/* How a kernel's numbers relate to the contract (docs/architecture.md). */
typedef enum mox_exactness {
    MOX_EXACT, /* no weight is rounded; activations as the scheme says */
    MOX_W16,   /* integer weights with 16-bit scales rounded once to 16 bits */
    MOX_TOL    /* rounds more, with a stated bound; fast mode only */
} mox_exactness;

typedef struct mox_kernel {
    const char *family;
    const char *name;
    mox_isa isa;
    mox_exactness exactness;
    const char *layout; /* of the weights it reads; "" when it reads none */
} mox_kernel;

/* Why a row was refused; both static or formatted into the buffers. */
typedef struct mox_rejection {
    char reason[160];
    char remedy[160];
} mox_rejection;

const char *mox_exactness_name(mox_exactness exactness);

/* Fills `why` and returns false, so that an admit() can return it. */
bool mox_reject(mox_rejection *why, const char *remedy, const char *reason, ...) __attribute__((format(printf, 3, 4)));

/* Common part of every admit(): the ISA under `cap` and MOXIE_MAX_ISA, and TOL rows outside fast mode. */
bool mox_kernel_admit(const mox_kernel *kernel, mox_isa cap, moxie_mode mode, mox_rejection *why);

/* Row i of one family as what its rows begin with; NULL past the last. */
typedef const void *(*mox_family_at)(int32_t i);
/* Row i of all families of a list, counted through; NULL past the last. Immutable. */
const void *mox_kernel_of_families(const mox_family_at *list, size_t count, int32_t i);

/* All rows of all families, for listing and for the harness. NULL past the last. */
const mox_kernel *mox_cpu_kernel_at(int32_t i);

#endif
