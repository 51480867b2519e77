/* SPDX-License-Identifier: Apache-2.0
 *
 * Plays a schedule in GOAL (ulyx_info plan --export goal) on SimGrid's SMPI,
 * and prints its duration in simulated seconds. All receives are posted first.
 * Then the sends are posted in the order of the lines, each after what it
 * requires has ended. All ranks start at one moment of the simulated clock, so
 * that the duration contains no barrier.
 *
 *     smpirun -np P -platform FILE -hostfile FILE ... ./replay schedule.goal
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A line of one rank. */
struct step {
    enum { SEND, RECEIVE, NOTHING } kind;
    int bytes, peer, tag;
    int first,
        count; /* its required labels: requires[first .. first + count) */
    MPI_Request request;
};

struct program {
    struct step *steps; /* [label - 1] */
    int nsteps, capacity;
    int *requires;
    int nrequires, requires_capacity;
    int most; /* bytes of the largest message */
};

static void *
array_grown(void *array, int count, int *capacity, size_t each)
{
    if (count < *capacity)
        return array;
    *capacity = 2 * *capacity + 1024;
    array = realloc(array, (size_t)*capacity * each);
    if (!array)
        abort();
    return array;
}

static void
add_step(struct program *p, const struct step *step)
{
    p->steps =
        array_grown(p->steps, p->nsteps, &p->capacity, sizeof(*p->steps));
    p->steps[p->nsteps] = *step;
    p->steps[p->nsteps++].first = p->nrequires;
    p->most = step->bytes > p->most ? step->bytes : p->most;
}

static void
read_line(struct program *p, const char *line)
{
    struct step step = {.kind = NOTHING, .request = MPI_REQUEST_NULL};
    int label, other;

    if (sscanf(line, "l%d requires l%d", &label, &other) == 2) {
        p->requires = array_grown(p->requires, p->nrequires,
            &p->requires_capacity, sizeof(*p->requires));
        p->requires[p->nrequires++] = other;
        p->steps[label - 1].count++;
        return;
    }
    if (sscanf(line, "l%d: send %db to %d tag %d", &label, &step.bytes,
            &step.peer, &step.tag) == 4)
        step.kind = SEND;
    else if (sscanf(line, "l%d: recv %db from %d tag %d", &label, &step.bytes,
                 &step.peer, &step.tag) == 4)
        step.kind = RECEIVE;
    add_step(p, &step);
}

static void
read_program(const char *path, int rank, struct program *p)
{
    FILE *file = fopen(path, "r");
    char line[128];
    int now = -1;

    if (!file) {
        perror(path);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    memset(p, 0, sizeof(*p));
    while (fgets(line, sizeof(line), file))
        if (sscanf(line, "rank %d", &now) != 1 && now == rank && line[0] == 'l')
            read_line(p, line);
    fclose(file);
}

static void
program_play(struct program *p, char *buffer)
{
    for (int i = 0; i < p->nsteps; i++) {
        struct step *s = &p->steps[i];
        if (s->kind == RECEIVE)
            MPI_Irecv(buffer, s->bytes, MPI_BYTE, s->peer, s->tag,
                MPI_COMM_WORLD, &s->request);
    }
    for (int i = 0; i < p->nsteps; i++) {
        struct step *s = &p->steps[i];
        for (int k = s->first; k < s->first + s->count; k++)
            MPI_Wait(&p->steps[p->requires[k] - 1].request, MPI_STATUS_IGNORE);
        if (s->kind == SEND)
            MPI_Isend(buffer, s->bytes, MPI_BYTE, s->peer, s->tag,
                MPI_COMM_WORLD, &s->request);
    }
    for (int i = 0; i < p->nsteps; i++)
        MPI_Wait(&p->steps[i].request, MPI_STATUS_IGNORE);
}

int
main(int argc, char **argv)
{
    struct program program;
    double start = 10, mine, slowest;
    char *buffer;
    int rank;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    read_program(argc > 1 ? argv[1] : "", rank, &program);
    buffer = malloc((size_t)program.most + 1);
    MPI_Barrier(MPI_COMM_WORLD);
    usleep((useconds_t)((start - MPI_Wtime()) * 1e6));
    start = MPI_Wtime();
    program_play(&program, buffer);
    mine = MPI_Wtime() - start;
    MPI_Reduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%.9f\n", slowest);
    free(buffer);
    MPI_Finalize();
    return 0;
}
