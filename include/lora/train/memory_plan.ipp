#pragma once

#include "lora/core/config.hpp"
#include "lora/train/memory_plan.hpp"

namespace lora::train {

LORA_INLINE double MemoryPlan::peak_in_stage() const {
  return held + needs.weights + std::max(before.activations, needs.activations) +
         std::max(before.workspace, needs.workspace - sums) + sums;
}

LORA_INLINE double MemoryPlan::peak_at_start() const {
  return held + needs.weights + entering + before.activations + before.workspace + sums_before;
}

LORA_INLINE const MemoryPlan& largest(const std::vector<MemoryPlan>& plans) {
  return *std::max_element(plans.begin(), plans.end(),
                           [](const MemoryPlan& a, const MemoryPlan& b) { return a.peak() < b.peak(); });
}

LORA_INLINE void say_memory(const MemoryPlan& plan, Index layers, const settings::Config& config,
                            const MemoryInfo& device) {
  // What is still to be taken: a device holds its weights already.
  const double needed = plan.peak() - plan.present - (plan.host ? plan.needs.weights : 0);
  const double available = static_cast<double>(plan.host ? device.free : cpu::available_memory());
  const auto gib = [](double value) { return fixed(value / 0x1p30, 2) + " GiB"; };
  log::info("memory: a peak of about ", gib(plan.peak()), " is expected", plan.host ? " on the device" : "",
            plan.peaks_at_start() ? " while what trains changes" : "", " (weights ", gib(plan.needs.weights),
            ", activations ", gib(plan.needs.activations), ", workspace ", gib(plan.needs.workspace), ", held already ",
            gib(plan.held), ", of it ", size_text(plan.trained.total()), " for what trains); ", gib(available),
            " are available");
  if (plan.host && plan.host->weights + plan.host->optimizer > 0)
    log::info("memory of the host: ", gib(plan.host->weights), " for weights that are streamed, ",
              gib(plan.host->optimizer), " for the optimizer; ", gib(static_cast<double>(cpu::available_memory())),
              " are still available");
  if (plan.recomputed > 0 && !config.gradient_checkpointing && config.memory_limit_gib)
    log::info("gradients of ", plan.recomputed, " of ", layers, " layers are checkpointed to stay below ",
              *config.memory_limit_gib, " GiB");
  if (needed > available)
    log::warn("this may not fit into memory: set gradient_checkpointing true, or a smaller ",
              "max_tokens_per_micro_batch or cutoff_len");
}

}  // namespace lora::train
