/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_simulate.c - `moxie bench --simulate-ranks`: products measured on this machine, and the step that a link makes
 * of them on many ranks (bench_simulate.h).
 *
 *     traffic of all rows -> which (experts, choices) are needed -> those are timed -> steps -> table or JSON
 *
 * A rank's products are timed as a layer of so many experts with one choice a token: `choices` tokens, spread evenly
 * over `experts` experts. Times are taken at powers of two and are straight between them. Past SIM_MEASURED_CHOICES the
 * last two go on. Weights come from memory, as in every bench.
 *
 * One rank is also run as it is, and with --ranks N so are N local ranks, which says how far the model is off. Such
 * ranks have as many threads each as the products had that were timed; their link is this machine's memory.
 */
#include "bench_simulate.h"

#include "bench_ranks.h"

#include <stdlib.h>

enum { USUAL_TOKENS = 64 };

/* ---- which times are needed -------------------------------------------------------------------------- */

static sim_point *find_point(simulation *sim, int64_t experts, int64_t choices)
{
    for (int i = 0; i < sim->n_points; i++)
        if (sim->points[i].experts == experts && sim->points[i].choices == choices)
            return &sim->points[i];
    return NULL;
}

/* The powers of two around a number of choices. */
static void around(int64_t choices, int64_t *low, int64_t *high)
{
    *low = 1;
    while (2 * *low <= choices && 2 * *low < SIM_MEASURED_CHOICES)
        *low *= 2;
    *high = 2 * *low;
}

static moxie_status need(simulation *sim, int64_t experts, int64_t choices, moxie_error *error)
{
    if (find_point(sim, experts, choices))
        return MOXIE_OK;
    if (sim->n_points == SIM_MAX_POINTS)
        return cli_error(MOXIE_ERR_ARGUMENT, error, "",
                         "these ranks and tokens need more than %d measurements: give fewer", SIM_MAX_POINTS);
    sim->points[sim->n_points++] = (sim_point) { .experts = experts, .choices = choices };
    return MOXIE_OK;
}

static moxie_status need_step(simulation *sim, const sim_traffic *traffic, moxie_error *error)
{
    moxie_status status = MOXIE_OK;
    for (int draw = 0; draw < SIM_DRAWS && status == MOXIE_OK; draw++) {
        int64_t low, high;
        around(traffic->draw_choices[draw], &low, &high);
        sim->extrapolated = sim->extrapolated || traffic->draw_choices[draw] > high;
        status = need(sim, traffic->experts, low, error);
        if (status == MOXIE_OK)
            status = need(sim, traffic->experts, high, error);
    }
    return status;
}

static moxie_status need_points(simulation *sim, moxie_error *error)
{
    moxie_status status = MOXIE_OK;
    for (int i = 0; i < sim->n_rows && status == MOXIE_OK; i++) {
        status = need_step(sim, &sim->rows[i].linear.traffic, error);
        if (status == MOXIE_OK)
            status = need_step(sim, &sim->rows[i].eplb.traffic, error);
    }
    return status;
}

static const char *routing_name(const bench_arguments *args)
{
    return args->trace ? args->trace : args->routing;
}

/* ---- measuring --------------------------------------------------------------------------------------- */

/* What is timed. */
typedef enum part { PRODUCTS, SHARED_EXPERT, WHOLE_LAYER } part;

/* The layer of one rank: routed experts alone, one choice a token; or the shared expert, with an expert that no token
 * chooses; or all of it. */
static void narrow(const simulation *sim, part what, int64_t experts, moxie_layer_config *config,
                   moxie_weights *weights)
{
    moxie_weights of = MOXIE_WEIGHTS_INIT;
    *config = sim->whole;
    config->router_width = config->router_has_bias = 0;
    config->router_norm = (moxie_row_norm) { 0 };
    if (what != WHOLE_LAYER) {
        config->experts = experts;
        config->top_k = 1;
    }
    of.n_experts = config->experts;
    of.experts = sim->b->weights->experts;
    of.expert_norm = sim->b->weights->expert_norm;
    if (what != PRODUCTS) {
        of.shared = sim->b->weights->shared;
        of.shared_gate = sim->b->weights->shared_gate;
    } else {
        config->shared = (moxie_shared_config) { 0 };
        config->has_shared_activation = 0;
    }
    *weights = of;
}

typedef struct measured {
    sim_point *points;
    int count;
    part what;
} measured;

static moxie_status open_model(simulation *sim, const measured *m, bench_routing *routing, moxie_error *error)
{
    bench *b = sim->b;
    moxie_weights weights;
    int64_t experts = 1, most = 0;
    int32_t copies = 1;
    uint64_t workspace = 0;
    moxie_plan *plan = NULL;
    for (int i = 0; i < m->count; i++) {
        experts = m->points[i].experts > experts ? m->points[i].experts : experts;
        most = m->points[i].choices > most ? m->points[i].choices : most;
    }
    narrow(sim, m->what, experts, &b->model.config, &weights);
    b->model.shared_bytes = weights.shared ? made_expert_bytes(weights.shared) : 0;
    b->model.expert_bytes = made_expert_bytes(&weights.experts[0]);
    b->n_lines = 1;
    b->tokens[0] = most;
    const moxie_options options = bench_options(b);
    moxie_status status = moxie_plan_explain(&b->model.config, &options, &plan, error);
    if (status == MOXIE_OK)
        workspace = moxie_plan_workspace_bytes(plan);
    moxie_plan_destroy(plan);
    if (status == MOXIE_OK)
        status = bench_routing_open(m->what == WHOLE_LAYER ? routing_name(b->args) : "uniform", &b->model.config,
                                    bench_layer(b), b->args->seed, routing, error);
    if (status == MOXIE_OK)
        status = bench_routing_reserve(routing, most, error);
    const uint64_t available = b->backend->available(&b->args->layer, workspace);
    for (int i = 0; i < m->count && status == MOXIE_OK; i++) {
        int32_t wanted = 1;
        routing->spread = m->points[i].experts;
        status = bench_model_copies(&b->model, routing, &m->points[i].choices, 1, b->limits.found.cache_bytes,
                                    available, &wanted, error);
        copies = wanted > copies ? wanted : copies;
    }
    if (status == MOXIE_OK)
        status =
            bench_model_prepare(&b->model, copies, &weights, &options, b->backend->on_host, b->args->layer.json, error);
    if (status == MOXIE_OK && m->what == PRODUCTS)
        bench_plan_name(b->model.copy[0].plan, b->plan, sizeof b->plan);
    return status;
}

static moxie_status measure(simulation *sim, const measured *m, moxie_error *error)
{
    static const char *const names[] = { "products", "shared expert", "one rank" };
    bench *b = sim->b;
    bench_routing routing = { 0 };
    cli_progress progress;
    moxie_status status = open_model(sim, m, &routing, error);
    cli_progress_begin(&progress, names[m->what]);
    progress.terminal = progress.terminal && !b->args->layer.json;
    for (int i = 0; i < m->count && status == MOXIE_OK; i++) {
        sim_point *p = &m->points[i];
        cli_progress_show(&progress, (uint64_t)i, (uint64_t)m->count);
        routing.spread = p->experts;
        routing.skips = m->what == SHARED_EXPERT;
        status = bench_line_time(b->backend, &b->model, &routing, p->choices, b->args->repeats, b->args->seed,
                                 b->limits.found.cache_bytes, &p->line, error);
    }
    cli_progress_end(&progress);
    bench_routing_free(&routing);
    bench_model_free(&b->model);
    return status;
}

/* A point for each number of tokens. */
static int list_tokens(const bench_arguments *args, int64_t experts, sim_point *out)
{
    const int count = args->tokens.count ? args->tokens.count : 1;
    for (int i = 0; i < count; i++)
        out[i] = (sim_point) { .experts = experts, .choices = args->tokens.count ? args->tokens.at[i] : USUAL_TOKENS };
    return count;
}

static moxie_status measure_all(simulation *sim, moxie_error *error)
{
    const bench_arguments *args = sim->b->args;
    bool one = false;
    for (int i = 0; i < sim->n_rows; i++)
        one = one || sim->rows[i].ranks == 1;
    moxie_status status = measure(sim, &(measured) { sim->points, sim->n_points, PRODUCTS }, error);
    if (status == MOXIE_OK && sim->whole.shared.intermediate > 0) {
        sim->n_shared = list_tokens(args, 1, sim->shared);
        status = measure(sim, &(measured) { sim->shared, sim->n_shared, SHARED_EXPERT }, error);
    }
    if (status == MOXIE_OK && one) {
        sim->n_here = list_tokens(args, sim->whole.experts, sim->here);
        status = measure(sim, &(measured) { sim->here, sim->n_here, WHOLE_LAYER }, error);
    }
    return status;
}

/* ---- the model --------------------------------------------------------------------------------------- */

/* The median of the runs that no other work disturbed; where there is none, the fastest run. */
static double time_of(const sim_point *point)
{
    return point->line.quiet_median > 0 ? point->line.quiet_median : point->line.min;
}

static double products(simulation *sim, int64_t experts, int64_t choices)
{
    int64_t low, high;
    if (choices == 0)
        return 0;
    around(choices, &low, &high);
    const double at_low = time_of(find_point(sim, experts, low)), at_high = time_of(find_point(sim, experts, high));
    return at_low + (at_high - at_low) * (double)(choices - low) / (double)(high - low);
}

static void time_step(simulation *sim, double shared, sim_step *step)
{
    const sim_traffic *t = &step->traffic;
    step->products = 0;
    for (int draw = 0; draw < SIM_DRAWS; draw++)
        step->products += products(sim, t->experts, t->draw_choices[draw]) / SIM_DRAWS;
    step->seconds = t->dispatch + step->products + t->give_back + shared;
}

/* The row with the fewest ranks and the same tokens comes first. */
static void time_rows(simulation *sim)
{
    for (int i = 0; i < sim->n_rows; i++) {
        sim_row *row = &sim->rows[i];
        const sim_row *first = row;
        for (int s = 0; s < sim->n_shared; s++)
            if (sim->shared[s].choices == row->tokens)
                row->shared = time_of(&sim->shared[s]);
        for (int h = 0; h < sim->n_here && row->ranks == 1; h++)
            if (sim->here[h].choices == row->tokens)
                row->measured = time_of(&sim->here[h]);
        time_step(sim, row->shared, &row->linear);
        time_step(sim, row->shared, &row->eplb);
        for (int j = i; j-- > 0;)
            if (sim->rows[j].tokens == row->tokens)
                first = &sim->rows[j];
        row->efficiency = first->linear.seconds / row->linear.seconds;
    }
}

/* Steps of the local ranks of --ranks, each with the threads of the executor. */
static moxie_status run_local(simulation *sim, moxie_error *error)
{
    bench *b = sim->b;
    const int32_t ranks = b->args->local.ranks, threads = b->executor->workers * ranks;
    bench_routing routing = { 0 };
    bench_ranks_line line;
    int64_t most = 1;
    for (int i = 0; i < sim->n_rows; i++)
        most = sim->rows[i].tokens > most ? sim->rows[i].tokens : most;
    moxie_status status =
        bench_routing_open(routing_name(b->args), &sim->whole, bench_layer(b), b->args->seed, &routing, error);
    if (status == MOXIE_OK)
        status = bench_routing_reserve(&routing, most * ranks, error);
    for (int i = 0; i < sim->n_rows && status == MOXIE_OK; i++) {
        if (sim->rows[i].ranks != ranks)
            continue;
        status =
            bench_ranks_time(b, &sim->whole, &routing, sim->rows[i].tokens * ranks, threads, threads, &line, error);
        sim->rows[i].measured = line.many;
    }
    bench_routing_free(&routing);
    return status;
}

/* ---- a simulation ------------------------------------------------------------------------------------ */

static moxie_status list_rows(simulation *sim, moxie_error *error)
{
    const bench_arguments *args = sim->b->args;
    const int sizes = args->tokens.count ? args->tokens.count : 1;
    sim->rows = calloc((size_t)(sizes * args->ranks.count), sizeof *sim->rows);
    if (!sim->rows)
        return cli_error(MOXIE_ERR_MEMORY, error, "", "no memory for %d rows", sizes * args->ranks.count);
    for (int t = 0; t < sizes; t++)
        for (int r = 0; r < args->ranks.count; r++)
            sim->rows[sim->n_rows++] = (sim_row) { .ranks = args->ranks.at[r],
                                                   .tokens = args->tokens.count ? args->tokens.at[t] : USUAL_TOKENS };
    return MOXIE_OK;
}

static moxie_status route(simulation *sim, moxie_error *error)
{
    bench *b = sim->b;
    moxie_status status =
        bench_routing_open(routing_name(b->args), &sim->whole, bench_layer(b), b->args->seed, &b->routing, error);
    int64_t most = 1;
    for (int i = 0; i < sim->n_rows; i++)
        most = sim->rows[i].tokens > most ? sim->rows[i].tokens : most;
    if (status == MOXIE_OK)
        status = bench_routing_reserve(&b->routing, most, error);
    return status == MOXIE_OK ? sim_count_traffic(sim, &b->routing, error) : status;
}

moxie_status bench_simulate(bench *b, moxie_error *error)
{
    static simulation sim; /* large */
    sim = (simulation) { .b = b, .link = { b->args->link_gb_s, b->args->link_us }, .whole = b->model.config };
    const int32_t on_input = sim.whole.routing.on_input;
    moxie_status status = moxie_routing_by_name("renormalize", &sim.whole.routing, error);
    sim.whole.routing.on_input = on_input;
    if (status == MOXIE_OK)
        status = list_rows(&sim, error);
    if (status == MOXIE_OK)
        status = route(&sim, error);
    if (status == MOXIE_OK)
        status = need_points(&sim, error);
    if (status == MOXIE_OK)
        status = b->backend->limits_of(&b->args->layer, b->executor, &b->device, error);
    if (status == MOXIE_OK)
        status = cli_limits_get(b->args->limits_file, &b->device, &b->limits, error);
    if (status == MOXIE_OK)
        status = measure_all(&sim, error);
    if (status == MOXIE_OK && cli_ranks_asked(&b->args->local))
        status = run_local(&sim, error);
    if (status == MOXIE_OK) {
        time_rows(&sim);
        (b->args->layer.json ? sim_print_json : sim_print_text)(&sim);
    }
    free(sim.rows);
    return status;
}
