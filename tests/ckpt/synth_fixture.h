/* SPDX-License-Identifier: Apache-2.0
 *
 * synth_fixture.h - a temporary directory and small synthetic checkpoints in it, for the tests of the generator.
 */
#ifndef SYNTH_FIXTURE_H
#define SYNTH_FIXTURE_H

#include "test_support.h"

#include "ckpt/safetensors/tensors.h"
#include "ckpt/synth/synth.h"
#include "ckpt/synth/synth_config.h"

typedef struct fixture {
    char *dir;       /* temporary; checkpoints are made in it */
    char path[600];  /* of the checkpoint */
    char path2[600]; /* of another */
    moxie_error error;
} fixture;

static inline int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    f->dir = test_tmpdir();
    snprintf(f->path, sizeof f->path, "%s/a", f->dir);
    snprintf(f->path2, sizeof f->path2, "%s/b", f->dir);
    *state = f;
    return 0;
}

static inline int tear_down(void **state)
{
    fixture *f = *state;
    test_rmdir(f->dir);
    free(f);
    return 0;
}

static inline void remove_dir(const char *dir)
{
    char command[700];
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    assert_int_equal(system(command), 0);
}

static inline moxie_synth_options small(const char *format, int64_t layers, int64_t experts)
{
    moxie_synth_options o = MOXIE_SYNTH_OPTIONS_INIT;
    o.format = format;
    o.layers = layers;
    o.experts = experts;
    o.hidden = 128;
    o.intermediate = 192; /* a block and a half */
    o.seed = 7;
    return o;
}

static inline void write_threads(fixture *f, const char *preset, const char *dir, const moxie_synth_options *options,
                                 int32_t threads)
{
    moxie_executor *executor;
    assert_ok(mox_executor_create(threads, &executor, &f->error), &f->error);
    assert_ok(mox_synth_write(preset, dir, options, executor, &f->error), &f->error);
    mox_executor_destroy(executor);
}

/* Eight groups need two experts each. */
static inline int64_t fewest_experts(const mox_preset *p)
{
    return p->dims.n_group > 1 ? 2 * p->dims.n_group : p->dims.top_k;
}

static inline const mox_file_tensor *find(const mox_tensor_set *set, const char *name)
{
    const mox_file_tensor *t = mox_tensor_set_find(set, name);
    if (!t)
        fail_msg("%s is missing", name);
    return t;
}

#endif
