#include "lora/run/ascend_findings.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "support/environment.hpp"
#include "support/message_of.hpp"
#include "support/temp_folder.hpp"

namespace ascend_findings_test {

using namespace lora;
using run::Finding;
using State = run::Finding::State;
using test::Environment;

namespace {

Finding of(const std::vector<Finding>& findings, const std::string& part) {
  for (const Finding& one : findings)
    if (one.part == part) return one;
  FAIL("no finding of ", part);
  return {};
}

/// A type as the vendor's headers write it.
template <class T>
std::string written() {
  if constexpr (std::is_same_v<T, const char*>) return "const char *";
  if constexpr (std::is_same_v<T, int>) return "int";
  if constexpr (std::is_same_v<T, std::uint32_t>) return "uint32_t";
  if constexpr (std::is_same_v<T, std::int32_t*>) return "int32_t *";
  if constexpr (std::is_same_v<T, std::uint32_t*>) return "uint32_t *";
  if constexpr (std::is_same_v<T, std::int64_t*>) return "int64_t *";
  if constexpr (std::is_same_v<T, std::size_t*>) return "size_t *";
  if constexpr (std::is_same_v<T, ascend::AclMemory>) return "aclrtMemAttr";
  if constexpr (std::is_same_v<T, ascend::AclDeviceInfo>) return "aclDeviceInfo";
  return "a type without a name here";
}

template <class R, class... P>
std::vector<std::string> signature_of(R (*)(P...)) {
  return {written<R>(), written<P>()...};
}

/// The committed extract of the vendor's headers: result and parameters of each function.
std::map<std::string, std::vector<std::string>> declared() {
  std::map<std::string, std::vector<std::string>> functions;
  std::ifstream file(LORA_FIXTURES "/ascend_abi.tsv");
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string name;
    std::getline(fields, name, '\t');
    for (std::string field; std::getline(fields, field, '\t');) functions[name].push_back(field);
  }
  return functions;
}

}  // namespace

TEST_CASE("ascend: what is called is declared as in the vendor's headers") {
  const auto functions = declared();
  ascend::Runtime runtime;
  std::size_t count = 0;
  runtime.for_each([&](const char* name, auto& function) {
    CAPTURE(name);
    ++count;
    REQUIRE(functions.contains(name));
    std::vector<std::string> expected = functions.at(name);
    // An int32_t is an int.
    for (std::string& type : expected)
      if (type == "int32_t") type = "int";
    CHECK(signature_of(function) == expected);
  });
  CHECK(count * sizeof(void*) == sizeof(ascend::Runtime));
  static_assert(sizeof(ascend::AclMemory) == 4 && sizeof(ascend::AclDeviceInfo) == 4);
}

TEST_CASE("ascend: every operator is in the vendor's headers, or has a fallback, and each once") {
  const auto functions = declared();
  std::set<std::string_view> names;
  const std::vector<std::string> start = {"int", "void *", "uint64_t", "aclOpExecutor *"};
  for (const ascend::Operator& one : ascend::operators) {
    const std::string name = concat("aclnn", one.name);
    CAPTURE(name);
    CHECK(names.insert(one.name).second);
    const bool there = functions.contains(name) && functions.contains(name + "GetWorkspaceSize");
    CHECK((there || !one.fallback.empty()));
    if (!there) continue;
    const auto& run = functions.at(name);
    REQUIRE(run.size() == 5);
    CHECK(std::vector<std::string>(run.begin(), run.begin() + 4) == start);
    const auto& sizes = functions.at(name + "GetWorkspaceSize");
    CHECK(sizes.back() == "aclOpExecutor **");
    CHECK(sizes[sizes.size() - 2] == "uint64_t *");
  }
}

TEST_CASE("ascend: without the vendor's libraries one line says so, and why") {
  const test::TempFolder empty;
  const Environment folder("LORA_ASCEND_LIBRARIES", empty.path().native());
  const auto findings = run::examine_ascend();
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].state == State::note);
  CHECK(findings[0].found.starts_with("none: "));
  CHECK(test::holds(findings[0].found, (empty / "libascendcl.so").native()));
  CHECK(test::holds(findings[0].advice, "set_env.sh"));
}

TEST_CASE("ascend: devices, their memory and the operators that are missing are told") {
  const Environment folder("LORA_ASCEND_LIBRARIES", LORA_PRETEND_ASCEND);
  const auto findings = run::examine_ascend();
  CHECK(of(findings, "NPU toolkit").state == State::ok);
  CHECK(of(findings, "NPU toolkit").found == LORA_PRETEND_ASCEND "/libascendcl.so, interface 1.13.0");
  for (const char* part : {"NPU 0", "NPU 1"}) {
    CHECK(of(findings, part).state == State::ok);
    CHECK(of(findings, part).found == "Ascend910B3, 20 cube and 40 vector cores, 60.5 GiB of 64.0 GiB are free");
  }
  const Finding operators = of(findings, "NPU operators");
  CHECK(operators.state == State::note);
  CHECK(operators.found.starts_with("29 of 31 in " LORA_PRETEND_ASCEND "/libopapi.so"));
  CHECK(test::holds(operators.found, "; without RotaryPositionEmbedding (rotary embedding), done by Mul, Add and Cat"));
  CHECK(operators.found.ends_with("; without ApplyAdamWV2 (optimizer)"));
  CHECK(of(findings, "NPU training").state == State::note);
}

TEST_CASE("ascend: a runtime that can't begin, finds no device or lost one says so in its own words") {
  const Environment folder("LORA_ASCEND_LIBRARIES", LORA_PRETEND_ASCEND);
  {
    const Environment init("PRETEND_ASCEND_INIT", "500003");
    const auto findings = run::examine_ascend();
    REQUIRE(findings.size() == 1);
    CHECK(findings[0].state == State::note);
    CHECK(findings[0].found.ends_with(", which can't begin: error 500003 (the driver does not answer)"));
  }
  {
    const Environment init("PRETEND_ASCEND_INIT", "100002");  // somebody else has begun
    CHECK(run::examine_ascend().size() == 5);
  }
  {
    const Environment devices("PRETEND_ASCEND_DEVICES", "0");
    const Finding toolkit = of(run::examine_ascend(), "NPU toolkit");
    CHECK(toolkit.state == State::note);
    CHECK(toolkit.found.ends_with(", which finds no NPU"));
  }
  {
    const Environment devices("PRETEND_ASCEND_DEVICES", "-1");
    CHECK(of(run::examine_ascend(), "NPU toolkit").found.ends_with(", which can't count NPUs: error 507899"));
  }
  const Environment broken("PRETEND_ASCEND_BROKEN", "1");
  const auto findings = run::examine_ascend();
  CHECK(of(findings, "NPU 0").state == State::ok);
  CHECK(of(findings, "NPU 1").state == State::note);
  CHECK(of(findings, "NPU 1").found == "can't be used: error 107001 (the device is lost)");
}

}  // namespace ascend_findings_test
