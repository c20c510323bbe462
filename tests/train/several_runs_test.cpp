// Several runs in one process.

#include <doctest/doctest.h>

#include <array>
#include <string>
#include <thread>
#include <vector>

#include "support/quiet.hpp"
#include "support/workshop.hpp"

namespace several_runs_test {

using namespace lora;
using namespace lora::test;

TEST_CASE("several runs: two at once have the bits that each has alone, and each its own log") {
  const Quiet quiet;
  const Workshop shop;
  std::array<std::string, 2> said;
  const auto config_of = [&](int which, const std::string& output) {
    auto config = shop.config(output);
    config.seed = 10 + which;
    config.threads = 1 + which;
    if (which == 1) config.dtype = "bfloat16";
    return config;
  };
  for (const int which : {0, 1}) fine_tune(config_of(which, concat("alone ", which)));
  CHECK(quiet.said("step 24/24"));

  const Quiet nothing;
  std::vector<std::thread> threads;
  for (const int which : {0, 1})
    threads.emplace_back([&, which] {
      RunOptions options;
      options.log = [&, which](log::Level, std::string_view text) {
        said[static_cast<std::size_t>(which)] += concat(text, "\n");
      };
      fine_tune(config_of(which, concat("run ", which)), options);
    });
  for (auto& thread : threads) thread.join();
  CHECK(nothing.text.empty());
  for (const int which : {0, 1}) {
    CAPTURE(which);
    const io::Path run = shop.temp / concat("run ", which);
    expect_same(lasting_files(run), lasting_files(shop.temp / concat("alone ", which)));
    const std::string& words = said[static_cast<std::size_t>(which)];
    CHECK(words.find(concat("computing in ", which == 1 ? "bfloat16" : "float32")) != std::string::npos);
    CHECK(words.find("step 24/24") != std::string::npos);
    CHECK(words.find("evaluation loss") != std::string::npos);
    CHECK(words.find(concat("run ", 1 - which)) == std::string::npos);
    const std::string file = io::read_file(run / "training.log");
    CHECK(file.find(concat("run ", which, "/final_model")) != std::string::npos);
    CHECK(file.find(concat("run ", 1 - which)) == std::string::npos);
  }
}

TEST_CASE("several runs: two that were opened together can run one after the other") {
  const Quiet quiet;
  const Workshop shop;
  auto a = shop.config("a"), b = shop.config("b");
  b.seed = 3;
  for (const auto& [config, name] : {std::pair(a, "a alone"), std::pair(b, "b alone")}) {
    auto alone = config;
    alone.output_dir = (shop.temp / name).native();
    fine_tune(alone);
  }
  Trainer second(b), first(a);
  first.train();
  second.train();
  expect_same(lasting_files(shop.temp / "a"), lasting_files(shop.temp / "a alone"));
  expect_same(lasting_files(shop.temp / "b"), lasting_files(shop.temp / "b alone"));
}

}  // namespace several_runs_test
