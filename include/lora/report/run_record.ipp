#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>

#include "lora/core/config.hpp"
#include "lora/core/error.hpp"
#include "lora/core/format.hpp"
#include "lora/io/files/file.hpp"
#include "lora/io/files/read_file.hpp"
#include "lora/io/formats/json_view.hpp"
#include "lora/report/run_record.hpp"

namespace lora::report {

namespace detail {

/// Adds a line of the log.
inline void take_line(RunRecord& record, const io::JsonView& line) {
  const auto step = static_cast<double>(line.at<Index>("step"));
  if (line.find("eval_loss")) {
    record.evaluations.push_back(line.json());
    record.curves["eval_loss"].add(step, line.at<double>("eval_loss"));
    return;
  }
  for (const char* field : {"loss", "mean_loss", "learning_rate", "grad_norm", "tokens_per_second", "peak_memory_gib"})
    if (const auto value = line.get<double>(field)) record.curves[field].add(step, *value);
}

inline void read_log(RunRecord& record, const io::Path& path) {
  if (!io::is_there(path)) return;
  std::ifstream file(path, std::ios::binary);
  if (!file) fail<IoError>("cannot read ", path.native());
  constexpr std::size_t longest = std::size_t{1} << 20;
  std::string line;
  for (Index number = 1; std::getline(file, line); ++number) {
    if (file.eof()) return;  // without its end: a kill has cut it
    const std::string where = concat(path.native(), ":", number);
    if (line.size() > longest) fail<FormatError>(where, ": a line of ", line.size(), " bytes; at most ", longest);
    const io::Json json = io::parse_json(line, where);
    take_line(record, io::JsonView::of_object(json, where));
  }
}

}  // namespace detail

LORA_INLINE const std::vector<Point>& RunRecord::curve(std::string_view field) const {
  static const std::vector<Point> none;
  const auto found = curves.find(field);
  return found == curves.end() ? none : found->second.points();
}

LORA_INLINE RunRecord read_run(const io::Path& folder) {
  const io::Path settings = folder / "run_config.json";
  if (!io::is_file(settings))
    fail<ConfigError>("key runs: given ", folder.native(),
                      ", but there is no run_config.json; allowed: folders of runs");
  RunRecord record;
  const io::Path whole = std::filesystem::absolute(folder).lexically_normal();
  record.name = (whole.has_filename() ? whole : whole.parent_path()).filename().native();
  record.settings = io::read_json(settings);
  if (!record.settings.is_object()) fail<FormatError>(settings.native(), ": must be a JSON object");
  if (const io::Path metrics = folder / "training_metrics.json"; io::is_file(metrics))
    record.metrics = io::JsonFile(metrics)->json();
  if (const io::Path environment = folder / "environment_info.txt"; io::is_file(environment))
    record.environment = io::read_file(environment);
  detail::read_log(record, folder / "trainer_log.jsonl");
  return record;
}

}  // namespace lora::report
