// As-rigid-as-possible image warping in Ceres: the same energy, data and start as problems/image_warping.py.
//
//   E = 1/2 sum_p |w_fit (x_p - c_p)|^2 + rigidity (see pixel_rigidity.h)   p the active, pinned pixels
//
// DATA.bin: what pixel_rigidity.h reads; float64 w_fit, Constraints (H, W, 2).
#include "pixel_rigidity.h"

namespace {

void warp(int argc, char** argv) {
    Data data(argv[1]);
    Picture picture(data);
    const double w_fit = data.number();
    const Array<double> constraints = data.next<double>();
    solve([&](ceres::Problem& problem) {
        for (int64_t i = 0; i < picture.rows(); ++i)
            for (int64_t j = 0; j < picture.columns(); ++j) {
                const double* c = &constraints.row(i)[2 * j];
                if (picture.active(i, j) && c[0] >= 0 && c[1] >= 0)
                    add<2, 2>(problem, Pull<2>{w_fit, c}, picture.place(i, j));
            }
        picture.add_rigidity(problem);
    }, argc, argv);
}

}  // namespace

int main(int argc, char** argv) { return run(warp, argc, argv); }
