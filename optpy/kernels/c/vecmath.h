/* sin, cos, exp, expm1, log, log1p and hypot without branches, tables or calls, so that loops over them become vector
 * code: neither zig's clang nor a system without libmvec has vector versions of libm's. Within 2 units in the last place.
 *
 * sin and cos: angles up to 2^50 (10^15 radians). Beyond that the result is NaN, which is seen, and not a value that
 * means nothing: neighbouring doubles are there more than a tenth of a radian apart, and floats many whole turns.
 * NaN and infinity behave as in C. A denormal argument of log and a denormal result of exp are exact to their unit.
 *
 * Compilers may regroup sums (-fassociative-math). Where the order of a sum matters, it is a fused multiply-add, which
 * is never regrouped, or it stands in OPTPY_KEEP. A processor without fused multiply-add gets libm. */

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifndef OPTPY_MATH
#define OPTPY_MATH static inline __attribute__((unused, always_inline))
#endif

#if defined(__FMA__) || defined(__FP_FAST_FMA)

#if defined(__clang__)
#define OPTPY_IN_ORDER _Pragma("clang fp reassociate(off)")
#define OPTPY_KEEP(x) (x)
#elif __GNUC__ >= 12
#define OPTPY_IN_ORDER
#define OPTPY_KEEP(x) __builtin_assoc_barrier(x)
#else
#define OPTPY_IN_ORDER
#define OPTPY_KEEP(x) (x)
#endif

OPTPY_MATH float optpy_float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

OPTPY_MATH uint32_t optpy_bits_of_float(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

OPTPY_MATH double optpy_double_of(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

OPTPY_MATH uint64_t optpy_bits_of_double(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* --- sine and cosine ------------------------------------------------------------------------------------------ */

/* x = turn * pi/2 + r, |r| <= pi/4; returns r, NaN outside the range.
 *
 * Cody and Waite's reduction with pi/2 as a sum of three doubles. The first difference is exact: for |x| >= pi/4 both
 * terms are multiples of 2^-53, and their difference is below 1. The others are rounded relative to the result. */
OPTPY_MATH double optpy_quarter_turns(double x, int32_t *turn) {
    double k = __builtin_rint(x * 0x1.45f306dc9c883p-1);
    double r = __builtin_fma(-k, 0x1.921fb54442d18p+0, x);
    r = __builtin_fma(-k, 0x1.1a62633145c07p-54, r);
    r = __builtin_fma(-k, -0x1.f1976b7ed8fbcp-110, r);
    int in_range = __builtin_fabs(x) <= 0x1p50;
    /* Modulo 4 while still a double: vector conversions to 64-bit integers are rare. */
    double quarter = __builtin_fma(-4.0, __builtin_floor(k * 0.25), k);
    *turn = (int32_t)(in_range ? quarter : 0.0);
    return in_range ? r : __builtin_nan("");
}

/* sin(r + turn * pi/2), by fdlibm's polynomials on [-pi/4, pi/4]: the cosine in odd turns, negated in two of four. */
OPTPY_MATH double optpy_sine_of_quarter(double r, int32_t turn) {
    double z = r * r;
    double s = 1.58969099521155010221e-10;
    s = __builtin_fma(s, z, -2.50507602534068634195e-08);
    s = __builtin_fma(s, z, 2.75573137070700676789e-06);
    s = __builtin_fma(s, z, -1.98412698298579493134e-04);
    s = __builtin_fma(s, z, 8.33333333332248946124e-03);
    s = __builtin_fma(s, z, -1.66666666666666324348e-01);
    s = __builtin_fma(s, z * r, r);
    double c = -1.13596475577881948265e-11;
    c = __builtin_fma(c, z, 2.08757232129817482790e-09);
    c = __builtin_fma(c, z, -2.75573143513906633035e-07);
    c = __builtin_fma(c, z, 2.48015872894767294178e-05);
    c = __builtin_fma(c, z, -1.38888888888741095749e-03);
    c = __builtin_fma(c, z, 4.16666666666666019037e-02);
    c = __builtin_fma(c, z, -0.5);
    c = __builtin_fma(c, z, 1.0);
    double value = (turn & 1) ? c : s;
    return (turn & 2) ? -value : value;
}

OPTPY_MATH double optpy_sin(double x) {
    int32_t turn;
    double r = optpy_quarter_turns(x, &turn);
    return optpy_sine_of_quarter(r, turn);
}

OPTPY_MATH double optpy_cos(double x) {
    int32_t turn;
    double r = optpy_quarter_turns(x, &turn);
    return optpy_sine_of_quarter(r, turn + 1);
}

/* The same in single precision; r has been reduced in double. */
OPTPY_MATH float optpy_sine_of_quarterf(float r, int32_t turn) {
    float z = r * r;
    float s = 2.86567956e-6f;
    s = __builtin_fmaf(s, z, -1.98559923e-4f);
    s = __builtin_fmaf(s, z, 8.33338592e-3f);
    s = __builtin_fmaf(s, z, -1.66666672e-1f);
    s = __builtin_fmaf(s, z * r, r);
    float c = 2.44677067e-5f;
    c = __builtin_fmaf(c, z, -1.38877297e-3f);
    c = __builtin_fmaf(c, z, 4.16666567e-2f);
    c = __builtin_fmaf(c, z, -0.5f);
    c = __builtin_fmaf(c, z, 1.0f);
    float value = (turn & 1) ? c : s;
    return (turn & 2) ? -value : value;
}

OPTPY_MATH float optpy_sinf(float x) {
    int32_t turn;
    float r = (float)optpy_quarter_turns((double)x, &turn);
    return optpy_sine_of_quarterf(r, turn);
}

OPTPY_MATH float optpy_cosf(float x) {
    int32_t turn;
    float r = (float)optpy_quarter_turns((double)x, &turn);
    return optpy_sine_of_quarterf(r, turn + 1);
}

/* --- exponential ---------------------------------------------------------------------------------------------- */

/* (exp(r) - 1 - r) / r^2 for |r| <= log(2)/2. */
OPTPY_MATH double optpy_exp_tail(double r) {
    double p = 1.0 / 6227020800.0; /* Taylor's, to r^13 / 13!: off by 4e-18 */
    p = __builtin_fma(p, r, 1.0 / 479001600.0);
    p = __builtin_fma(p, r, 1.0 / 39916800.0);
    p = __builtin_fma(p, r, 1.0 / 3628800.0);
    p = __builtin_fma(p, r, 1.0 / 362880.0);
    p = __builtin_fma(p, r, 1.0 / 40320.0);
    p = __builtin_fma(p, r, 1.0 / 5040.0);
    p = __builtin_fma(p, r, 1.0 / 720.0);
    p = __builtin_fma(p, r, 1.0 / 120.0);
    p = __builtin_fma(p, r, 1.0 / 24.0);
    p = __builtin_fma(p, r, 1.0 / 6.0);
    return __builtin_fma(p, r, 0.5);
}

OPTPY_MATH float optpy_exp_tailf(float r) {
    float p = 1.37805939e-3f;
    p = __builtin_fmaf(p, r, 8.37312452e-3f);
    p = __builtin_fmaf(p, r, 4.16695364e-2f);
    p = __builtin_fmaf(p, r, 1.66664720e-1f);
    return __builtin_fmaf(p, r, 4.99999851e-1f);
}

/* exp(x) = 2^k exp(r), |r| <= log(2)/2; 2^k in two factors, since k may be beyond the exponents of normal numbers. */
OPTPY_MATH double optpy_exp(double x) {
    OPTPY_IN_ORDER
    /* Beyond these the result is infinity and 0 anyway. A NaN passes through both. */
    double y = x > 710.0 ? 710.0 : x;
    y = y < -750.0 ? -750.0 : y;
    double k = __builtin_rint(y * 0x1.71547652b82fep+0);
    double r = __builtin_fma(-k, 0x1.62e42fefa39efp-1, y);
    r = __builtin_fma(-k, 0x1.abc9e3b39803fp-56, r);
    double p = optpy_exp_tail(r);
    p = __builtin_fma(p, r, 1.0);
    p = __builtin_fma(p, r, 1.0);
    int32_t whole = (int32_t)(x == x ? k : 0.0); /* converting a NaN is undefined */
    int32_t half = whole >> 1;
    double first = optpy_double_of((uint64_t)(int64_t)(half + 1023) << 52);
    double second = optpy_double_of((uint64_t)(int64_t)(whole - half + 1023) << 52);
    return OPTPY_KEEP(p * first) * second;
}

OPTPY_MATH float optpy_expf(float x) {
    OPTPY_IN_ORDER
    float y = x > 89.0f ? 89.0f : x;
    y = y < -105.0f ? -105.0f : y;
    float k = __builtin_rintf(y * 1.44269502f);
    float r = __builtin_fmaf(-k, 6.93145752e-1f, y);
    r = __builtin_fmaf(-k, 1.42860677e-6f, r);
    float p = optpy_exp_tailf(r);
    p = __builtin_fmaf(p, r, 1.0f);
    p = __builtin_fmaf(p, r, 1.0f);
    int32_t whole = (int32_t)(x == x ? k : 0.0f);
    int32_t half = whole >> 1;
    float first = optpy_float_of((uint32_t)(half + 127) << 23);
    float second = optpy_float_of((uint32_t)(whole - half + 127) << 23);
    return OPTPY_KEEP(p * first) * second;
}

/* exp(x) - 1 = 2^k (exp(r) - 1) + (2^k - 1), exact where k is 0; 2^k = first * second, both drawn out. */
OPTPY_MATH double optpy_expm1(double x) {
    OPTPY_IN_ORDER
    double y = x > 710.0 ? 710.0 : x;
    y = y < -50.0 ? -50.0 : y; /* -1 from there on */
    double k = __builtin_rint(y * 0x1.71547652b82fep+0);
    double r = __builtin_fma(-k, 0x1.62e42fefa39efp-1, y);
    r = __builtin_fma(-k, 0x1.abc9e3b39803fp-56, r);
    double p = __builtin_fma(optpy_exp_tail(r) * r, r, r);
    int32_t whole = (int32_t)(x == x ? k : 0.0);
    int32_t half = whole >> 1;
    double first = optpy_double_of((uint64_t)(int64_t)(half + 1023) << 52);
    double second = optpy_double_of((uint64_t)(int64_t)(whole - half + 1023) << 52);
    double inverse = optpy_double_of((uint64_t)(int64_t)(half - whole + 1023) << 52); /* of second */
    return __builtin_fma(p, first, OPTPY_KEEP(first - inverse)) * second;
}

OPTPY_MATH float optpy_expm1f(float x) {
    OPTPY_IN_ORDER
    float y = x > 89.0f ? 89.0f : x;
    y = y < -20.0f ? -20.0f : y;
    float k = __builtin_rintf(y * 1.44269502f);
    float r = __builtin_fmaf(-k, 6.93145752e-1f, y);
    r = __builtin_fmaf(-k, 1.42860677e-6f, r);
    float p = __builtin_fmaf(optpy_exp_tailf(r) * r, r, r);
    int32_t whole = (int32_t)(x == x ? k : 0.0f);
    int32_t half = whole >> 1;
    float first = optpy_float_of((uint32_t)(half + 127) << 23);
    float second = optpy_float_of((uint32_t)(whole - half + 127) << 23);
    float inverse = optpy_float_of((uint32_t)(half - whole + 127) << 23);
    return __builtin_fmaf(p, first, OPTPY_KEEP(first - inverse)) * second;
}

/* --- logarithm ------------------------------------------------------------------------------------------------ */

/* C's values where x is not a positive number: -infinity at 0, NaN below, infinity and NaN as they are. */
#define OPTPY_LOG_SPECIAL(x, value, inf, nan)                          \
    ((x) > 0 ? ((x) < (inf) ? (value) : (inf)) : (x) == 0 ? -(inf) : (nan))

/* x = 2^k m, m in [sqrt(1/2), sqrt(2)); returns m. */
OPTPY_MATH double optpy_mantissa(double x, int32_t *k) {
    int tiny = x < 0x1p-1022;
    uint64_t bits = optpy_bits_of_double(tiny ? x * 0x1p54 : x);
    uint64_t shifted = bits - 0x3fe6a09e00000000u;
    *k = ((int32_t)(shifted >> 32) >> 20) - (tiny ? 54 : 0);
    return optpy_double_of(bits - (shifted & 0xfff0000000000000u));
}

OPTPY_MATH float optpy_mantissaf(float x, int32_t *k) {
    int tiny = x < 0x1p-126f;
    uint32_t bits = optpy_bits_of_float(tiny ? x * 0x1p23f : x);
    uint32_t exponent = (bits - 0x3f2aaaabu) & 0xff800000u;
    *k = ((int32_t)exponent >> 23) - (tiny ? 23 : 0);
    return optpy_float_of(bits - exponent); /* in [2/3, 4/3] */
}

/* log(2^k (1 + f)) by fdlibm's series in s = f / (2 + f). */
OPTPY_MATH double optpy_log_of(double f, int32_t k) {
    OPTPY_IN_ORDER
    double s = f / (2.0 + f), z = s * s;
    double p = 1.479819860511658591e-01;
    p = __builtin_fma(p, z, 1.531383769920937332e-01);
    p = __builtin_fma(p, z, 1.818357216161805012e-01);
    p = __builtin_fma(p, z, 2.222219843214978396e-01);
    p = __builtin_fma(p, z, 2.857142874366239149e-01);
    p = __builtin_fma(p, z, 3.999999999940941908e-01);
    p = __builtin_fma(p, z, 6.666666666666735130e-01);
    double half_square = 0.5 * f * f;
    /* log(1 + f) = f - (half_square - s (half_square + z p)) */
    double low = __builtin_fma(s, __builtin_fma(z, p, half_square), k * 1.90821492927058770002e-10);
    double rest = OPTPY_KEEP(half_square - low);
    return __builtin_fma(k, 6.93147180369123816490e-01, OPTPY_KEEP(f - rest));
}

OPTPY_MATH float optpy_log_off(float f, int32_t k) {
    OPTPY_IN_ORDER
    float z = f * f;
    float even = -0.130310059f, odd = 0.140869141f;
    even = __builtin_fmaf(even, z, -0.121489882f);
    odd = __builtin_fmaf(odd, z, 0.139814854f);
    even = __builtin_fmaf(even, z, -0.166846141f);
    odd = __builtin_fmaf(odd, z, 0.200120345f);
    even = __builtin_fmaf(even, z, -0.249996200f);
    float p = __builtin_fmaf(odd, f, even);
    p = __builtin_fmaf(p, f, 0.333331972f);
    p = __builtin_fmaf(p, f, -0.5f);
    p = __builtin_fmaf(p, z, f);
    return __builtin_fmaf((float)k, 0.693147182f, p);
}

OPTPY_MATH double optpy_log(double x) {
    int32_t k;
    double f = optpy_mantissa(x, &k) - 1.0;
    return OPTPY_LOG_SPECIAL(x, optpy_log_of(f, k), __builtin_inf(), __builtin_nan(""));
}

OPTPY_MATH float optpy_logf(float x) {
    int32_t k;
    float f = optpy_mantissaf(x, &k) - 1.0f;
    return OPTPY_LOG_SPECIAL(x, optpy_log_off(f, k), __builtin_inff(), __builtin_nanf(""));
}

/* 1 + x = 2^k (1 + f) with f = 2^-k x + (2^-k - 1), rounded once: nothing of a small x is lost. */
OPTPY_MATH double optpy_log1p(double x) {
    int32_t k;
    double u = 1.0 + x, m = optpy_mantissa(u, &k);
    double scale = optpy_double_of((uint64_t)(int64_t)(1023 - (k < 64 ? k : 64)) << 52);
    double f = k < 64 ? __builtin_fma(x, scale, scale - 1.0) : m - 1.0;
    return OPTPY_LOG_SPECIAL(u, optpy_log_of(f, k), __builtin_inf(), __builtin_nan(""));
}

OPTPY_MATH float optpy_log1pf(float x) {
    int32_t k;
    float u = 1.0f + x, m = optpy_mantissaf(u, &k);
    float scale = optpy_float_of((uint32_t)(127 - (k < 32 ? k : 32)) << 23);
    float f = k < 32 ? __builtin_fmaf(x, scale, scale - 1.0f) : m - 1.0f;
    return OPTPY_LOG_SPECIAL(u, optpy_log_off(f, k), __builtin_inff(), __builtin_nanf(""));
}

#else

OPTPY_MATH double optpy_sin(double x) { return sin(x); }
OPTPY_MATH double optpy_cos(double x) { return cos(x); }
OPTPY_MATH double optpy_exp(double x) { return exp(x); }
OPTPY_MATH double optpy_log(double x) { return log(x); }
OPTPY_MATH float optpy_sinf(float x) { return sinf(x); }
OPTPY_MATH float optpy_cosf(float x) { return cosf(x); }
OPTPY_MATH float optpy_expf(float x) { return expf(x); }
OPTPY_MATH float optpy_logf(float x) { return logf(x); }
OPTPY_MATH double optpy_expm1(double x) { return expm1(x); }
OPTPY_MATH double optpy_log1p(double x) { return log1p(x); }
OPTPY_MATH float optpy_expm1f(float x) { return expm1f(x); }
OPTPY_MATH float optpy_log1pf(float x) { return log1pf(x); }

#endif

/* --- the length of (x, y) ------------------------------------------------------------------------------------- */

/* The larger one is drawn out, so that no square overflows or vanishes. As in C infinity wins over NaN. */
OPTPY_MATH double optpy_hypot(double x, double y) {
    double a = __builtin_fabs(x), b = __builtin_fabs(y);
    double most = a > b ? a : b, least = a > b ? b : a;
    double q = least / (most > 0 ? most : 1.0);
    double value = most * sqrt(1.0 + q * q);
    return a == __builtin_inf() || b == __builtin_inf() ? __builtin_inf() : value;
}

OPTPY_MATH float optpy_hypotf(float x, float y) {
    float a = __builtin_fabsf(x), b = __builtin_fabsf(y);
    float most = a > b ? a : b, least = a > b ? b : a;
    float q = least / (most > 0 ? most : 1.0f);
    float value = most * sqrtf(1.0f + q * q);
    return a == __builtin_inff() || b == __builtin_inff() ? __builtin_inff() : value;
}
