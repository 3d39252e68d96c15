/* SPDX-License-Identifier: Apache-2.0
 *
 * abi_user.c - a program as a user of the library writes one: compiled against some version of the public headers, it
 * runs on the library of today (test_abi_headers.sh).
 *
 *     abi_user DIR                 makes a checkpoint in DIR, runs a layer, prints results; exit 0 when all are right
 *
 * The output holds no sizes and nothing of the machine, so it is the same for every version of the headers. With
 * -DLATER the headers have a field `later` at the end of every struct with a size: a field of a newer header, which
 * this library does not know. It must be left alone in results, and refused when it is set.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <moxie/moxie_ckpt.h>
#include <moxie/moxie_prepare.h>
#include <moxie/moxie_scheme.h>

static moxie_error error;

static void need(int good, const char *what)
{
    if (good)
        return;
    printf("FAILED: %s: %s\n", what, error.text);
    exit(1);
}
#define OK(call) need((call) == MOXIE_OK, #call)

/* A struct that a call fills, between words that it must not touch. */
#define GUARDED(type, init)                                                                                            \
    struct {                                                                                                           \
        uint64_t before;                                                                                               \
        type s;                                                                                                        \
        uint64_t behind;                                                                                               \
    } guarded = { 0x5a5a5a5a5a5a5a5aU, init, 0x5a5a5a5a5a5a5a5aU }
#define INTACT(type)                                                                                                   \
    need(guarded.before == 0x5a5a5a5a5a5a5a5aU && guarded.behind == 0x5a5a5a5a5a5a5a5aU &&                             \
             guarded.s.struct_size == sizeof(type) && IS_LATER_CLEAR(guarded.s),                                       \
         #type ": written where it should not be")
#ifdef LATER
#define IS_LATER_CLEAR(s) ((s).later == 0)
#else
#define IS_LATER_CLEAR(s) 1
#endif

static uint64_t hash(const void *data, size_t bytes)
{
    const unsigned char *at = data;
    uint64_t h = 0xcbf29ce484222325U;
    for (size_t i = 0; i < bytes; i++)
        h = (h ^ at[i]) * 0x100000001b3U;
    return h;
}

/* ---- results that a caller makes ------------------------------------------------------------------------ */

static void read_results(const moxie_model *model)
{
    {
        GUARDED(moxie_model_info, MOXIE_MODEL_INFO_INIT);
        OK(moxie_model_get_info(model, &guarded.s, &error));
        INTACT(moxie_model_info);
        printf("model %s, %lld layers\n", guarded.s.family, (long long)guarded.s.n_layers);
    }
    {
        GUARDED(moxie_model_layer_info, MOXIE_MODEL_LAYER_INFO_INIT);
        OK(moxie_model_describe_layer(model, 0, &guarded.s, &error));
        INTACT(moxie_model_layer_info);
        printf("layer %lld, %s, %lld experts\n", (long long)guarded.s.layer, guarded.s.format,
               (long long)guarded.s.experts);
    }
    {
        GUARDED(moxie_preset_info, MOXIE_PRESET_INFO_INIT);
        need(moxie_preset_at(0, &guarded.s), "moxie_preset_at");
        INTACT(moxie_preset_info);
        printf("preset %s, hidden %lld\n", guarded.s.name, (long long)guarded.s.hidden);
    }
    {
        GUARDED(moxie_kernel_info, MOXIE_KERNEL_INFO_INIT);
        need(moxie_kernel_at(0, &guarded.s), "moxie_kernel_at");
        INTACT(moxie_kernel_info);
        printf("kernel %s %s\n", guarded.s.family, guarded.s.name);
    }
    {
        GUARDED(moxie_machine, MOXIE_MACHINE_INIT);
        OK(moxie_machine_info(&guarded.s, &error));
        INTACT(moxie_machine);
        need(guarded.s.processors > 0, "no processors");
    }
    {
        GUARDED(moxie_prepare_layout, MOXIE_PREPARE_LAYOUT_INIT);
        need(moxie_prepare_layout_at(0, &guarded.s), "moxie_prepare_layout_at");
        INTACT(moxie_prepare_layout);
        printf("layout %s\n", guarded.s.name);
    }
    {
        GUARDED(moxie_prepare_limit, MOXIE_PREPARE_LIMIT_INIT);
        need(moxie_prepare_limit_at(0, 0, &guarded.s), "moxie_prepare_limit_at");
        INTACT(moxie_prepare_limit);
        printf("limit %s, a multiple of %d\n", guarded.s.extent, (int)guarded.s.multiple);
    }
}

static void make_schemes(void)
{
    moxie_scheme_args args = MOXIE_SCHEME_ARGS_INIT;
    moxie_scheme scheme = MOXIE_SCHEME_INIT, both = MOXIE_SCHEME_INIT;
    args.block[0] = args.block[1] = 128;
    OK(moxie_scheme_make("fp8_w8a8", &args, &scheme, &error));
    OK(moxie_scheme_combine(&scheme, &scheme, &both, &error));
    const char *name = moxie_scheme_config_name(&both, MOXIE_BF16);
    need(name != NULL, "moxie_scheme_config_name");
    printf("scheme %s, %s, blocks %d\n", both.constructor, name, moxie_scheme_predicate(&both, "is_block_quantized"));
    printf("weights %s in groups of %d\n", moxie_dtype_name(both.w13.element), (int)both.w13.group_cols);
}

/* ---- a layer -------------------------------------------------------------------------------------------- */

enum { TOKENS = 5 };

/* What a struct that lies in an array, and one that lies in another, are used for. */
static void write_tensors(const char *dir, float *values, int64_t count)
{
    char path[512];
    snprintf(path, sizeof path, "%s/tensors.safetensors", dir);
    moxie_named_tensor tensors[2] = { { .name = "first", .tensor = { .data = values, .dtype = MOXIE_F32, .rank = 1 } },
                                      { .name = "second",
                                        .tensor = { .data = values, .dtype = MOXIE_I32, .rank = 1 } } };
    tensors[0].tensor.shape[0] = tensors[1].tensor.shape[0] = count;
    OK(moxie_tensor_file_write(path, tensors, 2, NULL, 0, &error));
    moxie_tensor_file *file = NULL;
    OK(moxie_tensor_file_open(path, 1, &file, &error));
    moxie_tensor found;
    OK(moxie_tensor_file_find(file, "second", &found, &error));
    need(found.dtype == MOXIE_I32 && memcmp(found.data, values, (size_t)count * 4) == 0, "another tensor was read");
    moxie_tensor_file_close(file);
}

static void check(moxie_plan *plan, const moxie_weights *weights, const moxie_run_args *args)
{
    moxie_check_report *report = NULL;
    const moxie_stage_report *stage;
    OK(moxie_plan_check(plan, weights, args, &report, &error));
    for (int32_t i = 0; (stage = moxie_check_report_stage_at(report, i)) != NULL; i++)
        printf("stage %s, %lld elements, %lld beyond\n", stage->stage, (long long)stage->elements,
               (long long)stage->beyond);
    need(moxie_check_report_worst(report) <= 1, "an element is past its bound");
    moxie_check_report_destroy(report);
}

static void compare(const moxie_layer_config *config, const moxie_weights *weights)
{
    GUARDED(moxie_weights_difference, MOXIE_WEIGHTS_DIFFERENCE_INIT);
    OK(moxie_weights_compare(config, weights, weights, &guarded.s, &error));
    INTACT(moxie_weights_difference);
    need(guarded.s.count == 0, "weights differ from themselves");
}

static void run(const char *dir, const moxie_layer_config *config, const moxie_weights *weights,
                const moxie_options *options)
{
    moxie_layer *layer = NULL;
    moxie_plan *plan = NULL;
    OK(moxie_layer_create(config, options, &layer, &error));
    OK(moxie_layer_prepare(layer, weights, options, &error));
    OK(moxie_plan_create(layer, options, &plan, &error));
    for (int32_t i = 0; i < moxie_plan_step_count(plan); i++) {
        const moxie_plan_step *step = moxie_plan_step_at(plan, i);
        if (step->chosen)
            printf("step %s %s %s\n", step->family, step->role, step->kernel);
    }

    /* Hidden states in bf16: numbers between -2 and 2. */
    const size_t elements = TOKENS * (size_t)config->hidden;
    uint16_t *hidden = malloc(elements * 2);
    float *output = calloc(elements, 4);
    moxie_run_args args = MOXIE_RUN_ARGS_INIT;
    args.workspace_bytes = moxie_plan_workspace_bytes(plan);
    void *workspace = aligned_alloc(64, args.workspace_bytes);
    need(hidden && output && workspace, "no memory");
    for (size_t i = 0; i < elements; i++)
        hidden[i] = (uint16_t)(0x3f00U + i * 37 % 256 + (i * 7 % 3 == 0 ? 0x8000U : 0));
    args.tokens = TOKENS;
    args.hidden = hidden;
    args.output = output;
    args.workspace = workspace;
    OK(moxie_plan_run(plan, &args, &error));
    printf("output %016llx\n", (unsigned long long)hash(output, elements * (config->dtype == MOXIE_F32 ? 4 : 2)));
    check(plan, weights, &args);
    write_tensors(dir, output, TOKENS);
    free(workspace);
    free(hidden);
    free(output);
    moxie_plan_destroy(plan);
    moxie_layer_destroy(layer);
}

#ifdef LATER
/* A field that this library does not know is set: it can only be refused. */
static void refuse_later(const moxie_layer_config *config)
{
    moxie_options options = MOXIE_OPTIONS_INIT;
    moxie_plan *plan = NULL;
    options.later = 1;
    need(moxie_plan_explain(config, &options, &plan, &error) == MOXIE_ERR_ARGUMENT, "a later field was ignored");
    need(strstr(error.text, "moxie_options") != NULL, "the text does not name the struct");
}
#endif

int main(int argc, char **argv)
{
    char dir[400];
    need(argc == 2, "usage: abi_user DIR");
    snprintf(dir, sizeof dir, "%s/model", argv[1]);

    moxie_synth_options synth = MOXIE_SYNTH_OPTIONS_INIT;
    synth.layers = 1;
    synth.experts = 8;
    synth.hidden = 128;
    synth.intermediate = 64;
    OK(moxie_synth_write("qwen3-30b-a3b", dir, &synth, &error));
    moxie_model *model = NULL;
    moxie_model_layer *loaded = NULL;
    OK(moxie_model_open(dir, NULL, &model, &error));
    OK(moxie_model_load_layer(model, 0, &loaded, &error));
    const moxie_layer_config *config = moxie_model_layer_config(loaded);
    const moxie_weights *weights = moxie_model_layer_weights(loaded);
    read_results(model);
    make_schemes();

    moxie_executor *executor = NULL;
    moxie_options options = MOXIE_OPTIONS_INIT;
    OK(moxie_executor_create(2, &executor, &error));
    options.backend = MOXIE_BACKEND_CPU;
    options.isa = "scalar";
    options.max_tokens = 16;
    options.executor = executor;
    run(argv[1], config, weights, &options);
    compare(config, weights);

    /* A configuration that the program itself made, in its own struct. */
    moxie_layer_config own = MOXIE_LAYER_CONFIG_INIT;
    OK(moxie_preset_config("gpt-oss-20b", NULL, &own, &error));
    moxie_plan *plan = NULL;
    OK(moxie_plan_explain(&own, &options, &plan, &error));
    printf("a plan of %s steps\n", moxie_plan_step_count(plan) > 3 ? "several" : "few");
    moxie_plan_destroy(plan);
#ifdef LATER
    refuse_later(&own);
#endif
    moxie_executor_destroy(executor);
    moxie_model_layer_free(loaded);
    moxie_model_close(model);
    return 0;
}
