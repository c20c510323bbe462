/// What inference alone needs: rotary embedding in place, and weights packed as int4.
#include <string>

#include "elementwise.hpp"

using namespace stand_in;

namespace {

/// x · cos + rot(x) · sin in place, rot(x) = [-second half, first half]; heads share the tables.
void rotate(const Elements& x, const std::vector<double>& cos, const std::vector<double>& sin) {
  std::vector<double> values = x.read();
  const auto width = static_cast<std::size_t>(x.shape[3]), heads = static_cast<std::size_t>(x.shape[2]);
  for (std::size_t row = 0; row * width < values.size(); ++row) {
    double* v = values.data() + row * width;
    const double* c = cos.data() + row / heads * width;
    const double* s = sin.data() + row / heads * width;
    for (std::size_t i = 0; i < width / 2; ++i) {
      const std::size_t j = i + width / 2;
      const double first = v[i] * c[i] - v[j] * s[i], second = v[j] * c[j] + v[i] * s[j];
      v[i] = first;
      v[j] = second;
    }
  }
  x.write(values);
}

int rotate_in_place(const char* name, const aclTensor* queries, const aclTensor* keys, const aclTensor* cos,
                    const aclTensor* sin, std::int64_t layout, const std::string& mode, std::uint64_t* workspace,
                    aclOpExecutor** executor) {
  return prepare(name, workspace, executor, [&](Operator& op) {
    const Tensor q = op.in_place(queries, "queryRef", kFloats), k = op.in_place(keys, "keyRef", kFloats);
    const Tensor c = op.input(cos, "cos", kFloats), s = op.input(sin, "sin", kFloats);
    demand(layout == 1, "layout is not 1 (BSND)");
    demand(mode == "half", "rotaryMode is not half");
    for (const Tensor& tensor : {q, k, c, s}) {
      demand(tensor.rank() == 4, tensor.name + " is not of 4 dimensions");
      demand(tensor.shape[3] == 128, tensor.name + " is not 128 wide");
      same_type(q, tensor);
    }
    need_shape(k, {q.shape[0], q.shape[1], k.shape[2], 128});
    need_shape(c, {q.shape[0], q.shape[1], 1, 128});
    same_shape(c, s);
    op.kernel([=](const Launch& launch) {
      const std::vector<double> cosines = launch(c).read(), sines = launch(s).read();
      rotate(launch(q), cosines, sines);
      rotate(launch(k), cosines, sines);
    });
  });
}

}  // namespace

extern "C" {

int aclnnApplyRotaryPosEmbGetWorkspaceSize(aclTensor* queryRef, aclTensor* keyRef, const aclTensor* cos,
                                           const aclTensor* sin, int64_t layout, uint64_t* workspaceSize,
                                           aclOpExecutor** executor) {
  return rotate_in_place("ApplyRotaryPosEmb", queryRef, keyRef, cos, sin, layout, "half", workspaceSize, executor);
}
STAND_IN_PHASE_TWO(ApplyRotaryPosEmb)

int aclnnApplyRotaryPosEmbV2GetWorkspaceSize(aclTensor* queryRef, aclTensor* keyRef, const aclTensor* cos,
                                             const aclTensor* sin, int64_t layout, char* rotaryMode,
                                             uint64_t* workspaceSize, aclOpExecutor** executor) {
  return rotate_in_place("ApplyRotaryPosEmbV2", queryRef, keyRef, cos, sin, layout,
                         rotaryMode == nullptr ? "" : rotaryMode, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(ApplyRotaryPosEmbV2)

int aclnnConvertWeightToINT4PackGetWorkspaceSize(const aclTensor* weight, aclTensor* weightInt4Pack,
                                                 uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("ConvertWeightToINT4Pack", workspaceSize, executor, [&](Operator& op) {
    const Tensor from = op.input(weight, "weight", {ACL_INT32});
    const Tensor to = op.output(weightInt4Pack, "weightInt4Pack", {ACL_INT32, ACL_INT4});
    demand(from.rank() >= 1, "weight has no dimensions");
    const bool words = to.type == ACL_INT32;  // of eight values
    const std::int64_t width = from.size(-1);
    demand(width % (words ? 8 : 2) == 0, "the last dimension of weight is not one of whole words");
    Dims shape = from.shape;
    if (words) shape.back() = width / 8;
    need_shape(to, shape);
    need_contiguous(from);
    need_contiguous(to);
    op.kernel([=](const Launch& launch) {
      const std::vector<std::int64_t> values = launch(from).read_integers();
      unsigned char* packed = launch.bytes(to);
      for (std::size_t i = 0; i < values.size(); i += 2)
        packed[i / 2] = static_cast<unsigned char>((values[i] & 15) | (values[i + 1] & 15) << 4);
    });
  });
}
STAND_IN_PHASE_TWO(ConvertWeightToINT4Pack)

}  // extern "C"
