/* The start of power iterations. */

/* +1 or -1, without a pattern that an eigenvector could be orthogonal to (the mixing of SplitMix64: Steele, Lea and
 * Flood 2014). */
OPTPY_FN OPTPY_REAL optpy_random_sign(uint64_t n) {
    n = (n ^ (n >> 30)) * 0xbf58476d1ce4e5b9u;
    n = (n ^ (n >> 27)) * 0x94d049bb133111ebu;
    return (n ^ (n >> 31)) & 1 ? (OPTPY_REAL)1 : (OPTPY_REAL)-1;
}
