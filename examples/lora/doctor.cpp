#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "chat_input.hpp"
#include "commands.hpp"
#include "device_check.hpp"
#include "lora/core/log.hpp"
#include "lora/core/printable.hpp"
#include "lora/cpu/runtime/device.hpp"
#include "lora/doctor/ascend_findings.hpp"
#include "lora/doctor/findings.hpp"
#include "lora/doctor/report.hpp"
#include "lora/io/files/atomic_folder.hpp"
#include "lora/io/formats/json.hpp"
#include "lora/settings/device_name.hpp"
#include "processes.hpp"
#include "standard_output.hpp"

namespace {

using namespace lora;

bool works(const std::vector<doctor::Finding>& findings) {
  return std::none_of(findings.begin(), findings.end(),
                      [](const doctor::Finding& finding) { return finding.state == doctor::Finding::State::missing; });
}

io::Json as_json(const std::vector<doctor::Finding>& findings, const std::string& device) {
  io::Json list = io::Json::array();
  for (const doctor::Finding& finding : findings) {
    list.push_back(io::json_object({{"part", finding.part},
                                    {"state", std::string(name_of(finding.state))},
                                    {"found", finding.found},
                                    {"advice", nullptr}}));
    if (!finding.advice.empty()) list.back()["advice"] = finding.advice;
  }
  io::Json report = io::json_object({{"device", device}, {"works", works(findings)}});
  report["findings"] = std::move(list);
  return report;
}

doctor::Finding line_finding() {
  const std::string_view library = line_editing();
  if (!library.empty()) return {"line editing", doctor::Finding::State::ok, std::string(library)};
  return {"line editing", doctor::Finding::State::note, "none: chat reads lines as the terminal gives them",
          "install libedit (Debian: libedit-dev) and build again"};
}

/// A line each, with the advice below it.
std::string as_lines(const std::vector<doctor::Finding>& findings) {
  std::string text;
  const auto column = [](std::string word, std::size_t width) {
    word.resize(std::max(word.size(), width), ' ');
    return word;
  };
  for (const doctor::Finding& finding : findings) {
    text += concat(column(std::string(name_of(finding.state)), 8), column(finding.part, 17), printable(finding.found),
                   "\n");
    if (!finding.advice.empty()) text += concat(column("", 25), "→ ", finding.advice, "\n");
  }
  return text;
}

/// The file of a report, of which there is a whole one at any time.
class ReportFile {
 public:
  /// Throws   ConfigError for a file that no doctor wrote
  explicit ReportFile(io::Path path) : path_(std::move(path)) {
    struct stat status {};
    const bool there = ::stat(path_.c_str(), &status) == 0;
    special_ = there && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode);
    if (special_) return;
    if (there && !is_report())
      fail<ConfigError>("key output_file: given ", path_.native(),
                        ", which no doctor wrote; hint: give another file, or move that away");
    io::clear_killed(path_);
  }

  const io::Path& path() const { return path_; }

  /// A pipe or device gets what is whole alone.
  void write(const doctor::Report& report) const {
    if (!special_ || report.unfinished.empty()) io::write_file(path_, std::string_view(doctor::to_markdown(report)));
  }

 private:
  bool is_report() const {
    std::string head(doctor::report_head.size(), '\0');
    std::ifstream file(path_, std::ios::binary);
    return file.read(head.data(), static_cast<std::streamsize>(head.size())) && head == doctor::report_head;
  }

  io::Path path_;
  bool special_ = false;
};

/// Tries the device, with a report that is written before each part.
doctor::Report check_fully(const settings::Config& config, const std::vector<doctor::Finding>& findings,
                           const ReportFile& file) {
  doctor::Report report;
  report.device = config.device;
  for (const doctor::Finding& finding : findings)
    report.findings.push_back({finding.part, concat(name_of(finding.state), ": ", finding.found)});
  report = check_device_of(config, std::move(report), [&](const doctor::Report& so_far) {
    log::info("checking ", so_far.unfinished);
    file.write(so_far);
  });
  file.write(report);
  return report;
}

}  // namespace

int run_doctor(Request& request) {
  const settings::Config& config = request.config;
  const io::Path path = config.output_file.empty() ? "doctor_report.md" : config.output_file;
  const std::optional<ReportFile> file = config.full ? std::optional<ReportFile>(path) : std::nullopt;
  cpu::Device dev(static_cast<int>(config.threads.value_or(0)));
  std::vector<doctor::Finding> findings = doctor::examine(dev);
  findings.push_back(mpi_finding());
  findings.push_back(line_finding());
  using Kind = settings::DeviceName::Kind;
  const settings::DeviceName device = *settings::parse_device(config.device);
  if (device.kind != Kind::cpu)
    for (doctor::Finding& finding : doctor::examine_ascend(device.kind == Kind::ascend, config.device_type, device.ids))
      findings.push_back(std::move(finding));
  io::Json json = as_json(findings, config.device);
  if (!config.json) print_result(as_lines(findings));
  bool good = works(findings);
  if (file) {
    const doctor::Report report = check_fully(config, findings, *file);
    good = good && report.good();
    json["report"] = doctor::to_json(report);
    if (!config.json) print_result(doctor::summary(report) + concat("the report is ", path.native(), "\n"));
  }
  if (config.json) print_result(io::to_text(json, 2) + "\n");
  return good ? 0 : 1;
}
