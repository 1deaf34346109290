// As-rigid-as-possible mesh deformation in Ceres: the same energy, data and start as problems/mesh_deformation.py with
// Euler angles.
//
//   E = 1/2 sum_v |w_fit (x_v - c_v)|^2                                 v a handle
//     + 1/2 sum_(a,b) |w_reg ((x_a - x_b) - R(angle_a) (u_a - u_b))|^2  (a,b) each edge, from both its ends
//
// R(a, b, c) = Rz(c) Ry(b) Rx(a).
//
// DATA.bin: int64 V, E; float64 w_fit, w_reg; then, row by row, float64 Offset (V, 3), Angle (V, 3), UrShape (V, 3),
// Constraints (V, 3), uint8 Handle (V), int32 edges (E, 2).
#include "ceres_program.h"

namespace {

struct Fit {
    double weight;
    const double* target;

    template <typename T>
    bool operator()(const T* x, T* residual) const {
        for (int k = 0; k < 3; ++k) residual[k] = weight * (x[k] - target[k]);
        return true;
    }
};

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

struct Data {
    double w_fit = 0, w_reg = 0;
    std::vector<double> offset, angle, urshape, constraints;
    std::vector<uint8_t> handle;
    std::vector<int32_t> edges;
};

Data load(const char* path) {
    std::ifstream file = open(path);
    int64_t vertices = 0, edges = 0;
    Data data;
    read(file, &vertices, 1);
    read(file, &edges, 1);
    read(file, &data.w_fit, 1);
    read(file, &data.w_reg, 1);
    for (auto* values : {&data.offset, &data.angle, &data.urshape, &data.constraints})
        *values = read<double>(file, 3 * static_cast<size_t>(vertices));
    data.handle = read<uint8_t>(file, static_cast<size_t>(vertices));
    data.edges = read<int32_t>(file, 2 * static_cast<size_t>(edges));
    return data;
}

void add_edge(Data& data, int64_t a, int64_t b, ceres::Problem& problem) {
    const double *ua = &data.urshape[3 * a], *ub = &data.urshape[3 * b];
    auto* arap = new Arap{data.w_reg, {ua[0] - ub[0], ua[1] - ub[1], ua[2] - ub[2]}};
    problem.AddResidualBlock(new ceres::AutoDiffCostFunction<Arap, 3, 3, 3, 3>(arap), nullptr, &data.offset[3 * a],
                             &data.offset[3 * b], &data.angle[3 * a]);
}

void deform(int argc, char** argv) {
    Data data = load(argv[1]);
    solve([&](ceres::Problem& problem) {
        for (size_t v = 0; v < data.handle.size(); ++v)
            if (data.handle[v])
                problem.AddResidualBlock(
                    new ceres::AutoDiffCostFunction<Fit, 3, 3>(new Fit{data.w_fit, &data.constraints[3 * v]}),
                    nullptr, &data.offset[3 * v]);
        for (size_t e = 0; e < data.edges.size(); e += 2) add_edge(data, data.edges[e], data.edges[e + 1], problem);
    }, argc, argv);
}

}  // namespace

int main(int argc, char** argv) { return run(deform, argc, argv); }
