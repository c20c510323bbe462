// Parts of what is told of NPUs that no stand-in of the vendor's libraries shows.

#include "lora/doctor/ascend_findings.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "support/environment.hpp"

namespace lora::doctor::detail {

// Of examine_ascend; its definitions have them.
Finding npu_finding(const ascend::Runtime& runtime, std::int32_t device, Finding::State unusable);
Finding links_finding();
Finding operators_finding(const ascend::Toolkit& toolkit, Finding::State unusable);
Finding kind_finding(const ascend::Toolkit& toolkit, std::string_view type, Finding::State unusable);

}  // namespace lora::doctor::detail

namespace ascend_findings_test {

using namespace lora;
using doctor::Finding;
using State = Finding::State;

namespace {

/// What the runtime answers, and what it was asked: "set 3; ".
struct Answers {
  const char* name = "Ascend910B3";
  ascend::aclError set = 0, cube = 0, vector = 0, memory = 0;
  std::string asked{};
} answers;

ascend::Runtime runtime() {
  ascend::Runtime made;
  made.aclrtGetSocName = [] { return answers.name; };
  made.aclrtSetDevice = [](std::int32_t device) {
    answers.asked += concat("set ", device, "; ");
    return answers.set;
  };
  made.aclrtResetDevice = [](std::int32_t device) {
    answers.asked += concat("reset ", device, "; ");
    return ascend::aclError{0};
  };
  made.aclGetDeviceCapability = [](std::uint32_t device, ascend::aclDeviceInfo info, std::int64_t* value) {
    const bool cube = info == ascend::ACL_DEVICE_INFO_AI_CORE_NUM;
    CHECK((cube || info == ascend::ACL_DEVICE_INFO_VECTOR_CORE_NUM));
    CHECK(device == 3);
    *value = cube ? 20 : 40;
    return cube ? answers.cube : answers.vector;
  };
  made.aclrtGetMemInfo = [](ascend::aclrtMemAttr kind, std::size_t* free, std::size_t* total) {
    CHECK(kind == ascend::ACL_HBM_MEM);
    *free = std::size_t{3} << 29;
    *total = std::size_t{4} << 30;
    return answers.memory;
  };
  return made;
}

void check(const Finding& finding, const char* part, State state, const std::string& found, std::string_view advice) {
  CHECK(finding.part == part);
  CHECK(finding.state == state);
  CHECK(finding.found == found);
  CHECK(finding.advice == advice);
}

}  // namespace

TEST_CASE("ascend findings: of an NPU what it tells is told, and it is given back") {
  const auto told = [](const Answers& of) {
    answers = of;
    return doctor::detail::npu_finding(runtime(), 3, State::missing);
  };
  const std::string memory = ", 1.5 GiB of 4.0 GiB are free", both = "set 3; reset 3; ";
  check(told({}), "NPU 3", State::ok, "Ascend910B3, 20 cube and 40 vector cores" + memory, "");
  CHECK(answers.asked == both);
  check(told({.name = nullptr, .cube = 1}), "NPU 3", State::ok, "without a name" + memory, "");
  check(told({.vector = 1}), "NPU 3", State::ok, "Ascend910B3" + memory, "");
  check(told({.memory = 507899}), "NPU 3", State::missing,
        "Ascend910B3, 20 cube and 40 vector cores, which doesn't tell its memory: error 507899",
        ascend::advice_of(507899));
  CHECK(answers.asked == both);
  check(told({.set = 507033}), "NPU 3", State::missing, "can't be used: error 507033", ascend::advice_of(507033));
  CHECK(answers.asked == "set 3; ");
}

TEST_CASE("ascend findings: each operator that is not there is told with its family, and what does its work") {
  const test::Environment nowhere("LORA_ASCEND_LIBRARIES", "/nowhere");
  ascend::Toolkit toolkit;
  toolkit.operators_found = {{"A", "as", "", true},
                             {"B", "bs", "C and D", false},
                             {"E", "es", "", false, true},
                             {"F", "fs", "", false},
                             {"G", "gs", "H", false, true}};
  const std::string found =
      "1 of 5 in ; without B (bs), done by C and D; without E (es), left out by LORA_ASCEND_WITHOUT; without F (fs); "
      "without G (gs), left out by LORA_ASCEND_WITHOUT, done by H";
  for (const State unusable : {State::missing, State::note})
    check(doctor::detail::operators_finding(toolkit, unusable), "NPU operators", unusable, found,
          concat("nothing stands in for E (left out by LORA_ASCEND_WITHOUT), F; ", toolkit.operators_advice()));
  toolkit.operators_found.erase(toolkit.operators_found.begin() + 2, toolkit.operators_found.end());
  check(doctor::detail::operators_finding(toolkit, State::missing), "NPU operators", State::ok,
        "1 of 2 in ; without B (bs), done by C and D", "");
}

TEST_CASE("ascend findings: NPUs that don't tell their kind are of none that is asked for") {
  const test::Environment nowhere("LORA_ASCEND_LIBRARIES", "/nowhere");
  ascend::Toolkit toolkit;
  toolkit.runtime = runtime();
  answers = {};
  const auto kind = [&](const char* type) { return doctor::detail::kind_finding(toolkit, type, State::missing); };
  const std::string advice = "leave device_type out to take any kind, or run where such NPUs are";
  check(kind("ascend910b"), "NPU kind", State::ok, "ascend910b", "");
  check(kind("ascend310p"), "NPU kind", State::missing,
        "key device_type: given ascend310p, but the NPUs here are Ascend910B3", advice);
  answers.name = nullptr;
  check(kind("ascend910b"), "NPU kind", State::missing,
        "key device_type: given ascend910b, but the NPUs here don't tell their kind", advice);
}

TEST_CASE("ascend findings: of the links each variable that HCCL reads is told, whether or not it is there") {
  const test::Environment nowhere("LORA_ASCEND_LIBRARIES", "/nowhere");
  const std::string none = "can't be used: " + ascend::Hccl().problem(),
                    advice = "several NPUs need HCCL, which comes with the toolkit (CANN); one does not";
  CHECK(none.size() > 20);
  check(doctor::detail::links_finding(), "NPU links", State::note, none, advice);
  const test::Environment connect("HCCL_CONNECT_TIMEOUT", "121"), exec("HCCL_EXEC_TIMEOUT", "122"),
      address("HCCL_IF_IP", "10.0.0.1"), interface("HCCL_SOCKET_IFNAME", "lo"), port("HCCL_IF_BASE_PORT", "60000"),
      size("HCCL_BUFFSIZE", "100");
  check(doctor::detail::links_finding(), "NPU links", State::note,
        none +
            "; HCCL_CONNECT_TIMEOUT=121; HCCL_EXEC_TIMEOUT=122; HCCL_IF_IP=10.0.0.1; HCCL_SOCKET_IFNAME=lo; "
            "HCCL_IF_BASE_PORT=60000; HCCL_BUFFSIZE=100",
        advice);
}

TEST_CASE("ascend findings: without a toolkit there is one finding, which is missing where an NPU is asked for") {
  const test::Environment nowhere("LORA_ASCEND_LIBRARIES", "/nowhere");
  const ascend::Toolkit toolkit;
  struct Case {
    bool needed;
    const char* type;
    State state;
  };
  for (const Case& one : {Case{false, "auto", State::note}, Case{true, "auto", State::missing},
                          Case{false, "ascend910b", State::missing}}) {
    const auto findings = doctor::examine_ascend(one.needed, one.type);
    REQUIRE(findings.size() == 1);
    check(findings[0], "NPU toolkit", one.state, "none: " + toolkit.problem(),
          concat("where there are Ascend NPUs: ", toolkit.advice()));
  }
}

}  // namespace ascend_findings_test
