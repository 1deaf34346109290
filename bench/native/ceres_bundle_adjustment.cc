// Bundle adjustment in Ceres: the same camera, data and start as problems/bundle_adjustment.py.
//
//   P = R(a) X + t, p = -P.xy / P.z, r = f (1 + k1 |p|^2 + k2 |p|^4) p - seen
//
// DATA.bin: float64 cameras (C, 9): a, t, f, k1, k2; points (P, 3); seen (O, 2); int64 camera and point of each
// observation (O, 2).
#include "ceres_program.h"

#include <ceres/rotation.h>

namespace {

struct Reprojection {
    double x, y;

    template <typename T>
    bool operator()(const T* camera, const T* point, T* residual) const {
        T P[3];
        ceres::AngleAxisRotatePoint(camera, point, P);
        for (int k = 0; k < 3; ++k) P[k] += camera[3 + k];
        const T px = -P[0] / P[2];
        const T py = -P[1] / P[2];
        const T square = px * px + py * py;
        const T scale = camera[6] * (1.0 + square * (camera[7] + square * camera[8]));
        residual[0] = scale * px - x;
        residual[1] = scale * py - y;
        return true;
    }
};

void adjust(int argc, char** argv) {
    Data data(argv[1]);
    Array<double> cameras = data.next<double>(), points = data.next<double>();
    const Array<double> seen = data.next<double>();
    const Array<int64_t> pairs = data.next<int64_t>();
    solve([&](ceres::Problem& problem) {
        for (int64_t n = 0; n < pairs.rows(); ++n)
            add<2, 9, 3>(problem, Reprojection{seen.row(n)[0], seen.row(n)[1]}, cameras.row(pairs.row(n)[0]),
                         points.row(pairs.row(n)[1]));
    }, argc, argv);
}

}  // namespace

int main(int argc, char** argv) { return run(adjust, argc, argv); }
