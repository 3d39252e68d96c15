/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_packers.c - packers without a GPU (test_cuda_packers.h).
 */
#include "test_cuda_packers.h"

#include <string.h>

#include "base/checksum.h"
#include "cuda/pack/pack_unit.h"
#include "test_cuda_graph.h"
#include "test_support.h"

static moxie_status (*record)(const char *name, moxie_error *error);

#ifdef MOX_TEST_EMULATED

static moxie_status pack(const mox_cuda_pack_args *a, mox_pack_order order, moxie_error *error)
{
    return test_emulated_pack(a, order, error);
}

#else

static moxie_status pack(const mox_cuda_pack_args *a, mox_pack_order order, moxie_error *error)
{
    (void)error;
    for (uint64_t at = 0; at < a->form.w2.end; at += MOX_PACK_UNIT) {
        const mox_pack_unit unit = mox_pack_unit_at(a, order, at);
        memcpy(a->record + at, &unit, sizeof unit);
    }
    for (int64_t i = 0; i < a->parts; i++)
        a->sums[i] = mox_checksum(a->record + a->part_at[i], a->part_at[i + 1] - a->part_at[i]);
    return MOXIE_OK;
}

#endif

static moxie_status checked_pack(const mox_cuda_pack_args *a, mox_pack_order order, moxie_error *error)
{
    MOX_TRY(record("pack", error));
    assert_int_equal(((uintptr_t)a->rest | (uintptr_t)a->record) % MOX_PACK_UNIT, 0);
    for (int64_t i = 0; i < a->parts; i++)
        assert_true(a->part_at[i + 1] - a->part_at[i] >= MOX_CUDA_PACK_MIN_PART);
    return pack(a, order, error);
}

#define PACKER(name, order)                                                                                            \
    static moxie_status name##_work(const void *args, moxie_error *error)                                              \
    {                                                                                                                  \
        return checked_pack(args, order, error);                                                                       \
    }                                                                                                                  \
    static moxie_status name(const mox_cuda_pack_args *args, mox_cuda_stream stream, moxie_error *error)               \
    {                                                                                                                  \
        (void)stream;                                                                                                  \
        return test_cuda_enqueue(name##_work, args, sizeof *args, error);                                              \
    }
PACKER(hopper, MOX_PACK_SWIZZLED)
PACKER(hopper_codes, MOX_PACK_FRAGMENTS)
PACKER(hopper_fp8, MOX_PACK_FRAGMENTS_FP8)
#undef PACKER

void test_cuda_pack_fill(mox_cuda_table *table, moxie_status (*tell)(const char *name, moxie_error *error))
{
    record = tell;
#define MOX_CUDA_ROW(family, id, ...) table->family[MOX_CUDA_AT_##family##_##id] = id;
#include "cuda/pack/cuda_pack.def"
#undef MOX_CUDA_ROW
}
