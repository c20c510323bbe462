#pragma once

#include <optional>

#include "lora/io/files/paths.hpp"
#include "lora/io/formats/tensorboard.hpp"
#include "lora/run/event.hpp"

namespace lora::run {

/// Logs metrics as TensorBoard events, in the folder tensorboard of a run. A resumed run appends to them; those after
/// its checkpoint's step are removed.
class TensorBoardLog final : public Sink {
 public:
  using Kept = io::TensorBoardWriter::Kept;
  /// What leads up to a step. Nothing is changed.
  static Kept kept_through(const io::Path& output_dir, Index step) {
    return io::TensorBoardWriter::kept_through(folder_of(output_dir), step);
  }

  explicit TensorBoardLog(const io::Path& output_dir, const std::optional<Kept>& kept = std::nullopt)
      : folder_(folder_of(output_dir)), writer_(folder_, kept) {}

  void take(const Event& event) override;

 private:
  static io::Path folder_of(const io::Path& output_dir) { return output_dir / "tensorboard"; }

  void write(const StepMetrics& metrics);
  void write(const model::Evaluation& evaluation);

  io::Path folder_;
  io::TensorBoardWriter writer_;
};

}  // namespace lora::run

#ifndef LORA_COMPILED
#  include "lora/run/tensorboard_log.ipp"
#endif
