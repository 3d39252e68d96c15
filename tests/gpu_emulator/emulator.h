/* SPDX-License-Identifier: Apache-2.0
 *
 * emulator.h - runs the kernels of expert_gemm for Hopper on the host, thread by thread, without a GPU or a CUDA
 * toolkit: their own sources, with these headers in front of the toolkit's and of src/cuda/ptx.
 *
 *     cuda_runtime.h     the words of CUDA C++, and what the compiler knows by itself
 *     cuda/ptx/          the wrappers of instructions, in plain C++
 *     emulator.cpp       threads as coroutines, block after block; a cluster's blocks side by side
 *
 * What this shows: what is computed from where, in which order, and that nobody waits forever. Bulk copies arrive late
 * and out of order; memory that nothing was written to holds NaN. What it does not: an operand that is overwritten
 * while a warpgroup MMA still reads it (MMAs are done when they are begun), fences that are missing, and time.
 */
#ifndef MOX_TEST_EMULATOR_H
#define MOX_TEST_EMULATOR_H

#include <stddef.h>
#include <stdint.h>

struct emulated_dim {
    unsigned x, y, z;
    emulated_dim(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};

/* Where the running thread is. */
struct emulated_place {
    emulated_dim thread, block, grid;
    unsigned rank; /* of its block in the cluster */
};
const emulated_place &emulated_here();

/* Lets others run. Whoever waits does so in a loop around this. */
void emulated_yield();

/* Every lane of the warp gives a word; then word `lane` is what that lane gave. */
struct emulated_words {
    uint64_t of[32];
};
const emulated_words &emulated_exchange(uint64_t own);

/* `threads` threads of the block meet at barrier `id`; all threads of the block; of the cluster. */
void emulated_sync(unsigned id, unsigned threads);
void emulated_sync_block();
void emulated_sync_cluster();

/* Shared memory: an address counts from the block's begin, with the rank of its block above. */
enum { EMULATED_RANK_SHIFT = 20 };
uint32_t emulated_address(const void *shared);
void *emulated_at(uint32_t address);

/* A bulk copy that has been asked for, and the barrier that it tells. */
void emulated_copy(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier);

/* A word that the running thread copies by the time that it waits for those. */
void emulated_copy_word(void *to, const void *from);
void emulated_copied_words();

/* A barrier's word. */
void emulated_barrier_init(uint64_t *word, uint32_t arrivals);
void emulated_barrier_arrive(uint64_t *word, uint32_t expect);
bool emulated_barrier_passed(const uint64_t *word, uint32_t parity);

/* kernel(argument) for every thread of the grid; returns when all have returned. */
void emulated_run(void (*body)(const void *argument), const void *argument, emulated_dim grid, emulated_dim block,
                  unsigned cluster, size_t shared_bytes);

#endif
