/// Dropout in one call. Masks are as those of DropoutGenMask: a bit per element, 1 keeps it, lowest bit of a byte
/// first.
#include <cmath>

#include "elementwise.hpp"
#include "generator.hpp"

using namespace stand_in;

namespace {

/// Whole blocks of 128 bits.
std::int64_t mask_bytes(std::int64_t elements) { return (elements + 127) / 128 * 16; }

bool kept(const std::vector<std::int64_t>& mask, std::size_t i) { return (mask[i / 8] >> (i % 8) & 1) != 0; }

}  // namespace

extern "C" {

int aclnnDropoutGetWorkspaceSize(const aclTensor* input, double p, bool train, int64_t seed, int64_t offset,
                                 aclTensor* out, aclTensor* maskOut, uint64_t* workspaceSize,
                                 aclOpExecutor** executor) {
  return prepare("Dropout", workspaceSize, executor, [&](Operator& op) {
    const Tensor from = op.input(input, "input", kFloats), to = op.output(out, "out", kFloats);
    const Tensor mask = op.output(maskOut, "maskOut", {ACL_UINT8});
    same_shape(from, to);
    same_type(from, to);
    demand(p >= 0 && p <= 1, "p outside of [0, 1]");
    need_shape(mask, {mask_bytes(from.count())});
    const double zero = train ? p : 0, share = nearest(1 - zero, from.type);
    op.kernel([=](const Launch& launch) {
      std::vector<double> values = launch(from).read();
      std::vector<std::int64_t> bytes(static_cast<std::size_t>(mask.count()), 0);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const std::uint64_t number = static_cast<std::uint64_t>(offset) + i;
        const bool keep = uniform(static_cast<std::uint64_t>(seed), number) >= zero && zero < 1;
        if (keep) bytes[i / 8] |= std::int64_t{1} << (i % 8);
        values[i] = keep ? values[i] / share : 0;
      }
      launch(to).write(values);
      launch(mask).write_integers(bytes);
    });
  });
}
STAND_IN_PHASE_TWO(Dropout)

int aclnnDropoutBackwardGetWorkspaceSize(const aclTensor* gradOutput, const aclTensor* mask, double scale,
                                         aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("DropoutBackward", workspaceSize, executor, [&](Operator& op) {
    const Tensor from = op.input(gradOutput, "gradOutput", kFloats), bits = op.input(mask, "mask", {ACL_UINT8});
    const Tensor to = op.output(out, "out", kFloats);
    same_shape(from, to);
    same_type(from, to);
    need_shape(bits, {mask_bytes(from.count())});
    op.kernel([=](const Launch& launch) {
      std::vector<double> values = launch(from).read();
      const std::vector<std::int64_t> bytes = launch(bits).read_integers();
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = kept(bytes, i) ? values[i] * scale : 0;
      launch(to).write(values);
    });
  });
}
STAND_IN_PHASE_TWO(DropoutBackward)

}  // extern "C"
