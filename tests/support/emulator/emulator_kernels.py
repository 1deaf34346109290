"""Small CUDA sources for the tests of the emulator: right ones, and ones that do what CUDA leaves undefined."""

from __future__ import annotations

PRELUDE = r"""
#ifndef OPTPY_EMULATED
#define OPTPY_SHARED(type, name, count) __shared__ type name[count]
__device__ __forceinline__ long long optpy_nanoseconds() {
    long long now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}
#endif
#define KERNEL extern "C" __global__ void __launch_bounds__(256)
#define ALL 0xffffffffu
struct Context {
    const float *x;
    float *y;
    unsigned *counter;
    unsigned n, rounds;
};
"""

SUMS = r"""
__device__ __forceinline__ float block_sum(float s) {
    OPTPY_SHARED(float, part, 8);
    for (int d = 16; d > 0; d /= 2) s += __shfl_down_sync(ALL, s, d);
    if (threadIdx.x % 32u == 0) part[threadIdx.x / 32u] = s;
    __syncthreads();
    s = 0.0f;
    for (unsigned warp = 0; warp < blockDim.x / 32u; ++warp) s += part[warp];
    __syncthreads();
    return s;
}

__device__ __forceinline__ float thread_sum(const Context &context) {
    float s = 0.0f;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < context.n; i += gridDim.x * blockDim.x)
        s += context.x[i];
    return s;
}

KERNEL add_up(const __grid_constant__ Context context) {
    float s = block_sum(thread_sum(context));
    if (threadIdx.x == 0) atomicAdd(context.y, s);
}

KERNEL last_block(const __grid_constant__ Context context) { // y: the sums of the blocks, then that of all
    OPTPY_SHARED(unsigned, last, 1);
    float s = block_sum(thread_sum(context));
    if (threadIdx.x == 0) {
        context.y[blockIdx.x] = s;
        __threadfence();
        last[0] = atomicAdd(context.counter, 1u) == gridDim.x - 1u;
    }
    __syncthreads();
    if (!last[0]) return;
    s = block_sum(threadIdx.x < gridDim.x ? __ldcg(&context.y[threadIdx.x]) : 0.0f);
    if (threadIdx.x == 0) context.y[gridDim.x] = s;
}

KERNEL rounds(const __grid_constant__ Context context) { // in each, y[block] <- y[block + 1] + 1, around
    for (unsigned round = 1; round <= context.rounds; ++round) {
        float next = 0.0f;
        if (threadIdx.x == 0) next = __ldcg(&context.y[(blockIdx.x + 1u) % gridDim.x]) + 1.0f;
        for (int half = 0; half < 2; ++half) {
            __threadfence();
            __syncthreads();
            if (threadIdx.x == 0) {
                atomicAdd(context.counter, 1u);
                while (*(volatile unsigned *)context.counter < (2u * round - 1u + half) * gridDim.x) __nanosleep(20);
                __threadfence();
            }
            __syncthreads();
            if (half == 0 && threadIdx.x == 0) context.y[blockIdx.x] = next;
        }
    }
}
"""

EXCHANGES = r"""
KERNEL shuffles(const __grid_constant__ Context context) { // y: a row of 32 for each kind
    unsigned lane = threadIdx.x;
    double x = context.x[lane];
    context.y[lane] = __shfl_down_sync(ALL, x, 3);
    context.y[32 + lane] = __shfl_xor_sync(ALL, (float)x, 5);
    context.y[64 + lane] = __shfl_sync(ALL, (unsigned)x, 7);
    context.y[96 + lane] = __shfl_up_sync(ALL, (int)x, 4);
    context.y[128 + lane] = __shfl_down_sync(ALL, (long long)x, 3, 8);
    __syncwarp();
    context.y[160 + lane] = __shfl_sync(ALL, context.y[lane ^ 1u], 2, 4);
}

KERNEL votes(const __grid_constant__ Context context) { // y: any, all of x >= n in a block
    int large = context.x[threadIdx.x] >= (float)context.n;
    int any = __syncthreads_or(large);
    int all = __syncthreads_and(large);
    context.y[threadIdx.x] = 2.0f * any + all;
}

KERNEL neighbour(const __grid_constant__ Context context) { // no barrier between writing and reading
    OPTPY_SHARED(float, row, 256);
    row[threadIdx.x] = context.x[threadIdx.x];
    context.y[threadIdx.x] = row[(threadIdx.x + context.n) % blockDim.x];
}
"""

MEMORY = r"""
KERNEL vectors(const __grid_constant__ Context context) { // y: four sums, of x[n + 4 i ... n + 4 i + 3]
    unsigned i = threadIdx.x;
    float4 a = *reinterpret_cast<const float4 *>(context.x + context.n + 4 * i);
    float2 b = __ldcg(reinterpret_cast<const float2 *>(context.x + context.n + 4 * i));
    *reinterpret_cast<float2 *>(context.y + 2 * i) = make_float2(a.x + a.y + a.z + a.w, b.x + b.y);
}

KERNEL shared_vectors(const __grid_constant__ Context context) {
    OPTPY_SHARED(float, row, 256);
    row[threadIdx.x] = context.x[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < blockDim.x / 4u) context.y[threadIdx.x] = reinterpret_cast<const float4 *>(row)[threadIdx.x].x;
}

KERNEL fresh(const __grid_constant__ Context context) { // y: what shared memory holds at first; then writes to it
    OPTPY_SHARED(float, word, 1);
    OPTPY_SHARED(float, other, 1);
    if (threadIdx.x == 0) context.y[blockIdx.x] = word[0];
    __syncthreads();
    if (threadIdx.x == 1) word[0] = (float)blockIdx.x;
    if (threadIdx.x == 2) other[0] = 100.0f;
    __syncthreads();
    if (threadIdx.x == 3) context.y[gridDim.x + blockIdx.x] = word[0] + other[0];
}

KERNEL outside(const __grid_constant__ Context context) {
    OPTPY_SHARED(float, row, 32);
    row[threadIdx.x + context.n] = 1.0f;
    __syncthreads();
    context.y[threadIdx.x] = row[threadIdx.x];
}

KERNEL atomics(const __grid_constant__ Context context) { // counter: eight words
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&context.counter[0], 1u);
    atomicAdd(context.y, 0.5f);
    atomicAdd(reinterpret_cast<double *>(context.y + 2), 0.25);
    atomicMax(&context.counter[1], i);
    atomicAdd(reinterpret_cast<unsigned long long *>(context.counter + 2), 1ull << 32);
    if (atomicCAS(&context.counter[4], 0u, i + 1u) == 0u) context.counter[5] = i + 1u;
    if (atomicExch(&context.counter[6], 1u) == 0u) atomicAdd(&context.counter[7], 1u);
}

KERNEL numbers(const __grid_constant__ Context context) {
    float s, c, x = context.x[threadIdx.x];
    sincosf(x, &s, &c);
    float *y = context.y + 7 * threadIdx.x;
    y[0] = s;
    y[1] = c;
    y[2] = rsqrtf(x);
    y[3] = __uint_as_float(__float_as_uint(x) ^ 0x80000000u);
    y[4] = (float)__longlong_as_double(__double_as_longlong((double)x));
    y[5] = fminf(x, 2.0f) + fdividef(x, 4.0f) + (float)max(3, 4);
    y[6] = (isnan(x) ? 4 : 0) + (isinf(x) ? 2 : 0) + (isfinite(x) ? 1 : 0);
}

KERNEL clocks(const __grid_constant__ Context context) {
    long long start = optpy_nanoseconds();
    while (optpy_nanoseconds() < start + (long long)context.n) __nanosleep(100);
    context.y[threadIdx.x] = 1.0f;
}
"""

UNDEFINED = r"""
KERNEL left_before_barrier(const __grid_constant__ Context context) {
    if (threadIdx.x >= context.n) return;
    __syncthreads();
}

KERNEL two_barriers(const __grid_constant__ Context context) {
    if (threadIdx.x < context.n) {
        __syncthreads();
    } else {
        context.y[threadIdx.x] = 1.0f;
        __syncthreads();
    }
}

KERNEL left_before_shuffle(const __grid_constant__ Context context) {
    if (threadIdx.x >= context.n) return;
    context.y[threadIdx.x] = __shfl_xor_sync(ALL, context.x[threadIdx.x], 1);
}

KERNEL barrier_or_shuffle(const __grid_constant__ Context context) {
    if (threadIdx.x < context.n)
        __syncthreads();
    else
        context.y[threadIdx.x] = __shfl_xor_sync(ALL, context.x[threadIdx.x], 1);
}

KERNEL half_a_warp(const __grid_constant__ Context context) {
    if (threadIdx.x % 32u < 16u) context.y[threadIdx.x] = __shfl_xor_sync(0xffffu, context.x[threadIdx.x], 1);
}

KERNEL waits_for_ever(const __grid_constant__ Context context) {
    if (threadIdx.x == 0)
        while (*(volatile unsigned *)context.counter == 0u) __nanosleep(100);
    __syncthreads();
}

KERNEL much_shared_memory(const __grid_constant__ Context context) {
    OPTPY_SHARED(double, first, 3072);
    OPTPY_SHARED(double, second, 3200);
    first[threadIdx.x] = second[threadIdx.x] = 1.0;
}
"""

SOURCES = {"sums": SUMS, "exchanges": EXCHANGES, "memory": MEMORY, "undefined": UNDEFINED}
