#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <thread>
#include <utility>

#include "lora/core/config.hpp"
#include "lora/core/hash.hpp"
#include "lora/io/files/file.hpp"
#include "lora/io/files/file_system.hpp"
#include "lora/model/description/tensors.hpp"
#include "lora/run/environment.hpp"
#include "lora/run/metrics.hpp"
#include "lora/settings/settings.hpp"
#include "lora/train/same_on_ranks.hpp"

namespace lora::train {

namespace detail {

LORA_INLINE void add_settings(const io::Json& object, std::vector<comm::Fact>& facts) {
  for (const auto& [key, value] : object.items())
    facts.push_back({concat("the setting ", key), io::to_text(value, -1)});
}

LORA_INLINE std::vector<comm::Fact> build_and_settings(const Prepared& run) {
  std::vector<comm::Fact> facts = {{"the build", run::describe_build() + "; " + run.options.environment}};
  for (comm::Fact& fact : facts_of_settings(run.config)) facts.push_back(std::move(fact));
  return facts;
}

}  // namespace detail

LORA_INLINE std::vector<comm::Fact> facts_of_settings(const settings::Config& config) {
  constexpr std::array<std::string_view, 8> own = {
      "model_name_or_path", "adapter_name_or_path", "dataset", "dataset_dir",
      "eval_dataset",       "output_dir",           "threads", "deepspeed"};
  io::Json settings = settings::to_json(config, settings::train_command);
  for (const std::string_view key : own) settings.erase(std::string(key));
  std::vector<comm::Fact> facts;
  detail::add_settings(settings, facts);
  return facts;
}

LORA_INLINE std::vector<comm::Fact> facts_of_shapes(const Prepared& run) {
  std::vector<comm::Fact> facts = detail::build_and_settings(run);
  for (const model::TensorInfo& tensor : model::tensors_of(run.source.config()))
    facts.push_back({concat("the model's tensor ", tensor.name), to_string(tensor.shape)});
  return facts;
}

LORA_INLINE std::vector<comm::Fact> facts_of(const Prepared& run, const io::Json& noted,
                                             std::optional<Index> resumed_step) {
  std::vector<comm::Fact> facts = detail::build_and_settings(run);
  detail::add_settings(noted, facts);
  if (run.data.evaluates())
    facts.push_back({"the evaluation data", checksum_text(run.data.eval().dataset().fingerprint())});
  facts.push_back({"the checkpoint to go on from", resumed_step ? concat("step ", *resumed_step) : "none"});
  return facts;
}

LORA_INLINE void expect_shared(comm::Ranks& ranks, const io::Path& folder, std::chrono::seconds patience) {
  if (ranks.size() == 1) return;
  io::Path probe;
  if (ranks.rank() == 0) {
    probe = io::temporary_name(folder / run::metrics_file, io::Temporary::writing);
    io::write_file(probe, std::string_view());
  }
  const std::string name = comm::text_of(ranks, 0, probe.filename().native());
  const auto begin = std::chrono::steady_clock::now();
  bool seen = io::is_there(folder / name);
  while (!seen && std::chrono::steady_clock::now() - begin < patience) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    seen = io::is_there(folder / name);
  }
  const double own = seen ? 1 : 0;
  const std::vector<double> all = ranks.all_gather(std::span<const double>(&own, 1));
  if (ranks.rank() == 0) io::remove_file(probe);
  if (const auto blind = std::find(all.begin(), all.end(), 0.0); blind != all.end())
    fail<ConfigError>("key output_dir: rank ", blind - all.begin(), " does not find in ", folder.native(),
                      " what rank 0 has written there; allowed: a folder that all hosts share");
}

}  // namespace lora::train
