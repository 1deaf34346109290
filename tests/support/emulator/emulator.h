// CUDA C++ as C++17 for the CPU: goes before a CUDA source, after emulator_machine.h. emulator.c runs the threads.
#include <math.h>

#define OPTPY_EMULATED 1

#define __global__
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __grid_constant__
#define __launch_bounds__(...)

static OptpyMachine *optpy_machine;

#define threadIdx (optpy_machine->thread)
#define blockIdx (optpy_machine->block)
#define blockDim (optpy_machine->threads)
#define gridDim (optpy_machine->blocks)

// ---- Shared memory ----------------------------------------------------------------------------------------------
// A reference to an array, so that a constant or checked index is held to its size. The static tells sites apart.

#define OPTPY_SHARED(type, name, count)                                                                                \
    static char optpy_site_of_##name;                                                                                  \
    type(&name)[count] = *static_cast<type(*)[count]>(                                                                 \
        optpy_machine->shared(&optpy_site_of_##name, sizeof(type[count]), alignof(type), __LINE__))

// ---- Waiting for each other -------------------------------------------------------------------------------------

static inline void __syncthreads(int line = __builtin_LINE()) { optpy_machine->barrier(OPTPY_SYNCTHREADS, 0, line); }

static inline int __syncthreads_or(int predicate, int line = __builtin_LINE()) {
    return optpy_machine->barrier(OPTPY_SYNCTHREADS_OR, predicate, line);
}

static inline int __syncthreads_and(int predicate, int line = __builtin_LINE()) {
    return optpy_machine->barrier(OPTPY_SYNCTHREADS_AND, predicate, line);
}

static inline void __syncwarp(unsigned mask = 0xffffffffu, int line = __builtin_LINE()) {
    optpy_machine->exchange(OPTPY_SYNCWARP, mask, 0, 0, line);
}

static inline void __nanosleep(unsigned, int line = __builtin_LINE()) { optpy_machine->sleep(line); }

static inline void __threadfence() { __asm__ volatile("" ::: "memory"); }

static inline long long optpy_nanoseconds() { return optpy_machine->nanoseconds(); }

template <class T>
static inline T optpy_exchange(int kind, unsigned mask, T value, int lane, int line) {
    unsigned long long bits = 0;
    __builtin_memcpy(&bits, &value, sizeof value);
    bits = optpy_machine->exchange(kind, mask, bits, lane, line);
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}

// The lane whose value a lane reads. Within segments of `width` lanes; out of its segment, a lane reads its own.
static inline int optpy_lane_below(int delta, int width) {
    int lane = int(threadIdx.x % 32u);
    return lane % width + delta < width ? lane + delta : lane;
}

static inline int optpy_lane_above(int delta, int width) {
    int lane = int(threadIdx.x % 32u);
    return lane % width >= delta ? lane - delta : lane;
}

static inline int optpy_lane_across(int mask, int width) {
    int lane = int(threadIdx.x % 32u), other = lane ^ mask;
    return other < (lane / width + 1) * width ? other : lane;
}

static inline int optpy_lane_at(int index, int width) {
    int lane = int(threadIdx.x % 32u);
    return lane / width * width + (index & (width - 1));
}

#define OPTPY_SHUFFLES(T)                                                                                              \
    static inline T __shfl_sync(unsigned mask, T x, int index, int width = 32, int line = __builtin_LINE()) {          \
        return optpy_exchange(OPTPY_SHUFFLE, mask, x, optpy_lane_at(index, width), line);                              \
    }                                                                                                                  \
    static inline T __shfl_down_sync(unsigned mask, T x, unsigned d, int width = 32, int line = __builtin_LINE()) {    \
        return optpy_exchange(OPTPY_SHUFFLE_DOWN, mask, x, optpy_lane_below(int(d), width), line);                     \
    }                                                                                                                  \
    static inline T __shfl_up_sync(unsigned mask, T x, unsigned d, int width = 32, int line = __builtin_LINE()) {      \
        return optpy_exchange(OPTPY_SHUFFLE_UP, mask, x, optpy_lane_above(int(d), width), line);                       \
    }                                                                                                                  \
    static inline T __shfl_xor_sync(unsigned mask, T x, int m, int width = 32, int line = __builtin_LINE()) {          \
        return optpy_exchange(OPTPY_SHUFFLE_XOR, mask, x, optpy_lane_across(m, width), line);                          \
    }
OPTPY_SHUFFLES(int)
OPTPY_SHUFFLES(unsigned)
OPTPY_SHUFFLES(long long)
OPTPY_SHUFFLES(unsigned long long)
OPTPY_SHUFFLES(float)
OPTPY_SHUFFLES(double)

// ---- Upper halves of products -------------------------------------------------------------------------------------

static inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((unsigned long long)a * b >> 32); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}

// ---- Atomic operations: one thread runs at a time, and is left only where it waits -------------------------------

#define OPTPY_ATOMIC(T, NAME, CHANGED)                                                                                 \
    static inline T NAME(T *address, T x) {                                                                            \
        T old = *address;                                                                                              \
        *address = CHANGED;                                                                                            \
        return old;                                                                                                    \
    }
OPTPY_ATOMIC(int, atomicAdd, int(unsigned(old) + unsigned(x)))
OPTPY_ATOMIC(unsigned, atomicAdd, old + x)
OPTPY_ATOMIC(unsigned long long, atomicAdd, old + x)
OPTPY_ATOMIC(float, atomicAdd, old + x)
OPTPY_ATOMIC(double, atomicAdd, old + x)
OPTPY_ATOMIC(int, atomicExch, x)
OPTPY_ATOMIC(unsigned, atomicExch, x)
OPTPY_ATOMIC(unsigned long long, atomicExch, x)
OPTPY_ATOMIC(float, atomicExch, x)
OPTPY_ATOMIC(int, atomicMax, x > old ? x : old)
OPTPY_ATOMIC(unsigned, atomicMax, x > old ? x : old)
OPTPY_ATOMIC(int, atomicMin, x < old ? x : old)
OPTPY_ATOMIC(unsigned, atomicMin, x < old ? x : old)
OPTPY_ATOMIC(unsigned, atomicOr, old | x)
OPTPY_ATOMIC(unsigned, atomicAnd, old & x)

#define OPTPY_ATOMIC_CAS(T)                                                                                            \
    static inline T atomicCAS(T *address, T compare, T x) {                                                            \
        T old = *address;                                                                                              \
        *address = old == compare ? x : old;                                                                           \
        return old;                                                                                                    \
    }
OPTPY_ATOMIC_CAS(int)
OPTPY_ATOMIC_CAS(unsigned)
OPTPY_ATOMIC_CAS(unsigned long long)

// ---- Vectors, with the alignment that their loads and stores need -------------------------------------------------
// Copies are written out: a compiler that makes them itself does not check their alignment.


// In place of -fsanitize=alignment, which checks every access, and takes as long to compile as all else.
template <class T>
static inline void optpy_check_vector(const T *vector, int line) {
#ifdef OPTPY_ALIGNMENT_OF_VECTORS
    if ((unsigned long)vector % alignof(T) != 0) {
        optpy_machine->misaligned(line, alignof(T), vector);
        __builtin_trap();
    }
#else
    (void)vector, (void)line;
#endif
}

#define OPTPY_VECTOR2(T, NAME)                                                                                         \
    struct alignas(2 * sizeof(T)) NAME {                                                                               \
        T x, y;                                                                                                        \
        NAME() = default;                                                                                              \
        NAME(T a, T b) : x(a), y(b) {}                                                                                 \
        NAME(const NAME &v, int line = __builtin_LINE()) : x(v.x), y(v.y) { optpy_check_vector(&v, line); }            \
        NAME &operator=(const NAME &v) {                                                                               \
            optpy_check_vector(this, 0);                                                                               \
            x = v.x, y = v.y;                                                                                          \
            return *this;                                                                                              \
        }                                                                                                              \
    };                                                                                                                 \
    static inline NAME make_##NAME(T x, T y) { return NAME(x, y); }
#define OPTPY_VECTOR4(T, NAME)                                                                                         \
    struct alignas(16) NAME {                                                                                          \
        T x, y, z, w;                                                                                                  \
        NAME() = default;                                                                                              \
        NAME(T a, T b, T c, T d) : x(a), y(b), z(c), w(d) {}                                                           \
        NAME(const NAME &v, int line = __builtin_LINE()) : x(v.x), y(v.y), z(v.z), w(v.w) { optpy_check_vector(&v, line); }\
        NAME &operator=(const NAME &v) {                                                                               \
            optpy_check_vector(this, 0);                                                                               \
            x = v.x, y = v.y, z = v.z, w = v.w;                                                                        \
            return *this;                                                                                              \
        }                                                                                                              \
    };                                                                                                                 \
    static inline NAME make_##NAME(T x, T y, T z, T w) { return NAME(x, y, z, w); }
OPTPY_VECTOR2(int, int2)
OPTPY_VECTOR2(unsigned, uint2)
OPTPY_VECTOR2(float, float2)
OPTPY_VECTOR2(double, double2)
OPTPY_VECTOR4(int, int4)
OPTPY_VECTOR4(unsigned, uint4)
OPTPY_VECTOR4(float, float4)

template <class T>
static inline T __ldcg(const T *address) {
    return *address;
}

template <class T>
static inline T __ldg(const T *address) {
    return *address;
}

template <class T>
static inline void __stcg(T *address, T x) {
    *address = x;
}

// ---- Functions that CUDA has and math.h has not. Macros, since the math.h of some systems declares a few ---------

#define rsqrtf(x) optpy_rsqrt(float(x))
#define rsqrt(x) optpy_rsqrt(double(x))
#define fdividef(x, y) optpy_divide(x, y)
#define __fdividef(x, y) optpy_divide(x, y)
#define sincosf(x, s, c) optpy_sincos(x, s, c)
#define sincos(x, s, c) optpy_sincos(x, s, c)

static inline float optpy_rsqrt(float x) { return 1.0f / sqrtf(x); }
static inline double optpy_rsqrt(double x) { return 1.0 / sqrt(x); }
static inline float optpy_divide(float x, float y) { return x / y; }

static inline void optpy_sincos(float x, float *s, float *c) {
    *s = sinf(x);
    *c = cosf(x);
}

static inline void optpy_sincos(double x, double *s, double *c) {
    *s = sin(x);
    *c = cos(x);
}

#define OPTPY_EXTREMES(T)                                                                                              \
    static inline T min(T a, T b) { return b < a ? b : a; }                                                            \
    static inline T max(T a, T b) { return a < b ? b : a; }
OPTPY_EXTREMES(int)
OPTPY_EXTREMES(unsigned)
OPTPY_EXTREMES(long long)
OPTPY_EXTREMES(unsigned long long)
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline double min(double a, double b) { return fmin(a, b); }
static inline double max(double a, double b) { return fmax(a, b); }

// ---- The bits of numbers ------------------------------------------------------------------------------------------

#define OPTPY_BITS(NAME, FROM, TO)                                                                                     \
    static inline TO NAME(FROM x) {                                                                                    \
        static_assert(sizeof(FROM) == sizeof(TO), "as many bits");                                                     \
        TO bits;                                                                                                       \
        __builtin_memcpy(&bits, &x, sizeof bits);                                                                      \
        return bits;                                                                                                   \
    }
OPTPY_BITS(__float_as_int, float, int)
OPTPY_BITS(__int_as_float, int, float)
OPTPY_BITS(__float_as_uint, float, unsigned)
OPTPY_BITS(__uint_as_float, unsigned, float)
OPTPY_BITS(__double_as_longlong, double, long long)
OPTPY_BITS(__longlong_as_double, long long, double)

// ---- What -fsanitize=alignment,bounds calls when a check fails ----------------------------------------------------

struct OptpyPlace {
    const char *file;
    unsigned line, column;
};

struct OptpyAccess {
    OptpyPlace place;
    const void *type;
    unsigned char alignment_log2, kind;
};

extern "C" __attribute__((visibility("hidden"))) void __ubsan_handle_type_mismatch_v1_abort(const OptpyAccess *access,
                                                                                            const void *address) {
    optpy_machine->misaligned(int(access->place.line), 1ul << access->alignment_log2, address);
    __builtin_trap();
}

extern "C" __attribute__((visibility("hidden"))) void __ubsan_handle_out_of_bounds_abort(const OptpyPlace *place,
                                                                                         unsigned long index) {
    optpy_machine->out_of_bounds(int(place->line), index);
    __builtin_trap();
}
