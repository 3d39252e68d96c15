/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_balance.c - the files of `moxie balance`: loads as JSON, text and safetensors, and maps.
 *
 * Promise: loads are finite and not negative; every map is valid.
 */
#include "fuzz_scratch.h"

#include <math.h>

#include "balance.h"

static void check_loads(const char *name)
{
    moxie_error error = { 0 };
    balance_counts loads;
    const moxie_status status = balance_counts_read(fuzz_path(name), 0, 0, &loads, &error);
    FUZZ_CHECK(status == MOXIE_OK || (error.text[0] && !loads.at));
    for (int64_t i = 0; status == MOXIE_OK && i < (int64_t)loads.layers * loads.experts; i++)
        FUZZ_CHECK(isfinite(loads.at[i]) && loads.at[i] >= 0);
    free(loads.at);
}

static void check_maps(const char *name)
{
    moxie_error error = { 0 };
    balance_map maps;
    if (balance_map_read(fuzz_path(name), 2, 0, &maps, &error) != MOXIE_OK) {
        FUZZ_CHECK(error.text[0]);
        return;
    }
    for (int32_t l = 0; l < maps.layers; l++) {
        const moxie_slot_map map = balance_map_at(&maps, l);
        FUZZ_CHECK(map.ranks == 2 && moxie_slot_map_check(&map, &error) == MOXIE_OK);
    }
    balance_map_free(&maps);
}

void mox_fuzz_balance(const uint8_t *data, uint64_t size)
{
    fuzz_write("loads.txt", data, size);
    check_loads("loads.txt");
    check_maps("loads.txt");
    fuzz_write("loads.safetensors", data, size);
    check_loads("loads.safetensors");
}
