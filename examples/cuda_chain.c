/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_chain.c - the MoE layers of a checkpoint on a GPU as one graph, which is launched for one batch after another:
 *
 *     cuda_chain DIR
 *
 *     hidden -> layer 0 -> layer 1 -> ... -> output        one graph; every launch routes its tokens anew
 *
 * A launch takes the host a microsecond or two, however many layers the graph holds. Between the layers a model has its
 * attention; here each layer reads what the layer before wrote. Exits with 77 where there is no GPU.
 *
 * moxie takes device memory from its caller. This program has no other use for CUDA's headers, so it calls the driver's
 * three functions by name; an engine passes the memory that it has.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <moxie/moxie_ckpt.h>
#include <moxie/moxie_cuda.h>

enum { TOKENS = 4, MAX_LAYERS = 64, BATCHES = 3, ALIGN = 256 };

typedef struct chain {
    moxie_layer *layers[MAX_LAYERS];
    moxie_plan *plans[MAX_LAYERS];
    moxie_run_args runs[MAX_LAYERS];
    const moxie_run_args *args[MAX_LAYERS];
    int32_t count;
    size_t batch_bytes;
    uint64_t workspace_bytes; /* of the layer that needs most: layers run one after the other */
} chain;

/* ---- the driver ------------------------------------------------------------------------------------------------- */

static int (*allocate)(unsigned long long *memory, size_t bytes);
static int (*to_device)(unsigned long long to, const void *from, size_t bytes);
static int (*from_device)(void *to, unsigned long long from, size_t bytes);

static int find(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);
    memcpy(function, &found, sizeof found);
    return found != NULL;
}

static int open_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    return library != NULL && find(library, "cuMemAlloc_v2", &allocate) &&
           find(library, "cuMemcpyHtoD_v2", &to_device) && find(library, "cuMemcpyDtoH_v2", &from_device);
}

static void *device_memory(size_t bytes)
{
    unsigned long long memory = 0;
    if (allocate(&memory, bytes) != 0) {
        fprintf(stderr, "no %zu bytes of device memory\n", bytes);
        exit(1);
    }
    return (void *)(uintptr_t)memory; /* given back when the program ends */
}

/* ---- the chain -------------------------------------------------------------------------------------------------- */

static moxie_status add_layer(chain *c, const moxie_model *model, int32_t index, moxie_error *error)
{
    moxie_model_layer_info info = MOXIE_MODEL_LAYER_INFO_INIT;
    moxie_model_layer *loaded = NULL;
    moxie_options options = MOXIE_OPTIONS_INIT;
    options.backend = MOXIE_BACKEND_CUDA;
    options.max_tokens = TOKENS;
    moxie_status status = moxie_model_describe_layer(model, index, &info, error);
    if (status == MOXIE_OK)
        status = moxie_model_load_layer(model, info.layer, &loaded, error);
    if (status != MOXIE_OK)
        return status;
    const moxie_layer_config *config = moxie_model_layer_config(loaded);
    c->batch_bytes = TOKENS * (size_t)config->hidden * (size_t)moxie_dtype_bits(config->dtype) / 8;
    status = moxie_layer_create(config, &options, &c->layers[index], error);
    if (status == MOXIE_OK)
        status = moxie_layer_prepare(c->layers[index], moxie_model_layer_weights(loaded), NULL, error);
    if (status == MOXIE_OK)
        status = moxie_plan_create(c->layers[index], &options, &c->plans[index], error);
    moxie_model_layer_free(loaded); /* the experts are on the GPU */
    if (status == MOXIE_OK && moxie_plan_workspace_bytes(c->plans[index]) > c->workspace_bytes)
        c->workspace_bytes = moxie_plan_workspace_bytes(c->plans[index]);
    return status;
}

/* Gives every run its buffers. Returns the first layer's input; the last layer's output is in the last run. */
static void *connect(chain *c)
{
    void *const input = device_memory(c->batch_bytes), *workspace = device_memory(c->workspace_bytes + ALIGN);
    void *hidden = input;
    for (int32_t i = 0; i < c->count; i++) {
        c->runs[i] = (moxie_run_args)MOXIE_RUN_ARGS_INIT;
        c->runs[i].tokens = TOKENS;
        c->runs[i].hidden = hidden;
        c->runs[i].output = hidden = device_memory(c->batch_bytes);
        c->runs[i].workspace = workspace;
        c->runs[i].workspace_bytes = moxie_plan_workspace_bytes(c->plans[i]);
        c->args[i] = &c->runs[i];
    }
    return input;
}

/* Hidden states of 16 bits and either sign, other ones for every batch. */
static void fill(uint16_t *hidden, size_t count, uint32_t state)
{
    for (size_t i = 0; i < count; i++) { /* 0.5 to 1 as bf16, 1.75 to 1.87 as f16 */
        state = state * 1664525u + 1013904223u;
        hidden[i] = (uint16_t)((state >> 16 & 0x8000) | 0x3f00 | (state >> 9 & 0x7f));
    }
}

static int run_batches(chain *c, void *graph, void *input, moxie_error *error)
{
    uint16_t *batch = malloc(c->batch_bytes);
    if (batch == NULL)
        return 1;
    for (uint32_t b = 0; b < BATCHES; b++) {
        unsigned sum = 0;
        fill(batch, c->batch_bytes / 2, b + 1);
        if (to_device((uintptr_t)input, batch, c->batch_bytes) != 0 ||
            moxie_cuda_graph_launch(graph, NULL, error) != MOXIE_OK ||
            from_device(batch, (uintptr_t)c->runs[c->count - 1].output, c->batch_bytes) != 0) /* waits for the graph */
            return free(batch), 1;
        for (size_t i = 0; i < c->batch_bytes / 2; i++)
            sum = sum * 31 + batch[i];
        printf("batch %u through %d layers: outputs %04x %04x %04x ..., all together %08x\n", (unsigned)b,
               (int)c->count, batch[0], batch[1], batch[2], sum);
    }
    free(batch);
    return 0;
}

int main(int argc, char **argv)
{
    static chain c;
    moxie_error error = { 0 };
    moxie_model *model = NULL;
    moxie_cuda_info info = MOXIE_CUDA_INFO_INIT;
    moxie_model_info described = MOXIE_MODEL_INFO_INIT;
    void *graph = NULL;
    if (argc != 2)
        return fprintf(stderr, "usage: %s MODEL_DIRECTORY\n", argv[0]), 2;
    if (moxie_cuda_get_info(&info, &error) != MOXIE_OK || info.devices == 0 || !open_driver())
        return printf("skipped: %s\n", info.missing[0] ? info.missing : "no libcuda.so.1"), 77;
    moxie_status status = moxie_model_open(argv[1], NULL, &model, &error);
    if (status == MOXIE_OK)
        status = moxie_model_get_info(model, &described, &error);
    for (; status == MOXIE_OK && c.count < described.n_layers && c.count < MAX_LAYERS; c.count++)
        status = add_layer(&c, model, c.count, &error);
    void *const input = status == MOXIE_OK ? connect(&c) : NULL;
    if (status == MOXIE_OK)
        status = moxie_cuda_plan_capture(c.plans, c.args, c.count, &graph, &error);
    const int failed = status != MOXIE_OK || run_batches(&c, graph, input, &error) != 0;
    if (failed)
        fprintf(stderr, "%s%s%s\n", error.file, error.file[0] ? ": " : "", error.text);
    moxie_cuda_graph_destroy(graph);
    for (int32_t i = 0; i < MAX_LAYERS; i++) {
        moxie_plan_destroy(c.plans[i]);
        moxie_layer_destroy(c.layers[i]);
    }
    moxie_model_close(model);
    return failed;
}
