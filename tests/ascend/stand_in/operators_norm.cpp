/// RMSNorm.
#include <algorithm>
#include <cmath>

#include "operator.hpp"

using namespace stand_in;

namespace {

/// The shape with the normalized dimensions (the last ones, which gamma has) as 1.
Dims outer_shape(const Tensor& x, const Tensor& gamma) {
  demand(gamma.rank() >= 1 && gamma.rank() <= x.rank() &&
             std::equal(gamma.shape.begin(), gamma.shape.end(), x.shape.end() - gamma.rank()),
         "gamma with shape " + text_of(gamma.shape) + " for x with shape " + text_of(x.shape));
  Dims shape = x.shape;
  for (std::int64_t i = 0; i < gamma.rank(); ++i) shape[shape.size() - 1 - static_cast<std::size_t>(i)] = 1;
  return shape;
}

void check_gamma(const Tensor& x, const Tensor& gamma) {
  demand(gamma.type == x.type || gamma.type == ACL_FLOAT,
         std::string("gamma is ") + name_of(gamma.type) + " and x " + name_of(x.type));
}

/// Normalizes rows in place and says what with.
std::vector<double> normalize(std::vector<double>& rows, const std::vector<double>& gamma, double epsilon) {
  const std::size_t width = gamma.size(), count = width == 0 ? 0 : rows.size() / width;
  std::vector<double> factors(count);
  for (std::size_t r = 0; r < count; ++r) {
    double* row = rows.data() + r * width;
    double sum = 0;
    for (std::size_t i = 0; i < width; ++i) sum += row[i] * row[i];
    factors[r] = 1 / std::sqrt(sum / static_cast<double>(width) + epsilon);
    for (std::size_t i = 0; i < width; ++i) row[i] *= factors[r] * gamma[i];
  }
  return factors;
}

}  // namespace

extern "C" {

int aclnnRmsNormGetWorkspaceSize(const aclTensor* x, const aclTensor* gamma, double epsilon, const aclTensor* yOut,
                                 const aclTensor* rstdOut, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("RmsNorm", workspaceSize, executor, [&](Operator& op) {
    const Tensor in = op.input(x, "x", kFloats), scale = op.input(gamma, "gamma", kFloats);
    const Tensor out = op.packed_output(yOut, "yOut", kFloats),
                 rstd = op.packed_output(rstdOut, "rstdOut", {ACL_FLOAT});
    check_gamma(in, scale);
    same_type(in, out);
    same_shape(in, out);
    need_shape(rstd, outer_shape(in, scale));
    op.kernel([=](const Launch& launch) {
      std::vector<double> rows = launch(in).read();
      const std::vector<double> factors = normalize(rows, launch(scale).read(), epsilon);
      launch(out).write(rows);
      launch(rstd).write(factors);
    });
  });
}
STAND_IN_PHASE_TWO(RmsNorm)

int aclnnAddRmsNormGetWorkspaceSize(const aclTensor* x1, const aclTensor* x2, const aclTensor* gamma, double epsilon,
                                    const aclTensor* yOut, const aclTensor* rstdOut, const aclTensor* xOut,
                                    uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("AddRmsNorm", workspaceSize, executor, [&](Operator& op) {
    const Tensor a = op.input(x1, "x1", kFloats), b = op.input(x2, "x2", kFloats);
    const Tensor scale = op.input(gamma, "gamma", kFloats);
    const Tensor out = op.packed_output(yOut, "yOut", kFloats),
                 rstd = op.packed_output(rstdOut, "rstdOut", {ACL_FLOAT});
    const Tensor sum = op.packed_output(xOut, "xOut", kFloats);
    same_type(a, b);
    same_shape(a, b);
    check_gamma(a, scale);
    same_type(a, out);
    same_shape(a, out);
    same_type(a, sum);
    same_shape(a, sum);
    need_shape(rstd, outer_shape(a, scale));
    op.kernel([=](const Launch& launch) {
      std::vector<double> rows = launch(a).read();
      const std::vector<double> more = launch(b).read(), factor = launch(scale).read();
      for (std::size_t i = 0; i < rows.size(); ++i) rows[i] += more[i];
      launch(sum).write(rows);
      rows = launch(sum).read();  // what is normalized is the sum as it is stored
      const std::vector<double> factors = normalize(rows, factor, epsilon);
      launch(out).write(rows);
      launch(rstd).write(factors);
    });
  });
}
STAND_IN_PHASE_TWO(AddRmsNorm)

int aclnnRmsNormGradGetWorkspaceSize(const aclTensor* dy, const aclTensor* x, const aclTensor* rstd,
                                     const aclTensor* gamma, const aclTensor* dxOut, const aclTensor* dgammaOut,
                                     uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("RmsNormGrad", workspaceSize, executor, [&](Operator& op) {
    const Tensor grad = op.input(dy, "dy", kFloats), in = op.input(x, "x", kFloats);
    const Tensor factor = op.input(rstd, "rstd", {ACL_FLOAT}), scale = op.input(gamma, "gamma", kFloats);
    const Tensor dx = op.packed_output(dxOut, "dxOut", kFloats),
                 dgamma = op.packed_output(dgammaOut, "dgammaOut", {ACL_FLOAT});
    same_type(in, grad);
    same_shape(in, grad);
    check_gamma(in, scale);
    need_shape(factor, outer_shape(in, scale));
    same_type(in, dx);
    same_shape(in, dx);
    need_shape(dgamma, scale.shape);
    op.workspace(static_cast<std::uint64_t>(scale.count()) * 4 + 512);
    const bool fixed = engine().fixed_order();
    op.kernel([=](const Launch& launch) {
      std::vector<double> g = launch(grad).read();
      const std::vector<double> rows = launch(in).read(), factors = launch(factor).read();
      const std::vector<double> weights = launch(scale).read();
      const std::size_t width = weights.size();
      std::vector<double> sums(width, 0.0);
      for (std::size_t r = 0; r < factors.size(); ++r) {
        const double* row = rows.data() + r * width;
        double* to = g.data() + r * width;
        double dot = 0;
        for (std::size_t i = 0; i < width; ++i) {
          sums[i] += to[i] * row[i] * factors[r];
          to[i] *= weights[i];
          dot += to[i] * row[i];
        }
        const double shift = factors[r] * factors[r] * dot / static_cast<double>(width);
        for (std::size_t i = 0; i < width; ++i) to[i] = factors[r] * (to[i] - row[i] * shift);
      }
      in_any_order(sums, fixed);
      launch(dx).write(g);
      launch(dgamma).write(sums);
    });
  });
}
STAND_IN_PHASE_TWO(RmsNormGrad)

}  // extern "C"
