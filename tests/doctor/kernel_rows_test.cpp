#include "lora/doctor/kernel_rows.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/message_of.hpp"

namespace kernel_rows_test {

using namespace lora;
using namespace lora::doctor;
using D = cpu::Device;

namespace {

/// Doubles its operand, by whatever kernel `F` is.
template <class F>
inline constexpr auto twice = []<class E, class T>(Trial<E, T>& t) {
  const View<E, T> x = t.apart(5, 40), y = t.room(5, 40);
  t.launch([&] { F::run(t.dev, x, y); });
  t.result("y", y, Bound{1, 1});
};

struct Right {
  static void run(auto& dev, auto x, auto y) { kernel::convert(dev, x, y, 2); }
};
/// One number in 200 is off by some roundings.
struct OffByLittle {
  template <class T>
  static void run(D& dev, View<D, T> x, View<D, T> y) {
    Right::run(dev, x, y);
    y.row(3)[17] = T(static_cast<float>(y.row(3)[17]) + 0.05f);
  }
};
struct OneRowLeftOut {
  static void run(auto& dev, auto x, auto y) { Right::run(dev, x.row_slice(0, 4), y.row_slice(0, 4)); }
};

int runs = 0;
struct NeverTheSame {
  template <class T>
  static void run(D& dev, View<D, T> x, View<D, T> y) {
    Right::run(dev, x, y);
    y.row(0)[0] = T(static_cast<float>(y.row(0)[0]) * (1 + static_cast<float>(++runs % 2) * 0x1p-7f));
  }
};

template <class F, class T>
std::vector<KernelRow> rows(bool& repeats) {
  D dev(1), reference(1);
  return check_case<D, T>({"elementwise", "twice", twice<F>, twice<Right>}, dev, reference, Sizes(), repeats);
}
template <class F, class T>
KernelRow row() {
  bool repeats = false;
  const auto all = rows<F, T>(repeats);
  REQUIRE(all.size() == 1);
  CHECK(repeats);
  return all[0];
}

}  // namespace

TEST_CASE("kernel_rows: a right kernel is ok, a wrong one is too far and told with its number") {
  const KernelRow right = row<Right, bf16>();
  CHECK(right.state == State::ok);
  CHECK(right.units == 0);
  CHECK(right.bound == 1);
  CHECK(right.family == "elementwise");
  CHECK(right.kernel == "twice");
  CHECK(right.type == "bfloat16");
  CHECK(right.output == "y");
  CHECK(right.words.empty());
  CHECK(row<Right, float>().state == State::ok);
  CHECK(row<Right, f16>().state == State::ok);
  for (const KernelRow& wrong : {row<OffByLittle, float>(), row<OffByLittle, bf16>(), row<OffByLittle, f16>()}) {
    CHECK(wrong.state == State::too_far);
    CHECK(wrong.units > 1);
    CHECK(wrong.words.starts_with("element 137 is "));
  }
  const KernelRow hole = row<OneRowLeftOut, float>();
  CHECK(hole.state == State::too_far);
  CHECK(hole.words.starts_with("element 160 is nan but "));
}

TEST_CASE("kernel_rows: bits that differ from run to run are seen") {
  bool repeats = true;
  (void)rows<NeverTheSame, bf16>(repeats);
  CHECK_FALSE(repeats);
}

TEST_CASE("kernel_rows: operands are the same numbers on every device, rounded to the type that is checked") {
  D dev(1);
  const Sizes sizes;
  Trial<D, bf16> narrow(dev, Precision::bfloat16, sizes);
  Trial<D, double> wide(dev, Precision::bfloat16, sizes);
  const auto a = to_host(dev, narrow.values(3, 50)), b = to_host(dev, narrow.apart(3, 50));
  const auto same_a = to_host(dev, wide.values(3, 50)), same_b = to_host(dev, wide.apart(3, 50));
  for (std::size_t i = 0; i < a.size(); ++i) {
    CHECK(static_cast<double>(static_cast<float>(a[i])) == same_a[i]);
    CHECK(static_cast<double>(static_cast<float>(b[i])) == same_b[i]);
  }
  CHECK(same_a != same_b);
  CHECK(to_host(dev, wide.values(3, 50)) != same_a);  // a kernel may take one for another of its shape
}

namespace {

struct Make {
  int& made;
  D operator()() const {
    ++made;
    if (made > 1) fail<DeviceError>("gone");
    return D(1);
  }
};

}  // namespace

TEST_CASE("held_device: one that can't be opened again is not tried for ever") {
  int made = 0;
  const Make make{made};
  HeldDevice<Make> device(make);
  CHECK(&device.get() == &device.get());
  device.look_after();
  CHECK(made == 1);
  (void)device.get();
  CHECK(made == 1);
  device.close();
  for (int i = 0; i < 3; ++i) CHECK(test::message_of<DeviceError>([&] { (void)device.get(); }) == "gone");
  CHECK(test::message_of<DeviceError>([&] { (void)device.get(); }) ==
        "the device could not be opened 3 times in a row");
  CHECK(made == 4);
}

TEST_CASE("kernel_rows: of every family there is a check, and a time") {
  std::vector<std::string> families, timed;
  const auto add = [](std::vector<std::string>& list, std::string_view family) {
    if (list.empty() || list.back() != family) list.emplace_back(family);
  };
  for (const auto& one : cases<D, float>()) {
    add(families, one.family);
    if (one.timed) add(timed, one.family);
  }
  CHECK(families == std::vector<std::string>{"products", "low rank", "norm", "rope", "attention", "activation",
                                             "embedding", "loss", "optimizer", "elementwise", "reduce", "quantize",
                                             "non-finite", "streams"});
  CHECK(timed.size() == 12);
}

}  // namespace kernel_rows_test
