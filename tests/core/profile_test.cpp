#include "lora/core/profile.hpp"

#include <doctest/doctest.h>

namespace profile_test {

using namespace lora;

namespace {

using Kind = Profile::Kind;

void one_step(Profile& profile, int kernels) {
  const Span step(&profile, Kind::step, "step");
  const Span phase(&profile, Kind::phase, "forward");
  for (Index layer = 0; layer < 2; ++layer) {
    const Span span(&profile, Kind::layer, "layer", layer);
    for (int i = 0; i < kernels; ++i) const Span kernel(&profile, "gemm", "gemm", 10, 4);
    const Span kernel(&profile, "norm", "rms_norm", 0, 2);
  }
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

TEST_CASE("profile: work outside of a step is not recorded") {
  Profile profile;
  {
    const Span phase(&profile, Kind::phase, "forward");
    const Span kernel(&profile, "gemm", "gemm", 1, 1);
    const Span step(&profile, Kind::step, "step");  // not the outermost: no step of a run
  }
  CHECK(profile.nodes().size() == 1);
  CHECK(profile.steps() == 0);
  one_step(profile, 1);
  CHECK(profile.steps() == 1);
  const Span nothing(nullptr, Kind::step, "step");
  CHECK(profile.steps() == 1);
}

TEST_CASE("profile: unless told otherwise the third to fifth step are kept, up to 100,000 spans") {
  Profile profile;
  for (int step = 0; step < 7; ++step) one_step(profile, 3);
  const std::size_t spans = 2 + 2 * 5;
  CHECK(profile.events().size() == 3 * spans);
  Profile large;
  for (int step = 0; step < 2; ++step) one_step(large, 1);
  for (int step = 0; step < 3; ++step) one_step(large, 20'000);
  CHECK(large.events().size() == 100'000);
}

TEST_CASE("profile: single spans are kept of the chosen steps, up to the limit") {
  Profile::Limits limits;
  limits.skipped_steps = 1;
  limits.traced_steps = 2;
  SUBCASE("steps") {
    Profile profile(limits);
    for (int step = 0; step < 5; ++step) one_step(profile, 3);
    CHECK(profile.events().size() == 2 * (2 + 2 * 5));
  }
  SUBCASE("what is kept has all that lies around it") {
    limits.events = 9;
    Profile profile(limits);
    for (int step = 0; step < 5; ++step) one_step(profile, 3);
    REQUIRE(profile.events().size() == 9);
    const auto& events = profile.events();
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
