#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lora/io/files/file.hpp"
#include "lora/run/event.hpp"

namespace lora::run {

/// The event's line in trainer_log.jsonl, with its end; nothing of an event that has none.
std::optional<std::string> line_of(const Event& event);

/// Logs metrics to trainer_log.jsonl, one line each and unbuffered. A resumed run appends to it; lines after its
/// checkpoint's step are removed.
class MetricsLog final : public Sink {
 public:
  /// What stays of an earlier log.
  struct Kept {
    std::uint64_t bytes = 0;  ///< of trainer_log.jsonl
    double elapsed = 0;       ///< time up to its last line there
  };
  /// The complete lines up to a step, which a run that resumes from it keeps. Changes nothing. `piece_bytes`: how much
  /// is read at once, since a log may have any size. Throws   IoError if it can't be read
  static Kept kept_through(const io::Path& output_dir, Index step, std::size_t piece_bytes = std::size_t{1} << 16);

  /// Starts a new file, or continues after `resumed_step`.
  explicit MetricsLog(const io::Path& output_dir, std::optional<Index> resumed_step = std::nullopt);
  /// The same once it is known what is kept.
  MetricsLog(const io::Path& output_dir, const std::optional<Kept>& kept);

  void take(const Event& event) override;

  /// Elapsed time up to the last line that was kept; 0 for a new run.
  double elapsed_seconds() const { return elapsed_; }

 private:
  static constexpr const char* file_name = "trainer_log.jsonl";

  static io::Path prepare(const io::Path& output_dir, const std::optional<Kept>& kept);

  struct Place {
    Index step;
    double elapsed;  // 0 for an evaluation's line
  };
  static std::optional<Place> place_of_line(std::string_view line);

  io::Path output_;
  double elapsed_;
  io::FileWriter lines_;
};

}  // namespace lora::run

#ifndef LORA_COMPILED
#  include "lora/run/metrics_log.ipp"
#endif
