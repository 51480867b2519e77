/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of parts.h on a device: plain kernels with one thread per element or
 * row, and sums in the order of the host's loops. They are simple, so that they can
 * be read and compared with the host; a trainer for real use would call cuBLAS.
 */
#include <math.h>
#include <stdint.h>
#include <ulyx/ulyx.h>
#include "device/cuda/kernel.h"

extern "C" {
#include "data.h"
#include "device/scratch.h"
#include "model/parts.h"
#include "model/values.h"
}

enum { THREADS = 128, BLOCKS_MAX = 4096, NORM_THREADS = 256 };

/* One thread per element; in a loop where there are more elements than threads. */
template <typename Body>
__global__ void
__launch_bounds__(THREADS, 1) each_kernel(int64_t count, const Body body)
{
    int64_t step = (int64_t)gridDim.x * THREADS;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < count;
         i += step)
        body(i);
}

template <typename Body>
static void
each_launch(int64_t count, const Body &body)
{
    int64_t blocks = (count + THREADS - 1) / THREADS;
    if (count <= 0)
        return;
    if (blocks > BLOCKS_MAX)
        blocks = BLOCKS_MAX;
    struct uli_launch_config launch = {dim3((unsigned)blocks), dim3(THREADS), 0,
        (cudaStream_t)values_stream()};
    values_launched(
        uli_kernel_launch(launch, each_kernel<Body>, count, body));
}

/* ---- products ------------------------------------------------------------ */

/* c[i][j] = keep * c[i][j] + sum over k of a(i, k) * b(k, j), where a and b are
 * addressed by strides. */
struct product {
    int64_t columns, depth;
    const float *a, *b;
    int64_t a_row, a_step, b_step, b_column;
    float keep, *c;

    __device__ void
    operator()(int64_t n) const
    {
        const float *from = a + n / columns * a_row;
        const float *with = b + n % columns * b_column;
        float sum = 0;
        for (int64_t k = 0; k < depth; k++)
            sum = fmaf(from[k * a_step], with[k * b_step], sum);
        c[n] = keep == 0 ? sum : keep * c[n] + sum;
    }
};

void
linear_output(int64_t rows, int64_t in, int64_t out, const real *x,
    const real *w, real *y)
{
    each_launch(rows * out, product{out, in, x, w, in, 1, out, 1, 0, y});
}

void
linear_input(int64_t rows, int64_t in, int64_t out, const real *dy,
    const real *w, real keep, real *dx)
{
    each_launch(rows * in, product{in, out, dy, w, out, 1, 1, out, keep, dx});
}

void
linear_weight(int64_t rows, int64_t in, int64_t out, const real *x,
    const real *dy, real *dw)
{
    if (rows > 0)
        each_launch(in * out, product{out, rows, x, dy, 1, in, out, 1, 1, dw});
}

/* ---- vectors and rows ---------------------------------------------------- */

struct add {
    const float *a, *b;
    float *sum;

    __device__ void
    operator()(int64_t i) const
    {
        sum[i] = a[i] + b[i];
    }
};

void
vectors_add(int64_t count, const real *a, const real *b, real *sum)
{
    each_launch(count, add{a, b, sum});
}

struct take {
    int64_t dim;
    const unsigned char *tokens;
    const float *table;
    float *x;

    __device__ void
    operator()(int64_t i) const
    {
        x[i] = table[tokens[i / dim] * dim + i % dim];
    }
};

void
rows_take(int64_t rows, int64_t dim, const unsigned char *tokens,
    const real *table, real *x)
{
    each_launch(rows * dim, take{dim, tokens, table, x});
}

/* One thread per column, because several rows may have the same token. */
struct give {
    int64_t rows, dim;
    const unsigned char *tokens;
    const float *dx;
    float *dtable;

    __device__ void
    operator()(int64_t c) const
    {
        for (int64_t i = 0; i < rows; i++)
            dtable[tokens[i] * dim + c] += dx[i * dim + c];
    }
};

void
rows_give(int64_t rows, int64_t dim, const unsigned char *tokens,
    const real *dx, real *dtable)
{
    each_launch(dim, give{rows, dim, tokens, dx, dtable});
}

/* ---- norms --------------------------------------------------------------- */

struct norm_output {
    int64_t dim;
    const float *x, *gain;
    float *inverse, *y;

    __device__ void
    operator()(int64_t i) const
    {
        const float *row = x + i * dim;
        double squares = 0;
        for (int64_t c = 0; c < dim; c++)
            squares += (double)row[c] * row[c];
        inverse[i] = (float)(1 / sqrt(squares / (double)dim + 1e-6));
        for (int64_t c = 0; c < dim; c++)
            y[i * dim + c] = row[c] * inverse[i] * gain[c];
    }
};

void
norm_forward(int64_t rows, int64_t dim, const real *x, const real *gain,
    real *inverse, real *y)
{
    each_launch(rows, norm_output{dim, x, gain, inverse, y});
}

/* One thread per row, for dx. */
struct norm_row {
    int64_t dim;
    const float *x, *gain, *inverse, *dy;
    float *dx;

    __device__ void
    operator()(int64_t i) const
    {
        const float *row = x + i * dim, *d = dy + i * dim;
        double dot = 0;
        for (int64_t c = 0; c < dim; c++)
            dot += (double)d[c] * row[c] * inverse[i] * gain[c];
        float mean = (float)(dot / (double)dim);
        for (int64_t c = 0; c < dim; c++)
            dx[i * dim + c] +=
                inverse[i] * (gain[c] * d[c] - row[c] * inverse[i] * mean);
    }
};

/* One thread per column, for dgain. */
struct norm_column {
    int64_t rows, dim;
    const float *x, *inverse, *dy;
    float *dgain;

    __device__ void
    operator()(int64_t c) const
    {
        double sum = 0;
        for (int64_t i = 0; i < rows; i++)
            sum += (double)dy[i * dim + c] * x[i * dim + c] * inverse[i];
        dgain[c] += (float)sum;
    }
};

void
norm_backward(int64_t rows, int64_t dim, const real *x, const real *gain,
    const real *inverse, const real *dy, real *dx, real *dgain, double *sums)
{
    (void)sums;
    each_launch(rows, norm_row{dim, x, gain, inverse, dy, dx});
    each_launch(dim, norm_column{rows, dim, x, inverse, dy, dgain});
}

/* ---- rotary positions ---------------------------------------------------- */

struct angles {
    int64_t dim;
    const int64_t *positions;
    float *table;

    __device__ void
    operator()(int64_t n) const
    {
        int64_t half = dim / 2, c = n % half;
        double angle = (double)positions[n / half] *
                       pow(10000.0, -2.0 * (double)c / (double)dim);
        table[2 * n] = (float)cos(angle);
        table[2 * n + 1] = (float)sin(angle);
    }
};

void
rope_table(int64_t rows, int64_t dim, const int64_t *positions, real *table)
{
    each_launch(rows * (dim / 2), angles{dim, positions, table});
}

struct rotate {
    int64_t heads, dim;
    const float *table;
    float sign, *x;

    __device__ void
    operator()(int64_t n) const
    {
        int64_t half = dim / 2, c = n % half, head = n / half;
        const float *angle = table + head / heads * dim + 2 * c;
        float *at = x + head * dim + c;
        float low = at[0], high = at[half];
        at[0] = low * angle[0] - high * angle[1] * sign;
        at[half] = high * angle[0] + low * angle[1] * sign;
    }
};

void
rope_rotate(int64_t rows, int64_t heads, int64_t dim, const real *table,
    int sign, real *x)
{
    each_launch(rows * heads * (dim / 2),
        rotate{heads, dim, table, (float)sign, x});
}

/* ---- SwiGLU -------------------------------------------------------------- */

static __device__ __forceinline__ float
sigmoid_of(float x)
{
    return 1 / (1 + expf(-x));
}

struct swiglu {
    const float *gate, *up;
    float *h;

    __device__ void
    operator()(int64_t i) const
    {
        h[i] = gate[i] * sigmoid_of(gate[i]) * up[i];
    }
};

void
swiglu_forward(int64_t count, const real *gate, const real *up, real *h)
{
    each_launch(count, swiglu{gate, up, h});
}

struct swiglu_gradient {
    const float *gate, *up, *dh;
    float *dgate, *dup;

    __device__ void
    operator()(int64_t i) const
    {
        float s = sigmoid_of(gate[i]), d = dh[i];
        dgate[i] = d * up[i] * s * (1 + gate[i] * (1 - s));
        dup[i] = d * gate[i] * s;
    }
};

void
swiglu_backward(int64_t count, const real *gate, const real *up, const real *dh,
    real *dgate, real *dup)
{
    each_launch(count, swiglu_gradient{gate, up, dh, dgate, dup});
}

/* ---- head and loss ------------------------------------------------------- */

/* One thread per row: replaces its logits by their gradient. */
struct entropy {
    float *logits;
    const int32_t *labels;
    double scale, *losses;

    __device__ void
    operator()(int64_t i) const
    {
        float *row = logits + i * VOCABULARY;
        double most = row[0], sum = 0;
        for (int c = 1; c < VOCABULARY; c++)
            most = row[c] > most ? (double)row[c] : most;
        for (int c = 0; c < VOCABULARY; c++)
            sum += exp((double)row[c] - most);
        bool counts = labels[i] >= 0;
        losses[i] = counts ? most + log(sum) - (double)row[labels[i]] : 0;
        for (int c = 0; c < VOCABULARY; c++)
            row[c] = counts ? (float)(scale * (exp((double)row[c] - most) / sum -
                                                  (c == labels[i])))
                            : 0;
    }
};

/* One thread adds the losses, in their order. */
struct total {
    int64_t rows;
    const double *losses;
    double *sum;

    __device__ void
    operator()(int64_t) const
    {
        for (int64_t i = 0; i < rows; i++)
            *sum += losses[i];
    }
};

double
head_step(int64_t rows, int64_t dim, const real *x, const int32_t *labels,
    const real *w, double scale, real *dx, real *dw, real *logits)
{
    double *losses = values_scratch(), *sum = losses + HEAD_ROWS, loss = 0;
    values_clear(sum, sizeof(*sum));
    for (int64_t at = 0; at < rows; at += HEAD_ROWS) {
        int64_t n = rows - at < HEAD_ROWS ? rows - at : (int64_t)HEAD_ROWS;
        linear_output(n, dim, VOCABULARY, x + at * dim, w, logits);
        each_launch(n, entropy{logits, labels + at, scale, losses});
        each_launch(1, total{n, losses, sum});
        linear_input(n, dim, VOCABULARY, logits, w, 0, dx + at * dim);
        linear_weight(n, dim, VOCABULARY, x + at * dim, logits, dw);
    }
    values_download(&loss, sum, sizeof(loss));
    return loss;
}

/* ---- update -------------------------------------------------------------- */

struct adamw_value {
    struct adamw by;
    const float *gradient;
    float *first, *second, *value;

    __device__ void
    operator()(int64_t i) const
    {
        double g = by.scale * gradient[i], m = 0.9 * first[i] + 0.1 * g,
               v = 0.95 * second[i] + 0.05 * g * g,
               move = m / by.correct1 / (sqrt(v / by.correct2) + 1e-8);
        first[i] = (float)m;
        second[i] = (float)v;
        value[i] = (float)(value[i] - by.rate * (move + by.decay * value[i]));
    }
};

void
update_adamw(int64_t count, const struct adamw *by, const real *gradient,
    real *first, real *second, real *value)
{
    each_launch(count, adamw_value{*by, gradient, first, second, value});
}

struct sgd_value {
    double step;
    const float *gradient;
    float *value;

    __device__ void
    operator()(int64_t i) const
    {
        value[i] = (float)(value[i] - step * gradient[i]);
    }
};

void
update_sgd(int64_t count, double step, const real *gradient, real *value)
{
    each_launch(count, sgd_value{step, gradient, value});
}

/* Thread n adds the squares of the values n, n + NORM_THREADS, and so on. */
struct squares {
    int64_t count;
    const float *gradient;
    double *sums;

    __device__ void
    operator()(int64_t n) const
    {
        double sum = 0;
        for (int64_t i = n; i < count; i += NORM_THREADS)
            sum += (double)gradient[i] * gradient[i];
        sums[n] = sum;
    }
};

double
update_norm(int64_t count, const real *gradient)
{
    double *sums = values_scratch(), *sum = sums + NORM_THREADS, all = 0;
    values_clear(sum, sizeof(*sum));
    each_launch(NORM_THREADS, squares{count, gradient, sums});
    each_launch(1, total{NORM_THREADS, sums, sum});
    values_download(&all, sum, sizeof(all));
    return sqrt(all);
}
