/* SPDX-License-Identifier: Apache-2.0
 *
 * steps.c - the growing list of a plan's steps (steps.h).
 */
#include "layer/plan/steps.h"

static moxie_status grow(mox_steps *steps, moxie_error *error)
{
    if (steps->count < steps->capacity)
        return MOXIE_OK;
    const int32_t capacity = steps->capacity > 0 ? 2 * steps->capacity : 16;
    moxie_plan_step *items = mox_realloc(steps->items, (uint64_t)capacity * sizeof *items);
    MOX_FAIL_IF(items == NULL, MOXIE_ERR_MEMORY, error, "no memory for %d steps of a plan", (int)capacity);
    steps->items = items;
    mox_step_product *products = mox_realloc(steps->products, (uint64_t)capacity * sizeof *products);
    MOX_FAIL_IF(products == NULL, MOXIE_ERR_MEMORY, error, "no memory for %d steps of a plan", (int)capacity);
    steps->products = products;
    steps->capacity = capacity;
    return MOXIE_OK;
}

moxie_status mox_steps_add(mox_steps *steps, const moxie_plan_step *step, moxie_error *error)
{
    MOX_TRY(grow(steps, error));
    steps->products[steps->count] = MOX_NO_PRODUCT;
    steps->items[steps->count++] = *step;
    return MOXIE_OK;
}

const char *mox_steps_copy_text(mox_steps *steps, const char *text)
{
    return mox_arena_strndup(&steps->arena, text, strlen(text));
}

void mox_steps_free(mox_steps *steps)
{
    mox_free(steps->items);
    mox_free(steps->products);
    mox_arena_free(&steps->arena);
    *steps = (mox_steps) { 0 };
}
