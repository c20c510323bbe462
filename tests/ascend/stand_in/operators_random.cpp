/// Random numbers. The documents do not say which, so that these are a function of seed, offset and place alone.
#include <cmath>

#include "elementwise.hpp"
#include "generator.hpp"

using namespace stand_in;

extern "C" {

int aclnnInplaceNormalGetWorkspaceSize(const aclTensor* selfRef, float mean, float std, int64_t seed, int64_t offset,
                                       uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("InplaceNormal", workspaceSize, executor, [&](Operator& op) {
    const Tensor to = op.output(selfRef, "selfRef", kFloats);
    demand(std >= 0, "std is negative");
    const double middle = static_cast<double>(mean), width = static_cast<double>(std);
    op.kernel([=](const Launch& launch) {
      std::vector<double> values(static_cast<std::size_t>(to.count()));
      for (std::size_t i = 0; i < values.size(); ++i) {
        const std::uint64_t number = 2 * (static_cast<std::uint64_t>(offset) + i);
        const double radius = std::sqrt(-2 * std::log(uniform(static_cast<std::uint64_t>(seed), number)));
        const double angle = 2 * M_PI * uniform(static_cast<std::uint64_t>(seed), number + 1);
        values[i] = middle + width * radius * std::cos(angle);
      }
      launch(to).write(values);
    });
  });
}
STAND_IN_PHASE_TWO(InplaceNormal)

int aclnnInplaceUniformGetWorkspaceSize(const aclTensor* selfRef, double from, double to, uint64_t seed,
                                        uint64_t offset, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("InplaceUniform", workspaceSize, executor, [&](Operator& op) {
    const Tensor out = op.output(selfRef, "selfRef", kFloats);
    demand(from <= to, "from is more than to");
    op.kernel([=](const Launch& launch) {
      std::vector<double> values(static_cast<std::size_t>(out.count()));
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = from + (to - from) * uniform(seed, offset + i);
      launch(out).write(values);
    });
  });
}
STAND_IN_PHASE_TWO(InplaceUniform)

}  // extern "C"
