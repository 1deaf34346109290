// Shape from shading in Ceres: the same energy, data and start as problems/shape_from_shading.py.
//
//   E = 1/2 sum_p w_fit (x_p - d_p)^2
//     + 1/2 sum_p w_shade a_p^2 (B_p - B_q)^2    q the pixel at the right of p, a what across is at p, and the pixel
//                                                below it, a what down is
//     + 1/2 sum_p w_smooth |4 P_p - sum_q P_q|^2   q the 4 neighbours of p, where the surface is whole: none of them
//                                                a centimetre or more nearer or farther than p
//
// p the pixels that were measured, d_p > 0, and but for the first sum those inside the border; P_p the point of space
// that p shows. B_p is the brightness that the light's spherical harmonics give the normal through p, the pixel at its
// left and the one above it, less that of the picture; 0 where one of the three was not measured.
//
// DATA.bin: float64 X (H, W), D (H, W), Im (H, W), uint8 across (H, W), down (H, W), float64 w_fit, w_smooth, w_shade,
// focal_x, focal_y, centre_x, centre_y, light0 to light8.
#include "ceres_program.h"

namespace {

struct Camera {
    double focal_x, focal_y, centre_x, centre_y;

    double x(int64_t j) const { return (j - centre_x) / focal_x; }
    double y(int64_t i) const { return (i - centre_y) / focal_y; }
};

// The part of a pixel's brightness that shading does not explain.
struct Brightness {
    bool valid;
    double x, y, seen;
    const Camera* camera;
    const double* light;

    template <typename T>
    T unexplained(const T& here, const T& left, const T& up) const {
        if (!valid) return T(0.0);
        T n_x = up * (here - left) / camera->focal_y;
        T n_y = left * (here - up) / camera->focal_x;
        T n_z = -n_x * x - n_y * y - left * up / (camera->focal_x * camera->focal_y);
        const T square = n_x * n_x + n_y * n_y + n_z * n_z;
        if (square > 0.0) {
            using std::sqrt;
            const T scale = 1.0 / sqrt(square);
            n_x *= scale, n_y *= scale, n_z *= scale;
        }
        const double* l = light;
        return l[0] + l[1] * n_y + l[2] * n_z + l[3] * n_x + l[4] * n_x * n_y + l[5] * n_y * n_z + l[7] * n_z * n_x +
               l[6] * (2.0 * n_z * n_z - n_x * n_x - n_y * n_y) + l[8] * (n_x * n_x - n_y * n_y) - seen;
    }
};

// The pixel at the right of p has the corner above it, and p itself at its left.
struct ContrastAcross {
    double weight;
    Brightness p, q;

    template <typename T>
    bool operator()(const T* here, const T* left, const T* up, const T* right, const T* corner, T* residual) const {
        residual[0] = weight * (p.unexplained(*here, *left, *up) - q.unexplained(*right, *here, *corner));
        return true;
    }
};

// The pixel below p has the corner at its left, and p itself above it.
struct ContrastDown {
    double weight;
    Brightness p, q;

    template <typename T>
    bool operator()(const T* here, const T* left, const T* up, const T* below, const T* corner, T* residual) const {
        residual[0] = weight * (p.unexplained(*here, *left, *up) - q.unexplained(*below, *corner, *here));
        return true;
    }
};

struct Curvature {
    double weight, x[5], y[5];  // of the pixel, then of its neighbours

    template <typename T>
    bool operator()(const T* here, const T* n1, const T* n2, const T* n3, const T* n4, T* residual) const {
        const T* neighbours[4] = {n1, n2, n3, n4};
        T sum[3] = {4.0 * *here * x[0], 4.0 * *here * y[0], 4.0 * *here};
        bool whole = true;
        for (int n = 0; n < 4; ++n) {
            const T& depth = *neighbours[n];
            const T step = *here - depth;
            whole = whole && step < 0.01 && step > -0.01;
            sum[0] -= depth * x[n + 1];
            sum[1] -= depth * y[n + 1];
            sum[2] -= depth;
        }
        for (int k = 0; k < 3; ++k) residual[k] = whole ? weight * sum[k] : T(0.0);
        return true;
    }
};

class Scan {
  public:
    explicit Scan(Data& data)
        : depth_(data.next<double>()),
          scan_(data.next<double>()),
          brightness_(data.next<double>()),
          across_(data.next<uint8_t>()),
          down_(data.next<uint8_t>()),
          w_fit_(data.number()),
          w_smooth_(data.number()),
          w_shade_(data.number()) {
        for (double* number : {&camera_.focal_x, &camera_.focal_y, &camera_.centre_x, &camera_.centre_y})
            *number = data.number();
        for (double& number : light_) number = data.number();
    }

    void add_to(ceres::Problem& problem) {
        const int64_t rows = depth_.shape[0], columns = depth_.shape[1];
        for (int64_t i = 0; i < rows; ++i)
            for (int64_t j = 0; j < columns; ++j) {
                if (measured(i, j)) add<1, 1>(problem, Pull<1>{std::sqrt(w_fit_), &scan_.row(i)[j]}, at(i, j));
                if (!inside(i, j)) continue;
                add_contrasts(i, j, problem);
                if (measured(i, j)) add_curvature(i, j, problem);
            }
        for (int64_t i = 0; i < rows; ++i)
            for (int64_t j = 0; j < columns; ++j)
                if (!measured(i, j) && problem.HasParameterBlock(at(i, j)))
                    problem.SetParameterBlockConstant(at(i, j));
    }

  private:
    double* at(int64_t i, int64_t j) { return &depth_.row(i)[j]; }
    bool measured(int64_t i, int64_t j) const { return scan_.row(i)[j] > 0; }
    bool inside(int64_t i, int64_t j) const {
        return i > 0 && j > 0 && i + 1 < depth_.shape[0] && j + 1 < depth_.shape[1];
    }

    Brightness brightness(int64_t i, int64_t j) const {
        if (!(inside(i, j) && measured(i, j) && measured(i, j - 1) && measured(i - 1, j))) return Brightness{};
        const double seen =
            0.5 * brightness_.row(i)[j] + 0.25 * (brightness_.row(i)[j - 1] + brightness_.row(i - 1)[j]);
        return Brightness{true, camera_.x(j), camera_.y(i), seen, &camera_, light_};
    }

    void add_contrasts(int64_t i, int64_t j, ceres::Problem& problem) {
        const Brightness here = brightness(i, j), right = brightness(i, j + 1), below = brightness(i + 1, j);
        const double across = std::sqrt(w_shade_) * across_.row(i)[j], down = std::sqrt(w_shade_) * down_.row(i)[j];
        if (across != 0 && (here.valid || right.valid))
            add<1, 1, 1, 1, 1, 1>(problem, ContrastAcross{across, here, right}, at(i, j), at(i, j - 1), at(i - 1, j),
                                  at(i, j + 1), at(i - 1, j + 1));
        if (down != 0 && (here.valid || below.valid))
            add<1, 1, 1, 1, 1, 1>(problem, ContrastDown{down, here, below}, at(i, j), at(i, j - 1), at(i - 1, j),
                                  at(i + 1, j), at(i + 1, j - 1));
    }

    void add_curvature(int64_t i, int64_t j, ceres::Problem& problem) {
        const int64_t near[5][2] = {{i, j}, {i, j - 1}, {i - 1, j}, {i, j + 1}, {i + 1, j}};
        Curvature curvature{std::sqrt(w_smooth_), {}, {}};
        for (int n = 0; n < 5; ++n) {
            if (!measured(near[n][0], near[n][1])) return;
            curvature.x[n] = camera_.x(near[n][1]);
            curvature.y[n] = camera_.y(near[n][0]);
        }
        add<3, 1, 1, 1, 1, 1>(problem, curvature, at(i, j), at(i, j - 1), at(i - 1, j), at(i, j + 1), at(i + 1, j));
    }

    Array<double> depth_, scan_, brightness_;
    Array<uint8_t> across_, down_;
    double w_fit_, w_smooth_, w_shade_;
    Camera camera_;
    double light_[9];
};

void refine(int argc, char** argv) {
    Data data(argv[1]);
    Scan scan(data);
    solve([&](ceres::Problem& problem) { scan.add_to(problem); }, argc, argv);
}

}  // namespace

int main(int argc, char** argv) { return run(refine, argc, argv); }
