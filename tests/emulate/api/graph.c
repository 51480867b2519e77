/* SPDX-License-Identifier: Apache-2.0
 *
 * Graphs: what a capture recorded, and its replay. A node is a template of an
 * operation, with the nodes that it follows; a launch makes an operation from
 * each node.
 */
#include "emulate/api/api.h"

void
emu_graph_add(
    struct emu_graph *graph, struct emu_op *op, int after_a, int after_b)
{
    emu_grow(
        &graph->nodes, &graph->room, graph->count + 1, sizeof *graph->nodes);
    struct emu_node *node = &graph->nodes[graph->count++];
    memset(node, 0, sizeof *node);
    node->op = op;
    node->after = calloc(2, sizeof *node->after);
    if (!node->after)
        emu_out_of_memory("a graph");
    if (after_a >= 0)
        node->after[node->after_count++] = after_a;
    if (after_b >= 0)
        node->after[node->after_count++] = after_b;
    for (int i = 0; i < node->after_count; i++)
        graph->nodes[node->after[i]].followers++;
}

void
emu_graph_drop(struct emu_graph *graph)
{
    if (!graph || --graph->references)
        return;
    for (size_t i = 0; i < graph->count; i++) {
        emu_op_drop(graph->nodes[i].op);
        free(graph->nodes[i].after);
    }
    free(graph->nodes);
    free(graph);
}

cudaError_t
cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    if (!stream)
        return emu_result(cudaErrorStreamCaptureUnsupported);
    emu_enter();
    cudaError_t error = cudaErrorStreamCaptureUnsupported;
    if (!stream->capture) {
        stream->capture = calloc(1, sizeof *stream->capture);
        if (!stream->capture)
            emu_out_of_memory("a graph");
        stream->capture->references = 1;
        stream->last = -1;
        stream->origin = true;
        stream->capture_mode = (int)mode;
        stream->capture_thread = pthread_self();
        error = cudaSuccess;
    }
    emu_leave();
    return emu_result(error);
}

cudaError_t
cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    emu_enter();
    *status = emu_stream_of(stream)->capture ? cudaStreamCaptureStatusActive
                                             : cudaStreamCaptureStatusNone;
    emu_leave();
    return cudaSuccess;
}

static void
leave_capture(const struct emu_graph *graph, struct emu_stream *stream)
{
    if (stream->capture == graph) {
        stream->capture = NULL;
        stream->origin = false;
    }
}

/* Returns whether every branch has joined the stream on which the capture
 * began. */
static bool
graph_is_joined(const struct emu_graph *graph, int last)
{
    for (size_t i = 0; i < graph->count; i++)
        if (!graph->nodes[i].followers && (int)i != last)
            return false;
    return true;
}

cudaError_t
cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    emu_enter();
    struct emu_graph *g = stream->origin ? stream->capture : NULL;
    cudaError_t error = cudaErrorStreamCaptureUnmatched;
    if (g) {
        error = graph_is_joined(g, stream->last)
                    ? cudaSuccess
                    : cudaErrorStreamCaptureUnjoined;
        emu_streams_each(leave_capture, g);
        if (error)
            emu_graph_drop(g);
        *graph = error ? NULL : g;
    }
    emu_leave();
    return emu_result(error);
}

cudaError_t
cudaGraphInstantiate(
    cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    (void)flags;
    emu_enter();
    graph->references++;
    emu_leave();
    *exec = graph;
    return cudaSuccess;
}

static struct emu_op *
copy_op(const struct emu_op *from)
{
    struct emu_op *op = emu_op_new(from->kind, from->device);
    op->dst = from->dst;
    op->src = from->src;
    op->bytes = from->bytes;
    op->rows = from->rows;
    op->value = from->value;
    op->call = from->call;
    op->data = from->data;
    op->launch = from->launch;
    op->launch.op = op;
    if (from->launch.args) {
        op->launch.args = aligned_alloc(64, from->launch.args_bytes);
        if (!op->launch.args)
            emu_out_of_memory("arguments");
        memcpy(op->launch.args, from->launch.args, from->launch.args_bytes);
    }
    return op;
}

cudaError_t
cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    emu_enter();
    struct emu_stream *s = emu_stream_of(stream);
    struct emu_op *end = emu_op_new(EMU_OP_MARK, s->device);
    struct emu_op **ops = calloc(exec->count + 1, sizeof *ops);
    if (!ops)
        emu_out_of_memory("a graph");
    for (size_t i = 0; i < exec->count; i++) {
        const struct emu_node *node = &exec->nodes[i];
        ops[i] = copy_op(node->op);
        for (int k = 0; k < node->after_count; k++)
            emu_op_follow(ops[i], ops[node->after[k]]);
        if (!node->after_count)
            emu_op_follow(ops[i], s->tail);
        if (!node->followers)
            emu_op_follow(end, ops[i]);
    }
    for (size_t i = 0; i < exec->count; i++) {
        emu_op_start(ops[i]);
        emu_op_drop(ops[i]);
    }
    free(ops);
    emu_stream_push(s, end);
    emu_leave();
    return cudaSuccess;
}

cudaError_t
cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    return cudaGraphDestroy(exec);
}

cudaError_t
cudaGraphDestroy(cudaGraph_t graph)
{
    emu_enter();
    emu_graph_drop(graph);
    emu_leave();
    return cudaSuccess;
}
