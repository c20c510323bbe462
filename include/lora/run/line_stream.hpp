#pragma once

#include <string_view>

#include "lora/run/event.hpp"

namespace lora::run {

/// Writes the lines of trainer_log.jsonl to a descriptor as well, each as soon as it is known, for a program that reads
/// them from a pipe. A reader that goes, or leaves the pipe full for `patience` seconds, ends this, with a warning, and
/// not the run. A run that is resumed writes lines again that follow its checkpoint.
class LineStream final : public Sink {
 public:
  LineStream(int descriptor, std::string_view name, int patience = 30)
      : descriptor_(descriptor), name_(name), patience_(patience) {}

  /// Throws   IoError if a descriptor is closed, or can only be read from
  static void expect_open(int descriptor, std::string_view name);

  void take(const Event& event) override;

 private:
  void end(std::string_view why);

  int descriptor_;  // not owned; -1: the reader has gone
  std::string_view name_;
  int patience_;
};

}  // namespace lora::run

#ifndef LORA_COMPILED
#  include "lora/run/line_stream.ipp"
#endif
