#include "lora/doctor/kernel_rows.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "support/message_of.hpp"
#include "support/small_sizes.hpp"

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

namespace {

/// A device whose work may have failed, after which it is of no use.
struct Fragile {
  bool* fails;
  int number;
  void synchronize() const {
    if (*fails) fail<DeviceError>("lost");
  }
};
struct MakeFragile {
  bool& fails;
  int& made;
  Fragile operator()() const {
    if (++made == 3 || made == 4) fail<DeviceError>("not yet");
    return {&fails, made};
  }
};

}  // namespace

TEST_CASE("held_device: one that an error has left unusable is opened again, and one that works is kept") {
  bool fails = false;
  int made = 0;
  const MakeFragile make{fails, made};
  HeldDevice<MakeFragile> device(make);
  device.look_after();  // there is none yet
  CHECK(made == 0);
  CHECK(device.get().number == 1);
  device.look_after();
  CHECK(device.get().number == 1);
  fails = true;
  device.look_after();
  CHECK(device.get().number == 2);
  device.look_after();
  // Two failures, and a success after which it may fail as often again.
  for (int i = 0; i < 2; ++i) CHECK(test::message_of<DeviceError>([&] { (void)device.get(); }) == "not yet");
  CHECK(device.get().number == 5);
  device.look_after();
  made = 2;
  for (int i = 0; i < 2; ++i) CHECK(test::message_of<DeviceError>([&] { (void)device.get(); }) == "not yet");
  CHECK(device.get().number == 5);
}

TEST_CASE("kernel_rows: a row has its own output's numbers, and what is about the kernel") {
  const KernelRow about{"family", "kernel", "bfloat16", ""};
  const std::vector<Output> given = {
      {.name = "first", .values = {1, 2}, .roundoff = 0x1p-8, .bound = 4},
      {.name = "second", .values = {4, 3.5, -INFINITY}, .roundoff = 0x1p-24, .bound = 64, .overflow = 100}};
  const std::vector<Output> expected = {{.name = "", .values = {1, 2.015625}, .roundoff = 1, .bound = 0},
                                        {.name = "", .values = {4, 3.123456789, -1e3}, .roundoff = 1, .bound = 0}};
  const std::vector<KernelRow> all = rows_of(about, given, expected);
  REQUIRE(all.size() == 2);
  for (const KernelRow& one : all) {
    CHECK(one.family == "family");
    CHECK(one.kernel == "kernel");
    CHECK(one.type == "bfloat16");
  }
  CHECK(all[0].output == "first");
  CHECK(all[0].state == State::ok);
  CHECK(all[0].error == 0.015625 / 2.015625);
  CHECK(all[0].units == 256 * all[0].error);
  CHECK(all[0].bound == 4);
  CHECK(all[0].words.empty());
  CHECK(all[1].output == "second");
  CHECK(all[1].state == State::too_far);
  CHECK(all[1].error == (3.5 - 3.123456789) / 4);
  CHECK(all[1].units == all[1].error * 0x1p24);
  CHECK(all[1].bound == 64);
  CHECK(all[1].words == "element 1 is 3.5 but 3.123457 was expected");
}

TEST_CASE("kernel_rows: every kernel has a row for each of its results, which on the processors are right") {
  constexpr const char* expected = R"(products: c = a bᵀ: c
products: c = a b: c
products: c = aᵀ b: c
products: c += a bᵀ / 2: c
products: c += a b / 2: c
products: c += aᵀ b / 2: c
products: c = a bᵀ in float32: c
products: c = a b in float32: c
products: c = aᵀ b in float32: c
products: c += a bᵀ / 2 in float32: c
products: c += a b / 2 in float32: c
products: c += aᵀ b / 2 in float32: c
products: y = x Wᵀ + h B + bias: y
products: y += x Wᵀ + h B + bias: y
low rank: backward: dh, db, db 2
low rank: gradients: da, db
norm: rms_norm: y, rstd, copy
norm: rms_norm of heads: y, rstd
norm: backward: dx, y
norm: backward of heads: dx, y
norm: weight gradient: dw
rope: forward: y
rope: inverse: y
attention: heads of 64: out
attention: heads of 64, backward: dq, dk, dv
attention: heads of 64, a tree: out
attention: heads of 64, a tree, backward: dq, dk, dv
attention: heads of 128: out
attention: heads of 128, backward: dq, dk, dv
attention: decoding: out
activation: swiglu: y
activation: swiglu, backward: d_gate_up, y
activation: geglu: y
activation: geglu, backward: d_gate_up, y
embedding: embedding: y
embedding: backward: dtable
embedding: noise: y
loss: cross entropy: loss, target, top, gradient
optimizer: AdamW, three steps: value, m, v
elementwise: fill: y, zeros
elementwise: to float32: y, sum
elementwise: from float32: y, sum
elementwise: scale: y
elementwise: halves to even: y
elementwise: add_bias: y
elementwise: gather_rows: y
elementwise: scatter_rows: y
elementwise: dropout: y, mean of what is kept
elementwise: dropout, added: y
reduce: column_sums: out
reduce: sums of squares: blocks, total
quantize: decode: y
quantize: decode Q8_0: y
quantize: decode with update: y
non-finite: products: c
non-finite: numbers: y, squares
streams: copies and kernels that wait for each other: numbers of each round
)";
  const auto make = [] { return D(1); };
  HeldDevice<decltype(make)> device(make);
  D reference(1);
  const Sizes sizes = test::small_sizes(8);
  Report report;
  std::string unrepeated;
  std::vector<std::string> begun, families;
  check_kernels<float>(device, reference, sizes, report, unrepeated,
                       [&](const std::string& what) { begun.push_back(what); });
  CHECK(unrepeated.empty());
  std::string found;
  const KernelRow* before = nullptr;
  for (const KernelRow& row : report.kernels) {
    CAPTURE(row.family);
    CAPTURE(row.kernel);
    CAPTURE(row.words);
    CHECK(row.state == State::ok);
    CHECK(row.type == "float32");
    const bool same = before != nullptr && before->family == row.family && before->kernel == row.kernel;
    if (families.empty() || families.back() != row.family + " in float32")
      families.push_back(row.family + " in float32");
    found +=
        same ? ", " + row.output : concat(found.empty() ? "" : "\n", row.family, ": ", row.kernel, ": ", row.output);
    before = &row;
  }
  CHECK(found + "\n" == expected);
  CHECK(begun == families);
}

TEST_CASE("kernel_rows: a device that can't be opened is a failed row for each kernel") {
  const auto make = []() -> D { fail<DeviceError>("gone"); };
  HeldDevice<decltype(make)> device(make);
  D reference(1);
  Report report;
  std::string unrepeated;
  check_kernels<float>(device, reference, Sizes(), report, unrepeated, [](const std::string&) {});
  CHECK(report.kernels.size() == cases<D, float>().size());
  for (std::size_t i = 0; i < report.kernels.size(); ++i) {
    const KernelRow& row = report.kernels[i];
    CHECK(row.family == cases<D, float>()[i].family);
    CHECK(row.kernel == cases<D, float>()[i].kernel);
    CHECK(row.type == "float32");
    CHECK(row.output.empty());
    CHECK(row.state == State::failed);
    CHECK(row.words == (i < 3 ? "gone" : "the device could not be opened 3 times in a row"));
  }
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
