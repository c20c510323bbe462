#pragma once

#include <memory>
#include <string>
#include <utility>

#include "lora/cpu/kernels.hpp"
#include "lora/train/trainer.hpp"

namespace lora {

using run::EvalMetrics;
using run::StepMetrics;
using settings::Config;
using train::RunOptions;
using train::RunResult;

/// Whether a run computes in bfloat16: as set, or for "auto" if the model is stored in it and the processor has
/// instructions for it.
inline bool computes_in_bfloat16(cpu::Device& dev, const Config& config, const model::Source& source) {
  if (config.dtype != "auto") return config.dtype == "bfloat16";
  return source.stored_dtype() == DType::bf16 && cpu::has_bf16_products(dev);
}

/// Fine-tunes a model on the CPU: `lora train` as an object. A template, so that only programs that train compile the
/// training code.
template <AnyDevice D>
class BasicTrainer {
 public:
  /// Validates the settings, opens model and data and checks everything that can be checked before anything is written.
  /// Throws   ConfigError, FormatError, IoError
  explicit BasicTrainer(Config config, RunOptions options = {});

  /// Trains to the end, or until the options' stop flag is set.
  /// Throws   Error if called twice: each run needs its own Trainer
  RunResult train();

 private:
  template <class T>
  using Run = train::TrainingRun<D, T>;

  /// The number of threads, after validating the settings, before anything is built from them.
  static int checked_threads(const Config& config) {
    settings::validate(config, settings::train_command);
    if (config.preview > 0)
      fail<ConfigError>("key preview: given ", config.preview,
                        ", allowed: 0 for a Trainer, which trains; 'lora train' prints previews");
    return static_cast<int>(config.threads.value_or(0));
  }

  D device_;
  std::unique_ptr<Run<float>> wide_;
  std::unique_ptr<Run<bf16>> narrow_;  // one of the two
  bool called_ = false;
};

using Trainer = BasicTrainer<cpu::Device>;

template <AnyDevice D>
BasicTrainer<D>::BasicTrainer(Config config, RunOptions options) : device_(checked_threads(config)) {
  auto source = inputs::open_source(config);
  const bool narrow = computes_in_bfloat16(device_, config, source);
  log::info(run::describe_build(), "; ", device_.describe(), "; products by ", cpu::describe_products(device_),
            "; computing in ", narrow ? "bfloat16" : "float32");
  options.environment += concat("products: ", cpu::describe_products(device_), "\n");
  if (narrow) {
    narrow_ = std::make_unique<Run<bf16>>(device_, std::move(config), std::move(source), std::move(options));
  } else {
    wide_ = std::make_unique<Run<float>>(device_, std::move(config), std::move(source), std::move(options));
  }
}

template <AnyDevice D>
RunResult BasicTrainer<D>::train() {
  if (std::exchange(called_, true)) fail<Error>("train() was called twice; another run takes another Trainer");
  return wide_ ? wide_->run() : narrow_->run();
}

}  // namespace lora
