/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory and stream of a rank on the CUDA device that is current in its thread.
 * Both belong to the thread, because ranks may be threads.
 */
#include "device/scratch.h"
#include "model/values.h"

#include <cuda_runtime.h>
#include <stdio.h>

static _Thread_local cudaStream_t stream;
static _Thread_local double *scratch;
static _Thread_local cudaError_t first_error;

static void
values_note(cudaError_t error)
{
    if (first_error == cudaSuccess)
        first_error = error;
}

static int
values_failed(const char *what, cudaError_t error)
{
    fprintf(stderr, "train_bytes: %s: CUDA error %d\n", what, (int)error);
    return 3;
}

int
values_open(void)
{
    void *memory = NULL;
    cudaError_t error =
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);

    first_error = cudaSuccess;
    if (error == cudaSuccess)
        error = cudaMalloc(&memory, TRAIN_SCRATCH_DOUBLES * sizeof(double));
    scratch = memory;
    return error == cudaSuccess ? 0 : values_failed("device", error);
}

void
values_close(void)
{
    if (scratch)
        cudaFree(scratch);
    if (stream)
        cudaStreamDestroy(stream);
    scratch = NULL;
    stream = NULL;
}

void *
values_stream(void)
{
    return stream;
}

double *
values_scratch(void)
{
    return scratch;
}

void
values_launched(int error)
{
    values_note((cudaError_t)error);
}

int
values_wait(void)
{
    values_note(cudaStreamSynchronize(stream));
    return first_error == cudaSuccess
               ? 0
               : values_failed("work on the device", first_error);
}

void *
values_alloc(int64_t bytes)
{
    void *memory = NULL;

    if (cudaMalloc(&memory, (size_t)bytes + 8) != cudaSuccess)
        return NULL;
    values_clear(memory, bytes);
    return memory;
}

void
values_free(void *memory)
{
    if (memory)
        cudaFree(memory);
}

void
values_clear(void *memory, int64_t bytes)
{
    if (bytes > 0)
        values_note(cudaMemsetAsync(memory, 0, (size_t)bytes, stream));
}

void
values_upload(void *to, const void *host, int64_t bytes)
{
    if (bytes > 0)
        values_note(cudaMemcpyAsync(
            to, host, (size_t)bytes, cudaMemcpyHostToDevice, stream));
    values_note(cudaStreamSynchronize(stream));
}

void
values_download(void *host, const void *from, int64_t bytes)
{
    if (bytes > 0)
        values_note(cudaMemcpyAsync(
            host, from, (size_t)bytes, cudaMemcpyDeviceToHost, stream));
    values_note(cudaStreamSynchronize(stream));
}
