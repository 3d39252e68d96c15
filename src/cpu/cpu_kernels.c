/* SPDX-License-Identifier: Apache-2.0
 *
 * cpu_kernels.c - the kernels of all families as one list, for listing, explaining and testing.
 */
#include "cpu/cpu_kernels.h"

#include "cpu/combine/combine.h"
#include "cpu/dense/dense.h"
#include "cpu/expert_gemm/expert_gemm.h"
#include "cpu/glu/glu.h"
#include "cpu/lora/lora.h"
#include "cpu/permute/permute.h"
#include "cpu/quant_act/quant_act.h"
#include "cpu/row_norm/row_norm.h"
#include "cpu/topk/topk.h"

/* Every family's kernels begin with a mox_kernel; these give kernel i of one family as such, or NULL. */
#define MOX_FAMILY(name)                                                                                               \
    static const void *name##_base(int32_t i)                                                                          \
    {                                                                                                                  \
        const mox_##name##_kernel *row = mox_##name##_at(i);                                                           \
        return row != NULL ? &row->base : NULL;                                                                        \
    }
#include "cpu/kernel_families.def"
#undef MOX_FAMILY

#define MOX_FAMILY(name) name##_base,
static const mox_family_at families[] = {
#include "cpu/kernel_families.def"
};
#undef MOX_FAMILY

const void *mox_kernel_of_families(const mox_family_at *list, size_t count, int32_t i)
{
    if (i < 0)
        return NULL;
    for (size_t f = 0; f < count; f++) {
        int32_t rows = 0;
        for (; list[f](rows) != NULL; rows++)
            if (rows == i)
                return list[f](rows);
        i -= rows;
    }
    return NULL;
}

const mox_kernel *mox_cpu_kernel_at(int32_t i)
{
    return mox_kernel_of_families(families, sizeof families / sizeof families[0], i);
}
