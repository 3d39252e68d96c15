/* SPDX-License-Identifier: Apache-2.0
 *
 * backend.c - the table of a back end, by its number in moxie.h (backend.h).
 */
#include "backend/backend.h"

const mox_backend *mox_backend_of(moxie_backend backend)
{
    switch (backend) {
    case MOXIE_BACKEND_REF: return &mox_backend_ref;
    case MOXIE_BACKEND_CUDA: return &mox_backend_cuda;
    default: return &mox_backend_host;
    }
}
