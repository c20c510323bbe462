#include <doctest/doctest.h>

#include <string>

#include "lora/io/json.hpp"
#include "support/environment.hpp"
#include "support/message_of.hpp"
#include "support/program.hpp"

namespace doctor_test {

using namespace lora;

TEST_CASE("program: doctor tells a line for each part, and the same as JSON") {
  const test::Environment libraries("LORA_ASCEND_LIBRARIES", LORA_STAND_IN);
  const auto npus = test::run_program(LORA_PROGRAM, {"doctor", "--device=auto"});
  CHECK(npus.status == 0);
  CHECK(test::holds(npus.output, "\nok      NPU 1            Ascend910B3, 20 cube"));
  const auto lines = test::run_program(LORA_PROGRAM, {"doctor", "--device=cpu"});
  CHECK_FALSE(test::holds(lines.output, "NPU"));
  CHECK(lines.status == 0);
  CHECK(lines.errors.empty());
  const auto report = test::run_program(LORA_PROGRAM, {"doctor", "--json", "--device=cpu"});
  CHECK(report.status == 0);
  const io::Json json = io::parse_json(report.output, "doctor");
  CHECK(json.at("works") == true);
  CHECK(json.at("device") == "cpu");
  CHECK(json.at("findings").size() > 6);
  for (const io::Json& finding : json.at("findings")) {
    const auto part = finding.at("part").get<std::string>(), state = finding.at("state").get<std::string>();
    CAPTURE(part);
    CHECK(test::holds("\n" + lines.output, concat("\n", state, std::string(8 - state.size(), ' '), part, " ")));
    CHECK(finding.at("advice").is_null() == (state == "ok"));
    if (!finding.at("advice").is_null()) CHECK(test::holds(lines.output, finding.at("advice").get<std::string>()));
  }
  const auto wrong = test::run_program(LORA_PROGRAM, {"doctor", "--dataset=x"});
  CHECK(wrong.status == 2);
  CHECK(test::holds(wrong.errors, "--dataset"));
}

}  // namespace doctor_test
