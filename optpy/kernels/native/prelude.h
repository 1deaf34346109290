/* What every generated source starts with. */

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define OPTPY_FN static inline __attribute__((unused, always_inline))
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
