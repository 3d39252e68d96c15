/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_target.c - which layouts the kernels of a target read. It asks the same code that chooses kernels for a layer,
 * on a usual machine of the target's kind; so a file for a GPU can be written anywhere.
 */
#include <string.h>

#include "base/cpu_features.h"
#include "layer/plan/select.h"
#include "store/expert_file.h"

#if defined(__aarch64__)
#define MOX_EXPERT_USUAL_CPU "neon"
#else
#define MOX_EXPERT_USUAL_CPU "avx2"
#endif

typedef enum target_how { AUTO, CPU, CUDA, ROWMAJOR } target_how;

typedef struct target {
    const char *name;
    target_how how;
    const char *device, *summary;
} target;

#define MOX_EXPERT_TARGET(name, how, device, summary) { name, how, device, summary },
static const target targets[] = {
#include "store/expert_targets.def"
};
#undef MOX_EXPERT_TARGET
enum { TARGETS = sizeof targets / sizeof targets[0] };

const char *mox_expert_target_at(int32_t i, const char **summary)
{
    if (i < 0 || i >= TARGETS)
        return NULL;
    *summary = targets[i].summary;
    return targets[i].name;
}

static const target *find(const char *name)
{
    for (int i = 0; i < TARGETS; i++)
        if (strcmp(targets[i].name, name) == 0)
            return &targets[i];
    return NULL;
}

/* The target of the first GPU, else the processor's. Cards before Ampere and scalar processors have portable kernels
 * only. */
static const target *of_this_machine(void)
{
    moxie_options options = MOXIE_OPTIONS_INIT;
    mox_device device;
    options.backend = MOXIE_BACKEND_CUDA;
    if (mox_device_find(&options, false, &device, NULL) != MOXIE_OK)
        return find(mox_cpu()->allowed == MOX_ISA_SCALAR ? "moxie-rowmajor" : "moxie-cpu");
    if (!(device.features.flags & MOX_CUDA_MMA_BF16))
        return find("moxie-rowmajor");
    return find(device.features.flags & MOX_CUDA_WGMMA ? "moxie-sm90" : "moxie-sm80");
}

static moxie_status select_layouts(const target *t, const moxie_layer_config *config, int32_t mode,
                                   const mox_layout *layouts[MOX_EXPERT_KINDS], moxie_error *error)
{
    moxie_options options = MOXIE_OPTIONS_INIT, read;
    mox_kernels kernels;
    mox_steps steps = { 0 };
    mox_device device;
    options.mode = mode;
    options.backend = t->how == CUDA ? MOXIE_BACKEND_CUDA : MOXIE_BACKEND_CPU;
    options.device = t->how == CUDA ? t->device : NULL;
    MOX_TRY(mox_options_read(&options, &read, error));
    MOX_TRY(mox_device_find(&read, true, &device, error));
    const moxie_status status =
        mox_select(config, &read, &device, MOX_TP_WHOLE, MOX_TP_WHOLE, NULL, &kernels, &steps, error);
    mox_steps_free(&steps);
    MOX_TRY(status);
    for (int k = 0; k < MOX_EXPERT_KINDS; k++)
        layouts[k] = kernels.experts[k].layout;
    return MOXIE_OK;
}

/* Files hold rows, which are exact in both modes. Portable records are cut as for the cpu back end. */
mox_expert_shapes mox_expert_shapes_of(const moxie_layer_config *config, const char *name)
{
    const target *t = find(name);
    const bool on_device = t != NULL && t->how == CUDA;
    mox_expert_shapes s = { .cut = { mox_tp_cut_of(config, MOXIE_MODE_EXACT, NULL),
                                     mox_tp_shared_cut(config, true, on_device, NULL) } };
    s.whole[MOX_ROUTED] = mox_config_routed_shape(config);
    s.whole[MOX_SHARED_EXPERT] = mox_config_shared_shape(config);
    s.mine[MOX_ROUTED] = mox_tp_shape(config, s.cut[MOX_ROUTED]);
    s.mine[MOX_SHARED_EXPERT] = mox_tp_shared_shape(config, s.cut[MOX_SHARED_EXPERT]);
    return s;
}

moxie_status mox_expert_choose(const char *name, const moxie_layer_config *config, int32_t mode, const char **chosen,
                               const mox_layout *layouts[MOX_EXPERT_KINDS], moxie_error *error)
{
    const target *t = find(name != NULL ? name : "moxie-auto");
    MOX_FAIL_IF(t == NULL, MOXIE_ERR_ARGUMENT, error,
                "there is no target \"%.40s\": moxie-auto, moxie-cpu, moxie-sm90, moxie-sm80 or moxie-rowmajor", name);
    if (t->how == AUTO)
        t = of_this_machine();
    *chosen = t->name;
    if (t->how == ROWMAJOR) {
        layouts[MOX_ROUTED] = &mox_layout_rowmajor;
        layouts[MOX_SHARED_EXPERT] = mox_config_computes_shared(config, false) ? &mox_layout_rowmajor : NULL;
        return MOXIE_OK;
    }
    mox_cpu_assume(t->how == CPU ? mox_cpu_usual(t->device) : NULL);
    const moxie_status status = select_layouts(t, config, mode, layouts, error);
    mox_cpu_assume(NULL);
    return status;
}
