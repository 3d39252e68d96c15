/* SPDX-License-Identifier: Apache-2.0
 *
 * test_problem.h - random quantized experts, as they lie in checkpoints: for the packers, the kernels and
 * whole layers.
 *
 *     test_weight_quants[]   every weight format, scale layout and packing that checkpoints have, by name
 *     test_act_quants[]      every rule that quantizes activations
 *     test_expert_make       one expert of any shape under two of the former, filled in one of four ways
 *
 * Every part lies in memory of its own with an inaccessible page behind it, unaligned when its size says so.
 * Weights are about 1/sqrt(K) in size, so that normal activations stay normal through a layer (fill RANDOM).
 */
#ifndef TEST_PROBLEM_H
#define TEST_PROBLEM_H

#include "pack/layout.h"
#include "test_support.h"

/* How the codes of a projection [N, K] lie in memory. Scales follow: transposed for GPTQ and AWQ. */
typedef enum test_packing {
    TEST_DENSE,       /* rows of bytes, low bits first */
    TEST_INTERLEAVED, /* dense rows, every other one of a larger tensor (gpt-oss: gate0, up0, gate1, ...) */
    TEST_TRANSPOSED,  /* [K, N] */
    TEST_WORDS,       /* 32-bit words along K (compressed-tensors) */
    TEST_GPTQ,        /* [K / per word, N] 32-bit words along K; zero points in words along N */
    TEST_AWQ,         /* [K, N / 8] 32-bit words along N in AWQ's nibble order, zero points likewise */
    TEST_ROW_PAIRS    /* [N / 2, K] bytes, two rows in a byte (ModelOpt int4) */
} test_packing;

typedef struct test_weight_quant {
    const char *name;
    moxie_quant quant;
    test_packing packing;
    bool act_order;         /* columns scattered over the groups */
    bool whole_groups;      /* with act_order: groups have all their columns, gate's order is up's (as of GPTQ) */
    float zero_add;         /* GPTQ v1 stores zero - 1 */
    moxie_dtype zero_dtype; /* NONE: the element's */
} test_weight_quant;

typedef struct test_act_quant {
    const char *name;
    moxie_quant quant; /* element NONE: unquantized */
} test_act_quant;

extern const test_weight_quant test_weight_quants[];
extern const int test_weight_quant_count;
/* Block types that panels hold. Their rows are whole blocks. */
extern const test_weight_quant test_block_quants[];
extern const int test_block_quant_count;
extern const test_act_quant test_act_quants[];
extern const int test_act_quant_count;
/* Every kind of activation function. */
#define MOX_ACTIVATION(id, kind, formula, gating, honours, alpha, beta, limit, name, config_names) +1
enum {
    TEST_ACT_KINDS =
#include "activation/activations.def"
};
extern const int32_t test_act_kinds[TEST_ACT_KINDS];
/* The one of that name; the test fails when there is none. */
const test_weight_quant *test_weight_quant_named(const char *name);
const test_act_quant *test_act_quant_named(const char *name);

typedef enum test_fill {
    TEST_FILL_RANDOM,
    TEST_FILL_ZERO,    /* codes of value zero (integers: the zero point) */
    TEST_FILL_EXTREME, /* largest and smallest codes under largest and smallest scales */
    TEST_FILL_NAN,     /* random, with some NaN codes, or NaN scales where codes have none */
    TEST_FILLS
} test_fill;
extern const char *const test_fill_names[TEST_FILLS];

typedef struct test_expert_spec {
    int64_t hidden, intermediate;
    bool gated, bias13, bias2;
    const test_weight_quant *w13, *w2;
    const test_act_quant *a13, *a2; /* only for the static scales and globals of the expert; NULL: unquantized */
    test_fill fill;
} test_expert_spec;

#define TEST_MAX_BLOCKS 24
typedef struct test_expert {
    moxie_expert view;
    struct {
        void *data;
        size_t bytes;
    } blocks[TEST_MAX_BLOCKS];
    int n_blocks;
} test_expert;

mox_record_shape test_record_shape(const test_expert_spec *spec);
void test_expert_make(test_expert *out, test_rng *rng, const test_expert_spec *spec);
/* Memory of the same form with other content, to unpack into. */
void test_expert_twin(test_expert *out, const test_expert *from);
void test_expert_free(test_expert *expert);
/* Every element of every part has the same code, every group index is the same; else *what names the first part
 * that differs. */
bool test_expert_equal(const moxie_expert *a, const moxie_expert *b, const char **what);

/* The test fails unless `layout` refuses w2 = `quant` of an ungated expert (H = I = `size`, w13 bf16) in a sentence
 * with `word` that names w2. */
void test_layout_refuses(const mox_layout *layout, int64_t size, const moxie_quant *quant, const char *word);

/* A static scale or global that suits activations of a few units, 0 when the quant takes none. */
float test_act_given(const moxie_quant *quant);
/* x [count] of roughly normal numbers, rounded to `dtype`, stored in it. */
void test_fill_activations(test_rng *rng, moxie_dtype dtype, void *x, int64_t count);

#endif
