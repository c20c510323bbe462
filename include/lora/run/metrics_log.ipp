#pragma once

#include <algorithm>
#include <exception>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lora/core/config.hpp"
#include "lora/io/files/file_system.hpp"
#include "lora/io/files/read_file.hpp"
#include "lora/io/formats/json.hpp"
#include "lora/io/formats/json_view.hpp"
#include "lora/run/metrics.hpp"
#include "lora/run/metrics_log.hpp"

namespace lora::run {

LORA_INLINE std::optional<std::string> line_of(const Event& event) {
  const auto line = [](const io::Json& json) { return io::to_text(json, -1) + "\n"; };
  if (const auto* const step = std::get_if<StepEvent>(&event); step != nullptr && step->has_line)
    return line(to_json(step->metrics));
  if (const auto* const told = std::get_if<EvaluationEvent>(&event)) return line(to_json(told->evaluation));
  return std::nullopt;
}

LORA_INLINE MetricsLog::Kept MetricsLog::kept_through(const io::Path& output_dir, Index step, std::size_t piece_bytes) {
  constexpr std::size_t longest_line = std::size_t{1} << 24;
  Kept kept;
  const io::Path path = output_dir / file_name;
  if (!io::is_there(path)) return kept;
  io::FileWindow file(path, piece_bytes);
  while (const auto line = file.line(longest_line)) {
    const auto place = place_of_line(*line);
    if (!place || place->step > step) break;
    kept.elapsed = std::max(kept.elapsed, place->elapsed);
    file.pass(line->size());
  }
  kept.bytes = file.offset();
  return kept;
}

LORA_INLINE MetricsLog::MetricsLog(const io::Path& output_dir, std::optional<Index> resumed_step)
    : MetricsLog(output_dir,
                 resumed_step ? std::optional(kept_through(output_dir, *resumed_step)) : std::optional<Kept>()) {}

LORA_INLINE MetricsLog::MetricsLog(const io::Path& output_dir, const std::optional<Kept>& kept)
    : output_(output_dir),
      elapsed_(kept ? kept->elapsed : 0),
      lines_(prepare(output_dir, kept), io::FileWriter::Mode::append) {}

LORA_INLINE void MetricsLog::take(const Event& event) {
  if (const auto line = line_of(event)) lines_.write(*line);
  if (!std::holds_alternative<SavingEvent>(event)) return;
  lines_.sync();  // what is logged must be on the disk before the checkpoint that goes on from there
  io::sync_folder(output_);
}

LORA_INLINE io::Path MetricsLog::prepare(const io::Path& output_dir, const std::optional<Kept>& kept) {
  io::create_folders(output_dir);
  const io::Path path = output_dir / file_name;
  if (kept)
    io::keep_begin(path, kept->bytes);
  else
    io::remove_file(path);
  return path;
}

LORA_INLINE std::optional<MetricsLog::Place> MetricsLog::place_of_line(std::string_view line) {
  const std::string where = file_name;
  try {
    const io::Json json = io::parse_json(line, where);
    const io::JsonView view(json, where);
    return Place{view.at<Index>("step"), view.get<double>("elapsed_seconds").value_or(0)};
  } catch (const std::exception&) {
    return std::nullopt;  // not a line of this log, so nothing after it can be trusted
  }
}

}  // namespace lora::run
