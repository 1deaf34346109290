// Bundle adjustment in Ceres: the same camera, data and start as problems/bundle_adjustment.py.
//
//   P = R(a) X + t, p = -P.xy / P.z, r = f (1 + k1 |p|^2 + k2 |p|^4) p - seen
//
// DATA.bin: int64 cameras, points, observations; float64 cameras (C, 9): a, t, f, k1, k2; float64 points (P, 3);
// float64 seen (O, 2); int64 camera and point of each observation (O, 2).
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
    std::ifstream file = open(argv[1]);
    const std::vector<int64_t> sizes = read<int64_t>(file, 3);
    std::vector<double> cameras = read<double>(file, 9 * sizes[0]);
    std::vector<double> points = read<double>(file, 3 * sizes[1]);
    const std::vector<double> seen = read<double>(file, 2 * sizes[2]);
    const std::vector<int64_t> pairs = read<int64_t>(file, 2 * sizes[2]);
    solve([&](ceres::Problem& problem) {
        for (int64_t n = 0; n < sizes[2]; ++n) {
            auto* cost = new ceres::AutoDiffCostFunction<Reprojection, 2, 9, 3>(
                new Reprojection{seen[2 * n], seen[2 * n + 1]});
            problem.AddResidualBlock(cost, nullptr, &cameras[9 * pairs[2 * n]], &points[3 * pairs[2 * n + 1]]);
        }
    }, argc, argv);
}

}  // namespace

int main(int argc, char** argv) { return run(adjust, argc, argv); }
