/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_rank ORDER: one rank of a job under mpirun that uses MPI and ulyx. ORDER
 * is a word of steps, of which each is taken in turn: c makes a communicator
 * from the environment and waits for all its ranks, i is MPI_Init and a sum, f
 * is MPI_Finalize, F is MPI_Finalize where all ranks except the first leave
 * PMIx late, n checks that PMIx is not in this process. "ok" is printed at the
 * end.
 */
#include <dlfcn.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <ulyx/ulyx.h>

/* Replaces PMIx's function, so that MPI's call comes here first. */
int PMIx_Finalize(const void *options, size_t count)
    __attribute__((visibility("default")));

static bool leaves_late;

int
PMIx_Finalize(const void *options, size_t count)
{
    int (*real)(const void *, size_t);
    void *library = dlopen("libpmix.so.2", RTLD_NOW | RTLD_NOLOAD);
    void *symbol = library ? dlsym(library, "PMIx_Finalize") : NULL;
    memcpy(&real, &symbol, sizeof(real));
    if (leaves_late)
        usleep(300000);
    return real ? real(options, count) : -1;
}

static ulyx_status_t
ranks_meet(void)
{
    ulyx_comm_t *comm;
    ulyx_status_t status = ulyx_comm_create_from_env(NULL, &comm);
    if (status)
        return status;
    status = ulyx_comm_barrier(comm);
    ulyx_comm_destroy(comm);
    return status;
}

static int
init_and_sum(void)
{
    int one = 1, sum = 0, size = -1;
    if (MPI_Init(NULL, NULL) != MPI_SUCCESS)
        return 1;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    return sum != size;
}

static int
leave_in_turn(void)
{
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    leaves_late = rank > 0;
    int failed = MPI_Finalize() != MPI_SUCCESS;
    leaves_late = false;
    return failed;
}

int
main(int argc, char **argv)
{
    const char *order = argc > 1 ? argv[1] : "";
    for (; *order; order++) {
        int failed = *order == 'c'   ? ranks_meet() != ULYX_SUCCESS
                     : *order == 'i' ? init_and_sum()
                     : *order == 'F' ? leave_in_turn()
                     : *order == 'f'
                         ? MPI_Finalize() != MPI_SUCCESS
                         : dlopen("libpmix.so.2", RTLD_NOW | RTLD_NOLOAD) != 0;
        if (failed) {
            printf("failed at %s: %s\n", order, ulyx_last_error());
            return 1;
        }
    }
    printf("ok\n");
    return 0;
}
