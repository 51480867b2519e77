/* SPDX-License-Identifier: Apache-2.0
 *
 * soak WORLD SECONDS DEADLINE [SEED [SCENES|goals]]
 *
 * Runs random scenes until SECONDS are over, SCENES scenes were run, or, with
 * "goals", each fault was injected as often as the table below says. A scene
 * draws the number of ranks, whether the communicator was created or split, the
 * call, the path of the data, the fault, its rank and its moment.
 * WORLD is threads, processes, or hosts (under netns-test.sh spread). DEADLINE,
 * in seconds, is the timeout of calls that wait for a rank that stays stopped
 * or is cut off.
 * Prints a line "row FAULT WORLD ..." for each fault, from which
 * scripts/soak.sh makes a table, and for each failed scene its seed and the
 * reason: soak WORLD 60 DEADLINE SEED 1 repeats the scene. Ends with 1 if a
 * scene failed or a goal was not reached.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/system/clock.h"
#include "comm/comm.h"
#include "collectives/plan/plan.h"
#include "soak/aftermath.h"
#include "soak/calls.h"
#include "soak/faults.h"
#include "soak/jobs.h"
#include "support/aborts.h"
#include "support/random.h"
#include "support/ranks.h"

enum { RANKS_MAX = 5 };
#define CREATE_S 20.0
/* Survivors wait half of this time for a rank that is stopped. */
#define SHRINK_S 10.0
/* An error that arrives this long after it was due is late. */
#define SLACK_NS INT64_C(15000000000)

enum world { THREADS, PROCESSES, HOSTS, WORLDS };
static const char *const world_names[WORLDS] = {
    "threads", "processes", "hosts"};

/* The schedule between hosts; "" leaves the choice to the library. */
static const char *const algos[] = {"", "direct", "pairwise", "hier"};
enum { ALGOS = sizeof(algos) / sizeof(algos[0]) };

/* The results of one scene, or the sum over all scenes with the same fault. */
struct outcome {
    /* ranks that were to get the error, and those that did */
    _Atomic int injected_ranks, named;
    _Atomic int wrong;  /* ranks that read wrong data */
    _Atomic int leaks;  /* ranks that hold more than before */
    _Atomic int broken; /* ranks that failed in any other way */
    /* longest time from when an error was due until it arrived */
    _Atomic int64_t longest_ns;
};

struct scene_state {
    struct job job;
    struct strike strike;
    struct outcome outcome;
    enum world world;
    enum call call;
    enum scene_path path;
    int64_t rows;
    bool split;       /* the communicator is the child of another */
    const char *algo; /* the schedule, in the world HOSTS */
    double deadline_s;
    /* number of the call before which all ranks stop; 0: not known */
    _Atomic int last;
    ulyx_comm_t *comms[RANKS_MAX]; /* in the world THREADS */
};

struct totals {
    struct outcome outcome;
    int injected, spoilt;
};

struct soak {
    enum world world;
    double deadline_s;
    bool goals; /* run until each goal is reached */
    struct totals totals[FAULTS];
};

/* Heap that a process may keep from its first scene. The library keeps 20 to 53
 * KiB per rank: memory of destroyed handles, which the next handles reuse, and
 * streams; a distributed attention with its two plans leaves most. UCX keeps
 * some 56 KiB. In the world THREADS one process runs many scenes; after the
 * first few, the heap grows only where more handles exist at one time than
 * before. */
static const int64_t heap_slack[WORLDS] = {256 << 10, 64 << 10, 128 << 10};
enum { FIRST_SCENES = 20, LATER_SLACK = 64 << 10 };

static bool
is_back(enum world world, const struct holdings *before)
{
    return holdings_back(before, 5) &&
           holdings_heap_is(before, heap_slack[world]);
}

/* ---- a rank -------------------------------------------------------------- */

static void
rank_count(_Atomic int *counter, int rank, const char *what, bool add)
{
    if (add) {
        fprintf(stderr, "rank %d: %s\n", rank, what);
        atomic_fetch_add(counter, 1);
    }
}

/* Rank 0 chooses the last call: in collective calls no rank has begun a later
 * call than rank 0. Attach is not collective. */
static ulyx_status_t
call_on(struct scene_state *state, struct calls *c)
{
    ulyx_status_t status = ULYX_SUCCESS;
    for (int i = 0; status == ULYX_SUCCESS; i++) {
        int last = atomic_load(&state->last);
        if (last && i >= last)
            break;
        /* The stopped rank is awake again, and its attach would still
         * succeed. */
        if (state->strike.fault == FAULT_STOPPED &&
            atomic_load(&state->strike.over))
            break;
        if (c->rank == 0 && !last && atomic_load(&state->strike.over) &&
            fault_is_harmless(state->strike.fault))
            atomic_store(&state->last, i + 2);
        status = calls_once(c);
    }
    return status;
}

struct within {
    pthread_t thread;
    struct strike *strike;
    ulyx_comm_t *comm;
};

static void *
within_main(void *argument)
{
    struct within *within = argument;
    fault_from_within(within->strike, within->comm);
    return NULL;
}

/* Are all ranks of some node stopped? The other ranks may not continue without
 * such a node (see ulyx_comm_shrink). */
static bool
victim_is_a_node(const struct scene_state *state)
{
    const struct strike *strike = &state->strike;
    int count = 0;
    for (int r = 0; r < strike->nranks; r++)
        count += strike_is_beside(strike, r);
    return count == 1;
}

/* A stopped rank that wakes must not form a communicator of its own while the
 * others, which have continued without it, still exist. Where the stopped rank
 * is a whole node, the others have had to give up: then it may form a
 * communicator, and the others no longer may. On a very busy machine the rank
 * may wake before the others have continued; then it may become a member of
 * their communicator. */
static void
rank_wake_late(struct scene_state *state, ulyx_comm_t *comm, int rank)
{
    struct strike *strike = &state->strike;
    int others = atomic_load(&strike->done);
    bool late = others + atomic_load(&strike->spoilt) >= strike->nranks - 1;
    bool may = !late || victim_is_a_node(state);
    int32_t nranks = 0;
    char text[128];
    ulyx_comm_t *alone;
    comm->timeout_s = 2 * state->deadline_s;
    ulyx_status_t status = ulyx_comm_shrink(comm, NULL, &alone);
    if (status == ULYX_SUCCESS)
        ulyx_comm_get_nranks(alone, &nranks);
    snprintf(text, sizeof(text),
        "split brain: formed a communicator of %d, %d others had continued",
        nranks, others);
    rank_count(
        &state->outcome.wrong, rank, text, status == ULYX_SUCCESS && !may);
    atomic_store(&strike->alone, nranks == 1);
    atomic_store(&strike->awake, 1);
}

/* The ranks of the other nodes, where a whole node was stopped: they have given
 * up, and wait for the stopped rank before they leave. Once that rank has
 * continued without them, their own shrink must exclude them. */
static void
rank_give_up(struct scene_state *state, ulyx_comm_t *comm, int rank)
{
    struct strike *strike = &state->strike;
    ulyx_comm_t *fewer;
    fault_await_awake(strike);
    if (!atomic_load(&strike->alone))
        return;
    ulyx_status_t status = ulyx_comm_shrink(comm, NULL, &fewer);
    rank_count(&state->outcome.wrong, rank,
        "split brain: was not excluded by the rank that continued",
        status != ULYX_ERR_RANK_LOST);
}

static void
go_on(struct scene_state *state, ulyx_comm_t *comm, int rank)
{
    const struct strike *strike = &state->strike;
    ulyx_comm_t *fewer;
    if (strike->fault == FAULT_STOPPED && victim_is_a_node(state)) {
        ulyx_status_t status = ulyx_comm_shrink(comm, NULL, &fewer);
        rank_count(&state->outcome.wrong, rank,
            "continued without a stopped node", status == ULYX_SUCCESS);
        return;
    }
    int expected = strike->nranks - (strike->fault != FAULT_ABORTED);
    int nranks = aftermath_go_on(comm, SCENE_SLOT, state->rows, 2);
    rank_count(&state->outcome.broken, rank,
        "did not continue with all survivors", nranks != expected);
}

/* Attention has twice the time, because it makes several exchanges. */
static double
call_limit(const struct scene_state *state)
{
    if (!fault_is_silent(state->strike.fault))
        return 0;
    return state->call == CALL_ATTENTION ? 2 * state->deadline_s
                                         : state->deadline_s;
}

static void
calls_limit(struct scene_state *state, ulyx_comm_t *comm, struct calls *c)
{
    if (!fault_is_silent(state->strike.fault))
        return;
    comm->timeout_s = state->deadline_s;
    if (c->scene.plan)
        c->scene.plan->timeout_s = state->deadline_s;
}

static void
rank_judge(struct scene_state *state, struct calls *c, ulyx_status_t status)
{
    struct outcome *outcome = &state->outcome;
    const struct strike *strike = &state->strike;
    bool named = fault_is_named(strike, c->rank, status, c->text);
    if (!named)
        fprintf(stderr,
            "rank %d: %s: \"%s\" does not name the fault of rank %d\n", c->rank,
            ulyx_status_name(status), c->text, strike->victim);
    atomic_fetch_add(&outcome->injected_ranks, 1);
    atomic_fetch_add(&outcome->named, named);
    if (fault_is_harmless(strike->fault))
        return;
    int64_t due_ns =
        atomic_load(&strike->struck_ns) + (int64_t)(call_limit(state) * 1e9);
    aftermath_note(&outcome->longest_ns, due_ns);
    rank_count(&outcome->broken, c->rank, "got its error too late",
        uli_clock_ns() - due_ns > SLACK_NS);
}

static void
in_communicator(struct scene_state *state, ulyx_comm_t *comm, int rank)
{
    struct strike *strike = &state->strike;
    struct calls c;
    struct within within = {.strike = strike, .comm = comm};
    bool is_victim = rank == strike->victim;
    bool starts = is_victim && !fault_is_outer(strike->fault);
    ulyx_status_t status = calls_open(
        comm, state->call, state->path, state->rows, call_limit(state), &c);
    rank_count(&state->outcome.broken, rank, c.text, status != ULYX_SUCCESS);
    calls_limit(state, comm, &c);
    if (starts)
        pthread_create(&within.thread, NULL, within_main, &within);
    atomic_fetch_add(&strike->ready, 1);
    if (status == ULYX_SUCCESS)
        status = call_on(state, &c);
    if (starts)
        pthread_join(within.thread, NULL);
    rank_count(&state->outcome.wrong, rank, "wrong data", !c.right);
    comm->timeout_s = CREATE_S;
    if (is_victim && strike->fault == FAULT_STOPPED) {
        rank_wake_late(state, comm, rank);
        _exit(0);
    }
    rank_judge(state, &c, status);
    if (strike->fault >= FAULT_ABORTED && strike->fault <= FAULT_STOPPED) {
        comm->timeout_s = strike->fault == FAULT_STOPPED ? SHRINK_S : CREATE_S;
        go_on(state, comm, rank);
    }
    atomic_fetch_add(&strike->done, 1);
    /* A rank that has left does not vote; a rank that is resumed after that may
     * continue alone. */
    if (strike->fault == FAULT_STOPPED && victim_is_a_node(state))
        rank_give_up(state, comm, rank);
    /* No rank leaves while another rank still sends to it. */
    if (fault_is_harmless(strike->fault))
        rank_count(&state->outcome.broken, rank, "the barrier failed",
            ulyx_comm_barrier(comm) != ULYX_SUCCESS);
    rank_count(
        &state->outcome.leaks, rank, "windows are left", !calls_close(&c));
}

/* Replaces the communicator by a child with all ranks, split from it. */
static bool
comm_replace(struct scene_state *state, ulyx_comm_t **comm_p, int rank)
{
    ulyx_comm_t *child;
    ulyx_status_t status = ulyx_comm_split(*comm_p, 0, rank, NULL, &child);
    rank_count(&state->outcome.broken, rank, ulyx_last_error(),
        status != ULYX_SUCCESS);
    if (status != ULYX_SUCCESS)
        return false;
    rank_count(&state->outcome.leaks, rank, "the parent is left",
        ulyx_comm_destroy(*comm_p) != ULYX_SUCCESS);
    *comm_p = child;
    return true;
}

static int
rank_body(int rank, int nranks, void *context)
{
    struct scene_state *state = context;
    struct holdings before = holdings_now();
    ulyx_comm_t *comm = NULL;
    if (state->world == THREADS) {
        comm = state->comms[rank];
    } else {
        aborts_watch(&state->strike.spoilt);
        ulyx_status_t status =
            job_meet(&state->job, 0, nranks, rank, CREATE_S, &comm);
        rank_count(&state->outcome.broken, rank, ulyx_last_error(),
            status != ULYX_SUCCESS);
        if (status != ULYX_SUCCESS)
            return 1;
    }
    if (state->split && !comm_replace(state, &comm, rank))
        return 1;
    in_communicator(state, comm, rank);
    rank_count(&state->outcome.leaks, rank, "the communicator is left",
        ulyx_comm_destroy(comm) != ULYX_SUCCESS);
    if (state->world != THREADS)
        rank_count(&state->outcome.leaks, rank, "holds more than before",
            !is_back(state->world, &before));
    return 0;
}

/* ---- a scene ------------------------------------------------------------- */

/* How often each fault is drawn, relative to the others. Kills are most
 * frequent. */
static const int weights[WORLDS][FAULTS] = {
    [THREADS] = {[FAULT_NONE] = 1, [FAULT_FORKED] = 1, [FAULT_ABORTED] = 2},
    [PROCESSES] = {[FAULT_NONE] = 1,
        [FAULT_PAUSED] = 1,
        [FAULT_FORKED] = 1,
        [FAULT_ABORTED] = 1,
        [FAULT_KILLED] = 5,
        [FAULT_STOPPED] = 1},
    [HOSTS] = {[FAULT_NONE] = 1,
        [FAULT_PAUSED] = 1,
        [FAULT_FORKED] = 1,
        [FAULT_BROKEN] = 1,
        [FAULT_ABORTED] = 1,
        [FAULT_KILLED] = 2,
        [FAULT_STOPPED] = 1,
        [FAULT_CUT] = 1},
};

/* How many times each fault is injected with "goals". */
static const int goals[WORLDS][FAULTS] = {
    [THREADS] =
        {[FAULT_NONE] = 200, [FAULT_FORKED] = 200, [FAULT_ABORTED] = 200},
    [PROCESSES] = {[FAULT_NONE] = 200,
        [FAULT_PAUSED] = 200,
        [FAULT_FORKED] = 200,
        [FAULT_ABORTED] = 200,
        [FAULT_KILLED] = 1000,
        [FAULT_STOPPED] = 200},
    [HOSTS] = {[FAULT_NONE] = 100,
        [FAULT_PAUSED] = 100,
        [FAULT_FORKED] = 100,
        [FAULT_BROKEN] = 200,
        [FAULT_ABORTED] = 100,
        [FAULT_KILLED] = 100,
        [FAULT_STOPPED] = 100,
        [FAULT_CUT] = 200},
};

static bool
goal_is_reached(
    enum world world, enum fault fault, const struct totals totals[FAULTS])
{
    return totals[fault].injected >= goals[world][fault];
}

static bool
goals_are_reached(enum world world, const struct totals totals[FAULTS])
{
    int fault = 0;
    while (fault < FAULTS && goal_is_reached(world, (enum fault)fault, totals))
        fault++;
    return fault == FAULTS;
}

static enum fault
fault_draw(enum world world, struct test_random *random)
{
    int total = 0, fault = 0;
    for (int f = 0; f < FAULTS; f++)
        total += weights[world][f];
    int64_t at = test_random_in(random, 0, total - 1);
    while ((at -= weights[world][fault]) >= 0)
        fault++;
    return (enum fault)fault;
}

static void
scene_draw(
    struct scene_state *state, enum world world, struct test_random *random)
{
    struct strike *strike = &state->strike;
    state->world = world;
    state->call = (enum call)test_random_in(random, 0, CALLS - 1);
    state->path = (enum scene_path)test_random_in(random, 0, SCENE_PATHS - 1);
    state->rows = test_random_in(random, 8, 300);
    strike->nranks = (int)test_random_in(random, 3, RANKS_MAX);
    strike->victim = (int)test_random_in(random, 0, strike->nranks - 1);
    strike->delay_us = test_random_in(random, 0, 30000);
    strike->pause_us = test_random_in(random, 10000, 300000);
    strike->fault = fault_draw(world, random);
    state->split = test_random_in(random, 0, 3) == 0;
    state->algo = algos[test_random_in(random, 0, ALGOS - 1)];
    /* The cut is shorter than the time after which a connection breaks. No new
     * connection can be made during the cut, and a creation without a network
     * fails. */
    if (strike->fault == FAULT_BROKEN) {
        strike->pause_us /= 2;
        state->call = state->call == CALL_SPLIT ? CALL_ALLREDUCE : state->call;
    }
    /* Memory that a failed creation of a plan leaves is freed at once. A
     * window, however, is kept until the stopped rank has released it, so the
     * path is changed. */
    if (state->call == CALL_PLAN && strike->fault >= FAULT_STOPPED &&
        state->path == SCENE_WINDOW)
        state->path = SCENE_SLOT;
}

static int
run_threads(struct scene_state *state)
{
    struct holdings before = holdings_now();
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    params.timeout_s = CREATE_S;
    if (ulyx_comm_create_local(state->strike.nranks, &params, state->comms) !=
        ULYX_SUCCESS) {
        rank_count(&state->outcome.broken, 0, ulyx_last_error(), true);
        return 1;
    }
    pid_t hand =
        state->strike.fault == FAULT_NONE ? fault_send(&state->strike) : 0;
    int failed = ranks_run_threads(
        state->strike.nranks, rank_body, state, FAULT_LIMIT_S);
    if (hand)
        waitpid(hand, NULL, 0);
    rank_count(&state->outcome.leaks, 0, "holds more than before",
        !is_back(THREADS, &before));
    return failed;
}

static int
run_processes(struct scene_state *state)
{
    struct strike *strike = &state->strike;
    bool outer = fault_is_outer(strike->fault);
    bool dies = strike->fault == FAULT_KILLED || strike->fault == FAULT_STOPPED;
    pid_t hand = outer ? fault_send(strike) : 0;
    int failed = ranks_run_processes_victim(strike->nranks, rank_body, state,
        FAULT_LIMIT_S, dies ? strike->victim : -1, strike->pids);
    if (hand) {
        if (failed)
            kill(hand, SIGKILL);
        waitpid(hand, NULL, 0);
    }
    return failed;
}

static bool
is_good(const struct outcome *o)
{
    return o->named == o->injected_ranks && !o->wrong && !o->leaks &&
           !o->broken;
}

static void
totals_add(struct totals *totals, const struct outcome *o)
{
    totals->injected++;
    totals->outcome.injected_ranks += o->injected_ranks;
    totals->outcome.named += o->named;
    totals->outcome.wrong += o->wrong;
    totals->outcome.leaks += o->leaks;
    totals->outcome.broken += o->broken;
    if (o->longest_ns > totals->outcome.longest_ns)
        totals->outcome.longest_ns = o->longest_ns;
}

static void
scene_blame(const struct scene_state *state, uint64_t seed)
{
    const struct strike *strike = &state->strike;
    bool algo = state->world == HOSTS && state->algo[0];
    fprintf(stderr,
        "soak: %s, seed %llu: %s of rank %d of %d%s after %.1f ms in %s "
        "(%s%s%s, "
        "%lld rows): see above\n",
        world_names[state->world], (unsigned long long)seed,
        fault_names[strike->fault], strike->victim, strike->nranks,
        state->split ? " of a split" : "", (double)strike->delay_us * 1e-3,
        call_names[state->call], scene_path_names[state->path],
        algo ? ", " : "", algo ? state->algo : "", (long long)state->rows);
}

/* With goals, a scene is run only if its fault is still short of the goal. What
 * a seed draws does not depend on this. */
static bool
scene_is_selected(const struct soak *soak, const struct scene_state *state)
{
    return !soak->goals ||
           !goal_is_reached(soak->world, state->strike.fault, soak->totals);
}

static bool
scene_once(struct soak *soak, uint64_t seed)
{
    struct scene_state *state = ranks_shared(sizeof(*state));
    struct test_random random = {seed};
    enum world world = soak->world;
    scene_draw(state, world, &random);
    state->deadline_s = soak->deadline_s;
    enum fault fault = state->strike.fault;
    if (!scene_is_selected(soak, state)) {
        ranks_shared_free(state, sizeof(*state));
        return true;
    }
    scene_environment(state->path);
    setenv("ULYX_ALGO", world == HOSTS ? state->algo : "", 1);
    /* TCP may take some seconds to send again what a link has lost. */
    setenv("ULYX_KEEPALIVE", fault == FAULT_BROKEN ? "10" : "1", 1);
    setenv("ULYX_DEBUG", "NONE", 0);
    state->outcome.broken +=
        world == THREADS ? run_threads(state) : run_processes(state);
    bool spoilt = state->strike.spoilt > 0;
    bool good = spoilt || is_good(&state->outcome);
    if (spoilt)
        soak->totals[fault].spoilt++;
    else
        totals_add(&soak->totals[fault], &state->outcome);
    if (!good)
        scene_blame(state, seed);
    ranks_shared_free(state, sizeof(*state));
    return good;
}

/* ---- all scenes ---------------------------------------------------------- */

static void
print_rows(enum world world, const struct totals totals[FAULTS])
{
    for (int f = 0; f < FAULTS; f++) {
        const struct outcome *o = &totals[f].outcome;
        if (totals[f].injected + totals[f].spoilt == 0)
            continue;
        char longest[32] = "-";
        if (!fault_is_harmless((enum fault)f))
            snprintf(
                longest, sizeof(longest), "%.0f", (double)o->longest_ns * 1e-6);
        printf("row\t%s\t%s\t%d\t%d\t%d\t%s\t%d\t%d\t%d\t%d\n", fault_names[f],
            world_names[world], totals[f].injected, o->injected_ranks, o->named,
            longest, o->wrong, o->leaks, o->broken, totals[f].spoilt);
    }
}

static int
usage_print(void)
{
    fprintf(stderr,
        "usage: soak threads|processes|hosts SECONDS DEADLINE [SEED "
        "[SCENES|goals]]\n");
    return 2;
}

static bool
goals_report(const struct soak *soak)
{
    bool reached = !soak->goals || goals_are_reached(soak->world, soak->totals);
    if (!reached)
        fprintf(stderr,
            "soak: %s: the time was over before the goals were "
            "reached\n",
            world_names[soak->world]);
    return reached;
}

/* Runs the program again with glibc's per-thread cache of freed blocks turned
 * off, because its blocks would count as held. glibc reads the variable only
 * when a program starts. */
static void
exactly_run(char **argv)
{
    if (getenv("GLIBC_TUNABLES"))
        return;
    setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0", 1);
    execv("/proc/self/exe", argv);
}

/* Runs scenes one after another. Returns whether all succeeded. */
static bool
soak_run(struct soak *soak, uint64_t seed, int64_t scenes, double seconds)
{
    struct holdings first = {0};
    uli_deadline_t deadline = uli_deadline_in(seconds);
    bool good = true;
    for (int64_t i = 0;
         i < scenes && !uli_deadline_over(deadline) &&
         !(soak->goals && goals_are_reached(soak->world, soak->totals));
         i++) {
        good &= scene_once(soak, seed + (uint64_t)i);
        if (i + 1 == FIRST_SCENES)
            first = holdings_now();
    }
    if (first.heap_bytes && !holdings_heap_is(&first, LATER_SLACK)) {
        soak->totals[FAULT_NONE].outcome.leaks++;
        good = false;
    }
    return good;
}

int
main(int argc, char **argv)
{
    struct soak soak = {.goals = argc > 5 && strcmp(argv[5], "goals") == 0};
    int world = 0;
    if (argc < 4)
        return usage_print();
    exactly_run(argv);
    while (world < WORLDS && strcmp(argv[1], world_names[world]) != 0)
        world++;
    if (world == WORLDS || (world == HOSTS && !getenv("ULYX_TEST_HOSTS")))
        return usage_print();
    soak.world = (enum world)world;
    soak.deadline_s = strtod(argv[3], NULL);
    uint64_t seed =
        argc > 4 ? strtoull(argv[4], NULL, 10) : (uint64_t)uli_clock_ns();
    int64_t scenes =
        argc > 5 && !soak.goals ? strtoll(argv[5], NULL, 10) : INT64_MAX;
    bool good = soak_run(&soak, seed, scenes, strtod(argv[2], NULL));
    print_rows(soak.world, soak.totals);
    return !(goals_report(&soak) && good);
}
