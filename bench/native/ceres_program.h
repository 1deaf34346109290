// What the Ceres programs have in common: reading arrays, adding residuals, options by name, the log of a solve.
//
// Each is called as PROGRAM DATA.bin LOG.csv [option=value ...]. DATA.bin holds arrays, one after the other: int64 bytes
// of a number, dimensions, size along each of them, and the numbers row by row; all little-endian. Which they are stands
// at the top of each program. `linear_solver` is cholesky, cg, dense_schur, sparse_schur or iterative_schur,
// the other options are Ceres' Solver::Options by name. LOG.csv gets one row for each nonlinear iteration, and
// `# key: value` lines at the end.
#pragma once

#include <ceres/ceres.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

// An array of DATA.bin; a row is all that stands at one index of its first dimension.
template <typename T>
struct Array {
    std::vector<int64_t> shape;
    std::vector<T> values;

    int64_t rows() const { return shape.at(0); }
    T* row(int64_t n) { return values.data() + n * (values.size() / rows()); }
    const T* row(int64_t n) const { return values.data() + n * (values.size() / rows()); }
};

class Data {
  public:
    explicit Data(const char* path) : file_(path, std::ios::binary) {
        if (!file_) throw std::runtime_error(std::string("cannot open ") + path);
    }

    template <typename T>
    Array<T> next() {
        if (read<int64_t>(1)[0] != sizeof(T)) throw std::runtime_error("the data file has other arrays");
        Array<T> array;
        array.shape = read<int64_t>(read<int64_t>(1)[0]);
        size_t count = 1;
        for (const int64_t size : array.shape) count *= size;
        array.values = read<T>(count);
        return array;
    }

    double number() { return next<double>().values.at(0); }

  private:
    template <typename T>
    std::vector<T> read(size_t count) {
        std::vector<T> values(count);
        file_.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(count * sizeof(T)));
        if (!file_) throw std::runtime_error("the data file is too short");
        return values;
    }

    std::ifstream file_;
};

// Adds the residuals of a functor, differentiated automatically; `Sizes` are those of the blocks of unknowns.
template <int Residuals, int... Sizes, typename Functor, typename... Blocks>
void add(ceres::Problem& problem, const Functor& functor, Blocks*... blocks) {
    problem.AddResidualBlock(new ceres::AutoDiffCostFunction<Functor, Residuals, Sizes...>(new Functor(functor)),
                             nullptr, blocks...);
}

// w (x - target), of N numbers.
template <int N>
struct Pull {
    double weight;
    const double* target;

    template <typename T>
    bool operator()(const T* x, T* residual) const {
        for (int k = 0; k < N; ++k) residual[k] = weight * (x[k] - target[k]);
        return true;
    }
};

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

inline ceres::LinearSolverType linear_solver(const std::string& name) {
    const std::map<std::string, ceres::LinearSolverType> known = {
        {"cholesky", ceres::SPARSE_NORMAL_CHOLESKY}, {"cg", ceres::CGNR},
        {"dense_schur", ceres::DENSE_SCHUR},         {"sparse_schur", ceres::SPARSE_SCHUR},
        {"iterative_schur", ceres::ITERATIVE_SCHUR},
    };
    const auto found = known.find(name);
    if (found == known.end()) throw std::runtime_error("unknown linear solver " + name);
    return found->second;
}

// Sets one option from its text `key=value`; the keys are Ceres' own names.
inline void set_option(ceres::Solver::Options& options, const std::string& text) {
    const size_t split = text.find('=');
    const std::string key = text.substr(0, split);
    const std::string value = split == std::string::npos ? "" : text.substr(split + 1);
    if (key == "linear_solver") options.linear_solver_type = linear_solver(value);
    else if (key == "eta") options.eta = std::stod(value);
    else if (key == "num_threads") options.num_threads = std::stoi(value);
    else if (key == "max_num_iterations") options.max_num_iterations = std::stoi(value);
    else if (key == "max_linear_solver_iterations") options.max_linear_solver_iterations = std::stoi(value);
    else if (key == "max_solver_time_in_seconds") options.max_solver_time_in_seconds = std::stod(value);
    else if (key == "function_tolerance") options.function_tolerance = std::stod(value);
    else if (key == "initial_trust_region_radius") options.initial_trust_region_radius = std::stod(value);
    else if (key == "use_nonmonotonic_steps") options.use_nonmonotonic_steps = value == "true";
    else throw std::runtime_error("unknown option " + text);
}

// A number of KiB in /proc/self/status: VmRSS, the memory of this process, or VmHWM, its largest so far. Elsewhere than
// on Linux 0.
inline long memory_kib(const std::string& key) {
    std::ifstream file("/proc/self/status");
    for (std::string line; std::getline(file, line);)
        if (line.rfind(key + ":", 0) == 0) return std::stol(line.substr(key.size() + 1));
    return 0;
}

// Weights that follow the unknowns from step to step, and are held within each: computed where J is. So a candidate has
// the weights of the point that it is compared to.
class Weights : public ceres::EvaluationCallback {
  public:
    explicit Weights(std::function<void()> compute) : compute_(std::move(compute)) {}
    void PrepareForEvaluation(bool evaluate_jacobians, bool) override {
        if (evaluate_jacobians) compute_();
    }

  private:
    std::function<void()> compute_;
};

// With such weights: full steps, as of Gauss-Newton. Ceres compares a candidate to the cost that the step before ended
// at, by the weights of then; with nonmonotonic steps it is compared to the cost at the start, too.
inline void step_in_full(ceres::Solver::Options& options) {
    options.initial_trust_region_radius = options.max_trust_region_radius;
    options.use_nonmonotonic_steps = true;
    options.max_consecutive_nonmonotonic_steps = 1000000;
}

// Builds the problem, solves it, and writes the log.
inline void solve(const std::function<void(ceres::Problem&)>& build, int argc, char** argv, Weights* weights = nullptr) {
    const long before = memory_kib("VmRSS");
    const auto begin = std::chrono::steady_clock::now();
    ceres::Problem::Options of_problem;
    of_problem.evaluation_callback = weights;
    ceres::Problem problem(of_problem);
    build(problem);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;

    std::FILE* file = std::fopen(argv[2], "w");
    if (!file) throw std::runtime_error(std::string("cannot write ") + argv[2]);
    Log log(file);
    ceres::Solver::Options options;
    options.preconditioner_type = ceres::JACOBI;
    options.logging_type = ceres::SILENT;
    if (weights) step_in_full(options);
    for (int k = 3; k < argc; ++k) set_option(options, argv[k]);
    options.callbacks.push_back(&log);
    ceres::Solver::Summary summary;
    ceres::Solve(options, &problem, &summary);
    std::fprintf(file, "# version: %s\n# build_seconds: %.6f\n# total_seconds: %.6f\n# parameters: %d\n"
                 "# residuals: %d\n# final_cost: %.12g\n# grown_kib: %ld\n# message: %s\n",
                 CERES_VERSION_STRING, seconds.count(), summary.total_time_in_seconds,
                 summary.num_parameters_reduced, summary.num_residuals_reduced, summary.final_cost,
                 memory_kib("VmHWM") - before, summary.message.c_str());
    std::fclose(file);
    std::printf("%s\n", summary.FullReport().c_str());
}

// The `main` of a program.
inline int run(void (*program)(int, char**), int argc, char** argv) {
    if (argc < 3) {
        std::fprintf(stderr, "usage: %s DATA.bin LOG.csv [option=value ...]\n", argv[0]);
        return 2;
    }
    try {
        program(argc, argv);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return 0;
}
