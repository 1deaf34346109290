// As-rigid-as-possible image warping in Ceres: the same energy, data and start as problems/image_warping.py.
//
//   E = 1/2 sum_p |w_fit (x_p - c_p)|^2                                active, pinned pixels
//     + 1/2 sum_p sum_q |w_reg ((x_p - x_q) - R(a_p) (u_p - u_q))|^2   q the 4 active neighbours of p
//
// DATA.bin: int64 H, W; float64 w_fit, w_reg; then, row by row, float64 Offset (H, W, 2),
// Angle (H, W), UrShape (H, W, 2), Constraints (H, W, 2), uint8 Mask (H, W).
#include "ceres_program.h"

namespace {

struct Fit {
    double weight, cx, cy;

    template <typename T>
    bool operator()(const T* x, T* residual) const {
        residual[0] = weight * (x[0] - cx);
        residual[1] = weight * (x[1] - cy);
        return true;
    }
};

struct Arap {
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

struct Data {
    int64_t rows = 0, columns = 0;
    double w_fit = 0, w_reg = 0;
    std::vector<double> offset, angle, urshape, constraints;
    std::vector<uint8_t> mask;

    bool active(int64_t i, int64_t j) const {
        return i >= 0 && i < rows && j >= 0 && j < columns && mask[i * columns + j] == 0;
    }
};

Data load(const char* path) {
    std::ifstream file = open(path);
    Data data;
    read(file, &data.rows, 1);
    read(file, &data.columns, 1);
    read(file, &data.w_fit, 1);
    read(file, &data.w_reg, 1);
    const size_t pixels = static_cast<size_t>(data.rows * data.columns);
    for (auto [values, channels] : {std::pair{&data.offset, 2}, std::pair{&data.angle, 1},
                                    std::pair{&data.urshape, 2}, std::pair{&data.constraints, 2}}) {
        values->resize(pixels * channels);
        read(file, values->data(), values->size());
    }
    data.mask.resize(pixels);
    read(file, data.mask.data(), pixels);
    return data;
}

void add_pixel(Data& data, int64_t i, int64_t j, ceres::Problem& problem) {
    const int64_t p = i * data.columns + j;
    const double *c = &data.constraints[2 * p], *u = &data.urshape[2 * p];
    double* x = &data.offset[2 * p];
    if (c[0] >= 0 && c[1] >= 0) {
        problem.AddResidualBlock(
            new ceres::AutoDiffCostFunction<Fit, 2, 2>(new Fit{data.w_fit, c[0], c[1]}), nullptr, x);
    }
    const int64_t neighbours[4][2] = {{0, 1}, {0, -1}, {1, 0}, {-1, 0}};
    for (const auto& [di, dj] : neighbours) {
        if (!data.active(i + di, j + dj)) continue;
        const int64_t q = p + di * data.columns + dj;
        auto* arap = new Arap{data.w_reg, u[0] - data.urshape[2 * q], u[1] - data.urshape[2 * q + 1]};
        problem.AddResidualBlock(new ceres::AutoDiffCostFunction<Arap, 2, 2, 2, 1>(arap), nullptr, x,
                                 &data.offset[2 * q], &data.angle[p]);
    }
}

void warp(int argc, char** argv) {
    Data data = load(argv[1]);
    solve([&](ceres::Problem& problem) {
        for (int64_t i = 0; i < data.rows; ++i)
            for (int64_t j = 0; j < data.columns; ++j)
                if (data.active(i, j)) add_pixel(data, i, j, problem);
    }, argc, argv);
}

}  // namespace

int main(int argc, char** argv) { return run(warp, argc, argv); }
