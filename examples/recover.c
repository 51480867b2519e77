/* SPDX-License-Identifier: Apache-2.0
 *
 * A loop of exchanges between windows that survives the loss of ranks. One
 * process per rank. `recover R K` kills rank R in step K, and the other ranks
 * go on without it.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ulyx/ulyx.h>

#define TRY(call)                                                              \
    do {                                                                       \
        ulyx_status_t status_ = (call);                                        \
        if (status_ != ULYX_SUCCESS)                                           \
            return fprintf(stderr, "%s: %s\n", #call, ulyx_last_error()),      \
                   status_;                                                    \
    } while (0)

enum { TOKENS = 24, HEADS = 6, DIM = 2, ALL = TOKENS * HEADS * DIM };
enum { STEPS = 20 };

/* What a rank has until a rank is lost. */
struct job {
    ulyx_comm_t *comm;
    ulyx_mem_t *mem; /* a window: seq[ALL], then head[ALL] */
    ulyx_plan_t *plan;
    float *seq, *head;
    int64_t position[TOKENS], rows, head_count;
};

/* Stands for a checkpoint: element i of token `position` after `steps`
 * steps. */
static float
checkpoint_value(int64_t position, int64_t i, uint64_t steps)
{
    return (float)(position * 16 + i) + (float)steps;
}

/* Makes the window and the plan on job->comm, and fills seq with its state
 * after `steps` steps. */
static ulyx_status_t
job_start(struct job *job, uint64_t steps)
{
    ulyx_part_t tokens = ULYX_PART_INIT;
    ulyx_tensor_t x = ULYX_TENSOR_INIT;
    ulyx_plan_params_t params = ULYX_PLAN_PARAMS_INIT;
    int64_t first;
    int32_t rank;
    void *memory;

    TRY(ulyx_mem_alloc(2 * ALL * sizeof(float), NULL, &job->mem, &memory));
    TRY(ulyx_mem_attach(job->comm, job->mem));
    job->seq = (float *)memory, job->head = job->seq + ALL;
    tokens.rows = TOKENS, x.dtype = ULYX_DTYPE_F32, x.heads = HEADS;
    x.dim = DIM, params.heads = HEADS, params.parts = &tokens;
    params.nparts = 1, params.tensors = &x, params.ntensors = 1;
    params.seq_memory = params.head_memory = ULYX_POINTER_WINDOW;
    TRY(ulyx_plan_create(job->comm, &params, &job->plan));
    TRY(ulyx_comm_get_rank(job->comm, &rank));
    TRY(ulyx_plan_get_seq_rows(job->plan, 0, rank, &job->rows));
    TRY(ulyx_plan_get_heads(job->plan, 0, rank, &first, &job->head_count));
    TRY(ulyx_plan_get_positions(job->plan, 0, rank, TOKENS, job->position));
    for (int64_t i = 0; i < job->rows * HEADS * DIM; i++)
        job->seq[i] = checkpoint_value(
            job->position[i / (HEADS * DIM)], i % (HEADS * DIM), steps);
    return ULYX_SUCCESS;
}

/* Exchanges seq to head, does the work of the step on all tokens, and exchanges
 * back. */
static ulyx_status_t
job_step(struct job *job)
{
    const void *from_seq[] = {job->seq}, *from_head[] = {job->head};
    void *to_seq[] = {job->seq}, *to_head[] = {job->head};

    TRY(ulyx_reshuffle_execute(
        job->plan, ULYX_SEQ_TO_HEAD, from_seq, to_head, NULL));
    for (int64_t i = 0; i < TOKENS * job->head_count * DIM; i++)
        job->head[i] += 1;
    TRY(ulyx_reshuffle_execute(
        job->plan, ULYX_HEAD_TO_SEQ, from_head, to_seq, NULL));
    return ULYX_SUCCESS;
}

/* Frees all but the memory of a quarantined window: a rank that is stopped, and
 * not dead, may go on later and store into the window. Until the stopped rank
 * answers or is known to be dead, detach and free return BUSY, and the memory
 * stays. */
static ulyx_status_t
job_end(struct job *job)
{
    TRY(ulyx_plan_destroy(job->plan));
    if (ulyx_mem_detach(job->comm, job->mem) != ULYX_SUCCESS)
        fprintf(stderr, "%s\n", ulyx_last_error());
    TRY(ulyx_comm_destroy(job->comm));
    if (ulyx_mem_free(job->mem) != ULYX_SUCCESS)
        fprintf(stderr, "%s\n", ulyx_last_error());
    return ULYX_SUCCESS;
}

/* Runs until all steps are done or the communicator has failed. *done_p, which
 * is the same on all living ranks: the number of steps that all of them have
 * done. */
static ulyx_status_t
job_run(struct job *job, uint64_t *done_p, int victim, uint64_t last_step)
{
    uint64_t done = *done_p;
    int32_t rank;

    TRY(ulyx_comm_get_rank(job->comm, &rank));
    for (; done < STEPS; done++) {
        if (rank == victim && done == last_step)
            raise(SIGKILL);
        if (job_step(job) != ULYX_SUCCESS) {
            ulyx_comm_abort(job->comm); /* so that no rank waits for this one */
            break;
        }
    }
    return ulyx_comm_agree(job->comm, done, ULYX_AGREE_MIN, done_p, NULL);
}

int
main(int argc, char **argv)
{
    int victim = argc > 1 ? atoi(argv[1]) : -1;
    uint64_t last_step = argc > 2 ? (uint64_t)atoi(argv[2]) : 0, done = 0;
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    struct job job;
    int32_t nranks, wrong = 0;

    memset(&job, 0, sizeof(job));
    params.timeout_s = 20;
    TRY(ulyx_comm_create_from_env(&params, &job.comm));
    TRY(job_start(&job, 0));
    TRY(job_run(&job, &done, victim, last_step));
    while (done < STEPS) { /* a rank is lost: go on from the checkpoint */
        struct job next;
        memset(&next, 0, sizeof(next));
        TRY(ulyx_comm_shrink(job.comm, NULL, &next.comm));
        TRY(job_end(&job));
        job = next;
        TRY(job_start(&job, done));
        TRY(job_run(&job, &done, -1, 0));
    }
    for (int64_t i = 0; i < job.rows * HEADS * DIM; i++)
        wrong += job.seq[i] != checkpoint_value(job.position[i / (HEADS * DIM)],
                                   i % (HEADS * DIM), STEPS);
    TRY(ulyx_comm_get_nranks(job.comm, &nranks));
    printf("%d ranks ended step %d, %d wrong\n", nranks, STEPS, wrong);
    TRY(job_end(&job));
    return wrong ? 1 : 0;
}
