/* SPDX-License-Identifier: Apache-2.0
 *
 * test_model_merged.c - the names under which transformers 5 saves models, and the hubs' where a family was new:
 *     per expert      "mlp.experts.1.gate_proj.weight" [I, H], ...
 *     merged          "mlp.experts.gate_up_proj" [E, 2I, H], "mlp.experts.down_proj" [E, H, I], gate rows first
 *     stacks          "mixer.experts.up_proj" [E, I, H]: no gate
 *     shared          in three matrices, or gate and up rows in one
 * Every element of expert 1 and of the shared expert is compared with the element of the tensor where it must lie, and
 * the correction bias with its tensor.
 */
#include "hand_checkpoint.h"

enum { L = 1, E = 2, H = 16, I = 8, S = 12 };

typedef enum experts_as { PER_EXPERT, MERGED, STACKS } experts_as;
typedef enum shared_as { NO_SHARED, THREE, GATE_UP_AND_DOWN } shared_as;

typedef struct naming {
    const char *model_type, *prefix, *config;
    const char *router, *bias; /* bias NULL: the family has none */
    experts_as as;
    const char *gate, *up, *down; /* MERGED: up is the name of both; "#" is the expert */
    shared_as shared;
    const char *shared_gate, *shared_up, *shared_down;
} naming;

#define QWEN   "\"num_experts\":2,\"num_experts_per_tok\":1,\"moe_intermediate_size\":8"
#define DENSE  "\"num_experts\":2,\"num_experts_per_tok\":1,\"intermediate_size\":8"
#define LOCAL  "\"num_local_experts\":2,\"num_experts_per_tok\":1,\"intermediate_size\":8"
#define DEEP   "\"n_routed_experts\":2,\"num_experts_per_tok\":1,\"moe_intermediate_size\":8"
#define ERNIE  "\"moe_num_experts\":2,\"moe_k\":1,\"moe_num_shared_experts\":0"
#define ERNIES ERNIE ",\"moe_intermediate_size\":8"

#define PROJ(root)        PER_EXPERT, root ".#.gate_proj.weight", root ".#.up_proj.weight", root ".#.down_proj.weight"
#define W123(root)        PER_EXPERT, root ".#.w1.weight", root ".#.w3.weight", root ".#.w2.weight"
#define BOTH(root)        MERGED, NULL, root ".gate_up_proj", root ".down_proj"
#define SHARED3(root)     THREE, root ".gate_proj.weight", root ".up_proj.weight", root ".down_proj.weight"
#define SHARED2(up, down) GATE_UP_AND_DOWN, NULL, up, down
#define DEEP_BIAS         "mlp.gate.e_score_correction_bias"

/* clang-format off */
static const naming namings[] = {
    { "nemotron_h", "backbone.layers.1.", DEEP, "mixer.gate.weight", "mixer.gate.e_score_correction_bias",
      PER_EXPERT, NULL, "mixer.experts.#.up_proj.weight", "mixer.experts.#.down_proj.weight" },
    { "nemotron_h", "model.layers.1.", DEEP, "mixer.gate.weight", "mixer.gate.e_score_correction_bias",
      STACKS, NULL, "mixer.experts.up_proj", "mixer.experts.down_proj" },
    { "minimax_m3_vl", "language_model.model.layers.1.", LOCAL ",\"shared_intermediate_size\":12",
      "block_sparse_moe.gate.weight", "block_sparse_moe.e_score_correction_bias", W123("block_sparse_moe.experts"),
      SHARED3("block_sparse_moe.shared_experts") },
    { "minimax_m3_vl", "model.language_model.layers.1.", LOCAL ",\"shared_intermediate_size\":12", "mlp.gate.weight",
      DEEP_BIAS, BOTH("mlp.experts"),
      SHARED2("mlp.shared_experts.gate_up_proj.weight", "mlp.shared_experts.down_proj.weight") },
    { "minimax_m3_vl_text", "model.layers.1.", LOCAL ",\"shared_intermediate_size\":12", "mlp.gate.weight", DEEP_BIAS,
      BOTH("mlp.experts"),
      SHARED2("mlp.shared_experts.gate_up_proj.weight", "mlp.shared_experts.down_proj.weight") },
    { "ernie4_5_moe", "model.layers.1.", ERNIES, "mlp.gate.weight", "mlp.moe_statics.e_score_correction_bias",
      PROJ("mlp.experts") },
    { "ernie4_5_moe", "model.layers.1.", ERNIES, "mlp.gate.weight", "mlp.gate.moe_statics.e_score_correction_bias",
      BOTH("mlp.experts") },
    { "ernie4_5_vl_moe", "model.language_model.layers.1.", ERNIE ",\"moe_intermediate_size\":[8,4]",
      "mlp.text_moe.gate.weight", "mlp.text_moe.gate.moe_statics.e_score_correction_bias",
      BOTH("mlp.text_moe.experts") },
    { "granitemoe", "model.layers.1.", LOCAL, "block_sparse_moe.router.layer.weight", NULL,
      MERGED, NULL, "block_sparse_moe.input_linear.weight", "block_sparse_moe.output_linear.weight" },
    { "granitemoe", "model.layers.1.", LOCAL, "block_sparse_moe.router.weight", NULL,
      BOTH("block_sparse_moe.experts") },
    { "granitemoeshared", "model.layers.1.", LOCAL ",\"shared_intermediate_size\":12",
      "block_sparse_moe.router.layer.weight", NULL,
      MERGED, NULL, "block_sparse_moe.input_linear.weight", "block_sparse_moe.output_linear.weight",
      SHARED2("shared_mlp.input_linear.weight", "shared_mlp.output_linear.weight") },
    { "granitemoehybrid", "model.layers.1.", LOCAL ",\"shared_intermediate_size\":12", "block_sparse_moe.router.weight",
      NULL, BOTH("block_sparse_moe.experts"),
      SHARED2("shared_mlp.input_linear.weight", "shared_mlp.output_linear.weight") },
    { "step3p7", "model.layers.1.", DEEP ",\"share_expert_dim\":12", "moe.gate.weight", "moe.router_bias",
      STACKS, "moe.gate_proj.weight", "moe.up_proj.weight", "moe.down_proj.weight", SHARED3("share_expert") },
    { "step3p7", "model.language_model.layers.1.", DEEP ",\"share_expert_dim\":12", "mlp.gate.weight", DEEP_BIAS,
      BOTH("mlp.experts"), SHARED3("mlp.shared_experts") },
    { "kimi_linear", "model.layers.1.", QWEN ",\"num_shared_experts\":0", "block_sparse_moe.gate.weight",
      "block_sparse_moe.gate.e_score_correction_bias", W123("block_sparse_moe.experts") },
    { "kimi_linear", "model.layers.1.", QWEN ",\"num_shared_experts\":0", "mlp.gate.weight", DEEP_BIAS,
      BOTH("mlp.experts") },
    { "kimi_k25", "language_model.model.blocks.1.", DEEP ",\"n_shared_experts\":0,\"n_group\":1", "mlp.gate.weight",
      DEEP_BIAS, PROJ("mlp.experts") },
    { "qwen3_omni_moe", "thinker.model.layers.1.", QWEN, "mlp.gate.weight", NULL, PROJ("mlp.experts") },
    { "qwen3_omni_moe", "thinker.model.language_model.layers.1.", QWEN, "mlp.gate.weight", NULL, BOTH("mlp.experts") },
    { "qwen3_vl_moe_text", "layers.1.", QWEN, "mlp.gate.weight", NULL, BOTH("mlp.experts") },
    { "minimax", "model.layers.1.", LOCAL, "block_sparse_moe.gate.weight", NULL, W123("block_sparse_moe.experts") },
    { "minimax", "model.layers.1.", LOCAL, "mlp.gate.weight", NULL, BOTH("mlp.experts") },
    { "flex_olmo", "model.layers.1.", DENSE, "mlp.gate.weight", NULL, PROJ("mlp.experts") },
    { "jamba", "model.layers.1.", DENSE, "feed_forward.router.weight", NULL, PROJ("feed_forward.experts") },
    { "jamba", "model.layers.1.", DENSE, "feed_forward.router.weight", NULL, BOTH("feed_forward.experts") },
    { "lfm2_moe", "model.layers.1.", QWEN, "feed_forward.gate.weight", "feed_forward.expert_bias",
      W123("feed_forward.experts") },
    { "lfm2_moe", "model.layers.1.", QWEN, "feed_forward.gate.weight", "feed_forward.expert_bias",
      BOTH("feed_forward.experts") },
    { "afmoe", "model.layers.1.", QWEN ",\"num_shared_experts\":0", "mlp.router.gate.weight", "mlp.expert_bias",
      PROJ("mlp.experts") },
    { "afmoe", "model.layers.1.", QWEN ",\"num_shared_experts\":0", "mlp.router.gate.weight", "mlp.expert_bias",
      BOTH("mlp.experts") },
    { "dots1", "model.layers.1.", DEEP ",\"n_shared_experts\":0", "mlp.gate.weight", DEEP_BIAS, PROJ("mlp.experts") },
    { "solar_open", "model.layers.1.", DEEP ",\"n_shared_experts\":0", "mlp.gate.weight", DEEP_BIAS,
      BOTH("mlp.experts") },
};
/* clang-format on */
#define N_NAMINGS (sizeof namings / sizeof namings[0])

/* ---- writing ---------------------------------------------------------------------------------------- */

/* Prefix and name; a '#' becomes the expert's number. */
static const char *full_name(const naming *n, const char *name, int expert)
{
    static char full[200];
    const char *hole = strchr(name, '#');
    if (hole)
        snprintf(full, sizeof full, "%s%.*s%d%s", n->prefix, (int)(hole - name), name, expert, hole + 1);
    else
        snprintf(full, sizeof full, "%s%s", n->prefix, name);
    return full;
}

/* A tensor of n, n + 1/64, ... where n is its place in the file: no element of two tensors is the same. */
static void put(hand_checkpoint *c, const char *name, int64_t a, int64_t b, int64_t d)
{
    hand_add(c, name, MOXIE_F32, a, b, d, -1);
    hand_ramp(c, name, (float)c->count * 64, 0x1p-6f);
}

static void put_matrix(hand_checkpoint *c, const naming *n, const char *name, int64_t rows, int64_t cols)
{
    if (!name)
        return;
    if (n->as != PER_EXPERT) {
        put(c, full_name(n, name, 0), E, rows, cols);
        return;
    }
    for (int e = 0; e < E; e++)
        put(c, full_name(n, name, e), rows, cols, -1);
}

static void write_layer(hand_checkpoint *c, const naming *n)
{
    char config[400];
    hand_open(c);
    put(c, full_name(n, n->router, 0), E, H, -1);
    if (n->bias && strstr(n->bias, "moe_statics"))
        put(c, full_name(n, n->bias, 0), 1, E, -1);
    else if (n->bias)
        put(c, full_name(n, n->bias, 0), E, -1, -1);
    put_matrix(c, n, n->gate, I, H);
    put_matrix(c, n, n->up, n->as == MERGED ? 2 * I : I, H);
    put_matrix(c, n, n->down, H, I);
    if (n->shared != NO_SHARED) {
        if (n->shared_gate)
            put(c, full_name(n, n->shared_gate, 0), S, H, -1);
        put(c, full_name(n, n->shared_up, 0), n->shared == GATE_UP_AND_DOWN ? 2 * S : S, H, -1);
        put(c, full_name(n, n->shared_down, 0), H, S, -1);
    }
    snprintf(config, sizeof config, "{\"model_type\":\"%s\",\"hidden_size\":16,%s}", n->model_type, n->config);
    hand_write(c, config);
}

/* ---- comparing -------------------------------------------------------------------------------------- */

/* Element (r, k) of a matrix must be element first + r * cols + k of the tensor. */
static void same(const hand_checkpoint *c, const moxie_matrix *matrix, const moxie_quant *quant, const char *name,
                 int64_t first, int64_t rows, int64_t cols)
{
    assert_int_equal(matrix->codes.rows, rows);
    assert_int_equal(matrix->codes.cols, cols);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < cols; k++)
            if (mox_matrix_weight(matrix, quant, r, k) != hand_value(c, name, first + r * cols + k))
                fail_msg("%s: element %d, %d is another one", name, (int)r, (int)k);
}

static void check_experts(const hand_checkpoint *c, const naming *n, const hand_model *m)
{
    const moxie_expert *one = &m->weights->experts[1];
    const moxie_quant *w13 = &m->config->w13, *w2 = &m->config->w2;
    const int64_t stacked = n->as == PER_EXPERT ? 0 : I * H;
    if (n->gate)
        same(c, &one->gate, w13, full_name(n, n->gate, 1), stacked, I, H);
    else if (n->as == MERGED)
        same(c, &one->gate, w13, full_name(n, n->up, 1), 2 * I * H, I, H);
    same(c, &one->up, w13, full_name(n, n->up, 1), n->as == MERGED ? 3 * I * H : stacked, I, H);
    same(c, &one->down, w2, full_name(n, n->down, 1), stacked, H, I);
}

static void check_shared(const hand_checkpoint *c, const naming *n, const hand_model *m)
{
    const moxie_quant *w13 = &m->config->shared.w13, *w2 = &m->config->shared.w2;
    assert_int_equal(m->config->shared.intermediate, n->shared == NO_SHARED ? 0 : S);
    if (n->shared == NO_SHARED)
        return;
    const bool pair = n->shared == GATE_UP_AND_DOWN;
    same(c, &m->weights->shared->gate, w13, full_name(n, pair ? n->shared_up : n->shared_gate, 0), 0, S, H);
    same(c, &m->weights->shared->up, w13, full_name(n, n->shared_up, 0), pair ? S * H : 0, S, H);
    same(c, &m->weights->shared->down, w2, full_name(n, n->shared_down, 0), 0, H, S);
}

static void every_naming_is_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_NAMINGS; i++) {
        const naming *n = &namings[i];
        hand_checkpoint c;
        print_message("%s %s%s\n", n->model_type, n->prefix, n->up);
        write_layer(&c, n);
        hand_model m = hand_load(&c, L, MOXIE_ACTIVATIONS_CHECKPOINT);
        check_experts(&c, n, &m);
        check_shared(&c, n, &m);
        const float *bias = m.config->routing.bias;
        assert_int_equal(bias != NULL, n->bias != NULL);
        for (int64_t e = 0; bias && e < E; e++)
            assert_true((double)bias[e] == hand_value(&c, full_name(n, n->bias, 0), e));
        hand_unload(&m);
        hand_close(&c);
    }
}

/* Loads lfm2_moe's layer with one more key in config.json. */
static moxie_status try_flag(naming n, const char *key, bool value, bool with_bias, moxie_error *error)
{
    char config[300];
    hand_checkpoint c;
    snprintf(config, sizeof config, "%s,\"%s\":%s", n.config, key, value ? "true" : "false");
    n.config = config;
    if (!with_bias)
        n.bias = NULL;
    write_layer(&c, &n);
    const moxie_status status = hand_try(&c, L, error);
    hand_close(&c);
    return status;
}

/* A bias that config.json denies: lfm2_moe's code ignores the tensor, others' ignore the key. One that it promises must
 * be there. */
static void bias_and_its_flags(void **state)
{
    static const char *const keys[] = { "use_expert_bias", "use_routing_bias", "use_moe_router_bias",
                                        "moe_router_enable_expert_bias", "router_enable_expert_bias" };
    (void)state;
    moxie_error error = { 0 };
    for (size_t i = 0; i < N_NAMINGS; i++)
        for (size_t k = 0; k < sizeof keys / sizeof keys[0] && strcmp(namings[i].model_type, "lfm2_moe") == 0; k++) {
            print_message("%s\n", keys[k]);
            assert_int_equal(try_flag(namings[i], keys[k], false, true, &error), MOXIE_ERR_MISMATCH);
            assert_non_null(strstr(error.text, "without a bias"));
            assert_ok(try_flag(namings[i], keys[k], false, false, &error), &error);
            assert_ok(try_flag(namings[i], keys[k], true, true, &error), &error);
            assert_int_equal(try_flag(namings[i], keys[k], true, false, &error), MOXIE_ERR_FORMAT);
            assert_non_null(strstr(error.text, "chosen with a bias"));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_naming_is_read),
        cmocka_unit_test(bias_and_its_flags),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
