/* SPDX-License-Identifier: Apache-2.0
 *
 * api_moxie.c - the functions of moxie.h, in the order of the header.
 *
 * Each checks its pointers and calls down. Structs with a size are read where they are used, mostly in src/layer
 * (layer/config/struct_size.h); small results are made here and copied into the caller's struct.
 */
#include <moxie/moxie.h>

#include <math.h>
#include <stdio.h>

#include "activation/activation.h"
#include "api/api_need.h"
#include "base/executor.h"
#include "base/log.h"
#include "base/memory.h"
#include "cpu/cpu_kernels.h"
#include "cpu/limits/limits.h"
#include "layer/check/check.h"
#include "layer/config/struct_size.h"
#include "layer/plan/plan_create.h"
#include "layer/run/plan_run.h"
#include "layer/weights/layer_create.h"
#include "layer/weights/layer_prepare.h"
#include "layer/weights/layer_records.h"
#include "layer/weights/weights_compare.h"

/* ---- status, log, formats ------------------------------------------------------------------------ */

const char *moxie_status_name(moxie_status status)
{
    return mox_status_name(status);
}

void moxie_set_log(moxie_log_fn fn, void *user, moxie_log_level level)
{
    mox_set_log(fn, user, level);
}

moxie_status moxie_set_allocator(const moxie_allocator *allocator, moxie_error *error)
{
    moxie_allocator read;
    if (allocator == NULL)
        return mox_set_allocator(NULL, error);
    MOX_TRY(mox_struct_read(allocator, &read, MOX_STRUCT(moxie_allocator), error));
    return mox_set_allocator(&read, error);
}

const char *moxie_dtype_name(moxie_dtype dtype)
{
    return mox_dtype_name(dtype);
}

moxie_dtype moxie_dtype_from_name(const char *name)
{
    return mox_dtype_from_name(name);
}

int32_t moxie_dtype_bits(moxie_dtype dtype)
{
    return mox_dtype_bits(dtype);
}

float moxie_decode(moxie_dtype dtype, uint32_t code)
{
    return mox_format_decode(dtype, code);
}

uint32_t moxie_encode(moxie_dtype dtype, float value)
{
    return mox_format_encode(dtype, value);
}

int moxie_act_is_gated(int32_t kind)
{
    return mox_activation_is_gated(kind);
}

const char *moxie_activation_at(int32_t i, moxie_activation *out)
{
    moxie_activation activation;
    const char *name = mox_activation_name_at(i, &activation);
    if (name && out)
        *out = activation;
    return name;
}

/* ---- routing ------------------------------------------------------------------------------------- */

moxie_status moxie_routing_by_name(const char *name, moxie_routing *routing, moxie_error *error)
{
    NEED(name);
    NEED(routing);
    return mox_routing_by_name(name, routing, error);
}

static bool is_numbering(int32_t numbering)
{
    return numbering >= MOXIE_NUMBERING_VLLM_OLD && numbering <= MOXIE_NUMBERING_FLASHINFER;
}

int32_t moxie_routing_number(const char *name, int32_t numbering)
{
    return is_numbering(numbering) ? mox_routing_number(name, (moxie_routing_numbering)numbering) : -1;
}

const char *moxie_routing_name_of(int32_t number, int32_t numbering)
{
    return is_numbering(numbering) ? mox_routing_name_of(number, (moxie_routing_numbering)numbering) : NULL;
}

int32_t moxie_routing_method_type(const char *scoring_func, int32_t top_k, int renormalize, int32_t num_expert_group,
                                  int has_e_score_bias, int32_t numbering)
{
    return is_numbering(numbering) ? mox_routing_method_type(scoring_func, top_k, renormalize != 0, num_expert_group,
                                                             has_e_score_bias != 0, (moxie_routing_numbering)numbering)
                                   : -1;
}

int32_t moxie_routing_number_of(const moxie_routing *routing, int32_t top_k, int32_t numbering)
{
    return routing != NULL && is_numbering(numbering)
               ? mox_routing_number_of(routing, top_k, (moxie_routing_numbering)numbering)
               : -1;
}

const char *moxie_routing_name_at(int32_t i)
{
    return mox_routing_name_at(i);
}

uint32_t moxie_pack_choice(int32_t id, float weight)
{
    return mox_pack_choice(id, weight);
}

void moxie_unpack_choice(uint32_t packed, int32_t *id, float *weight)
{
    int32_t i;
    float w;
    mox_unpack_choice(packed, &i, &w);
    if (id != NULL)
        *id = i;
    if (weight != NULL)
        *weight = w;
}

moxie_status moxie_expert_map(moxie_expert_map_kind kind, int32_t experts, int32_t ranks, int32_t rank, int32_t *local,
                              int32_t *count, moxie_error *error)
{
    NEED(local);
    NEED(count);
    return mox_expert_map(kind, experts, ranks, rank, local, count, error);
}

/* ---- configuration and layer --------------------------------------------------------------------- */

moxie_status moxie_layer_config_check(const moxie_layer_config *config, moxie_error *error)
{
    moxie_layer_config checked;
    NEED(config);
    return mox_config_read(config, &checked, error);
}

moxie_status moxie_executor_create(int32_t threads, moxie_executor **out, moxie_error *error)
{
    NEED(out);
    return mox_executor_create(threads, out, error);
}

void moxie_executor_destroy(moxie_executor *executor)
{
    mox_executor_destroy(executor);
}

moxie_status moxie_layer_create(const moxie_layer_config *config, const moxie_options *options, moxie_layer **out,
                                moxie_error *error)
{
    NEED(config);
    NEED(out);
    return mox_layer_create(config, options, NULL, out, error);
}

void moxie_layer_destroy(moxie_layer *layer)
{
    mox_layer_destroy(layer);
}

moxie_status moxie_layer_prepare(moxie_layer *layer, const moxie_weights *weights, const moxie_options *options,
                                 moxie_error *error)
{
    NEED(layer);
    NEED(weights);
    return mox_layer_prepare(layer, weights, options, error);
}

moxie_status moxie_layer_update_expert(moxie_layer *layer, int64_t expert, const moxie_expert *weights,
                                       moxie_error *error)
{
    NEED(layer);
    NEED(weights);
    return mox_layer_update_expert(layer, expert, weights, error);
}

moxie_status moxie_layer_verify(const moxie_layer *layer, moxie_error *error)
{
    NEED(layer);
    return mox_layer_verify(layer, error);
}

moxie_status moxie_layer_record(const moxie_layer *layer, int64_t expert, const void **data, uint64_t *bytes,
                                moxie_error *error)
{
    NEED(layer);
    NEED(data);
    NEED(bytes);
    return mox_layer_record(layer, expert, data, bytes, error);
}

uint64_t moxie_layer_bytes(const moxie_layer *layer)
{
    return layer != NULL ? mox_layer_bytes(layer) : 0;
}

/* ---- plan and run -------------------------------------------------------------------------------- */

moxie_status moxie_plan_create(const moxie_layer *layer, const moxie_options *options, moxie_plan **out,
                               moxie_error *error)
{
    NEED(layer);
    NEED(out);
    return mox_plan_create(layer, options, out, error);
}

moxie_status moxie_plan_explain(const moxie_layer_config *config, const moxie_options *options, moxie_plan **out,
                                moxie_error *error)
{
    NEED(config);
    NEED(out);
    return mox_plan_explain(config, NULL, false, options, out, error);
}

moxie_status moxie_plan_explain_weights(const moxie_layer_config *config, const moxie_weights *weights,
                                        const moxie_options *options, moxie_plan **out, moxie_error *error)
{
    NEED(config);
    NEED(weights);
    NEED(out);
    return mox_plan_explain_weights(config, weights, options, out, error);
}

void moxie_plan_destroy(moxie_plan *plan)
{
    mox_plan_destroy(plan);
}

uint64_t moxie_plan_workspace_bytes(const moxie_plan *plan)
{
    return plan != NULL ? plan->space.bytes : 0;
}

int32_t moxie_plan_step_count(const moxie_plan *plan)
{
    return plan != NULL ? plan->steps.count : 0;
}

const moxie_plan_step *moxie_plan_step_at(const moxie_plan *plan, int32_t index)
{
    return index >= 0 && index < moxie_plan_step_count(plan) ? &plan->steps.items[index] : NULL;
}

int moxie_plan_phase_at(const moxie_plan *plan, int32_t worker, int32_t index, moxie_plan_phase *out)
{
    if (plan == NULL || out == NULL || worker < 0 || worker >= plan->executor.workers || index < 0 ||
        index >= MOX_PHASES || mox_struct_check(out, MOX_STRUCT(moxie_plan_phase), NULL) != MOXIE_OK)
        return 0;
    const bool sends = worker == 0 && index == MOX_PHASE_EXCHANGE && plan->ranks != NULL;
    moxie_plan_phase known = MOXIE_PLAN_PHASE_INIT;
    known.name = mox_phase_name((mox_phase)index);
    known.seconds = 1e-9 * (double)plan->clocks[worker].ns[index];
    known.sent_bytes = sends ? plan->ranks->sent_bytes : 0;
    mox_struct_write(&known, out, MOX_STRUCT(moxie_plan_phase));
    return 1;
}

moxie_status moxie_plan_run(moxie_plan *plan, const moxie_run_args *args, moxie_error *error)
{
    NEED(plan);
    NEED(args);
    return mox_plan_run(plan, MOX_RUN_WHOLE, args, NULL, NULL, error);
}

moxie_status moxie_plan_route(moxie_plan *plan, const moxie_run_args *args, moxie_error *error)
{
    NEED(plan);
    NEED(args);
    return mox_plan_run(plan, MOX_RUN_ROUTE, args, NULL, NULL, error);
}

moxie_status moxie_plan_experts(moxie_plan *plan, const moxie_run_args *args, float *rows, moxie_error *error)
{
    NEED(plan);
    NEED(args);
    NEED(rows);
    return mox_plan_run(plan, MOX_RUN_EXPERTS, args, rows, NULL, error);
}

moxie_status moxie_plan_combine(moxie_plan *plan, const moxie_run_args *args, const float *rows, moxie_error *error)
{
    NEED(plan);
    NEED(args);
    NEED(rows);
    return mox_plan_run(plan, MOX_RUN_COMBINE, args, (float *)(uintptr_t)rows, NULL, error);
}

/* ---- checking ------------------------------------------------------------------------------------ */

moxie_status moxie_plan_check(moxie_plan *plan, const moxie_weights *weights, const moxie_run_args *args,
                              moxie_check_report **out, moxie_error *error)
{
    NEED(plan);
    NEED(weights);
    NEED(args);
    NEED(out);
    return mox_plan_check(plan, weights, args, out, error);
}

double moxie_check_report_worst(const moxie_check_report *report)
{
    return report != NULL ? mox_check_report_worst(report) : HUGE_VAL;
}

int32_t moxie_check_report_stage_count(const moxie_check_report *report)
{
    return report != NULL ? mox_check_report_stage_count(report) : 0;
}

const moxie_stage_report *moxie_check_report_stage_at(const moxie_check_report *report, int32_t index)
{
    return report != NULL ? mox_check_report_stage_at(report, index) : NULL;
}

void moxie_check_report_destroy(moxie_check_report *report)
{
    mox_check_report_destroy(report);
}

moxie_status moxie_weights_compare(const moxie_layer_config *config, const moxie_weights *a, const moxie_weights *b,
                                   moxie_weights_difference *out, moxie_error *error)
{
    NEED(config);
    NEED(a);
    NEED(b);
    NEED(out);
    MOX_TRY(mox_struct_check(out, MOX_STRUCT(moxie_weights_difference), error));
    moxie_weights_difference difference;
    MOX_TRY(mox_weights_compare(config, a, b, &difference, error));
    mox_struct_write(&difference, out, MOX_STRUCT(moxie_weights_difference));
    return MOXIE_OK;
}

/* ---- the machine --------------------------------------------------------------------------------- */

moxie_status moxie_machine_info(moxie_machine *out, moxie_error *error)
{
    NEED(out);
    MOX_TRY(mox_struct_check(out, MOX_STRUCT(moxie_machine), error));
    MOX_TRY(mox_cpu_check_cap(error));
    const mox_cpu_features *cpu = mox_cpu();
    moxie_machine machine = { .processors = cpu->processors,
                              .isa_found = mox_isa_name(cpu->best),
                              .isa_allowed = mox_isa_name(cpu->allowed),
                              .amx = cpu->amx };
    snprintf(machine.cpu, sizeof machine.cpu, "%s", cpu->brand);
    mox_cpu_feature_names(cpu, machine.features, sizeof machine.features);
    mox_struct_write(&machine, out, MOX_STRUCT(moxie_machine));
    return MOXIE_OK;
}

int moxie_kernel_at(int32_t index, moxie_kernel_info *out)
{
    const mox_kernel *kernel = mox_cpu_kernel_at(index);
    mox_rejection why;
    if (kernel == NULL)
        return 0;
    if (out == NULL)
        return 1;
    if (mox_struct_check(out, MOX_STRUCT(moxie_kernel_info), NULL) != MOXIE_OK)
        return 0;
    const moxie_kernel_info info = { .family = kernel->family,
                                     .name = kernel->name,
                                     .isa = mox_isa_name(kernel->isa),
                                     .layout = kernel->layout,
                                     .exactness = mox_exactness_name(kernel->exactness),
                                     .runnable = mox_kernel_admit(kernel, mox_cpu()->allowed, MOXIE_MODE_FAST, &why) };
    mox_struct_write(&info, out, MOX_STRUCT(moxie_kernel_info));
    return 1;
}

moxie_status moxie_measure_limits(const moxie_executor *executor, const char *isa_cap, moxie_limits *out,
                                  moxie_error *error)
{
    moxie_options asked = MOXIE_OPTIONS_INIT, read;
    moxie_limits limits;
    mox_isa cap;
    NEED(out);
    MOX_TRY(mox_struct_check(out, MOX_STRUCT(moxie_limits), error));
    asked.executor = executor;
    MOX_TRY(mox_options_read(&asked, &read, error));
    MOX_TRY(mox_isa_from_name(isa_cap, &cap, error));
    MOX_TRY(mox_limits_measure(read.executor, cap, &limits, error));
    mox_struct_write(&limits, out, MOX_STRUCT(moxie_limits));
    return MOXIE_OK;
}
