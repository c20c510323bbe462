#pragma once

#include "lora/core/config.hpp"
#include "lora/doctor/ascend_findings.hpp"

namespace lora::doctor::detail {

/// "Ascend910B3, 20 cube and 40 vector cores, 60.9 GiB of 61.3 GiB are free"
LORA_INLINE Finding npu_finding(const ascend::Runtime& runtime, std::int32_t device, Finding::State unusable) {
  Finding finding{concat("NPU ", device), Finding::State::ok};
  if (const auto error = runtime.aclrtSetDevice(device); error != 0) {
    finding.state = unusable;
    finding.found = "can't be used: " + runtime.describe(error);
    finding.advice = ascend::advice_of(error);
    return finding;
  }
  const char* name = runtime.aclrtGetSocName();
  std::int64_t cube = 0, vector = 0;
  std::size_t free = 0, total = 0;
  finding.found = name != nullptr ? name : "without a name";
  const auto number = static_cast<std::uint32_t>(device);
  if (runtime.aclGetDeviceCapability(number, ascend::ACL_DEVICE_INFO_AI_CORE_NUM, &cube) == 0 &&
      runtime.aclGetDeviceCapability(number, ascend::ACL_DEVICE_INFO_VECTOR_CORE_NUM, &vector) == 0)
    finding.found += concat(", ", cube, " cube and ", vector, " vector cores");
  if (const auto error = runtime.aclrtGetMemInfo(ascend::ACL_HBM_MEM, &free, &total); error == 0) {
    finding.found +=
        concat(", ", gib_text(static_cast<double>(free)), " of ", gib_text(static_cast<double>(total)), " are free");
  } else {
    finding.state = unusable;
    finding.found += ", which doesn't tell its memory: " + runtime.describe(error);
    finding.advice = ascend::advice_of(error);
  }
  (void)runtime.aclrtResetDevice(device);
  return finding;
}

/// "libhccl.so; HCCL_BUFFSIZE=100": the library and what the environment tells it
LORA_INLINE Finding links_finding() {
  const ascend::Hccl hccl;
  Finding finding{"NPU links", Finding::State::note};
  finding.advice = "several NPUs need HCCL, which comes with the toolkit (CANN); one does not";
  finding.found = hccl.problem().empty() ? hccl.library() : "can't be used: " + hccl.problem();
  for (const char* const name : {"HCCL_CONNECT_TIMEOUT", "HCCL_EXEC_TIMEOUT", "HCCL_IF_IP", "HCCL_SOCKET_IFNAME",
                                 "HCCL_IF_BASE_PORT", "HCCL_BUFFSIZE"})
    if (const char* const value = std::getenv(name)) finding.found += concat("; ", name, "=", std::string_view(value));
  try {
    ascend::check_hccl_environment();
  } catch (const ConfigError& error) {
    finding.found += concat("; ", std::string_view(error.what()));
  }
  return finding;
}

LORA_INLINE Finding operators_finding(const ascend::Toolkit& toolkit, Finding::State unusable) {
  Finding finding{"NPU operators", Finding::State::ok};
  if (!toolkit.operator_problem().empty()) {
    finding.state = unusable;
    finding.found = "can't be used: " + toolkit.operator_problem();
    finding.advice = "install the toolkit's operator packages for this kind of NPU";
    return finding;
  }
  std::size_t there = 0;
  for (const ascend::OperatorInfo& one : toolkit.operators_found) there += one.there ? 1 : 0;
  finding.found = concat(there, " of ", toolkit.operators_found.size(), " in ", toolkit.operator_names());
  for (const ascend::OperatorInfo& one : toolkit.operators_found)
    if (!one.there)
      finding.found +=
          concat("; without ", one.name, " (", one.family, ")", one.left_out ? ", left out by LORA_ASCEND_WITHOUT" : "",
                 one.fallback.empty() ? "" : ", done by ", one.fallback);
  if (toolkit.missing_operators().empty()) return finding;
  finding.state = unusable;
  finding.advice = "nothing stands in for " + toolkit.missing_operators() + "; " + toolkit.operators_advice();
  return finding;
}

/// Whether the NPUs are of the kind that is asked for.
LORA_INLINE Finding kind_finding(const ascend::Toolkit& toolkit, std::string_view type, Finding::State unusable) {
  Finding finding{"NPU kind", Finding::State::ok, ascend::wrong_kind(type, toolkit)};
  if (finding.found.empty()) {
    finding.found = type;
    return finding;
  }
  finding.state = unusable;
  finding.advice = "leave device_type out to take any kind, or run where such NPUs are";
  return finding;
}

/// The NPU that this process would take, of those that `ids` names.
LORA_INLINE Finding choice_finding(const ascend::Toolkit& toolkit, std::span<const int> ids, std::uint32_t count,
                                   Finding::State unusable, std::optional<std::int32_t>& chosen) {
  Finding finding{"NPU choice", Finding::State::ok};
  try {
    expect_one_process();  // as inputs::with_device does
    const std::int32_t id = ascend::chosen_of(ids, toolkit).id;
    (void)ascend::longest_wait();
    finding.found = concat("NPU ", id);
    if (static_cast<std::uint32_t>(id) < count) {
      chosen = id;
      return finding;
    }
    finding.found = concat("NPU ", id, " is not there: the runtime counts ", count);
    finding.advice = "npu-smi info lists what the driver sees; ASCEND_RT_VISIBLE_DEVICES may hide devices";
  } catch (const ConfigError& error) {
    finding.found = error.what();
    finding.advice = "train refuses it in the same words";
  }
  finding.state = unusable;
  return finding;
}

}  // namespace lora::doctor::detail

namespace lora::doctor {

LORA_INLINE std::vector<Finding> examine_ascend(bool needed, std::string_view type, std::span<const int> ids,
                                                const std::string& root) {
  using State = Finding::State;
  const State unusable = needed || type != "auto" ? State::missing : State::note;
  ascend::Toolkit toolkit;
  Finding found{"NPU toolkit", unusable};
  if (!toolkit.runs()) {
    found.found = (toolkit.there() ? "" : "none: ") + toolkit.problem();
    found.advice = concat(toolkit.there() ? "" : "where there are Ascend NPUs: ", toolkit.advice());
    std::vector<Finding> findings = {found};
    if (toolkit.there()) add_machine_findings(findings, root, false, unusable);
    return findings;
  }
  found.found = toolkit.names();
  if (const std::string version = toolkit.version(); !version.empty()) found.found += ", interface " + version;
  std::uint32_t count = 0;
  const auto counted = toolkit.runtime.aclrtGetDeviceCount(&count);
  if (counted == 0 && count > 0) {
    found.state = State::ok;
  } else {
    found.found +=
        counted == 0 ? ", which finds no NPU" : ", which can't count NPUs: " + toolkit.runtime.describe(counted);
    found.advice = "npu-smi info lists what the driver sees; ASCEND_RT_VISIBLE_DEVICES may hide devices";
    count = 0;
  }
  std::vector<Finding> findings = {found};
  const Finding operators = detail::operators_finding(toolkit, unusable);
  if (count > 0) {
    // With device auto too, an NPU is taken where its operators are there.
    const State refused = operators.state == State::ok ? State::missing : unusable;
    std::optional<std::int32_t> chosen;
    const Finding choice = detail::choice_finding(toolkit, ids, count, refused, chosen);
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(count); ++i)
      findings.push_back(detail::npu_finding(toolkit.runtime, i, i == chosen ? refused : State::note));
    findings.push_back(choice);
    if (type != "auto") findings.push_back(detail::kind_finding(toolkit, type, refused));
  }
  add_machine_findings(findings, root, count > 0, unusable);
  const char* const kind = toolkit.runtime.aclrtGetSocName();
  findings.push_back(packages_finding(kind != nullptr ? kind : "", unusable));
  findings.push_back(operators);
  findings.push_back(detail::links_finding());
  return findings;
}

}  // namespace lora::doctor
