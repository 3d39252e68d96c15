/* SPDX-License-Identifier: Apache-2.0
 *
 * pattern_match.c - runs the programs that pattern_compile.c makes: all alternatives at once, one character at a time.
 *
 *     threads   the instructions that may come next, each at most once
 *     step      every thread that accepts the character moves on; SPLIT, JUMP, assertions and look-ahead take no
 *               character and are followed when a thread is added
 *
 * Work per character is at most the length of the program, times that of a look-ahead. Source: K. Thompson's
 * construction (1968).
 */
#include <ctype.h>
#include <string.h>

#include "ckpt/formats/pattern_program.h"

/* Threads of one position in the name. */
typedef struct thread_list {
    uint16_t pc[MOX_PATTERN_LIMIT];
    int32_t count;
} thread_list;

/* One run of (a part of) a program. */
typedef struct pattern_run {
    const mox_pattern *pattern;
    const char *start; /* of the whole name */
    bool whole;
    int32_t depth; /* of look-aheads */
} pattern_run;

static bool run_from(const pattern_run *run, int32_t pc, const char *at);

static bool is_word(int c)
{
    return isalnum(c) || c == '_';
}

static bool at_word_edge(const pattern_run *run, const char *at)
{
    const bool before = at > run->start && is_word((unsigned char)at[-1]);
    return before != (*at != 0 && is_word((unsigned char)*at));
}

/* The result of an instruction that takes no character. */
static bool holds(const pattern_run *run, const mox_instruction *op, int32_t pc, const char *at)
{
    switch (op->op) {
    case MOX_OP_BEGIN: return at == run->start;
    case MOX_OP_END: return *at == 0;
    case MOX_OP_WORD_EDGE: return at_word_edge(run, at) != op->negate;
    default: {
        pattern_run inner = *run;
        inner.whole = false;
        inner.depth++;
        return run_from(&inner, pc + 1, at) != op->negate;
    }
    }
}

/* Adds `first` and all that follows from it without a character. True when the program's end is among them. */
static bool add_threads(const pattern_run *run, thread_list *list, uint8_t *seen, int32_t first, const char *at)
{
    uint16_t stack[2 * MOX_PATTERN_LIMIT];
    int32_t depth = 0;
    bool ended = false;
    stack[depth++] = (uint16_t)first;
    while (depth > 0) {
        const int32_t pc = stack[--depth];
        const mox_instruction *op = &run->pattern->program[pc];
        if (seen[pc])
            continue;
        seen[pc] = 1;
        switch (op->op) {
        case MOX_OP_MATCH: ended = ended || !run->whole || *at == 0; break;
        case MOX_OP_SPLIT: stack[depth++] = (uint16_t)(pc + op->other); /* falls through */
        case MOX_OP_JUMP: stack[depth++] = (uint16_t)(pc + op->next); break;
        case MOX_OP_BEGIN:
        case MOX_OP_END:
        case MOX_OP_WORD_EDGE:
        case MOX_OP_LOOK:
            if (holds(run, op, pc, at))
                stack[depth++] = (uint16_t)(pc + op->next);
            break;
        default: list->pc[list->count++] = (uint16_t)pc;
        }
    }
    return ended;
}

static bool accepts(const mox_pattern *pattern, const mox_instruction *op, unsigned char c)
{
    if (op->op == MOX_OP_ANY)
        return c != '\n';
    if (op->op == MOX_OP_CHAR)
        return op->c == c;
    return (pattern->sets[op->set].bits[c / 8] >> c % 8 & 1) != 0;
}

static bool run_from(const pattern_run *run, int32_t pc, const char *at)
{
    thread_list lists[2];
    uint8_t seen[MOX_PATTERN_LIMIT] = { 0 };
    int now = 0;
    lists[now].count = 0;
    if (run->depth > MOX_PATTERN_MAX_LOOKS)
        return false;
    bool ended = add_threads(run, &lists[now], seen, pc, at);
    for (; !ended && *at && lists[now].count > 0; at++, now = 1 - now) {
        thread_list *next = &lists[1 - now];
        next->count = 0;
        memset(seen, 0, (size_t)run->pattern->length);
        for (int32_t i = 0; i < lists[now].count && !ended; i++) {
            const int32_t here = lists[now].pc[i];
            if (accepts(run->pattern, &run->pattern->program[here], (unsigned char)*at))
                ended = add_threads(run, next, seen, here + 1, at + 1);
        }
    }
    return ended;
}

bool mox_pattern_matches(const mox_pattern *pattern, const char *name, bool whole)
{
    const pattern_run run = { .pattern = pattern, .start = name, .whole = whole };
    return run_from(&run, 0, name);
}
