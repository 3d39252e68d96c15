/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_block_bytes_avx2.c - the products of kernels avx2_block_int8 and avx2_block_bytes: one for each row of
 * block_fields.def (panel_block_bytes_avx2.h), and the activations' bytes (block_bytes.h). expert_gemm_avx2.c calls
 * them.
 */
#include "cpu/expert_gemm/avx2/avx2_plan.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include "cpu/expert_gemm/avx2/panel_levels_avx2.h"
#include "format/block_rows.h"

/* ---- activations ---------------------------------------------------------------------------------- */

static float magnitude_of(const float *a)
{
    const __m256i sign = _mm256_set1_epi32(0x7fffffff);
    __m256i largest = _mm256_setzero_si256();
    for (int i = 0; i < MOX_PANEL_STEP; i += 8)
        largest = _mm256_max_epi32(largest, _mm256_and_si256(_mm256_castps_si256(_mm256_load_ps(a + i)), sign));
    __m128i max = _mm_max_epi32(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
    max = _mm_max_epi32(max, _mm_shuffle_epi32(max, 0x4e));
    max = _mm_max_epi32(max, _mm_shuffle_epi32(max, 0xb1));
    return _mm_cvtss_f32(_mm_castsi128_ps(max)); /* as bits NaN is above infinity */
}

/* Stores the integers nearest to a * per_unit. */
static void put_bytes(const float *a, float per_unit, int8_t *out)
{
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i d[4];
    for (int i = 0; i < 4; i++)
        d[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_load_ps(a + 8 * i), _mm256_set1_ps(per_unit)));
    const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(d[0], d[1]), _mm256_packs_epi32(d[2], d[3]));
    _mm256_store_si256((__m256i *)(void *)out, _mm256_permutevar8x32_epi32(bytes, order));
}

static int32_t sum_of_bytes(const int8_t *d, int count)
{
    int32_t sum = 0;
    for (int i = 0; i < count; i++)
        sum += d[i];
    return sum;
}

static void put_line(const mox_block_fields *f, bool codes, const float *a, mox_bytes_line *line)
{
    const float max = codes ? 1.0f : magnitude_of(a);
    const bool none = max < 0x1p-126f;
    const int runs = mox_bytes_runs(f), cols = MOX_PANEL_STEP / runs;
    line->floats = !none && !(max >= 0x1p-60f && max <= 0x1p60f);
    if (line->floats)
        return;
    line->unit = codes ? 1.0f : none ? 0.0f : max * (1.0f / 127.0f);
    put_bytes(a, codes ? 1.0f : none ? 0.0f : 127.0f / max, line->d);
    for (int i = 0; i < runs; i++) {
        const int32_t sum = sum_of_bytes(line->d + i * cols, cols);
        if (f->m_at >= 0)
            line->run.minimum[i] = (float)sum;
        else
            line->run.offset[i] = f->offset * sum;
    }
}

int64_t mox_block_bytes_prepare(const mox_panel_rows *a, int64_t steps, const mox_block_fields *f, bool codes,
                                mox_bytes_line *line)
{
    int64_t floats = 0;
    for (int64_t s = 0; s < steps; s++)
        for (int64_t row = 0; row < a->rows; row++, line++) {
            put_line(f, codes, (const float *)a->data + (row * steps + s) * MOX_PANEL_STEP, line);
            floats += line->floats;
        }
    return floats;
}

/* ---- variants ------------------------------------------------------------------------------------- */

#define MOX_BLOCK_FIELDS(id, ...)                                                                                      \
    static void expand_##id(const mox_ymm_job *job, int p, int64_t first, int64_t count)                               \
    {                                                                                                                  \
        mox_bytes_expand(&mox_fields_##id, MOX_WEIGHTS_##id, job, p, first, count);                                    \
    }                                                                                                                  \
    static void float_step_##id(const mox_ymm_job *job, const mox_ymm_pos *pos, int p, int64_t row)                    \
    {                                                                                                                  \
        mox_bytes_float_step(&mox_fields_##id, MOX_WEIGHTS_##id, job, pos, p, row);                                    \
    }                                                                                                                  \
    static void all_##id(const mox_ymm_job *job, bool floats)                                                          \
    {                                                                                                                  \
        static const mox_bytes_type ways = { expand_##id, float_step_##id };                                           \
        if (job->a->rows == 1 && !floats && job->a->scales == NULL)                                                    \
            mox_bytes_narrow_whole(&mox_fields_##id, MOX_WEIGHTS_##id, 1, job);                                        \
        else if (job->a->rows == 2 && !floats && job->a->scales == NULL)                                               \
            mox_bytes_narrow_whole(&mox_fields_##id, MOX_WEIGHTS_##id, 2, job);                                        \
        else if (job->a->rows == 1)                                                                                    \
            mox_bytes_narrow(&mox_fields_##id, MOX_WEIGHTS_##id, job);                                                 \
        else                                                                                                           \
            mox_bytes_wide(&mox_fields_##id, &ways, job, floats);                                                      \
    }
#include "format/block_fields.def"
#undef MOX_BLOCK_FIELDS

mox_ymm_block_bytes_fn mox_ymm_block_bytes_of(moxie_dtype element)
{
    static const struct {
        moxie_dtype element;
        mox_ymm_block_bytes_fn all;
    } variants[] = {
#define MOX_BLOCK_FIELDS(id, type, ...) { MOX_BLOCK_DTYPE + type, all_##id },
#include "format/block_fields.def"
#undef MOX_BLOCK_FIELDS
    };
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++)
        if (variants[i].element == element)
            return variants[i].all;
    return mox_ymm_levels_bytes_of(element);
}

#endif
