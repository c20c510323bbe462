#if defined(LORA_WITH_ONEDNN)
#  include "lora/cpu/onednn.hpp"

#  include <doctest/doctest.h>

#  include <atomic>
#  include <stdexcept>
#  include <vector>

#  include "lora/cpu/device.hpp"
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

}  // namespace onednn_test
#endif
