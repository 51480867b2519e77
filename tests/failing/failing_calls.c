/* SPDX-License-Identifier: Apache-2.0
 *
 * failing_calls [--stride N] [--first N] [--world NAME] [--kind NAME]
 *               [--call N]
 *
 * For each world and each kind of call, makes the n-th call fail, for n =
 * first, first + stride, ... until a run makes fewer calls than n. Each run
 * must end with an error with a text at some ranks, or with success at all
 * ranks; no rank may wait until its deadline; nothing may be kept; and the
 * scene must succeed again afterwards. Each run is in processes of its own.
 * Prints a line for each run that went wrong, and the table. Ends with 1 if any
 * run went wrong.
 *
 * Worlds: local (threads), id (threads that meet by a unique id), nodes
 * (threads that count as two nodes, over UCX), processes (by the environment).
 */
#include <dirent.h>
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/settings.h"
#include "base/system/clock.h"
#include "bootstrap/meet/root.h"
#include "failing/failing.h"
#include "failing/scene.h"
#include "support/aborts.h"
#include "topology/topology.h"

enum { DEADLINE_S = 10, LIMIT_S = 120, SETTLE_S = 8, TRIES = 5 };
enum phase { PHASE_WARM, PHASE_BEFORE, PHASE_FAILING, PHASE_AFTER, PHASES };

struct world {
    const char *name, *ranks_per_node;
    bool processes;
    /* ids made in the failing scene and after it: the library remembers each
     * id, up to 1024, in a block of memory */
    int ids;
};
static const struct world worlds[] = {
    {"local", NULL, false, 0},
    {"id", NULL, false, 2},
    {"nodes", "2", false, 2},
    {"processes", NULL, true, 0},
};
enum { WORLDS = sizeof(worlds) / sizeof(worlds[0]) };

struct holdings {
    int descriptors, threads, mappings;
    long blocks;
};

/* Lies in memory that the processes of a run share. */
struct run {
    const struct world *world;
    int kind, n;
    int calls;          /* calls of the kind in a scene where none fails */
    _Atomic int spoilt; /* processes that UCX has ended by an assertion */
    bool fired, ended[SCENE_RANKS];
    struct scene_end ends[SCENE_RANKS][PHASES];
    struct holdings before[SCENE_RANKS], after[SCENE_RANKS];
};

struct rank {
    struct run *run;
    int rank;
    enum phase phase;
    ulyx_comm_t *comm;
    const ulyx_unique_id_t *id;
};

/* ---- what a process holds ------------------------------------------------ */

static int
count_entries(const char *path)
{
    DIR *folder = opendir(path);
    int count = 0;
    while (folder && readdir(folder))
        count++;
    if (folder)
        closedir(folder);
    return count;
}

static struct holdings
holdings_now(void)
{
    struct holdings now = {count_entries("/proc/self/fd"),
        count_entries("/proc/self/task"), 0, failing_blocks()};
    char line[512];
    FILE *file = fopen("/proc/self/maps", "r");
    while (file && fgets(line, sizeof(line), file))
        now.mappings += strstr(line, "memfd:ulyx") != NULL;
    if (file)
        fclose(file);
    return now;
}

static bool
holds_more(const struct world *world, const struct holdings *now,
    const struct holdings *before)
{
    return now->descriptors > before->descriptors ||
           now->threads > before->threads || now->mappings > before->mappings ||
           now->blocks > before->blocks + world->ids;
}

/* Waits until the process holds no more than before, or until what it holds has
 * not changed for a while. */
static struct holdings
holdings_settled(const struct world *world, const struct holdings *before)
{
    struct holdings now = holdings_now();
    uli_deadline_t deadline = uli_deadline_in(before ? SETTLE_S : 1.5);
    while (!uli_deadline_over(deadline) &&
           (before ? holds_more(world, &now, before) : uli_root_count() > 0)) {
        uli_clock_sleep_ns(2000000);
        now = holdings_now();
    }
    return now;
}

/* After a failure, ranks may begin the next scene up to a deadline apart. */
static double
phase_deadline_s(enum phase phase)
{
    return phase == PHASE_AFTER ? 4 * DEADLINE_S : DEADLINE_S;
}

/* ---- a rank -------------------------------------------------------------- */

static ulyx_status_t
rank_create(struct rank *rank)
{
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    char text[64];
    params.timeout_s = phase_deadline_s(rank->phase);
    if (rank->comm)
        return ULYX_SUCCESS;
    if (rank->id)
        return ulyx_comm_create(
            rank->id, SCENE_RANKS, rank->rank, &params, &rank->comm);
    snprintf(text, sizeof(text), "failing-%d-%d", (int)getppid(), rank->phase);
    setenv("ULYX_JOB", text, 1);
    return ulyx_comm_create_from_env(&params, &rank->comm);
}

static void *
rank_main(void *context)
{
    struct rank *rank = context;
    struct scene_end *end = &rank->run->ends[rank->rank][rank->phase];
    if (scene_note(end, STEP_CREATE, rank_create(rank)))
        scene_run(rank->comm, rank->rank, end);
    return NULL;
}

/* ---- ranks as threads ---------------------------------------------------- */

static ulyx_status_t
threads_begin(const struct run *run, ulyx_comm_t **comms, ulyx_unique_id_t *id)
{
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    params.timeout_s = DEADLINE_S;
    if (run->world == &worlds[0])
        return ulyx_comm_create_local(SCENE_RANKS, &params, comms);
    return ulyx_unique_id_create(id);
}

static void
threads_scene(struct run *run, enum phase phase)
{
    ulyx_comm_t *comms[SCENE_RANKS] = {NULL};
    ulyx_unique_id_t id;
    struct rank ranks[SCENE_RANKS];
    pthread_t threads[SCENE_RANKS];
    if (!scene_note(
            &run->ends[0][phase], STEP_CREATE, threads_begin(run, comms, &id)))
        return;
    for (int r = 0; r < SCENE_RANKS; r++) {
        ranks[r] = (struct rank){
            run, r, phase, comms[r], run->world == &worlds[0] ? NULL : &id};
        if (failing_thread(&threads[r], rank_main, &ranks[r]))
            abort();
    }
    for (int r = 0; r < SCENE_RANKS; r++)
        pthread_join(threads[r], NULL);
    if (run->world != &worlds[0])
        ulyx_unique_id_destroy(&id); /* a meeting may have used it up */
}

static void
threads_run(struct run *run)
{
    threads_scene(run, PHASE_WARM);
    failing_arm(run->kind, 0); /* n = 0: counts the calls */
    threads_scene(run, PHASE_BEFORE);
    failing_disarm(&run->calls);
    run->before[0] = holdings_settled(run->world, NULL);
    failing_arm(run->kind, run->n);
    threads_scene(run, PHASE_FAILING);
    run->fired = failing_disarm(NULL);
    threads_scene(run, PHASE_AFTER);
    run->after[0] = holdings_settled(run->world, &run->before[0]);
    for (int r = 0; r < SCENE_RANKS; r++)
        run->ended[r] = true;
}

/* ---- ranks as processes -------------------------------------------------- */

static void
process_scene(struct run *run, int rank, enum phase phase)
{
    struct rank one = {run, rank, phase, NULL, NULL};
    rank_main(&one);
}

static void
process_run(struct run *run, int rank)
{
    char text[16];
    bool fails = rank == (run->n - 1) % SCENE_RANKS;
    snprintf(text, sizeof(text), "%d", rank);
    setenv("ULYX_RANK", text, 1);
    setenv("ULYX_NRANKS", "3", 1);
    setenv("ULYX_LOCAL_NRANKS", "3", 1);
    process_scene(run, rank, PHASE_WARM);
    if (fails)
        failing_arm(run->kind, 0); /* n = 0: counts the calls */
    process_scene(run, rank, PHASE_BEFORE);
    if (fails)
        failing_disarm(&run->calls);
    run->before[rank] = holdings_settled(run->world, NULL);
    if (fails)
        failing_arm(run->kind, (run->n - 1) / SCENE_RANKS + 1);
    process_scene(run, rank, PHASE_FAILING);
    if (fails)
        run->fired = failing_disarm(NULL);
    process_scene(run, rank, PHASE_AFTER);
    run->after[rank] = holdings_settled(run->world, &run->before[rank]);
    run->ended[rank] = true;
}

/* ---- a run --------------------------------------------------------------- */

static pid_t
run_start(struct run *run, int rank)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    alarm(LIMIT_S);
    aborts_watch(&run->spoilt);
    /* how long the thread of a failed meeting stays */
    uli_root_limit_linger(0.2);
    if (run->world->ranks_per_node)
        setenv("ULYX_RANKS_PER_NODE", run->world->ranks_per_node, 1);
    if (run->world->processes)
        process_run(run, rank);
    else
        threads_run(run);
    _exit(0);
}

static bool
run_complain(
    const struct run *run, int rank, const char *what, const char *text)
{
    printf("%s, %s call %d: rank %d %s: %s\n", run->world->name,
        failing_names[run->kind], run->n, rank, what, text);
    return false;
}

/* A rank cannot notify the others if it fails before it reaches the meeting or,
 * in the case of rank 0, before it serves the meeting. */
static bool
was_never_there(const struct run *run, const struct scene_end *end)
{
    const struct scene_end *root = &run->ends[0][PHASE_FAILING];
    if (end->step != STEP_CREATE)
        return false;
    if (strstr(end->text, "no root could be reached"))
        return root->step == STEP_CREATE && root->status != ULYX_SUCCESS;
    return strstr(end->text, "waiting for rank ") &&
           strstr(end->text, " to join");
}

static bool
check_phase(const struct run *run, int rank, enum phase phase)
{
    static const char *const names[PHASES] = {
        "warming up", "before", "failing", "after"};
    const struct scene_end *end = &run->ends[rank][phase];
    char text[SCENE_TEXT + 64];
    snprintf(text, sizeof(text), "%s, %s: %s", names[phase],
        scene_steps[end->step], end->text);
    if (end->wrong)
        return run_complain(run, rank, "has wrong data or keeps objects", text);
    if (phase != PHASE_FAILING && end->status != ULYX_SUCCESS)
        return run_complain(run, rank, "failed", text);
    if (end->status != ULYX_SUCCESS && !end->text[0])
        return run_complain(run, rank, "has an error without a text", text);
    if (end->status == ULYX_ERR_TIMEOUT && !was_never_there(run, end))
        return run_complain(run, rank, "waited for its deadline", text);
    return true;
}

static bool
check_rank(const struct run *run, int rank)
{
    const struct holdings *a = &run->before[rank], *b = &run->after[rank];
    char text[160];
    if (!run->ended[rank])
        return run_complain(run, rank, "did not end", "crashed or hung");
    for (int phase = 0; phase < PHASES; phase++)
        if (!check_phase(run, rank, (enum phase)phase))
            return false;
    snprintf(text, sizeof(text),
        "descriptors %d to %d, threads %d to %d, mappings %d to %d, blocks %ld "
        "to %ld; failing: %s",
        a->descriptors, b->descriptors, a->threads, b->threads, a->mappings,
        b->mappings, a->blocks, b->blocks,
        scene_steps[run->ends[rank][PHASE_FAILING].step]);
    return !holds_more(run->world, b, a) ||
           run_complain(run, rank, "keeps", text);
}

static void
run_once(struct run *run, const struct world *world, int kind, int n)
{
    int count = world->processes ? SCENE_RANKS : 1;
    pid_t pids[SCENE_RANKS];
    memset(run, 0, sizeof(*run));
    *run = (struct run){.world = world, .kind = kind, .n = n};
    for (int r = 0; r < count; r++)
        pids[r] = run_start(run, r);
    for (int r = 0; r < count; r++) {
        int status;
        waitpid(pids[r], &status, 0);
        if (WIFSIGNALED(status))
            printf("process of rank %d: %s\n", r, strsignal(WTERMSIG(status)));
    }
}

/* Makes one run, and repeats it where UCX has ended a process. Stores in
 * *well_p whether all requirements hold. Returns whether the n-th call was
 * reached. */
static bool
run_one(
    struct run *run, const struct world *world, int kind, int n, bool *well_p)
{
    int tries = 0;
    do
        run_once(run, world, kind, n);
    while (run->spoilt > 0 && ++tries < TRIES);
    *well_p = true;
    for (int r = 0; r < SCENE_RANKS; r++)
        *well_p &= check_rank(run, r);
    return run->fired || !run->ended[0];
}

/* ---- all runs ------------------------------------------------------------ */

struct options {
    int stride, first, call;
    const char *world, *kind;
};

static int
run_kind(struct run *run, const struct world *world, int kind,
    const struct options *o)
{
    int runs = 0, bad = 0, n = o->call ? o->call : o->first;
    for (bool reached = true, well; reached && n < 5000; n += o->stride) {
        reached = run_one(run, world, kind, n, &well);
        runs += reached;
        bad += !well;
        /* A sweep with a stride above 1 ends at the last n that is reached; the
         * run that no longer reaches its n is left out. */
        int all = run->calls * (world->processes ? SCENE_RANKS : 1);
        if (o->call || (o->stride > 1 && n + o->stride > all))
            break;
    }
    if (runs)
        printf("%-10s %-15s %5d runs, %d went wrong\n", world->name,
            failing_names[kind], runs, bad);
    fflush(stdout);
    return bad;
}

static struct options
options_read(int argc, char **argv)
{
    static const struct option names[] = {{"stride", 1, NULL, 's'},
        {"first", 1, NULL, 'f'}, {"call", 1, NULL, 'c'},
        {"world", 1, NULL, 'w'}, {"kind", 1, NULL, 'k'}, {NULL, 0, NULL, 0}};
    struct options o = {1, 1, 0, NULL, NULL};
    for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;)
        switch (c) {
        case 's':
            o.stride = atoi(optarg);
            break;
        case 'f':
            o.first = atoi(optarg);
            break;
        case 'c':
            o.call = atoi(optarg);
            break;
        case 'w':
            o.world = optarg;
            break;
        case 'k':
            o.kind = optarg;
            break;
        default:
            exit(2);
        }
    return o;
}

/* Loads what the first communicator of a process loads and the process keeps:
 * the machine's description. Not every creation needs it, but one whose look-up
 * of NUMA nodes fails does, and the description would then count as kept. */
static bool
topology_warm(void)
{
    static struct uli_settings settings;

    return uli_settings_load(&settings) == ULYX_SUCCESS &&
           uli_topology_shared(&settings);
}

int
main(int argc, char **argv)
{
    struct options o = options_read(argc, argv);
    struct run *run = mmap(NULL, sizeof(*run), PROT_READ | PROT_WRITE,
        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int bad = 0;
    if (run == MAP_FAILED || o.stride < 1 || o.first < 1)
        return 2;
    setenv("ULYX_DEBUG", "NONE", 1);
    if (!topology_warm())
        return 2;
    for (int w = 0; w < WORLDS; w++)
        for (int kind = 0; kind < failing_kinds(); kind++)
            if ((!o.world || !strcmp(o.world, worlds[w].name)) &&
                (!o.kind || !strcmp(o.kind, failing_names[kind])))
                bad += run_kind(run, &worlds[w], kind, &o);
    return bad > 0;
}
