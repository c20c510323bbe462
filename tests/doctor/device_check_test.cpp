// The whole of a check, part by part, as whoever writes the report meanwhile sees it.

#include "lora/doctor/device_check.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <regex>
#include <string>
#include <vector>

#include "lora/instantiate.hpp"
#include "support/environment.hpp"

namespace device_check_test {

using namespace lora;
using namespace lora::doctor;
using D = cpu::Device;

namespace {

/// What ends a check once it has come far enough.
struct Stop {};

std::string listed(const std::vector<Fact>& facts) {
  std::string text;
  for (const Fact& fact : facts) text += concat(text.empty() ? "" : "; ", fact.what);
  return text;
}

}  // namespace

TEST_CASE("device_check: what is known grows from part to part, and is there before the next begins") {
  const test::Environment mark("LORA_TEST_MARK", "here");
  std::vector<Report> seen;
  Report known;
  known.findings = {{"CPU", "ok"}};
  const auto make = [] { return D(1); };
  CHECK_THROWS_AS(check_device(make, Options{.threads = 1}, known,
                               [&](const Report& report) {
                                 seen.push_back(report);
                                 if (seen.size() == 5) throw Stop();
                               }),
                  Stop);
  REQUIRE(seen.size() == 5);
  const std::string parts[] = {"what the device is", "arithmetic in float32", "arithmetic in bfloat16",
                               "arithmetic in float16", "products in float32"};
  const std::string order = "order of dropout's bits in ", sums = "small products that are added to 1 in ",
                    within = "small products behind 1 in one sum in ";
  std::string facts[5];
  facts[1] = "products; memory before";
  facts[2] = facts[1] + "; " + order + "float32";
  for (const int i : {3, 4}) {
    const std::string type = i == 3 ? "bfloat16" : "float16";
    facts[i] = facts[i - 1] + "; " + sums + type + "; " + within + type + "; " + order + type;
  }
  for (std::size_t i = 0; i < 5; ++i) {
    const Report& report = seen[i];
    CHECK(report.unfinished == parts[i]);
    CHECK(report.device == D(1).describe());
    CHECK(listed(report.findings) == "CPU");
    CHECK(report.host.at(0).what == "time");
    CHECK(std::any_of(report.host.begin(), report.host.end(),
                      [](const Fact& fact) { return fact.what == "threads" && fact.found.starts_with("1 of "); }));
    CHECK(std::any_of(report.environment.begin(), report.environment.end(),
                      [](const Fact& fact) { return fact.what == "LORA_TEST_MARK" && fact.found == "here"; }));
    CHECK(report.problems.empty());
    CHECK(report.kernels.empty());
    CHECK(listed(report.facts) == facts[i]);
  }
  const std::string memory = seen[4].facts[1].found;
  CAPTURE(memory);
  CHECK(std::regex_match(memory, std::regex(R"(\d+\.\d+ [MG]iB of \d+\.\d+ [MG]iB are free)")));
}

TEST_CASE("device_check: a device that can't be opened is one problem, and nothing more is tried") {
  int made = 0, begun = 0;
  const auto make = [&]() -> D {
    ++made;
    fail<DeviceError>("gone");
  };
  const Report report = check_device(make, Options{.threads = 1}, Report(), [&](const Report&) { ++begun; });
  CHECK(report.device == "a device that can't be opened");
  CHECK(report.problems == std::vector<std::string>{"gone"});
  CHECK(report.host.size() > 1);
  CHECK(report.facts.empty());
  CHECK(report.unfinished.empty());
  CHECK_FALSE(report.good());
  CHECK(made == 1);
  CHECK(begun == 0);
  CHECK(Options().threads == 0);
}

}  // namespace device_check_test
