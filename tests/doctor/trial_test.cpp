#include "lora/doctor/trial.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <initializer_list>
#include <string>
#include <vector>

#include "lora/cpu/kernels.hpp"
#include "lora/kernel/complete.hpp"
#include "support/message_of.hpp"

namespace trial_test {

using namespace lora;
using namespace lora::doctor;
using D = cpu::Device;

namespace {

template <class T>
std::vector<double> numbers(D& dev, View<D, T> view) {
  std::vector<double> found;
  for (const auto number : to_host(dev, view)) found.push_back(static_cast<double>(static_cast<float>(number)));
  return found;
}

template <class T>
Output output_of(Precision precision, bool sum) {
  D dev(1);
  const Sizes sizes;
  Trial<D, T> trial(dev, precision, sizes);
  const std::vector<double> two = {0.5, -3};
  if (sum) {
    trial.sum_result("s", trial.template given<Accum<T>>(1, 2, two), 7);
  } else {
    trial.result("y", trial.template given<T>(1, 2, two), Bound{3, 5});
  }
  REQUIRE(trial.outputs().size() == 1);
  return trial.outputs()[0];
}

}  // namespace

TEST_CASE("trial: operands are in their range and of their type, and room is not a number") {
  D dev(1);
  const Sizes sizes;
  Trial<D, float> trial(dev, Precision::bfloat16, sizes);
  const auto check = [](const std::vector<double>& found, std::size_t count, double low, double high,
                        Precision precision) {
    REQUIRE(found.size() == count);
    double least = high, most = low;
    bool exact = true;
    for (const double number : found) {
      least = std::min(least, number);
      most = std::max(most, number);
      exact = exact && number == rounded(number, precision);
    }
    CHECK(exact);
    CHECK(least >= low);
    CHECK(most <= high);
    CHECK(least < low + 0.05 * (high - low));
    CHECK(most > high - 0.05 * (high - low));
  };
  check(numbers(dev, trial.values(20, 30)), 600, -1, 1, Precision::bfloat16);
  check(numbers(dev, trial.values(20, 30, 0.5, 3)), 600, 0.5, 3, Precision::bfloat16);
  check(numbers(dev, trial.apart(20, 30, -8, 8)), 600, -8, 8, Precision::bfloat16);
  check(numbers(dev, trial.sums(20, 30, 2, 4)), 600, 2, 4, Precision::float32);
  bool finer = false;  // than the type that is checked
  for (const double number : numbers(dev, trial.sums(1, 50)))
    finer = finer || number != rounded(number, Precision::bfloat16);
  CHECK(finer);
  for (const double number : numbers(dev, trial.room(2, 3))) CHECK(std::isnan(number));
  for (const double number : numbers(dev, trial.sums_room(2, 3))) CHECK(std::isnan(number));
  const View<D, float> apart = trial.apart(3, 10);
  CHECK(apart.rows() == 3);
  CHECK(apart.cols() == 10);
  CHECK(apart.row(1) - apart.row(0) == 10 + 2 * 32);
  CHECK(trial.given<float>(2, 2, std::vector<double>{1, 2, 3, 4}).row(1)[0] == 3);
  CHECK(to_host(dev, trial.numbers({7, -1, 5})) == std::vector<std::int32_t>{7, -1, 5});
}

TEST_CASE("trial: extents are those at which training's kernels have whole blocks and rests") {
  const Sizes sizes;
  const auto check = [](std::initializer_list<Index> given, const std::vector<Index>& expected) {
    CHECK(std::vector<Index>(given) == expected);
  };
  check({sizes.rows, sizes.width, sizes.out, sizes.rank}, {100, 896, 128, 8});
  check({sizes.heads, sizes.kv_heads, sizes.head_width, sizes.wide_head}, {4, 2, 64, 128});
  check({sizes.ffn, sizes.vocabulary, sizes.parameters, sizes.gap}, {1216, 3000, 5000, 32});
  CHECK(sizes.sequences == std::vector<Index>{1, 37, 128, 134});
}

TEST_CASE("trial: numbers are the same from run to run, and weights as files hold them") {
  D dev(1);
  const Sizes sizes;
  Trial<D, float> trial(dev, Precision::float32, sizes);
  const std::vector<double> first = numbers(dev, trial.values(1, 2)), second = numbers(dev, trial.sums(1, 2, 0, 1));
  CHECK(first[0] == doctest::Approx(0.994627));
  CHECK(first[1] == doctest::Approx(0.956774));
  CHECK(second[0] == doctest::Approx(0.766415));
  CHECK(second[1] == doctest::Approx(0.405632));
  const StoredView<D> single = trial.stored(2, 3);
  CHECK(single.dtype() == DType::f32);
  CHECK(single.rows() == 2);
  CHECK(single.cols() == 3);
  Trial<D, bf16> narrow(dev, Precision::bfloat16, sizes);
  CHECK(narrow.stored(2, 3).dtype() == DType::bf16);
  Trial<D, double> wide(dev, Precision::bfloat16, sizes);
  CHECK(wide.stored(2, 3).dtype() == DType::f32);
}

TEST_CASE(
    "trial: an error of a launch is told, whether it was queued or not, and the device's own only where it is alone") {
  D dev(1);
  const Sizes sizes;
  Trial<D, float> trial(dev, Precision::float32, sizes);
  CHECK(test::message_of<Error>([&] { trial.launch([] { fail<Error>("refused"); }); }) == "refused");
  trial.result("y", trial.given<float>(1, 2, std::vector<double>{1, 2}), Bound{1, 1});
  CHECK(trial.outputs().size() == 1);
}

TEST_CASE("trial: what is larger than two million numbers repeats its beginning") {
  D dev(1);
  const Sizes sizes;
  Trial<D, float> trial(dev, Precision::float32, sizes);
  constexpr Index own = Index{1} << 21;
  const View<D, float> large = trial.values(1, own + 3);
  for (Index i = 0; i < 3; ++i) CHECK(large.row(0)[own + i] == large.row(0)[i]);
  CHECK(large.row(0)[own - 1] != large.row(0)[own - 2]);
  CHECK(large.row(0)[0] != large.row(0)[own / 2]);
}

TEST_CASE("trial: blocks of Q8_0 are whole numbers and their scales, the same on every device") {
  const Sizes sizes;
  const auto decoded = [&]<class T>(T) {
    D dev(1);
    Trial<D, T> trial(dev, Precision::float32, sizes);
    const StoredView<D> w = trial.stored_blocks(3, 64);
    const View<D, T> y = trial.room(3, 64);
    kernel::decode<D, T>(dev, w, y);
    std::vector<double> found;
    for (const T number : to_host(dev, y)) found.push_back(static_cast<double>(number));
    return found;
  };
  const std::vector<double> single = decoded(0.0f), wide = decoded(0.0);
  REQUIRE(single.size() == 192);
  double largest = 0, smallest = 1;
  for (std::size_t block = 0; block < 6; ++block) {
    double most = 0;
    for (std::size_t i = 0; i < 32; ++i) {
      CHECK(single[block * 32 + i] == static_cast<double>(static_cast<float>(wide[block * 32 + i])));
      most = std::max(most, std::fabs(wide[block * 32 + i]));
    }
    // 32 numbers of [-127, 127) have one near an end, and scales are from 0.001 to 0.01.
    CHECK(most > 100 * 1e-3);
    CHECK(most < 127.5 * 1e-2);
    largest = std::max(largest, most);
    smallest = std::min(smallest, most);
  }
  CHECK(largest > 1.2 * smallest);
}

TEST_CASE("trial: results are told in roundings of their own type, and by the bound that is for it") {
  for (const bool sum : {false, true}) {
    CAPTURE(sum);
    const Output single = output_of<float>(Precision::float32, sum), half = output_of<f16>(Precision::float16, sum),
                 brain = output_of<bf16>(Precision::bfloat16, sum), wide = output_of<double>(Precision::float16, sum);
    for (const Output& one : {single, half, brain, wide}) {
      CHECK(one.name == (sum ? "s" : "y"));
      CHECK(one.values == std::vector<double>{0.5, -3});
    }
    CHECK(single.roundoff == 0x1p-24);
    CHECK(brain.roundoff == (sum ? 0x1p-24 : 0x1p-8));
    CHECK(half.roundoff == (sum ? 0x1p-24 : 0x1p-11));
    CHECK(wide.roundoff == half.roundoff);
    CHECK(single.bound == (sum ? 7 : 5));
    CHECK(brain.bound == (sum ? 7 : 3));
    CHECK(half.bound == brain.bound);
    CHECK(single.overflow == overflow(Precision::float32));
    CHECK(brain.overflow == overflow(sum ? Precision::float32 : Precision::bfloat16));
    CHECK(half.overflow == overflow(sum ? Precision::float32 : Precision::float16));
  }
}

TEST_CASE("trial: a mean is of what is not 0, and its bound is a part of itself") {
  D dev(1);
  const Sizes sizes;
  Trial<D, bf16> trial(dev, Precision::bfloat16, sizes);
  trial.mean_result("mean", trial.given<bf16>(1, 5, std::vector<double>{0, 3, 0, 1, 5}), 0x1p-10);
  REQUIRE(trial.outputs().size() == 1);
  CHECK(trial.outputs()[0].values == std::vector<double>{3});
  CHECK(trial.outputs()[0].roundoff == 0x1p-24);
  CHECK(trial.outputs()[0].bound == 0x1p14);
}

TEST_CASE("trial: what is timed has its launches run as is asked, and tells no numbers") {
  D dev(1);
  const Sizes sizes;
  int asked = 0, done = 0;
  Trial<D, float> trial(dev, Precision::float32, sizes, [&](const Launch& launch) {
    ++asked;
    launch();
    launch();
  });
  trial.launch([&] { ++done; });
  CHECK(asked == 1);
  CHECK(done == 2);
  trial.result("y", trial.room(1, 2), Bound{1, 1});
  trial.mean_result("mean", trial.room(1, 2), 1);
  CHECK(trial.outputs().empty());
}

}  // namespace trial_test
