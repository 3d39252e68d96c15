/* SPDX-License-Identifier: Apache-2.0
 *
 * emulator.h - runs the sm90 and sm80 kernels of expert_gemm on the host, thread by thread, without a GPU or a toolkit.
 * It compiles the kernels' own sources; these headers stand in for the toolkit's and for src/cuda/ptx:
 *
 *     cuda_runtime.h     the keywords and built-in functions of CUDA C++
 *     cuda/ptx/          the wrappers of instructions, in plain C++
 *     emulator.cpp       threads as coroutines, block after block; a cluster's blocks side by side
 *
 * The emulator checks results, addresses and the order of steps, and finds deadlocks. Bulk copies arrive late and out
 * of order; memory that was never written holds NaN. It does not find missing fences, nor an operand that is
 * overwritten while a warpgroup MMA still reads it, because its MMAs complete when they are issued. It says nothing
 * about speed.
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

/* The position of the running thread. */
struct emulated_place {
    emulated_dim thread, block, grid;
    unsigned rank; /* of its block in the cluster */
};
const emulated_place &emulated_here();

/* Lets other threads run. Every wait is a loop around this. */
void emulated_yield();

/* Every lane of the warp passes a word and gets the words of all lanes: of[lane]. */
struct emulated_words {
    uint64_t of[32];
};
const emulated_words &emulated_exchange(uint64_t own);

/* `threads` threads of the block wait for each other at barrier `id`; all threads of the block; of the cluster. */
void emulated_sync(unsigned id, unsigned threads);
void emulated_sync_block();
void emulated_sync_cluster();

/* Addresses of shared memory count from the block's beginning, with the block's rank in the upper bits. */
enum { EMULATED_RANK_SHIFT = 20 };
uint32_t emulated_address(const void *shared);
void *emulated_at(uint32_t address);

/* Enqueues a bulk copy and the barrier that it signals. */
void emulated_copy(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier);

/* Enqueues a copy of 4 or 16 bytes of the running thread; ends a group of its copies; completes its copies but those of
 * the last `groups` groups. */
void emulated_copy_async(void *to, const void *from, uint32_t bytes);
void emulated_copy_commit();
void emulated_copied(unsigned groups);

/* The word of an mbarrier. */
void emulated_barrier_init(uint64_t *word, uint32_t arrivals);
void emulated_barrier_arrive(uint64_t *word, uint32_t expect);
bool emulated_barrier_passed(const uint64_t *word, uint32_t parity);

/* Calls body(argument) for every thread of the grid; returns when all have returned. */
void emulated_run(void (*body)(const void *argument), const void *argument, emulated_dim grid, emulated_dim block,
                  unsigned cluster, size_t shared_bytes);

#endif
