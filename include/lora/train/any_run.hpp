#pragma once

#include <chrono>
#include <memory>
#include <type_traits>
#include <utility>

#include "lora/core/log.hpp"
#include "lora/inputs/device.hpp"
#include "lora/run/environment.hpp"
#include "lora/train/trainer.hpp"

namespace lora::train {

/// A training run whose device and precision are values.
class AnyRun {
 public:
  virtual ~AnyRun() = default;
  virtual RunResult run() = 0;
};

/// One on D that computes in T.
template <AnyDevice D, class T>
class RunOn : public AnyRun {
 public:
  RunOn(std::unique_ptr<D> dev, settings::Config config, model::Source source, RunOptions options)
      : dev_(std::move(dev)),
        comm_(communicator_of(*dev_, options, config)),
        run_(*dev_, std::move(config), std::move(source), std::move(options), comm_.get()) {}

  RunResult run() override {
    try {
      return run_.run();
    } catch (...) {
      if (comm_ != nullptr) comm_->abandon();
      throw;
    }
  }

 private:
  // Null for a process of its own.
  static std::unique_ptr<comm::Communicator<D>> communicator_of(D& dev, const RunOptions& options,
                                                                const settings::Config& config) {
    if (options.ranks == nullptr || options.ranks->size() == 1) return nullptr;
    const std::chrono::duration<double> timeout(config.ddp_timeout);
    options.ranks->wait_at_most(timeout);
    return inputs::communicator_of(dev, *options.ranks, timeout);
  }

  std::unique_ptr<D> dev_;
  std::unique_ptr<comm::Communicator<D>> comm_;
  TrainingRun<D, T> run_;
};

/// The run that settings describe, on a device that `make` makes.
template <class Make>
std::unique_ptr<AnyRun> open_run(const Make& make, settings::Config config, RunOptions options) {
  using D = decltype(make());
  const auto redirect = redirected(options);
  std::unique_ptr<D> dev(new D(make()));
  auto source = inputs::open_source(config);
  config.model_name_or_path = inputs::name_of_result(config.model_name_or_path);  // as PEFT will look for it
  const Precision precision = inputs::precision_of(*dev, config, source);
  log::info(run::describe_build(), "; ", dev->describe(), "; products by ", describe_products(*dev), "; computing in ",
            name_of(precision));
  options.environment += concat("products: ", describe_products(*dev), "\n");
  return inputs::with_precision(precision, [&]<class T>(std::type_identity<T>) -> std::unique_ptr<AnyRun> {
    return std::make_unique<RunOn<D, T>>(std::move(dev), std::move(config), std::move(source), std::move(options));
  });
}

}  // namespace lora::train
