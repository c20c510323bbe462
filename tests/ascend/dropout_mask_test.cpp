#include "lora/ascend/kernels/dropout_mask.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "lora/ascend/kernels.hpp"
#include "lora/cpu/kernels.hpp"
#include "support/effort.hpp"
#include "support/matrix.hpp"
#include "support/message_of.hpp"
#include "support/stand_in.hpp"

namespace dropout_mask_test {

namespace {

using namespace lora;
using namespace lora::test;
using Npu = ascend::Device;
using Cpu = cpu::Device;
using Numbers = std::vector<std::int32_t>;

struct Rows {
  Numbers places, positions;

  explicit Rows(Index count) {
    for (std::int32_t i = 0; i < count; ++i) {
      places.push_back(5 + i / 3);
      positions.push_back(i % 3 * 11);
    }
  }
};

std::vector<std::uint8_t> drawn(const kernel::Dropout& rule, const Rows& rows, Index cols, int threads) {
  const Index elements = std::ssize(rows.places) * cols;
  // What was there before does not show.
  std::vector<std::uint8_t> bits(static_cast<std::size_t>(ascend::dropout_mask_bytes(elements)), 0xA5);
  ascend::draw_dropout_mask(rule, rows.places, rows.positions, cols, threads, bits);
  return bits;
}

/// By the contract, an element at a time.
std::vector<std::uint8_t> expected(const kernel::Dropout& rule, const Rows& rows, Index cols) {
  std::vector<std::uint8_t> bits(static_cast<std::size_t>(ascend::dropout_mask_bytes(std::ssize(rows.places) * cols)),
                                 0);
  std::size_t at = 0;
  for (std::size_t row = 0; row < rows.places.size(); ++row)
    for (Index j = 0; j < cols; ++j, ++at) {
      const auto words = philox({static_cast<std::uint32_t>(j / 4), static_cast<std::uint32_t>(rows.positions[row]),
                                 static_cast<std::uint32_t>(rows.places[row]), 0},
                                rule.key);
      if (words[static_cast<std::size_t>(j % 4)] >= rule.p * 0x1p32)
        bits[at / 8] |= static_cast<std::uint8_t>(1 << at % 8);
    }
  return bits;
}

/// Dropout of a view with gaps, of its later rows, added to and in place, as a device computes it.
template <class D, class T>
std::vector<std::vector<T>> results(int threads, Index n, Index cols) {
  D dev(threads);
  const Rows rows(n);
  const kernel::Dropout rule{0.5, 0xABCDEF0123456789u};  // scaling by 2 is exact
  Matrix<D, std::int32_t> places(dev, 1, n, rows.places), positions(dev, 1, n, rows.positions);
  Matrix<D, T> x(dev, n, cols, 1, 3), y(dev, n, cols, 2, 1), part(dev, n - 16, cols, 2), sum(dev, n, cols, 3, 5);
  const auto mask = kernel::draw_dropout(dev, rule, places.in(), positions.in(), cols, false);
  kernel::dropout<D, T>(dev, mask, x.in(), y.view());
  kernel::dropout<D, T>(dev, mask.row_slice(16, n - 16), x.in().row_slice(16, n - 16), part.view());
  kernel::fill(dev, sum.view(), 0.0);
  kernel::dropout<D, T>(dev, mask, x.in(), sum.view(), true);
  kernel::dropout<D, T>(dev, rule, x.in(), places.in(), positions.in(), x.view());
  return {y.host(), part.host(), sum.host(), x.host()};
}

template <class T>
void check_devices() {
  for (const Index cols : {Index{1}, Index{13}, Index{64}, Index{523}})
    for (const int threads : {1, 2}) {
      CAPTURE(cols);
      CAPTURE(threads);
      const auto on_cpu = results<Cpu, T>(threads, 131, cols), on_npu = results<Npu, T>(threads, 131, cols);
      for (std::size_t i = 0; i < on_cpu.size(); ++i) check_same_bits(on_npu[i], on_cpu[i]);
    }
}

}  // namespace

TEST_CASE("dropout mask: its bits are the contract's, whatever the columns and the number of threads") {
  for (const Index n : {Index{1}, Index{7}, Index{8}, Index{21}})
    for (const Index cols :
         {Index{1}, Index{3}, Index{8}, Index{9}, Index{128}, Index{515}, Index{2056}, Index{4099}}) {
      const Rows rows(n);
      CAPTURE(n);
      CAPTURE(cols);
      for (const double p : {0.1, 0.5}) {
        const kernel::Dropout rule{p, 0x0123456789ABCDEFu};
        const auto bits = expected(rule, rows, cols);
        for (const int threads : {1, 2, 3}) CHECK(drawn(rule, rows, cols, threads) == bits);
      }
    }
}

TEST_CASE("dropout mask: all or nothing at the ends") {
  const Rows rows(5);
  CHECK(drawn({0, 1}, rows, 128, 1) == std::vector<std::uint8_t>(80, 0xFF));
  for (const double p : {1.0, 1 - 0x1p-40}) CHECK(drawn({p, 1}, rows, 128, 1) == std::vector<std::uint8_t>(80, 0));
}

TEST_CASE("dropout mask: results have the CPU's bits") {
  on_stand_in([] {
    SUBCASE("f32") { check_devices<float>(); }
    if (effort(true, false, "dropout mask: bf16, for f16")) SUBCASE("bf16") {
        check_devices<bf16>();
      }
    SUBCASE("f16") { check_devices<f16>(); }
  });
}

TEST_CASE("dropout mask: what is kept is scaled without an error that goes one way") {
  on_stand_in([] {
    const auto check = []<class T>(T) {
      Npu dev(2);
      const Index n = 256, cols = 256;
      const Rows rows(n);
      Matrix<Npu, std::int32_t> places(dev, 1, n, rows.places), positions(dev, 1, n, rows.positions);
      Matrix<Npu, T> x(dev, n, cols, 1), y(dev, n, cols, 2);
      Random random(5);
      std::vector<T> numbers;
      for (Index i = 0; i < n * cols; ++i) numbers.push_back(T(1 + random.uniform()));
      copy_from_host<Npu, T>(dev, numbers, x.view());
      for (const double p : {0.05, 0.1, 0.15, 0.2, 0.3}) {
        CAPTURE(p);
        kernel::dropout<Npu, T>(dev, {p, 77}, x.in(), places.in(), positions.in(), y.view());
        const std::vector<T> kept = y.host();
        double sum = 0, exact = 0;
        for (std::size_t i = 0; i < kept.size(); ++i) {
          if (real(kept[i]) == 0) continue;
          sum += real(kept[i]);
          exact += real(numbers[i]) / (1 - p);
        }
        CHECK(std::fabs(sum / exact - 1) < 1e-4);
      }
    };
    check(bf16());
    check(f16());
    check(float());
  });
}

TEST_CASE("dropout mask: numbers of rows that the host has not kept are told with what helps") {
  on_stand_in([] {
    Npu dev(1);
    const Index n = 8;
    const Rows rows(n);
    Matrix<Npu, std::int32_t> places(dev, 1, n, rows.places);
    Tensor<Npu, std::int32_t> unknown(dev, 1, n);
    const Arena::Scope scope(dev.arena());
    CHECK(message_of<DeviceError>([&] {
            (void)kernel::draw_dropout(dev, {0.5, 1}, places.in(), View<Npu, const std::int32_t>(unknown.view()), 64,
                                       false);
          }) ==
          "[dropout] the host no longer has the numbers of 8 rows that the NPU has: it keeps what comes in one copy of "
          "at most 64 MiB; train with smaller micro-batches, or with lora_dropout 0");
  });
}

TEST_CASE("dropout mask: what is drawn ahead is used as it is, and not kept on the host") {
  on_stand_in([] {
    Npu dev(1);
    const Index n = 16, cols = 64;
    const Rows rows(n);
    const kernel::Dropout rule{0.5, 3};
    Matrix<Npu, std::int32_t> places(dev, 1, n, rows.places), positions(dev, 1, n, rows.positions);
    Matrix<Npu, float> x(dev, n, cols, 1), y(dev, n, cols, 2), anew(dev, n, cols, 2);
    const Arena::Scope scope(dev.arena());
    const StandInCounts before = stand_in_counts();
    const auto mask = kernel::draw_dropout(dev, rule, places.in(), positions.in(), cols, false);
    kernel::dropout<Npu, float>(dev, mask, x.in(), y.view());
    const StandInCounts after = stand_in_counts();
    CHECK(after.copies_in - before.copies_in == 1);
    CHECK(after.bytes_in - before.bytes_in == 128);
    CHECK(dev.host_copies().find(mask.drawn.data(), 128).empty());
    kernel::dropout<Npu, float>(dev, rule, x.in(), places.in(), positions.in(), anew.view());
    CHECK(y.host() == anew.host());
  });
}

TEST_CASE("dropout mask: the host waits before it draws over a mask that is still being copied") {
  on_stand_in([] {
    Npu dev(1);
    const Index n = 16, few = 64, many = Index{1} << 19;  // a mask of many is 1 MiB, of which the ring holds eight
    const Rows rows(n);
    Matrix<Npu, std::int32_t> places(dev, 1, n, rows.places), positions(dev, 1, n, rows.positions);
    Matrix<Npu, float> y(dev, 1, 8, 1);
    const Arena::Scope scope(dev.arena());
    const auto draw = [&](double p, Index cols) {
      return kernel::draw_dropout(dev, kernel::Dropout{p, 7}, places.in(), positions.in(), cols, false).drawn;
    };
    const StandInCounts before = stand_in_counts();
    const StandInSetting slow("delay_us", 50000, 50);
    for (int i = 0; i < 8; ++i) kernel::fill(dev, y.view(), 1.0);  // behind which the copies queue
    const auto mask = draw(0.5, few);
    for (int i = 0; i < 8; ++i) (void)draw(1, many);  // quick, all zeros; the last has the first one's place
    CHECK(to_host(dev, mask) == drawn({0.5, 7}, rows, few, 2));
    CHECK(stand_in_counts().host_allocations - before.host_allocations <= 3);  // the ring; others to read numbers back
  });
}

}  // namespace dropout_mask_test
