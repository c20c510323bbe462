#include "lora/tensor/device.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "lora/tensor/staging.hpp"
#include "support/backends.hpp"

namespace tensor_device_test {

using namespace lora;
using namespace lora::test;

namespace {

/// Counts the objects that there are.
struct Counted {
  explicit Counted(int& count) : count_(&count) { ++*count_; }
  Counted(const Counted&) = delete;
  ~Counted() { --*count_; }
  int* count_;
};

/// A state that is made from its device, and uses it to the end.
template <class D>
struct Owner {
  explicit Owner(D& made_for) : dev(made_for), memory(dev.allocate(64)) {}
  Owner(const Owner&) = delete;
  ~Owner() { dev.free(memory, 64); }
  D& dev;
  void* memory;
};

}  // namespace

TEST_CASE("device: an event is behind what its stream was given before, and has a time") {
  each_backend([]<class D>() {
    D dev;
    Tensor<D, float> x(dev, 1, 4096);
    const Event before = dev.record(Stream::compute);
    for (int i = 0; i < 5; ++i) kernel::fill(dev, x.view(), static_cast<double>(i));
    const Event after = dev.record(Stream::compute);
    dev.wait(after);
    CHECK(dev.is_done(before));
    CHECK(dev.is_done(after));
    CHECK(dev.nanoseconds(before, after) > 0);
    CHECK(dev.nanoseconds(after, before) == -dev.nanoseconds(before, after));
    CHECK(to_host(dev, x.view())[4095] == 4.0f);
    dev.release(before);
    dev.release(after);
  });
}

TEST_CASE("device: a stream that waits for an event sees what was done before it") {
  each_backend([]<class D>() {
    D dev;
    const std::vector<float> values{1, 2, 3};
    Tensor<D, float> x(dev, 1, 3), y(dev, 1, 3);
    for (int round = 0; round < 20; ++round) {
      const Event read = dev.record(Stream::compute);
      dev.wait(Stream::copy, read);  // of the round before
      dev.copy_from_host(x.view().data(), values.data(), x.bytes(), Stream::copy);
      const Event copied = dev.record(Stream::copy);
      dev.wait(Stream::compute, copied);
      kernel::convert(dev, x.view(), y.view(), round + 1.0);
      dev.release(read);
      dev.release(copied);
    }
    CHECK(to_host(dev, y.view()) == std::vector<float>{20, 40, 60});
  });
}

TEST_CASE("device: it tells its memory, and has memory of the host to copy from") {
  each_backend([]<class D>() {
    D dev;
    const MemoryInfo memory = dev.memory();
    CHECK(memory.free > 0);
    CHECK(memory.total >= memory.free);
    auto* const host = static_cast<float*>(dev.allocate_host(3 * sizeof(float)));
    for (int i = 0; i < 3; ++i) host[i] = static_cast<float>(i);
    Tensor<D, float> x(dev, 1, 3);
    dev.copy_from_host(x.view().data(), host, x.bytes());
    CHECK(to_host(dev, x.view()) == std::vector<float>{0, 1, 2});
    dev.free_host(host, 3 * sizeof(float));
  });
}

TEST_CASE("device: a copy to the host's memory is there once its event is done, in either stream") {
  each_backend([]<class D>() {
    D dev;
    constexpr std::size_t bytes = 3 * sizeof(float);
    auto* const host = static_cast<float*>(dev.allocate_host(bytes));
    Tensor<D, float> x(dev, 1, 3);
    for (const Stream stream : {Stream::copy, Stream::compute}) {
      kernel::fill(dev, x.view(), stream == Stream::copy ? 2.0 : 5.0);
      const Event filled = dev.record(Stream::compute);
      dev.wait(stream, filled);
      dev.start_copy_to_host(host, x.view().data(), bytes, stream);
      const Event copied = dev.record(stream);
      dev.wait(copied);
      CHECK(std::vector<float>(host, host + 3) == std::vector<float>(3, stream == Stream::copy ? 2.0f : 5.0f));
      dev.release(filled);
      dev.release(copied);
    }
    dev.free_host(host, bytes);
  });
}

TEST_CASE("device: a state is made once, of the device where it takes one, and goes before it") {
  each_backend([]<class D>() {
    int count = 0;
    {
      D dev, other;
      dev.template state<std::unique_ptr<Counted>>() = std::make_unique<Counted>(count);
      CHECK(dev.template state<std::unique_ptr<Counted>>() != nullptr);
      CHECK(other.template state<std::unique_ptr<Counted>>() == nullptr);
      CHECK(&dev.template state<Owner<D>>().dev == &dev);
      CHECK(&dev.template state<Owner<D>>() == &dev.template state<Owner<D>>());
      CHECK(count == 1);
    }
    CHECK(count == 0);
  });
}

TEST_CASE("staging: a source may change at once") {
  each_backend([]<class D>() {
    D dev;
    constexpr Index rounds = 40, n = 100'000;  // of 400 kB: many blocks
    Tensor<D, std::int32_t> x(dev, rounds, n);
    std::vector<std::int32_t> values(static_cast<std::size_t>(n));
    for (Index i = 0; i < rounds; ++i) {
      values.front() = values.back() = static_cast<std::int32_t>(i + 1);
      copy_staged<D, std::int32_t>(dev, values, x.view().row_slice(i, 1));
      values.assign(values.size(), -1);
    }
    for (Index i = 0; i < rounds; ++i) {
      const auto row = to_host(dev, x.view().row_slice(i, 1));
      CHECK(row.front() == i + 1);
      CHECK(row.back() == i + 1);
    }
  });
}

TEST_CASE("staging: memory is used again once its copies are done, and not before") {
  proof::Device dev(1, {.late_sources = true});
  constexpr Index n = 1 << 18;  // a whole block
  Tensor<proof::Device, std::int32_t> x(dev, 1, n);
  const std::vector<std::int32_t> values(static_cast<std::size_t>(n), 7);
  const auto allocated = [&](int copies, bool waits) {
    const std::size_t before = dev.counts().allocations;
    for (int i = 0; i < copies; ++i) {
      copy_staged<proof::Device, std::int32_t>(dev, values, x.view());
      if (waits) dev.synchronize();
    }
    return dev.counts().allocations - before;
  };
  // When the next block is wanted, the event of the one just filled may be queued only: then there are two.
  const std::size_t blocks = allocated(12, true);
  CHECK(blocks >= 1);
  CHECK(blocks <= 2);
  dev.hold();  // only blocks that were copied before are free, all but the last one
  CHECK(allocated(4, false) == 4 - (blocks - 1));
  dev.synchronize();
  CHECK(allocated(4, false) == 0);
}

TEST_CASE("staging: what does not fit the view is named") {
  proof::Device dev;
  Tensor<proof::Device, std::int32_t> x(dev, 2, 4);
  const std::vector<std::int32_t> values(4);
  CHECK_THROWS_WITH_AS((copy_staged<proof::Device, std::int32_t>(dev, values, x.view())),
                       "[copy_staged] 4 values for a view of (2, 4)", ShapeError);
  CHECK_THROWS_AS((copy_staged<proof::Device, std::int32_t>(dev, values, x.view().col_slice(0, 2))), ShapeError);
}

TEST_CASE("staging: what no block has room for gets one of its own") {
  proof::Device dev(1, {.late_sources = true});
  constexpr Index small = 1000, large = 3 << 18;  // of 4 kB and 3 MiB
  Tensor<proof::Device, std::int32_t> first(dev, 1, small), second(dev, 1, large), third(dev, 1, small);
  std::vector<std::int32_t> few(static_cast<std::size_t>(small), 1), many(static_cast<std::size_t>(large));
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = static_cast<std::int32_t>(i);
  copy_staged<proof::Device, std::int32_t>(dev, few, first.view());
  dev.synchronize();  // the first block is free again
  CHECK(dev.page_locked().now() == std::size_t{1} << 20);
  copy_staged<proof::Device, std::int32_t>(dev, many, second.view());
  CHECK(dev.page_locked().now() == std::size_t{5} << 20);
  few.assign(few.size(), 2);
  copy_staged<proof::Device, std::int32_t>(dev, few, third.view());  // behind it
  CHECK(dev.page_locked().now() == std::size_t{5} << 20);
  CHECK(to_host(dev, first.view()) == std::vector<std::int32_t>(few.size(), 1));
  CHECK(to_host(dev, second.view()) == many);
  CHECK(to_host(dev, third.view()) == few);
}

TEST_CASE("device: the host sees values once their kernels have run, of a whole matrix and of columns") {
  each_backend([]<class D>() {
    D dev;
    Tensor<D, float> x(dev, 3, 64);
    for (int i = 0; i < 5; ++i) kernel::fill(dev, x.view(), static_cast<double>(i));
    kernel::fill(dev, x.view().row_slice(1, 1), 7.0);
    std::vector<float> seen;
    const auto see = [&](std::span<const float> values) { seen.assign(values.begin(), values.end()); };
    std::vector<float> expected(3 * 64, 4.0f);
    for (std::size_t i = 64; i < 128; ++i) expected[i] = 7.0f;
    with_host_values(dev, x.view(), see);
    CHECK(seen == expected);
    with_host_values(dev, x.view().col_slice(0, 1), see);
    CHECK(seen == std::vector<float>{4, 7, 4});
  });
}

TEST_CASE("device: an update is folded above a number of rows that the weight's extents give") {
  const Tiling tiling{1, 1, 1, 2.0};  // twice the 2 I O / (I + O) rows
  CHECK_FALSE(tiling.folds_update(80, 30, 60));
  CHECK(tiling.folds_update(81, 30, 60));
  CHECK_FALSE(tiling.folds_update(80, 60, 30));
  CHECK(tiling.folds_update(81, 60, 30));
  CHECK_FALSE(Tiling{1, 1, 1, std::numeric_limits<double>::infinity()}.folds_update(Index{1} << 40, 30, 60));
}

}  // namespace tensor_device_test
