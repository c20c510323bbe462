#pragma once

#include <memory>
#include <string>
#include <utility>

#include "lora/core/log.hpp"
#include "lora/inputs/device.hpp"
#include "lora/settings/dataset_info.hpp"
#include "lora/settings/deepspeed.hpp"
#include "lora/train/any_run.hpp"

namespace lora {

using model::Evaluation;
using run::StepMetrics;
using settings::Config;
using train::Running;
using train::RunOptions;
using train::RunResult;

/// Calls f(dev, decoder) with the model of a run, in a callback.
template <class F>
void with_model(const Running& running, F&& f) {
  const auto found = [&]<class D, class T>() {
    const auto* const model = running.model<D, T>();
    if (model != nullptr) f(model->dev, model->decoder);
    return model != nullptr;
  };
  const auto on = [&]<class D>() {
    return found.template operator()<D, float>() || found.template operator()<D, bf16>() ||
           found.template operator()<D, f16>();
  };
  bool known = on.template operator()<cpu::Device>();
#if defined(LORA_WITH_ASCEND)
  known = known || on.template operator()<ascend::Device>();
#endif
  if (!known) fail<Error>("the run is on a device that this program does not know");
}

/// Fine-tunes a model: `lora train` as an object. A template, so that only programs that train compile the training
/// code; and of another name where a program knows NPUs, so that one beside it may not.
template <class Npu>
class BasicTrainer {
 public:
  /// Validates the settings, opens model and data and checks everything that can be checked before anything is written.
  /// Throws   ConfigError, FormatError, IoError
  explicit BasicTrainer(Config config, RunOptions options = {});

  /// Trains to the end, or until the options' stop flag is set.
  /// Throws   Error if called twice: each run needs its own Trainer
  RunResult train();

 private:
  std::unique_ptr<train::AnyRun> run_;
  bool called_ = false;
};

#if defined(LORA_WITH_ASCEND)
using KnownNpu = ascend::Device;
#else
using KnownNpu = void;
#endif
using Trainer = BasicTrainer<KnownNpu>;

template <class Npu>
BasicTrainer<Npu>::BasicTrainer(Config config, RunOptions options) {
  const bool together = options.ranks != nullptr;
  config.ranks = together ? options.ranks->size() : 1;
  if (const std::string found = settings::find_datasets(config, settings::train_command, options.records);
      !found.empty() && (!together || options.ranks->rank() == 0))
    log::info(found);
  settings::apply_deepspeed(config, settings::train_command);
  settings::validate(config, settings::train_command);
  if (config.preview > 0)
    fail<ConfigError>("key preview: given ", config.preview,
                      ", allowed: 0 for a Trainer, which trains; 'lora train' prints previews");
  inputs::with_device_maker(
      config, [&](const auto& make) { run_ = train::open_run(make, config, std::move(options)); }, together);
}

template <class Npu>
RunResult BasicTrainer<Npu>::train() {
  if (std::exchange(called_, true)) fail<Error>("train() was called twice; another run takes another Trainer");
  return run_->run();
}

}  // namespace lora
