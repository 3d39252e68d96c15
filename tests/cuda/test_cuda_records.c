/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_records.c - experts packed on a GPU: their records have the bytes that the CPU gives them, and they need
 * little memory on their way. Skipped without a GPU.
 */
#include "device_support.h"
#include "layer/weights/layer.h"
#include "layer/weights/layer_prepare.h"

static const mox_cuda_table *table;

static void records_of(device_case *c)
{
    const moxie_layer *layer = c->layer.built;
    uint8_t *want = aligned_alloc(64, layer->record_bytes), *got = aligned_alloc(64, layer->record_bytes);
    for (int32_t s = 0; s < layer->slots; s++) {
        const int64_t e = layer->expert_of[s];
        moxie_error error = { 0 };
        assert_ok(mox_layer_pack_alone(layer, e, &c->layer.weights.experts[e], want, &error), &error);
        assert_ok(table->copy(got, layer->records[s], layer->record_bytes, NULL, &error), &error);
        assert_ok(table->stream_wait(NULL, &error), &error);
        if (memcmp(got, want, layer->record_bytes) != 0)
            fail_msg("%s: the record of expert %lld differs from the CPU's", c->layer.text, (long long)e);
    }
    free(want);
    free(got);
}

static void records_have_the_cpus_bytes(void **state)
{
    (void)state;
    for (int i = 0; i < 60; i++) {
        const test_layer_limits limits = { .tokens = 1,
                                           .plain_routing = true,
                                           .largest = i % 10 == 0 ? 1500 : 300,
                                           .decoded = i % 4 == 0,
                                           .mma = i % 4 == 1,
                                           .to_fp8 = i % 4 == 2,
                                           .blocks = i % 4 == 3 };
        device_case c;
        device_case_make(&c, table, 900 + (uint64_t)i, &limits);
        records_of(&c);
        device_case_close(&c);
    }
}

/* Device memory of a layer in use now, and the most there was. */
typedef struct device_count {
    uint64_t now, peak;
    struct {
        void *memory;
        uint64_t bytes;
    } blocks[64];
} device_count;

static void *count_allocate(void *self, uint64_t bytes)
{
    device_count *count = self;
    void *memory = NULL;
    int i = 0;
    while (i < 63 && count->blocks[i].memory != NULL)
        i++;
    assert_int_equal(table->allocate(bytes, &memory, NULL), MOXIE_OK);
    count->blocks[i].memory = memory;
    count->blocks[i].bytes = bytes;
    count->now += bytes;
    count->peak = count->now > count->peak ? count->now : count->peak;
    return memory;
}

static void count_release(void *self, void *memory)
{
    device_count *count = self;
    for (int i = 0; i < 64; i++)
        if (count->blocks[i].memory == memory) {
            count->now -= count->blocks[i].bytes;
            count->blocks[i].memory = NULL;
        }
    table->release(memory);
}

/* What a preparation needs besides the records: two experts on their way, and the few arrays of a layer. */
static void peak_memory_is_two_experts(void **state)
{
    (void)state;
    const test_layer_limits limits = { .tokens = 1,
                                       .plain_routing = true,
                                       .experts = 12,
                                       .largest = 1500,
                                       .no_parallel = true,
                                       .weight = test_weight_quant_named("int4 words g32") };
    device_count count = { 0 };
    test_rng rng = { 31 };
    test_layer layer;
    test_layer_make(&layer, &rng, &limits);
    moxie_options options = device_options(1);
    const moxie_cuda_allocator allocator = { &count, count_allocate, count_release };
    options.device_memory = &allocator;
    test_layer_plan(&layer, &options);
    const uint64_t records = moxie_layer_bytes(layer.built), expert = layer.built->record_bytes;
    print_message("records %llu bytes, an expert's %llu, peak %llu\n", (unsigned long long)records,
                  (unsigned long long)expert, (unsigned long long)count.peak);
    assert_true(count.peak < records + 2 * expert + expert / 2 + (1 << 20));
    test_layer_free(&layer);
    assert_int_equal(count.now, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_have_the_cpus_bytes),
        cmocka_unit_test(peak_memory_is_two_experts),
    };
    setvbuf(stdout, NULL, _IOLBF, 0); /* so that the output of a program that hangs shows where */
    table = device_or_skip();
    return table != NULL ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}
