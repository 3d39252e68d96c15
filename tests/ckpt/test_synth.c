/* SPDX-License-Identifier: Apache-2.0
 *
 * test_synth.c - synthetic checkpoints: random numbers against published vectors; the same bytes with any number of
 * threads; exactly the tensors that a layer has; checkpoints that open; nothing left behind on failure. The values of
 * the numbers are tested in test_synth_values.c.
 */
#include "synth_fixture.h"

#include <math.h>
#include <sys/stat.h>

#include "base/memory.h"

/* Every file of `a` has the same bytes in `b`. */
static void assert_same_directory(const char *a, const char *b, bool same)
{
    char command[1400];
    snprintf(command, sizeof command, "diff -r '%s' '%s' > /dev/null", a, b);
    assert_int_equal(system(command) == 0, same);
}

/* ---- random numbers ----------------------------------------------------------------------------- */

/* The vectors published with Philox: all zeros, all ones, digits of pi. */
static void philox_gives_the_published_vectors(void **state)
{
    (void)state;
    uint64_t half[2];
    mox_random_block(&(mox_stream) { 0, 0 }, 0, half);
    assert_true(half[0] == UINT64_C(0xe169c58d6627e8d5) && half[1] == UINT64_C(0x9b00dbd8bc57ac4c));
    mox_random_block(&(mox_stream) { UINT64_MAX, UINT64_MAX }, UINT64_MAX, half);
    assert_true(half[0] == UINT64_C(0x41c83b0e408f276d) && half[1] == UINT64_C(0x6d5451fda20bc7c6));
    mox_random_block(&(mox_stream) { UINT64_C(0x299f31d0a4093822), UINT64_C(0x0370734413198a2e) },
                     UINT64_C(0x85a308d3243f6a88), half);
    assert_true(half[0] == UINT64_C(0x94fdccebd16cfe09) && half[1] == UINT64_C(0x24126ea15001e420));
}

/* The first deviates of seed 7, layer 3, expert 5, up: computed independently of this program. */
static void deviates_follow_their_definition(void **state)
{
    (void)state;
    static const int32_t want[4] = { 24355, -21487, -23143, 11625 };
    const mox_stream stream = mox_synth_stream(7, 3, 5, MOX_SOURCE_UP);
    int32_t z[4];
    mox_deviates(&stream, 0, 4, z);
    assert_memory_equal(z, want, sizeof want);
}

static void deviates_are_nearly_normal(void **state)
{
    (void)state;
    enum { COUNT = 1 << 20 };
    const mox_stream stream = { 1, 2 };
    int32_t *z = malloc(COUNT * sizeof *z);
    mox_deviates(&stream, 0, COUNT, z);
    double sum = 0, squares = 0, fourth = 0;
    int64_t within_one = 0, within_two = 0;
    for (int i = 0; i < COUNT; i++) {
        const double x = z[i] * MOX_DEVIATE_UNIT;
        assert_true(z[i] >= -MOX_DEVIATE_MAX && z[i] <= MOX_DEVIATE_MAX);
        sum += x;
        squares += x * x;
        fourth += x * x * x * x;
        within_one += fabs(x) < 1;
        within_two += fabs(x) < 2;
    }
    /* Five standard deviations of each estimate; the fractions are those of the normal distribution, to a percent. */
    assert_close(sum / COUNT, 0, 5 / sqrt(COUNT));
    assert_close(squares / COUNT, 1, 5 * sqrt(2.0 / COUNT));
    assert_close(fourth / COUNT, 2.8, 0.05); /* six uniform digits: 3 - 1.2 / 6 */
    assert_close((double)within_one / COUNT, 0.6827, 0.01);
    assert_close((double)within_two / COUNT, 0.9545, 0.01);
    free(z);
}

static void any_element_can_be_made_alone(void **state)
{
    (void)state;
    const mox_stream stream = { 3, 4 };
    int32_t all[101], some[101];
    mox_deviates(&stream, 0, 101, all);
    for (int first = 0; first < 20; first++) {
        for (int count = 0; count < 20; count++) {
            some[count] = 12345;
            mox_deviates(&stream, (uint64_t)first, count, some);
            assert_memory_equal(some, all + first, (size_t)count * sizeof *some);
            assert_int_equal(some[count], 12345);
        }
        assert_int_equal(mox_deviate_of(mox_random_bits(&stream, (uint64_t)first)), all[first]);
    }
}

/* ---- the tensors of a layer, read back ---------------------------------------------------------- */

typedef struct layer_check {
    const mox_synth_model *model;
    const mox_tensor_set *set;
    int64_t layer, seen;
    uint64_t bytes;
} layer_check;

static moxie_status check_tensor(void *user, const mox_tensor_spec *spec, moxie_error *error)
{
    (void)error;
    layer_check *c = user;
    const mox_file_tensor *t = mox_tensor_set_find(c->set, spec->name);
    if (!t)
        fail_msg("%s is missing", spec->name);
    assert_int_equal(t->view.dtype, spec->dtype);
    assert_int_equal(t->view.rank, spec->rank);
    for (int32_t i = 0; i < spec->rank; i++)
        assert_int_equal(t->view.shape[i], spec->shape[i]);
    c->seen++;
    c->bytes += t->bytes;
    return MOXIE_OK;
}

/* The directory holds the tensors of the model's layers and no other. */
static void assert_exactly_the_tensors(fixture *f, const mox_synth_model *m, const char *dir)
{
    mox_tensor_set *set;
    assert_ok(mox_tensor_set_open_dir(dir, false, &set, &f->error), &f->error);
    layer_check c = { .model = m, .set = set };
    for (int64_t i = 0; i < m->layers; i++)
        assert_ok(mox_enumerate_layer(m->family, &m->dims, m->routed, m->shared, mox_preset_layer(m->preset, i),
                                      check_tensor, &c, &f->error),
                  &f->error);
    assert_int_equal(mox_tensor_set_count(set), c.seen);
    assert_int_equal(mox_tensor_set_warnings(set), 0);
    assert_int_equal(mox_tensor_set_bytes(set), c.bytes);
    mox_tensor_set_close(set);
}

static void assert_config(fixture *f, const mox_synth_model *m, const char *dir)
{
    char path[700];
    json_t *config;
    snprintf(path, sizeof path, "%s/config.json", dir);
    assert_ok(mox_json_load(path, 1 << 24, false, &config, &f->error), &f->error);
    const char *type = json_string_value(json_object_get(config, "model_type"));
    assert_true(type && mox_family_by_model_type(type) == m->family);
    const json_t *thinker = json_object_get(config, "thinker_config");
    const json_t *section = json_object_get(thinker ? thinker : config, "text_config");
    const json_t *text = section ? section : config;
    assert_int_equal(json_integer_value(json_object_get(text, "hidden_size")), m->dims.hidden);
    assert_int_equal(json_integer_value(json_object_get(text, "num_hidden_layers")), m->dims.layers);
    const json_t *quant = json_object_get(config, "quantization_config");
    quant = quant ? quant : json_object_get(text, "quantization_config");
    assert_int_equal(quant != NULL, m->routed->write_config != NULL);
    if (quant && m->routed->method[0])
        assert_string_equal(json_string_value(json_object_get(quant, "quant_method")), m->routed->method);
    json_decref(config);
}

/* The model reader finds what was written, with the names and sizes that were requested. */
static void assert_opens(fixture *f, const mox_synth_model *m, const char *dir)
{
    moxie_model *model;
    moxie_model_info info = MOXIE_MODEL_INFO_INIT;
    assert_ok(moxie_model_open(dir, NULL, &model, &f->error), &f->error);
    moxie_model_get_info(model, &info, NULL);
    assert_string_equal(info.family, m->family->id);
    assert_int_equal(info.n_layers, m->layers);
    for (int64_t i = 0; i < m->layers; i++) {
        moxie_model_layer_info layer = MOXIE_MODEL_LAYER_INFO_INIT;
        moxie_model_layer *loaded;
        assert_ok(moxie_model_describe_layer(model, i, &layer, &f->error), &f->error);
        assert_int_equal(layer.layer, mox_preset_layer(m->preset, i));
        if (strcmp(layer.format, m->routed->id) != 0)
            fail_msg("%s written in %s is taken for %s", m->preset->name, m->routed->id, layer.format);
        assert_int_equal(layer.experts, m->dims.experts);
        assert_int_equal(layer.top_k, m->dims.top_k);
        assert_int_equal(layer.hidden, m->dims.expert_width);
        assert_int_equal(layer.intermediate, m->dims.intermediate);
        assert_int_equal(layer.router_width, m->dims.hidden);
        assert_ok(moxie_model_load_layer(model, layer.layer, &loaded, &f->error), &f->error);
        moxie_model_layer_free(loaded);
    }
    moxie_model_close(model);
}

static void every_preset_in_every_format_it_lists(void **state)
{
    fixture *f = *state;
    const mox_preset *p;
    const bool all = test_one_in(3, "presets and formats: each format and family once") == 1;
    test_names met = { .count = 0 };
    for (int32_t i = 0; (p = mox_preset_at(i)); i++) {
        for (int32_t j = 0; j < 12 && p->formats[j]; j++) {
            const bool new_format = test_name_is_new(&met, p->formats[j]);
            if (!test_name_is_new(&met, p->family) && !new_format && !all)
                continue;
            /* Four layers where the first ones route by table. */
            const moxie_synth_options o = small(p->formats[j], p->dims.n_hash_layers + 1, fewest_experts(p));
            mox_synth_model m;
            assert_ok(mox_synth_resolve(p->name, &o, &m, &f->error), &f->error);
            write_threads(f, p->name, f->path, &o, 1);
            assert_exactly_the_tensors(f, &m, f->path);
            assert_config(f, &m, f->path);
            assert_opens(f, &m, f->path);
            remove_dir(f->path);
        }
    }
}

/* Formats that are not a preset's own: each on one model with a tensor per expert and one with stacks. */
static void every_format_on_models_that_were_never_released_in_it(void **state)
{
    fixture *f = *state;
    static const char *const presets[] = { "qwen3-30b-a3b", "llama-4-scout", "gpt-oss-20b", "deepseek-v3" };
    const int64_t step = test_one_in(16, "formats of each preset");
    int written = 0;
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++) {
        const mox_hf_quant *q;
        for (int32_t j = 0; (q = mox_hf_quant_at(j)); j++) {
            if ((j + 4 * (int32_t)i) % step != 0)
                continue;
            const moxie_synth_options o = small(q->id, 1, fewest_experts(mox_preset_by_name(presets[i])));
            mox_synth_model m;
            assert_ok(mox_synth_resolve(presets[i], &o, &m, &f->error), &f->error);
            const moxie_status status = mox_synth_write(presets[i], f->path, &o, &mox_executor_serial, &f->error);
            if (status == MOXIE_ERR_UNSUPPORTED) {
                assert_int_equal(test_entries_in(f->dir), 0);
                continue;
            }
            assert_ok(status, &f->error);
            assert_exactly_the_tensors(f, &m, f->path);
            assert_config(f, &m, f->path);
            assert_opens(f, &m, f->path);
            remove_dir(f->path);
            written++;
        }
    }
    assert_true(written > (step == 1 ? 100 : 2));
}

/* Texts as the releases have them. */
static void quantization_configs_are_the_published(void **state)
{
    fixture *f = *state;
    static const char *const cases[][2] = {
        { "gpt-oss-20b", "{\"modules_to_not_convert\":[\"model.layers.*.self_attn\",\"model.layers.*.mlp.router\","
                         "\"model.embed_tokens\",\"lm_head\"],\"quant_method\":\"mxfp4\"}" },
        { "deepseek-v3", "{\"activation_scheme\":\"dynamic\",\"fmt\":\"e4m3\",\"quant_method\":\"fp8\","
                         "\"weight_block_size\":[128,128]}" },
        { "kimi-k2", "{\"activation_scheme\":\"dynamic\",\"fmt\":\"e4m3\",\"quant_method\":\"fp8\","
                     "\"weight_block_size\":[128,128]}" },
        { "deepseek-v3.2", "{\"activation_scheme\":\"dynamic\",\"fmt\":\"e4m3\",\"quant_method\":\"fp8\","
                           "\"weight_block_size\":[128,128],\"scale_fmt\":\"ue8m0\"}" },
        { "deepseek-v4-flash", "{\"activation_scheme\":\"dynamic\",\"fmt\":\"e4m3\",\"quant_method\":\"fp8\","
                               "\"weight_block_size\":[128,128],\"scale_fmt\":\"ue8m0\"}" },
        { "step-3.7-flash", "{\"quant_method\":\"fp8\",\"weight_block_size\":[128,128],"
                            "\"activation_scheme\":\"dynamic\"}" },
        { "minimax-m2", "{\"activation_scheme\":\"dynamic\",\"fmt\":\"float8_e4m3fn\",\"quant_method\":\"fp8\","
                        "\"weight_block_size\":[128,128],\"modules_to_not_convert\":[\"gate\","
                        "\"e_score_correction_bias\",\"lm_head\"]}" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        mox_synth_model m;
        json_t *config, *want;
        assert_ok(mox_synth_resolve(cases[i][0], NULL, &m, &f->error), &f->error);
        assert_ok(mox_synth_config(&m, &config, &f->error), &f->error);
        assert_ok(mox_json_parse(cases[i][1], strlen(cases[i][1]), false, "want", &want, &f->error), &f->error);
        if (!json_equal(json_object_get(config, "quantization_config"), want))
            fail_msg("%s has another quantization_config", cases[i][0]);
        json_decref(want);
        json_decref(config);
    }
}

/* ---- determinism ---------------------------------------------------------------------------------- */

static void bytes_do_not_depend_on_threads(void **state)
{
    fixture *f = *state;
    static const char *const cases[][2] = {
        { "gpt-oss-20b", "mxfp4-gptoss" }, { "gpt-oss-20b", "bf16" },       { "qwen3-30b-a3b", "awq" },
        { "qwen3-30b-a3b", "gptq" },       { "deepseek-v3", "fp8-block" },  { "mixtral-8x7b", "fp8-tensor" },
        { "llama-4-scout", "bf16" },       { "glm-4.7", "nvfp4-modelopt" }, { "kimi-k3", "mxfp4-ct" },
    };
    const int64_t step = test_one_in(3, "cases");
    for (int64_t i = 0; i < (int64_t)(sizeof cases / sizeof cases[0]); i += step) {
        const mox_preset *p = mox_preset_by_name(cases[i][0]);
        const moxie_synth_options o = small(cases[i][1], 1, fewest_experts(p));
        write_threads(f, p->name, f->path, &o, 1);
        for (int32_t threads = 2; threads <= 5; threads += 3) {
            write_threads(f, p->name, f->path2, &o, threads);
            assert_same_directory(f->path, f->path2, true);
            remove_dir(f->path2);
        }
        remove_dir(f->path);
    }
}

static void another_seed_makes_other_bytes(void **state)
{
    fixture *f = *state;
    moxie_synth_options o = small(NULL, 1, 16);
    write_threads(f, "gpt-oss-20b", f->path, &o, 1);
    o.seed = 8;
    write_threads(f, "gpt-oss-20b", f->path2, &o, 1);
    assert_same_directory(f->path, f->path2, false);
}

/* Tensors that both have are equal, stacks up to the length of the shorter one. */
static void assert_common_tensors_equal(fixture *f, const char *small_dir, const char *large_dir, int64_t least)
{
    mox_tensor_set *a, *b;
    int64_t common = 0;
    assert_ok(mox_tensor_set_open_dir(small_dir, false, &a, &f->error), &f->error);
    assert_ok(mox_tensor_set_open_dir(large_dir, false, &b, &f->error), &f->error);
    for (int64_t i = 0; i < mox_tensor_set_count(a); i++) {
        const mox_file_tensor *t = mox_tensor_set_at(a, i);
        const mox_file_tensor *u = find(b, t->name);
        assert_true(t->bytes <= u->bytes);
        assert_memory_equal(t->view.data, u->view.data, t->bytes);
        common++;
    }
    assert_true(common >= least);
    mox_tensor_set_close(a);
    mox_tensor_set_close(b);
}

static void fewer_experts_or_layers_keep_the_rest(void **state)
{
    fixture *f = *state;
    static const char *const presets[] = { "gpt-oss-20b", "qwen3-30b-a3b", "deepseek-v3", "llama-4-scout" };
    const int64_t step = test_one_in(3, "presets");
    for (int64_t i = 0; i < (int64_t)(sizeof presets / sizeof presets[0]); i += step) {
        moxie_synth_options o = small(NULL, 1, 0);
        o.experts = 16;
        write_threads(f, presets[i], f->path, &o, 2);
        o.layers = 2;
        o.experts = mox_preset_by_name(presets[i])->dims.experts > 32 ? 32 : 0;
        write_threads(f, presets[i], f->path2, &o, 2);
        assert_common_tensors_equal(f, f->path, f->path2, 3);
        remove_dir(f->path);
        remove_dir(f->path2);
    }
}

/* ---- directories ---------------------------------------------------------------------------------- */

static void shards_are_cut_and_indexed(void **state)
{
    fixture *f = *state;
    moxie_synth_options o = small(NULL, 2, 16);
    mox_synth_model m;
    assert_ok(mox_synth_resolve("qwen3-30b-a3b", &o, &m, &f->error), &f->error);
    write_threads(f, "qwen3-30b-a3b", f->path, &o, 1);
    assert_int_equal(test_entries_in(f->path), 2);
    o.shard_bytes = 250000;
    write_threads(f, "qwen3-30b-a3b", f->path2, &o, 1);
    /* 96 matrices of 49,152 bytes, five to a file, and two routers of 4,096. */
    assert_int_equal(test_entries_in(f->path2), 2 + 20);
    assert_exactly_the_tensors(f, &m, f->path2);
    assert_common_tensors_equal(f, f->path, f->path2, 98);
    json_t *index;
    char path[700];
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", f->path2);
    assert_ok(mox_json_load(path, 1 << 24, false, &index, &f->error), &f->error);
    const json_t *map = json_object_get(index, "weight_map");
    assert_int_equal(json_object_size(map), 98);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(index, "metadata"), "total_size")),
                     96 * 49152 + 2 * 4096);
    assert_string_equal(json_string_value(json_object_get(map, "model.layers.0.mlp.gate.weight")),
                        "model-00001-of-00020.safetensors");
    assert_string_equal(json_string_value(json_object_get(map, "model.layers.1.mlp.experts.15.down_proj.weight")),
                        "model-00020-of-00020.safetensors");
    json_decref(index);
}

static void only_an_empty_directory_is_taken(void **state)
{
    fixture *f = *state;
    const moxie_synth_options o = small(NULL, 1, 16);
    assert_int_equal(mkdir(f->path, 0777), 0);
    write_threads(f, "gpt-oss-20b", f->path, &o, 1);
    assert_int_equal(test_entries_in(f->path), 2);
    /* The directory is not empty now, and stays as it is. */
    assert_int_equal(mox_synth_write("gpt-oss-20b", f->path, &o, &mox_executor_serial, &f->error), MOXIE_ERR_IO);
    assert_non_null(strstr(f->error.text, "not empty"));
    assert_int_equal(test_entries_in(f->path), 2);
    assert_int_equal(test_entries_in(f->dir), 1);
    char slashes[700], nowhere[700];
    snprintf(slashes, sizeof slashes, "%s//", f->path2);
    write_threads(f, "gpt-oss-20b", slashes, &o, 1);
    assert_same_directory(f->path, f->path2, true);
    snprintf(nowhere, sizeof nowhere, "%s/no/such", f->dir);
    assert_int_equal(mox_synth_write("gpt-oss-20b", nowhere, &o, &mox_executor_serial, &f->error), MOXIE_ERR_IO);
    assert_int_equal(test_entries_in(f->dir), 2);
}

typedef struct meter {
    uint64_t last, total, cancel_at;
    int calls;
} meter;

static int watch(void *user, uint64_t done, uint64_t total)
{
    meter *m = user;
    assert_true(done > m->last && done <= total);
    m->last = done;
    m->total = total;
    m->calls++;
    return m->cancel_at > 0 && done >= m->cancel_at;
}

static void progress_counts_bytes_and_cancels(void **state)
{
    fixture *f = *state;
    meter m = { 0 };
    moxie_synth_options o = small(NULL, 2, 16);
    o.progress = watch;
    o.progress_user = &m;
    assert_ok(moxie_synth_write("qwen3-30b-a3b", f->path, &o, &f->error), &f->error);
    assert_int_equal(m.last, m.total);
    assert_int_equal(m.total, 96 * 49152 + 2 * 4096);
    remove_dir(f->path);
    for (uint64_t at = 1; at < m.total; at += 1000001) {
        meter cancel = { .cancel_at = at };
        o.progress_user = &cancel;
        assert_int_equal(moxie_synth_write("qwen3-30b-a3b", f->path, &o, &f->error), MOXIE_ERR_TIMEOUT);
        assert_int_equal(test_entries_in(f->dir), 0);
    }
}

static void a_disk_without_room_is_told_first(void **state)
{
    fixture *f = *state;
    /* 76 PB: more than any machine that runs this test has. */
    moxie_synth_options o = MOXIE_SYNTH_OPTIONS_INIT;
    o.hidden = o.intermediate = 1 << 20;
    assert_int_equal(moxie_synth_write("kimi-k2", f->path, &o, &f->error), MOXIE_ERR_IO);
    assert_non_null(strstr(f->error.text, "file system has"));
    assert_int_equal(test_entries_in(f->dir), 0);
}

static void a_failed_allocation_leaves_nothing(void **state)
{
    fixture *f = *state;
    moxie_synth_options o = small("nvfp4-modelopt", 1, 16);
    o.hidden = o.intermediate = 32;
    o.shard_bytes = 20000;
    for (uint64_t n = 1;; n++) {
        mox_alloc_fail_at(n);
        const uint64_t before = mox_alloc_count();
        const moxie_status status = mox_synth_write("qwen3-next-80b", f->path, &o, &mox_executor_serial, &f->error);
        const uint64_t after = mox_alloc_count();
        mox_alloc_fail_at(0);
        if (status == MOXIE_OK) {
            assert_true(after - before < n);
            break;
        }
        assert_int_equal(status, MOXIE_ERR_MEMORY);
        assert_int_equal(test_entries_in(f->dir), 0);
    }
    assert_int_equal(test_entries_in(f->dir), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_published_vectors),
        cmocka_unit_test(deviates_follow_their_definition),
        cmocka_unit_test(deviates_are_nearly_normal),
        cmocka_unit_test(any_element_can_be_made_alone),
        cmocka_unit_test_setup_teardown(every_preset_in_every_format_it_lists, set_up, tear_down),
        cmocka_unit_test_setup_teardown(every_format_on_models_that_were_never_released_in_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(quantization_configs_are_the_published, set_up, tear_down),
        cmocka_unit_test_setup_teardown(bytes_do_not_depend_on_threads, set_up, tear_down),
        cmocka_unit_test_setup_teardown(another_seed_makes_other_bytes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(fewer_experts_or_layers_keep_the_rest, set_up, tear_down),
        cmocka_unit_test_setup_teardown(shards_are_cut_and_indexed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(only_an_empty_directory_is_taken, set_up, tear_down),
        cmocka_unit_test_setup_teardown(progress_counts_bytes_and_cancels, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_disk_without_room_is_told_first, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_failed_allocation_leaves_nothing, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
