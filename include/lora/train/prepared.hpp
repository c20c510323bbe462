#pragma once

#include <string>
#include <vector>

#include "lora/cpu/runtime/threads.hpp"
#include "lora/data/batches/encode.hpp"
#include "lora/inputs/run_data.hpp"
#include "lora/io/files/path.hpp"
#include "lora/model/decoder/blueprint.hpp"
#include "lora/model/weights/weights.hpp"
#include "lora/run/earlier_run.hpp"
#include "lora/run/talk.hpp"
#include "lora/settings/config.hpp"
#include "lora/train/options.hpp"
#include "lora/train/plan.hpp"

namespace lora::train {

/// A run before it begins: all that its settings, its data and an earlier run decide, opened and checked. It needs
/// neither a device nor weights, and writes nothing; every rank prepares the same.
struct Prepared {
  /// `config` is valid. `threads` read the data.
  /// Throws   ConfigError, FormatError, IoError
  Prepared(const cpu::Threads& threads, settings::Config config, model::Source source, RunOptions options);
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;

  settings::Config config;  ///< with what the data, or an earlier run, settles
  RunOptions options;       ///< without records, which `data` has
  model::Source source;
  io::Path output;
  run::EarlierRun earlier;
  inputs::RunData data;
  Plan plan;
  model::Blueprint blueprint;             ///< of the model, with what may train
  inputs::RunData::Survey survey{};       ///< of the data
  std::vector<std::string> file_names{};  ///< of the files whose records are counted: several, or with a name
};

/// The units of a step where neither the settings nor an earlier run say: ranks, times their micro-batches where
/// gradients leave with each.
Index usual_units(const settings::Config& config);
/// `recorded`: by an earlier run, so that other units are no advice.
/// Throws   ConfigError where gradients are to leave with each micro-batch, and a unit of any stage has more than one
void expect_units_of_a_micro_batch(const settings::Config& config, bool recorded = false);

/// How the model of a run will be talked to. It refers to the run's tokenizer.
/// Throws   FormatError
run::Talk talk_of(const Prepared& run);

}  // namespace lora::train

#ifndef LORA_COMPILED
#  include "lora/train/prepared.ipp"
#endif
