#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lora/io/files/paths.hpp"
#include "lora/io/formats/json.hpp"
#include "lora/report/series.hpp"

namespace lora::report {

/// The contents of a run's output folder, parsed.
struct RunRecord {
  std::string name;                                     ///< of the folder
  io::Json settings{};                                  ///< run_config.json
  io::Json metrics{};                                   ///< training_metrics.json; null while it trains
  std::string environment{};                            ///< environment_info.txt
  std::map<std::string, Series, std::less<>> curves{};  ///< by fields of trainer_log.jsonl
  std::vector<io::Json> evaluations{};                  ///< lines of the log

  const std::vector<Point>& curve(std::string_view field) const;
};

/// Reads a run's folder; of its log, of which a kill may have cut the last line, a bounded number of points.
/// Throws   ConfigError for a folder that is none of a run, FormatError naming the line of the log, IoError
RunRecord read_run(const io::Path& folder);

}  // namespace lora::report

#ifndef LORA_COMPILED
#  include "lora/report/run_record.ipp"
#endif
