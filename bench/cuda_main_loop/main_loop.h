/* SPDX-License-Identifier: Apache-2.0
 *
 * main_loop.h - the Hopper main loop by itself: what the check and the bench share.
 *
 *     main_loop_check.c   small and odd shapes against double precision, and byte for byte against other cuts
 *     main_loop_bench.c   whole layers of real size against floors measured in the same run
 *     main_loop_kernels.cu  random weights on the device, floors, and the steps around the two products
 */
#ifndef MAIN_LOOP_H
#define MAIN_LOOP_H

#include <stdint.h>

#include <stdbool.h>

#include "cuda/expert_gemm/sm90_args.h"

#ifdef __cplusplus
extern "C" {
#endif

int main_loop_check(int argc, char **argv);
int main_loop_bench(int argc, char **argv);

/* ---- a layer on the device (main_loop_layer.c): exits with a message when a CUDA call fails ------------------- */

void *loop_alloc(uint64_t bytes);
void loop_free(void *device);
void loop_up(void *device, const void *host, uint64_t bytes);
void loop_down(void *host, const void *device, uint64_t bytes);
void loop_poison(void *device, uint64_t bytes);
void loop_ok(int error, const char *what);

typedef struct loop_layer {
    mox_sm90_element element;
    int64_t hidden, intermediate;
    bool gated;
    int slots, top_k;
    int64_t max_tokens, max_pairs;
    int blocks;
    mox_sm90_args gemm[2]; /* weights filled in by the caller, all else here */
    bool tiled[2];         /* tokens of the first product, and of the second, as tiled operands */
    uint8_t *tiles;        /* of the first */
    float *tile_scales;
    void *memory[24]; /* what is to be freed */
    int memories;
    /* one or more routings; [routings] each */
    int routings;
    int64_t *offsets, *pair_token; /* [slots + 1], [pairs] */
    int32_t *place;                /* [T * K] pair of (token, slot) */
    float *weight;                 /* [T * K] */
    /* operands and results */
    uint8_t *hidden16, *codes; /* [T, H] 16-bit; [T, H] codes with scales */
    float *scales;
    float *rows; /* [pairs, H] */
    void *out;   /* [T, H] bf16 */
    mox_sm90_list *list;
    uint32_t *words;
    int64_t flags; /* words before the counts */
} loop_layer;

typedef struct loop_sizes {
    int64_t hidden, intermediate, max_tokens;
    int slots, top_k, routings, blocks;
    mox_sm90_element element;
    bool gated, bias;
} loop_sizes;

/* Scratch and operands, none of them filled; gemm[] has everything but where the weights lie. */
void loop_layer_open(loop_layer *layer, const loop_sizes *sizes);
void loop_layer_close(loop_layer *layer);
/* Routing r: ids [tokens, K], each below slots or negative, to offsets, pair_token and place. */
void loop_layer_route(loop_layer *layer, int r, const int32_t *ids, int64_t tokens);

/* Steps of one run, as bits. */
enum {
    LOOP_LIST = 1,
    LOOP_QUANTIZE = 2,
    LOOP_GATHER = 4, /* when tiled[0] */
    LOOP_FIRST = 8,
    LOOP_SECOND = 16,
    LOOP_COMBINE = 32,
    LOOP_ALL = 63
};
void loop_layer_run(loop_layer *layer, int r, int steps, int32_t most, int64_t tokens, void *stream);
/* Whether so many tokens are worth a tiled operand of the first product. */
bool loop_is_tiled(const loop_layer *layer, int64_t tokens);
/* Columns of token tiles for so many tokens: the rule of the plan. */
int32_t loop_most(const loop_layer *layer, int64_t tokens);

/* ---- kernels of the harness; each returns a cudaError_t ------------------------------------------------------ */

/* Normal numbers of standard deviation `size` as bf16, or as e4m3. */
int loop_fill_bf16(void *to, uint64_t count, float size, uint64_t seed);
/* One product's tiles of e4m3 chunks: normal codes, behind `code_bytes` of a tile scales about `size`. */
int loop_fill_e4m3(void *to, uint64_t bytes, uint64_t tile_bytes, uint64_t code_bytes, float size, uint64_t seed);

/* hidden [rows, cols] bf16 -> codes [rows, cols], scales [rows, cols / 128] */
int loop_quantize(const void *hidden, int64_t rows, int64_t cols, uint8_t *codes, float *scales, int dependent,
                  void *stream);
/* out [T, cols] bf16 = sum over j < K of weight[t, j] * rows[place[t, j]] */
int loop_combine(const float *rows, const int32_t *place, const float *weight, int64_t tokens, int top_k, int64_t cols,
                 void *out, int dependent, void *stream);

/* Floors: reads `bytes` once by bulk copies; multiplies in shared memory, and gives the operations done. */
int loop_read(const void *from, uint64_t bytes, void *sink, int blocks, void *stream);
int loop_multiply(mox_sm90_element element, int rounds, void *sink, int blocks, double *operations, void *stream);

#ifdef __cplusplus
}
#endif

#endif
