/* The head of every generated source. */

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifndef OPTPY_FN
#define OPTPY_FN static inline __attribute__((unused, always_inline))
#endif
#define OPTPY_EXPORT __attribute__((visibility("default")))

/* Finite or not, asked of the bits: right whatever the compiler was told about NaN and infinity. */
OPTPY_FN int optpy_isfinitef(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (bits & 0x7f800000u) != 0x7f800000u;
}

OPTPY_FN int optpy_isfinite(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (bits & 0x7ff0000000000000u) != 0x7ff0000000000000u;
}

/* NumPy's minimum and maximum: a NaN on either side is the result (fmin would lose it). */
OPTPY_FN float optpy_minf(float a, float b) { return a < b || a != a ? a : b; }
OPTPY_FN float optpy_maxf(float a, float b) { return a > b || a != a ? a : b; }
OPTPY_FN double optpy_min(double a, double b) { return a < b || a != a ? a : b; }
OPTPY_FN double optpy_max(double a, double b) { return a > b || a != a ? a : b; }

/* The whole number in 0 ... n - 1 that is nearest to a whole number; 0 for NaN. It is clamped before it is converted, as
 * what does not fit an integer must not be, and after, as n - 1 may be rounded up. Axes are no longer than
 * LONGEST_SAMPLED of energy/data/binding.py, so that 32 bits, which every processor converts to in vectors, hold it. */
OPTPY_FN int64_t optpy_clampedf(float x, int64_t n) {
    const int32_t last = (int32_t)(n - 1);
    const float end = (float)last, inside = x > 0 ? x < end ? x : end : 0;
    const int32_t whole = (int32_t)inside;
    return whole < last ? whole : last;
}
OPTPY_FN int64_t optpy_clamped(double x, int64_t n) {
    const double end = (double)(n - 1);
    return (int32_t)(x > 0 ? x < end ? x : end : 0);
}

OPTPY_FN int64_t optpy_floordiv(int64_t a, int64_t b) { return a / b - (a % b < 0); }
OPTPY_FN float optpy_signf(float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : x; }
OPTPY_FN double optpy_sign(double x) { return x > 0 ? 1.0 : x < 0 ? -1.0 : x; }

/* The bits of a magnitude are ordered as the magnitudes are, with NaN above all: a maximum of integers, which compilers
 * vectorise, that loses no NaN. */
typedef uint32_t optpy_bitsf_t;
typedef uint64_t optpy_bits_t;
OPTPY_FN optpy_bitsf_t optpy_bitsf(float x) { optpy_bitsf_t b; memcpy(&b, &x, sizeof b); return b; }
OPTPY_FN optpy_bits_t optpy_bits(double x) { optpy_bits_t b; memcpy(&b, &x, sizeof b); return b; }
OPTPY_FN float optpy_from_bitsf(optpy_bitsf_t b) { float x; memcpy(&x, &b, sizeof x); return x; }
OPTPY_FN double optpy_from_bits(optpy_bits_t b) { double x; memcpy(&x, &b, sizeof x); return x; }
