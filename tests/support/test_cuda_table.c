/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_table.c - the launch table without a GPU (test_cuda_table.h). Products are summed in double, straight from
 * the sections that the arguments name; the other stages call the host's functions.
 */
#include "test_cuda_table.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/quant_act/quant_act.h"
#include "cpu/row_norm/row_norm.h"
#include "route/route.h"
#include "route/route_rules.h"
#include "test_cuda_graph.h"
#include "test_cuda_adapt.h"
#include "test_cuda_packers.h"
#include "test_cuda_rows_table.h"
#include "test_cuda_sm90.h"
#include "test_lazy.h"
#include "test_stream.h"
#include "test_support.h"

static mox_cuda_features device;
static char log_text[1 << 16];
static size_t log_used;
static int devices = 1;
static int calls, fail_at, allocations, alive;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* ranks are threads */

/* ---- recording ----------------------------------------------------------------------------------------- */

static moxie_status record(const char *name, moxie_error *error)
{
    const size_t length = strlen(name);
    pthread_mutex_lock(&lock);
    if (log_used + length + 2 < sizeof log_text) {
        memcpy(log_text + log_used, name, length);
        log_used += length;
        log_text[log_used++] = ' ';
        log_text[log_used] = '\0';
    }
    test_cuda_pass(1e-3);
    const bool fails = fail_at != 0 && ++calls == fail_at;
    pthread_mutex_unlock(&lock);
    MOX_FAIL_IF(fails, MOXIE_ERR_IO, error, "the table was told to fail at this %s", name);
    return MOXIE_OK;
}

const char *test_cuda_log(void)
{
    return log_text;
}

static int events;

void test_cuda_clear(void)
{
    events = 0;
    log_used = 0;
    log_text[0] = '\0';
}

bool test_cuda_fail_at(int n)
{
    const bool did = calls >= fail_at && fail_at != 0;
    calls = 0;
    fail_at = n;
    return did;
}

int test_cuda_allocations(void)
{
    return allocations;
}

int test_cuda_alive(void)
{
    return __atomic_load_n(&alive, __ATOMIC_RELAXED);
}

/* ---- device -------------------------------------------------------------------------------------------- */

static int32_t kernels(void)
{
    return 7;
}

static moxie_status count(int32_t *out, moxie_error *error)
{
    (void)error;
    *out = devices;
    return MOXIE_OK;
}

static moxie_status features(int32_t ordinal, mox_cuda_features *out, moxie_error *error)
{
    (void)ordinal, (void)error;
    *out = device;
    return MOXIE_OK;
}

static moxie_status use(int32_t ordinal, moxie_error *error)
{
    (void)error;
    assert_true(ordinal >= 0 && ordinal < devices);
    return MOXIE_OK;
}

/* The cache line before a block holds its size. */
static moxie_status allocate(uint64_t bytes, void **out, moxie_error *error)
{
    MOX_TRY(record("allocate", error));
    assert_true(test_cuda_may_wait());
    char *block = aligned_alloc(256, (size_t)(bytes + 511) / 256 * 256 + 256);
    assert_non_null(block);
    memset(block, 0xff, (size_t)(bytes + 511) / 256 * 256 + 256); /* fresh device memory may hold anything: here NaN */
    memcpy(block, &bytes, sizeof bytes);
    __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&alive, 1, __ATOMIC_RELAXED);
    *out = block + 256;
    return MOXIE_OK;
}

static void release(void *memory)
{
    uint64_t bytes;
    if (memory == NULL)
        return;
    char *block = (char *)memory - 256;
    memcpy(&bytes, block, sizeof bytes);
    for (uint64_t i = bytes; i < (bytes + 255) / 256 * 256; i++)
        assert_int_equal(((uint8_t *)memory)[i], 0xff); /* nothing was written past the end */
    free(block);
    __atomic_sub_fetch(&alive, 1, __ATOMIC_RELAXED);
}

/* A copy, or a fill where `from` is NULL. */
typedef struct transfer {
    void *to;
    const void *from;
    int32_t byte;
    uint64_t bytes;
} transfer;

static moxie_status transfer_work(const void *args, moxie_error *error)
{
    const transfer *t = args;
    MOX_TRY(record(t->from != NULL ? "copy" : "fill", error));
    if (t->bytes > 0 && t->from != NULL)
        memcpy(t->to, t->from, (size_t)t->bytes);
    else if (t->bytes > 0)
        memset(t->to, t->byte, (size_t)t->bytes);
    return MOXIE_OK;
}

static moxie_status copy(void *to, const void *from, uint64_t bytes, mox_cuda_stream stream, moxie_error *error)
{
    const transfer args = { .to = to, .from = bytes > 0 ? from : "", .bytes = bytes };
    (void)stream;
    return test_cuda_enqueue(transfer_work, &args, sizeof args, error);
}

static moxie_status fill(void *to, int32_t byte, uint64_t bytes, mox_cuda_stream stream, moxie_error *error)
{
    const transfer args = { .to = to, .byte = byte, .bytes = bytes };
    (void)stream;
    return test_cuda_enqueue(transfer_work, &args, sizeof args, error);
}

static moxie_status create(void **out, moxie_error *error)
{
    static test_stream object = { .may_wait = test_cuda_may_wait, .enqueue = test_cuda_enqueue };
    MOX_TRY(record("create", error));
    __atomic_add_fetch(&alive, 1, __ATOMIC_RELAXED);
    *out = &object;
    return MOXIE_OK;
}

static void destroy(void *object)
{
    if (object != NULL)
        __atomic_sub_fetch(&alive, 1, __ATOMIC_RELAXED);
}

static moxie_status wait_for(void *object, moxie_error *error)
{
    (void)object;
    assert_true(test_cuda_may_wait());
    return record("wait", error);
}

static bool stuck;

void test_cuda_set_stuck(bool value)
{
    stuck = value;
}

static moxie_status event_done(mox_cuda_event event, int32_t *done, moxie_error *error)
{
    (void)event, (void)error;
    *done = !stuck;
    return MOXIE_OK;
}

static moxie_status event_record(mox_cuda_event event, mox_cuda_stream stream, moxie_error *error)
{
    (void)event, (void)stream, (void)error;
    __atomic_add_fetch(&events, 1, __ATOMIC_RELAXED);
    return MOXIE_OK;
}

/* Everything happens when it is enqueued. */
static moxie_status stream_follow(mox_cuda_stream stream, mox_cuda_event event, moxie_error *error)
{
    (void)stream, (void)event;
    return record("follow", error);
}

int test_cuda_events(void)
{
    return events;
}

/* ---- routing ------------------------------------------------------------------------------------------- */

static moxie_status dense(const mox_dense_args *a, mox_cuda_stream stream, moxie_error *error)
{
    (void)stream;
    MOX_TRY(record("dense", error));
    const int64_t bytes = mox_dtype_bytes(a->x_dtype);
    for (int64_t t = 0; t < a->tokens; t++)
        for (int64_t n = 0; n < a->rows; n++) {
            double sum = a->bias != NULL ? (double)a->bias[n] : 0;
            for (int64_t k = 0; k < a->cols; k++)
                sum += (double)a->weight[n * a->cols + k] *
                       (double)mox_load(a->x_dtype, (const char *)a->x + (t * a->cols + k) * bytes);
            a->out[t * a->rows + n] = (float)(a->logistic ? 1 / (1 + exp(-sum)) : sum);
        }
    return MOXIE_OK;
}

static moxie_status topk(const mox_topk_args *a, mox_cuda_stream stream, moxie_error *error)
{
    (void)stream;
    MOX_TRY(record("topk", error));
    const int64_t bytes = mox_dtype_bytes(a->logits_dtype);
    float logits[MOXIE_MAX_EXPERTS];
    const moxie_routing alt = mox_route_with_bias_alt(&a->routing);
    for (int64_t t = 0; t < a->tokens; t++) {
        const bool has_alt = a->bias_choice != NULL && a->bias_choice[t] != 0;
        if (a->padding != NULL && a->padding[t] != 0) {
            mox_route_nothing(a->top_k, a->ids + t * a->top_k, a->weights + t * a->top_k);
            continue;
        }
        mox_widen(a->logits_dtype, (const char *)a->logits + t * a->experts * bytes, logits, a->experts);
        mox_route_token(has_alt ? &alt : &a->routing, a->experts, a->top_k, logits, t,
                        a->token_ids != NULL ? a->token_ids[t] : 0, a->ids + t * a->top_k, a->weights + t * a->top_k);
    }
    return MOXIE_OK;
}

static moxie_status permute(const mox_permute_args *a, mox_cuda_stream stream, moxie_error *error)
{
    (void)stream;
    MOX_TRY(record("permute", error));
    mox_permutation out = { a->offsets, a->pair_at, a->position };
    mox_permute(a->ids, a->tokens, a->top_k, a->experts, a->slot_of, a->slots, &out);
    memset(a->counts, 0, /* a chunk's line of counts is for the kernel's use */
           (size_t)((a->tokens * a->top_k + MOX_PERMUTE_CHUNK - 1) / MOX_PERMUTE_CHUNK * a->slots) * 4);
    if (a->shared_offsets != NULL) {
        a->shared_offsets[0] = 0;
        a->shared_offsets[1] = a->tokens;
    }
    for (int64_t s = 0; s < a->slots; s++)
        for (int64_t p = a->offsets[s]; p < a->offsets[s + 1]; p++) {
            if (a->token_of != NULL)
                a->token_of[p] = a->pair_at[p] / a->top_k;
            if (a->row_weight != NULL)
                a->row_weight[p] = a->weights[a->pair_at[p]];
            if (a->pair_scale13 != NULL)
                a->pair_scale13[p] = a->static_scale13[s];
            if (a->pair_scale2 != NULL)
                a->pair_scale2[p] = a->static_scale2[s];
        }
    return MOXIE_OK;
}

/* ---- experts ------------------------------------------------------------------------------------------- */

static float number(const mox_quant_act_args *a, int64_t row, int64_t k)
{
    const int64_t from = a->source != NULL ? a->source[row] : row;
    const float x = mox_load(a->x_dtype, (const char *)a->x + (from * a->cols + k) * mox_dtype_bytes(a->x_dtype));
    return a->row_weight != NULL ? mox_round_to(a->x_dtype, x * a->row_weight[row]) : x;
}

/* Element k of a row of activations, in their order; `code` of a quantized one. */
static void put(const mox_quant_act_args *a, int64_t row, int64_t k, float value, uint8_t code)
{
    const mox_activations *o = &a->out;
    const int64_t at = row * o->stride + k;
    switch (o->kind) {
    case MOX_ACTIVATIONS_F32: ((float *)o->data)[at] = value; break;
    case MOX_ACTIVATIONS_CODES: ((uint8_t *)o->data)[at] = code; break;
    default: mox_narrow(o->dtype, &value, (uint16_t *)o->data + at, 1); break;
    }
}

static void quantize_row(const mox_quant_act_args *a, int64_t row, float amax, float *x, uint8_t *codes)
{
    const mox_activations *o = &a->out;
    const mox_act_quantizer quantizer = { .quant = &a->quant,
                                          .static_scale = a->row_scale != NULL ? a->row_scale[row] : a->static_scale,
                                          .amax = amax };
    for (int64_t k = 0; k < a->cols; k++) {
        x[k] = number(a, row, k);
        if (o->scale_cols == 0)
            put(a, row, k, mox_round_to(a->round_to, x[k]), 0);
    }
    for (int64_t k = a->cols; k < o->stride && o->kind != MOX_ACTIVATIONS_NATIVE; k++)
        put(a, row, k, 0, 0);
    if (o->scale_cols == 0)
        return;
    mox_act_quant_row(&quantizer, x, a->cols, codes, o->scales + row * o->scale_cols);
    for (int64_t k = 0; k < a->cols; k++)
        put(a, row, k, a->table[codes[k]], codes[k]);
    if (o->global != NULL)
        o->global[row] = quantizer.static_scale;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static moxie_status quant_act(const mox_quant_act_args *a, mox_cuda_stream stream, moxie_error *error)
{
    (void)stream;
    MOX_TRY(record("quant_act", error));
    const int64_t rows = a->rows != NULL ? *a->rows : a->max_rows;
    float *x = calloc((size_t)a->cols + 1, sizeof *x), amax = 0;
    uint8_t *codes = calloc((size_t)a->cols + 1, 1);
    assert_true(rows <= a->max_rows && !a->out.tiled);
    if (a->early != 0) /* nothing that permute makes */
        assert_true(a->rows == NULL && a->source == NULL && a->row_weight == NULL && a->row_scale == NULL);
    for (int64_t r = 0; r < rows && a->amax != NULL && a->maxima == NULL; r++) {
        for (int64_t k = 0; k < a->cols; k++)
            x[k] = number(a, r, k);
        amax = fmaxf(amax, mox_amax(x, a->cols));
    }
    for (int32_t i = 0; i < a->maxima_count; i++)
        amax = fmaxf(amax, float_of(a->maxima[i]));
    if (a->finds_amax)
        memcpy(a->amax, &amax, sizeof amax);
    for (int64_t r = 0; r < rows && !a->finds_amax; r++)
        quantize_row(a, r, amax, x, codes);
    free(x);
    free(codes);
    return MOXIE_OK;
}

/* The exact weights of one matrix of one record, without its global. */
static double weight(const mox_cuda_expert_gemm_args *a, const mox_cuda_matrix *m, const uint8_t *record, int64_t n,
                     int64_t k)
{
    uint32_t flags;
    memcpy(&flags, record + MOX_CUDA_HEADER_FLAGS, sizeof flags);
    const uint8_t *row = record + m->codes + (uint64_t)n * m->row_bytes;
    uint32_t code = 0;
    for (int32_t bit = 0; bit < a->element_bits; bit++) {
        const int64_t at = k * a->element_bits + bit;
        code |= (uint32_t)(row[at / 8] >> at % 8 & 1) << bit;
    }
    const int32_t *group = (const int32_t *)(const void *)(record + m->group_index);
    const int64_t g = flags & m->order_flag ? group[k] : k / m->group_cols;
    const int64_t scale = n / m->group_rows * m->scale_cols + g;
    double w = (double)mox_format_decode(a->weight.element, code);
    if (m->zero != 0)
        w -= (double)((const float *)(const void *)(record + m->zero))[scale];
    if (m->scale != 0)
        w *= (double)mox_load(a->weight.scale, record + m->scale + scale * mox_dtype_bytes(a->weight.scale));
    return w;
}

static double with_global(double value, int32_t kind, double global)
{
    return kind == MOXIE_GLOBAL_MULTIPLY ? value * global : value / global;
}

/* Row n of a matrix, decoded as `row`, times row `at` of the activations. */
static float dot(const mox_cuda_expert_gemm_args *a, const mox_cuda_matrix *m, const uint8_t *record, int64_t n,
                 const double *row, int64_t at)
{
    double sum = 0;
    for (int64_t k = 0; k < m->cols; k++) {
        double x = (double)((const float *)a->a.values)[at * a->a.stride + k];
        if (a->a.scales != NULL)
            x *= (double)a->a.scales[at * a->a.scale_cols + k / a->a.group_cols];
        sum += row[k] * x;
    }
    if (a->a.global != NULL)
        sum = with_global(sum, a->a.global_kind, (double)a->a.global[at]);
    if (m->global != 0)
        sum = with_global(sum, a->weight.global, (double)((const float *)(const void *)(record + m->global))[n]);
    if (m->bias != 0)
        sum += (double)((const float *)(const void *)(record + m->bias))[n];
    return (float)sum;
}

/* A slot's matrix times all of the slot's rows; the result goes to the columns from `first` on. */
static void multiply(const mox_cuda_expert_gemm_args *a, const mox_cuda_matrix *m, int64_t slot, int64_t first)
{
    const uint8_t *record = a->records + (uint64_t)slot * a->record_bytes;
    double *row = malloc((size_t)m->cols * sizeof *row);
    for (int64_t n = 0; n < m->rows && a->offsets[slot] < a->offsets[slot + 1]; n++) {
        for (int64_t k = 0; k < m->cols; k++)
            row[k] = weight(a, m, record, n, k);
        for (int64_t p = a->offsets[slot]; p < a->offsets[slot + 1]; p++)
            a->out[p * a->n_out + first + n] = dot(a, m, record, n, row, a->act_row != NULL ? a->act_row[p] : p);
    }
    free(row);
}

static moxie_status expert_gemm(const mox_cuda_expert_gemm_args *a, mox_cuda_stream stream, moxie_error *error)
{
    (void)stream;
    const bool hopper = a->tiles.count > 0, fused = a->fuses != 0;
    const int matrices = a->projection == 0 && a->gated ? 2 : 1;
    MOX_TRY(record(fused ? "expert_gemm_fused" : hopper ? "expert_gemm_hopper" : "expert_gemm", error));
    assert_true(a->offsets[a->slots] <= a->max_pairs);
    if (hopper)
        return mox_sm90_enqueue(a, &test_cuda_sm90_ops, NULL);
    for (int64_t s = 0; s < a->slots; s++)
        for (int i = 0; i < matrices; i++)
            multiply(a, &a->matrix[i], s, i * a->matrix[i].rows);
    return MOXIE_OK;
}

static moxie_status row_norm(const mox_row_norm_args *a, mox_cuda_stream stream, moxie_error *error)
{
    (void)stream;
    MOX_TRY(record("row_norm", error));
    mox_row_norm_scalar_run(a, &mox_executor_serial);
    return MOXIE_OK;
}

static moxie_status glu(const mox_glu_args *a, mox_cuda_stream stream, moxie_error *error)
{
    (void)stream;
    MOX_TRY(record("glu", error));
    test_cuda_glu(a);
    return MOXIE_OK;
}

static moxie_status lora(const mox_lora_args *a, mox_cuda_stream stream, moxie_error *error)
{
    (void)stream;
    MOX_TRY(record("lora", error));
    return test_cuda_lora(a, error);
}

/* One number of an expert's result, rounded where the layer rounds results. */
static float result_of(const mox_combine_args *a, int64_t at)
{
    float value = a->y16 != NULL ? mox_load(a->round_y, (const uint16_t *)a->y16 + at) : a->y[at];
    uint16_t code;
    if (a->round_y == MOXIE_DTYPE_NONE || a->y16 != NULL)
        return value;
    mox_narrow(a->round_y, &value, &code, 1);
    return mox_load(a->round_y, &code);
}

static moxie_status combine(const mox_combine_args *a, mox_cuda_stream stream, moxie_error *error)
{
    (void)stream;
    MOX_TRY(record("combine", error));
    for (int64_t t = 0; t < a->tokens; t++)
        for (int64_t i = 0; i < a->hidden; i++) {
            float sum = 0;
            for (int64_t j = t * a->top_k; j < (t + 1) * a->top_k; j++) {
                const int64_t row = a->position != NULL                        ? a->position[j]
                                    : a->ids[j] >= 0 && a->ids[j] < a->experts ? j
                                                                               : -1;
                if (row >= 0)
                    sum = sum + (a->weights != NULL ? a->weights[j] : 1.0f) * result_of(a, row * a->hidden + i);
                else if (mox_combine_is_identity(a, j))
                    sum = sum + a->identity_weights[j] *
                                    mox_load(a->out_dtype, (const char *)a->identity +
                                                               (t * a->hidden + i) * mox_dtype_bytes(a->out_dtype));
            }
            if (a->shared != NULL)
                sum = sum + mox_combine_shared_weight(a, t) * a->shared[t * a->hidden + i];
            mox_narrow(a->out_dtype, &sum, (char *)a->out + (t * a->hidden + i) * mox_dtype_bytes(a->out_dtype), 1);
        }
    return MOXIE_OK;
}

/* ---- now, or in a graph -------------------------------------------------------------------------------- */

#define MOX_CUDA_LAUNCHER(family, args_type)                                                                           \
    static moxie_status family##_work(const void *args, moxie_error *error)                                            \
    {                                                                                                                  \
        return family(args, NULL, error);                                                                              \
    }                                                                                                                  \
    static moxie_status family##_enqueue(const args_type *args, mox_cuda_stream stream, moxie_error *error)            \
    {                                                                                                                  \
        (void)stream;                                                                                                  \
        return test_cuda_enqueue(family##_work, args, sizeof *args, error);                                            \
    }
#include "cuda/cuda_families.def"
#undef MOX_CUDA_LAUNCHER

/* ---- the table ----------------------------------------------------------------------------------------- */

static mox_cuda_table table = {
    .version = MOX_CUDA_TABLE_VERSION,
    .bytes = sizeof table + MOX_CUDA_ARGS_BYTES,
    .built = "a table of the tests",
    .kernels = kernels,
    .count = count,
    .features = features,
    .use = use,
    .allocate = allocate,
    .release = release,
    .allocate_pinned = allocate,
    .release_pinned = release,
    .copy = copy,
    .fill = fill,
    .stream_create = create,
    .stream_destroy = destroy,
    .stream_wait = wait_for,
    .event_create = create,
    .event_destroy = destroy,
    .event_record = event_record,
    .event_wait = wait_for,
    .event_done = event_done,
    .stream_follow = stream_follow,
};

void test_cuda_set_device(const char *preset)
{
    assert_true(mox_cuda_preset(preset, &device));
}

void test_cuda_set_devices(int count)
{
    devices = count;
}

void test_cuda_set_l2(uint64_t bytes)
{
    device.l2_bytes = bytes;
}

void test_cuda_set_multiprocessors(int32_t count)
{
    device.multiprocessors = count;
}

static bool is_lazy;

bool test_cuda_is_lazy(void)
{
    return is_lazy;
}

int test_cuda_begin(void **state)
{
    (void)state;
#define MOX_CUDA_LAUNCHER(family, args_type)                                                                           \
    for (int i = 0; i < MOX_CUDA_ROWS_##family; i++)                                                                   \
        table.family[i] = family##_enqueue;
#include "cuda/cuda_families.def"
#undef MOX_CUDA_LAUNCHER
    test_cuda_graph_fill(&table, record);
    test_cuda_rows_fill(&table, record);
    test_cuda_pack_fill(&table, record);
    test_cuda_set_device("sm_80");
    test_cuda_clear();
    test_cuda_fail_at(0);
    const char *lazy = getenv("MOXIE_TEST_LAZY");
    is_lazy = lazy != NULL;
    mox_cuda_replace(is_lazy ? test_lazy_wrap(&table, strtoull(lazy, NULL, 10)) : &table);
    return 0;
}

int test_cuda_end(void **state)
{
    (void)state;
    mox_cuda_replace(NULL);
    if (is_lazy)
        assert_int_equal(test_lazy_end(), 0);
    assert_int_equal(alive + test_cuda_graphs_alive(), 0);
    return 0;
}
