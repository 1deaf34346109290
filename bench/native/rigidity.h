// As-rigid-as-possible deformation in space: the residual of two neighbours, for meshes and lattices.
//
//   w_reg ((x_a - x_b) - R(angle_a) (u_a - u_b)),   R(a, b, c) = Rz(c) Ry(b) Rx(a)
#pragma once

#include "ceres_program.h"

struct Arap {
    double weight, u[3];  // u = u_a - u_b

    template <typename T>
    bool operator()(const T* xa, const T* xb, const T* angle, T* residual) const {
        using std::cos;
        using std::sin;
        const T ca = cos(angle[0]), sa = sin(angle[0]);
        const T cb = cos(angle[1]), sb = sin(angle[1]);
        const T cc = cos(angle[2]), sc = sin(angle[2]);
        const T y = ca * u[1] - sa * u[2], z = sa * u[1] + ca * u[2];  // Rx u
        const T x = cb * u[0] + sb * z;                                // Ry Rx u
        residual[0] = weight * (xa[0] - xb[0] - (cc * x - sc * y));
        residual[1] = weight * (xa[1] - xb[1] - (sc * x + cc * y));
        residual[2] = weight * (xa[2] - xb[2] - (cb * z - sb * u[0]));
        return true;
    }
};
