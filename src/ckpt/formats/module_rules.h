/* SPDX-License-Identifier: Apache-2.0
 *
 * module_rules.h - what a quantization configuration says about one module. Configurations give rules for sets of
 * modules; each library has its own way to choose among them:
 *
 *     compressed-tensors  config_groups, by targets: the module's own name, then "re:" patterns in the order of their
 *                         text, then class names ("Linear"). A target in two groups belongs to the later one.
 *     Model Optimizer     MIXED_PRECISION: quantized_layers, by the name of the module or of one that contains it
 *     Quark               layer_quant_config, shell patterns, the first that matches; else global_quant_config
 *     GPTQModel           dynamic, the first "+:" or "-:" pattern that matches; else the configuration itself
 *
 * Sources: compressed-tensors utils/match.py and quantization/lifecycle/apply.py; vLLM quantization/modelopt.py and
 * quark/quark.py; GPTQModel quantization/config.py.
 */
#ifndef MOX_CKPT_MODULE_RULES_H
#define MOX_CKPT_MODULE_RULES_H

#include <jansson.h>

#include "ckpt/formats/pattern.h"

typedef enum mox_rule_kind {
    MOX_RULE_EXACT, /* the module's name, or its class */
    MOX_RULE_PATTERN
} mox_rule_kind;

/* One pattern and what it selects. */
typedef struct mox_module_rule {
    const char *text; /* as in the configuration */
    mox_rule_kind kind;
    const mox_pattern *pattern; /* NULL for EXACT, and when the text is not understood */
    const char *problem;        /* why it is not */
    const json_t *selected;     /* a config group, ...; NULL: the module is not quantized */
} mox_module_rule;

typedef enum mox_rules_dialect {
    MOX_RULES_NONE, /* one configuration for all modules */
    MOX_RULES_CT,
    MOX_RULES_MODELOPT,
    MOX_RULES_QUARK,
    MOX_RULES_GPTQ
} mox_rules_dialect;

/* The rules of one configuration, which must outlive them. */
typedef struct mox_module_rules {
    mox_rules_dialect dialect;
    const json_t *quant_config;
    mox_module_rule *rules; /* in the order in which they are tried */
    int32_t count;
} mox_module_rules;

/* What holds for a module. */
typedef struct mox_module_choice {
    const json_t *selected; /* borrowed; NULL: the configuration itself */
    bool absent;            /* the configuration has rules for other modules, but none for this one */
} mox_module_choice;

moxie_status mox_module_rules_create(const json_t *quant_config, mox_arena *arena, mox_module_rules *out,
                                     moxie_error *error);
/* `module`: the name of a matrix without a suffix. `stacked`: it holds all experts; then the rules for expert 0 inside
 * it hold, too. MOXIE_ERR_UNSUPPORTED names a pattern that is not understood and that would have decided. */
moxie_status mox_module_rules_choose(const mox_module_rules *rules, const char *module, bool stacked,
                                     mox_module_choice *out, moxie_error *error);
/* The configuration as if `choice` held for all modules: a deep copy, or NULL when out of memory. */
json_t *mox_module_rules_config(const mox_module_rules *rules, const mox_module_choice *choice);

#endif
