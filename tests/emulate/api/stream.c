/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams, events and host calls.
 */
#include "emulate/api/api.h"

static struct emu_stream defaults[EMU_DEVICES];
static struct emu_stream *streams;

struct emu_stream *
emu_stream_of(cudaStream_t stream)
{
    if (stream)
        return stream;
    int device = emu_current_device();
    defaults[device].device = device;
    return &defaults[device];
}

void
emu_stream_push(struct emu_stream *stream, struct emu_op *op)
{
    if (stream->capture) {
        emu_graph_add(stream->capture, op, stream->last, -1);
        stream->last = (int)stream->capture->count - 1;
        return;
    }
    emu_op_follow(op, stream->tail);
    emu_op_start(op);
    emu_op_drop(stream->tail);
    stream->tail = op;
}

void
emu_streams_free(void)
{
    for (int d = 0; d < EMU_DEVICES; d++) {
        emu_op_drop(defaults[d].tail);
        defaults[d].tail = NULL;
    }
    while (streams) {
        struct emu_stream *s = streams;
        streams = s->next;
        emu_op_drop(s->tail);
        free(s);
    }
}

void
emu_streams_each(void (*act)(const struct emu_graph *, struct emu_stream *),
    const struct emu_graph *graph)
{
    for (struct emu_stream *s = streams; s; s = s->next)
        act(graph, s);
}

cudaError_t
cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    (void)flags;
    struct emu_stream *s = calloc(1, sizeof *s);
    if (!s)
        return emu_result(cudaErrorMemoryAllocation);
    emu_enter();
    s->device = emu_current_device();
    s->last = -1;
    s->next = streams;
    streams = s;
    emu_leave();
    *stream = s;
    return cudaSuccess;
}

cudaError_t
cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

/* Only the handle is destroyed; the work in the stream continues. */
cudaError_t
cudaStreamDestroy(cudaStream_t stream)
{
    emu_enter();
    for (struct emu_stream **s = &streams; *s; s = &(*s)->next)
        if (*s == stream) {
            *s = stream->next;
            break;
        }
    emu_op_drop(stream->tail);
    emu_leave();
    free(stream);
    return cudaSuccess;
}

cudaError_t
cudaStreamSynchronize(cudaStream_t stream)
{
    emu_enter();
    struct emu_stream *s = emu_stream_of(stream);
    cudaError_t error = s->capture          ? cudaErrorStreamCaptureUnsupported
                        : s->tail           ? emu_host_wait(s->tail)
                        : emu_fault_count() ? cudaErrorLaunchFailure
                                            : cudaSuccess;
    emu_leave();
    return emu_result(error);
}

/* Waits for the last operation of each stream at the time of the call, and for
 * no later one: beside streams that other threads keep busy the host would
 * otherwise never return. */
cudaError_t
emu_device_wait(int device)
{
    struct emu_op **tails = NULL;
    size_t count = 0, room = 0;
    cudaError_t error =
        emu_fault_count() ? cudaErrorLaunchFailure : cudaSuccess;
    for (int d = 0; d < EMU_DEVICES; d++)
        if ((device < 0 || d == device) && defaults[d].tail) {
            emu_grow(&tails, &room, count + 1, sizeof *tails);
            tails[count++] = emu_op_hold(defaults[d].tail);
        }
    for (struct emu_stream *s = streams; s; s = s->next)
        if ((device < 0 || s->device == device) && s->tail) {
            emu_grow(&tails, &room, count + 1, sizeof *tails);
            tails[count++] = emu_op_hold(s->tail);
        }
    for (size_t i = 0; i < count; i++) {
        error = emu_host_wait(tails[i]);
        emu_op_drop(tails[i]);
    }
    free(tails);
    return error;
}

cudaError_t
cudaDeviceSynchronize(void)
{
    emu_enter();
    cudaError_t error = emu_device_wait(emu_current_device());
    emu_leave();
    return emu_result(error);
}

bool
emu_capture_forbids(int mode)
{
    for (const struct emu_stream *s = streams; s; s = s->next)
        if (s->capture && s->origin &&
            s->capture_mode != cudaStreamCaptureModeRelaxed &&
            mode != cudaStreamCaptureModeRelaxed &&
            (mode == cudaStreamCaptureModeGlobal &&
                        s->capture_mode == cudaStreamCaptureModeGlobal
                    ? true
                    : pthread_equal(s->capture_thread, pthread_self())))
            return true;
    return false;
}

/* A host that learns that the work is done is ordered after the work. */
static cudaError_t
op_query(const struct emu_op *op)
{
    if (op && op->done)
        emu_clocks_join(emu.host, op->clocks);
    return op && !op->done     ? cudaErrorNotReady
           : emu_fault_count() ? cudaErrorLaunchFailure
                               : cudaSuccess;
}

cudaError_t
cudaStreamQuery(cudaStream_t stream)
{
    emu_enter_query();
    cudaError_t error = op_query(emu_stream_of(stream)->tail);
    emu_leave();
    return error;
}

cudaError_t
cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t call, void *data)
{
    emu_enter();
    struct emu_stream *s = emu_stream_of(stream);
    struct emu_op *op = emu_op_new(EMU_OP_HOST, s->device);
    op->call = call;
    op->data = data;
    emu_stream_push(s, op);
    emu_leave();
    return cudaSuccess;
}

cudaError_t
cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    (void)flags;
    *event = calloc(1, sizeof **event);
    if (!*event)
        return emu_result(cudaErrorMemoryAllocation);
    (*event)->device = emu_current_device();
    return cudaSuccess;
}

cudaError_t
cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t
cudaEventDestroy(cudaEvent_t event)
{
    emu_enter();
    emu_op_drop(event->op);
    emu_leave();
    free(event);
    return cudaSuccess;
}

cudaError_t
cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    emu_enter();
    struct emu_stream *s = emu_stream_of(stream);
    if (s->device != event->device) {
        emu_leave();
        return emu_result(cudaErrorInvalidResourceHandle);
    }
    struct emu_op *op = emu_op_new(EMU_OP_MARK, s->device);
    event->capture = s->capture;
    if (!s->capture) {
        emu_op_drop(event->op);
        event->op = emu_op_hold(op);
    }
    emu_stream_push(s, op);
    event->node = s->last;
    emu_leave();
    return cudaSuccess;
}

/* A stream that waits for an event of a capture joins the capture. */
static void
wait_in_capture(struct emu_stream *s, const struct emu_event *event)
{
    if (!s->capture) {
        s->capture = event->capture;
        s->last = -1;
    }
    struct emu_op *op = emu_op_new(EMU_OP_MARK, s->device);
    emu_graph_add(s->capture, op, s->last, event->node);
    s->last = (int)s->capture->count - 1;
}

cudaError_t
cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    (void)flags;
    emu_enter();
    struct emu_stream *s = emu_stream_of(stream);
    cudaError_t error = cudaSuccess;
    if (event->capture && (!s->capture || s->capture == event->capture)) {
        wait_in_capture(s, event);
    } else if (event->capture || s->capture) {
        error = cudaErrorStreamCaptureUnsupported;
    } else if (event->op) {
        struct emu_op *op = emu_op_new(EMU_OP_MARK, s->device);
        emu_op_follow(op, event->op);
        emu_stream_push(s, op);
    }
    emu_leave();
    return emu_result(error);
}

cudaError_t
cudaEventSynchronize(cudaEvent_t event)
{
    emu_enter();
    cudaError_t error = event->op ? emu_host_wait(event->op) : cudaSuccess;
    emu_leave();
    return emu_result(error);
}

cudaError_t
cudaEventQuery(cudaEvent_t event)
{
    emu_enter_query();
    cudaError_t error = op_query(event->op);
    emu_leave();
    return error;
}

/* The time is virtual. */
cudaError_t
cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b)
{
    if (!a->op || !b->op || !a->op->done || !b->op->done)
        return emu_result(cudaErrorNotReady);
    *ms = (float)((double)(b->op->end_ns - a->op->end_ns) * 1e-6);
    return cudaSuccess;
}
