/* SPDX-License-Identifier: Apache-2.0
 *
 * vendor_by_zeros_avx2.c - vendor_by_zeros_tmpl.h again, compiled for 32-byte vectors.
 */
#include "vendor/vendor_by_zeros_tmpl.h"

void mox_by_zeros_avx2(bool back, const mox_vendor_context *context, const uint8_t *in, int64_t count, uint8_t *out)
{
    if (back)
        by_zeros(true, context, in, count, out);
    else
        by_zeros(false, context, in, count, out);
}
