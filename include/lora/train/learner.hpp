#pragma once

#include <concepts>
#include <cstdint>
#include <string_view>
#include <vector>

#include "lora/inputs/adapter_start.hpp"
#include "lora/model/decoder/decoder.hpp"
#include "lora/model/decoder/finite.hpp"
#include "lora/model/export/merge.hpp"
#include "lora/run/final_model.hpp"
#include "lora/train/memory_plan.hpp"
#include "lora/train/offload.hpp"
#include "lora/train/prepared.hpp"
#include "lora/train/same_on_ranks.hpp"
#include "lora/train/start.hpp"
#include "lora/train/step.hpp"

namespace lora::train {

/// What computes in a run: the model, what of it trains, and the optimizer. Whatever may be checked before anything is
/// written has been once it is there.
template <AnyDevice D, class T>
class Learner {
 public:
  /// All of these outlive it.
  /// Throws   ConfigError, FormatError, IoError, DeviceError
  Learner(D& dev, comm::Communicator<D>& comm, const Prepared& run)
      : dev_(dev),
        run_(run),
        decoder_(dev, run.source,
                 weight_places<D>(run.config, comm.size(),
                                  [&run](const model::TensorInfo& info) { return run.blueprint.may_train(info); }),
                 &comm),
        stepper_(dev, attached(comm), adamw_of(run.config), run.config.max_grad_norm,
                 static_cast<std::uint64_t>(run.config.seed), comm,
                 StepSharing{.units = run.config.step_units, .zero_stage = run.config.zero_stage},
                 state_place(run.config)) {
    const settings::Config& config = run.config;
    if (config.trains_model()) {
      (void)model::merged_config(run.source, stored_dtype(precision_of<T>()));  // final_model will need it
    } else if (run::brings_config(run.source)) {
      (void)model::config_json_of(run.source);
    }
    MemoryBasis basis = memory_basis<D, T>(dev, run.blueprint, decoder_.streaming());
    basis.ranks = comm.size();
    double held = run::resident_memory_gib() * 0x1p30;
    // A tensor was whole in the workspace while its parts were taken, which the steps' needs have room for.
    if (D::reads_host_memory && decoder_.gathers_values()) held -= static_cast<double>(dev.arena().peak_scratch());
    memory_ = plan_memory<D, T>(
        basis, run.plan, run.survey.train,
        largest_evaluation(run.survey.eval, config.per_device_eval_batch_size, settings::longest_cutoff(config)),
        config, held);
    keep_layers(dev, decoder_, memory_, config);
    // After the forecast, which would count the weights that this reads twice.
    if (config.trains_model()) model::expect_finite(dev, run.source);
    enter(0);
  }

  model::Decoder<D, T>& decoder() { return decoder_; }
  Stepper<D, T>& stepper() { return stepper_; }
  /// Of each stage.
  const std::vector<MemoryPlan>& memory() const { return memory_; }

  /// Makes a stage's choice of what trains, and of the layers whose gradients are checkpointed.
  void enter(Index stage) {
    const auto number = static_cast<std::size_t>(stage);
    if (const auto& trains = run_.plan.stages()[number].trains) stepper_.train(dev_, trains);
    decoder_.recompute(memory_[number].recomputed);
  }

 private:
  static optim::AdamWSettings adamw_of(const settings::Config& config) {
    return {config.adam_beta1, config.adam_beta2, config.adam_epsilon, config.weight_decay,
            config.loraplus_lr_ratio.value_or(1)};
  }

  // The model with what trains in the first stage, before there is an optimizer, which has moments of that only.
  model::Decoder<D, T>& attached(comm::Communicator<D>& comm) {
    if (run_.config.keeps_values_on_host()) {
      // An optimizer is made for the first stage's choice.
      const model::Trained first = run_.plan.stages().front().trains;
      const auto sizes =
          run_.blueprint.parameters().sizes(first ? first : model::Trained([](std::string_view) { return true; }));
      MemoryBasis basis{run_.blueprint};
      basis.ranks = comm.size();
      TrainedMemory trained;
      const HostMemory host = *host_memory<D, T>(basis, run_.config, sizes, trained);
      expect_host_has_values(host.weights, host.optimizer);
    }
    if (comm.size() > 1 && run_.config.shares_values()) {
      comm::expect_same(comm, facts_of_shapes(run_));
      decoder_.params().share_values(comm);
    } else if (comm.size() > 1 && run_.config.zero_stage > 1) {
      decoder_.params().share_by_layer(comm.rank(), comm.size());
    }
    inputs::choose_what_trains(dev_, decoder_, run_.config);
    if (const auto& trains = run_.plan.stages().front().trains) decoder_.params().train(dev_, trains);
    decoder_.embedding_noise(run_.config.neftune_noise_alpha.value_or(0));
    return decoder_;
  }

  D& dev_;
  const Prepared& run_;
  model::Decoder<D, T> decoder_;
  Stepper<D, T> stepper_;
  std::vector<MemoryPlan> memory_;
};

}  // namespace lora::train
