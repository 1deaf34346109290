// As-rigid-as-possible mesh deformation in Ceres: the same energy, data and start as problems/mesh_deformation.py with
// Euler angles.
//
//   E = 1/2 sum_v |w_fit (x_v - c_v)|^2                                 v a handle
//     + 1/2 sum_(a,b) |w_reg ((x_a - x_b) - R(angle_a) (u_a - u_b))|^2  (a,b) each edge, from both its ends
//                                                                       (see rigidity.h)
//
// DATA.bin: float64 w_fit, w_reg, Offset (V, 3), Angle (V, 3), UrShape (V, 3), Constraints (V, 3), uint8 Handle (V),
// int64 edges (E, 2).
#include "rigidity.h"

namespace {

void deform(int argc, char** argv) {
    Data data(argv[1]);
    const double w_fit = data.number(), w_reg = data.number();
    Array<double> offset = data.next<double>(), angle = data.next<double>();
    const Array<double> urshape = data.next<double>(), constraints = data.next<double>();
    const Array<uint8_t> handle = data.next<uint8_t>();
    const Array<int64_t> edges = data.next<int64_t>();
    solve([&](ceres::Problem& problem) {
        for (int64_t v = 0; v < handle.rows(); ++v)
            if (*handle.row(v)) add<3, 3>(problem, Pull<3>{w_fit, constraints.row(v)}, offset.row(v));
        for (int64_t e = 0; e < edges.rows(); ++e) {
            const int64_t a = edges.row(e)[0], b = edges.row(e)[1];
            const double *ua = urshape.row(a), *ub = urshape.row(b);
            add<3, 3, 3, 3>(problem, Arap{w_reg, {ua[0] - ub[0], ua[1] - ub[1], ua[2] - ub[2]}}, offset.row(a),
                            offset.row(b), angle.row(a));
        }
    }, argc, argv);
}

}  // namespace

int main(int argc, char** argv) { return run(deform, argc, argv); }
