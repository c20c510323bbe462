#pragma once

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lora/core/config.hpp"
#include "lora/core/error.hpp"
#include "lora/io/files/file_system.hpp"
#include "lora/io/files/paths.hpp"
#include "lora/io/formats/json.hpp"
#include "lora/settings/deepspeed.hpp"
#include "lora/settings/settings.hpp"

namespace lora::settings::detail {

/// Fields that say how DeepSpeed works, or when a loss scale of its own moves, and nothing of what is computed; of one
/// that ends in a dot, all below.
inline constexpr std::string_view idle_fields[] = {
    "activation_checkpointing.",
    "aio.",
    "checkpoint.",
    "comms_config.",
    "comms_logger.",
    "csv_monitor.",
    "dump_state",
    "flops_profiler.",
    "memory_breakdown",
    "monitor_config.",
    "steps_per_print",
    "tensorboard.",
    "wall_clock_breakdown",
    "wandb.",
    "zero_allow_untested_optimizer",
    "zero_force_ds_cpu_optimizer",
    "bf16.auto_cast",
    "fp16.auto_cast",
    "fp16.consecutive_hysteresis",
    "fp16.hysteresis",
    "fp16.initial_scale_power",
    "fp16.loss_scale_window",
    "fp16.min_loss_scale",
    "optimizer.params.torch_adam",
    "zero_optimization.allgather_bucket_size",
    "zero_optimization.allgather_partitions",
    "zero_optimization.contiguous_gradients",
    "zero_optimization.elastic_checkpoint",
    "zero_optimization.ignore_unused_parameters",
    "zero_optimization.load_from_fp32_weights",
    "zero_optimization.offload_optimizer.buffer_count",
    "zero_optimization.offload_optimizer.fast_init",
    "zero_optimization.offload_optimizer.pin_memory",
    "zero_optimization.offload_optimizer.pipeline",
    "zero_optimization.offload_optimizer.pipeline_read",
    "zero_optimization.offload_optimizer.pipeline_write",
    "zero_optimization.offload_optimizer.ratio",
    "zero_optimization.offload_param.buffer_count",
    "zero_optimization.offload_param.buffer_size",
    "zero_optimization.offload_param.max_in_cpu",
    "zero_optimization.offload_param.pin_memory",
    "zero_optimization.overlap_comm",
    "zero_optimization.reduce_bucket_size",
    "zero_optimization.reduce_scatter",
    "zero_optimization.round_robin_gradients",
    "zero_optimization.stage3_gather_16bit_weights_on_model_save",
    "zero_optimization.stage3_max_live_parameters",
    "zero_optimization.stage3_max_reuse_distance",
    "zero_optimization.stage3_param_persistence_threshold",
    "zero_optimization.stage3_prefetch_bucket_size",
    "zero_optimization.sub_group_size",
};

/// One field after the other of a DeepSpeed file, by its path.
class DeepSpeedFile {
 public:
  DeepSpeedFile(Config& config, const io::Json& json) : config_(config) {
    if (!json.is_object()) fail<ConfigError>(std::string_view(config.deepspeed), ": expected an object");
    collect(json, "");
  }

  void apply(Command command) {
    batch(command);
    set("gradient_clipping", "max_grad_norm");
    precision();
    zero();
    optimizer();
    schedule();
    only("prescale_gradients", {"false"});
    only("sparse_gradients", {"false"});
    only("communication_data_type", {"fp32"});
    only("gradient_predivide_factor", {"1.0", "1"});
    only("fp16.loss_scale", {"0", "0.0"});
    for (const Field& field : fields_)
      if (!field.known && !is_auto(*field.value) && !is_idle(field.path))
        refuse(field, "which is not understood; remove it if it changes nothing that is trained");
  }

 private:
  struct Field {
    std::string path;
    const io::Json* value;
    bool known = false;
  };

  // What is not enabled says nothing else.
  void collect(const io::Json& object, const std::string& before) {
    const io::Json* const enabled = io::json_find(object, "enabled");
    if (enabled != nullptr && enabled->is_boolean() && !enabled->get<bool>()) {
      fields_.push_back({before + "enabled", enabled, !before.ends_with("16.")});
      return;
    }
    for (const auto& [name, value] : io::json_fields(object)) {
      if (value.is_object())
        collect(value, before + name + ".");
      else if (!value.is_null())
        fields_.push_back({before + name, &value});
    }
  }
  static bool is_idle(std::string_view path) {
    return std::any_of(std::begin(idle_fields), std::end(idle_fields), [&](std::string_view field) {
      return field.ends_with('.') ? path.starts_with(field) : path == field;
    });
  }
  static bool is_auto(const io::Json& value) { return io::json_is(value, "auto"); }

  [[noreturn]] void refuse(const Field& field, std::string_view why) const {
    fail<ConfigError>("key deepspeed: ", std::string_view(config_.deepspeed), " has ", std::string_view(field.path),
                      " ", std::string_view(io::shown(*field.value)), ", ", why);
  }

  // The field, if it is there and not the run's own.
  const Field* find(std::string_view path) {
    const auto found =
        std::find_if(fields_.begin(), fields_.end(), [&](const Field& field) { return field.path == path; });
    if (found == fields_.end()) return nullptr;
    found->known = true;
    return is_auto(*found->value) ? nullptr : &*found;
  }
  // Whether the file leaves it to a default of DeepSpeed's, which is not the key's.
  bool leaves_open(std::string_view path, std::string_view key) const {
    const auto is_it = [&](const Field& field) { return field.path == path; };
    return std::none_of(fields_.begin(), fields_.end(), is_it) && !is_given(config_, *find_key(key));
  }
  void only(std::string_view path, std::initializer_list<std::string_view> values) {
    const Field* const field = find(path);
    if (field == nullptr) return;
    const std::string text =
        field->value->is_string() ? field->value->get<std::string>() : io::to_text(*field->value, -1);
    if (std::find(values.begin(), values.end(), text) == values.end())
      refuse(*field, concat("which has no counterpart; allowed: ", *values.begin(), " or auto"));
  }
  std::optional<bool> flag(std::string_view path) {
    const Field* const field = find(path);
    if (field == nullptr) return std::nullopt;
    if (!field->value->is_boolean()) refuse(*field, "expected true, false or auto");
    return field->value->get<bool>();
  }

  void set(std::string_view path, std::string_view name) {
    if (const Field* const field = find(path)) set(*field, name, *field->value);
  }
  void set(const Field& field, std::string_view name, const io::Json& value) {
    const Key& key = *find_key(name);
    Config told;
    set_from_json(told, key, value,
                  concat(std::string_view(config_.deepspeed), ": ", std::string_view(field.path), ": "));
    const io::Json has = value_of(config_, key), says = value_of(told, key);
    if (io::to_text(has, -1) == io::to_text(says, -1)) return;
    if (is_given(config_, key) || config_.from_command_line.contains(key.name))
      fail<ConfigError>("key ", key.name, ": given ", std::string_view(io::shown(has)), ", but ",
                        std::string_view(config_.deepspeed), " has ", std::string_view(field.path), " ",
                        std::string_view(io::shown(*field.value)),
                        "; allowed: the same, or \"auto\" in the file, which is the key's");
    std::visit([&](auto member) { config_.*member = told.*member; }, key.member);
  }

  void batch(Command command) {
    set("train_micro_batch_size_per_gpu", "per_device_train_batch_size");
    set("gradient_accumulation_steps", "gradient_accumulation_steps");
    const Field* const all = find("train_batch_size");
    if (all == nullptr || command != train_command) return;
    const Index expected = config_.sequences_per_step();
    if (io::to_text(*all->value, -1) != concat(expected))
      refuse(*all, concat("but a step has ", expected, " sequences: per_device_train_batch_size ",
                          config_.train_batch_size(), " x gradient_accumulation_steps ",
                          config_.gradient_accumulation_steps, " x processes ", config_.ranks));
  }

  void precision() {
    const auto half = flag("fp16.enabled");
    auto brain = flag("bf16.enabled");
    if (const auto old = flag("bfloat16.enabled")) brain = old;
    if (!half && !brain) return;
    if (half == true && brain == true)
      fail<ConfigError>("key deepspeed: ", std::string_view(config_.deepspeed),
                        " enables fp16 and bf16; allowed: one of the two");
    if (half != true && brain != true && !(half && brain)) return;  // the other is the run's own
    const std::string_view dtype = half == true ? "float16" : brain == true ? "bfloat16" : "float32";
    set(*std::find_if(fields_.begin(), fields_.end(),
                      [&](const Field& field) {
                        return field.path.ends_with("16.enabled") &&
                               (dtype == "float32" || io::to_text(*field.value, -1) == "true");
                      }),
        "dtype", io::Json(std::string(dtype)));
  }

  void zero() {
    set("zero_optimization.stage", "zero_stage");
    const Field* given = nullptr;
    const auto offloads = [&](std::string_view path) {
      const Field* const field = find(path);
      if (field == nullptr) return false;
      given = field;
      if (io::json_is(*field->value, "none")) return false;
      if (!io::json_is(*field->value, "cpu")) refuse(*field, "which has no counterpart; allowed: none or cpu");
      return true;
    };
    // What the file does not say of is the run's own.
    bool optimizer = offloads("zero_optimization.offload_optimizer.device");
    if (given == nullptr) optimizer = config_.offloads_optimizer();
    const Field* const of_optimizer = given;
    bool params = offloads("zero_optimization.offload_param.device");
    if (given == of_optimizer) params = config_.offloads_params();
    if (const auto old = flag("zero_optimization.cpu_offload")) {
      optimizer = (of_optimizer != nullptr && optimizer) || *old;
      if (given == nullptr) given = find("zero_optimization.cpu_offload");
    }
    if (given == nullptr) return;
    const std::string_view offload = optimizer && params ? "all" : optimizer ? "optimizer" : params ? "params" : "none";
    set(*given, "offload", io::Json(std::string(offload)));
  }

  void optimizer() {
    only("optimizer.type", {"AdamW", "Adam", "adamw", "adam"});
    if (const Field* const type = find("optimizer.type");
        type != nullptr && leaves_open("optimizer.params.lr", "learning_rate"))
      refuse(*type, "whose lr would be 0.001; allowed: with params.lr, or \"auto\", or learning_rate as a key");
    set("optimizer.params.lr", "learning_rate");
    set("optimizer.params.eps", "adam_epsilon");
    set("optimizer.params.weight_decay", "weight_decay");
    only("optimizer.params.adam_w_mode", {"true"});
    only("optimizer.params.bias_correction", {"true"});
    const Field* const betas = find("optimizer.params.betas");
    if (betas == nullptr) return;
    if (!betas->value->is_array() || betas->value->size() != 2) refuse(*betas, "expected two numbers");
    const auto one_of = [&](std::size_t i, std::string_view key) {
      if (!is_auto((*betas->value)[i])) set(*betas, key, (*betas->value)[i]);
    };
    one_of(0, "adam_beta1");
    one_of(1, "adam_beta2");
  }

  void schedule() {
    const Field* const type = find("scheduler.type");
    if (type != nullptr) {
      if (io::json_is(*type->value, "WarmupDecayLR"))
        set(*type, "lr_scheduler_type", io::Json("linear"));
      else if (io::json_is(*type->value, "WarmupLR"))
        set(*type, "lr_scheduler_type", io::Json("constant"));
      else
        refuse(*type, "which has no counterpart; allowed: WarmupDecayLR or WarmupLR, or lr_scheduler_type as a key");
      // DeepSpeed's own default is a logarithm of the step.
      const Field* const shape = find("scheduler.params.warmup_type");
      if (shape == nullptr || !io::json_is(*shape->value, "linear"))
        refuse(*type,
               "which warms up by a logarithm of the step; allowed: with warmup_type linear, or "
               "lr_scheduler_type and warmup_steps as keys");
      if (leaves_open("scheduler.params.warmup_num_steps", "warmup_steps"))
        refuse(*type,
               "whose warmup_num_steps would be 1000; allowed: with that, or \"auto\", or warmup_steps as a key");
    }
    set("scheduler.params.warmup_max_lr", "learning_rate");
    set("scheduler.params.warmup_num_steps", "warmup_steps");
    only("scheduler.params.warmup_min_lr", {"0", "0.0"});
    if (const Field* const end = find("scheduler.params.total_num_steps");
        end != nullptr && io::to_text(*end->value, -1) != concat(config_.max_steps))
      refuse(*end, "which the run's number of steps decides; allowed: auto, or the same as max_steps");
  }

  Config& config_;
  std::vector<Field> fields_;
};

}  // namespace lora::settings::detail

namespace lora::settings {

LORA_INLINE void apply_deepspeed(Config& config, Command command) {
  if (config.deepspeed.empty()) return;
  if (!io::is_file(config.deepspeed))
    fail<ConfigError>("key deepspeed: given ", std::string_view(config.deepspeed),
                      ", which is no file; allowed: a file of DeepSpeed's settings");
  const io::Json json = io::read_json(config.deepspeed, true);
  detail::DeepSpeedFile(config, json).apply(command);
}

}  // namespace lora::settings
