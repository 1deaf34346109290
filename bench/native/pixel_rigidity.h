// As-rigid-as-possible warping on a grid of pixels, as in problems/image_warping.py:
//
//   1/2 sum_p sum_q |w_reg ((x_p - x_q) - R(a_p) (u_p - u_q))|^2   q the 4 active neighbours of p
//
// Read from DATA.bin: float64 w_reg, Offset (H, W, 2), Angle (H, W), UrShape (H, W, 2), uint8 Mask (H, W).
#pragma once

#include "ceres_program.h"

struct PixelArap {
    double weight, ux, uy;  // (ux, uy) = u_p - u_q

    template <typename T>
    bool operator()(const T* xp, const T* xq, const T* angle, T* residual) const {
        using std::cos;
        using std::sin;
        const T c = cos(angle[0]);
        const T s = sin(angle[0]);
        residual[0] = weight * (xp[0] - xq[0] - (c * ux - s * uy));
        residual[1] = weight * (xp[1] - xq[1] - (s * ux + c * uy));
        return true;
    }
};

class Picture {
  public:
    explicit Picture(Data& data)
        : w_reg_(data.number()),
          offset_(data.next<double>()),
          angle_(data.next<double>()),
          urshape_(data.next<double>()),
          mask_(data.next<uint8_t>()) {}

    int64_t rows() const { return mask_.shape[0]; }
    int64_t columns() const { return mask_.shape[1]; }
    double* place(int64_t i, int64_t j) { return &offset_.row(i)[2 * j]; }
    bool active(int64_t i, int64_t j) const {
        return i >= 0 && i < rows() && j >= 0 && j < columns() && mask_.row(i)[j] == 0;
    }

    void add_rigidity(ceres::Problem& problem) {
        for (int64_t i = 0; i < rows(); ++i)
            for (int64_t j = 0; j < columns(); ++j)
                if (active(i, j)) add_neighbours(i, j, problem);
    }

  private:
    void add_neighbours(int64_t i, int64_t j, ceres::Problem& problem) {
        const double* u = &urshape_.row(i)[2 * j];
        const int64_t neighbours[4][2] = {{0, 1}, {0, -1}, {1, 0}, {-1, 0}};
        for (const auto& [di, dj] : neighbours) {
            if (!active(i + di, j + dj)) continue;
            const double* other = &urshape_.row(i + di)[2 * (j + dj)];
            add<2, 2, 2, 1>(problem, PixelArap{w_reg_, u[0] - other[0], u[1] - other[1]}, place(i, j),
                            place(i + di, j + dj), &angle_.row(i)[j]);
        }
    }

    double w_reg_;
    Array<double> offset_, angle_, urshape_;
    Array<uint8_t> mask_;
};
