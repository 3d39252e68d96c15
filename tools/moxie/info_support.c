/* SPDX-License-Identifier: Apache-2.0
 *
 * info_support.c - the support matrix: five tables, each a walk over a list of the library.
 *
 *     formats       checkpoint formats    x  devices   the kernel of the first product, in exact mode
 *     activations   moxie_activation_at   x  devices   whether a kernel fuses it with the first product
 *     routing       methods               x  devices   whether a plan exists
 *     features      of a layer (below)    x  devices   the same
 *     families      model types of config.json, with their routing and activation
 *
 * A cell is what moxie_plan_explain() says for that device, which this machine need not have. So the tables are the
 * same on every machine of one architecture, and docs/support.md is made of them (scripts/support-matrix).
 */
#include "info_support.h"

#include <string.h>

/* The layer of the tables: a middling real model's. */
static const char preset[] = "qwen3-30b-a3b";

static const struct {
    const char *name;
    moxie_backend backend;
} devices[] = {
#if defined(__aarch64__)
    { "scalar", MOXIE_BACKEND_CPU }, { "neon", MOXIE_BACKEND_CPU },
#else
    { "scalar", MOXIE_BACKEND_CPU }, { "avx2", MOXIE_BACKEND_CPU },   { "avx512", MOXIE_BACKEND_CPU },
    { "amx", MOXIE_BACKEND_CPU },
#endif
    { "sm_80", MOXIE_BACKEND_CUDA }, { "sm_90", MOXIE_BACKEND_CUDA }, { "sm_100", MOXIE_BACKEND_CUDA },
};
#define DEVICES ((int)(sizeof devices / sizeof devices[0]))

/* ---- one cell ------------------------------------------------------------------------------------------ */

typedef struct cell {
    char product[64]; /* the kernel of the first product; "" when there is no plan */
    bool fused;       /* no kernel of its own computes the activation */
} cell;

static cell explain(const moxie_layer_config *config, int device)
{
    cell out = { .fused = true };
    moxie_options options = MOXIE_OPTIONS_INIT;
    moxie_plan *plan = NULL;
    moxie_error error;
    options.backend = devices[device].backend;
    options.device = devices[device].name;
    if (moxie_plan_explain(config, &options, &plan, &error) != MOXIE_OK)
        return out;
    for (int32_t i = 0; i < moxie_plan_step_count(plan); i++) {
        const moxie_plan_step *step = moxie_plan_step_at(plan, i);
        if (step->chosen && !strcmp(step->family, "expert_gemm") && !strcmp(step->role, "w13"))
            snprintf(out.product, sizeof out.product, "%s", step->kernel);
        if (step->chosen && !strcmp(step->family, "glu"))
            out.fused = false;
    }
    moxie_plan_destroy(plan);
    return out;
}

static void product_cell(const cell *c, char *text, size_t size)
{
    snprintf(text, size, "%s", c->product[0] ? c->product : "-");
}

static void fused_cell(const cell *c, char *text, size_t size)
{
    snprintf(text, size, "%s", !c->product[0] ? "-" : c->fused ? "fused" : "yes");
}

static void exists_cell(const cell *c, char *text, size_t size)
{
    snprintf(text, size, "%s", c->product[0] ? "yes" : "-");
}

/* ---- one table ------------------------------------------------------------------------------------------ */

/* A table is printed, or appended to a JSON array. */
typedef struct output {
    cli_table table;
    json_t *rows; /* NULL: text */
    void (*format)(const cell *c, char *text, size_t size);
} output;

static void begin(output *out, const char *first, bool json, void (*format)(const cell *c, char *text, size_t size))
{
    const char *headings[1 + DEVICES] = { first };
    for (int d = 0; d < DEVICES; d++)
        headings[1 + d] = devices[d].name;
    *out = (output) { .rows = json ? json_array() : NULL, .format = format };
    if (!json)
        cli_table_begin(&out->table, 1 + DEVICES, headings);
}

static void add_row(output *out, const char *name, const moxie_layer_config *config)
{
    json_t *row = out->rows ? cli_pack("{s:s}", "name", name) : NULL;
    if (!row)
        cli_table_add(&out->table, "%s", name);
    for (int d = 0; d < DEVICES; d++) {
        const cell c = explain(config, d);
        char text[64];
        out->format(&c, text, sizeof text);
        if (row)
            cli_json_set(row, devices[d].name, cli_json_string(text));
        else
            cli_table_add(&out->table, "%s", text);
    }
    if (row)
        cli_json_append(out->rows, row);
}

static void end(output *out, json_t *object, const char *key)
{
    if (out->rows) {
        cli_json_set(object, key, out->rows);
        return;
    }
    cli_table_print(&out->table);
    cli_table_free(&out->table);
}

/* ---- the lists ------------------------------------------------------------------------------------------- */

static moxie_layer_config plain_layer(void)
{
    moxie_layer_config config = MOXIE_LAYER_CONFIG_INIT;
    (void)moxie_preset_config(preset, "bf16", &config, NULL); /* both names are the library's own */
    return config;
}

static void formats(json_t *object)
{
    output out;
    moxie_checkpoint_format_info info = MOXIE_CHECKPOINT_FORMAT_INFO_INIT;
    begin(&out, "format", object != NULL, product_cell);
    for (int32_t i = 0; moxie_checkpoint_format_info_at(i, &info); i++) {
        moxie_layer_config config = MOXIE_LAYER_CONFIG_INIT;
        if (moxie_preset_config(preset, info.name, &config, NULL) == MOXIE_OK)
            add_row(&out, info.name, &config);
    }
    end(&out, object, "formats");
}

static void activations(json_t *object)
{
    output out;
    moxie_layer_config config = plain_layer();
    const char *name;
    begin(&out, "activation", object != NULL, fused_cell);
    for (int32_t i = 0; (name = moxie_activation_at(i, &config.activation)) != NULL; i++)
        add_row(&out, name, &config);
    end(&out, object, "activations");
}

static int choose_nothing(void *user, int64_t tokens, const float *logits, int32_t *ids, float *weights)
{
    (void)user, (void)tokens, (void)logits, (void)ids, (void)weights;
    return 0;
}

static void routing(json_t *object)
{
    output out;
    moxie_layer_config config = plain_layer();
    const char *name;
    config.top_k = 2; /* the only number that sparsemixer has */
    begin(&out, "routing", object != NULL, exists_cell);
    for (int32_t i = 0; (name = moxie_routing_name_at(i)) != NULL; i++) {
        if (moxie_routing_by_name(name, &config.routing, NULL) != MOXIE_OK)
            continue;
        if (config.routing.select == MOXIE_SELECT_CUSTOM)
            config.routing.custom = choose_nothing;
        add_row(&out, name, &config);
    }
    end(&out, object, "routing");
}

static const float numbers[MOXIE_MAX_EXPERTS]; /* values that a plan does not look at */

static void groups(moxie_layer_config *c)
{
    c->routing.n_group = 8, c->routing.topk_group = 4;
}
static void selection_bias(moxie_layer_config *c)
{
    c->routing.bias = numbers;
}
static void per_expert_scale(moxie_layer_config *c)
{
    c->routing.per_expert_scale = numbers;
}
static void on_input(moxie_layer_config *c)
{
    c->routing.on_input = 1;
}
static void expert_bias(moxie_layer_config *c)
{
    c->bias13 = c->bias2 = 1;
}
static void router_bias(moxie_layer_config *c)
{
    c->router_has_bias = 1;
}
static void shared(moxie_layer_config *c)
{
    c->shared = (moxie_shared_config) { 512, c->w13, c->w2 };
}

static void shared_gate(moxie_layer_config *c)
{
    shared(c);
    c->shared.has_gate = 1;
}

static void shared_scale(moxie_layer_config *c)
{
    shared(c);
    c->shared.scale = 0.5f;
}

static void root_squares(moxie_layer_config *c)
{
    c->routing.norm = MOXIE_NORM_ROOT_SQUARES;
}

static void expert_parallel(moxie_layer_config *c)
{
    c->ep_size = 4, c->ep_rank = 1;
}

static void zero_experts(moxie_layer_config *c)
{
    c->routing.zero_experts = 64;
}

static void null_experts(moxie_layer_config *c)
{
    zero_experts(c);
    c->routing.zero_kind = MOXIE_ZERO_NULL;
}

static void softcap(moxie_layer_config *c)
{
    c->routing.softcap = 30;
}

static void second_bias(moxie_layer_config *c)
{
    selection_bias(c);
    c->routing.bias_alt = numbers;
}

static void choices_by_group(moxie_layer_config *c)
{
    c->routing.n_group = 8;
    c->routing.topk_per_group = (int32_t)(c->top_k / 8);
}

static void router_norm(moxie_layer_config *c)
{
    c->router_norm = (moxie_row_norm) { .kind = MOXIE_ROW_NORM_RMS, .has_weight = 1, .eps = 1e-6f };
}

static void expert_norm(moxie_layer_config *c)
{
    c->expert_norm = (moxie_row_norm) { .kind = MOXIE_ROW_NORM_RMS, .has_weight = 1, .eps = 1e-6f };
}

static void shared_biases(moxie_layer_config *c)
{
    shared(c);
    c->shared.bias13 = c->shared.bias2 = 1;
}

static void shared_activation(moxie_layer_config *c)
{
    shared(c);
    c->has_shared_activation = 1;
    c->shared_activation = (moxie_activation) { .kind = MOXIE_ACT_SILU, .gate_limit = 7, .up_limit = 7 };
}

static void round_results(moxie_layer_config *c)
{
    c->round_results = 1;
}

static const struct {
    const char *name;
    void (*set)(moxie_layer_config *config); /* turns a plain layer into one with the feature */
} layer_features[] = {
    { "groups of experts", groups },
    { "selection bias", selection_bias },
    { "scale per expert", per_expert_scale },
    { "weights on the input", on_input },
    { "biases of experts", expert_bias },
    { "bias of the router", router_bias },
    { "shared expert", shared },
    { "shared expert, gated", shared_gate },
    { "shared expert, times a factor", shared_scale },
    { "norm of the weights of order 2", root_squares },
    { "biases of the shared expert", shared_biases },
    { "shared expert with its own activation", shared_activation },
    { "zero experts (identity)", zero_experts },
    { "null experts", null_experts },
    { "soft cap of the logits", softcap },
    { "second bias, chosen per token", second_bias },
    { "so many choices in each group", choices_by_group },
    { "norm of the router's input", router_norm },
    { "norm of experts' results", expert_norm },
    { "results of 16 bits", round_results },
    { "expert parallel", expert_parallel },
};

static void features(json_t *object)
{
    output out;
    begin(&out, "feature", object != NULL, exists_cell);
    for (size_t i = 0; i < sizeof layer_features / sizeof layer_features[0]; i++) {
        moxie_layer_config config = plain_layer();
        layer_features[i].set(&config);
        add_row(&out, layer_features[i].name, &config);
    }
    end(&out, object, "features");
}

/* ---- families -------------------------------------------------------------------------------------------- */

static void model_types(const moxie_family_info *info, char *text, size_t size)
{
    size_t used = 0;
    for (int32_t i = 0; i < info->n_model_types && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? " " : "", info->model_types[i]);
}

static void families(json_t *object)
{
    static const char *const headings[] = { "family", "routing", "activation", "model_type" };
    cli_table table;
    json_t *rows = object ? json_array() : NULL;
    moxie_family_info info = MOXIE_FAMILY_INFO_INIT;
    if (!rows)
        cli_table_begin(&table, 4, headings);
    for (int32_t i = 0; moxie_family_at(i, &info); i++) {
        char types[256];
        model_types(&info, types, sizeof types);
        if (rows) {
            cli_json_append(rows, cli_pack("{s:s, s:s, s:s, s:s}", "name", info.name, "routing", info.routing,
                                           "activation", info.activation, "model_types", types));
            continue;
        }
        cli_table_add(&table, "%s", info.name);
        cli_table_add(&table, "%s", info.routing);
        cli_table_add(&table, "%s", info.activation);
        cli_table_add(&table, "%s", types);
    }
    if (rows) {
        cli_json_set(object, "families", rows);
        return;
    }
    cli_table_print(&table);
    cli_table_free(&table);
}

/* ---- all of it -------------------------------------------------------------------------------------------- */

int info_support(bool json)
{
    static const struct {
        const char *title;
        void (*print)(json_t *object); /* NULL: as text */
    } tables[] = {
        { "Formats of checkpoints: the kernel of the first product, a layer of Qwen3-30B-A3B, exact mode", formats },
        { "Activations: fused with the first product, or (yes) in a kernel of their own", activations },
        { "Routing methods, top-2", routing },
        { "Features of a layer", features },
        { "Families of models: those of config.json's model_type", families },
    };
    json_t *object = json ? cli_json_begin("info") : NULL;
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        if (!json)
            printf("%s%s\n\n", i ? "\n" : "", tables[i].title);
        tables[i].print(object);
    }
    if (json)
        cli_json_end(object);
    return CLI_OK;
}
