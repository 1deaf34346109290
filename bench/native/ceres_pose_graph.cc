// Pose graphs in Ceres: the same errors, data and start as problems/pose_graph.py; the first pose is fixed.
//
//   in the plane:  r = S [R(a)^T (p_b - p_a) - p_ab, angle(b - a - ab)]
//   in space:      r = S [R(q_a)^T (p_b - p_a) - p_ab, 2 vec(q_ab (q_a^-1 q_b)^-1)]
//
// DATA.bin: float64 poses: (V, 3) x, y, angle, or (V, 7) quaternion (x, y, z, w) and translation; measured poses (E, 3)
// or (E, 7); S, (E, 3, 3) or (E, 6, 6); int64 edges (E, 2).
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
    Array<double> pose, measured, root;
    Array<int64_t> edges;

    double* start(int64_t edge) { return pose.row(edges.row(edge)[0]); }
    double* end(int64_t edge) { return pose.row(edges.row(edge)[1]); }
};

template <int N>
Eigen::Matrix<double, N, N> root_of(const Graph& g, int64_t edge) {
    using RowMajor = Eigen::Matrix<double, N, N, Eigen::RowMajor>;
    return Eigen::Map<const RowMajor>(g.root.row(edge));
}

void add_plane(Graph& g, ceres::Problem& problem) {
    for (int64_t n = 0; n < g.edges.rows(); ++n) {
        const Eigen::Map<const Eigen::Vector3d> z(g.measured.row(n));
        add<3, 3, 3>(problem, PlaneEdge{z, root_of<3>(g, n)}, g.start(n), g.end(n));
    }
    if (problem.HasParameterBlock(g.pose.row(0))) problem.SetParameterBlockConstant(g.pose.row(0));
}

void add_space(Graph& g, ceres::Problem& problem) {
    auto* manifold = new ceres::EigenQuaternionManifold;
    for (int64_t n = 0; n < g.edges.rows(); ++n) {
        const double* z = g.measured.row(n);
        double *a = g.start(n), *b = g.end(n);
        const SpaceEdge edge{Eigen::Quaterniond(z[3], z[0], z[1], z[2]), Eigen::Vector3d(z[4], z[5], z[6]),
                             root_of<6>(g, n)};
        add<6, 4, 3, 4, 3>(problem, edge, a, a + 4, b, b + 4);
        problem.SetManifold(a, manifold);
        problem.SetManifold(b, manifold);
    }
    for (double* part : {g.pose.row(0), g.pose.row(0) + 4})
        if (problem.HasParameterBlock(part)) problem.SetParameterBlockConstant(part);
}

void adjust(int argc, char** argv) {
    Data data(argv[1]);
    Graph g{data.next<double>(), data.next<double>(), data.next<double>(), data.next<int64_t>()};
    const bool in_plane = g.pose.shape.at(1) == 3;
    solve([&](ceres::Problem& problem) { in_plane ? add_plane(g, problem) : add_space(g, problem); }, argc, argv);
}

}  // namespace

int main(int argc, char** argv) { return run(adjust, argc, argv); }
