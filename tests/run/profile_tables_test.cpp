#include <doctest/doctest.h>

#include <cstdint>
#include <string>

#include "lora/run/profile.hpp"
#include "lora/tensor/profile_scope.hpp"
#include "support/quiet.hpp"
#include "support/temp_folder.hpp"

namespace profile_tables_test {

namespace {

using namespace lora;

/// What a span asks of a device, whose clock goes on by a millisecond at each event.
struct Clockwork {
  Profile* wanted = nullptr;
  std::int64_t time = 0;
  Arena memory{nullptr, 0, true};  // of which nothing is taken

  Profile* profile() const { return wanted; }
  Arena& arena() { return memory; }
  void set_profile(Profile* profile) { wanted = profile; }
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
    const ProfileScope phase(dev, Profile::Kind::phase, phase_name);
    const ProfileScope layer(dev, Profile::Kind::layer, "layer", 0);
    for (int i = 0; i < 2; ++i) const ProfileScope kernel(dev, "gemm", "gemm", 3e6, 5e6);
  };
  for (int step = 0; step < 2; ++step) {
    const ProfileScope span(dev, Profile::Kind::step, "step");
    layer_of("forward");
    layer_of("backward");
    const ProfileScope phase(dev, Profile::Kind::phase, "update");
    const ProfileScope kernel(dev, "optimizer", "adamw", 0, 8e6);
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

namespace {

void kernels(Clockwork& dev, const char* family, int count, double flops = 0, double bytes = 0) {
  for (int i = 0; i < count; ++i) const ProfileScope kernel(dev, family, "a kernel", flops, bytes);
}

/// A step with every kind of work, a kernel a millisecond.
void whole_step(Clockwork& dev) {
  using Kind = Profile::Kind;
  const ProfileScope step(dev, Kind::step, "step");
  {
    const ProfileScope phase(dev, Kind::phase, "forward");
    {
      const ProfileScope layer(dev, Kind::layer, "layer", 0);
      {
        const ProfileScope part(dev, Kind::part, "low-rank");
        kernels(dev, "gemm", 1, 2e6);
      }
      kernels(dev, "attention", 2);
      kernels(dev, "quantize", 3, 0, 4e6);
      kernels(dev, "norm", 4);
    }
    const ProfileScope layer(dev, Kind::layer, "layer", 1);
    const ProfileScope part(dev, Kind::part, "q_proj");
    kernels(dev, "gemm", 5, 6e6);
  }
  {
    const ProfileScope phase(dev, Kind::phase, "head");
    kernels(dev, "gemm", 6, 1e6);
    kernels(dev, "loss", 1);
  }
  {
    const ProfileScope phase(dev, Kind::phase, "backward");
    const ProfileScope layer(dev, Kind::layer, "layer", 0);
    {
      const ProfileScope again(dev, Kind::phase, "recompute");
      kernels(dev, "norm", 1);
    }
    kernels(dev, "norm", 1);
  }
  const ProfileScope phase(dev, Kind::phase, "update");
  kernels(dev, "optimizer", 1);
  kernels(dev, "reduce", 1);
}

}  // namespace

TEST_CASE("profile: every kind of work has its row, the longest first, and layers a column for each of their own") {
  Profile profile(Profile::Limits{});
  Clockwork dev{&profile};
  whole_step(dev);
  const std::string text = run::ProfileTables(profile).text();
  CAPTURE(text);
  const std::string expected =
      "1 steps of 73.0 ms on average\n"
      "\n"
      "| work | ms | share | GFLOP/s | GB/s |\n"
      "|---|---:|---:|---:|---:|\n"
      "| head and loss | 7.00 | 9.59 % | 0.9 |  |\n"
      "| elementwise | 6.00 | 8.22 % |  |  |\n"
      "| frozen products | 5.00 | 6.85 % | 6.0 |  |\n"
      "| decoding weights | 3.00 | 4.11 % |  | 4.0 |\n"
      "| attention | 2.00 | 2.74 % |  |  |\n"
      "| optimizer | 2.00 | 2.74 % |  |  |\n"
      "| low-rank products | 1.00 | 1.37 % | 2.0 |  |\n"
      "| outside kernels | 47.00 | 64.38 % | | |\n"
      "\n"
      "| kernel | for | forward | head | recompute | backward | update | ms | share | calls | GFLOP/s | "
      "GB/s |\n"
      "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n"
      "| gemm | head |  | 6.00 |  |  |  | 6.00 | 8.22 % | 6 | 1.0 |  |\n"
      "| norm |  | 4.00 |  | 1.00 | 1.00 |  | 6.00 | 8.22 % | 6 |  |  |\n"
      "| gemm | q_proj | 5.00 |  |  |  |  | 5.00 | 6.85 % | 5 | 6.0 |  |\n"
      "| quantize |  | 3.00 |  |  |  |  | 3.00 | 4.11 % | 3 |  | 4.0 |\n"
      "| attention |  | 2.00 |  |  |  |  | 2.00 | 2.74 % | 2 |  |  |\n"
      "| gemm | low-rank | 1.00 |  |  |  |  | 1.00 | 1.37 % | 1 | 2.0 |  |\n"
      "| loss | head |  | 1.00 |  |  |  | 1.00 | 1.37 % | 1 |  |  |\n"
      "| optimizer |  |  |  |  |  | 1.00 | 1.00 | 1.37 % | 1 |  |  |\n"
      "| reduce |  |  |  |  |  | 1.00 | 1.00 | 1.37 % | 1 |  |  |\n"
      "\n"
      "| phase | ms | share |\n"
      "|---|---:|---:|\n"
      "| backward | 9.00 | 12.33 % |\n"
      "| forward | 39.00 | 53.42 % |\n"
      "| head | 15.00 | 20.55 % |\n"
      "| recompute | 3.00 | 4.11 % |\n"
      "| update | 5.00 | 6.85 % |\n"
      "\n"
      "`recompute` lies within `backward`.\n"
      "\n"
      "| layer | forward | recompute | backward | elementwise | frozen products | decoding weights | "
      "attention | low-rank products | MB | GFLOP/s | GB/s |\n"
      "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n"
      "| 0 | 23.00 | 3.00 | 7.00 | 6.00 |  | 3.00 | 2.00 | 1.00 | 12 | 0.2 | 1.0 |\n"
      "| 1 | 13.00 |  |  |  | 5.00 |  |  |  | 0 | 6.0 |  |\n";
  CHECK(text == expected);
}

TEST_CASE("profile: without a step the tables are empty, and nothing is divided by 0") {
  const Profile profile(Profile::Limits{});
  const std::string text = run::ProfileTables(profile).text();
  CHECK(text.starts_with("0 steps of 0.0 ms on average\n\n"));
  CHECK(text.find("| outside kernels |  | 0.00 % | | |\n") != std::string::npos);
  CHECK(text.find("nan") == std::string::npos);
}

TEST_CASE("profile: a trace has each span of a traced step with its times in microseconds and what it did") {
  const test::TempFolder temp;
  Profile profile({.skipped_steps = 0, .traced_steps = 1});
  Clockwork dev{&profile};
  for (int i = 0; i < 2; ++i) {
    const ProfileScope step(dev, Profile::Kind::step, "a \"step\"");
    const ProfileScope phase(dev, Profile::Kind::phase, "forward");
    const ProfileScope layer(dev, Profile::Kind::layer, "layer", 0);
    { const ProfileScope kernel(dev, "gemm", "c = a b", 3e6, 5e6); }
    const ProfileScope kernel(dev, "norm", "rms_norm", 0, 0);
  }
  run::write_trace(profile, temp / "profile.json");
  const std::string text = io::read_file(temp / "profile.json");
  CHECK(text ==
        "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
        R"({"name":"a \"step\"","ph":"X","pid":1,"tid":1,"ts":0.000,"dur":9000.000,"args":{}},)"
        "\n"
        R"({"name":"forward","ph":"X","pid":1,"tid":1,"ts":1000.000,"dur":7000.000,"args":{}},)"
        "\n"
        R"({"name":"layer 0","ph":"X","pid":1,"tid":1,"ts":2000.000,"dur":5000.000,"args":{"layer":0}},)"
        "\n"
        R"({"name":"c = a b","ph":"X","pid":1,"tid":1,"ts":3000.000,"dur":1000.000,)"
        R"("args":{"layer":0,"family":"gemm","flops":3000000.0,"bytes":5000000.0}},)"
        "\n"
        R"({"name":"rms_norm","ph":"X","pid":1,"tid":1,"ts":5000.000,"dur":1000.000,)"
        R"("args":{"layer":0,"family":"norm"}})"
        "\n]}\n");
}

TEST_CASE("profile: a run is traced from the third step on, a shorter one sooner, and only where that is wanted") {
  test::Quiet quiet;
  const test::TempFolder temp;
  Clockwork dev;
  const auto skipped = [&](Index steps) {
    const run::ProfiledRun<Clockwork> profiled(dev, true, steps);
    CHECK(profiled.on());
    REQUIRE(dev.profile() != nullptr);
    return dev.profile()->limits().skipped_steps;
  };
  CHECK(skipped(1) == 0);
  CHECK(skipped(3) == 0);
  CHECK(skipped(4) == 1);
  CHECK(skipped(5) == 2);
  CHECK(skipped(100) == 2);
  CHECK(dev.profile() == nullptr);
  Profile others;
  dev.set_profile(&others);
  {
    const run::ProfiledRun<Clockwork> off(dev, false, 9);
    CHECK_FALSE(off.on());
    CHECK(dev.profile() == &others);
  }
  CHECK(dev.profile() == &others);
  const run::ProfiledRun<Clockwork> profiled(dev, true, 1);
  whole_step(dev);
  profiled.report(temp.path(), "| memory |\n");
  const std::string tables = run::ProfileTables(*dev.profile()).text() + "\n| memory |\n";
  CHECK(io::read_file(temp / "profile.md") == "# Profile\n\n" + tables);
  CHECK(quiet.text == "profile: " + tables + "\n");
  CHECK(io::read_json(temp / "profile.json").at("traceEvents").size() == 37);
}

}  // namespace profile_tables_test
