// A photograph's reflectance and shading in Ceres: the same energy, data and start as problems/intrinsic_images.py.
//
//   E = 1/2 sum_p |w_fit (R_p + S_p - I_p)|^2
//     + 1/2 sum_p sum_q |w_reflectance s_pq v_pq (R_p - R_q)|^2   q the pixel at the right of p, and the one below it
//     + 1/2 sum_p sum_q |w_shading (S_p - S_q)|^2 + 1/2 sum_p |w_level S_p|^2
//
// s_pq = exp(-steepness |C_p - C_q|); v_pq = (|R_p - R_q|^2 + 1e-8)^(p / 4 - 1 / 2), as it is before each step, and held
// within it.
//
// DATA.bin: float64 R (H, W, 3), S (H, W), Image (H, W, 3), Chroma (H, W, 3), w_fit, w_reflectance, w_shading, w_level,
// p, steepness.
#include "ceres_program.h"

namespace {

constexpr double smallest = 1e-4;  // differences of reflectance below about this are as good as none

struct Fit {
    double weight;
    const double* image;

    template <typename T>
    bool operator()(const T* reflectance, const T* shading, T* residual) const {
        for (int c = 0; c < 3; ++c) residual[c] = weight * (reflectance[c] + shading[0] - image[c]);
        return true;
    }
};

// w (x - y), of N numbers.
template <int N>
struct Difference {
    const double* weight;

    template <typename T>
    bool operator()(const T* x, const T* y, T* residual) const {
        for (int k = 0; k < N; ++k) residual[k] = *weight * (x[k] - y[k]);
        return true;
    }
};

// A pixel and the next one, by their numbers.
struct Pair {
    int64_t p, q;
    double weight;  // w_reflectance s_pq, and that times v_pq
    double held;
};

class Photograph {
  public:
    explicit Photograph(Data& data)
        : reflectance_(data.next<double>()),
          shading_(data.next<double>()),
          image_(data.next<double>()),
          chroma_(data.next<double>()),
          w_fit_(data.number()),
          w_reflectance_(data.number()),
          w_shading_(data.number()),
          w_level_(data.number()),
          p_(data.number()),
          steepness_(data.number()) {
        const int64_t rows = shading_.shape[0], columns = shading_.shape[1];
        for (int64_t i = 0; i < rows; ++i)
            for (int64_t j = 0; j < columns; ++j) {
                const int64_t p = i * columns + j;
                if (j + 1 < columns) pairs_.push_back(pair(p, p + 1));
                if (i + 1 < rows) pairs_.push_back(pair(p, p + columns));
            }
    }

    void add_to(ceres::Problem& problem) {
        for (int64_t p = 0; p < static_cast<int64_t>(shading_.values.size()); ++p) {
            add<3, 3, 1>(problem, Fit{w_fit_, &image_.values[3 * p]}, reflectance(p), &shading_.values[p]);
            add<1, 1>(problem, Pull<1>{w_level_, &zero_}, &shading_.values[p]);
        }
        for (const Pair& near : pairs_) {
            add<3, 3, 3>(problem, Difference<3>{&near.held}, reflectance(near.p), reflectance(near.q));
            add<1, 1, 1>(problem, Difference<1>{&w_shading_}, &shading_.values[near.p], &shading_.values[near.q]);
        }
    }

    void weigh() {
        for (Pair& near : pairs_) {
            const double square = squared_distance(reflectance(near.p), reflectance(near.q));
            near.held = near.weight * std::pow(square + smallest * smallest, p_ / 4 - 0.5);
        }
    }

  private:
    double* reflectance(int64_t p) { return &reflectance_.values[3 * p]; }

    static double squared_distance(const double* a, const double* b) {
        double sum = 0;
        for (int c = 0; c < 3; ++c) sum += (a[c] - b[c]) * (a[c] - b[c]);
        return sum;
    }

    Pair pair(int64_t p, int64_t q) const {
        const double distance = std::sqrt(squared_distance(&chroma_.values[3 * p], &chroma_.values[3 * q]));
        return Pair{p, q, w_reflectance_ * std::exp(-steepness_ * distance), 0.0};
    }

    Array<double> reflectance_, shading_;
    const Array<double> image_, chroma_;
    const double w_fit_, w_reflectance_, w_shading_, w_level_, p_, steepness_, zero_ = 0;
    std::vector<Pair> pairs_;
};

void take_apart(int argc, char** argv) {
    Data data(argv[1]);
    Photograph photograph(data);
    Weights weights([&] { photograph.weigh(); });
    solve([&](ceres::Problem& problem) { photograph.add_to(problem); }, argc, argv, &weights);
}

}  // namespace

int main(int argc, char** argv) { return run(take_apart, argc, argv); }
