#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "lora/cpu/kernels.hpp"
#include "lora/train/trainer.hpp"

namespace lora {

using train::Config;
using train::EvalMetrics;
using train::RunOptions;
using train::RunResult;
using train::StepMetrics;

/// Whether a run computes in bfloat16: as asked, or as the model is stored if the processor is no slower at it.
inline bool computes_in_bfloat16(cpu::Device& dev, const Config& config, const model::Source& source) {
  if (config.dtype != "auto") return config.dtype == "bfloat16";
  return source.stored_dtype() == DType::bf16 && cpu::has_bf16_products(dev);
}

/// Fine-tunes a model as its settings say, on this machine's processors: what `lora train` does, as an object.
class Trainer {
 public:
  /// Opens the model and the data and checks all that can be checked before anything is written.
  /// Throws   ConfigError, FormatError, IoError
  explicit Trainer(Config config, RunOptions options = {}) : device_(static_cast<int>(config.threads.value_or(0))) {
    auto source = train::open_source(config);
    const bool narrow = computes_in_bfloat16(device_, config, source);
    log::info(train::describe_build(), "; ", device_.describe(), "; products by ", cpu::describe_products(device_),
              "; computing in ", narrow ? "bfloat16" : "float32");
    options.environment += concat("products: ", cpu::describe_products(device_), "\n");
    if (narrow) {
      run_.template emplace<Run<bf16>>(device_, std::move(config), std::move(source), std::move(options));
    } else {
      run_.template emplace<Run<float>>(device_, std::move(config), std::move(source), std::move(options));
    }
  }

  /// Trains to the end, or until the options' stop flag is set; may be called once.
  RunResult train() {
    return std::visit(
        [](auto& run) -> RunResult {
          if constexpr (std::is_same_v<std::decay_t<decltype(run)>, std::monostate>) {
            return {};
          } else {
            return run.run();
          }
        },
        run_);
  }

 private:
  template <class T>
  using Run = train::TrainingRun<cpu::Device, T>;

  cpu::Device device_;
  std::variant<std::monostate, Run<float>, Run<bf16>> run_;
};

}  // namespace lora
