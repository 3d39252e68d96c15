/* SPDX-License-Identifier: Apache-2.0
 *
 * hand_rules.h - the published rules of number formats, restated from their bits, and small Qwen3 checkpoints: two
 * experts in layer 2, each projection added by a function of the test.
 */
#ifndef HAND_RULES_H
#define HAND_RULES_H

#include <math.h>

#include "hand_checkpoint.h"

/* OCP MX: code 0..7 = 0 .5 1 1.5 2 3 4 6, bit 3 the sign. */
static inline double e2m1(uint32_t code)
{
    static const double values[] = { 0, 0.5, 1, 1.5, 2, 3, 4, 6 };
    return (code & 8 ? -1 : 1) * values[code & 7];
}

static inline double e8m0(uint8_t code)
{
    return code == 255 ? NAN : ldexp(1, code - 127);
}

/* Sign, four exponent bits of bias 7, three mantissa bits; S.1111.111 is NaN. */
static inline double e4m3(uint8_t code)
{
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    if (exponent == 15 && mantissa == 7)
        return NAN;
    const double value = exponent ? ldexp(8 + mantissa, exponent - 10) : ldexp(mantissa, -9);
    return code & 128 ? -value : value;
}

static inline uint32_t nibble(const hand_checkpoint *c, const char *name, int64_t i)
{
    return hand_byte(c, name, i / 2) >> (i % 2 * 4) & 15;
}

static inline char *join(const char *name, const char *suffix)
{
    static char buffers[4][256];
    static int next;
    char *out = buffers[next++ % 4];
    snprintf(out, 256, "%.191s%.63s", name, suffix);
    return out;
}

static inline const char *config_text(const char *model_type, int64_t experts, int64_t hidden, int64_t intermediate,
                                      const char *more)
{
    static char text[2048];
    snprintf(text, sizeof text,
             "{\"model_type\":\"%s\",\"num_experts\":%d,\"num_local_experts\":%d,\"num_experts_per_tok\":1,"
             "\"hidden_size\":%d,\"moe_intermediate_size\":%d,\"intermediate_size\":%d,\"norm_topk_prob\":true%s}",
             model_type, (int)experts, (int)experts, (int)hidden, (int)intermediate, (int)intermediate, more);
    return text;
}

#define QWEN "model.layers.2.mlp."
static const char *const projections[] = { "gate_proj", "up_proj", "down_proj" };

static inline char *expert_name(int64_t e, int p)
{
    static char buffers[4][128];
    static int next;
    char *out = buffers[next++ % 4];
    snprintf(out, 128, QWEN "experts.%d.%s", (int)e, projections[p]);
    return out;
}

typedef void (*add_matrix_fn)(hand_checkpoint *c, const char *name, int64_t n, int64_t k);

static inline void open_qwen(hand_checkpoint *c, int64_t hidden, int64_t intermediate, add_matrix_fn add)
{
    hand_open(c);
    hand_add2(c, QWEN "gate.weight", MOXIE_BF16, 2, hidden);
    for (int64_t e = 0; e < 2; e++)
        for (int p = 0; p < 3; p++)
            add(c, expert_name(e, p), p < 2 ? intermediate : hidden, p < 2 ? hidden : intermediate);
}

static inline void check_qwen(const hand_checkpoint *c, const hand_model *m, int64_t hidden, int64_t intermediate,
                              hand_weight_fn wide, hand_weight_fn narrow)
{
    for (int64_t e = 0; e < 2; e++) {
        const moxie_expert *x = &m->weights->experts[e];
        hand_check(c, &x->gate, &m->config->w13, expert_name(e, 0), intermediate, hidden, wide);
        hand_check(c, &x->up, &m->config->w13, expert_name(e, 1), intermediate, hidden, wide);
        hand_check(c, &x->down, &m->config->w2, expert_name(e, 2), hidden, intermediate, narrow);
    }
}

#endif
