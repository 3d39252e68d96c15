/* SPDX-License-Identifier: Apache-2.0
 *
 * pattern_compile.c - the text of a pattern as a program (pattern_program.h), by recursive descent.
 *
 *     choice    sequence { "|" sequence }
 *     sequence  { atom [ "*" | "+" | "?" | "{m,n}" [ "?" ] ] }
 *     atom      "(" choice ")" | "[" class "]" | "\" letter | "." | "^" | "$" | character
 *
 * Lazy and greedy quantifiers accept the same names, so the "?" behind one is skipped.
 */
#include <string.h>

#include "ckpt/formats/pattern_program.h"

typedef struct compiler {
    mox_pattern *out;
    const char *at;
    const char *problem; /* the first one */
    int32_t depth, looks;
} compiler;

static void choice(compiler *c);

static void fail(compiler *c, const char *problem)
{
    if (!c->problem)
        c->problem = problem;
}

static mox_instruction *emit(compiler *c, mox_pattern_op op)
{
    static mox_instruction spare; /* never read: compilation has failed */
    if (c->out->length >= MOX_PATTERN_LIMIT) {
        fail(c, "too long");
        return &spare;
    }
    mox_instruction *instruction = &c->out->program[c->out->length++];
    *instruction = (mox_instruction) { .op = (uint8_t)op, .next = 1 };
    return instruction;
}

/* Makes room for one instruction before `start`. */
static mox_instruction *insert(compiler *c, int32_t start, mox_pattern_op op)
{
    mox_instruction *program = c->out->program;
    mox_instruction *last = emit(c, op);
    if (c->problem)
        return last;
    const mox_instruction made = *last;
    memmove(&program[start + 1], &program[start], (size_t)(c->out->length - 1 - start) * sizeof *program);
    program[start] = made;
    return &program[start];
}

static void copy_block(compiler *c, int32_t start, int32_t length)
{
    for (int32_t i = 0; i < length && !c->problem; i++) {
        const mox_instruction one = c->out->program[start + i];
        *emit(c, MOX_OP_MATCH) = one;
    }
}

/* ---- sets of characters -------------------------------------------------------------------------- */

static void set_range(mox_char_set *set, int first, int last)
{
    for (int i = first; i <= last; i++)
        set->bits[i / 8] |= (uint8_t)(1 << i % 8);
}

static void set_invert(mox_char_set *set)
{
    for (int i = 0; i < 32; i++)
        set->bits[i] = (uint8_t)~set->bits[i];
}

/* \d, \w, \s and their negations; false for another letter. */
static bool letter_set(char letter, mox_char_set *out)
{
    mox_char_set set = { { 0 } };
    switch (letter | 32) {
    case 'd': set_range(&set, '0', '9'); break;
    case 'w':
        set_range(&set, '0', '9'), set_range(&set, 'a', 'z'), set_range(&set, 'A', 'Z'), set_range(&set, '_', '_');
        break;
    case 's': set_range(&set, '\t', '\r'), set_range(&set, ' ', ' '); break;
    default: return false;
    }
    if (!(letter & 32))
        set_invert(&set);
    for (int i = 0; i < 32; i++)
        out->bits[i] |= set.bits[i];
    return true;
}

static void emit_set(compiler *c, const mox_char_set *set)
{
    if (c->out->n_sets >= MOX_PATTERN_SETS) {
        fail(c, "too many classes");
        return;
    }
    c->out->sets[c->out->n_sets] = *set;
    emit(c, MOX_OP_SET)->set = (int16_t)c->out->n_sets++;
}

/* The character that a backslash and `letter` stand for; -1: the letter has a meaning that is not understood. */
static int escaped(char letter)
{
    const bool alnum = (letter >= '0' && letter <= '9') || ((letter | 32) >= 'a' && (letter | 32) <= 'z');
    switch (letter) {
    case 'n': return '\n';
    case 't': return '\t';
    case 'r': return '\r';
    default: return alnum || letter == 0 ? -1 : (unsigned char)letter;
    }
}

/* One character of a class, or one of its sets: then -1. */
static int class_character(compiler *c, bool shell, mox_char_set *set)
{
    if (*c->at != '\\' || shell)
        return (unsigned char)*c->at++;
    const char letter = c->at[1];
    c->at += letter ? 2 : 1;
    if (letter_set(letter, set))
        return -1;
    const int value = escaped(letter);
    if (value < 0)
        fail(c, "an escape that is not understood");
    return value;
}

/* Behind "[". */
static void char_class(compiler *c, bool shell)
{
    mox_char_set set = { { 0 } };
    const bool negate = *c->at == (shell ? '!' : '^');
    c->at += negate;
    for (bool first = true; !c->problem && (first || *c->at != ']'); first = false) {
        if (*c->at == 0) {
            fail(c, "a [ without its ]");
            return;
        }
        const int from = class_character(c, shell, &set);
        int to = from;
        if (from >= 0 && c->at[0] == '-' && c->at[1] && c->at[1] != ']') {
            c->at++;
            to = class_character(c, shell, &set);
            if (to < from)
                fail(c, "a range that is not understood");
        }
        if (from >= 0)
            set_range(&set, from, to);
    }
    c->at++;
    if (negate)
        set_invert(&set);
    emit_set(c, &set);
}

/* ---- atoms --------------------------------------------------------------------------------------- */

/* Behind "(?". True: the group goes on like a plain one. */
static bool group_kind(compiler *c, bool *look, bool *negate)
{
    if (*c->at == ':') {
        c->at++;
        return true;
    }
    if (*c->at == '=' || *c->at == '!') {
        *look = true;
        *negate = *c->at++ == '!';
        return true;
    }
    if (c->at[0] == 'P' && c->at[1] == '<') {
        while (*c->at && *c->at != '>')
            c->at++;
        c->at += *c->at != 0;
        return true;
    }
    fail(c, *c->at == '<' ? "look-behind" : *c->at == 'P' ? "a back reference" : "a flag or a conditional group");
    return false;
}

/* Behind "(". */
static void group(compiler *c)
{
    bool look = false, negate = false;
    if (*c->at == '?' && (c->at++, !group_kind(c, &look, &negate)))
        return;
    if (++c->depth > MOX_PATTERN_MAX_DEPTH || (c->looks += look) > MOX_PATTERN_MAX_LOOKS) {
        fail(c, "groups nested too deep");
        return;
    }
    const int32_t start = c->out->length;
    if (look)
        emit(c, MOX_OP_LOOK)->negate = negate;
    choice(c);
    if (look) {
        emit(c, MOX_OP_MATCH);
        if (!c->problem)
            c->out->program[start].next = (int16_t)(c->out->length - start);
    }
    c->depth--, c->looks -= look;
    if (*c->at == ')')
        c->at++;
    else
        fail(c, "a ( without its )");
}

/* Behind a backslash. */
static void escape(compiler *c)
{
    mox_char_set set = { { 0 } };
    const char letter = *c->at;
    c->at += letter != 0;
    if (letter_set(letter, &set))
        emit_set(c, &set);
    else if (letter == 'b' || letter == 'B')
        emit(c, MOX_OP_WORD_EDGE)->negate = letter == 'B';
    else if (letter == 'A' || letter == 'Z')
        emit(c, letter == 'A' ? MOX_OP_BEGIN : MOX_OP_END);
    else if (escaped(letter) >= 0)
        emit(c, MOX_OP_CHAR)->c = (uint8_t)escaped(letter);
    else
        fail(c, letter >= '1' && letter <= '9' ? "a back reference" : "an escape that is not understood");
}

static void atom(compiler *c)
{
    const char here = *c->at++;
    switch (here) {
    case '(': group(c); break;
    case '[': char_class(c, false); break;
    case '\\': escape(c); break;
    case '.': emit(c, MOX_OP_ANY); break;
    case '^': emit(c, MOX_OP_BEGIN); break;
    case '$': emit(c, MOX_OP_END); break;
    case '*':
    case '+':
    case '?': fail(c, "a quantifier with nothing before it"); break;
    default: emit(c, MOX_OP_CHAR)->c = (uint8_t)here;
    }
}

/* ---- quantifiers --------------------------------------------------------------------------------- */

#define UNLIMITED (-1)

static int32_t number(const char **at)
{
    int32_t value = 0;
    while (**at >= '0' && **at <= '9')
        value = value < MOX_PATTERN_LIMIT ? value * 10 + *(*at)++ - '0' : (++*at, value);
    return value;
}

/* {m}, {m,}, {,n} or {m,n} at `at`; false: the brace is a character like others. */
static bool counts(compiler *c, int32_t *least, int32_t *most)
{
    const char *at = c->at + 1;
    const char *digits = at;
    *least = number(&at);
    const bool has_least = at > digits;
    *most = *least;
    if (*at == ',') {
        const char *upper = ++at;
        *most = number(&at);
        if (at == upper)
            *most = UNLIMITED;
        else if (!has_least)
            *least = 0;
        if (at == upper && !has_least)
            return false;
    } else if (!has_least) {
        return false;
    }
    if (*at != '}')
        return false;
    c->at = at + 1;
    return true;
}

/* The block from `start` on becomes optional. */
static void optional(compiler *c, int32_t start)
{
    const int32_t length = c->out->length - start;
    mox_instruction *split = insert(c, start, MOX_OP_SPLIT);
    split->other = (int16_t)(length + 1);
}

/* The block from `start` on may be repeated. */
static void again(compiler *c, int32_t start)
{
    mox_instruction *split = emit(c, MOX_OP_SPLIT);
    split->other = (int16_t)(start - (c->out->length - 1));
}

static void repeat(compiler *c, int32_t start, int32_t least, int32_t most)
{
    const int32_t length = c->out->length - start;
    if (most != UNLIMITED && most < least) {
        fail(c, "a {m,n} with m above n");
        return;
    }
    if (most == 0) {
        c->out->length = start;
        return;
    }
    int32_t last = start;
    for (int32_t i = 1; i < least && !c->problem; i++) {
        last = c->out->length;
        copy_block(c, start, length);
    }
    if (most == UNLIMITED)
        again(c, last);
    for (int32_t i = least ? least : 1; most != UNLIMITED && i < most && !c->problem; i++) {
        const int32_t at = c->out->length;
        copy_block(c, start, length);
        optional(c, at);
    }
    if (least == 0 && !c->problem)
        optional(c, start);
}

static void sequence(compiler *c)
{
    while (*c->at && *c->at != '|' && *c->at != ')' && !c->problem) {
        const int32_t start = c->out->length;
        int32_t least, most;
        atom(c);
        const char mark = *c->at;
        if (mark == '*' || mark == '+' || mark == '?') {
            c->at++;
            least = mark == '+';
            most = mark == '?' ? 1 : UNLIMITED;
        } else if (mark != '{' || !counts(c, &least, &most)) {
            continue;
        }
        if (!c->problem)
            repeat(c, start, least, most);
        if (*c->at == '?')
            c->at++;
        else if (*c->at == '+' || *c->at == '*')
            fail(c, "a quantifier behind a quantifier");
    }
}

static void choice(compiler *c)
{
    const int32_t start = c->out->length;
    sequence(c);
    while (*c->at == '|' && !c->problem) {
        c->at++;
        /* SPLIT this, rest; this; JUMP over the rest; rest */
        const int32_t length = c->out->length - start;
        insert(c, start, MOX_OP_SPLIT)->other = (int16_t)(length + 2);
        const int32_t jump = c->out->length;
        emit(c, MOX_OP_JUMP);
        sequence(c);
        if (!c->problem)
            c->out->program[jump].next = (int16_t)(c->out->length - jump);
    }
}

static void shell(compiler *c)
{
    while (*c->at && !c->problem) {
        const char here = *c->at++;
        const int32_t start = c->out->length;
        if (here == '[' && strchr(c->at + (*c->at == '!') + (c->at[*c->at == '!'] == ']'), ']')) {
            char_class(c, true);
        } else if (here == '*' || here == '?') {
            emit(c, MOX_OP_ANY);
            if (here == '*')
                repeat(c, start, 0, UNLIMITED);
        } else {
            emit(c, MOX_OP_CHAR)->c = (uint8_t)here;
        }
    }
}

mox_pattern *mox_pattern_compile(const char *text, mox_pattern_kind kind, mox_arena *arena, const char **problem)
{
    mox_pattern *out = mox_arena_calloc(arena, 1, sizeof *out);
    compiler c = { .out = out, .at = text };
    *problem = NULL;
    if (!out)
        return NULL;
    if (kind == MOX_PATTERN_SHELL)
        shell(&c);
    else
        choice(&c);
    emit(&c, MOX_OP_MATCH);
    if (*c.at)
        fail(&c, "a ) without its (");
    *problem = c.problem;
    return c.problem ? NULL : out;
}
