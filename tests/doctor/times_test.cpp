#include "lora/doctor/times.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <regex>
#include <string>
#include <utility>
#include <vector>

namespace times_test {

using namespace lora;
using namespace lora::doctor;
using D = cpu::Device;

TEST_CASE("times: shapes have as many rows as columns, heads of 128 and half as many for keys and values") {
  for (const Index width : {64, 128, 256, 384, 4096}) {
    CAPTURE(width);
    const Sizes sizes = sizes_to_time(width);
    for (const Index extent : {sizes.rows, sizes.width, sizes.out}) CHECK(extent == width);
    CHECK(sizes.rank == 16);
    CHECK(sizes.head_width == 128);
    CHECK(sizes.wide_head == 128);
    CHECK(sizes.ffn == 3 * width);
    CHECK(sizes.vocabulary == 8 * width);
    CHECK(sizes.parameters == width * width);
    CHECK(sizes.sequences == std::vector<Index>{width});
    CHECK(sizes.gap == 0);
  }
  const auto heads = [](Index width, Index all, Index of_keys) {
    const Sizes sizes = sizes_to_time(width);
    CHECK(sizes.heads == all);
    CHECK(sizes.kv_heads == of_keys);
  };
  heads(64, 1, 1);
  heads(128, 1, 1);
  heads(256, 2, 1);
  heads(384, 3, 3);
  heads(512, 4, 2);
  heads(4096, 32, 16);
}

TEST_CASE("times: the median is in the middle, and of two the larger") {
  CHECK(doctor::detail::median({3, 1, 2}) == 2);
  CHECK(doctor::detail::median({4}) == 4);
  CHECK(doctor::detail::median({4, 1, 3, 2}) == 3);
  CHECK(doctor::detail::median({9, 1, 1, 1, 8}) == 1);
}

TEST_CASE("times: a row has the work of one launch, whatever its kernel needs beside it") {
  D dev(1);
  Sizes sizes;
  sizes.rows = 8;
  sizes.out = 4;
  sizes.width = 16;
  const auto row = [&](std::string_view family, std::string_view kernel) {
    for (const Case<D, float>& one : cases<D, float>())
      if (one.family == family && one.kernel == kernel) return time_of(one, dev, sizes, 3);
    return TimeRow{};
  };
  const TimeRow product = row("products", "c = a bᵀ");
  CHECK(product.family == "products");
  CHECK(product.kernel == "c = a bᵀ");
  CHECK(product.type == "float32");
  CHECK(product.words.empty());
  CHECK(product.seconds > 0);
  CHECK(product.seconds < 1);
  CHECK(product.flops == 2 * 8 * 4 * 16);
  CHECK(product.bytes == 4 * (8 * 16 + 4 * 16 + 8 * 4));
  // Its forward is made ready before, and is not counted.
  const TimeRow backward = row("norm", "backward");
  CHECK(backward.flops == 0);
  CHECK(backward.bytes == 4 * 5 * 8 * 16);  // x, dy and y once, dx twice
}

TEST_CASE("times: a type's rows are those whose time tells most, and one that fails has its words") {
  Report report;
  std::vector<std::string> begun;
  const auto refuse = []() -> D { fail<DeviceError>("gone"); };
  HeldDevice<decltype(refuse)> nothing(refuse);
  time_kernels<float>(nothing, 64, report, [&](const std::string& what) { begun.push_back(what); });
  CHECK(begun == std::vector<std::string>{"times in float32"});
  std::size_t i = 0;
  for (const Case<D, float>& one : cases<D, float>()) {
    if (!one.timed) continue;
    REQUIRE(i < report.times.size());
    const TimeRow& row = report.times[i++];
    CHECK(row.family == one.family);
    CHECK(row.kernel == one.kernel);
    CHECK(row.type == "float32");
    CHECK(row.words == (i <= 3 ? "gone" : "the device could not be opened 3 times in a row"));
    CHECK(row.seconds == 0);
  }
  CHECK(i == report.times.size());
  CHECK(i == 26);
}

namespace {

/// A device on which events are counted: the time from one to another is the difference of the squares of their
/// numbers, in microseconds.
class Counting : public D {
 public:
  Counting() : D(1) {}
  Event record(Stream stream) {
    streams.push_back(stream);
    return {++events};
  }
  std::int64_t nanoseconds(Event from, Event to) const {
    return 1000 * (to.number * to.number - from.number * from.number);
  }
  void release(Event event) noexcept { released.push_back(event.number); }
  void synchronize() { ++waits; }

  std::int64_t events = 0;
  int waits = 0;
  std::vector<Stream> streams;
  std::vector<std::int64_t> released;
};

int launched = 0;
constexpr auto counted = []<class E, class T>(Trial<E, T>& t) { t.launch([] { ++launched; }); };

}  // namespace

TEST_CASE("times: each launch is measured by the events on both sides of it, after two that are not") {
  Counting dev;
  int launches = 0;
  std::int64_t before = 0;
  doctor::detail::Stopwatch<Counting> watch(dev, 3);
  watch.run([&] {
    if (++launches != 2) return;
    before = dev.events;  // of the profile
    dev.waits = 0;
    dev.streams.clear();
    dev.released.clear();
  });
  CHECK(launches == 5);
  CHECK(watch.seconds * 1e6 == doctest::Approx(static_cast<double>(2 * before + 5)));  // of 3, 5 and 7 where it is 0
  CHECK(watch.flops == 0);
  CHECK(watch.bytes == 0);
  CHECK(dev.waits == 1);
  CHECK(dev.streams == std::vector<Stream>(4, Stream::compute));
  CHECK(dev.released == std::vector<std::int64_t>{before + 1, before + 2, before + 3, before + 4});
  CHECK(dev.profile() == nullptr);
}

TEST_CASE("times: a launch that fails leaves no profile behind, nor counts of the launch before") {
  D dev(1);
  Profile profile;
  doctor::detail::Stopwatch<D> watch(dev, 1);
  CHECK_THROWS_WITH_AS(watch.run([] { fail<Error>("refused"); }), "refused", Error);
  CHECK(dev.profile() == nullptr);
  CHECK(watch.seconds == 0);
}

TEST_CASE("times: of a kernel five launches are measured unless fewer are asked for") {
  D dev(1);
  const Case<D, float> one{"family", "kernel", counted, counted, true};
  for (const auto& [rounds, launches] : {std::pair<int, int>{5, 7}, {1, 3}}) {
    launched = 0;
    const TimeRow row = rounds == 5 ? time_of(one, dev, Sizes()) : time_of(one, dev, Sizes(), rounds);
    CHECK(launched == launches);
    CHECK(row.family == "family");
    CHECK(row.kernel == "kernel");
    CHECK(row.words.empty());
  }
}

TEST_CASE("times: where nothing tells how long it takes, shapes are the widest") {
  int made = 0;
  const auto refuse = [&]() -> D {
    ++made;
    fail<DeviceError>("gone");
  };
  HeldDevice<decltype(refuse)> nothing(refuse);
  CHECK(width_to_time(nothing) == 4096);
  CHECK(made == 3);
}

TEST_CASE("times: copies, launches and waits are told with their units") {
  D dev(1);
  const std::vector<Fact> facts = speeds_of(dev);
  const std::string names[] = {"32 MiB to the device, page-locked", "32 MiB to the device, other memory",
                               "32 MiB to the host, page-locked",   "32 MiB to the host, other memory",
                               "a launch of next to nothing",       "a wait for nothing"};
  REQUIRE(facts.size() == 6);
  const std::regex rate(R"([0-9.e+]+ GB/s)"), launch(R"([0-9.e+-]+ µs, of which the host's [0-9.e+-]+ µs)"),
      wait(R"([0-9.e+-]+ µs)");
  for (std::size_t i = 0; i < 6; ++i) {
    CAPTURE(facts[i].found);
    CHECK(facts[i].what == names[i]);
    CHECK(std::regex_match(facts[i].found, i < 4 ? rate : i == 4 ? launch : wait));
  }
  // A machine copies between a hundredth and a thousand gigabytes a second.
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(std::stod(facts[i].found) > 0.01);
    CHECK(std::stod(facts[i].found) < 1000);
  }
}

}  // namespace times_test
