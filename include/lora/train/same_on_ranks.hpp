#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "lora/comm/facts.hpp"
#include "lora/io/files/paths.hpp"
#include "lora/io/formats/json.hpp"
#include "lora/settings/config.hpp"
#include "lora/train/prepared.hpp"

// What ranks compare before anything is written.

namespace lora::train {

/// The settings that ranks must have the same: all but paths, threads, and the file of DeepSpeed's that others came
/// from.
std::vector<comm::Fact> facts_of_settings(const settings::Config& config);

/// What ranks must have the same that gather weights from each other as they make the model: the build, settings, and
/// its tensors' shapes.
std::vector<comm::Fact> facts_of_shapes(const Prepared& run);

/// All that must be the same on every rank: the build, settings, model, data, tokenizer, and the step that a run goes
/// on from. Paths may differ from host to host. `noted`: what a checkpoint of the run notes.
std::vector<comm::Fact> facts_of(const Prepared& run, const io::Json& noted, std::optional<Index> resumed_step);

/// Throws   ConfigError, on every rank, where a rank does not find what rank 0 has written into its `folder`. Network
///          file systems take a while until a file is seen everywhere, for which `patience` must suffice.
void expect_shared(comm::Ranks& ranks, const io::Path& folder,
                   std::chrono::seconds patience = std::chrono::seconds(40));

}  // namespace lora::train

#ifndef LORA_COMPILED
#  include "lora/train/same_on_ranks.ipp"
#endif
