#include <doctest/doctest.h>

#include <cstdint>
#include <string>

#include "lora/run/profile.hpp"
#include "lora/tensor/span.hpp"

namespace profile_tables_test {

namespace {

using namespace lora;

/// What a span asks of a device, whose clock goes on by a millisecond at each event.
struct Clockwork {
  Profile* wanted = nullptr;
  std::int64_t time = 0;

  Profile* profile() const { return wanted; }
  Event record(Stream) { return {time += 1'000'000}; }
  void release(Event) {}
  void synchronize() {}
  std::int64_t nanoseconds(Event from, Event to) const { return to.number - from.number; }
};

}  // namespace

TEST_CASE("profile: the tables tell what each kind of work, kernel and phase took") {
  Profile profile(Profile::Limits{});
  Clockwork dev{&profile};
  const auto layer_of = [&](const char* phase_name) {
    const Span phase(dev, Profile::Kind::phase, phase_name);
    const Span layer(dev, Profile::Kind::layer, "layer", 0);
    for (int i = 0; i < 2; ++i) const Span kernel(dev, "gemm", "gemm", 3e6, 5e6);
  };
  for (int step = 0; step < 2; ++step) {
    const Span span(dev, Profile::Kind::step, "step");
    layer_of("forward");
    layer_of("backward");
    const Span phase(dev, Profile::Kind::phase, "update");
    const Span kernel(dev, "optimizer", "adamw", 0, 8e6);
  }
  // A millisecond passes from event to event: 1 for each kernel, 7 for a phase of two in a layer, 21 for a step.
  const std::string text = run::ProfileTables(profile).text();
  for (const char* row : {
           "2 steps of 21.0 ms on average\n",
           "| frozen products | 4.00 | 19.05 % | 3.0 | 5.0 |\n| optimizer | 1.00 | 4.76 % |  | 8.0 |\n"
           "| outside kernels | 16.00 | 76.19 % | | |\n",
           "| kernel | for | forward | head | recompute | backward | update | ms | share | calls | GFLOP/s | GB/s |\n",
           "\n| gemm |  | 2.00 |  |  | 2.00 |  | 4.00 | 19.05 % | 4 | 3.0 | 5.0 |\n",
           "\n| optimizer |  |  |  |  |  | 1.00 | 1.00 | 4.76 % | 1 |  | 8.0 |\n",
           "\n| backward | 7.00 | 33.33 % |\n| forward | 7.00 | 33.33 % |\n| update | 3.00 | 14.29 % |\n",
           "\n| 0 | 5.00 |  | 5.00 | 4.00 | 20 | 3.0 | 5.0 |\n",
       }) {
    CAPTURE(row);
    CHECK_MESSAGE(text.find(row) != std::string::npos, text);
  }
}

}  // namespace profile_tables_test
