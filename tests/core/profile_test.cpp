#include "lora/core/profile.hpp"

#include <doctest/doctest.h>

#include <string_view>

#include "lora/tensor/span.hpp"

namespace profile_test {

using namespace lora;

namespace {

using Kind = Profile::Kind;

/// What a span asks of a device. Its clock goes on by one at each event, and is not to be read before a wait.
struct Clockwork {
  Profile* wanted = nullptr;
  std::int64_t time = 0, waited_for = 0;
  Index held = 0, waits = 0;
  bool fails = false;

  Profile* profile() const { return wanted; }
  Event record(Stream) {
    ++held;
    return {++time};
  }
  void release(Event) { --held; }
  void synchronize() {
    ++waits;
    if (fails) fail<DeviceError>("[clockwork] stopped");
    waited_for = time;
  }
  std::int64_t nanoseconds(Event from, Event to) const {
    REQUIRE(to.number <= waited_for);
    return to.number - from.number;
  }
};

void one_step(Profile& profile, int kernels) {
  Clockwork dev{&profile};
  {
    const Span step(dev, Kind::step, "step");
    const Span phase(dev, Kind::phase, "forward");
    for (Index layer = 0; layer < 2; ++layer) {
      const Span span(dev, Kind::layer, "layer", layer);
      for (int i = 0; i < kernels; ++i) const Span kernel(dev, "gemm", "gemm", 10, 4);
      const Span kernel(dev, "norm", "rms_norm", 0, 2);
    }
  }
  CHECK(dev.waits == 1);
  CHECK(dev.held == 0);
}

const Profile::Node& node_of(const Profile& profile, std::string_view name) {
  for (const auto& node : profile.nodes())
    if (node.name == name) return node;
  FAIL("no node " << name);
  return profile.nodes().front();
}

}  // namespace

TEST_CASE("profile: calls of one name in one place share a node") {
  Profile profile;
  for (int step = 0; step < 5; ++step) one_step(profile, 3);
  CHECK(profile.steps() == 5);
  CHECK(profile.nodes().size() == 1 + 1 + 1 + 2 * (1 + 2));
  for (std::size_t i = 1; i < profile.nodes().size(); ++i) {
    const auto& node = profile.nodes()[i];
    CAPTURE(node.name);
    const Index calls = node.name == "gemm" ? 15 : 5;
    CHECK(node.calls == calls);
    CHECK(node.flops == (node.name == "gemm" ? 150 : 0));
    CHECK(node.bytes == (node.name == "gemm" ? 60 : node.name == "rms_norm" ? 10 : 0));
    std::int64_t inside = 0;
    for (const std::size_t child : node.children) {
      CHECK(profile.nodes()[child].parent == i);
      inside += profile.nodes()[child].nanoseconds;
    }
    CHECK(inside <= node.nanoseconds);
    if (node.kind != Kind::kernel) continue;
    CHECK(profile.nodes()[profile.around(i, Kind::phase)].name == "forward");
    CHECK(profile.nodes()[profile.around(i, Kind::layer)].number >= 0);
    CHECK(profile.around(i, Kind::part) == 0);
  }
}

TEST_CASE("profile: times are those of the device's events") {
  Profile profile;
  for (int step = 0; step < 2; ++step) one_step(profile, 3);
  CHECK(node_of(profile, "gemm").nanoseconds == 2 * 3);
  CHECK(node_of(profile, "rms_norm").nanoseconds == 2);
  CHECK(node_of(profile, "layer").nanoseconds == 2 * (2 * 4 + 1));  // of the first layer
  CHECK(node_of(profile, "forward").nanoseconds == 2 * (2 * 10 + 1));
  CHECK(node_of(profile, "step").nanoseconds == 2 * (2 * 10 + 3));
}

TEST_CASE("profile: a step whose work failed has no times, and leaves no event behind") {
  Profile profile;
  Clockwork dev{&profile};
  dev.fails = true;
  {
    const Span step(dev, Kind::step, "step");
    const Span kernel(dev, "gemm", "gemm", 1, 1);
  }
  CHECK(dev.held == 0);
  CHECK(node_of(profile, "gemm").calls == 1);
  CHECK(node_of(profile, "gemm").nanoseconds == 0);
}

TEST_CASE("profile: work outside of a step is not recorded") {
  Profile profile;
  Clockwork dev{&profile};
  {
    const Span phase(dev, Kind::phase, "forward");
    const Span kernel(dev, "gemm", "gemm", 1, 1);
  }
  CHECK(profile.nodes().size() == 1);
  CHECK(dev.time == 0);
  one_step(profile, 1);
  CHECK(profile.steps() == 1);
  dev.wanted = nullptr;
  { const Span nothing(dev, Kind::step, "step"); }
  CHECK(profile.steps() == 1);
  CHECK(dev.time == 0);
}

TEST_CASE("profile: unless told otherwise the third to fifth step are kept, up to 100,000 spans") {
  Profile profile;
  for (int step = 0; step < 7; ++step) one_step(profile, 3);
  const std::size_t spans = 2 + 2 * 5;
  CHECK(profile.traces().size() == 3 * spans);
  Profile large;
  for (int step = 0; step < 2; ++step) one_step(large, 1);
  for (int step = 0; step < 3; ++step) one_step(large, 20'000);
  CHECK(large.traces().size() == 100'000);
}

TEST_CASE("profile: single spans are kept of the chosen steps, up to the limit") {
  Profile::Limits limits;
  limits.skipped_steps = 1;
  limits.traced_steps = 2;
  SUBCASE("steps") {
    Profile profile(limits);
    for (int step = 0; step < 5; ++step) one_step(profile, 3);
    CHECK(profile.traces().size() == 2 * (2 + 2 * 5));
  }
  SUBCASE("what is kept has all that lies around it") {
    limits.traces = 9;
    Profile profile(limits);
    for (int step = 0; step < 5; ++step) one_step(profile, 3);
    REQUIRE(profile.traces().size() == 9);
    const auto& events = profile.traces();
    for (std::size_t i = 1; i < events.size(); ++i) {
      bool found = false;
      for (std::size_t j = 0; j < i; ++j) {
        found =
            found || (events[j].node == profile.nodes()[events[i].node].parent && events[j].begin <= events[i].begin &&
                      events[j].begin + events[j].nanoseconds >= events[i].begin + events[i].nanoseconds);
      }
      CHECK(found);
    }
    CHECK(events[0].nanoseconds > 0);
  }
}

}  // namespace profile_test
