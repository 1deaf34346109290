/* Quotients of whole numbers without a division, which takes a GPU some twenty instructions: by a multiplication with a
 * number that the host has computed (runtime/cuda/divisors.py). What is divided is not negative.
 *
 * T. Granlund, P. L. Montgomery: Division by Invariant Integers using Multiplication, PLDI 1994. */
OPTPY_FN int optpy_divided(int n, const Divisor &by) {
    return (int)(__umulhi(2u * (unsigned)n, (unsigned)by.multiplier) >> by.places);
}

/* The same in 64 bits: the host computes another multiplier for it. */
OPTPY_FN long long optpy_divided(long long n, const Divisor &by) {
    return (long long)(__umul64hi(2ull * (unsigned long long)n, by.multiplier) >> by.places);
}
