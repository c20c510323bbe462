/// Products with quantized weights: y = x @ ((weight + offset) · scale) + bias.
#include "operator.hpp"
#include "product.hpp"

using namespace stand_in;

namespace {

/// Element `place` of packed integers of 4 bits, the low half of a byte first.
double nibble(const unsigned char* bytes, std::int64_t place) {
  const int value = (bytes[place / 2] >> (place % 2 * 4)) & 15;
  return value < 8 ? value : value - 16;
}

int multiply(const char* name, const aclTensor* x, const aclTensor* weight, const aclTensor* antiquantScale,
             const aclTensor* antiquantOffsetOptional, const aclTensor* quantScaleOptional,
             const aclTensor* quantOffsetOptional, const aclTensor* biasOptional, int antiquantGroupSize,
             int innerPrecise, const aclTensor* y, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare(name, workspaceSize, executor, [&](Operator& op) {
    const Types halves = {ACL_FLOAT16, ACL_BF16};
    const Tensor a = op.input(x, "x", halves), packed = op.input(weight, "weight", {ACL_INT8, ACL_INT4, ACL_INT32});
    const Tensor scale = op.input(antiquantScale, "antiquantScale", halves);
    const Tensor offset = op.optional_input(antiquantOffsetOptional, "antiquantOffsetOptional", halves);
    demand(quantScaleOptional == nullptr && quantOffsetOptional == nullptr, "quantized results are not supported");
    const Tensor bias = op.optional_input(biasOptional, "biasOptional", {a.type == ACL_BF16 ? ACL_FLOAT : ACL_FLOAT16});
    const Tensor out = op.output(y, "y", halves);
    demand(innerPrecise == 0 || innerPrecise == 1, "innerPrecise " + std::to_string(innerPrecise));
    demand(a.rank() == 2 && packed.rank() == 2, "x or weight is no matrix");
    const bool in_words = packed.type == ACL_INT32;
    const std::int64_t m = a.shape[0], k = a.shape[1], n = packed.shape[1] * (in_words ? 8 : 1);
    demand(packed.shape[0] == k,
           "x with shape " + text_of(a.shape) + " and weight with shape " + text_of(packed.shape));
    demand(k <= 65535 && n <= 65535, "k or n above 65535");
    demand(packed.contiguous() || (!in_words && packed.transposed(0, 1).contiguous()),
           "weight is neither contiguous nor the transpose of what is");
    demand(packed.type != ACL_INT4 || packed.strides[packed.strides[1] == 1 ? 0 : 1] % 2 == 0,
           "rows of INT4 that do not end with a byte");
    const std::int64_t group = antiquantGroupSize;
    demand(group == 0 || (group >= 32 && group < k && group % 32 == 0), "antiquantGroupSize " + std::to_string(group));
    const std::int64_t groups = group == 0 ? 1 : (k + group - 1) / group;
    if (group != 0) {
      need_shape(scale, {groups, n});
    } else {
      demand(scale.shape == Dims{1} || scale.shape == Dims{n} || scale.shape == Dims{1, n},
             "antiquantScale with shape " + text_of(scale.shape));
    }
    same_type(a, scale);
    if (offset.present()) {
      same_type(a, offset);
      same_shape(scale, offset);
    }
    if (bias.present())
      demand(bias.shape == Dims{n} || bias.shape == Dims{1, n}, "bias with shape " + text_of(bias.shape));
    same_type(a, out);
    need_shape(out, {m, n});
    op.apart();
    op.flops(2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k));
    op.workspace(std::uint64_t{64} << 10);
    op.kernel([=](const Launch& launch) {
      const std::vector<double> left = launch(a).read();
      std::vector<double> right(static_cast<std::size_t>(k * n));
      if (packed.type == ACL_INT8) {
        right = launch(packed).read();
      } else {
        const unsigned char* bytes = launch.bytes(packed);
        const std::int64_t down = in_words ? n : packed.strides[0], across = in_words ? 1 : packed.strides[1];
        for (std::int64_t p = 0; p < k; ++p)
          for (std::int64_t j = 0; j < n; ++j)
            right[static_cast<std::size_t>(p * n + j)] = nibble(bytes, p * down + j * across);
      }
      const Dims whole = {groups, n};
      const std::vector<double> scales = launch(scale.broadcast(whole)).read();
      const std::vector<double> offsets =
          offset.present() ? launch(offset.broadcast(whole)).read() : std::vector<double>(scales.size(), 0.0);
      for (std::int64_t p = 0; p < k; ++p) {
        for (std::int64_t j = 0; j < n; ++j) {
          const auto of = static_cast<std::size_t>((group == 0 ? 0 : p / group) * n + j);
          double& value = right[static_cast<std::size_t>(p * n + j)];
          value = (value + offsets[of]) * scales[of];
        }
      }
      std::vector<double> sums(static_cast<std::size_t>(m * n), 0.0);
      if (bias.present()) sums = launch(bias.broadcast({m, n})).read();
      add_product(left.data(), right.data(), sums.data(), m, k, n);
      launch(out).write(sums);
    });
  });
}

}  // namespace

extern "C" {

int aclnnWeightQuantBatchMatmulV2GetWorkspaceSize(const aclTensor* x, const aclTensor* weight,
                                                  const aclTensor* antiquantScale,
                                                  const aclTensor* antiquantOffsetOptional,
                                                  const aclTensor* quantScaleOptional,
                                                  const aclTensor* quantOffsetOptional, const aclTensor* biasOptional,
                                                  int antiquantGroupSize, const aclTensor* y, uint64_t* workspaceSize,
                                                  aclOpExecutor** executor) {
  return multiply("WeightQuantBatchMatmulV2", x, weight, antiquantScale, antiquantOffsetOptional, quantScaleOptional,
                  quantOffsetOptional, biasOptional, antiquantGroupSize, 0, y, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(WeightQuantBatchMatmulV2)

int aclnnWeightQuantBatchMatmulV3GetWorkspaceSize(const aclTensor* x, const aclTensor* weight,
                                                  const aclTensor* antiquantScale,
                                                  const aclTensor* antiquantOffsetOptional,
                                                  const aclTensor* quantScaleOptional,
                                                  const aclTensor* quantOffsetOptional, const aclTensor* biasOptional,
                                                  int antiquantGroupSize, int innerPrecise, const aclTensor* y,
                                                  uint64_t* workspaceSize, aclOpExecutor** executor) {
  return multiply("WeightQuantBatchMatmulV3", x, weight, antiquantScale, antiquantOffsetOptional, quantScaleOptional,
                  quantOffsetOptional, biasOptional, antiquantGroupSize, innerPrecise, y, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(WeightQuantBatchMatmulV3)

}  // extern "C"
