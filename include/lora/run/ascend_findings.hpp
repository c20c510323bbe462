#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "lora/ascend/operators.hpp"
#include "lora/ascend/runtime.hpp"
#include "lora/core/error.hpp"
#include "lora/core/format.hpp"
#include "lora/run/findings.hpp"

namespace lora::run {

namespace detail {

/// "Ascend910B3, 20 cube and 40 vector cores, 60.9 GiB of 61.3 GiB are free"
inline Finding npu_finding(const ascend::Runtime& runtime, std::int32_t device) {
  Finding finding{concat("NPU ", device), Finding::State::ok};
  if (const auto error = runtime.aclrtSetDevice(device); error != 0) {
    finding.state = Finding::State::note;
    finding.found = "can't be used: " + runtime.describe(error);
    finding.advice = "npu-smi info tells its health and who uses it";
    return finding;
  }
  const char* name = runtime.aclrtGetSocName();
  std::int64_t cube = 0, vector = 0;
  std::size_t free = 0, total = 0;
  finding.found = name != nullptr ? name : "without a name";
  const auto number = static_cast<std::uint32_t>(device);
  if (runtime.aclGetDeviceCapability(number, ascend::acl_cube_cores, &cube) == 0 &&
      runtime.aclGetDeviceCapability(number, ascend::acl_vector_cores, &vector) == 0)
    finding.found += concat(", ", cube, " cube and ", vector, " vector cores");
  if (const auto error = runtime.aclrtGetMemInfo(ascend::acl_hbm, &free, &total); error == 0) {
    finding.found +=
        concat(", ", gib_text(static_cast<double>(free)), " of ", gib_text(static_cast<double>(total)), " are free");
  } else {
    finding.state = Finding::State::note;
    finding.found += ", which doesn't tell its memory: " + runtime.describe(error);
    finding.advice = "npu-smi info tells its health and who uses it";
  }
  (void)runtime.aclrtResetDevice(device);
  return finding;
}

inline Finding operators_finding(const ascend::Libraries& libraries) {
  Finding finding{"NPU operators", Finding::State::ok};
  if (!libraries.any()) {
    finding.state = Finding::State::note;
    finding.found = "no library of operators: " + libraries.reason();
    finding.advice = "install the toolkit's operator packages for this kind of NPU";
    return finding;
  }
  const auto missing = ascend::missing_operators(libraries);
  const std::size_t all = std::size(ascend::operators);
  finding.found = concat(all - missing.size(), " of ", all, " in ", libraries.names());
  bool needed = false;
  for (const ascend::Operator& one : missing) {
    finding.found +=
        concat("; without ", one.name, " (", one.family, ")", one.fallback.empty() ? "" : ", done by ", one.fallback);
    needed = needed || one.fallback.empty();
  }
  if (!needed) return finding;
  finding.state = Finding::State::note;
  finding.advice = "install CANN 8.1 or newer: nothing else does the work of an operator that has no other named";
  return finding;
}

}  // namespace detail

/// What there is for Ascend NPUs: the vendor's runtime, devices and operators.
inline std::vector<Finding> examine_ascend() {
  const ascend::Libraries libraries(ascend::runtime_libraries);
  Finding toolkit{"NPU toolkit", Finding::State::note};
  if (!libraries.any()) {
    toolkit.found = "none: " + libraries.reason();
    toolkit.advice = "where there are Ascend NPUs: install driver and toolkit (CANN), and source its set_env.sh";
    return {toolkit};
  }
  toolkit.found = libraries.names();
  toolkit.advice = "install driver and toolkit of one release (CANN 8.1 or newer), and source its set_env.sh";
  ascend::Runtime runtime;
  if (const std::string missing = ascend::load(runtime, libraries); !missing.empty()) {
    toolkit.found += concat(", without the function ", missing);
    return {toolkit};
  }
  const auto begun = runtime.aclInit(nullptr);
  if (begun != 0 && begun != ascend::acl_repeat_initialize) {
    toolkit.found += ", which can't begin: " + runtime.describe(begun);
    return {toolkit};
  }
  std::int32_t major = 0, minor = 0, patch = 0;
  if (runtime.aclrtGetVersion(&major, &minor, &patch) == 0)
    toolkit.found += concat(", interface ", major, ".", minor, ".", patch);
  std::uint32_t count = 0;
  const auto counted = runtime.aclrtGetDeviceCount(&count);
  if (counted == 0 && count > 0) {
    toolkit.state = Finding::State::ok;
    toolkit.advice.clear();
  } else {
    toolkit.found += counted == 0 ? ", which finds no NPU" : ", which can't count NPUs: " + runtime.describe(counted);
    toolkit.advice = "npu-smi info lists what the driver sees; ASCEND_RT_VISIBLE_DEVICES may hide devices";
  }
  std::vector<Finding> findings = {toolkit};
  for (std::uint32_t i = 0; i < count; ++i)
    findings.push_back(detail::npu_finding(runtime, static_cast<std::int32_t>(i)));
  findings.push_back(detail::operators_finding(ascend::Libraries(ascend::operator_libraries)));
  findings.push_back({"NPU training", Finding::State::note, "this version of lora trains on CPUs",
                      "train on a CPU, which device auto and cpu do"});
  if (begun == 0) (void)runtime.aclFinalize();
  return findings;
}

}  // namespace lora::run
