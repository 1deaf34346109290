// Smoothing of a mesh with cotangent weights in Ceres: the same energy, data and start as
// problems/cotangent_smoothing.py.
//
//   E = 1/2 sum_v |w_fit (x_v - a_v)|^2 + 1/2 sum_(a,b) w_reg^2 max(w, 0.01) |x_a - x_b|^2   (a,b) the edges
//
// where w is half the sum of the cotangents of the angles opposite to the edge.
//
// DATA.bin: float64 w_fit, w_reg, X (V, 3), A (V, 3), int64 wedges (E, 4): the ends of an edge, and what is opposite;
// int64 border (B, 3).
#include "ceres_program.h"

namespace {

constexpr double kLeastSine = 0.01, kLeastWeight = 0.01;

template <typename T>
using Vector = Eigen::Matrix<T, 3, 1>;

template <typename T>
T cotangent(const Vector<T>& a, const Vector<T>& b, const Vector<T>& c) {
    using std::sqrt;
    const Vector<T> p = a - c, q = b - c;
    const T square = p.cross(q).squaredNorm();
    const T least = kLeastSine * kLeastSine * p.squaredNorm() * q.squaredNorm();
    if (!(least > 0.0)) return T(0.0);
    return p.dot(q) / sqrt(square > least ? square : least);
}

struct Smoothness {
    double weight;

    template <typename T>
    bool operator()(const T* a, const T* b, const T* c, const T* d, T* residual) const {
        return write(a, b, 0.5 * (opposite(a, b, c) + opposite(a, b, d)), residual);
    }

    template <typename T>
    bool operator()(const T* a, const T* b, const T* c, T* residual) const {
        return write(a, b, 0.5 * opposite(a, b, c), residual);
    }

  private:
    template <typename T>
    static T opposite(const T* a, const T* b, const T* c) {
        return cotangent<T>(Vector<T>(a), Vector<T>(b), Vector<T>(c));
    }

    template <typename T>
    bool write(const T* a, const T* b, const T& w, T* residual) const {
        using std::sqrt;
        const T root = weight * sqrt(w > kLeastWeight ? w : T(kLeastWeight));
        for (int k = 0; k < 3; ++k) residual[k] = root * (a[k] - b[k]);
        return true;
    }
};

void smooth(int argc, char** argv) {
    Data data(argv[1]);
    const double w_fit = data.number(), w_reg = data.number();
    Array<double> x = data.next<double>();
    const Array<double> noisy = data.next<double>();
    const Array<int64_t> wedges = data.next<int64_t>(), border = data.next<int64_t>();
    solve([&](ceres::Problem& problem) {
        for (int64_t v = 0; v < x.rows(); ++v) add<3, 3>(problem, Pull<3>{w_fit, noisy.row(v)}, x.row(v));
        for (int64_t e = 0; e < wedges.rows(); ++e) {
            const int64_t* n = wedges.row(e);
            add<3, 3, 3, 3, 3>(problem, Smoothness{w_reg}, x.row(n[0]), x.row(n[1]), x.row(n[2]), x.row(n[3]));
        }
        for (int64_t e = 0; e < border.rows(); ++e) {
            const int64_t* n = border.row(e);
            add<3, 3, 3, 3>(problem, Smoothness{w_reg}, x.row(n[0]), x.row(n[1]), x.row(n[2]));
        }
    }, argc, argv);
}

}  // namespace

int main(int argc, char** argv) { return run(smooth, argc, argv); }
