/// Rotary position embedding: y = x · cos + rot(x) · sin.
#include <algorithm>

#include "operator.hpp"

using namespace stand_in;

namespace {

/// Checks what both directions share. The layout of x (BNSD, BSND, SBND) shows in the shape of cos alone.
void check(const Tensor& x, const Tensor& cos, const Tensor& sin, std::int64_t mode) {
  demand(x.rank() == 4 && cos.rank() == 4 && sin.rank() == 4, "operands do not have 4 dimensions");
  same_type(x, cos);
  same_type(x, sin);
  same_shape(cos, sin);
  demand(mode == 0 || mode == 1, "mode " + std::to_string(mode) + " is not supported");
  const std::int64_t width = x.shape[3];
  demand(cos.shape[3] == width, "cos is not as wide as x");
  demand(width < 896 && width % 2 == 0, "a width of " + std::to_string(width));
  // The tables differ for each position; besides among the sequences, or among those and their heads, or not at all.
  const auto matches = [&](std::size_t position, std::size_t batch, std::size_t head) {
    const auto same = [&](std::size_t i) { return cos.shape[i] == x.shape[i]; };
    return same(position) &&
           ((cos.shape[batch] == 1 && cos.shape[head] == 1) || (same(batch) && (cos.shape[head] == 1 || same(head))));
  };
  const bool bnsd = matches(2, 0, 1), bsnd = matches(1, 0, 2), sbnd = matches(0, 1, 2);
  demand(bnsd || bsnd || sbnd, "cos with shape " + text_of(cos.shape) + " for x with shape " + text_of(x.shape));
  const auto fits = [&](std::int64_t batch, std::int64_t heads, bool shared) {
    return mode == 0 ? batch < 1000 && heads < 1000 : batch * heads < 1000 && shared;
  };
  const bool alone = cos.count() == cos.shape[3] * std::max({cos.shape[0], cos.shape[1], cos.shape[2]});
  demand((bnsd && fits(x.shape[0], x.shape[1], alone)) || (bsnd && fits(x.shape[0], x.shape[2], alone)) ||
             (sbnd && fits(x.shape[1], x.shape[2], alone)),
         "too many heads or sequences, or cos that differs among them");
}

/// The partner of element i of a row, and whether rot() negates it.
std::size_t partner(std::size_t i, std::size_t width, std::int64_t mode, bool& negative) {
  if (mode == 0) {
    negative = i < width / 2;
    return negative ? i + width / 2 : i - width / 2;
  }
  negative = i % 2 == 0;
  return negative ? i + 1 : i - 1;
}

}  // namespace

extern "C" {

int aclnnRotaryPositionEmbeddingGetWorkspaceSize(const aclTensor* x, const aclTensor* cos, const aclTensor* sin,
                                                 int64_t mode, aclTensor* out, uint64_t* workspaceSize,
                                                 aclOpExecutor** executor) {
  return prepare("RotaryPositionEmbedding", workspaceSize, executor, [&](Operator& op) {
    const Tensor in = op.input(x, "x", kFloats), c = op.input(cos, "cos", kFloats);
    const Tensor s = op.input(sin, "sin", kFloats), to = op.packed_output(out, "out", kFloats);
    check(in, c, s, mode);
    same_shape(in, to);
    same_type(in, to);
    op.apart();
    op.kernel([=](const Launch& launch) {
      const std::vector<double> values = launch(in).read();
      const std::vector<double> cosines = launch(c.broadcast(in.shape)).read();
      const std::vector<double> sines = launch(s.broadcast(in.shape)).read();
      const auto width = static_cast<std::size_t>(in.shape[3]);
      std::vector<double> results(values.size());
      for (std::size_t first = 0; first < values.size(); first += width) {
        for (std::size_t i = 0; i < width; ++i) {
          bool negative = false;
          const double other = values[first + partner(i, width, mode, negative)];
          results[first + i] = values[first + i] * cosines[first + i] + (negative ? -other : other) * sines[first + i];
        }
      }
      launch(to).write(results);
    });
  });
}
STAND_IN_PHASE_TWO(RotaryPositionEmbedding)

int aclnnRotaryPositionEmbeddingGradGetWorkspaceSize(const aclTensor* dy, const aclTensor* cos, const aclTensor* sin,
                                                     const aclTensor* xOptional, int64_t mode, const aclTensor* dxOut,
                                                     const aclTensor* dcosOut, const aclTensor* dsinOut,
                                                     uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("RotaryPositionEmbeddingGrad", workspaceSize, executor, [&](Operator& op) {
    const Tensor grad = op.input(dy, "dy", kFloats), c = op.input(cos, "cos", kFloats);
    const Tensor s = op.input(sin, "sin", kFloats), in = op.optional_input(xOptional, "xOptional", kFloats);
    const Tensor dx = op.packed_output(dxOut, "dxOut", kFloats);
    const Tensor dcos = op.packed_output(dcosOut, "dcosOut", kFloats);
    const Tensor dsin = op.packed_output(dsinOut, "dsinOut", kFloats);
    check(grad, c, s, mode);
    same_shape(grad, dx);
    same_type(grad, dx);
    same_shape(c, dcos);
    same_shape(c, dsin);
    same_type(c, dcos);
    same_type(c, dsin);
    if (in.present()) {
      same_shape(grad, in);
      same_type(grad, in);
      demand(grad.shape[0] * grad.shape[1] * grad.shape[2] /
                     std::max<std::int64_t>(1, c.shape[0] * c.shape[1] * c.shape[2]) <=
                 1024,
             "more than 1024 heads and sequences");
    }
    op.apart();
    op.kernel([=](const Launch& launch) {
      const std::vector<double> g = launch(grad).read();
      const std::vector<double> cosines = launch(c.broadcast(grad.shape)).read();
      const std::vector<double> sines = launch(s.broadcast(grad.shape)).read();
      const auto width = static_cast<std::size_t>(grad.shape[3]);
      std::vector<double> results(g.size());
      for (std::size_t first = 0; first < g.size(); first += width) {
        for (std::size_t i = 0; i < width; ++i) {
          bool negative = false;
          const std::size_t p = partner(i, width, mode, negative);
          results[first + i] += g[first + i] * cosines[first + i];
          results[first + p] += (negative ? -1 : 1) * g[first + i] * sines[first + i];
        }
      }
      if (in.present()) {
        const std::vector<double> values = launch(in).read();
        std::vector<double> of_cos(static_cast<std::size_t>(c.count()), 0.0), of_sin = of_cos;
        // Where each element of dy has its cosine, counted in a contiguous tensor of the shape of cos.
        Tensor dense = c;
        dense.strides = strides_of(c.shape);
        const std::vector<std::int64_t> places = Elements(nullptr, dense.broadcast(grad.shape)).places();
        for (std::size_t first = 0; first < g.size(); first += width) {
          for (std::size_t i = 0; i < width; ++i) {
            bool negative = false;
            const double other = values[first + partner(i, width, mode, negative)];
            const auto place = static_cast<std::size_t>(places[first + i]);
            of_cos[place] += g[first + i] * values[first + i];
            of_sin[place] += g[first + i] * (negative ? -other : other);
          }
        }
        launch(dcos).write(of_cos);
        launch(dsin).write(of_sin);
      }
      launch(dx).write(results);
    });
  });
}
STAND_IN_PHASE_TWO(RotaryPositionEmbeddingGrad)

}  // extern "C"
