/* SPDX-License-Identifier: Apache-2.0
 *
 * kernel.h - the head of every kernel of every family, and how a kernel says why it rejects a problem.
 *
 *     <family>/<family>.h      the mathematics, the type of a kernel and of its arguments
 *     <family>/<family>.def    the list of kernels, best first
 *     <family>/<family>.c      the table made from the list: mox_<family>_at(i)
 *     kernel_families.def      the families, in the order of a run
 *
 * A plan takes, of each family, the first kernel that accepts the problem. A kernel that rejects says in one sentence
 * why, and which smallest change would make it accept; `moxie explain` prints both.
 */
#ifndef MOX_CPU_KERNEL_H
#define MOX_CPU_KERNEL_H

#include "base/cpu_features.h"
#include "base/executor.h"
#include "pack/layout.h"

/* How much a kernel may round: the numeric contract, docs/architecture.md. */
typedef enum mox_exactness {
    MOX_EXACT, /* no weight is rounded; activations as the scheme says */
    MOX_W16,   /* integer weights with 16-bit scales rounded once to 16 bits */
    MOX_TOL    /* rounds more, with a stated bound; mode fast only */
} mox_exactness;

typedef struct mox_kernel {
    const char *family;
    const char *name;
    mox_isa isa;
    mox_exactness exactness;
    const char *layout; /* of the weights it reads; "" when it reads none */
} mox_kernel;

/* Why a kernel rejects a problem, and what would make it accept. */
typedef struct mox_rejection {
    char reason[160];
    char remedy[160];
} mox_rejection;

const char *mox_exactness_name(mox_exactness exactness);

/* Fills `why` and returns false, which the caller can return. */
bool mox_reject(mox_rejection *why, const char *remedy, const char *reason, ...) __attribute__((format(printf, 3, 4)));

/* The part of acceptance that all families share: this processor, `cap` and MOXIE_MAX_ISA have the kernel's ISA, and
 * kernels of class TOL run in mode fast only. */
bool mox_kernel_admit(const mox_kernel *kernel, mox_isa cap, moxie_mode mode, mox_rejection *why);

#endif
