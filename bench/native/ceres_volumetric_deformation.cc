// As-rigid-as-possible deformation of a lattice in Ceres: the same energy, data and start as
// problems/volumetric_deformation.py.
//
//   E = 1/2 sum_p |w_fit (x_p - c_p)|^2                                 p a handle
//     + 1/2 sum_p sum_q |w_reg ((x_p - x_q) - R(angle_p) (u_p - u_q))|^2  q the 6 neighbours of p (see rigidity.h)
//
// DATA.bin: float64 w_fit, w_reg, Offset (D, H, W, 3), Angle (D, H, W, 3), UrShape (D, H, W, 3),
// Constraints (D, H, W, 3), uint8 Handle (D, H, W).
#include "rigidity.h"

namespace {

class Lattice {
  public:
    explicit Lattice(Data& data)
        : w_fit_(data.number()),
          w_reg_(data.number()),
          offset_(data.next<double>()),
          angle_(data.next<double>()),
          urshape_(data.next<double>()),
          constraints_(data.next<double>()),
          handle_(data.next<uint8_t>()) {}

    void add_to(ceres::Problem& problem) {
        const std::vector<int64_t>& n = handle_.shape;
        for (int64_t k = 0; k < n[0]; ++k)
            for (int64_t i = 0; i < n[1]; ++i)
                for (int64_t j = 0; j < n[2]; ++j) {
                    const int64_t p = at(k, i, j);
                    if (handle_.values[p])
                        add<3, 3>(problem, Pull<3>{w_fit_, &constraints_.values[3 * p]}, &offset_.values[3 * p]);
                    if (k + 1 < n[0]) add_pair(p, at(k + 1, i, j), problem);
                    if (i + 1 < n[1]) add_pair(p, at(k, i + 1, j), problem);
                    if (j + 1 < n[2]) add_pair(p, at(k, i, j + 1), problem);
                }
    }

  private:
    int64_t at(int64_t k, int64_t i, int64_t j) const {
        return (k * handle_.shape[1] + i) * handle_.shape[2] + j;
    }

    // Neighbours, as either of them sees the other.
    void add_pair(int64_t a, int64_t b, ceres::Problem& problem) {
        for (const auto& [p, q] : {std::pair(a, b), std::pair(b, a)}) {
            const double *up = &urshape_.values[3 * p], *uq = &urshape_.values[3 * q];
            add<3, 3, 3, 3>(problem, Arap{w_reg_, {up[0] - uq[0], up[1] - uq[1], up[2] - uq[2]}},
                            &offset_.values[3 * p], &offset_.values[3 * q], &angle_.values[3 * p]);
        }
    }

    double w_fit_, w_reg_;
    Array<double> offset_, angle_;
    const Array<double> urshape_, constraints_;
    const Array<uint8_t> handle_;
};

void deform(int argc, char** argv) {
    Data data(argv[1]);
    Lattice lattice(data);
    solve([&](ceres::Problem& problem) { lattice.add_to(problem); }, argc, argv);
}

}  // namespace

int main(int argc, char** argv) { return run(deform, argc, argv); }
