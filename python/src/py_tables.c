/* SPDX-License-Identifier: Apache-2.0
 *
 * py_tables.c - every public struct that Python sees, field by field, in the order of its class in moxie/records.py.
 * A new field of a struct is one line here and one there; python/tests/test_records.py compares them.
 */
#include "py_tables.h"

#include "py_store.h"

#include <moxie/moxie_cuda.h>
#include <moxie/moxie_lint.h>

/* ---- choices -------------------------------------------------------------------------------- */

const mpy_choice mpy_backends[] = { { "auto", MOXIE_BACKEND_AUTO },
                                    { "ref", MOXIE_BACKEND_REF },
                                    { "cpu", MOXIE_BACKEND_CPU },
                                    { "cuda", MOXIE_BACKEND_CUDA },
                                    { NULL, 0 } };
const mpy_choice mpy_modes[] = { { "exact", MOXIE_MODE_EXACT }, { "fast", MOXIE_MODE_FAST }, { NULL, 0 } };

static const mpy_choice act_kinds[] = { { "silu", MOXIE_ACT_SILU },
                                        { "gelu_erf", MOXIE_ACT_GELU_ERF },
                                        { "gelu_tanh", MOXIE_ACT_GELU_TANH },
                                        { "swiglu_step", MOXIE_ACT_SWIGLU_STEP },
                                        { "situ", MOXIE_ACT_SITU },
                                        { "relu2", MOXIE_ACT_RELU2 },
                                        { "relu", MOXIE_ACT_RELU },
                                        { "silu_no_mul", MOXIE_ACT_SILU_NO_MUL },
                                        { "gelu_erf_no_mul", MOXIE_ACT_GELU_ERF_NO_MUL },
                                        { "gelu_tanh_no_mul", MOXIE_ACT_GELU_TANH_NO_MUL },
                                        { "relu2_no_mul", MOXIE_ACT_RELU2_NO_MUL },
                                        { "relu_no_mul", MOXIE_ACT_RELU_NO_MUL },
                                        { "identity_no_mul", MOXIE_ACT_IDENTITY_NO_MUL },
                                        { NULL, 0 } };
static const mpy_choice scores[] = { { "logit", MOXIE_SCORE_LOGIT },
                                     { "softmax", MOXIE_SCORE_SOFTMAX },
                                     { "sigmoid", MOXIE_SCORE_SIGMOID },
                                     { "sqrtsoftplus", MOXIE_SCORE_SQRTSOFTPLUS },
                                     { NULL, 0 } };
static const mpy_choice selects[] = { { "topk", MOXIE_SELECT_TOPK },
                                      { "table", MOXIE_SELECT_TABLE },
                                      { "sparsemixer", MOXIE_SELECT_SPARSEMIXER },
                                      { "custom", MOXIE_SELECT_CUSTOM },
                                      { "sim_uniform", MOXIE_SELECT_SIM_UNIFORM },
                                      { "sim_normal", MOXIE_SELECT_SIM_NORMAL },
                                      { NULL, 0 } };
static const mpy_choice weights_from[] = { { "score", MOXIE_WEIGHT_SCORE },
                                           { "softmax_selected", MOXIE_WEIGHT_SOFTMAX_SELECTED },
                                           { "sigmoid_selected", MOXIE_WEIGHT_SIGMOID_SELECTED },
                                           { NULL, 0 } };
static const mpy_choice norms[] = { { "none", MOXIE_NORM_NONE },
                                    { "sum_plus_eps", MOXIE_NORM_SUM_PLUS_EPS },
                                    { "sum", MOXIE_NORM_SUM },
                                    { "max_sum_eps", MOXIE_NORM_MAX_SUM_EPS },
                                    { "sum_or_one", MOXIE_NORM_SUM_OR_ONE },
                                    { "root_squares", MOXIE_NORM_ROOT_SQUARES },
                                    { NULL, 0 } };
static const mpy_choice group_scores[] = { { "top2_sum", MOXIE_GROUP_TOP2_SUM },
                                           { "max", MOXIE_GROUP_MAX },
                                           { NULL, 0 } };
static const mpy_choice group_fills[] = {
    { "lowest", MOXIE_FILL_LOWEST }, { "zero", MOXIE_FILL_ZERO }, { "zero_key", MOXIE_FILL_ZERO_KEY }, { NULL, 0 }
};
static const mpy_choice zero_kinds[] = { { "identity", MOXIE_ZERO_IDENTITY },
                                         { "null", MOXIE_ZERO_NULL },
                                         { NULL, 0 } };
static const mpy_choice rules[] = { { "default", MOXIE_RULE_DEFAULT },
                                    { "amax", MOXIE_RULE_AMAX },
                                    { "ceil", MOXIE_RULE_CEIL },
                                    { "quark_even", MOXIE_RULE_QUARK_EVEN },
                                    { "ocp_floor", MOXIE_RULE_OCP_FLOOR },
                                    { "vllm_floor", MOXIE_RULE_VLLM_FLOOR },
                                    { "ue8m0", MOXIE_RULE_UE8M0 },
                                    { "inverse", MOXIE_RULE_INVERSE },
                                    { NULL, 0 } };
static const mpy_choice roundings[] = {
    { "even", MOXIE_ROUND_EVEN }, { "away", MOXIE_ROUND_AWAY }, { "truncate", MOXIE_ROUND_TRUNCATE }, { NULL, 0 }
};
static const mpy_choice globals[] = {
    { "none", MOXIE_GLOBAL_NONE }, { "multiply", MOXIE_GLOBAL_MULTIPLY }, { "divide", MOXIE_GLOBAL_DIVIDE }, { NULL, 0 }
};
static const mpy_choice row_norms[] = { { "none", MOXIE_ROW_NORM_NONE },
                                        { "rms", MOXIE_ROW_NORM_RMS },
                                        { "rms_weighted", MOXIE_ROW_NORM_RMS_WEIGHTED },
                                        { NULL, 0 } };
const mpy_choice mpy_expert_maps[] = { { "linear", MOXIE_MAP_LINEAR },
                                       { "round_robin", MOXIE_MAP_ROUND_ROBIN },
                                       { NULL, 0 } };
static const mpy_choice severities[] = { { "note", MOXIE_SEVERITY_NOTE },
                                         { "warning", MOXIE_SEVERITY_WARNING },
                                         { "error", MOXIE_SEVERITY_ERROR },
                                         { NULL, 0 } };
static const mpy_choice scale_kinds[] = { { "none", MOXIE_SCHEME_SCALE_NONE },
                                          { "tensor", MOXIE_SCHEME_SCALE_TENSOR },
                                          { "precision", MOXIE_SCHEME_SCALE_PRECISION },
                                          { NULL, 0 } };
static const mpy_choice sides[] = { { "usual", MOXIE_SCHEME_SIDES_USUAL }, { "both", MOXIE_SCHEME_SIDES_BOTH },
                                    { "w13", MOXIE_SCHEME_SIDES_W13 },     { "w2", MOXIE_SCHEME_SIDES_W2 },
                                    { "none", MOXIE_SCHEME_SIDES_NONE },   { NULL, 0 } };

/* ---- a layer's configuration ---------------------------------------------------------------- */

static int64_t weighted_experts(const moxie_layer_config *config)
{
    return config->experts;
}

static int64_t all_experts(const moxie_layer_config *config)
{
    return config->experts + config->routing.zero_experts;
}

static const mpy_array_kind per_expert = { MOXIE_F32, weighted_experts }, per_choice = { MOXIE_F32, all_experts },
                            table = { MOXIE_I32, NULL };

static const mpy_field quant_fields[] = { F(moxie_quant, element, DTYPE),
                                          F(moxie_quant, scale, DTYPE),
                                          F(moxie_quant, group_rows, I32),
                                          F(moxie_quant, group_cols, I32),
                                          F(moxie_quant, has_zero, FLAG),
                                          { "global_", MPY_CHOICE, offsetof(moxie_quant, global), globals, 0 },
                                          F(moxie_quant, is_static, FLAG),
                                          FM(moxie_quant, rule, CHOICE, rules),
                                          FM(moxie_quant, rounding, CHOICE, roundings),
                                          END };
const mpy_record mpy_quant_record = { "Quant", quant_fields };

static const mpy_field activation_fields[] = { FM(moxie_activation, kind, CHOICE, act_kinds),
                                               F(moxie_activation, alpha, F32),
                                               F(moxie_activation, beta, F32),
                                               F(moxie_activation, gate_limit, F32),
                                               F(moxie_activation, up_limit, F32),
                                               FM(moxie_activation, expert_alpha, ARRAY, &per_expert),
                                               FM(moxie_activation, expert_beta, ARRAY, &per_expert),
                                               FM(moxie_activation, expert_limit, ARRAY, &per_expert),
                                               END };
const mpy_record mpy_activation_record = { "Activation", activation_fields };

/* custom_user is the binding's own (py_routing.c). */
static const mpy_field routing_fields[] = { FM(moxie_routing, score, CHOICE, scores),
                                            FM(moxie_routing, select, CHOICE, selects),
                                            FM(moxie_routing, weight, CHOICE, weights_from),
                                            FM(moxie_routing, norm, CHOICE, norms),
                                            F(moxie_routing, norm_eps, F32),
                                            F(moxie_routing, scale, F32),
                                            F(moxie_routing, n_group, I32),
                                            F(moxie_routing, topk_group, I32),
                                            FM(moxie_routing, group_score, CHOICE, group_scores),
                                            FM(moxie_routing, group_fill_zero, CHOICE, group_fills),
                                            F(moxie_routing, on_input, FLAG),
                                            F(moxie_routing, round_logits_bf16, FLAG),
                                            F(moxie_routing, round_weights_bf16, FLAG),
                                            F(moxie_routing, jitter, F32),
                                            FM(moxie_routing, bias, ARRAY, &per_choice),
                                            FM(moxie_routing, per_expert_scale, ARRAY, &per_choice),
                                            FM(moxie_routing, table, ARRAY, &table),
                                            F(moxie_routing, seed, U64),
                                            F(moxie_routing, custom, ROUTE),
                                            F(moxie_routing, softcap, F32),
                                            F(moxie_routing, zero_experts, I32),
                                            FM(moxie_routing, zero_kind, CHOICE, zero_kinds),
                                            F(moxie_routing, topk_per_group, I32),
                                            FM(moxie_routing, bias_alt, ARRAY, &per_choice),
                                            END };
const mpy_record mpy_routing_record = { "Routing", routing_fields };

static const mpy_field row_norm_fields[] = {
    FM(moxie_row_norm, kind, CHOICE, row_norms), F(moxie_row_norm, has_weight, FLAG), F(moxie_row_norm, eps, F32),
    F(moxie_row_norm, weight_add, F32),          F(moxie_row_norm, factor, F32),      END
};
static const mpy_record row_norm_record = { "RowNorm", row_norm_fields };

static const mpy_field shared_fields[] = { F(moxie_shared_config, intermediate, I64),
                                           FM(moxie_shared_config, w13, STRUCT, &mpy_quant_record),
                                           FM(moxie_shared_config, w2, STRUCT, &mpy_quant_record),
                                           FM(moxie_shared_config, a13, STRUCT, &mpy_quant_record),
                                           FM(moxie_shared_config, a2, STRUCT, &mpy_quant_record),
                                           F(moxie_shared_config, has_gate, FLAG),
                                           F(moxie_shared_config, bias13, FLAG),
                                           F(moxie_shared_config, bias2, FLAG),
                                           F(moxie_shared_config, scale, F32),
                                           END };
static const mpy_record shared_record = { "SharedExpert", shared_fields };

static const mpy_field layer_config_fields[] = { F(moxie_layer_config, dtype, DTYPE),
                                                 F(moxie_layer_config, experts, I64),
                                                 F(moxie_layer_config, top_k, I64),
                                                 F(moxie_layer_config, hidden, I64),
                                                 F(moxie_layer_config, intermediate, I64),
                                                 FM(moxie_layer_config, activation, STRUCT, &mpy_activation_record),
                                                 FM(moxie_layer_config, routing, STRUCT, &mpy_routing_record),
                                                 FM(moxie_layer_config, w13, STRUCT, &mpy_quant_record),
                                                 FM(moxie_layer_config, w2, STRUCT, &mpy_quant_record),
                                                 FM(moxie_layer_config, a13, STRUCT, &mpy_quant_record),
                                                 FM(moxie_layer_config, a2, STRUCT, &mpy_quant_record),
                                                 F(moxie_layer_config, bias13, FLAG),
                                                 F(moxie_layer_config, bias2, FLAG),
                                                 FM(moxie_layer_config, shared, STRUCT, &shared_record),
                                                 F(moxie_layer_config, router_width, I64),
                                                 F(moxie_layer_config, router_has_bias, FLAG),
                                                 F(moxie_layer_config, ep_size, I32),
                                                 F(moxie_layer_config, ep_rank, I32),
                                                 FM(moxie_layer_config, ep_map, CHOICE, mpy_expert_maps),
                                                 FM(moxie_layer_config, router_norm, STRUCT, &row_norm_record),
                                                 FM(moxie_layer_config, expert_norm, STRUCT, &row_norm_record),
                                                 F(moxie_layer_config, has_shared_activation, FLAG),
                                                 FM(moxie_layer_config, shared_activation, STRUCT,
                                                    &mpy_activation_record),
                                                 F(moxie_layer_config, tp_size, I32),
                                                 F(moxie_layer_config, tp_rank, I32),
                                                 F(moxie_layer_config, slot_map, SLOT_MAP),
                                                 F(moxie_layer_config, round_results, FLAG),
                                                 END };
const mpy_record mpy_layer_config_record = { "LayerConfig", layer_config_fields };

/* ---- models and plans ----------------------------------------------------------------------- */

static const mpy_field model_info_fields[] = {
    F(moxie_model_info, family, TEXT),       F(moxie_model_info, model_type, TEXT),
    F(moxie_model_info, quant_method, TEXT), F(moxie_model_info, n_layers, I64),
    F(moxie_model_info, n_tensors, I64),     F(moxie_model_info, n_files, I64),
    F(moxie_model_info, tensor_bytes, U64),  F(moxie_model_info, n_warnings, I64),
    F(moxie_model_info, n_unread_keys, I64), END
};
const mpy_record mpy_model_info_record = { "ModelInfo", model_info_fields };

static const mpy_field layer_info_fields[] = { F(moxie_model_layer_info, layer, I64),
                                               F(moxie_model_layer_info, format, TEXT),
                                               F(moxie_model_layer_info, shared_format, TEXT),
                                               F(moxie_model_layer_info, routing, TEXT),
                                               F(moxie_model_layer_info, experts, I64),
                                               F(moxie_model_layer_info, top_k, I64),
                                               F(moxie_model_layer_info, hidden, I64),
                                               F(moxie_model_layer_info, intermediate, I64),
                                               F(moxie_model_layer_info, shared_intermediate, I64),
                                               F(moxie_model_layer_info, router_width, I64),
                                               F(moxie_model_layer_info, expert_bytes, U64),
                                               F(moxie_model_layer_info, total_bytes, U64),
                                               F(moxie_model_layer_info, format_note, TEXT),
                                               F(moxie_model_layer_info, merged_input_scales, I64),
                                               F(moxie_model_layer_info, outside, TEXT),
                                               F(moxie_model_layer_info, n_unread, I64),
                                               END };
const mpy_record mpy_layer_info_record = { "LayerInfo", layer_info_fields };

static const mpy_field step_fields[] = { F(moxie_plan_step, family, TEXT), F(moxie_plan_step, role, TEXT),
                                         F(moxie_plan_step, kernel, TEXT), F(moxie_plan_step, isa, TEXT),
                                         F(moxie_plan_step, layout, TEXT), F(moxie_plan_step, exactness, TEXT),
                                         F(moxie_plan_step, chosen, FLAG), F(moxie_plan_step, reason, TEXT),
                                         F(moxie_plan_step, remedy, TEXT), END };
const mpy_record mpy_step_record = { "Step", step_fields };

static const mpy_field stage_fields[] = {
    F(moxie_stage_report, stage, TEXT),    F(moxie_stage_report, elements, I64),
    F(moxie_stage_report, beyond, I64),    F(moxie_stage_report, worst_ratio, F64),
    F(moxie_stage_report, got, F64),       F(moxie_stage_report, want, F64),
    F(moxie_stage_report, bound, F64),     F(moxie_stage_report, token, I64),
    F(moxie_stage_report, slot, I64),      F(moxie_stage_report, expert, I64),
    F(moxie_stage_report, column, I64),    F(moxie_stage_report, column_block, I64),
    F(moxie_stage_report, rms_error, F64), F(moxie_stage_report, rms_want, F64),
    F(moxie_stage_report, rms_bound, F64), END
};
const mpy_record mpy_stage_record = { "StageReport", stage_fields };

static const mpy_field difference_fields[] = {
    F(moxie_weights_difference, expert, I64),       F(moxie_weights_difference, projection, TEXT),
    F(moxie_weights_difference, part, TEXT),        F(moxie_weights_difference, row, I64),
    F(moxie_weights_difference, column, I64),       F(moxie_weights_difference, row_block, I64),
    F(moxie_weights_difference, column_block, I64), F(moxie_weights_difference, count, I64),
    F(moxie_weights_difference, experts, I64),      END
};
const mpy_record mpy_difference_record = { "WeightsDifference", difference_fields };

/* ---- the machine, lists --------------------------------------------------------------------- */

static const mpy_field machine_fields[] = { F(moxie_machine, processors, I32),
                                            F(moxie_machine, cpu, CHARS),
                                            F(moxie_machine, isa_found, TEXT),
                                            F(moxie_machine, isa_allowed, TEXT),
                                            F(moxie_machine, features, CHARS),
                                            F(moxie_machine, amx, TEXT),
                                            END };
const mpy_record mpy_machine_record = { "Machine", machine_fields };

static const mpy_field kernel_fields[] = { F(moxie_kernel_info, runnable, FLAG),
                                           F(moxie_kernel_info, family, TEXT),
                                           F(moxie_kernel_info, name, TEXT),
                                           F(moxie_kernel_info, isa, TEXT),
                                           F(moxie_kernel_info, layout, TEXT),
                                           F(moxie_kernel_info, exactness, TEXT),
                                           END };
const mpy_record mpy_kernel_record = { "Kernel", kernel_fields };

static const mpy_field limits_fields[] = { F(moxie_limits, workers, I32),      F(moxie_limits, isa, TEXT),
                                           F(moxie_limits, read_gb_s, F64),    F(moxie_limits, copy_gb_s, F64),
                                           F(moxie_limits, l2_read_gb_s, F64), F(moxie_limits, f32_tflop_s, F64),
                                           F(moxie_limits, bf16_tflop_s, F64), F(moxie_limits, int8_top_s, F64),
                                           F(moxie_limits, l2_bytes, U64),     F(moxie_limits, cache_bytes, U64),
                                           F(moxie_limits, read_how, TEXT),    F(moxie_limits, copy_how, TEXT),
                                           F(moxie_limits, l2_read_how, TEXT), F(moxie_limits, f32_how, TEXT),
                                           F(moxie_limits, bf16_how, TEXT),    F(moxie_limits, int8_how, TEXT),
                                           F(moxie_limits, disturbed, I32),    F(moxie_limits, fp8_tflop_s, F64),
                                           F(moxie_limits, fp8_how, TEXT),     END };
const mpy_record mpy_limits_record = { "Limits", limits_fields };

static const mpy_field preset_fields[] = { F(moxie_preset_info, name, TEXT),
                                           F(moxie_preset_info, family, TEXT),
                                           F(moxie_preset_info, experts, I64),
                                           F(moxie_preset_info, top_k, I64),
                                           F(moxie_preset_info, hidden, I64),
                                           F(moxie_preset_info, intermediate, I64),
                                           F(moxie_preset_info, shared_intermediate, I64),
                                           F(moxie_preset_info, router_width, I64),
                                           F(moxie_preset_info, layers, I64),
                                           F(moxie_preset_info, activation, TEXT),
                                           FN(moxie_preset_info, formats, TEXTS, n_formats),
                                           F(moxie_preset_info, n_native, I32),
                                           F(moxie_preset_info, layer_bytes, U64),
                                           F(moxie_preset_info, gguf_architecture, TEXT),
                                           END };
const mpy_record mpy_preset_record = { "Preset", preset_fields };

static const mpy_field family_fields[] = {
    F(moxie_family_info, name, TEXT),         FN(moxie_family_info, model_types, TEXTS, n_model_types),
    F(moxie_family_info, architecture, TEXT), F(moxie_family_info, routing, TEXT),
    F(moxie_family_info, activation, TEXT),   END
};
const mpy_record mpy_family_record = { "Family", family_fields };

static const mpy_field format_fields[] = { F(moxie_checkpoint_format_info, name, TEXT),
                                           F(moxie_checkpoint_format_info, quant_method, TEXT),
                                           F(moxie_checkpoint_format_info, summary, TEXT), END };
const mpy_record mpy_format_record = { "CheckpointFormat", format_fields };

static const mpy_field cuda_info_fields[] = { F(moxie_cuda_info, devices, I32), F(moxie_cuda_info, opened, CHARS),
                                              F(moxie_cuda_info, built, CHARS), F(moxie_cuda_info, missing, CHARS),
                                              F(moxie_cuda_info, kernels, I32), END };
const mpy_record mpy_cuda_info_record = { "CudaInfo", cuda_info_fields };

static const mpy_field cuda_device_fields[] = { F(moxie_cuda_device, sm, I32),
                                                F(moxie_cuda_device, multiprocessors, I32),
                                                F(moxie_cuda_device, usable, FLAG),
                                                F(moxie_cuda_device, shared_bytes, U64),
                                                F(moxie_cuda_device, l2_bytes, U64),
                                                F(moxie_cuda_device, memory_bytes, U64),
                                                F(moxie_cuda_device, name, CHARS),
                                                F(moxie_cuda_device, features, CHARS),
                                                END };
const mpy_record mpy_cuda_device_record = { "CudaDevice", cuda_device_fields };

/* ---- schemes -------------------------------------------------------------------------------- */

static const mpy_field desc_fields[] = {
    F(moxie_scheme_desc, dtype, TEXT),      F(moxie_scheme_desc, dtype_is_string, FLAG),
    F(moxie_scheme_desc, shape, PAIR),      FM(moxie_scheme_desc, has_scale, CHOICE, scale_kinds),
    F(moxie_scheme_desc, has_gscale, FLAG), F(moxie_scheme_desc, has_zero, FLAG),
    F(moxie_scheme_desc, has_bias, FLAG),   END
};
static const mpy_record desc_record = { "SchemeTensor", desc_fields };

static const mpy_field scheme_fields[] = { F(moxie_scheme, constructor, TEXT),
                                           FM(moxie_scheme, a1, STRUCT, &desc_record),
                                           FM(moxie_scheme, a2, STRUCT, &desc_record),
                                           FM(moxie_scheme, w1, STRUCT, &desc_record),
                                           FM(moxie_scheme, w2, STRUCT, &desc_record),
                                           F(moxie_scheme, scale_swizzled, FLAG),
                                           FM(moxie_scheme, a13, STRUCT, &mpy_quant_record),
                                           FM(moxie_scheme, act2, STRUCT, &mpy_quant_record),
                                           FM(moxie_scheme, w13, STRUCT, &mpy_quant_record),
                                           FM(moxie_scheme, weight2, STRUCT, &mpy_quant_record),
                                           F(moxie_scheme, scale_transposed, FLAG),
                                           F(moxie_scheme, computable, FLAG),
                                           END };
const mpy_record mpy_scheme_record = { "Scheme", scheme_fields };

static const mpy_field scheme_args_fields[] = { F(moxie_scheme_args, per_act_token, FLAG),
                                                F(moxie_scheme_args, per_out_ch, FLAG),
                                                F(moxie_scheme_args, block, PAIR),
                                                F(moxie_scheme_args, bits, I32),
                                                F(moxie_scheme_args, group_size, I32),
                                                F(moxie_scheme_args, quant_dtype, TEXT),
                                                F(moxie_scheme_args, weight_dtype, TEXT),
                                                FM(moxie_scheme_args, has_zero, CHOICE, sides),
                                                FM(moxie_scheme_args, has_bias, CHOICE, sides),
                                                FM(moxie_scheme_args, has_a_scale, CHOICE, sides),
                                                FM(moxie_scheme_args, has_gscale, CHOICE, sides),
                                                F(moxie_scheme_args, scale_format, DTYPE),
                                                F(moxie_scheme_args, scale_linear, FLAG),
                                                F(moxie_scheme_args, scale_precision, FLAG),
                                                FM(moxie_scheme_args, has_alphas, CHOICE, sides),
                                                FM(moxie_scheme_args, has_w_scale, CHOICE, sides),
                                                F(moxie_scheme_args, scale_transposed, FLAG),
                                                END };
const mpy_record mpy_scheme_args_record = { "SchemeArgs", scheme_args_fields };

/* ---- lint ----------------------------------------------------------------------------------- */

static const mpy_field finding_fields[] = { F(moxie_finding, name, TEXT),
                                            FM(moxie_finding, severity, CHOICE, severities),
                                            F(moxie_finding, layer, I64),
                                            F(moxie_finding, file, TEXT),
                                            F(moxie_finding, tensor, TEXT),
                                            F(moxie_finding, found, TEXT),
                                            F(moxie_finding, more, I64),
                                            F(moxie_finding, meaning, TEXT),
                                            F(moxie_finding, engines, TEXT),
                                            F(moxie_finding, remedy, TEXT),
                                            END };
const mpy_record mpy_finding_record = { "Finding", finding_fields };

static const mpy_field lint_info_fields[] = { F(moxie_lint_info, n_findings, I64),  F(moxie_lint_info, n_errors, I64),
                                              F(moxie_lint_info, n_warnings, I64),  F(moxie_lint_info, n_notes, I64),
                                              F(moxie_lint_info, n_layers, I64),    F(moxie_lint_info, n_tensors, I64),
                                              F(moxie_lint_info, n_files, I64),     F(moxie_lint_info, family, TEXT),
                                              F(moxie_lint_info, deep, FLAG),       F(moxie_lint_info, input, I32),
                                              F(moxie_lint_info, input_text, TEXT), END };
const mpy_record mpy_lint_info_record = { "LintReport", lint_info_fields };

static const mpy_field rule_fields[] = { F(moxie_lint_rule, name, TEXT),
                                         F(moxie_lint_rule, topic, TEXT),
                                         FM(moxie_lint_rule, severity, CHOICE, severities),
                                         F(moxie_lint_rule, deep, FLAG),
                                         F(moxie_lint_rule, meaning, TEXT),
                                         F(moxie_lint_rule, engines, TEXT),
                                         F(moxie_lint_rule, remedy, TEXT),
                                         END };
const mpy_record mpy_rule_record = { "LintRule", rule_fields };

const mpy_record *const mpy_records[] = { &mpy_quant_record,
                                          &mpy_activation_record,
                                          &mpy_routing_record,
                                          &row_norm_record,
                                          &shared_record,
                                          &mpy_layer_config_record,
                                          &mpy_model_info_record,
                                          &mpy_layer_info_record,
                                          &mpy_step_record,
                                          &mpy_stage_record,
                                          &mpy_difference_record,
                                          &mpy_machine_record,
                                          &mpy_kernel_record,
                                          &mpy_limits_record,
                                          &mpy_preset_record,
                                          &mpy_family_record,
                                          &mpy_format_record,
                                          &mpy_cuda_info_record,
                                          &mpy_cuda_device_record,
                                          &desc_record,
                                          &mpy_scheme_record,
                                          &mpy_scheme_args_record,
                                          &mpy_finding_record,
                                          &mpy_lint_info_record,
                                          &mpy_rule_record,
                                          &mpy_transport_info_record,
                                          &mpy_losses_record,
                                          &mpy_phase_record,
                                          &mpy_mover_report_record,
                                          &mpy_parallel_args_record,
                                          &mpy_parallel_record,
                                          &mpy_fused_moe_args_record,
                                          &mpy_fused_moe_record,
                                          &mpy_parallel_layer_record,
                                          &mpy_all2all_record,
                                          &mpy_matrix_record,
                                          &mpy_quantized_record,
                                          &mpy_expert_target_record,
                                          &mpy_expert_file_info_record,
                                          &mpy_expert_record_record,
                                          &mpy_store_info_record,
                                          &mpy_store_counters_record,
                                          &mpy_read_engine_record,
                                          &mpy_disk_rate_record,
                                          NULL };
