/* SPDX-License-Identifier: Apache-2.0
 *
 * PMIx through dlopen of libpmix.so.2, so that one binary runs with and without
 * PMIx. This file waits on a condition variable with a deadline, because not
 * all servers honour PMIX_TIMEOUT. A request is kept by reference count,
 * because an answer may come after the deadline.
 */
#include "bootstrap/launch/pmix.h"

#include "base/status.h"

#if ULI_HAVE_PMIX

#include <dlfcn.h>
#include <errno.h>
#include <pmix.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/log.h"

#define LIBRARY "libpmix.so.2"

/* A status of PMIx 4; older servers return SUCCESS in its place. */
#ifndef PMIX_ERR_PARTIAL_SUCCESS
#define PMIX_ERR_PARTIAL_SUCCESS (-52)
#endif

struct uli_pmix {
    void *library;
    pmix_proc_t self;
    pmix_status_t (*init)(pmix_proc_t *, pmix_info_t *, size_t);
    pmix_status_t (*finalize)(const pmix_info_t *, size_t);
    pmix_status_t (*put)(pmix_scope_t, const char *, pmix_value_t *);
    pmix_status_t (*commit)(void);
    pmix_status_t (*get)(const pmix_proc_t *, const char *, const pmix_info_t *,
        size_t, pmix_value_t **);
    pmix_status_t (*fence_nb)(const pmix_proc_t *, size_t, const pmix_info_t *,
        size_t, pmix_op_cbfunc_t, void *);
    pmix_status_t (*get_nb)(const pmix_proc_t *, const char *,
        const pmix_info_t *, size_t, pmix_value_cbfunc_t, void *);
    const char *(*error_string)(pmix_status_t);
};

/* ---- library ------------------------------------------------------------- */

/* Object pointers become function pointers through memory, as in POSIX. */
static bool
pmix_find(struct uli_pmix *pmix, const char *name, void *function_p)
{
    void *symbol = dlsym(pmix->library, name);
    memcpy(function_p, &symbol, sizeof(symbol));
    return symbol != NULL;
}

static ulyx_status_t
not_here(const char *what, const char *why)
{
    char text[256];
    snprintf(text, sizeof(text), "PMIx: %s: %s", what, why ? why : "?");
    ULI_INFO(ULI_LOG_INIT, -1, "%s", text);
    return uli_error_pass(ULYX_ERR_UNSUPPORTED, text);
}

static ulyx_status_t
pmix_load(struct uli_pmix *pmix)
{
    pmix->library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!pmix->library)
        return not_here("cannot open " LIBRARY, dlerror());
    if (!pmix_find(pmix, "PMIx_Init", &pmix->init) ||
        !pmix_find(pmix, "PMIx_Finalize", &pmix->finalize) ||
        !pmix_find(pmix, "PMIx_Put", &pmix->put) ||
        !pmix_find(pmix, "PMIx_Commit", &pmix->commit) ||
        !pmix_find(pmix, "PMIx_Get", &pmix->get) ||
        !pmix_find(pmix, "PMIx_Fence_nb", &pmix->fence_nb) ||
        !pmix_find(pmix, "PMIx_Get_nb", &pmix->get_nb) ||
        !pmix_find(pmix, "PMIx_Error_string", &pmix->error_string))
        return not_here(LIBRARY " lacks a function", dlerror());
    return ULYX_SUCCESS;
}

/* ---- the process's client ------------------------------------------------ */

/* PMIx is opened once and kept, because a server does not accept a process
 * again after it has left, so that MPI_Init after a meeting would fail. PMIx
 * counts its users; the last one that leaves (this module at the end of the
 * process, or MPI_Finalize after that) sends finalize, which launchers expect
 * from every process that has sent init. */
static struct {
    pthread_mutex_t lock;
    struct uli_pmix *open;
    pid_t process; /* a forked child has no connection of its own */
} client = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void
pmix_leave(void)
{
    if (client.process == getpid())
        client.open->finalize(NULL, 0);
}

static ulyx_status_t
open_client(void)
{
    struct uli_pmix *pmix = calloc(1, sizeof(*pmix));
    if (!pmix)
        return uli_error(ULYX_ERR_NO_MEMORY, "out of memory for PMIx");
    ulyx_status_t status = pmix_load(pmix);
    if (status)
        goto err_free;
    pmix_status_t result = pmix->init(&pmix->self, NULL, 0);
    if (result != PMIX_SUCCESS) {
        status = not_here("no server", pmix->error_string(result));
        goto err_free;
    }
    client.open = pmix;
    client.process = getpid();
    atexit(pmix_leave);
    return ULYX_SUCCESS;

err_free:
    free(pmix);
    return status;
}

ulyx_status_t
uli_pmix_open(struct uli_pmix **pmix_p)
{
    ulyx_status_t status = ULYX_SUCCESS;
    pthread_mutex_lock(&client.lock);
    if (client.open && client.process != getpid())
        status = not_here("no server", "this process is a child of its client");
    else if (!client.open)
        status = open_client();
    if (!status)
        *pmix_p = client.open;
    pthread_mutex_unlock(&client.lock);
    return status;
}

static ulyx_status_t
pmix_failed(const struct uli_pmix *pmix, const char *what, pmix_status_t result)
{
    return uli_error(
        ULYX_ERR_SYSTEM, "PMIx: %s: %s", what, pmix->error_string(result));
}

ulyx_status_t
uli_pmix_size(struct uli_pmix *pmix, int32_t *rank_p, int32_t *nranks_p)
{
    pmix_value_t *value = NULL;
    pmix_proc_t job = pmix->self;
    job.rank = PMIX_RANK_WILDCARD;
    pmix_status_t result = pmix->get(&job, PMIX_JOB_SIZE, NULL, 0, &value);
    if (result != PMIX_SUCCESS)
        return pmix_failed(pmix, "the size of the job", result);
    *rank_p = (int32_t)pmix->self.rank;
    *nranks_p = (int32_t)value->data.uint32;
    free(value); /* a number has no memory of its own */
    return ULYX_SUCCESS;
}

/* ---- sharing ------------------------------------------------------------- */

struct request {
    pthread_mutex_t lock;
    pthread_cond_t answered;
    int refs; /* one for the waiter and one for the answer */
    /* The arguments of the request, which PMIx may read until it has
     * answered. */
    pmix_proc_t root;
    char key[64];
    pmix_info_t collect;
    bool done;
    pmix_status_t result;
    char text[1024];
};

static void
request_unref(struct request *request)
{
    pthread_mutex_lock(&request->lock);
    int left = --request->refs;
    pthread_mutex_unlock(&request->lock);
    if (left > 0)
        return;
    pthread_cond_destroy(&request->answered);
    pthread_mutex_destroy(&request->lock);
    free(request);
}

/* Called on a thread of PMIx. */
static void
take_answer(pmix_status_t result, pmix_value_t *value, void *context)
{
    struct request *request = context;
    pthread_mutex_lock(&request->lock);
    request->result = result;
    if (result == PMIX_SUCCESS && value && value->type == PMIX_STRING)
        snprintf(
            request->text, sizeof(request->text), "%s", value->data.string);
    request->done = true;
    pthread_cond_signal(&request->answered);
    pthread_mutex_unlock(&request->lock);
    request_unref(request);
}

static void
take_fence(pmix_status_t result, void *context)
{
    take_answer(result, NULL, context);
}

static struct request *
new_request(void)
{
    struct request *request = calloc(1, sizeof(*request));
    pthread_condattr_t attributes;
    if (!request)
        return NULL;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&request->lock, NULL);
    pthread_cond_init(&request->answered, &attributes);
    pthread_condattr_destroy(&attributes);
    request->refs = 2;
    return request;
}

static bool
wait_answer(struct request *request, uli_deadline_t deadline)
{
    struct timespec until = {deadline / 1000000000, deadline % 1000000000};
    int number = 0;
    pthread_mutex_lock(&request->lock);
    while (!request->done && number != ETIMEDOUT)
        number =
            pthread_cond_timedwait(&request->answered, &request->lock, &until);
    bool done = request->done;
    pthread_mutex_unlock(&request->lock);
    return done;
}

static ulyx_status_t
pmix_publish(struct uli_pmix *pmix, const char *key, char *text)
{
    pmix_value_t value;
    memset(&value, 0, sizeof(value));
    value.type = PMIX_STRING;
    value.data.string = text; /* copied by put */
    pmix_status_t result = pmix->put(PMIX_GLOBAL, key, &value);
    if (result == PMIX_SUCCESS)
        result = pmix->commit();
    if (result != PMIX_SUCCESS)
        return pmix_failed(pmix, "storing the meeting point", result);
    return ULYX_SUCCESS;
}

/* Waits for the answer to a request. *result_p is the result of making the
 * request, and becomes the status of the answer. Only a missing answer is an
 * error here. */
static ulyx_status_t
pmix_await(struct request *request, const char *what, uli_deadline_t deadline,
    pmix_status_t *result_p)
{
    if (*result_p != PMIX_SUCCESS) {
        request_unref(request); /* no answer will come */
        return ULYX_SUCCESS;
    }
    if (!wait_answer(request, deadline))
        return uli_error(
            ULYX_ERR_TIMEOUT, "PMIx: %s: no answer before the deadline", what);
    *result_p = request->result;
    return ULYX_SUCCESS;
}

static ulyx_status_t
pmix_fence_once(
    struct uli_pmix *pmix, uli_deadline_t deadline, pmix_status_t *result_p)
{
    struct request *request = new_request();
    if (!request)
        return uli_error(ULYX_ERR_NO_MEMORY, "out of memory for PMIx");
    strcpy(request->collect.key, PMIX_COLLECT_DATA);
    request->collect.value.type = PMIX_BOOL;
    request->collect.value.data.flag = true;
    *result_p =
        pmix->fence_nb(NULL, 0, &request->collect, 1, take_fence, request);
    ulyx_status_t status =
        pmix_await(request, "waiting for all ranks", deadline, result_p);
    request_unref(request);
    return status;
}

/* A fence of all ranks: values that were committed before the fence can be read
 * after it. If a rank's connection ends, even by MPI_Finalize of a rank that
 * connects again soon, PMIx's server excludes the rank from the fences that
 * other ranks are in. Such a fence ends in PARTIAL_SUCCESS for all its ranks,
 * which then enter the next fence. */
static ulyx_status_t
pmix_fence(struct uli_pmix *pmix, uli_deadline_t deadline)
{
    pmix_status_t result;
    bool again;
    do {
        ULI_TRY(pmix_fence_once(pmix, deadline, &result));
        again = result == PMIX_ERR_PARTIAL_SUCCESS;
    } while (again && !uli_deadline_over(deadline));
    return result == PMIX_SUCCESS
               ? ULYX_SUCCESS
               : pmix_failed(pmix, "waiting for all ranks", result);
}

static ulyx_status_t
pmix_fetch(struct uli_pmix *pmix, const char *key, char *value_p, size_t bytes,
    uli_deadline_t deadline)
{
    struct request *request = new_request();
    if (!request)
        return uli_error(ULYX_ERR_NO_MEMORY, "out of memory for PMIx");
    request->root = pmix->self;
    request->root.rank = 0;
    snprintf(request->key, sizeof(request->key), "%s", key);
    pmix_status_t result = pmix->get_nb(
        &request->root, request->key, NULL, 0, take_answer, request);
    const char *what = "reading the meeting point";
    ulyx_status_t status = pmix_await(request, what, deadline, &result);
    if (!status && result != PMIX_SUCCESS)
        status = pmix_failed(pmix, what, result);
    if (!status)
        snprintf(value_p, bytes, "%s", request->text);
    request_unref(request);
    return status;
}

ulyx_status_t
uli_pmix_share(struct uli_pmix *pmix, int32_t rank, const char *key,
    char *value, size_t bytes, uli_deadline_t deadline)
{
    if (rank == 0)
        ULI_TRY(pmix_publish(pmix, key, value));
    ULI_TRY(pmix_fence(pmix, deadline));
    return rank == 0 ? ULYX_SUCCESS
                     : pmix_fetch(pmix, key, value, bytes, deadline);
}

#else

ulyx_status_t
uli_pmix_open(struct uli_pmix **pmix_p)
{
    (void)pmix_p;
    return uli_error_pass(
        ULYX_ERR_UNSUPPORTED, "PMIx: this library was built without it");
}

ulyx_status_t
uli_pmix_size(struct uli_pmix *pmix, int32_t *rank_p, int32_t *nranks_p)
{
    (void)pmix, (void)rank_p, (void)nranks_p;
    return ULYX_ERR_UNSUPPORTED;
}

ulyx_status_t
uli_pmix_share(struct uli_pmix *pmix, int32_t rank, const char *key,
    char *value, size_t bytes, uli_deadline_t deadline)
{
    (void)pmix, (void)rank, (void)key, (void)value, (void)bytes;
    (void)deadline;
    return ULYX_ERR_UNSUPPORTED;
}

#endif
