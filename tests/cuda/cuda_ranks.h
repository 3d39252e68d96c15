/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_ranks.h - the layers, ranks and comms of test_cuda_ranks.c.
 */
#ifndef CUDA_RANKS_H
#define CUDA_RANKS_H

#include "device_support.h"
#include "test_adapter_set.h"
#include "test_ranks.h"

enum { MAX_DEVICES = 8, KINDS = 5 };

extern int32_t devices, nccl_deadline_ms;
extern const char *const device_names[MAX_DEVICES]; /* as options.device */

/* A random layer of a kind below KINDS. The last kind may quantize activations in any way. */
void make_layer(test_layer *layer, uint64_t seed, int kind);
/* Gives tokens adapters, which all ranks get; `set` is freed after the layer's last run. */
void adapt(test_layer *layer, test_ranks_spec *spec, uint64_t seed, test_adapter_set *set);
/* The output of one device alone, with these adapters unless that is NULL; the caller frees it. */
char *alone(test_layer *layer, const test_adapter_set *adapters);

/* Gives tokens ids and weights, so that both back ends have the same. */
void fix_routing(test_layer *layer);

/* For test_ranks_spec.change: rank r on device r modulo their number. */
void on_devices(int32_t rank, moxie_layer_config *config, moxie_options *options, moxie_run_args *args);
/* For test_ranks_spec.over. */
moxie_comm *over_nccl(moxie_comm *local, moxie_error *error);
bool has_nccl(void);
/* `tp`, or 1 where a rank of so many would have no row of W13, which kernels for tensor cores refuse. */
int32_t groups_of(const test_layer *layer, int32_t tp);
/* Ranks on devices: placement, layout, groups, capacity by the seed. `map` must live as long. */
test_ranks_spec any_spec(test_layer *layer, uint64_t seed, int32_t ranks, moxie_slot_map *map);
/* Runs all ranks; a failure fails the test. */
void run_ranks(const test_layer *layer, test_ranks_spec *spec, char *output);

/* ---- cuda_ranks_graph.c ---- */
void graphs_of_fixed_capacity(void **state);
void a_capture_that_fails(void **state);
void a_graph_that_one_rank_launches(void **state);

/* ---- cuda_ranks_lost.c ---- */
void a_lost_rank_leaves_the_rest(void **state);
void a_lost_rank_leaves_a_mixed_comm(void **state);
void ranks_over_nccl_go_on_alone(void **state);
void those_that_are_left_start_anew(void **state);

#endif
