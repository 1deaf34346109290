/* The levels of multigrid.h on a device: the same grids, matrices and sweeps, with one thread to a point. What
 * one kernel does on a large level, one block does on all small ones, where a launch would cost more than the work, and
 * blocks that wait for one another on those between. No sum depends on which block comes first. */

enum {
    MG_UNROLLED = MG_PAIRS * MG_HALF <= 128 ? MG_HALF : 1,
    /* Loops over few channels are unrolled, so that what they keep is in registers; many would take minutes to compile. */
    MG_FEW = MG_CHANNELS <= 8,
    MG_EACH_CHANNEL = MG_FEW ? MG_CHANNELS : 1, MG_EACH_BLOCK = MG_FEW ? MG_BLOCKS : 1, MG_EACH_MEMBER = MG_FEW ? MG_LARGEST : 1,
};

#define MG_KERNEL(name) \
    extern "C" __global__ void __launch_bounds__(OPTPY_BOUNDS_##name) name(const __grid_constant__ Context context)
#define MG_CONTEXT                                                          \
    const Context *c = &context;                                            \
    if (c->status && *(const volatile long long *)c->status) return;

/* The points of a level that a thread works on. */
struct MgShare { unsigned first, stride; };

OPTPY_FN MgShare mg_of_grid() { return {blockIdx.x * blockDim.x + threadIdx.x, gridDim.x * blockDim.x}; }
OPTPY_FN MgShare mg_of_block() { return {threadIdx.x, blockDim.x}; }

OPTPY_FN unsigned mg_points(const MgLevel *l) { return (unsigned)(l->size[0] * l->size[1] * l->size[2]); }

struct MgPoint { int z, y, x; };

OPTPY_FN MgPoint mg_point(const MgLevel *l, unsigned q) {
    const int nx = (int)l->size[2], ny = (int)l->size[1];
    const int row = optpy_divided((int)q, l->by_size[1]), slab = optpy_divided(row, l->by_size[0]);
    return {slab, row - slab * ny, (int)q - row * nx};
}

OPTPY_FN int mg_at(const MgLevel *l, MgPoint p) { return (int)(l->origin + p.z * l->slab + p.y * l->row + p.x); }

/* The same of the finest grid, which has no halo, and may have more points than 31 bits count. */
OPTPY_FN unsigned mg_finest_points(const Context *c) { return (unsigned)(c->size[0] * c->size[1] * c->size[2]); }
OPTPY_FN MgPoint mg_finest_point(const Context *c, unsigned q) {
    const long long row = optpy_divided((long long)q, c->by_size[1]), slab = optpy_divided(row, c->by_size[0]);
    return {(int)slab, (int)(row - slab * c->size[1]), (int)(q - row * c->size[2])};
}
OPTPY_FN long long mg_finest_at(const Context *c, MgPoint p) { return p.z * c->slab + p.y * c->row + p.x; }

/* The position of a neighbour of the half stencil, the middle first. */
OPTPY_FN MgPoint mg_neighbour(int n) {
    const int code = n + MG_HALF - 1;
    return {code / (MG_NY * MG_NX) - MG_REACH_Z, code / MG_NX % MG_NY - MG_REACH_Y, code % MG_NX - MG_REACH_X};
}

OPTPY_FN int mg_offset(const MgLevel *l, MgPoint d) { return (int)(d.z * l->slab + d.y * l->row + d.x); }

OPTPY_FN const OPTPY_REAL *mg_entries(const MgLevel *l, int pair, int neighbour) {
    return l->matrix + ((long long)pair * MG_HALF + neighbour) * l->plane;
}

/* -- products on a level ------------------------------------------------------------------------------------------- */

/* b - A x of one channel at a point. */
OPTPY_FN OPTPY_REAL mg_residual_at(const MgLevel *l, int channel, int at) {
    OPTPY_REAL sum = l->b[channel * l->plane + at];
    for (int p = mg_first[channel]; p < mg_first[channel + 1]; ++p) {
        const OPTPY_REAL *x = l->x + mg_column[p] * l->plane;
        const int transposed = mg_transposed[p];
#pragma unroll MG_UNROLLED
        for (int n = 0; n < MG_HALF; ++n) {
            const int offset = mg_offset(l, mg_neighbour(n));
            sum -= mg_entries(l, p, n)[at] * x[at + offset];
            if (n) sum -= mg_entries(l, transposed, n)[at - offset] * x[at - offset];
        }
    }
    return sum;
}

/* result(channel, value) of each channel of D^-1 r at a point, where r(channel) is that of r. */
template <typename Residual, typename Result>
OPTPY_FN void mg_inverse_at(const MgLevel *l, int at, Residual r, Result result) {
#pragma unroll MG_EACH_BLOCK
    for (int block = 0; block < MG_BLOCKS; ++block) {
        const int *member = mg_member + mg_block[block], count = mg_block[block + 1] - mg_block[block];
        OPTPY_REAL own[MG_LARGEST];
#pragma unroll MG_EACH_MEMBER
        for (int m = 0; m < MG_LARGEST; ++m) own[m] = m < count ? r(member[m]) : (OPTPY_REAL)0;
#pragma unroll MG_EACH_MEMBER
        for (int n = 0; n < MG_LARGEST; ++n) {
            if (n >= count) break;
            const OPTPY_REAL *inverse = l->inverse + mg_inverse_first[member[n]] * l->plane + at;
            OPTPY_REAL sum = 0;
#pragma unroll MG_EACH_MEMBER
            for (int m = 0; m < MG_LARGEST; ++m)
                if (m < count) sum += inverse[m * l->plane] * own[m];
            result(member[n], sum);
        }
    }
}

/* t = b - A x */
OPTPY_FN void mg_residual(const MgLevel *l, MgShare share) {
    for (unsigned q = share.first; q < mg_points(l); q += share.stride) {
        const int at = mg_at(l, mg_point(l, q));
#pragma unroll MG_EACH_CHANNEL
        for (int c = 0; c < MG_CHANNELS; ++c) l->t[c * l->plane + at] = mg_residual_at(l, c, at);
    }
}

/* t = x + omega D^-1 (b - A x) */
OPTPY_FN void mg_smooth(const MgLevel *l, MgShare share) {
    const OPTPY_REAL omega = (OPTPY_REAL)*l->omega;
    for (unsigned q = share.first; q < mg_points(l); q += share.stride) {
        const int at = mg_at(l, mg_point(l, q));
        mg_inverse_at(l, at, [=](int c) { return mg_residual_at(l, c, at); },
                      [=](int c, OPTPY_REAL y) { l->t[c * l->plane + at] = l->x[c * l->plane + at] + omega * y; });
    }
}

/* x = omega D^-1 v; the sum of x^2 of the thread's points. */
OPTPY_FN double mg_invert(const MgLevel *l, const OPTPY_REAL *v, MgShare share) {
    const OPTPY_REAL omega = (OPTPY_REAL)*l->omega;
    double squares = 0;
    for (unsigned q = share.first; q < mg_points(l); q += share.stride) {
        const int at = mg_at(l, mg_point(l, q));
        mg_inverse_at(l, at, [=](int c) { return v[c * l->plane + at]; }, [=, &squares](int c, OPTPY_REAL y) {
            const OPTPY_REAL x = omega * y;
            l->x[c * l->plane + at] = x;
            squares += (double)x * (double)x;
        });
    }
    return squares;
}

/* -- between two grids --------------------------------------------------------------------------------------------- */

/* 1/2 for each number that is not 0. */
OPTPY_FN OPTPY_REAL mg_weight(int z, int y, int x) {
    const OPTPY_REAL one = 1, half = (OPTPY_REAL)0.5;
    return (z ? half : one) * (y ? half : one) * (x ? half : one);
}

/* P^T of one channel at a coarse point: weights 1/2, 1, 1/2 along each dim that is halved. */
template <typename Value>
OPTPY_FN OPTPY_REAL mg_restricted(const MgLevel *l, const long long *size, MgPoint at, Value value) {
    OPTPY_REAL sum = 0;
    for (int dz = 1 - (int)l->step[0]; dz < l->step[0]; ++dz)
        for (int dy = 1 - (int)l->step[1]; dy < l->step[1]; ++dy)
            for (int dx = 1 - (int)l->step[2]; dx < l->step[2]; ++dx) {
                const MgPoint p = {(int)l->step[0] * at.z + dz, (int)l->step[1] * at.y + dy, (int)l->step[2] * at.x + dx};
                if (p.z < 0 || p.z >= size[0] || p.y < 0 || p.y >= size[1] || p.x < 0 || p.x >= size[2]) continue;
                sum += mg_weight(dz, dy, dx) * value(p);
            }
    return sum;
}

/* b = P^T t of the next finer level. */
OPTPY_FN void mg_restrict(const MgLevel *l, const MgLevel *fine, MgShare share) {
    for (unsigned q = share.first; q < mg_points(l); q += share.stride) {
        const MgPoint p = mg_point(l, q);
#pragma unroll MG_EACH_CHANNEL
        for (int c = 0; c < MG_CHANNELS; ++c) {
            const OPTPY_REAL *t = fine->t + c * fine->plane;
            l->b[c * l->plane + mg_at(l, p)] =
                mg_restricted(l, fine->size, p, [=](MgPoint f) { return t[mg_at(fine, f)]; });
        }
    }
}

/* P v of one channel at a point of the next finer grid: the mean of the coarse points that it lies between. */
OPTPY_FN OPTPY_REAL mg_interpolated(const MgLevel *l, const OPTPY_REAL *v, MgPoint p) {
    const int z = (int)l->step[0] - 1, y = (int)l->step[1] - 1, x = (int)l->step[2] - 1; /* 1 where there are fewer */
    const MgPoint parent = {p.z >> z, p.y >> y, p.x >> x};
    const int nz = p.z & z, ny = p.y & y, nx = p.x & x; /* 1 between two coarse points */
    const int at = mg_at(l, parent);
    OPTPY_REAL sum = 0;
    for (int dz = 0; dz <= nz; ++dz)
        for (int dy = 0; dy <= ny; ++dy)
            for (int dx = 0; dx <= nx; ++dx) sum += v[at + mg_offset(l, {dz, dy, dx})];
    return sum * mg_weight(nz, ny, nx);
}

/* x += P t of the next coarser level. */
OPTPY_FN void mg_interpolate(const MgLevel *l, const MgLevel *coarse, MgShare share) {
    for (unsigned q = share.first; q < mg_points(l); q += share.stride) {
        const MgPoint p = mg_point(l, q);
#pragma unroll MG_EACH_CHANNEL
        for (int c = 0; c < MG_CHANNELS; ++c)
            l->x[c * l->plane + mg_at(l, p)] += mg_interpolated(coarse, coarse->t + c * coarse->plane, p);
    }
}
