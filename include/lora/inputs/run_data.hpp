#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/data/sampling/order.hpp"
#include "lora/inputs/records.hpp"
#include "lora/io/files/path.hpp"
#include "lora/settings/settings.hpp"

namespace lora::inputs {

/// The training and evaluation data of a run.
class RunData {
 public:
  /// A setting's value in the run that is resumed, or null.
  using Earlier = std::function<io::Json(std::string_view)>;

  /// Opens the files, or `lists` where these have their names. date and enable_thinking, if not given, are taken from
  /// `earlier`. Throws   ConfigError, FormatError, IoError
  RunData(const cpu::Threads& threads, const settings::Config& config, const io::Path& model, Index vocab_size,
          const Earlier& earlier, const data::RecordLists& lists = {});

  const TextFiles& text() const { return text_; }
  /// The date that the template prints; empty if it prints none.
  const std::string& date() const { return date_; }
  /// The setting, if the template depends on it.
  const std::optional<bool>& enable_thinking() const { return enable_thinking_; }

  const Records& train() const { return *train_; }
  /// The sequences to train on, in the order of the files.
  const data::Sequences& order() const { return order_; }

  /// Where mix_strategy interleaves files, what an epoch has of each; else of no file.
  const data::Mixture& mixture() const { return mixture_; }

  /// With use_curriculum, the classes of the sequences in `order`; null if no record has the field.
  const data::SequenceClasses* classes() const { return classes_ ? &*classes_ : nullptr; }

  /// With use_curriculum, the field that no record has; else empty.
  const std::string& absent_class_field() const { return absent_field_; }

  /// Of a record to train on that has one.
  const std::string& label_of(Index record) const;

  bool evaluates() const { return eval_.has_value(); }
  const Records& eval() const { return *eval_; }
  const data::Sequences& eval_order() const { return eval_order_; }

  /// The evaluation records that have an answer, to generate and compare. Reads all of them.
  std::vector<data::Sample> answered() const;

  /// Totals of the training and evaluation records.
  struct Survey {
    data::EncodeSummary train;
    data::EncodeSummary eval{};
  };

  /// Reads every record once, so that malformed records are found before the first step.
  /// Throws   FormatError, also if nothing is labeled
  Survey survey(const cpu::Threads& threads, const settings::Config& config) const;

 private:
  [[noreturn]] static void fail_unlabeled(const data::EncodeSummary& found, const settings::Config& config);

  settings::Config settle(settings::Config config, const Earlier& earlier);

  void find_classes(const cpu::Threads& threads, const settings::Config& config);

  /// Who says more of a curriculum than that there is one means it.
  void refuse_lessons(const settings::Config& config) const;

  void mix(const settings::Config& config);

  TextFiles text_;
  std::string date_;
  std::optional<bool> enable_thinking_;
  std::optional<Records> train_, eval_;
  data::Sequences order_ = data::Sequences::below(0), eval_order_ = order_;
  std::optional<data::SequenceClasses> classes_;  // of order_
  std::vector<std::int32_t> class_of_record_;
  std::string absent_field_;
  data::Mixture mixture_;
};

}  // namespace lora::inputs

#ifndef LORA_COMPILED
#  include "lora/inputs/run_data.ipp"
#endif
