/// SiLU, SwiGLU, GEGLU and the softmaxes.
#include <algorithm>
#include <cmath>

#include "operator.hpp"

using namespace stand_in;

namespace {

double sigmoid(double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }
double silu(double x) { return x * sigmoid(x); }
double silu_slope(double x) {
  const double s = sigmoid(x);
  return s * (1 + x * (1 - s));
}

/// By erf, or its tanh form, and its derivative.
struct Gelu {
  bool tanh_form;

  static constexpr double outer = 0.79788456080286535588;  // sqrt(2 / pi)
  static constexpr double inner = 0.044715;

  double operator()(double x) const {
    return tanh_form ? x / 2 * (1 + std::tanh(outer * (x + inner * x * x * x)))
                     : x / 2 * (1 + std::erf(x * 0.70710678118654752440));
  }
  double slope(double x) const {
    if (!tanh_form) return (1 + std::erf(x * 0.70710678118654752440)) / 2 + x * std::exp(-x * x / 2) * outer / 2;
    const double t = std::tanh(outer * (x + inner * x * x * x));
    return (1 + t) / 2 + x / 2 * (1 - t * t) * outer * (1 + 3 * inner * x * x);
  }
};

Gelu gelu_of(std::int64_t approximate) {
  demand(approximate == 0 || approximate == 1, "approximate is 0 (none) or 1 (tanh)");
  return {approximate == 1};
}

Dims halved(const Tensor& x, std::int64_t dim) {
  const std::size_t at = x.dimension(dim);
  demand(at < x.shape.size() && x.shape[at] % 2 == 0, "an odd dimension cannot be halved");
  Dims shape = x.shape;
  shape[at] /= 2;
  return shape;
}

/// Calls f for each line along a dimension: f(values of the line, its length), which changes them in place.
template <class F>
void for_lines(std::vector<double>& values, const Dims& shape, std::size_t dim, F f) {
  std::size_t length = 1, inner = 1;
  for (std::size_t i = dim; i < shape.size(); ++i) (i == dim ? length : inner) *= static_cast<std::size_t>(shape[i]);
  if (values.empty()) return;
  std::vector<double> line(length);
  for (std::size_t first = 0; first < values.size(); first += length * inner) {
    for (std::size_t j = 0; j < inner; ++j) {
      for (std::size_t i = 0; i < length; ++i) line[i] = values[first + i * inner + j];
      f(line, (first / length) + j);
      for (std::size_t i = 0; i < length; ++i) values[first + i * inner + j] = line[i];
    }
  }
}

int softmax(const char* name, const aclTensor* self, int64_t dim, aclTensor* out, uint64_t* workspaceSize,
            aclOpExecutor** executor, bool logarithm) {
  return prepare(name, workspaceSize, executor, [&](Operator& op) {
    const Tensor x = op.input(self, "self", kFloats), y = op.output(out, "out", kFloats);
    same_shape(x, y);
    same_type(x, y);
    const std::size_t at = x.dimension(dim);
    op.kernel([=](const Launch& launch) {
      std::vector<double> values = launch(x).read();
      for_lines(values, x.shape, at, [logarithm](std::vector<double>& line, std::size_t) {
        const double most = *std::max_element(line.begin(), line.end());
        double sum = 0;
        for (const double value : line) sum += std::exp(value - most);
        for (double& value : line) value = logarithm ? value - most - std::log(sum) : std::exp(value - most) / sum;
      });
      launch(y).write(values);
    });
  });
}

int softmax_backward(const char* name, const aclTensor* gradOutput, const aclTensor* output, int64_t dim,
                     aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor, bool logarithm) {
  return prepare(name, workspaceSize, executor, [&](Operator& op) {
    const Tensor grad = op.input(gradOutput, "gradOutput", kFloats), y = op.input(output, "output", kFloats);
    const Tensor dx = op.output(out, "out", kFloats);
    same_shape(y, grad);
    same_type(y, grad);
    same_shape(y, dx);
    same_type(y, dx);
    const std::size_t at = y.dimension(dim);
    op.kernel([=](const Launch& launch) {
      std::vector<double> g = launch(grad).read();
      std::vector<double> results = launch(y).read();
      // The lines of both run side by side: each value is kept with its partner.
      std::vector<std::vector<double>> lines;
      for_lines(results, y.shape, at, [&lines](std::vector<double>& line, std::size_t) { lines.push_back(line); });
      std::size_t next = 0;
      for_lines(g, y.shape, at, [&](std::vector<double>& line, std::size_t) {
        const std::vector<double>& result = lines[next++];
        double sum = 0;
        for (std::size_t i = 0; i < line.size(); ++i) sum += logarithm ? line[i] : line[i] * result[i];
        for (std::size_t i = 0; i < line.size(); ++i)
          line[i] = logarithm ? line[i] - std::exp(result[i]) * sum : (line[i] - sum) * result[i];
      });
      launch(dx).write(g);
    });
  });
}

}  // namespace

extern "C" {

int aclnnSiluGetWorkspaceSize(const aclTensor* self, aclTensor* out, uint64_t* workspaceSize,
                              aclOpExecutor** executor) {
  return prepare("Silu", workspaceSize, executor, [&](Operator& op) {
    const Tensor x = op.input(self, "self", kFloats), y = op.output(out, "out", kFloats);
    same_shape(x, y);
    same_type(x, y);
    op.kernel([=](const Launch& launch) {
      std::vector<double> values = launch(x).read();
      for (double& value : values) value = silu(value);
      launch(y).write(values);
    });
  });
}
STAND_IN_PHASE_TWO(Silu)

int aclnnSiluBackwardGetWorkspaceSize(const aclTensor* gradOutput, const aclTensor* self, aclTensor* gradInput,
                                      uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("SiluBackward", workspaceSize, executor, [&](Operator& op) {
    const Tensor grad = op.input(gradOutput, "gradOutput", kFloats), x = op.input(self, "self", kFloats);
    const Tensor dx = op.output(gradInput, "gradInput", kFloats);
    same_shape(x, grad);
    same_type(x, grad);
    same_shape(x, dx);
    same_type(x, dx);
    op.kernel([=](const Launch& launch) {
      std::vector<double> g = launch(grad).read();
      const std::vector<double> values = launch(x).read();
      for (std::size_t i = 0; i < g.size(); ++i) g[i] *= silu_slope(values[i]);
      launch(dx).write(g);
    });
  });
}
STAND_IN_PHASE_TWO(SiluBackward)

int aclnnSwiGluGetWorkspaceSize(const aclTensor* x, int64_t dim, const aclTensor* out, uint64_t* workspaceSize,
                                aclOpExecutor** executor) {
  return prepare("SwiGlu", workspaceSize, executor, [&](Operator& op) {
    const Tensor in = op.input(x, "x", kFloats), to = op.packed_output(out, "out", kFloats);
    same_type(in, to);
    need_contiguous(in);
    need_shape(to, halved(in, dim));
    const Tensor gate = in.narrowed(dim, 0, to.size(dim)), up = in.narrowed(dim, to.size(dim), to.size(dim));
    op.apart();
    op.kernel([=](const Launch& launch) {
      std::vector<double> a = launch(gate).read();
      const std::vector<double> b = launch(up).read();
      for (std::size_t i = 0; i < a.size(); ++i) a[i] = silu(a[i]) * b[i];
      launch(to).write(a);
    });
  });
}
STAND_IN_PHASE_TWO(SwiGlu)

int aclnnSwiGluGradGetWorkspaceSize(const aclTensor* yGrad, const aclTensor* x, int64_t dim, const aclTensor* out,
                                    uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("SwiGluGrad", workspaceSize, executor, [&](Operator& op) {
    const Tensor grad = op.input(yGrad, "yGrad", kFloats), in = op.input(x, "x", kFloats);
    const Tensor to = op.packed_output(out, "out", kFloats);
    same_type(in, grad);
    same_type(in, to);
    same_shape(in, to);
    need_contiguous(grad);
    need_shape(grad, halved(in, dim));
    const std::int64_t half = grad.size(dim);
    const Tensor gate = in.narrowed(dim, 0, half), up = in.narrowed(dim, half, half);
    const Tensor gate_grad = to.narrowed(dim, 0, half), up_grad = to.narrowed(dim, half, half);
    op.kernel([=](const Launch& launch) {
      const std::vector<double> g = launch(grad).read();
      std::vector<double> a = launch(gate).read(), b = launch(up).read();
      for (std::size_t i = 0; i < a.size(); ++i) {
        const double da = g[i] * b[i] * silu_slope(a[i]);
        b[i] = g[i] * silu(a[i]);
        a[i] = da;
      }
      launch(gate_grad).write(a);
      launch(up_grad).write(b);
    });
  });
}
STAND_IN_PHASE_TWO(SwiGluGrad)

int aclnnGeGluV3GetWorkspaceSize(const aclTensor* self, int64_t dim, int64_t approximate, bool activateLeft,
                                 aclTensor* out, aclTensor* outGelu, uint64_t* workspaceSize,
                                 aclOpExecutor** executor) {
  return prepare("GeGluV3", workspaceSize, executor, [&](Operator& op) {
    const Tensor in = op.input(self, "self", kFloats), to = op.packed_output(out, "out", kFloats);
    const Tensor kept = op.packed_output(outGelu, "outGelu", kFloats);
    same_type(in, to);
    same_type(in, kept);
    need_contiguous(in);
    need_shape(to, halved(in, dim));
    same_shape(to, kept);
    const Gelu gelu = gelu_of(approximate);
    const std::int64_t half = to.size(dim);
    const Tensor gate = in.narrowed(dim, activateLeft ? 0 : half, half),
                 other = in.narrowed(dim, activateLeft ? half : 0, half);
    op.apart();
    op.kernel([=](const Launch& launch) {
      std::vector<double> a = launch(gate).read();
      const std::vector<double> b = launch(other).read();
      for (double& value : a) value = gelu(value);
      launch(kept).write(a);
      for (std::size_t i = 0; i < a.size(); ++i) a[i] *= b[i];
      launch(to).write(a);
    });
  });
}
STAND_IN_PHASE_TWO(GeGluV3)

int aclnnGeGluV3BackwardGetWorkspaceSize(const aclTensor* gradOutput, const aclTensor* self, const aclTensor* gelu,
                                         int64_t dim, int64_t approximate, bool activateLeft, aclTensor* gradInput,
                                         uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("GeGluV3Backward", workspaceSize, executor, [&](Operator& op) {
    const Tensor grad = op.input(gradOutput, "gradOutput", kFloats), in = op.input(self, "self", kFloats);
    const Tensor kept = op.input(gelu, "gelu", kFloats), to = op.packed_output(gradInput, "gradInput", kFloats);
    same_type(in, grad);
    same_type(in, kept);
    same_type(in, to);
    same_shape(in, to);
    need_contiguous(grad);
    need_contiguous(in);
    need_contiguous(kept);
    need_shape(grad, halved(in, dim));
    same_shape(grad, kept);
    const Gelu function = gelu_of(approximate);
    const std::int64_t half = grad.size(dim), first = activateLeft ? 0 : half, second = half - first;
    const Tensor gate = in.narrowed(dim, first, half), other = in.narrowed(dim, second, half);
    const Tensor gate_grad = to.narrowed(dim, first, half), other_grad = to.narrowed(dim, second, half);
    op.kernel([=](const Launch& launch) {
      const std::vector<double> g = launch(grad).read(), of_gate = launch(kept).read();
      std::vector<double> a = launch(gate).read(), b = launch(other).read();
      for (std::size_t i = 0; i < a.size(); ++i) {
        const double da = g[i] * b[i] * function.slope(a[i]);
        b[i] = g[i] * of_gate[i];
        a[i] = da;
      }
      launch(gate_grad).write(a);
      launch(other_grad).write(b);
    });
  });
}
STAND_IN_PHASE_TWO(GeGluV3Backward)

int aclnnSoftmaxGetWorkspaceSize(const aclTensor* self, int64_t dim, aclTensor* out, uint64_t* workspaceSize,
                                 aclOpExecutor** executor) {
  return softmax("Softmax", self, dim, out, workspaceSize, executor, false);
}
STAND_IN_PHASE_TWO(Softmax)

int aclnnLogSoftmaxGetWorkspaceSize(const aclTensor* self, int64_t dim, aclTensor* out, uint64_t* workspaceSize,
                                    aclOpExecutor** executor) {
  return softmax("LogSoftmax", self, dim, out, workspaceSize, executor, true);
}
STAND_IN_PHASE_TWO(LogSoftmax)

int aclnnSoftmaxBackwardGetWorkspaceSize(const aclTensor* gradOutput, const aclTensor* output, int64_t dim,
                                         aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return softmax_backward("SoftmaxBackward", gradOutput, output, dim, out, workspaceSize, executor, false);
}
STAND_IN_PHASE_TWO(SoftmaxBackward)

int aclnnLogSoftmaxBackwardGetWorkspaceSize(const aclTensor* gradOutput, const aclTensor* output, int64_t dim,
                                            aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return softmax_backward("LogSoftmaxBackward", gradOutput, output, dim, out, workspaceSize, executor, true);
}
STAND_IN_PHASE_TWO(LogSoftmaxBackward)

}  // extern "C"
