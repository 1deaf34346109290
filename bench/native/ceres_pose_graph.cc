// Pose graphs in Ceres: the same errors, data and start as problems/pose_graph.py; the first pose is fixed.
//
//   in the plane:  r = S [R(a)^T (p_b - p_a) - p_ab, angle(b - a - ab)]
//   in space:      r = S [R(q_a)^T (p_b - p_a) - p_ab, 2 vec(q_ab (q_a^-1 q_b)^-1)]
//
// DATA.bin: int64 dimension (2 or 3), poses, edges; float64 poses: (V, 3) x, y, angle, or (V, 7) quaternion
// (x, y, z, w) and translation; float64 measured poses (E, 3) or (E, 7); float64 S, (E, 3, 3) or (E, 6, 6);
// int64 edges (E, 2).
#include "ceres_program.h"

#include <Eigen/Geometry>

namespace {

struct PlaneEdge {
    Eigen::Vector3d measured;
    Eigen::Matrix3d root;

    template <typename T>
    bool operator()(const T* a, const T* b, T* residual) const {
        const T c = cos(a[2]), s = sin(a[2]);
        const T dx = b[0] - a[0], dy = b[1] - a[1];
        const T turn = b[2] - a[2] - measured[2];
        Eigen::Matrix<T, 3, 1> error;
        error << c * dx + s * dy - measured[0], c * dy - s * dx - measured[1],
            turn - 2.0 * M_PI * floor((turn + M_PI) / (2.0 * M_PI));
        Eigen::Map<Eigen::Matrix<T, 3, 1>> r(residual);
        r = root.cast<T>() * error;
        return true;
    }
};

struct SpaceEdge {
    Eigen::Quaterniond turn;
    Eigen::Vector3d shift;
    Eigen::Matrix<double, 6, 6> root;

    template <typename T>
    bool operator()(const T* a_turn, const T* a_shift, const T* b_turn, const T* b_shift, T* residual) const {
        const Eigen::Map<const Eigen::Quaternion<T>> qa(a_turn), qb(b_turn);
        const Eigen::Map<const Eigen::Matrix<T, 3, 1>> pa(a_shift), pb(b_shift);
        const Eigen::Quaternion<T> back = qa.conjugate();
        const Eigen::Quaternion<T> off = turn.cast<T>() * (back * qb).conjugate();
        Eigen::Matrix<T, 6, 1> error;
        error.template head<3>() = back * (pb - pa) - shift.cast<T>();
        error.template tail<3>() = T(2.0) * off.vec();
        Eigen::Map<Eigen::Matrix<T, 6, 1>> r(residual);
        r = root.cast<T>() * error;
        return true;
    }
};

struct Graph {
    int64_t dimension, poses, edges;
    std::vector<double> pose, measured, root;
    std::vector<int64_t> ends;
};

Graph load(const char* path) {
    std::ifstream file = open(path);
    const std::vector<int64_t> sizes = read<int64_t>(file, 3);
    const int64_t numbers = sizes[0] == 2 ? 3 : 7, rows = sizes[0] == 2 ? 3 : 6;
    Graph g{sizes[0], sizes[1], sizes[2], {}, {}, {}, {}};
    g.pose = read<double>(file, numbers * g.poses);
    g.measured = read<double>(file, numbers * g.edges);
    g.root = read<double>(file, rows * rows * g.edges);
    g.ends = read<int64_t>(file, 2 * g.edges);
    return g;
}

template <int N>
Eigen::Matrix<double, N, N> root_of(const Graph& g, int64_t edge) {
    using RowMajor = Eigen::Matrix<double, N, N, Eigen::RowMajor>;
    return Eigen::Map<const RowMajor>(&g.root[N * N * edge]);
}

void add_plane(Graph& g, ceres::Problem& problem) {
    for (int64_t n = 0; n < g.edges; ++n) {
        const Eigen::Map<const Eigen::Vector3d> z(&g.measured[3 * n]);
        auto* cost = new ceres::AutoDiffCostFunction<PlaneEdge, 3, 3, 3>(new PlaneEdge{z, root_of<3>(g, n)});
        problem.AddResidualBlock(cost, nullptr, &g.pose[3 * g.ends[2 * n]], &g.pose[3 * g.ends[2 * n + 1]]);
    }
    if (problem.HasParameterBlock(&g.pose[0])) problem.SetParameterBlockConstant(&g.pose[0]);
}

void add_space(Graph& g, ceres::Problem& problem) {
    auto* manifold = new ceres::EigenQuaternionManifold;
    for (int64_t n = 0; n < g.edges; ++n) {
        const double* z = &g.measured[7 * n];
        double *a = &g.pose[7 * g.ends[2 * n]], *b = &g.pose[7 * g.ends[2 * n + 1]];
        auto* edge = new SpaceEdge{Eigen::Quaterniond(z[3], z[0], z[1], z[2]), Eigen::Vector3d(z[4], z[5], z[6]),
                                   root_of<6>(g, n)};
        auto* cost = new ceres::AutoDiffCostFunction<SpaceEdge, 6, 4, 3, 4, 3>(edge);
        problem.AddResidualBlock(cost, nullptr, a, a + 4, b, b + 4);
        problem.SetManifold(a, manifold);
        problem.SetManifold(b, manifold);
    }
    for (double* part : {&g.pose[0], &g.pose[4]})
        if (problem.HasParameterBlock(part)) problem.SetParameterBlockConstant(part);
}

void adjust(int argc, char** argv) {
    Graph g = load(argv[1]);
    solve([&](ceres::Problem& problem) { g.dimension == 2 ? add_plane(g, problem) : add_space(g, problem); }, argc, argv);
}

}  // namespace

int main(int argc, char** argv) { return run(adjust, argc, argv); }
