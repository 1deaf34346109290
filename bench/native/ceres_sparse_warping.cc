// As-rigid-as-possible image warping by points between pixels, in Ceres: the same energy, data and start as
// problems/sparse_warping.py.
//
//   E = 1/2 sum_k |w_fit (sum_n share_kn x_kn - c_k)|^2 + rigidity (see pixel_rigidity.h)   n the 4 pixels around k
//
// DATA.bin: what pixel_rigidity.h reads; float64 w_fit, int64 match (K, 8), float64 Share (K, 4), Target (K, 2).
#include "pixel_rigidity.h"

namespace {

struct Place {
    double weight;
    std::vector<double> share;
    const double* target;

    template <typename T>
    bool operator()(T const* const* pixels, T* residual) const {
        for (int k = 0; k < 2; ++k) {
            T place(0.0);
            for (size_t n = 0; n < share.size(); ++n) place += share[n] * pixels[n][k];
            residual[k] = weight * (place - target[k]);
        }
        return true;
    }
};

// A pixel that comes twice is one block, and one without a share none.
void add_match(Picture& picture, double weight, const int64_t* match, const double* share, const double* target,
               ceres::Problem& problem) {
    std::map<double*, double> shares;
    for (int n = 0; n < 4; ++n)
        if (share[n] != 0) shares[picture.place(match[2 * n], match[2 * n + 1])] += share[n];
    auto* place = new Place{weight, {}, target};
    auto* cost = new ceres::DynamicAutoDiffCostFunction<Place>(place);
    std::vector<double*> pixels;
    for (const auto& [pixel, part] : shares) {
        place->share.push_back(part);
        pixels.push_back(pixel);
        cost->AddParameterBlock(2);
    }
    cost->SetNumResiduals(2);
    problem.AddResidualBlock(cost, nullptr, pixels);
}

void warp(int argc, char** argv) {
    Data data(argv[1]);
    Picture picture(data);
    const double w_fit = data.number();
    const Array<int64_t> match = data.next<int64_t>();
    const Array<double> share = data.next<double>(), target = data.next<double>();
    solve([&](ceres::Problem& problem) {
        for (int64_t k = 0; k < match.rows(); ++k)
            add_match(picture, w_fit, match.row(k), share.row(k), target.row(k), problem);
        picture.add_rigidity(problem);
    }, argc, argv);
}

}  // namespace

int main(int argc, char** argv) { return run(warp, argc, argv); }
