/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_fill.c - how fast the records of an expert file come to a GPU, beside the rate of copies from pinned memory.
 *
 * The bench's own copies of the layer count. If there are few of them, more are opened one after the other, while the
 * first keeps the GPU's ring of pinned memory: they are filled as the later layers of a model are.
 */
#include "bench.h"

#include <stdlib.h>

enum { FILLS = 7 };

typedef struct fill_list {
    moxie_cuda_fill of[BENCH_MAX_COPIES];
    int count;
} fill_list;

static bool add(fill_list *list, const moxie_layer *layer)
{
    moxie_cuda_fill fill = MOXIE_CUDA_FILL_INIT;
    if (!moxie_cuda_layer_fill(layer, &fill))
        return false;
    list->of[list->count++] = fill;
    return true;
}

/* A GPU without memory for one more copy has those that are there. */
static moxie_status add_more(const bench_model *model, const moxie_options *options, fill_list *list,
                             moxie_error *error)
{
    while (list->count < FILLS) {
        moxie_layer *layer = NULL;
        const moxie_status status = moxie_layer_open_file(model->file, &model->config, options, &layer, error);
        if (status != MOXIE_OK)
            return status == MOXIE_ERR_MEMORY ? MOXIE_OK : status;
        add(list, layer);
        moxie_layer_destroy(layer);
    }
    return MOXIE_OK;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, by_value);
    return values[count / 2];
}

static void sum_up(const fill_list *list, bench_fill *out)
{
    double fill[BENCH_MAX_COPIES], allocate[BENCH_MAX_COPIES];
    *out = (bench_fill) { .fills = list->count,
                          .threads = list->of[0].workers,
                          .bytes = list->of[0].bytes,
                          .pinned_bytes = list->of[0].pinned_bytes };
    for (int i = 0; i < list->count; i++) {
        fill[i] = list->of[i].fill_seconds;
        allocate[i] = list->of[i].allocate_seconds;
        out->pin_seconds += list->of[i].pin_seconds;
    }
    out->first_seconds = fill[0];
    out->seconds = median(fill, list->count);
    out->allocate_seconds = median(allocate, list->count);
}

moxie_status bench_fill_measure(const bench_model *model, const moxie_options *options, bench_fill *out,
                                moxie_error *error)
{
    fill_list list = { .count = 0 };
    if (!model->file)
        return MOXIE_OK;
    for (int32_t c = 0; c < model->copies; c++)
        if (!add(&list, model->copy[c].layer))
            return MOXIE_OK;
    moxie_status status = add_more(model, options, &list, error);
    if (status != MOXIE_OK)
        return status;
    sum_up(&list, out);
    return moxie_cuda_measure_copy(options->device, &out->copy_gb_s, error);
}

static double rate(const bench_fill *f)
{
    return f->seconds > 0 ? (double)f->bytes / f->seconds * 1e-9 : 0;
}

static double share(const bench_fill *f)
{
    return f->copy_gb_s > 0 ? rate(f) / f->copy_gb_s : 0;
}

void bench_fill_print(const bench_fill *f)
{
    char bytes[16], pinned[16], ms[32], first[32], allocate[32], pin[32];
    if (f->fills == 0)
        return;
    printf("fill    %s in %s ms by %d thread%s: %.1f GB/s, %.0f %% of copies from pinned memory (%.1f GB/s); the first "
           "of %d took %s ms\n",
           cli_bytes(bytes, f->bytes), bench_ms(f->seconds, ms), f->threads, f->threads == 1 ? "" : "s", rate(f),
           100 * share(f), f->copy_gb_s, f->fills, bench_ms(f->first_seconds, first));
    printf("        before it %s ms for memory of the GPU; once, %s ms for %s of pinned memory\n",
           bench_ms(f->allocate_seconds, allocate), bench_ms(f->pin_seconds, pin), cli_bytes(pinned, f->pinned_bytes));
}

json_t *bench_fill_json(const bench_fill *f)
{
    if (f->fills == 0)
        return json_null();
    return cli_pack("{s:I, s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I}", "bytes", (json_int_t)f->bytes, "fills",
                    f->fills, "threads", f->threads, "fill_ms", f->seconds * 1e3, "first_fill_ms",
                    f->first_seconds * 1e3, "fill_gb_s", rate(f), "copy_gb_s", f->copy_gb_s, "share", share(f),
                    "allocate_ms", f->allocate_seconds * 1e3, "pin_ms", f->pin_seconds * 1e3, "pinned_bytes",
                    (json_int_t)f->pinned_bytes);
}
