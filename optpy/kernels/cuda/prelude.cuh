/* The head of every CUDA source: the names that the headers shared with C use. No headers are included. */

typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;

#ifndef OPTPY_EMULATED
#define OPTPY_SHARED(type, name, count) __shared__ type name[count]
[[maybe_unused]] static __device__ __forceinline__ long long optpy_nanoseconds() {
    long long t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}
#define __builtin_fma fma
#define __builtin_fmaf fmaf
#define __builtin_rint rint
#define __builtin_rintf rintf
#define __builtin_floor floor
#define __builtin_floorf floorf
#define __builtin_fabs fabs
#define __builtin_fabsf fabsf
#define __builtin_inf() __longlong_as_double(0x7ff0000000000000LL)
#define __builtin_inff() __int_as_float(0x7f800000)
#define __builtin_nan(text) __longlong_as_double(0x7ff8000000000000LL)
#define __builtin_nanf(text) __int_as_float(0x7fc00000)
#else /* run on a processor, by the tests */
#define memcpy __builtin_memcpy
#endif

#define __FMA__ 1 /* every GPU has it */
/* Not every source has a use for every function. */
#define OPTPY_FN [[maybe_unused]] static __device__ __forceinline__
#define OPTPY_MATH [[maybe_unused]] static __device__ __forceinline__
#define OPTPY_THREADS 256 /* of every block */

/* Around an arrival: what was stored before it is seen by whoever has seen the arrival, and has fenced, too. Cheaper than
 * __threadfence(), which besides puts all fences of the grid in one order. */
OPTPY_FN void optpy_fence() {
#ifdef OPTPY_EMULATED
    __threadfence();
#else
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
#endif
}

/* Launch bounds of conjugate gradients, which most time goes into: OPTPY_OCCUPANCY, and OPTPY_OCCUPANCY_OF_ALL where one
 * kernel has all iterations in it, and more to remember. Memory is waited for less where a multiprocessor has more blocks
 * to go on with. Who compiles says how many, and loosens the bounds of kernels that would spill registers. */
#ifndef OPTPY_OCCUPANCY
#define OPTPY_OCCUPANCY OPTPY_THREADS
#endif
#ifndef OPTPY_OCCUPANCY_OF_ALL
#define OPTPY_OCCUPANCY_OF_ALL OPTPY_THREADS
#endif

/* The type of indices: of 32 bits where all fields are small enough, which takes fewer registers and instructions. */
typedef OPTPY_INDEX optpy_index;
template <typename T> struct optpy_unsigned;
template <> struct optpy_unsigned<int> { typedef unsigned int type; };
template <> struct optpy_unsigned<long long> { typedef unsigned long long type; };
typedef optpy_unsigned<optpy_index>::type optpy_uindex;

/* Beside that of prelude.h, in as many bits as indices have. */
template <typename T> OPTPY_FN T optpy_floordiv(T a, int b) { return a / b - (a % b < 0); }
