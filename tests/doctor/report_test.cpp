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

namespace {

/// With something of every part.
Report full_report() {
  Report report;
  report.device = "NPU `0`";
  report.findings = {{"CPU", "ok: 2 threads"}, {"memory", "note: a|b\x1B"}};
  report.host = {{"time", "now"}, {"lora", "1"}};
  report.facts = {{"CANN", "8.1"}};
  report.environment = {{"LORA_X", "y"}};
  report.kernels = {{"norm", "a|b", "float32", "y", State::ok, 0.0123, 1.2345, 16, ""},
                    {"norm", "rms_norm", "float32", "rstd", State::too_far, 0.5, 1e9, 64.25, "bits|"},
                    {"rope", "forward", "float16", "", State::failed, 1, 2, 3, "refused"}};
  report.reference = {.type = "float32", .losses = {5.25, 4.123456789}, .norms = {1.5, 2}};
  report.training = {{.type = "float32",
                      .losses = {5.125, 4.5},
                      .norms = {1.25, 3},
                      .loss_difference = 0.0123,
                      .norm_difference = 0.456,
                      .loss_bound = 0.001,
                      .norm_bound = 0.01,
                      .overflows = 2,
                      .tokens_per_second = 1234.56,
                      .peak_bytes = 3.5 * (1 << 20)},
                     {.type = "bfloat16, offload all",
                      .state = State::failed,
                      .losses = {6},
                      .norms = {7},
                      .loss_bound = 0.03,
                      .norm_bound = 0.3,
                      .words = "lost | found"}};
  report.timed = "Medians | of 5";
  report.times = {{"products", "c = a bᵀ", "float32", 0.002, 4e9, 6e8, ""},
                  {"norm", "rms_norm", "bfloat16", 0.5, 0, 1e9, ""},
                  {"rope", "inverse", "float16", 0, 1, 1, "too | large"}};
  report.speeds = {{"a wait", "1 µs"}};
  report.problems = {"times: none"};
  return report;
}

}  // namespace

TEST_CASE("report: names of states") {
  CHECK(name_of(State::ok) == "ok");
  CHECK(name_of(State::too_far) == "too far");
  CHECK(name_of(State::failed) == "failed");
}

TEST_CASE("report: its checks are kernels, trainings, times and problems, each of which may be bad") {
  Report report = full_report();
  CHECK(report.checks() == 3 + 2 + 3 + 1);
  CHECK(report.bad() == 2 + 1 + 1 + 1);
  CHECK(verdict(report) == "5 of 9 checks are not ok");
  report.unfinished = "times";
  CHECK(verdict(report) == "not finished: ended during times; 9 checks until then, 5 not ok");
  CHECK_FALSE(report.good());
  const auto only = [](const auto& change) {
    Report one = some_report();
    REQUIRE(one.bad() == 0);
    change(one);
    CHECK_FALSE(one.good());
    return one.bad();
  };
  CHECK(only([](Report& one) { one.kernels[0].state = State::failed; }) == 1);
  CHECK(only([](Report& one) { one.training[0].state = State::failed; }) == 1);
  CHECK(only([](Report& one) { one.times[0].words = "x"; }) == 1);
  CHECK(only([](Report& one) { one.problems = {"x", "y"}; }) == 2);
}

TEST_CASE("report: the whole of it for people, part by part") {
  const std::string expected =
      "# lora doctor's report on NPU `0`: 5 of 9 checks are not ok\n\n"
      "- times: none\n"
      "- norm, rms_norm, rstd, in float32: too far: bits|\n"
      "- rope, forward, in float16: failed: refused\n"
      "- training in bfloat16, offload all: failed: lost | found\n"
      "- time of rope, inverse, in float16: too | large\n"
      "\n## Found\n\n| | |\n|---|---|\n| CPU | ok: 2 threads |\n| memory | note: a\\|b\\x1B |\n"
      "\n## Host\n\n| | |\n|---|---|\n| time | now |\n| lora | 1 |\n"
      "\n## Device\n\n| | |\n|---|---|\n| CANN | 8.1 |\n"
      "\n## Training\n\nA tiny random model, from the same weights and on the same tokens as on the processors in "
      "float32.\n\n"
      "| type | loss differs by | at most | norm differs by | at most | overflows | tokens/s | memory taken | |\n"
      "|---|---:|---:|---:|---:|---:|---:|---:|---|\n"
      "| float32 | 0.012 | 0.001 | 0.46 | 0.01 | 2 | 1235 | 3.5 MiB | ok |\n"
      "| bfloat16, offload all | 0 | 0.03 | 0 | 0.3 | 0 | 0 | 0.0 MiB | **failed**: lost \\| found |\n\n"
      "| step | loss on the processors | in float32 | in bfloat16, offload all | norm on the processors | in float32 | "
      "in bfloat16, offload all |\n|---:|---:|---:|---:|---:|---:|---:|\n"
      "| 1 | 5.25 | 5.125 | 6 | 1.5 | 1.25 | 7 |\n"
      "| 2 | 4.123457 | 4.5 | | 2 | 3 | |\n"
      "\nEach kernel is compared with the processors' in double. The error is the largest difference over the largest "
      "magnitude; the same in roundings of the type, or of float32 for what is formed in it; and how many there may "
      "be.\n"
      "\n## Kernels in float32\n\n"
      "| family | kernel | output | error | roundings | at most | |\n|---|---|---|---:|---:|---:|---|\n"
      "| norm | a\\|b | y | 0.012 | 1.23 | 16 | ok |\n"
      "| norm | rms_norm | rstd | 0.5 | 1e+09 | 64.2 | **too far**: bits\\| |\n"
      "\n## Kernels in float16\n\n"
      "| family | kernel | output | error | roundings | at most | |\n|---|---|---|---:|---:|---:|---|\n"
      "| rope | forward | | | | | **failed**: refused |\n"
      "\n## Times\n\nMedians \\| of 5\n\n"
      "| family | kernel | type | median ms | GFLOP/s | GB/s |\n|---|---|---|---:|---:|---:|\n"
      "| products | c = a bᵀ | float32 | 2 | 2e+03 | 300 |\n"
      "| norm | rms_norm | bfloat16 | 500 | | 2 |\n"
      "| rope | inverse | float16 | **failed**: too \\| large | | |\n"
      "\n## Speed of copies and launches\n\n| | |\n|---|---|\n| a wait | 1 µs |\n"
      "\n## Environment\n\n| | |\n|---|---|\n| LORA_X | y |\n";
  CHECK(to_markdown(full_report()) == expected);
}

TEST_CASE("report: the whole of it for programs, number by number") {
  const io::Json expected = io::parse_json(R"({
    "device": "NPU `0`", "good": false, "verdict": "5 of 9 checks are not ok", "problems": ["times: none"],
    "host": {"time": "now", "lora": "1"}, "facts": {"CANN": "8.1"}, "environment": {"LORA_X": "y"},
    "kernels": [
      {"family": "norm", "kernel": "a|b", "type": "float32", "output": "y", "state": "ok", "error": 0.0123,
       "roundings": 1.2345, "bound": 16.0, "words": ""},
      {"family": "norm", "kernel": "rms_norm", "type": "float32", "output": "rstd", "state": "too far", "error": 0.5,
       "roundings": 1e9, "bound": 64.25, "words": "bits|"},
      {"family": "rope", "kernel": "forward", "type": "float16", "output": "", "state": "failed", "error": 1.0,
       "roundings": 2.0, "bound": 3.0, "words": "refused"}],
    "reference": {"losses": [5.25, 4.123456789], "norms": [1.5, 2.0]},
    "training": [
      {"type": "float32", "state": "ok", "losses": [5.125, 4.5], "norms": [1.25, 3.0], "loss_difference": 0.0123,
       "norm_difference": 0.456, "overflows": 2, "tokens_per_second": 1234.56, "peak_bytes": 3670016.0, "words": ""},
      {"type": "bfloat16, offload all", "state": "failed", "losses": [6.0], "norms": [7.0], "loss_difference": 0.0,
       "norm_difference": 0.0, "overflows": 0, "tokens_per_second": 0.0, "peak_bytes": 0.0, "words": "lost | found"}],
    "timed": "Medians | of 5",
    "times": [
      {"family": "products", "kernel": "c = a bᵀ", "type": "float32", "seconds": 0.002, "flops": 4e9, "bytes": 6e8,
       "words": ""},
      {"family": "norm", "kernel": "rms_norm", "type": "bfloat16", "seconds": 0.5, "flops": 0.0, "bytes": 1e9,
       "words": ""},
      {"family": "rope", "kernel": "inverse", "type": "float16", "seconds": 0.0, "flops": 1.0, "bytes": 1.0,
       "words": "too | large"}],
    "speeds": {"a wait": "1 µs"}})",
                                           "expected");
  CHECK(to_json(full_report()) == expected);
}

}  // namespace report_test
