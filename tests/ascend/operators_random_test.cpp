/// What of the Ascend stand-in's operators PyTorch has no numbers for: random ones, and calls that go wrong.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <thread>
#include <vector>

#include "ascend/operator_calls.hpp"

namespace operators_random_test {

using namespace operator_calls;

namespace {

/// A contiguous tensor with its memory.
template <class T>
class OnDevice {
 public:
  OnDevice(Dims shape, aclDataType type, std::size_t count) : count_(count) {
    REQUIRE(aclrtMalloc(&memory_, count * sizeof(T) + 64, ACL_MEM_MALLOC_HUGE_FIRST) == ACL_SUCCESS);
    Dims strides(shape.size(), 1);
    for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
    tensor = aclCreateTensor(shape.data(), shape.size(), type, strides.data(), 0, ACL_FORMAT_ND, shape.data(),
                             shape.size(), memory_);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() {
    aclDestroyTensor(tensor);
    aclrtFree(memory_);
  }

  void set(const std::vector<T>& values) {
    REQUIRE(aclrtMemcpy(memory_, count_ * sizeof(T), values.data(), values.size() * sizeof(T),
                        ACL_MEMCPY_HOST_TO_DEVICE) == ACL_SUCCESS);
  }
  std::vector<T> get() const {
    std::vector<T> values(count_);
    REQUIRE(aclrtMemcpy(values.data(), count_ * sizeof(T), memory_, count_ * sizeof(T), ACL_MEMCPY_DEVICE_TO_HOST) ==
            ACL_SUCCESS);
    return values;
  }

  aclTensor* tensor = nullptr;

 private:
  std::size_t count_;
  void* memory_ = nullptr;
};

/// Both phases; what synchronizing says.
template <class Prepare, class Execute>
int ran(Prepare prepare, Execute execute, aclrtStream stream) {
  std::uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  REQUIRE_MESSAGE(prepare(&size, &executor) == ACL_SUCCESS, recent_error());
  void* workspace = nullptr;
  if (size > 0) REQUIRE(aclrtMalloc(&workspace, size, ACL_MEM_MALLOC_HUGE_FIRST) == ACL_SUCCESS);
  REQUIRE_MESSAGE(execute(workspace, size, executor, stream) == ACL_SUCCESS, recent_error());
  const int code = aclrtSynchronizeStream(stream);
  if (workspace != nullptr) aclrtFree(workspace);
  return code;
}

constexpr std::int64_t kCount = 1 << 14;

struct Moments {
  double mean = 0, deviation = 0, least = 0, most = 0;
};

Moments moments(const std::vector<float>& values) {
  Moments m{0, 0, HUGE_VAL, -HUGE_VAL};
  const auto count = static_cast<double>(values.size());
  for (const float value : values) {
    const double x = static_cast<double>(value);
    m.mean += x / count;
    m.least = std::min(m.least, x);
    m.most = std::max(m.most, x);
  }
  for (const float value : values) m.deviation += std::pow(static_cast<double>(value) - m.mean, 2) / count;
  m.deviation = std::sqrt(m.deviation);
  return m;
}

/// The largest distance of a mean of kCount numbers from its expectation that chance explains (5 sigma).
double chance(double deviation) { return 5 * deviation / std::sqrt(static_cast<double>(kCount)); }

TEST_CASE("stand-in operators: normal numbers are a function of seed and offset") {
  const Device device;
  OnDevice<float> out({kCount}, ACL_FLOAT, kCount);
  const auto normal = [&](std::int64_t seed, std::int64_t offset) {
    CHECK(ran(
              [&](auto* size, auto** executor) {
                return aclnnInplaceNormalGetWorkspaceSize(out.tensor, 1.5F, 0.5F, seed, offset, size, executor);
              },
              aclnnInplaceNormal, device.stream) == ACL_SUCCESS);
    return out.get();
  };
  const std::vector<float> one = normal(7, 0);
  CHECK(normal(7, 0) == one);
  CHECK(normal(8, 0) != one);
  CHECK(normal(7, kCount) != one);
  const Moments m = moments(one);
  CHECK(std::fabs(m.mean - 1.5) < chance(0.5));
  CHECK(std::fabs(m.deviation - 0.5) < chance(0.5));
}

TEST_CASE("stand-in operators: uniform numbers fill their range") {
  const Device device;
  OnDevice<float> out({kCount}, ACL_FLOAT, kCount);
  CHECK(ran(
            [&](auto* size, auto** executor) {
              return aclnnInplaceUniformGetWorkspaceSize(out.tensor, -1.0, 3.0, 7, 0, size, executor);
            },
            aclnnInplaceUniform, device.stream) == ACL_SUCCESS);
  const Moments m = moments(out.get());
  const double deviation = 4 / std::sqrt(12.0);
  CHECK(std::fabs(m.mean - 1) < chance(deviation));
  CHECK(std::fabs(m.deviation - deviation) < chance(deviation));
  CHECK(m.least >= -1);
  CHECK(m.most <= 3);
  CHECK(m.least < -0.99);
  CHECK(m.most > 2.99);
}

TEST_CASE("stand-in operators: a dropout mask has as many zeros as its probability says") {
  const Device device;
  OnDevice<std::uint8_t> mask({kCount / 8}, aclDataType(4), kCount / 8);
  const Dims shape{kCount};
  aclIntArray* dims = aclCreateIntArray(shape.data(), 1);
  const auto masked = [&](double probability, std::int64_t seed, std::int64_t offset) {
    CHECK(ran(
              [&](auto* size, auto** executor) {
                return aclnnDropoutGenMaskV2GetWorkspaceSize(dims, probability, seed, offset, ACL_FLOAT, mask.tensor,
                                                             size, executor);
              },
              aclnnDropoutGenMaskV2, device.stream) == ACL_SUCCESS);
    return mask.get();
  };
  for (const double probability : {0.1, 0.5, 0.9}) {
    const std::vector<std::uint8_t> bytes = masked(probability, 3, 0);
    int kept = 0;
    for (const std::uint8_t byte : bytes) kept += std::popcount(byte);
    CHECK(std::fabs(kept / static_cast<double>(kCount) - (1 - probability)) <
          chance(std::sqrt(probability * (1 - probability))));
    CHECK(masked(probability, 3, 0) == bytes);
    CHECK(masked(probability, 4, 0) != bytes);
    CHECK(masked(probability, 3, 8192) != bytes);
  }
  aclDestroyIntArray(dims);
}

TEST_CASE("stand-in operators: dropout scales what its mask keeps") {
  const Device device;
  OnDevice<float> in({kCount}, ACL_FLOAT, kCount), out({kCount}, ACL_FLOAT, kCount);
  OnDevice<std::uint8_t> mask({kCount / 8}, aclDataType(4), kCount / 8);
  in.set(std::vector<float>(kCount, 3));
  CHECK(ran(
            [&](auto* size, auto** executor) {
              return aclnnDropoutGetWorkspaceSize(in.tensor, 0.25, true, 5, 0, out.tensor, mask.tensor, size, executor);
            },
            aclnnDropout, device.stream) == ACL_SUCCESS);
  const std::vector<float> values = out.get();
  const std::vector<std::uint8_t> bytes = mask.get();
  int kept = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool keeps = (bytes[i / 8] >> (i % 8) & 1) != 0;
    kept += keeps ? 1 : 0;
    REQUIRE(values[i] == (keeps ? 4.0F : 0.0F));
  }
  CHECK(std::fabs(kept / static_cast<double>(kCount) - 0.75) < chance(std::sqrt(0.25 * 0.75)));
}

TEST_CASE("stand-in operators: an executor is used up by its second phase") {
  const Device device;
  faults();
  OnDevice<float> a({8}, ACL_FLOAT, 8), b({8}, ACL_FLOAT, 8);
  a.set(std::vector<float>(8, 2));
  std::uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  REQUIRE(aclnnNegGetWorkspaceSize(a.tensor, b.tensor, &size, &executor) == ACL_SUCCESS);
  void* workspace = nullptr;
  if (size > 0) REQUIRE(aclrtMalloc(&workspace, size, ACL_MEM_MALLOC_HUGE_FIRST) == ACL_SUCCESS);
  CHECK(aclnnExp(workspace, size, executor, device.stream) != ACL_SUCCESS);  // of another operator
  CHECK(aclnnNeg(workspace, size, executor, device.stream) == ACL_SUCCESS);
  CHECK(faults() != "");
  CHECK(aclnnNeg(workspace, size, executor, device.stream) != ACL_SUCCESS);
  CHECK(faults() != "");
  REQUIRE(aclrtSynchronizeStream(device.stream) == ACL_SUCCESS);
  CHECK(b.get() == std::vector<float>(8, -2));
  if (workspace != nullptr) aclrtFree(workspace);
}

TEST_CASE("stand-in operators: what shares memory in part is refused") {
  const Device device;
  faults();
  OnDevice<float> memory({64}, ACL_FLOAT, 64);
  const auto part = [&](std::int64_t offset, std::int64_t stride) {
    const std::int64_t size = 16, storage = 64;
    void* address = nullptr;
    REQUIRE(aclGetRawTensorAddr(memory.tensor, &address) == ACL_SUCCESS);
    return aclCreateTensor(&size, 1, ACL_FLOAT, &stride, offset, ACL_FORMAT_ND, &storage, 1, address);
  };
  aclTensor *whole = part(0, 1), *shifted = part(8, 1), *spread = part(0, 2), *beside = part(16, 1);
  std::uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  for (aclTensor* other : {shifted, spread}) {
    CHECK(aclnnNegGetWorkspaceSize(whole, other, &size, &executor) == ACLNN_ERR_PARAM_INVALID);
    CHECK(faults() != "");
  }
  REQUIRE(aclnnNegGetWorkspaceSize(whole, beside, &size, &executor) == ACL_SUCCESS);
  CHECK(aclDestroyAclOpExecutor(executor) == ACL_SUCCESS);
  for (aclTensor* tensor : {whole, shifted, spread, beside}) aclDestroyTensor(tensor);
}

TEST_CASE("stand-in operators: an index outside of a table stops the device") {
  const Device device;
  faults();
  // In a thread with a device of its own, since a context is of no use afterward.
  std::thread([] {
    REQUIRE(aclrtSetDevice(1) == ACL_SUCCESS);
    aclrtStream own = nullptr;
    REQUIRE(aclrtCreateStream(&own) == ACL_SUCCESS);
    {
      OnDevice<float> table({5, 8}, ACL_FLOAT, 40), rows({3, 8}, ACL_FLOAT, 24);
      OnDevice<std::int64_t> ids({3}, ACL_INT64, 3);
      table.set(std::vector<float>(40, 1));
      ids.set({0, 5, 1});
      CHECK(ran(
                [&](auto* size, auto** executor) {
                  return aclnnEmbeddingGetWorkspaceSize(table.tensor, ids.tensor, rows.tensor, size, executor);
                },
                aclnnEmbedding, own) == 507015);
    }
    aclrtDestroyStream(own);
    CHECK(aclrtResetDevice(1) == ACL_SUCCESS);
  }).join();
  faults();
}

}  // namespace
}  // namespace operators_random_test
