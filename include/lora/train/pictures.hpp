#pragma once

#include <string_view>
#include <utility>
#include <variant>

#include "lora/core/error.hpp"
#include "lora/core/log.hpp"
#include "lora/io/files/file.hpp"
#include "lora/report/page.hpp"
#include "lora/run/event.hpp"
#include "lora/settings/settings.hpp"

namespace lora::train {

/// report.html and loss.svg of a run, made from what lies in its folder: at each checkpoint, and when the run ends.
class Pictures final : public run::Sink {
 public:
  explicit Pictures(io::Path output) : output_(std::move(output)) {}

  void take(const run::Event& event) override {
    if (std::holds_alternative<run::SavingEvent>(event) || std::holds_alternative<run::FinishedEvent>(event)) write();
  }

 private:
  // Training goes on where it can't be done: a warning says so.
  void write() const {
    try {
      const report::RunRecord record = report::read_run(output_);
      const io::Json defaults = settings::to_json({}, settings::train_command);
      report::write_page(output_ / report::page_file, report::page_of({record}, defaults));
      report::write_page(output_ / report::picture_file, report::loss_picture(record));
    } catch (const Error& error) {
      log::warn("no ", report::page_file, ": ", std::string_view(error.what()));
    }
  }

  io::Path output_;
};

}  // namespace lora::train
