/* SPDX-License-Identifier: Apache-2.0
 *
 * test_layer.h - random whole layers: a configuration, its weights as they lie in checkpoints, and a batch; and the
 * fixture of most tests of layers: such a layer, prepared and planned, ready to run.
 *
 *     limits -> config (sizes, quants, activation, routing, shared, ep) -> weights (test_problem.h) -> run arguments
 *
 *     test_layer_begin(&t, seed, &limits, &options);   makes the numbers, then t.built and t.plan, and a workspace
 *     ... moxie_plan_run(t.plan, &t.args, &error) ...
 *     test_layer_free(&t);                             all of it
 *
 * Every array that the library reads or writes has an inaccessible page behind it.
 */
#ifndef TEST_LAYER_H
#define TEST_LAYER_H

#include "test_problem.h"

/* The limits of a random layer. Zero in a size means "at most the usual size". */
typedef struct test_layer_limits {
    int64_t tokens;     /* exactly so many; -1: random */
    int64_t experts;    /* exactly; 0: random */
    int64_t top_k;      /* exactly; 0: random */
    int64_t largest;    /* the largest hidden, intermediate, router_width; 0: 300, mostly far less */
    bool plain_routing; /* no callback, no simulated strategy: routing depends on the token alone */
    bool features;      /* also zero experts, a soft cap, choices per group, a second bias, padding */
    bool plain_acts;    /* no activation rule that depends on the whole batch */
    bool no_parallel;   /* all experts are local */
    bool mma;          /* weights and activations that GPUs' tensor cores multiply unchanged: both 16-bit or both FP8 */
    bool decoded;      /* weights of 4, 6 and 8 bits that GPUs dequantize to 16 bits, and 16-bit activations */
    bool decoded_acts; /* such weights, and quantized activations that GPUs dequantize to 16 bits, too */
    bool to_fp8;       /* MXFP4 weights and FP8 activations with a scale a row, which GPUs multiply as FP8 */
    bool blocks;       /* weights whose scales GPUs multiply by sums: FP8 of blocks, integers with zero points or f16 */
    bool rounds;       /* also layers that round their experts' results */
    bool short_groups; /* E2M1 weights, activations of 16 bits or quantized, sizes mostly multiples of 32 */
    bool wide;         /* at most 40 hidden, intermediate a multiple of 128 */
    int64_t hidden, intermediate;    /* at least, up to a whole block; 0: random */
    const test_weight_quant *weight; /* of all experts; NULL: any */
    const test_weight_quant *down;   /* of W2, beside `weight`, in as large blocks; NULL: the same */
    const test_act_quant *act;       /* the same */
} test_layer_limits;

#define TEST_LAYER_BLOCKS 64

typedef struct test_layer {
    moxie_layer_config config;
    moxie_weights weights;
    moxie_run_args args; /* all but the workspace */
    test_expert *owners; /* [experts + 1], the last is the shared expert */
    moxie_expert *experts;
    struct {
        void *data;
        size_t bytes;
    } blocks[TEST_LAYER_BLOCKS];
    int n_blocks;
    char text[512];     /* what it is, for a failing test */
    moxie_layer *built; /* NULL until test_layer_plan() */
    moxie_plan *plan;
} test_layer;

/* Chooses formats within the limits. */
const test_weight_quant *test_layer_any_weight(test_rng *rng, const test_layer_limits *limits, moxie_dtype dtype);
const test_act_quant *test_layer_any_act(test_rng *rng, const test_layer_limits *limits,
                                         const test_weight_quant *weight);
/* Whether GPUs dequantize such weights to 16 bits of type `dtype`; of any type. */
bool test_layer_decodes_to(const moxie_quant *weight, moxie_dtype dtype);
bool test_layer_decodes(const moxie_quant *weight);
/* Whether they dequantize such activations to bf16, for more columns than a group has. */
bool test_layer_decodes_acts(const moxie_quant *act);

/* A valid configuration of small sizes, for tests that change it in one place. */
moxie_layer_config test_config(void);
/* The same with these sizes, and this format of both matrices. */
moxie_layer_config test_config_of(int64_t hidden, int64_t intermediate, moxie_quant weight);

/* Makes the numbers only. */
void test_layer_make(test_layer *out, test_rng *rng, const test_layer_limits *limits);
/* The same, until hidden and intermediate size are above half of limits->largest, filled with random numbers. *seed
 * becomes the layer's. */
void test_layer_make_large(test_layer *layer, const test_layer_limits *limits, uint64_t *seed);
/* Options of the cuda back end for the layer's number of tokens. */
moxie_options test_layer_cuda_options(const test_layer *layer);
/* Creates, prepares and plans with the options (NULL: the default ones), and gives the arguments a workspace. Replaces
 * an earlier plan. After a failure, the objects made so far remain. */
moxie_status test_layer_try(test_layer *layer, const moxie_options *options, moxie_error *error);
/* The same; a failure fails the test. */
void test_layer_plan(test_layer *layer, const moxie_options *options);
/* Makes the numbers from `seed`, then the plan. */
void test_layer_begin(test_layer *out, uint64_t seed, const test_layer_limits *limits, const moxie_options *options);
/* Destroys the plan and what it was made from, if there are any. */
void test_layer_discard(test_layer *layer);
/* Frees everything. */
void test_layer_free(test_layer *layer);

/* Memory that test_layer_free() releases. */
void *test_layer_own(test_layer *layer, size_t bytes);
/* Gives the arguments a workspace for `plan`. */
void test_layer_workspace(test_layer *layer, const moxie_plan *plan);
/* Bytes of the output. */
size_t test_layer_output_bytes(const test_layer *layer);
/* Runs `plan` on the arguments, over an output of 0xee. Returns a copy of the output, which the caller frees. */
void *test_layer_output(const test_layer *layer, moxie_plan *plan);
/* The first `tokens` tokens alone have the bytes that they have in `all`, the output of more. Sets args.tokens. */
void test_layer_check_prefix(test_layer *layer, const void *all, int64_t tokens, uint64_t seed);

/* A report of moxie_plan_check as a value: copied out of the library's object, which is destroyed. */
typedef struct test_report {
    int32_t n_stages;
    double worst_ratio;
    moxie_stage_report stages[32];
} test_report;
moxie_status test_plan_check(moxie_plan *plan, const moxie_weights *weights, const moxie_run_args *args,
                             test_report *out, moxie_error *error);

/* Prints the layer, and each stage with its worst element. */
void test_report_print(const test_layer *layer, const test_report *report);
/* Prints the stages that are beyond their bounds, each with its worst element. */
void test_report_print_beyond(const test_report *report);

/* Creates, prepares, plans and verifies the layer, and checks its run. */
moxie_status test_layer_check(test_layer *layer, const moxie_options *options, test_report *report, moxie_error *error);

/* A layer and a plan besides the fixture's; the caller destroys them. */
void test_layer_build(const test_layer *layer, const moxie_options *options, moxie_layer **built, moxie_plan **plan);

#endif
