/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_rank ORDER: one rank of a job under mpirun that uses MPI and ulyx. ORDER
 * is a word of steps, of which each is taken in turn: c makes a communicator
 * from the environment and waits for all in it, i is MPI_Init and a sum, f is
 * MPI_Finalize, n says that PMIx is not in this process. "ok" is printed at the
 * end.
 */
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <ulyx/ulyx.h>

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

int
main(int argc, char **argv)
{
    const char *order = argc > 1 ? argv[1] : "";
    for (; *order; order++) {
        int failed = *order == 'c'   ? ranks_meet() != ULYX_SUCCESS
                     : *order == 'i' ? init_and_sum()
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
