/// aclnnAdd, the example of how an operator is written.
#include "elementwise.hpp"

using namespace stand_in;

extern "C" {

int aclnnAddGetWorkspaceSize(const aclTensor* self, const aclTensor* other, const aclScalar* alpha, aclTensor* out,
                             uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("Add", workspaceSize, executor, [&](Operator& op) {
    const Tensor a = op.input(self, "self", kNumbers), b = op.input(other, "other", kNumbers);
    const Number factor = op.number(alpha, "alpha");
    const Tensor c = op.output(out, "out", kNumbers);
    const aclDataType type = promote(a.type, b.type);
    demand(is_floating(type) || !is_floating(factor.type), "alpha does not convert to the type of the sum");
    demand_converts(type, c);
    demand(is_floating(c.type) || !is_floating(type), "the sum does not convert to the type of out");
    const Dims shape = broadcast_shape(a.shape, b.shape);
    need_shape(c, shape);
    op.kernel([=](const Launch& launch) {
      std::vector<double> sum = launch(a.broadcast(shape)).read();
      const std::vector<double> addend = launch(b.broadcast(shape)).read();
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += factor.value * addend[i];
      launch(c).write(sum);
    });
  });
}
STAND_IN_PHASE_TWO(Add)

}  // extern "C"
