#if defined(LORA_WITH_ONEDNN)
#  include "lora/cpu/vectors/onednn.hpp"

#  include <doctest/doctest.h>

#  include <atomic>
#  include <cstddef>
#  include <cstring>
#  include <stdexcept>
#  include <vector>

#  include "lora/cpu/runtime/device.hpp"
#  include "support/effort.hpp"

namespace onednn_test {

using namespace lora;

TEST_CASE("onednn: what goes wrong in one tile of a sum reaches the caller") {
  constexpr Index m = 1024, n = 640, k = 128;
  const std::vector<float> a(m * k, 1.0f), b(k * n, 1.0f);
  const cpu::ProductKey key{m, n, k, k, 1, n, 1, n, 1.0f, false, DType::f32, DType::f32};
  for (const int threads : {1, 2, 5}) {
    CAPTURE(threads);
    cpu::Device dev(threads);
    auto& products = dev.state<cpu::OneDnn>();
    std::atomic<int> tiles = 0;
    const auto form = [&](int broken) {
      tiles = 0;
      return products.run_sum(dev, {{key, a.data(), b.data()}}, [&](Index, Index, Index, Index, std::byte*, Index) {
        if (++tiles == broken) throw std::runtime_error("a broken tile");
      });
    };
    if (!form(0)) return test::skipped("onednn: sums by tiles, which oneDNN does not offer here");
    REQUIRE(tiles > 1);
    const int all = tiles;
    CHECK_THROWS_WITH_AS(form(1), "a broken tile", std::runtime_error);
    CHECK_THROWS_WITH_AS(form(all), "a broken tile", std::runtime_error);
    CHECK(tiles == all);
    CHECK(form(0));
  }
}

TEST_CASE("onednn: a tile at the edge of a sum is handed over with the rows' own distance") {
  constexpr auto absent = "onednn: sums of bfloat16 by tiles, which oneDNN does not offer here";
  if (!cpu::OneDnn::has_avx512()) return test::skipped(absent);
  constexpr Index m = 300, n = 712, k = 128;  // neither extent a multiple of a tile's
  std::vector<bf16> a(m * k, bf16(1.0f)), b(k * n, bf16(0.0f));
  const auto expected = [](Index column) { return static_cast<float>(column % 128 + 1); };
  for (Index j = 0; j < n; ++j) b[static_cast<std::size_t>(j)] = bf16(expected(j));  // the first row alone
  const cpu::ProductKey key{m, n, k, k, 1, n, 1, n, 1.0f, false, DType::bf16, DType::f32};
  for (const int threads : {1, 3}) {
    CAPTURE(threads);
    cpu::Device dev(threads);
    std::atomic<Index> numbers = 0, wrong = 0, narrow = 0;
    const bool formed = dev.state<cpu::OneDnn>().run_sum(
        dev, {{key, a.data(), b.data()}, {key, a.data(), b.data()}},
        [&](Index, Index column, Index rows, Index cols, const std::byte* tile, Index stride) {
          narrow += cols < stride ? 1 : 0;
          for (Index i = 0; i < rows; ++i)
            for (Index j = 0; j < cols; ++j) {
              float value = 0;
              std::memcpy(&value, tile + static_cast<std::size_t>(i * stride + j) * sizeof value, sizeof value);
              ++numbers;
              wrong += value == 2 * expected(column + j) ? 0 : 1;
            }
        });
    if (!formed) return test::skipped(absent);
    CHECK(numbers == m * n);
    CHECK(narrow > 0);
    CHECK(wrong == 0);
  }
}

}  // namespace onednn_test
#endif
