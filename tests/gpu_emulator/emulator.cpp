/* SPDX-License-Identifier: Apache-2.0
 *
 * emulator.cpp - threads of a GPU as coroutines (emulator.h).
 *
 *     a round    every thread of one block runs until it waits; then those of the next block of the cluster; then some
 *                of the copies in flight arrive
 *
 * Kernels name their shared memory by one symbol, so the blocks of a cluster share that address: it holds the memory of
 * the running block, and is swapped when another block runs.
 */
#include "emulator.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <utility>
#include <vector>

/* The symbol that kernels declare. */
extern uint8_t shared[];
alignas(1024) uint8_t shared[256 << 10];

namespace
{

enum { STACK = 96 << 10, IDLE_ROUNDS = 2000 };

struct warp_state {
    emulated_words words[2];
    unsigned arrived = 0, turn = 0;
};

struct meeting {
    unsigned arrived = 0, turn = 0;
};

struct block_state {
    std::vector<warp_state> warps;
    meeting barriers[16];
    std::vector<uint8_t> memory; /* while another block runs */
};

/* A copy by a thread (cp.async), in its group `group`. */
struct async_copy {
    void *to;
    const void *from;
    uint32_t bytes;
    unsigned group;
};

/* A thread starts on a separate stack. Then jumps leave and enter it, because switching contexts is a system call. */
struct thread_state {
    ucontext_t context;
    jmp_buf at;
    emulated_place place;
    bool begun, ended;
    std::vector<async_copy> words; /* copies in flight */
    unsigned groups;               /* of copies, that have ended */
};

struct copy_state {
    uint32_t to, bytes, barrier;
    const void *from;
};

struct {
    std::vector<thread_state> threads;
    std::vector<char> stacks;
    std::vector<block_state> blocks;
    std::vector<copy_state> copies;
    meeting cluster;
    jmp_buf scheduler;
    thread_state *running;
    unsigned live; /* the rank whose memory `shared` holds */
    uint64_t progress, random;
    void (*body)(const void *argument);
    const void *argument;
} the;

unsigned thread_number()
{
    return the.running->place.thread.x;
}

block_state &own_block()
{
    return the.blocks[the.running->place.rank];
}

void begin_thread()
{
    the.body(the.argument);
    the.running->ended = true;
    the.progress++;
    emulated_yield();
}

bool all_met(meeting *m, unsigned count)
{
    const unsigned turn = m->turn;
    the.progress++;
    if (++m->arrived == count) {
        m->arrived = 0;
        m->turn++;
    }
    while (m->turn == turn)
        emulated_yield();
    return true;
}

/* xorshift */
uint64_t next_random()
{
    the.random ^= the.random << 13;
    the.random ^= the.random >> 7;
    return the.random ^= the.random << 17;
}

void complete_if_done(uint64_t *word);

/* A random part of the copies in flight arrives. */
void some_copies_arrive()
{
    for (size_t i = 0; i < the.copies.size();) {
        if (next_random() % 3 == 0) {
            i++;
            continue;
        }
        const copy_state copy = the.copies[i];
        the.copies[i] = the.copies.back();
        the.copies.pop_back();
        memcpy(emulated_at(copy.to), copy.from, copy.bytes);
        uint64_t *word = static_cast<uint64_t *>(emulated_at(copy.barrier));
        *word -= static_cast<uint64_t>(copy.bytes) << 32;
        complete_if_done(word);
        the.progress++;
    }
}

void go_live(unsigned rank)
{
    if (rank == the.live)
        return;
    std::vector<uint8_t> &mine = the.blocks[rank].memory, &other = the.blocks[the.live].memory;
    memcpy(other.data(), shared, other.size());
    memcpy(shared, mine.data(), mine.size());
    the.live = rank;
}

/* Runs a thread until it yields. */
void enter(thread_state *t)
{
    if (_setjmp(the.scheduler) != 0)
        return;
    if (t->begun)
        _longjmp(t->at, 1);
    t->begun = true;
    setcontext(&t->context);
}

void run_cluster(unsigned threads)
{
    unsigned idle = 0, left = 1;
    while (left > 0) {
        const uint64_t before = the.progress;
        left = 0;
        for (thread_state &t : the.threads) {
            if (t.ended)
                continue;
            go_live(t.place.rank);
            the.running = &t;
            enter(&t);
            left += !t.ended;
        }
        some_copies_arrive();
        idle = the.progress == before ? idle + 1 : 0;
        if (idle > IDLE_ROUNDS) {
            fprintf(stderr, "emulator: %u of %u threads wait forever, the first in block %u\n", left, threads,
                    the.running->place.block.x);
            abort();
        }
    }
}

void begin_cluster(unsigned first, unsigned y, unsigned cluster, emulated_dim grid, emulated_dim block,
                   size_t shared_bytes)
{
    const unsigned threads = block.x;
    the.blocks.assign(cluster, block_state());
    the.threads.resize(cluster * threads);
    the.stacks.resize(static_cast<size_t>(cluster) * threads * STACK);
    memset(shared, 0xff, shared_bytes); /* NaN in every format */
    the.live = 0;
    for (unsigned rank = 0; rank < cluster; rank++) {
        the.blocks[rank].warps.resize((threads + 31) / 32);
        the.blocks[rank].memory.assign(shared_bytes, 0xff);
        for (unsigned i = 0; i < threads; i++) {
            thread_state &t = the.threads[rank * threads + i];
            getcontext(&t.context);
            t.context.uc_stack.ss_sp = &the.stacks[(static_cast<size_t>(rank) * threads + i) * STACK];
            t.context.uc_stack.ss_size = STACK;
            t.context.uc_link = nullptr;
            t.place = { emulated_dim(i), emulated_dim(first + rank, y), grid, rank };
            t.begun = t.ended = false;
            t.words.clear();
            t.groups = 0;
            makecontext(&t.context, begin_thread, 0);
        }
    }
}

/* A barrier word: bit 0 the phase, 15 bits of arrivals a phase, 16 of outstanding arrivals, 32 of outstanding bytes. */
void complete_if_done(uint64_t *word)
{
    if (*word >> 16 != 0)
        return;
    const uint64_t arrivals = *word >> 1 & 0x7fff;
    *word = (*word & 0xffff) ^ 1;
    *word |= arrivals << 16;
}

} // namespace

const emulated_place &emulated_here()
{
    return the.running->place;
}

void emulated_yield()
{
    if (_setjmp(the.running->at) == 0)
        _longjmp(the.scheduler, 1);
}

const emulated_words &emulated_exchange(uint64_t own)
{
    warp_state &w = own_block().warps[thread_number() / 32];
    const unsigned turn = w.turn;
    w.words[turn % 2].of[thread_number() % 32] = own;
    the.progress++;
    if (++w.arrived == 32) {
        w.arrived = 0;
        w.turn++;
    }
    while (w.turn == turn)
        emulated_yield();
    return w.words[turn % 2];
}

void emulated_sync(unsigned id, unsigned threads)
{
    (void)all_met(&own_block().barriers[id], threads);
}

void emulated_sync_block()
{
    emulated_sync(0, static_cast<unsigned>(the.threads.size() / the.blocks.size()));
}

void emulated_sync_cluster()
{
    (void)all_met(&the.cluster, static_cast<unsigned>(the.threads.size()));
}

uint32_t emulated_address(const void *in_shared)
{
    return static_cast<uint32_t>(static_cast<const uint8_t *>(in_shared) - shared) | the.live << EMULATED_RANK_SHIFT;
}

void *emulated_at(uint32_t address)
{
    const uint32_t rank = address >> EMULATED_RANK_SHIFT, in = address & ((1 << EMULATED_RANK_SHIFT) - 1);
    return rank == the.live ? shared + in : the.blocks[rank].memory.data() + in;
}

void emulated_copy_async(void *to, const void *from, uint32_t bytes)
{
    if (reinterpret_cast<uintptr_t>(to) % bytes != 0 || reinterpret_cast<uintptr_t>(from) % bytes != 0) {
        fprintf(stderr, "emulator: a copy of %u bytes from %p to %p, which must be multiples of that\n", bytes, from,
                to);
        abort();
    }
    the.running->words.push_back({ to, from, bytes, the.running->groups });
}

void emulated_copy_commit()
{
    the.running->groups++;
}

void emulated_copied(unsigned groups)
{
    std::vector<async_copy> &words = the.running->words;
    size_t done = 0;
    for (; done < words.size() && words[done].group + groups < the.running->groups; done++)
        memcpy(words[done].to, words[done].from, words[done].bytes);
    words.erase(words.begin(), words.begin() + static_cast<ptrdiff_t>(done));
}

void emulated_copy(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier)
{
    if (bytes % 16 != 0 || to % 16 != 0 || reinterpret_cast<uintptr_t>(from) % 16 != 0 || bytes == 0) {
        fprintf(stderr, "emulator: a bulk copy of %u bytes to %u, which must be multiples of 16\n", bytes, to);
        abort();
    }
    the.copies.push_back({ to, bytes, barrier, from });
}

void emulated_barrier_init(uint64_t *word, uint32_t arrivals)
{
    *word = static_cast<uint64_t>(arrivals) << 1 | static_cast<uint64_t>(arrivals) << 16;
}

void emulated_barrier_arrive(uint64_t *word, uint32_t expect)
{
    *word += static_cast<uint64_t>(expect) << 32;
    *word -= 1 << 16;
    complete_if_done(word);
    the.progress++;
}

bool emulated_barrier_passed(const uint64_t *word, uint32_t parity)
{
    return (*word & 1) != parity;
}

void emulated_run(void (*body)(const void *argument), const void *argument, emulated_dim grid, emulated_dim block,
                  unsigned cluster, size_t shared_bytes)
{
    the.body = body;
    the.argument = argument;
    the.random = 0x9e3779b97f4a7c15;
    for (unsigned y = 0; y < grid.y; y++)
        for (unsigned first = 0; first < grid.x; first += cluster) {
            begin_cluster(first, y, cluster, grid, block, shared_bytes);
            run_cluster(cluster * block.x);
        }
}
