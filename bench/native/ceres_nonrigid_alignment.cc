// Alignment of a mesh with given points and planes in Ceres: the same energy, data and start as
// problems/nonrigid_alignment.py between two updates of the matches.
//
//   E = 1/2 sum_v (w_fit w_v n_v.(x_v - t_v))^2                   v matched
//     + 1/2 sum_v (w_conf (1 - w_v^2))^2                          v matched
//     + 1/2 sum_(a,b) |w_reg ((x_a - x_b) - R_a (u_a - u_b))|^2   (a,b) each edge, from both its ends
//
// DATA.bin: float64 w_fit, w_conf, w_reg, X (V, 3), Rotation (V, 4): quaternions (x, y, z, w), Weight (V), UrShape
// (V, 3), Target (V, 3), Normal (V, 3), uint8 Matched (V), int64 edges (E, 2).
#include "ceres_program.h"

#include <Eigen/Geometry>

namespace {

struct Touch {
    double weight;
    const double *target, *normal;

    template <typename T>
    bool operator()(const T* x, const T* confidence, T* residual) const {
        T distance(0.0);
        for (int k = 0; k < 3; ++k) distance += normal[k] * (x[k] - target[k]);
        residual[0] = weight * confidence[0] * distance;
        return true;
    }
};

struct Confidence {
    double weight;

    template <typename T>
    bool operator()(const T* confidence, T* residual) const {
        residual[0] = weight * (1.0 - confidence[0] * confidence[0]);
        return true;
    }
};

struct Arap {
    double weight;
    Eigen::Vector3d u;  // u_a - u_b

    template <typename T>
    bool operator()(const T* xa, const T* xb, const T* rotation, T* residual) const {
        const Eigen::Map<const Eigen::Quaternion<T>> R(rotation);
        const Eigen::Matrix<T, 3, 1> turned = R * u.cast<T>().eval();
        for (int k = 0; k < 3; ++k) residual[k] = weight * (xa[k] - xb[k] - turned[k]);
        return true;
    }
};

void align(int argc, char** argv) {
    Data data(argv[1]);
    const double w_fit = data.number(), w_conf = data.number(), w_reg = data.number();
    Array<double> x = data.next<double>(), rotation = data.next<double>(), confidence = data.next<double>();
    const Array<double> urshape = data.next<double>(), target = data.next<double>(), normal = data.next<double>();
    const Array<uint8_t> matched = data.next<uint8_t>();
    const Array<int64_t> edges = data.next<int64_t>();
    solve([&](ceres::Problem& problem) {
        for (int64_t v = 0; v < matched.rows(); ++v) {
            if (!*matched.row(v)) continue;
            add<1, 3, 1>(problem, Touch{w_fit, target.row(v), normal.row(v)}, x.row(v), confidence.row(v));
            add<1, 1>(problem, Confidence{w_conf}, confidence.row(v));
        }
        auto* manifold = new ceres::EigenQuaternionManifold;
        for (int64_t e = 0; e < edges.rows(); ++e) {
            const int64_t a = edges.row(e)[0], b = edges.row(e)[1];
            const Eigen::Map<const Eigen::Vector3d> ua(urshape.row(a)), ub(urshape.row(b));
            add<3, 3, 3, 4>(problem, Arap{w_reg, ua - ub}, x.row(a), x.row(b), rotation.row(a));
            problem.SetManifold(rotation.row(a), manifold);
        }
    }, argc, argv);
}

}  // namespace

int main(int argc, char** argv) { return run(align, argc, argv); }
