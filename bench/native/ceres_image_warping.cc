// As-rigid-as-possible image warping in Ceres: the same energy, data and start as problems/image_warping.py.
//
//   E = 1/2 sum_p |w_fit (x_p - c_p)|^2                                active, pinned pixels
//     + 1/2 sum_p sum_q |w_reg ((x_p - x_q) - R(a_p) (u_p - u_q))|^2   q the 4 active neighbours of p
//
// Usage: image_warping DATA.bin LOG.csv [option=value ...]; `linear_solver` is cholesky or cg, the others are
// Ceres' Solver::Options by name.
//
// DATA.bin, little-endian: int64 H, W; float64 w_fit, w_reg; then, row by row, float64 Offset (H, W, 2),
// Angle (H, W), UrShape (H, W, 2), Constraints (H, W, 2), uint8 Mask (H, W).
// LOG.csv gets one row for each nonlinear iteration, and `# key: value` lines at the end.
#include <ceres/ceres.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

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

template <typename T>
void read(std::ifstream& file, T* target, size_t count) {
    file.read(reinterpret_cast<char*>(target), static_cast<std::streamsize>(count * sizeof(T)));
    if (!file) throw std::runtime_error("the data file is too short");
}

Data load(const char* path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error(std::string("cannot open ") + path);
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

class Log : public ceres::IterationCallback {
  public:
    explicit Log(std::FILE* file) : file_(file) {
        std::fprintf(file_, "iteration,cost,seconds,accepted,linear_iterations,radius\n");
    }
    ceres::CallbackReturnType operator()(const ceres::IterationSummary& it) override {
        std::fprintf(file_, "%d,%.12g,%.6f,%d,%d,%.6g\n", it.iteration, it.cost, it.cumulative_time_in_seconds,
                     it.step_is_successful ? 1 : 0, it.linear_solver_iterations, it.trust_region_radius);
        std::fflush(file_);
        return ceres::SOLVER_CONTINUE;
    }

  private:
    std::FILE* file_;
};

// Sets one option from its text `key=value`; the keys are Ceres' own names.
void set_option(ceres::Solver::Options& options, const std::string& text) {
    const size_t split = text.find('=');
    const std::string key = text.substr(0, split);
    const std::string value = split == std::string::npos ? "" : text.substr(split + 1);
    if (key == "linear_solver" && value == "cholesky") options.linear_solver_type = ceres::SPARSE_NORMAL_CHOLESKY;
    else if (key == "linear_solver" && value == "cg") options.linear_solver_type = ceres::CGNR;
    else if (key == "eta") options.eta = std::stod(value);
    else if (key == "num_threads") options.num_threads = std::stoi(value);
    else if (key == "max_num_iterations") options.max_num_iterations = std::stoi(value);
    else if (key == "max_linear_solver_iterations") options.max_linear_solver_iterations = std::stoi(value);
    else if (key == "max_solver_time_in_seconds") options.max_solver_time_in_seconds = std::stod(value);
    else if (key == "initial_trust_region_radius") options.initial_trust_region_radius = std::stod(value);
    else if (key == "use_nonmonotonic_steps") options.use_nonmonotonic_steps = value == "true";
    else throw std::runtime_error("unknown option " + text);
}

void run(int argc, char** argv) {
    Data data = load(argv[1]);
    const auto begin = std::chrono::steady_clock::now();
    ceres::Problem problem;
    for (int64_t i = 0; i < data.rows; ++i)
        for (int64_t j = 0; j < data.columns; ++j)
            if (data.active(i, j)) add_pixel(data, i, j, problem);
    const std::chrono::duration<double> build = std::chrono::steady_clock::now() - begin;

    std::FILE* file = std::fopen(argv[2], "w");
    if (!file) throw std::runtime_error(std::string("cannot write ") + argv[2]);
    Log log(file);
    ceres::Solver::Options options;
    options.preconditioner_type = ceres::JACOBI;
    options.logging_type = ceres::SILENT;
    for (int k = 3; k < argc; ++k) set_option(options, argv[k]);
    options.callbacks.push_back(&log);
    ceres::Solver::Summary summary;
    ceres::Solve(options, &problem, &summary);
    std::fprintf(file, "# version: %s\n# build_seconds: %.6f\n# total_seconds: %.6f\n# parameters: %d\n"
                 "# residuals: %d\n# final_cost: %.12g\n# message: %s\n",
                 CERES_VERSION_STRING, build.count(), summary.total_time_in_seconds,
                 summary.num_parameters_reduced, summary.num_residuals_reduced, summary.final_cost,
                 summary.message.c_str());
    std::fclose(file);
    std::printf("%s\n", summary.FullReport().c_str());
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) {
        std::fprintf(stderr, "usage: %s DATA.bin LOG.csv [option=value ...]\n", argv[0]);
        return 2;
    }
    try {
        run(argc, argv);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return 0;
}
