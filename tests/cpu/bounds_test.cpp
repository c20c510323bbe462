// What the processors' device says of itself: how it cuts work, what its kernels take at most, and who forms products.

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "lora/core/random.hpp"
#include "lora/cpu/kernels/buffers.hpp"
#include "lora/cpu/kernels/gemm.hpp"
#include "lora/cpu/runtime/device.hpp"
#include "lora/cpu/vectors/random_words.hpp"

namespace cpu_bounds_test {

using namespace lora;

TEST_CASE("cpu bounds: the tiling on which the bits of a run depend") {
  const Tiling tiling = cpu::Device(1).tiling();
  CHECK((tiling.rows == 512 && tiling.head_rows == 1024 && tiling.head_columns == 2048 && tiling.fold_ratio == 0.5));
  CHECK_FALSE(tiling.joins_projections);
  CHECK(cpu::Device(3).tiling().rows == 512);
}

TEST_CASE("cpu bounds: what tensors have of the memory is counted, with its peak") {
  cpu::Device dev(1);
  CHECK(dev.allocated().now() == 0);
  void *const a = dev.allocate(100), *const b = dev.allocate_host(7);
  CHECK(dev.allocated().now() == 107);
  dev.free(a, 100);
  CHECK(dev.allocated().now() == 7);
  dev.free_host(b, 7);
  CHECK((dev.allocated().now() == 0 && dev.allocated().peak() == 107));
  const MemoryInfo memory = dev.memory();
  CHECK(memory.total == cpu::total_memory());
  CHECK(memory.free <= memory.total);
  const Event before = dev.record(Stream::compute), after = dev.record(Stream::copy);
  CHECK(dev.nanoseconds(before, after) == after.number - before.number);
  CHECK(dev.is_done(after));
  CHECK(dev.describe() == "cpu, 1 thread" + (cpu::processor_name().empty() ? "" : " on " + cpu::processor_name()));
}

TEST_CASE("cpu bounds: kernels take the largest of what they hold at once, beside tiles of each thread") {
  using Buffers = kernel::Buffers<cpu::Device>;
  constexpr double tiles = 704 * 1024;
  const auto most = []<class T>(T, int threads, const kernel::PassExtents& extents, bool apart = false) {
    return Buffers::most<T>({threads, apart}, extents) - threads * tiles;
  };
  const kernel::PassExtents attention{.rows = 100, .kv_heads = 5, .head_dim = 16};
  // The sums of dk and dv: of as many heads as threads, but no more than 1.4 times the heads.
  CHECK(most(float{}, 2, attention) == 2 * 2 * (100 + 128) * (16 + 16) * 4);
  CHECK(most(float{}, 7, attention) == 7 * 2 * (100 + 128) * (16 + 16) * 4);
  CHECK(most(float{}, 70, attention) == 7 * 2 * (100 + 128) * (16 + 16) * 4);
  CHECK(most(double{}, 2, attention) == 2 * 2 * (100 + 128) * (16 + 16) * 8);
  const kernel::PassExtents heads{.rows = 10'000, .kv_heads = 50, .head_dim = 16};
  CHECK(most(bf16{}, 1, heads) == 2 * 10'000 * 50 * 16 * 2);  // both gradients once more
  CHECK(most(float{}, 1, heads) == 2 * 10'000 * 50 * 16 * 4);
  const kernel::PassExtents wide{.rows = 640, .widest = 10'000};
  CHECK(most(float{}, 1, wide) == (640 / 64 + 1) * 10'000 * 4);  // sums of columns
  CHECK(most(bf16{}, 1, wide) == (640 / 64 + 1) * 10'000 * 4);
  CHECK(most(bf16{}, 1, wide, true) == 512 * 10'000 * 4);  // products that are summed in float32 first
  CHECK(most(f16{}, 1, wide) == 512 * 10'000 * 4);
  CHECK(most(f16{}, 1, {.rows = 100, .widest = 10'000}) == 100 * 10'000 * 4);
  const kernel::PassExtents factors{.rows = 512, .factors = 100'000};
  CHECK(most(float{}, 1, factors) == (512 / 256 + 2 + 1) * 100'000 * 4);
  CHECK(most(float{}, 1, {.rows = 1 << 20, .factors = 10'000'000}) == 33.0 * 10'000'000 * 4);
  cpu::Device dev(3);
  CHECK(Buffers::settings(dev).threads == 3);
  cpu::gemm_engines(dev) = {cpu::GemmEngine::eigen};
  CHECK(Buffers::settings(dev).sums_apart);
}

TEST_CASE("cpu bounds: bfloat16 is preferred for what is stored so, where the processor has products of it") {
  cpu::Device dev(1);
  const bool has = cpu::has_bf16_products(dev);
  CHECK((cpu::preferred_precision(dev, DType::bf16) == Precision::bfloat16) == has);
  for (const DType stored : {DType::f32, DType::f16, DType::q8_0})
    CHECK(cpu::preferred_precision(dev, stored) == Precision::float32);
  CHECK(cpu::describe_products(dev).ends_with(has ? ", bfloat16 in hardware" : ", bfloat16 through float32"));
  CHECK(cpu::takes<double>(cpu::GemmEngine::eigen));
  CHECK_FALSE(cpu::takes<double>(cpu::GemmEngine::onednn));
  cpu::gemm_engines(dev) = {cpu::GemmEngine::eigen};
  CHECK(cpu::describe_products(dev).starts_with(
      concat("Eigen ", EIGEN_WORLD_VERSION, ".", EIGEN_MAJOR_VERSION, ".", EIGEN_MINOR_VERSION, ", ")));
  cpu::gemm_engines(dev) = {cpu::GemmEngine::onednn};
  CHECK_THROWS_WITH_AS(cpu::gemm_engine<double>(dev), "[gemm] none of this device's engines takes the element type",
                       DeviceError);
}

TEST_CASE("cpu bounds: random words of a row are its columns', wherever a piece begins") {
  const auto words_of = [](Index begin, Index end) {
    std::vector<std::uint32_t> all;
    Index next = begin;
    cpu::detail::with_random_words(3, 5, 99, begin, end, [&](Index at, Index count, const std::uint32_t* words) {
      CHECK(at == next);
      CHECK(count <= 256);
      all.insert(all.end(), words, words + count);
      next = at + count;
    });
    CHECK(next == end);
    return all;
  };
  const auto whole = words_of(0, 601);
  REQUIRE(whole.size() == 601);
  for (const Index column : {0, 1, 7, 255, 256, 600}) {
    auto c0 = static_cast<std::uint32_t>(column / 4);
    std::uint32_t c1 = 5, c2 = 3, c3 = 0;
    philox(c0, c1, c2, c3, 99);
    const std::array<std::uint32_t, 4> four{c0, c1, c2, c3};
    CHECK(whole[static_cast<std::size_t>(column)] == four[static_cast<std::size_t>(column % 4)]);
  }
  const auto part = words_of(260, 300);
  CHECK(part == std::vector<std::uint32_t>(whole.begin() + 260, whole.begin() + 300));
  CHECK(words_of(8, 8).empty());
}

}  // namespace cpu_bounds_test
