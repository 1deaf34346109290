/* Vector loads, and sums over lanes, blocks and the whole grid. Sums are in double and always added in the same order
 * for the same number of blocks: no result depends on which block comes first. */

/* W numbers side by side, read and written by one instruction (16 bytes at most). */
template <typename T, int W> struct alignas(sizeof(T) * W) Pack { T value[W]; };

template <int W, typename T> OPTPY_FN void optpy_load(T *to, const T *from) {
    const Pack<T, W> pack = *(const Pack<T, W> *)from;
#pragma unroll
    for (int u = 0; u < W; ++u) to[u] = pack.value[u];
}

template <int W, typename T> OPTPY_FN void optpy_store(T *to, const T *from) {
    Pack<T, W> pack;
#pragma unroll
    for (int u = 0; u < W; ++u) pack.value[u] = from[u];
    *(Pack<T, W> *)to = pack;
}

/* Interleaved channels of a point by one instruction; zeros where it is outside. */
template <int W, typename T> OPTPY_FN Pack<T, W> optpy_get(const T *from) { return *(const Pack<T, W> *)from; }

template <int W, typename T> OPTPY_FN Pack<T, W> optpy_get(const T *from, bool inside) {
    Pack<T, W> pack = {};
    if (inside) pack = *(const Pack<T, W> *)from;
    return pack;
}

template <int W, typename T> OPTPY_FN void optpy_put(T *to, const Pack<T, W> &pack) { *(Pack<T, W> *)to = pack; }

/* Adds to a number that other threads add to, too. Beside a fence the compiler makes of an atomicAdd() whose result nobody
 * takes an instruction that brings it nevertheless. */
#ifdef OPTPY_EMULATED
OPTPY_FN void optpy_add(float *to, float x) { atomicAdd(to, x); }
OPTPY_FN void optpy_add(double *to, double x) { atomicAdd(to, x); }
#else
OPTPY_FN void optpy_add(float *to, float x) {
    asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(__cvta_generic_to_global(to)), "f"(x) : "memory");
}
OPTPY_FN void optpy_add(double *to, double x) {
    asm volatile("red.relaxed.gpu.global.add.f64 [%0], %1;" ::"l"(__cvta_generic_to_global(to)), "d"(x) : "memory");
}
#endif

/* The same for the channels of a point, of which `lanes` has a bit for each that there is; the others are 0. */
template <unsigned lanes, typename T, int W> OPTPY_FN void optpy_add(T *to, const Pack<T, W> &x) {
#ifdef OPTPY_EMULATED
    T *const aligned = ((Pack<T, W> *)to)->value;
#else
    T *const aligned = to;
#endif
#pragma unroll
    for (int u = 0; u < W; ++u)
        if (lanes >> u & 1) optpy_add(aligned + u, x.value[u]);
}

#if !defined(OPTPY_EMULATED) && __CUDA_ARCH__ >= 900
template <unsigned lanes> OPTPY_FN void optpy_add(float *to, const Pack<float, 2> &x) {
    asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(to)),
                 "f"(x.value[0]), "f"(x.value[1]) : "memory");
}
template <unsigned lanes> OPTPY_FN void optpy_add(float *to, const Pack<float, 4> &x) {
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)),
                 "f"(x.value[0]), "f"(x.value[1]), "f"(x.value[2]), "f"(x.value[3]) : "memory");
}
#endif

OPTPY_FN double optpy_combine(double a, double b, bool maximum) { return maximum ? optpy_max(a, b) : a + b; }

/* The sum, or the maximum, over a warp, in every lane. */
OPTPY_FN double optpy_over_warp(double x, bool maximum) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        x = optpy_combine(x, __shfl_xor_sync(0xffffffffu, x, distance), maximum);
    return x;
}

/* The same over a block, in every thread. */
OPTPY_FN double optpy_over_block(double x, bool maximum) {
    OPTPY_SHARED(double, warp, OPTPY_THREADS / 32);
    x = optpy_over_warp(x, maximum);
    __syncthreads(); /* what was there before has been read */
    if (threadIdx.x % 32 == 0) warp[threadIdx.x / 32] = x;
    __syncthreads();
    double total = warp[0];
#pragma unroll
    for (int n = 1; n < OPTPY_THREADS / 32; ++n) total = optpy_combine(total, warp[n], maximum);
    return total;
}

/* The sum over the lanes that work on one point: a thread alone, a warp, or the block. */
OPTPY_FN double optpy_over_lanes(double x, int lanes) {
    if (lanes == 1) return x;
    return lanes == 32 ? optpy_over_warp(x, false) : optpy_over_block(x, false);
}

/* Leaves the block's share of N sums for the others; true in all threads of the block that arrives last. `maxima` has a
 * bit for each sum that is a maximum. */
template <int N> OPTPY_FN bool optpy_arrive(const Context *c, const double *sum, unsigned maxima) {
    OPTPY_SHARED(unsigned, ticket, 1);
#pragma unroll
    for (int n = 0; n < N; ++n) {
        const double total = optpy_over_block(sum[n], maxima >> n & 1);
        if (threadIdx.x == 0) c->partial[(int64_t)n * gridDim.x + blockIdx.x] = total;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        optpy_fence(); /* what the block's other threads have stored is seen before its arrival */
        ticket[0] = atomicAdd(&c->sync->arrived, 1u);
    }
    __syncthreads();
    const bool last = ticket[0] == gridDim.x - 1;
    if (last) optpy_fence();
    return last;
}

/* The total of what all blocks have left of one sum, in every thread of a block. */
OPTPY_FN double optpy_total(const double *shares, bool maximum) {
    double total = 0;
    for (unsigned block = threadIdx.x; block < gridDim.x; block += OPTPY_THREADS)
        total = optpy_combine(total, __ldcg(&shares[block]), maximum);
    return optpy_over_block(total, maximum);
}

/* The same of N sums, in the block that has arrived last; makes ready for the next arrival. */
template <int N> OPTPY_FN void optpy_totals(const Context *c, double *total, unsigned maxima) {
#pragma unroll
    for (int n = 0; n < N; ++n) total[n] = optpy_total(c->partial + (int64_t)n * gridDim.x, maxima >> n & 1);
    if (threadIdx.x == 0) c->sync->arrived = 0;
}

/* The end of a kernel: its N totals go to `first` and after. */
template <int N> OPTPY_FN void optpy_finish(const Context *c, const double *sum, int first, unsigned maxima) {
    if (!optpy_arrive<N>(c, sum, maxima)) return;
    double total[N];
    optpy_totals<N>(c, total, maxima);
    if (threadIdx.x == 0)
#pragma unroll
        for (int n = 0; n < N; ++n) c->total[first + n] = total[n];
}

/* 1 / ||x|| of a power iteration, whose matrix may be 0. */
OPTPY_FN double optpy_inverse_norm(double squares) {
    return squares > 0 && optpy_isfinite(squares) ? 1 / sqrt(squares) : 0;
}

/* Waits until all blocks are here, which must run at the same time; what each of them has stored is seen by all. */
OPTPY_FN void optpy_barrier(const Context *c) {
    __syncthreads();
    if (threadIdx.x == 0) {
        optpy_fence();
        /* The increments add up to 2^31: the highest bit changes when the last block comes, and only then. */
        const unsigned before = atomicAdd(&c->sync->barrier, blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1u);
        while (((before ^ *(volatile unsigned *)&c->sync->barrier) & 0x80000000u) == 0) __nanosleep(20);
        optpy_fence();
    }
    __syncthreads();
}
