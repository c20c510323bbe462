#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "lora/core/printable.hpp"
#include "lora/cpu/device.hpp"
#include "lora/io/json.hpp"
#include "lora/run/ascend_findings.hpp"
#include "lora/run/findings.hpp"
#include "lora/settings/device_name.hpp"

namespace {

using namespace lora;

bool works(const std::vector<run::Finding>& findings) {
  return std::none_of(findings.begin(), findings.end(),
                      [](const run::Finding& finding) { return finding.state == run::Finding::State::missing; });
}

std::string as_json(const std::vector<run::Finding>& findings, const std::string& device) {
  io::Json list = io::Json::array();
  for (const run::Finding& finding : findings) {
    list.push_back(io::json_object({{"part", finding.part},
                                    {"state", std::string(name_of(finding.state))},
                                    {"found", finding.found},
                                    {"advice", nullptr}}));
    if (!finding.advice.empty()) list.back()["advice"] = finding.advice;
  }
  io::Json report = io::json_object({{"device", device}, {"works", works(findings)}});
  report["findings"] = std::move(list);
  return io::to_text(report, 2) + "\n";
}

/// A line each, with the advice below it.
std::string as_lines(const std::vector<run::Finding>& findings) {
  std::string text;
  const auto column = [](std::string word, std::size_t width) {
    word.resize(std::max(word.size(), width), ' ');
    return word;
  };
  for (const run::Finding& finding : findings) {
    text += concat(column(std::string(name_of(finding.state)), 8), column(finding.part, 17), printable(finding.found),
                   "\n");
    if (!finding.advice.empty()) text += concat(column("", 25), "→ ", finding.advice, "\n");
  }
  return text;
}

}  // namespace

int run_doctor(Request& request) {
  cpu::Device dev(static_cast<int>(request.config.threads.value_or(0)));
  std::vector<run::Finding> findings = run::examine(dev);
  using Kind = settings::DeviceName::Kind;
  const settings::DeviceName device = *settings::parse_device(request.config.device);
  if (device.kind != Kind::cpu)
    for (run::Finding& finding : run::examine_ascend(device.kind == Kind::ascend))
      findings.push_back(std::move(finding));
  std::fputs((request.config.json ? as_json(findings, request.config.device) : as_lines(findings)).c_str(), stdout);
  return works(findings) ? 0 : 1;
}
