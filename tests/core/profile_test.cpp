#include "lora/core/profile.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <vector>

#include "lora/tensor/profile_scope.hpp"

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
  std::int64_t tick = 1;              ///< nanoseconds from one event to the next
  std::int64_t last = 1'000'000'000;  ///< the event after which none is recorded
  Arena none{nullptr, 0, false};

  Profile* profile() const { return wanted; }
  Arena& arena() { return none; }
  Event record(Stream) {
    if (time == last) fail<DeviceError>("[clockwork] ran down");
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
    return tick * (to.number - from.number);
  }
};

void one_step(Profile& profile, int kernels) {
  Clockwork dev{&profile};
  {
    const ProfileScope step(dev, Kind::step, "step");
    const ProfileScope phase(dev, Kind::phase, "forward");
    for (Index layer = 0; layer < 2; ++layer) {
      const ProfileScope span(dev, Kind::layer, "layer", layer);
      for (int i = 0; i < kernels; ++i) const ProfileScope kernel(dev, "gemm", "gemm", 10, 4);
      const ProfileScope kernel(dev, "norm", "rms_norm", 0, 2);
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
    const ProfileScope step(dev, Kind::step, "step");
    const ProfileScope kernel(dev, "gemm", "gemm", 1, 1);
  }
  CHECK(dev.held == 0);
  CHECK(node_of(profile, "gemm").calls == 1);
  CHECK(node_of(profile, "gemm").nanoseconds == 0);
}

TEST_CASE("profile: work outside of a step is not recorded") {
  Profile profile;
  Clockwork dev{&profile};
  {
    const ProfileScope phase(dev, Kind::phase, "forward");
    const ProfileScope kernel(dev, "gemm", "gemm", 1, 1);
  }
  CHECK(profile.nodes().size() == 1);
  CHECK(dev.time == 0);
  one_step(profile, 1);
  CHECK(profile.steps() == 1);
  dev.wanted = nullptr;
  { const ProfileScope nothing(dev, Kind::step, "step"); }
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

TEST_CASE("profile: a span that is kept has its own time, FLOPs and bytes, from the first step's begin") {
  Profile::Limits limits;
  limits.skipped_steps = 1;
  limits.traced_steps = 1;
  Profile profile(limits);
  CHECK(profile.limits().skipped_steps == 1);
  for (int step = 0; step < 3; ++step) one_step(profile, 2);
  const auto& traces = profile.traces();
  REQUIRE(traces.size() == 2 + 2 * 4);
  const auto named = [&](std::size_t i) { return profile.nodes()[traces[i].node].name; };
  const std::int64_t start = traces[0].begin;
  CHECK(start > 0);
  CHECK(start < 60'000'000'000);
  limits.skipped_steps = 0;
  Profile first(limits);
  one_step(first, 2);
  CHECK(first.traces()[0].begin == 0);
  CHECK(first.traces()[1].begin == 1);
  struct Row {
    const char* name;
    std::int64_t begin, nanoseconds;
    double flops, bytes;
  };
  const Row rows[] = {{"step", 0, 19, 0, 0}, {"forward", 1, 17, 0, 0}, {"layer", 2, 7, 0, 0}, {"gemm", 3, 1, 10, 4},
                      {"gemm", 5, 1, 10, 4}, {"rms_norm", 7, 1, 0, 2}, {"layer", 10, 7, 0, 0}};
  for (std::size_t i = 0; i < std::size(rows); ++i) {
    CAPTURE(i);
    CHECK(named(i) == rows[i].name);
    CHECK(traces[i].begin == start + rows[i].begin);
    CHECK(traces[i].flops == rows[i].flops);
    CHECK(traces[i].bytes == rows[i].bytes);
    CHECK(traces[i].nanoseconds == rows[i].nanoseconds);
  }
  CHECK(profile.nodes()[traces[2].node].number == 0);
  CHECK(profile.nodes()[traces[6].node].number == 1);
}

TEST_CASE("profile: a step that is kept begins no earlier than the one before it ended, whatever clocks say") {
  Profile profile({0, 2, 100});
  Clockwork dev{&profile};
  dev.tick = 1'000'000'000'000;  // so that the second begins earlier by the host's clock
  for (int i = 0; i < 2; ++i) const ProfileScope step(dev, Kind::step, "step");
  const auto& traces = profile.traces();
  REQUIRE(traces.size() == 2);
  CHECK(traces[0].nanoseconds == dev.tick);
  CHECK(traces[1].begin == dev.tick);
}

TEST_CASE("profile: names, families, kinds and numbers each make a node of their own") {
  Profile profile;
  Clockwork dev{&profile};
  for (int repeat = 0; repeat < 2; ++repeat) {
    const ProfileScope step(dev, Kind::step, "step");
    { const ProfileScope one(dev, Kind::part, "a"); }
    { const ProfileScope two(dev, Kind::phase, "a"); }
    { const ProfileScope three(dev, Kind::layer, "a", 0); }
    { const ProfileScope four(dev, Kind::layer, "a", 1); }
    { const ProfileScope five(dev, "gemm", "a", 1, 2); }
    { const ProfileScope six(dev, "norm", "a", 1, 2); }
  }
  CHECK(profile.nodes().size() == 2 + 6);
  const auto& step = profile.nodes()[1];
  CHECK(step.kind == Kind::step);
  CHECK(step.parent == 0);
  CHECK(profile.nodes()[0].children == std::vector<std::size_t>{1});
  REQUIRE(step.children.size() == 6);
  const Kind kinds[] = {Kind::part, Kind::phase, Kind::layer, Kind::layer, Kind::kernel, Kind::kernel};
  const Index numbers[] = {-1, -1, 0, 1, -1, -1};
  const char* const families[] = {"", "", "", "", "gemm", "norm"};
  for (std::size_t i = 0; i < 6; ++i) {
    const auto& node = profile.nodes()[step.children[i]];
    CHECK(node.kind == kinds[i]);
    CHECK(node.number == numbers[i]);
    CHECK(node.family == families[i]);
    CHECK(node.calls == 2);
  }
  CHECK(profile.around(1, Kind::step) == 1);
  CHECK(profile.around(step.children[0], Kind::step) == 1);
  CHECK(profile.around(step.children[4], Kind::phase) == 0);
  CHECK(profile.around(0, Kind::root) == 0);
}

TEST_CASE("profile: a device that records no end gets all its events back, and the next step begins anew") {
  Profile profile;
  for (const std::int64_t last : {3, 4, 5}) {  // three begins, and as many ends as are left
    Clockwork dev{&profile};
    dev.last = last;
    {
      const ProfileScope step(dev, Kind::step, "step");
      const ProfileScope phase(dev, Kind::phase, "forward");
      const ProfileScope kernel(dev, "gemm", "gemm", 1, 1);
    }
    CAPTURE(last);
    CHECK(dev.held == 0);
    CHECK(dev.waits == 0);
    CHECK_FALSE(profile.wants(Kind::kernel));
    CHECK(profile.wants(Kind::step));
  }
  CHECK(profile.steps() == 0);
  CHECK(node_of(profile, "gemm").nanoseconds == 0);
  one_step(profile, 1);
  CHECK(profile.steps() == 1);
  CHECK(node_of(profile, "forward").nanoseconds == 2 * (2 * 3) + 1);
}

}  // namespace profile_test
