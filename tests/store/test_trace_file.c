/* SPDX-License-Identifier: Apache-2.0
 *
 * test_trace_file.c - trace files: the bytes are those of docs/trace-file.md, read here by a second reader; every kind
 * of step comes back; damage of any byte, at any length, is refused; a failed allocation leaves nothing behind.
 */
#include "test_support.h"

#include <fcntl.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <moxie/moxie_trace.h>

#include "base/memory.h"

enum { MAX_CHOICES = 4096, MAX_FILE = 1 << 18, MAX_STEPS = 6 };

/* A trace in memory: what is written, and what must be read. Ids are [tokens, layers, top_k]. */
typedef struct made {
    moxie_trace_info info;
    int32_t numbers[16];
    int64_t tokens[MAX_STEPS];
    int32_t phase[MAX_STEPS];
    int32_t ids[MAX_STEPS][MAX_CHOICES];
    float weights[MAX_STEPS][MAX_CHOICES];
    uint64_t requests[MAX_STEPS][64];
} made;

static char *dir;
static char path[512];

static void make(made *m, uint64_t seed)
{
    test_rng rng = { .state = seed };
    *m = (made) { .info = MOXIE_TRACE_INFO_INIT };
    m->info.layers = (int32_t)test_range(&rng, 1, 7);
    m->info.experts = (int32_t)(test_below(&rng, 4) ? test_range(&rng, 1, 60) : 1024);
    m->info.zero_experts = test_below(&rng, 2) ? (int32_t)test_range(&rng, 1, 9) : 0;
    m->info.top_k = (int32_t)test_range(&rng, 1, 9);
    m->info.has_weights = (int32_t)test_below(&rng, 2);
    m->info.has_requests = (int32_t)test_below(&rng, 2);
    m->info.fingerprint = test_u64(&rng);
    m->info.model = test_below(&rng, 2) ? "a model \xc3\xa9" : NULL;
    m->info.layer_numbers = test_below(&rng, 2) ? m->numbers : NULL;
    for (int l = 0; l < 16; l++)
        m->numbers[l] = (l ? m->numbers[l - 1] : 2) + (int32_t)test_range(&rng, 1, 3);
    m->info.steps = (int64_t)test_below(&rng, MAX_STEPS + 1);
    for (int64_t s = 0; s < m->info.steps; s++) {
        m->tokens[s] = (int64_t)test_below(&rng, 12); /* 0: an idle step */
        m->phase[s] = (int32_t)test_below(&rng, 4);
        m->info.tokens += m->tokens[s];
        for (int64_t i = 0; i < m->tokens[s] * m->info.layers * m->info.top_k; i++) {
            const int32_t all = m->info.experts + m->info.zero_experts;
            m->ids[s][i] = (int32_t)test_below(&rng, (uint64_t)all + 1) - 1;
            m->weights[s][i] = test_uniform(&rng);
        }
        for (int t = 0; t < m->tokens[s]; t++)
            m->requests[s][t] = test_u64(&rng);
    }
}

/* Writes it; odd steps as [layers, tokens, top_k], by strides. */
static moxie_status write_made(const made *m, moxie_error *error)
{
    static int32_t turned[MAX_CHOICES];
    static float turned_weights[MAX_CHOICES];
    moxie_trace_writer *writer = NULL;
    moxie_status status = moxie_trace_writer_create(path, &m->info, &writer, error);
    for (int64_t s = 0; status == MOXIE_OK && s < m->info.steps; s++) {
        moxie_trace_step step = MOXIE_TRACE_STEP_INIT;
        const int64_t k = m->info.top_k, layers = m->info.layers, tokens = m->tokens[s];
        step.tokens = tokens;
        step.phase = m->phase[s];
        step.ids = m->ids[s];
        step.weights = m->weights[s];
        step.requests = m->requests[s];
        if (s % 2) {
            for (int64_t i = 0; i < tokens * layers * k; i++) {
                const int64_t to = i / k % layers * tokens * k + i / (k * layers) * k + i % k;
                turned[to] = m->ids[s][i] < 0 ? -7 : m->ids[s][i];
                turned_weights[to] = m->weights[s][i];
            }
            step.ids = turned;
            step.weights = turned_weights;
            step.token_stride = k;
            step.layer_stride = tokens * k;
        }
        status = moxie_trace_writer_add(writer, &step, error);
    }
    if (status == MOXIE_OK)
        status = moxie_trace_writer_finish(writer, error);
    moxie_trace_writer_destroy(writer);
    return status;
}

static size_t slurp(unsigned char *bytes)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    const size_t n = fread(bytes, 1, MAX_FILE, f);
    fclose(f);
    assert_true(n < MAX_FILE);
    return n;
}

static void spill(const unsigned char *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* ---- another reader ------------------------------------------------------------------------------------- */

static uint64_t number(const unsigned char *at, int bytes)
{
    uint64_t v = 0;
    for (int i = 0; i < bytes; i++)
        v |= (uint64_t)at[i] << 8 * i;
    return v;
}

/* XXH3-64 of a block whose 8 bytes at `field` count as 0. */
static uint64_t sum_without(const unsigned char *block, size_t bytes, size_t field)
{
    static unsigned char copy[MAX_FILE];
    memcpy(copy, block, bytes);
    memset(copy + field, 0, 8);
    return XXH3_64bits(copy, bytes);
}

static size_t pad8(size_t n)
{
    return (n + 7) / 8 * 8;
}

static const unsigned char *read_step(const made *m, int64_t s, const unsigned char *b)
{
    const size_t n = (size_t)(m->tokens[s] * m->info.layers * m->info.top_k);
    size_t bytes = 32 + pad8(2 * n);
    const unsigned char *weights = b + bytes;
    bytes += m->info.has_weights ? pad8(4 * n) : 0;
    const unsigned char *requests = b + bytes;
    bytes += m->info.has_requests ? 8 * (size_t)m->tokens[s] : 0;
    assert_memory_equal(b, "STEP", 4);
    assert_int_equal(number(b + 4, 4), m->tokens[s]);
    assert_int_equal(number(b + 8, 4), m->phase[s]);
    assert_int_equal(number(b + 12, 4), 0);
    assert_int_equal(number(b + 16, 8), s);
    assert_true(number(b + 24, 8) == sum_without(b, bytes, 24));
    for (size_t i = 0; i < n; i++)
        assert_int_equal(number(b + 32 + 2 * i, 2), m->ids[s][i] < 0 ? 0xffff : m->ids[s][i]);
    if (m->info.has_weights)
        assert_memory_equal(weights, m->weights[s], 4 * n);
    for (int64_t t = 0; m->info.has_requests && t < m->tokens[s]; t++)
        assert_true(number(requests + 8 * t, 8) == m->requests[s][t]);
    return b + bytes;
}

static void read_anew(const made *m)
{
    static unsigned char bytes[MAX_FILE];
    const size_t size = slurp(bytes), header = pad8(128 + 4 * (size_t)m->info.layers);
    assert_memory_equal(bytes, "MOXTRACE", 8);
    const uint64_t want[] = { 1,
                              0x01020304,
                              header,
                              (uint64_t)(m->info.has_weights | m->info.has_requests << 1),
                              (uint64_t)m->info.layers,
                              (uint64_t)m->info.experts,
                              (uint64_t)m->info.top_k,
                              (uint64_t)m->info.zero_experts };
    for (int i = 0; i < 8; i++)
        assert_int_equal(number(bytes + 8 + 4 * i, 4), want[i]);
    assert_true(number(bytes + 40, 8) == m->info.fingerprint);
    assert_string_equal((const char *)bytes + 48, m->info.model ? m->info.model : "");
    assert_true(number(bytes + 120, 8) == sum_without(bytes, header, 120));
    for (int l = 0; l < m->info.layers; l++)
        assert_int_equal(number(bytes + 128 + 4 * l, 4), m->info.layer_numbers ? m->numbers[l] : l);
    const unsigned char *at = bytes + header;
    for (int64_t s = 0; s < m->info.steps; s++)
        at = read_step(m, s, at);
    assert_memory_equal(at, "END ", 4);
    assert_int_equal(number(at + 16, 8), m->info.steps);
    assert_true(number(at + 24, 8) == sum_without(at, 32, 24));
    assert_int_equal(at + 32 - bytes, size);
}

/* ---- the library's reader ------------------------------------------------------------------------------- */

static void read_back(const made *m)
{
    moxie_error error = { 0 };
    moxie_trace *trace = NULL;
    moxie_trace_info info = MOXIE_TRACE_INFO_INIT;
    assert_int_equal(moxie_trace_is_trace(path), 1);
    assert_ok(moxie_trace_open(path, &trace, &error), &error);
    assert_ok(moxie_trace_get_info(trace, &info, &error), &error);
    assert_int_equal(info.layers, m->info.layers);
    assert_int_equal(info.experts, m->info.experts);
    assert_int_equal(info.top_k, m->info.top_k);
    assert_int_equal(info.zero_experts, m->info.zero_experts);
    assert_int_equal(info.has_weights, m->info.has_weights);
    assert_int_equal(info.has_requests, m->info.has_requests);
    assert_true(info.fingerprint == m->info.fingerprint && info.steps == m->info.steps &&
                info.tokens == m->info.tokens);
    assert_string_equal(info.model, m->info.model ? m->info.model : "");
    for (int l = 0; l < info.layers; l++)
        assert_int_equal(info.layer_numbers[l], m->info.layer_numbers ? m->numbers[l] : l);
    for (int64_t s = info.steps; s-- > 0;) {
        moxie_trace_step step = MOXIE_TRACE_STEP_INIT;
        const size_t n = (size_t)(m->tokens[s] * info.layers * info.top_k);
        assert_ok(moxie_trace_read(trace, s, &step, &error), &error);
        assert_true(step.tokens == m->tokens[s] && step.phase == m->phase[s]);
        assert_true(step.token_stride == (int64_t)info.layers * info.top_k && step.layer_stride == info.top_k);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(step.ids[i], m->ids[s][i]);
        assert_int_equal(step.weights != NULL, info.has_weights);
        assert_int_equal(step.requests != NULL, info.has_requests);
        if (step.weights)
            assert_memory_equal(step.weights, m->weights[s], 4 * n);
        if (step.requests)
            assert_memory_equal(step.requests, m->requests[s], 8 * (size_t)m->tokens[s]);
    }
    moxie_trace_step step = MOXIE_TRACE_STEP_INIT;
    assert_int_equal(moxie_trace_read(trace, info.steps, &step, &error), MOXIE_ERR_ARGUMENT);
    moxie_trace_close(trace);
}

static void traces_come_back(void **state)
{
    (void)state;
    static made m;
    moxie_error error = { 0 };
    for (uint64_t seed = 1; seed <= 40; seed++) {
        make(&m, seed);
        assert_ok(write_made(&m, &error), &error);
        read_anew(&m);
        read_back(&m);
    }
}

static moxie_status try_open(moxie_error *error)
{
    moxie_trace *trace = NULL;
    const moxie_status status = moxie_trace_open(path, &trace, error);
    assert_int_equal(status == MOXIE_OK, trace != NULL);
    moxie_trace_close(trace);
    return status;
}

/* The file is changed in place: files that are written anew would take a minute. */
static void damage_is_refused(void **state)
{
    (void)state;
    static made m;
    static unsigned char bytes[MAX_FILE];
    moxie_error error = { 0 };
    uint64_t seed = 1;
    for (make(&m, seed); m.info.steps < 4 || m.tokens[1] * m.tokens[2] == 0 || m.info.experts > 60;)
        make(&m, ++seed);
    assert_ok(write_made(&m, &error), &error);
    const size_t size = slurp(bytes);
    const int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    for (size_t i = 0; i < size; i++) {
        const unsigned char flipped = bytes[i] ^ (unsigned char)(1u << i % 8);
        assert_int_equal(pwrite(fd, &flipped, 1, (off_t)i), 1);
        const moxie_status status = try_open(&error);
        assert_true(status == MOXIE_ERR_FORMAT || status == MOXIE_ERR_MISMATCH || status == MOXIE_ERR_UNSUPPORTED);
        assert_int_equal(pwrite(fd, bytes + i, 1, (off_t)i), 1);
    }
    assert_ok(try_open(&error), &error);
    assert_int_equal(ftruncate(fd, (off_t)size + 1), 0);
    for (size_t i = size + 1; i > 0; i -= i == size + 1 ? 2 : 1) {
        assert_int_equal(ftruncate(fd, (off_t)i), 0);
        assert_int_equal(try_open(&error), MOXIE_ERR_FORMAT);
    }
    close(fd);
}

/* Steps that exchange places have right checksums and wrong numbers. */
static void swapped_and_lost_steps_are_refused(void **state)
{
    (void)state;
    static made m;
    static unsigned char bytes[MAX_FILE], copy[MAX_FILE];
    moxie_error error = { 0 };
    make(&m, 5);
    m.info.steps = 3;
    m.info.tokens = 3;
    m.tokens[0] = m.tokens[1] = m.tokens[2] = 1;
    assert_ok(write_made(&m, &error), &error);
    const size_t size = slurp(bytes), header = pad8(128 + 4 * (size_t)m.info.layers), step = (size - header - 32) / 3;
    memcpy(copy, bytes, size);
    memcpy(copy + header, bytes + header + step, step);
    memcpy(copy + header + step, bytes + header, step);
    spill(copy, size);
    assert_int_equal(try_open(&error), MOXIE_ERR_FORMAT);
    assert_non_null(strstr(error.text, "lost, doubled or swapped"));
    memcpy(copy, bytes, header);
    memcpy(copy + header, bytes + header + step, size - header - step);
    spill(copy, size - step);
    assert_int_equal(try_open(&error), MOXIE_ERR_FORMAT);
}

static void writers_refuse(void **state)
{
    (void)state;
    moxie_error error = { 0 };
    moxie_trace_info info = MOXIE_TRACE_INFO_INIT;
    moxie_trace_writer *writer = NULL;
    const int32_t numbers[2] = { 4, 4 };
    info.layers = 2, info.experts = 8, info.top_k = 1;
    info.layer_numbers = numbers;
    assert_int_equal(moxie_trace_writer_create(path, &info, &writer, &error), MOXIE_ERR_ARGUMENT);
    info.layer_numbers = NULL;
    info.top_k = 33;
    assert_int_equal(moxie_trace_writer_create(path, &info, &writer, &error), MOXIE_ERR_ARGUMENT);
    info.top_k = 1;
    info.has_weights = 1;
    unlink(path);
    assert_ok(moxie_trace_writer_create(path, &info, &writer, &error), &error);
    moxie_trace_step step = MOXIE_TRACE_STEP_INIT;
    int32_t ids[2] = { 7, 8 };
    const float weights[2] = { 1, 1 };
    step.tokens = 1;
    step.ids = ids;
    assert_int_equal(moxie_trace_writer_add(writer, &step, &error), MOXIE_ERR_ARGUMENT); /* no weights */
    step.weights = weights;
    assert_int_equal(moxie_trace_writer_add(writer, &step, &error), MOXIE_ERR_ARGUMENT); /* id 8 */
    ids[1] = -1;
    step.phase = 4;
    assert_int_equal(moxie_trace_writer_add(writer, &step, &error), MOXIE_ERR_ARGUMENT);
    step.phase = MOXIE_TRACE_DECODE;
    assert_ok(moxie_trace_writer_add(writer, &step, &error), &error);
    assert_int_not_equal(access(path, F_OK), 0); /* not before it is whole */
    assert_ok(moxie_trace_writer_finish(writer, &error), &error);
    assert_int_equal(moxie_trace_writer_add(writer, &step, &error), MOXIE_ERR_ARGUMENT);
    moxie_trace_writer_destroy(writer);
    assert_ok(try_open(&error), &error);
    unlink(path);
    assert_ok(moxie_trace_writer_create(path, &info, &writer, &error), &error);
    moxie_trace_writer_destroy(writer); /* unfinished */
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_equal(try_open(&error), MOXIE_ERR_IO);
}

static moxie_status everything(const made *m, moxie_error *error)
{
    moxie_trace *trace = NULL;
    moxie_trace_step step = MOXIE_TRACE_STEP_INIT;
    moxie_cache_config config = MOXIE_CACHE_CONFIG_INIT;
    moxie_cache_hits hits = MOXIE_CACHE_HITS_INIT;
    config.slots = 1;
    config.with_best = 1;
    moxie_status status = write_made(m, error);
    if (status == MOXIE_OK)
        status = moxie_trace_open(path, &trace, error);
    if (status == MOXIE_OK)
        status = moxie_trace_read(trace, 0, &step, error);
    if (status == MOXIE_OK)
        status = moxie_trace_simulate(trace, &config, &hits, NULL, error);
    moxie_trace_close(trace);
    return status;
}

static void memory_may_be_short(void **state)
{
    (void)state;
    static made m;
    moxie_error error = { 0 };
    uint64_t seed = 1;
    for (make(&m, seed); m.info.steps < 3;)
        make(&m, ++seed);
    for (uint64_t n = 1;; n++) {
        unlink(path);
        mox_alloc_fail_at(n);
        const moxie_status status = everything(&m, &error);
        mox_alloc_fail_at(0);
        if (status == MOXIE_OK) {
            assert_true(n > 10);
            return;
        }
        assert_int_equal(status, MOXIE_ERR_MEMORY);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(traces_come_back),
        cmocka_unit_test(damage_is_refused),
        cmocka_unit_test(swapped_and_lost_steps_are_refused),
        cmocka_unit_test(writers_refuse),
        cmocka_unit_test(memory_may_be_short),
    };
    dir = test_tmpdir();
    snprintf(path, sizeof path, "%s/trace", dir);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_rmdir(dir);
    return failed;
}
