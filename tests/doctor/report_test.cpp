#include "lora/doctor/report.hpp"

#include <doctest/doctest.h>

#include <string>

#include "support/message_of.hpp"

namespace report_test {

using namespace lora;
using namespace lora::doctor;

namespace {

Report some_report() {
  Report report;
  report.device = "a | device";
  report.facts = {{"memory before", "1.00 GiB"}};
  report.kernels = {{"norm", "rms_norm", "float32", "y", State::ok, 1e-8, 0.25, 16, ""},
                    {"norm", "rms_norm", "bfloat16", "y", State::ok, 1e-3, 0.5, 4, ""}};
  report.reference.losses = {5, 4.5};
  report.reference.norms = {1, 2};
  report.training = {{.type = "float32", .losses = {5, 4.5}, .norms = {1, 2}}};
  report.times = {{"products", "c = a bᵀ", "float32", 0.5, 1e12, 2e9, ""}};
  return report;
}

}  // namespace

TEST_CASE("report: the first line is what it is and the verdict") {
  Report report = some_report();
  CHECK(report.good());
  CHECK(to_markdown(report).starts_with("# lora doctor's report on a \\| device: 4 checks, all ok\n\n## Device"));
  CHECK(summary(report) == "4 checks, all ok\n");

  report.kernels[1].state = State::too_far;
  report.kernels[1].words = "element 3 is 1 but 2 was expected";
  report.kernels.push_back({"rope", "forward", "bfloat16", "", State::failed, 0, 0, 0, "error 507015"});
  report.training[0].state = State::too_far;
  report.training[0].words = "the steps go another way";
  report.problems = {"times: no memory"};
  report.times[0].words = "too large";
  CHECK_FALSE(report.good());
  const std::string lines =
      "5 of 6 checks are not ok\n- times: no memory\n"
      "- norm, rms_norm, y, in bfloat16: too far: element 3 is 1 but 2 was expected\n"
      "- rope, forward, in bfloat16: failed: error 507015\n- training in float32: too far: the steps go another way\n"
      "- time of products, c = a bᵀ, in float32: too large\n";
  CHECK(summary(report) == lines);
  const std::string text = to_markdown(report);
  CHECK(text.starts_with("# lora doctor's report on a \\| device: 5 of 6 checks are not ok\n\n- times: no memory\n"));
  CHECK(test::holds(text,
                    "\n| norm | rms_norm | y | 0.001 | 0.5 | 4 | **too far**: element 3 is 1 but 2 was expected |\n"));
  CHECK(test::holds(text, "\n| rope | forward | | | | | **failed**: error 507015 |\n"));
  const io::Json json = to_json(report);
  CHECK(json.at("good") == false);
  CHECK(json.at("kernels").at(1).at("state") == "too far");
  CHECK(json.at("kernels").at(2).at("words") == "error 507015");
}

TEST_CASE("report: one that was not finished says where it ended, and is not good") {
  Report report = some_report();
  report.unfinished = "attention in bfloat16";
  CHECK_FALSE(report.good());
  CHECK(
      to_markdown(report).starts_with("# lora doctor's report on a \\| device: not finished: ended during attention in "
                                      "bfloat16; 4 checks until then, 0 not ok\n"));
}

TEST_CASE("report: tables of kernels, steps and times") {
  const std::string text = to_markdown(some_report());
  CHECK(test::holds(text, "\n## Kernels in float32\n"));
  CHECK(test::holds(text, "\n## Kernels in bfloat16\n"));
  CHECK(test::holds(text, "\n| norm | rms_norm | y | 1e-08 | 0.25 | 16 | ok |\n"));
  CHECK(test::holds(text, "\n| 2 | 4.5 | 4.5 | 2 | 2 |\n"));
  CHECK(test::holds(text, "\n| products | c = a bᵀ | float32 | 500 | 2e+03 | 4 |\n"));
  CHECK(test::holds(text, "\n| memory before | 1.00 GiB |\n"));
}

}  // namespace report_test
