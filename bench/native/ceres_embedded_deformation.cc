// Embedded deformation of a mesh in Ceres: the same energy, data and start as problems/embedded_deformation.py.
//
//   E = 1/2 sum_v |w_rot (x.y, x.z, y.z, x.x - 1, y.y - 1, z.z - 1)|^2     x, y, z the columns of R_v
//     + 1/2 sum_(a,b) |w_reg (R_a (u_b - u_a) + u_a + t_a - u_b - t_b)|^2  (a,b) each edge, from both its ends
//     + 1/2 sum_v |w_con (u_v + t_v - c_v)|^2                              v a handle
//
// DATA.bin: float64 w_rot, w_reg, w_con, Matrix (V, 9), row by row, Translation (V, 3), UrShape (V, 3), Constraints
// (V, 3), uint8 Handle (V), int64 edges (E, 2).
#include "ceres_program.h"

namespace {

struct Orthonormality {
    double weight;

    template <typename T>
    bool operator()(const T* R, T* residual) const {
        const int pairs[6][2] = {{0, 1}, {0, 2}, {1, 2}, {0, 0}, {1, 1}, {2, 2}};
        for (int n = 0; n < 6; ++n) {
            const auto [i, j] = pairs[n];
            const T product = R[i] * R[j] + R[3 + i] * R[3 + j] + R[6 + i] * R[6 + j];
            residual[n] = weight * (product - (i == j ? 1.0 : 0.0));
        }
        return true;
    }
};

struct Agreement {
    double weight, u[3];  // u = u_b - u_a

    template <typename T>
    bool operator()(const T* R, const T* ta, const T* tb, T* residual) const {
        for (int k = 0; k < 3; ++k) {
            const T turned = R[3 * k] * u[0] + R[3 * k + 1] * u[1] + R[3 * k + 2] * u[2];
            residual[k] = weight * (turned - u[k] + ta[k] - tb[k]);
        }
        return true;
    }
};

void deform(int argc, char** argv) {
    Data data(argv[1]);
    const double w_rot = data.number(), w_reg = data.number(), w_con = data.number();
    Array<double> matrix = data.next<double>(), translation = data.next<double>();
    const Array<double> urshape = data.next<double>();
    Array<double> shift = data.next<double>();
    for (size_t n = 0; n < shift.values.size(); ++n) shift.values[n] -= urshape.values[n];  // t shall be c - u
    const Array<uint8_t> handle = data.next<uint8_t>();
    const Array<int64_t> edges = data.next<int64_t>();
    solve([&](ceres::Problem& problem) {
        for (int64_t v = 0; v < handle.rows(); ++v) {
            add<6, 9>(problem, Orthonormality{w_rot}, matrix.row(v));
            if (*handle.row(v)) add<3, 3>(problem, Pull<3>{w_con, shift.row(v)}, translation.row(v));
        }
        for (int64_t e = 0; e < edges.rows(); ++e) {
            const int64_t a = edges.row(e)[0], b = edges.row(e)[1];
            const double *ua = urshape.row(a), *ub = urshape.row(b);
            add<3, 9, 3, 3>(problem, Agreement{w_reg, {ub[0] - ua[0], ub[1] - ua[1], ub[2] - ua[2]}}, matrix.row(a),
                            translation.row(a), translation.row(b));
        }
    }, argc, argv);
}

}  // namespace

int main(int argc, char** argv) { return run(deform, argc, argv); }
