#pragma once

#include "lora/kernel/soft_cap.hpp"
#include "lora/model/description/config.hpp"

namespace lora::model {

/// Whether a device computes all of a model's architecture.
/// Throws   ConfigError naming what it lacks
template <class D, class T>
void check_computable(const Config& config) {
  if constexpr (!kernel::HasSoftCap<D, T>)
    if (config.attention_cap > 0 || config.logit_cap > 0)
      fail<ConfigError>(
          "models of type ", config.model_type,
          " have soft caps (attn_logit_softcapping, final_logit_softcapping), which NPUs do not compute; ",
          "allowed: device cpu");
}

}  // namespace lora::model
