#pragma once

#include "lora/io/formats/json.hpp"
#include "lora/settings/config.hpp"

namespace lora::test {

/// Settings of a training that a script made with PyTorch, as its fixture names them.
inline void take_training(settings::Config& config, const io::Json& training) {
  config.shuffle = false;
  config.per_device_train_batch_size = training.at("micro_batch").get<Index>();
  config.gradient_accumulation_steps = training.at("accumulation");
  config.learning_rate = training.at("learning_rate");
  config.lr_scheduler_type = training.at("schedule");
  config.warmup_steps = training.at("warmup_steps");
  config.weight_decay = training.at("weight_decay");
  config.max_grad_norm = training.at("max_grad_norm");
  config.adam_beta1 = training.at("beta1");
  config.adam_beta2 = training.at("beta2");
  config.adam_epsilon = training.at("epsilon");
  config.max_steps = training.at("steps");
}

}  // namespace lora::test
